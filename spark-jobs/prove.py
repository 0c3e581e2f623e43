"""Proves that what had to be mirrored was mirrored: an ordinary Spark application, see README.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial

from lab.access import load_lab
from lab.errors import run_command
from pipeline.proof import Proof
from pipeline.session import start_session
from pipeline.tables import console, show_proof
from pipeline.verdict import EXIT_CODES, judge


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="prove",
        description="Compares, record by record, what the mirrors had to copy with what is there.",
        epilog="exit codes: 0 proved, 1 disproved, 2 wrong use, 3 nothing is set up, 4 inconclusive",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument(
        "--timeout", type=_seconds, default=60, metavar="SECONDS", help="how long to wait for the mirrors (default 60)"
    )
    parser.add_argument(
        "--examples", type=_count, default=5, metavar="N", help="differences of each kind to show (default 5)"
    )
    return parser


def main() -> int:
    """Runs the proof.

    Returns:
        The exit code.
    """
    started = time.monotonic()
    options = arguments().parse_args()
    lab = load_lab()
    proof = Proof(lab, partial(start_session, "prove"), options.timeout, options.examples, _report)
    evidence = proof.run()
    document = judge(evidence, lab.scenario, time.monotonic() - started)
    if options.json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        show_proof(document, console())
    return int(EXIT_CODES[document["verdict"]])


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
    sys.exit(run_command(main))
