"""Proves that what had to be mirrored was mirrored: an ordinary Spark application, see README.md."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import traceback
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any

try:
    from pyspark.sql import SparkSession

    from loosehanger.errors import ExitCode, LabError, WrongUseError, nobody_reads, run_command
    from loosehanger.model.record import Lab, load_lab
    from loosehanger.paths import caller_path
    from loosehanger.times import moment
    from pipeline import files, output, undecided
    from pipeline.external import EXTERNAL, two_clusters
    from pipeline.junit import junit
    from pipeline.proof import Proof
    from pipeline.sales import sum_up
    from pipeline.session import start_session
    from pipeline.tables import console, show_proof
    from pipeline.verdict import EXIT_CODES, judge
except Exception as error:
    if __name__ != "__main__":
        raise
    # A package that is missing, or a Python that is too old: found by spark-submit on a machine without the kit.
    _reason = f"the proof cannot start with {sys.executable}: {type(error).__name__}: {error}"
    if "--json" in sys.argv:
        _totals = (
            "source_records target_records after_cut missing never_mirrored duplicates reordered unexpected altered "
            "moved expired source_gaps config_differences"
        )
        _document = {
            "scenario": "",
            "verdict": "inconclusive",
            "reasons": [_reason],
            "claims": [],
            "cut": {},
            "flows": [],
            "only_at_target": [],
            "notes": [],
            "totals": dict.fromkeys(_totals.split(), 0),
            "seconds": 0.0,
            "records_per_second": None,
        }
        print(json.dumps(_document, indent=2, ensure_ascii=False))
    else:
        print(f"error: {_reason}; spark-jobs/README.md lists the packages", file=sys.stderr)
    # What 1 says of a proof is that something was disproved.
    sys.exit(4)

_PRODUCTS = 10
_REPORT = "pipeline.report"
"""Loaded only where it is wanted."""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="lab prove",
        description="Compares, record by record, what the mirrors had to copy with what is there.",
        epilog="exit codes: 0 proved, 1 disproved, 2 wrong use, 3 nothing is set up, 4 inconclusive or failed",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument(
        "--timeout", type=_seconds, default=60, metavar="SECONDS", help="how long to wait for the mirrors (default 60)"
    )
    parser.add_argument(
        "--while-moving", action="store_true", help="wait longer than that for a mirror that still comes closer"
    )
    parser.add_argument(
        "--examples", type=_count, default=5, metavar="N", help="differences of each kind to show (default 5)"
    )
    parser.add_argument(
        "--configs",
        choices=("judge", "report", "ignore"),
        help="whether topics' settings that differ disprove, are only reported, or are not looked at "
        "(judge; between two clusters of your own report)",
    )
    parser.add_argument("--report", type=caller_path, metavar="FILE", help="write a page for people (HTML)")
    parser.add_argument("--junit", type=caller_path, metavar="FILE", help="write a report for CI (JUnit's XML)")
    two = parser.add_argument_group("two clusters of your own, in place of the lab's regions")
    two.add_argument("--source-config", type=caller_path, metavar="FILE", help="client properties for the source")
    two.add_argument("--target-config", type=caller_path, metavar="FILE", help="client properties for the target")
    two.add_argument("--topics", metavar="REGEX", help="which topics, by their names at the source (comma-separated)")
    two.add_argument("--policy", choices=("identity", "default"), help="the mirror's replication policy (identity)")
    two.add_argument("--source-alias", metavar="NAME", help="the source's alias, for --policy default")
    two.add_argument(
        "--allow-same-cluster", action="store_true", help="compare them although both have the same cluster id"
    )
    parser.add_argument(
        "--since", type=_since, metavar="TIME", help="leave out what is older: an ISO 8601 time, or 30m, 12h, 7d ago"
    )
    return parser


def main() -> int:
    """Runs the proof.

    Returns:
        The exit code.
    """
    started = time.monotonic()
    options = arguments().parse_args()
    for path in filter(None, (options.report, options.junit)):
        files.check_writable(path)
    lab = _two_clusters(options) or load_lab()
    if options.report:
        # Its charts take a while to load, and until they are wanted Python mostly waits for Java.
        threading.Thread(target=import_module, args=(_REPORT,), daemon=True).start()
    try:
        proof = Proof(
            lab,
            _start_spark,
            options.timeout,
            options.examples,
            _report,
            options.since,
            while_moving=options.while_moving,
            configs=options.configs,
            allow_same_cluster=options.allow_same_cluster,
        )
        evidence = proof.run()
        document = judge(evidence, lab.scenario, time.monotonic() - started)
    except WrongUseError:
        raise
    except Exception as error:
        _report(traceback.format_exc().rstrip())
        document = undecided.document(_broken_off(error), lab.scenario, time.monotonic() - started, lab.claims)
    written = _write_files(options, document, lab)
    try:
        if options.json:
            written = output.print_proof(document) and written
        else:
            show_proof(document, console())
            sys.stdout.flush()
    except BrokenPipeError:
        nobody_reads()
    except OSError as error:
        _report(f"error: standard output: cannot be written: {error.strerror}")
        nobody_reads()
        written = False
    code = EXIT_CODES[document["verdict"]]
    return int(code if written or code != ExitCode.DONE else ExitCode.INCONCLUSIVE)


def _start_spark(records: int | None) -> SparkSession:
    return start_session("prove", records=records)


def _write_files(options: argparse.Namespace, document: dict[str, Any], lab: Lab) -> bool:
    """Writes what was asked for beside the output; what cannot be written does not keep the verdict from being told."""
    written = True
    for path, make in ((options.report, partial(_page, lab=lab)), (options.junit, junit)):
        try:
            if path:
                files.write(path, make(document))
        except LabError as error:
            _report(f"error: {error}")
            written = False
        except Exception as error:
            _report(f"{traceback.format_exc()}error: {path}: could not be made: {error!r}")
            written = False
    return written


def _page(document: dict[str, Any], lab: Lab) -> str:
    page: str = import_module(_REPORT).render(document, _aggregates(lab))
    return page


def _broken_off(error: Exception) -> str:
    return f"the proof broke off: {error if isinstance(error, LabError) else f'{type(error).__name__}: {error}'}"


def _two_clusters(options: argparse.Namespace) -> Lab | None:
    needed = ("source_config", "target_config", "topics")
    if not any(getattr(options, name) for name in (*needed, "policy", "source_alias", "allow_same_cluster")):
        return None
    if missing := [f"--{name.replace('_', '-')}" for name in needed if not getattr(options, name)]:
        raise WrongUseError(f"comparing two clusters also needs {' and '.join(missing)}")
    if (options.policy == "default") != bool(options.source_alias):
        raise WrongUseError("--policy default and --source-alias go together")
    return two_clusters(
        options.source_config, options.target_config, options.topics, options.policy or "identity",
        options.source_alias or "source", _report,
    )  # fmt: skip


def _aggregates(lab: Lab) -> dict[str, Any]:
    """What was sold; nothing where that is not known, for a report of a proof does not fail for it."""
    if lab.platform == EXTERNAL:
        return {}
    try:
        return sum_up(_start_spark, lab, _PRODUCTS)
    except Exception as error:
        _report(f"the report has no aggregates: {error}")
        return {}


def _since(text: str) -> datetime:
    return moment(text, datetime.now().astimezone())


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


if __name__ == "__main__":
    output.separate_streams(sys.argv)
    # What 1 says of a proof is that something was disproved.
    sys.exit(run_command(main, failed=ExitCode.INCONCLUSIVE))
