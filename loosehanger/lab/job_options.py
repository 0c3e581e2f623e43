"""The command-line options of the Spark jobs, parsed by ``./lab`` before it starts a job and again by the job.

Needs the standard library only: loading a job takes seconds, and a wrong option is reported before that.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from loosehanger.arguments import Parser, address, count, number, since
from loosehanger.errors import WrongUseError
from loosehanger.paths import caller_path
from loosehanger.ports import LOOPBACK

_OF_TWO_CLUSTERS = ("source_config", "target_config", "topics")
seconds_watched = number(0, 1e6, "a number of seconds", above=True)


def prove(parser: Parser) -> None:
    """Adds the options of the proof."""
    any_proof(parser)
    two = parser.add_argument_group("two clusters of your own, in place of the lab's regions")
    two.add_argument("--source-config", type=caller_path, metavar="FILE", help="client properties for the source")
    two.add_argument("--target-config", type=caller_path, metavar="FILE", help="client properties for the target")
    between_clusters(two)


def between_clusters(parser: argparse._ActionsContainer) -> None:
    """Adds the options of a proof between two clusters, beside the clusters themselves."""
    parser.add_argument(
        "--topics", metavar="REGEX", help="which topics, by their names at the source (comma-separated)"
    )
    parser.add_argument(
        "--groups",
        metavar="NAMES",
        help="consumer groups (comma-separated) that must skip nothing after a switch to the target",
    )
    parser.add_argument("--policy", choices=("identity", "default"), help="the mirror's replication policy (identity)")
    parser.add_argument("--source-alias", metavar="NAME", help="the source's alias, for --policy default")
    parser.add_argument(
        "--allow-same-cluster", action="store_true", help="compare them although both have the same cluster id"
    )


def any_proof(parser: Parser) -> None:
    """Adds the options of every proof."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument(
        "--timeout",
        type=number(0, float("inf"), "a number of seconds"),
        default=60,
        metavar="SECONDS",
        help="how long to wait for the mirrors (default 60)",
    )
    parser.add_argument(
        "--while-moving", action="store_true", help="wait longer than that for a mirror that still makes progress"
    )
    parser.add_argument(
        "--limit",
        type=number(0, float("inf"), "a number of seconds", above=True),
        metavar="SECONDS",
        help="stop after that time, inconclusive, whatever is left to compare (no limit)",
    )
    parser.add_argument(
        "--examples", type=count(0), default=5, metavar="N", help="differences of each kind to show (default 5)"
    )
    parser.add_argument(
        "--configs",
        choices=("judge", "report", "ignore"),
        help="whether topics' settings that differ disprove, are only reported, or are ignored "
        "(judge; between two clusters of your own report)",
    )
    parser.add_argument("--report", type=caller_path, metavar="FILE", help="write an HTML page with charts")
    parser.add_argument("--pdf", type=caller_path, metavar="FILE", help="write a PDF to file or print, without charts")
    parser.add_argument("--junit", type=caller_path, metavar="FILE", help="write a JUnit report (XML) for CI")
    parser.add_argument(
        "--evidence",
        type=caller_path,
        metavar="FILE",
        help="write evidence that others can check: JSON, with its signature in FILE.minisig; needs --sign",
    )
    parser.add_argument(
        "--sign",
        type=caller_path,
        metavar="KEY",
        help="the file with the secret key that signs the evidence (minisign's format; mirrorproof key makes one)",
    )
    parser.add_argument(
        "--since", type=since, metavar="TIME", help="leave out what is older: an ISO 8601 time, or 30m, 12h, 7d ago"
    )


def check_prove(options: argparse.Namespace) -> None:
    """Checks options that depend on each other, and the files that the proof reads and writes.

    Raises:
        WrongUseError: options contradict each other, or a file cannot be read or written.
    """
    check_results(options)
    if not are_two_clusters(options):
        return
    if missing := [f"--{name.replace('_', '-')}" for name in _OF_TWO_CLUSTERS if not getattr(options, name)]:
        raise WrongUseError(f"comparing two clusters also needs {' and '.join(missing)}")
    if (options.policy == "default") != bool(options.source_alias):
        raise WrongUseError("--policy default and --source-alias go together")
    for path in (options.source_config, options.target_config):
        try:
            path.open("rb").close()
        except OSError as error:
            raise WrongUseError(f"{path}: cannot be read ({error.strerror})") from error
    for pattern in options.topics.split(","):
        try:
            re.compile(pattern.strip())
        except re.error as error:
            raise WrongUseError(f"--topics: '{pattern.strip()}' is not a regular expression: {error}") from error


def check_results(options: argparse.Namespace) -> None:
    """Checks that the results can be written where they are wanted, and that evidence will be signed.

    Raises:
        WrongUseError: they cannot, or a key is missing.
    """
    if bool(options.evidence) != bool(options.sign):
        raise WrongUseError("--evidence and --sign go together; mirrorproof key FILE makes a key")
    names = ("report", "pdf", "junit", "evidence", "json_file")
    for path in filter(None, (getattr(options, name, None) for name in names)):
        check_writable(path)


def are_two_clusters(options: argparse.Namespace) -> bool:
    """Whether the proof compares two clusters of the user's own."""
    further = ("groups", "policy", "source_alias", "allow_same_cluster")
    return any(getattr(options, name) for name in (*_OF_TWO_CLUSTERS, *further))


def check_writable(path: Path) -> None:
    """Checks before the work that its result can be written to a file.

    Raises:
        WrongUseError: the folder does not exist or is not writable, or the path is itself a folder.
    """
    if not path.parent.is_dir():
        raise WrongUseError(f"{path}: cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise WrongUseError(f"{path}: cannot be written: it is a folder; name a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise WrongUseError(f"{path}: cannot be written: no right to make files in {path.parent}")


def aggregate(parser: Parser) -> None:
    """Adds the options of the aggregates."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument(
        "--products", type=count(0), default=10, metavar="N", help="how many products to list (default 10)"
    )


def watch(parser: Parser) -> None:
    """Adds the options of the watch."""
    parser.add_argument("--json", action="store_true", help="print one JSON document for each update, one a line")
    parser.add_argument("--for", type=seconds_watched, metavar="SECONDS", help="how long to watch (until Ctrl-C)")
    parser.add_argument(
        "--late-after",
        type=seconds_watched,
        default=10,
        metavar="SECONDS",
        help="a record that is not copied for longer is late (default 10)",
    )
    parser.add_argument(
        "--lateness",
        type=seconds_watched,
        default=600,
        metavar="SECONDS",
        help="how much older than the newest event an event may be to count in its minute (default 600)",
    )
    parser.add_argument(
        "--every",
        type=seconds_watched,
        default=2,
        metavar="SECONDS",
        help="from one round of reading to the next (default 2)",
    )
    parser.add_argument(
        "--warn",
        type=seconds_watched,
        metavar="SECONDS",
        help="warn of a loss that can come within this time (default 3600)",
    )
    parser.add_argument(
        "--topic-in", metavar="REGION", help="write each verdict to the topic lab.audit of this region, too"
    )
    parser.add_argument(
        "--canary",
        type=seconds_watched,
        nargs="?",
        const=120,
        metavar="SECONDS",
        help="send a marked record to every source at this interval (default 120), and report if it does not arrive",
    )
    parser.add_argument(
        "--minutes", type=count(1, 1000), default=5, metavar="N", help="how many minutes to show (default 5)"
    )
    parser.add_argument("--products", type=count(1, 1000), default=5, metavar="N", help="how many products (default 5)")
    parser.add_argument(
        "--keep",
        type=number(1, 1e6, "a number of hours"),
        default=24,
        metavar="HOURS",
        help="how long results are kept and counted (default 24)",
    )
    _serve_metrics(parser)


def _serve_metrics(parser: Parser) -> None:
    served = parser.add_argument_group("metrics for Prometheus")
    served.add_argument(
        "--metrics",
        type=_loopback,
        metavar="[HOST:]PORT",
        help="serve the audit at /metrics of this loopback address (default host 127.0.0.1) to who has the scraper's "
        "token; ./lab monitoring shows where it is",
    )
    served.add_argument(
        "--metrics-token-file",
        type=caller_path,
        metavar="FILE",
        help="a file with the token, for a lab without a scraper's user",
    )


def _loopback(text: str) -> tuple[str, int]:
    """Parses a port, or host and port of this machine's loopback address."""
    host, port = address(text)
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise argparse.ArgumentTypeError(
            f"'{host}' is not a loopback address, and the token would cross the network unencrypted; use 127.0.0.1"
        )
    return (LOOPBACK if host == "localhost" else host), port


def check_watch(options: argparse.Namespace) -> None:
    """Checks options of the watch that depend on each other, and the token's file.

    Raises:
        WrongUseError: options contradict each other, or the file cannot be read.
    """
    if options.metrics_token_file is None:
        return
    if options.metrics is None:
        raise WrongUseError("--metrics-token-file needs --metrics")
    metrics_token(options.metrics_token_file)


def metrics_token(path: Path, given_by: str = "--metrics-token-file") -> str:
    """Reads the token in a file.

    Args:
        path: the file.
        given_by: the option or variable that names it, for messages.

    Raises:
        WrongUseError: the file cannot be read, or is empty.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUseError(f"{given_by}: {path} cannot be read ({error})") from error
    if not token:
        raise WrongUseError(f"{given_by}: {path} is empty; write the token into it")
    return token


def spark(parser: argparse.ArgumentParser, work: str = "the lab's home") -> None:
    """Adds the options of every job's launcher.

    Args:
        parser: takes them.
        work: the default of ``--work``, in words.
    """
    group = parser.add_argument_group("about Spark")
    group.add_argument("--master", default="local[*]", help="where Spark runs (default local[*])")
    group.add_argument(
        "--work",
        type=Path,
        metavar="FOLDER",
        help=f"where Spark writes its temporary files and its log (default {work})",
    )
    group.add_argument("--driver-memory", default="1g", metavar="SIZE", help="Java heap of the driver (default 1g)")
    group.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="any Spark setting; can be given repeatedly"
    )


_JOBS: Mapping[str, tuple[Callable[[Parser], None], str, str]] = {
    "prove": (
        prove,
        "Compares, record by record, what the mirrors had to copy with what is there.",
        "0 proved, 1 disproved, 2 wrong use, 3 nothing is set up, 4 inconclusive or failed",
    ),
    "aggregate": (
        aggregate,
        "Orders, units and revenue by product and by region, as each region's consumers see them.",
        "0 done, 1 failed, 2 wrong use, 3 nothing is set up",
    ),
    "watch": (
        watch,
        "Orders, stock, doors and sensors by the minute, and whether all that is mirrored arrives.",
        "0 ended by Ctrl-C or --for, 1 a region cannot be read, 2 wrong use, 3 nothing is set up",
    ),
}
"""For each job: the function that adds its options, its description, and its exit codes."""


def parser(job: str) -> Parser:
    """Returns the parser of a job's own command line, as ``spark-submit`` passes it."""
    add, description, codes = _JOBS[job]
    made = Parser(prog=f"lab {job}", description=description, epilog=f"exit codes: {codes}", allow_abbrev=False)
    add(made)
    return made
