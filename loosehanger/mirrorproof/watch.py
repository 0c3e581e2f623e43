"""``mirrorproof watch``: audits mirrors between any clusters while records flow, for as long as it runs."""

from __future__ import annotations

import argparse
import re

from loosehanger.arguments import Parser, address
from loosehanger.errors import WrongUseError
from loosehanger.lab.job_options import metrics_token, seconds_watched
from loosehanger.paths import caller_path

EVERY_S, GRACE_S, CANARY_S = 5.0, 60.0, 120.0
_REPORT_TOPIC = re.compile(r"(?:([\w.-]+):)?([\w.-]{1,249})", re.ASCII)


def add_options(parser: Parser) -> None:
    """Adds the clusters, and the options of the watch."""
    parser.add_argument(
        "source",
        type=caller_path,
        metavar="CONFIG|SOURCE",
        help="a configuration file, as of prove --config; or a file with client properties of the source",
    )
    parser.add_argument(
        "target", type=caller_path, nargs="?", metavar="TARGET", help="client properties of the copies' cluster"
    )
    parser.add_argument("--flow", action="append", default=[], metavar="NAME", help="only this flow; can be repeated")
    two = parser.add_argument_group("with SOURCE and TARGET")
    two.add_argument(
        "--topics", metavar="REGEX", help="which topics, by their names at the source (comma-separated; default all)"
    )
    two.add_argument("--policy", choices=("identity", "default"), help="the mirror's replication policy (identity)")
    two.add_argument("--source-alias", metavar="NAME", help="the source's alias, for --policy default")
    parser.add_argument(
        "--state",
        type=caller_path,
        metavar="FOLDER",
        help="where it keeps its positions and findings, to continue from them (default: begin anew)",
    )
    parser.add_argument("--for", type=seconds_watched, metavar="SECONDS", help="how long to watch (until Ctrl-C)")
    parser.add_argument(
        "--every",
        type=seconds_watched,
        default=EVERY_S,
        metavar="SECONDS",
        help=f"from one round of reading to the next (default {EVERY_S:.0f})",
    )
    parser.add_argument(
        "--grace",
        type=seconds_watched,
        default=GRACE_S,
        metavar="SECONDS",
        help="how long nothing may change before records are missing, doubled, altered or late "
        f"(default {GRACE_S:.0f})",
    )
    parser.add_argument(
        "--warn",
        type=seconds_watched,
        default=3600,
        metavar="SECONDS",
        help="warn of a loss that can come within this time (default 3600)",
    )
    parser.add_argument(
        "--copier-group",
        action="append",
        default=[],
        metavar="[FLOW:]GROUP",
        help="the group to which the copier commits its offsets at the source once copies are acknowledged: it shows "
        "that the last record of a partition is missing; can be repeated",
    )
    _add_results(parser)


def _add_results(parser: Parser) -> None:
    results = parser.add_argument_group("results, beside the table on the terminal")
    results.add_argument("--json", action="store_true", help="print one JSON document for each round, one a line")
    results.add_argument(
        "--report-topic",
        metavar="[CLUSTER:]TOPIC",
        help="write each verdict to this topic, which is created if it does not exist (of the target's cluster)",
    )
    results.add_argument(
        "--canary",
        type=seconds_watched,
        nargs="?",
        const=CANARY_S,
        metavar="SECONDS",
        help=f"write a record to --canary-topic of each source at this interval (default {CANARY_S:.0f})",
    )
    results.add_argument(
        "--canary-topic", metavar="TOPIC", help="a mirrored topic that exists, and that nothing else writes to"
    )
    results.add_argument(
        "--metrics",
        type=address,
        metavar="[HOST:]PORT",
        help="serve metrics for Prometheus at /metrics of this address, and a status page at / "
        "(default host 127.0.0.1)",
    )
    results.add_argument(
        "--metrics-token-file", type=caller_path, metavar="FILE", help="a file with the token that a scraper must send"
    )


def run(options: argparse.Namespace) -> int:
    """Watches until Ctrl-C, a signal, or the end of ``--for``.

    Returns:
        The exit code.

    Raises:
        LabError: the options cannot be used, or a cluster does not answer at the start.
    """
    _check(options)
    from loosehanger.mirrorproof.flow_watch import watch  # slow to import

    return watch(options)


def _check(options: argparse.Namespace) -> None:
    """Checks options that depend on each other.

    Raises:
        WrongUseError: options contradict each other, or a file cannot be read.
    """
    of_two = {"--topics": options.topics, "--policy": options.policy, "--source-alias": options.source_alias}
    if options.target is None and (both := [name for name, value in of_two.items() if value]):
        raise WrongUseError(f"{' and '.join(both)} need SOURCE and TARGET; a configuration has topics and names")
    if options.target is not None and options.flow:
        raise WrongUseError("--flow needs a configuration in place of SOURCE and TARGET")
    if (options.policy == "default") != bool(options.source_alias):
        raise WrongUseError("--policy default and --source-alias go together")
    if (options.canary is None) != (options.canary_topic is None):
        raise WrongUseError("--canary and --canary-topic go together")
    if options.report_topic is not None and not _REPORT_TOPIC.fullmatch(options.report_topic):
        raise WrongUseError(f"--report-topic: '{options.report_topic}' is not [CLUSTER:]TOPIC, such as new:audit")
    if (options.metrics is None) != (options.metrics_token_file is None):
        raise WrongUseError("--metrics and --metrics-token-file go together")
    if options.metrics_token_file is not None:
        metrics_token(options.metrics_token_file)


def report_topic(text: str) -> tuple[str, str]:
    """Returns the cluster (empty for the target's) and the topic of ``--report-topic``."""
    match = _REPORT_TOPIC.fullmatch(text)
    assert match is not None
    return match[1] or "", match[2]
