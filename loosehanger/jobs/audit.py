"""Audits the lab that is set up as one of its services, and serves what it finds to Prometheus."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loosehanger.audit.lab_watch import LabOptions, survey, watch_lab
from loosehanger.audit.loop import Options
from loosehanger.audit.metrics import AuditMetrics, MetricsServer
from loosehanger.audit.service import AuditService
from loosehanger.audit.state import Folder
from loosehanger.errors import WrongUseError, run_command
from loosehanger.lab.job_options import metrics_token
from loosehanger.lab.progress import required_progress
from loosehanger.lab.record import load_lab
from loosehanger.paths import lab_home
from loosehanger.ports import LOOPBACK
from loosehanger.proof.session import start_session

PORT, TOKEN_FILE = "AUDIT_PORT", "AUDIT_METRICS_TOKEN_FILE"
_MINUTES, _PRODUCTS = 1, 1
"""A service shows no activity, so it keeps as little of it as can be."""


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="audit",
        description="Watches the lab that is set up, until a signal stops it. AUDIT_PORT is the port of its metrics, "
        "and AUDIT_METRICS_TOKEN_FILE a file with their token.",
        epilog="exit codes: 0 ended by a signal, 1 Spark has ended, 2 wrong use",
    )
    parser.add_argument("--state", type=Path, required=True, metavar="FOLDER", help="where it keeps its state")
    parser.add_argument("--every", type=float, default=5, metavar="S", help="from one round to the next (5)")
    parser.add_argument("--late-after", type=float, default=10, metavar="S", help="a record is late after this (10)")
    parser.add_argument("--keep", type=float, default=24, metavar="HOURS", help="how long results are kept (24)")
    parser.add_argument("--canary", type=float, default=0, metavar="S", help="from one canary to the next (0: none)")
    return parser


def address(environment: Mapping[str, str]) -> tuple[str, int]:
    """The address to serve the metrics at.

    Raises:
        WrongUseError: AUDIT_PORT is missing, or not a port.
    """
    text = environment.get(PORT, "")
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
        raise WrongUseError(f"{PORT}: '{text}' is not a port; set it to a number from 1 to 65535")
    return LOOPBACK, int(text)


def main() -> int:
    """Audits until a signal stops it.

    Returns:
        The exit code.

    Raises:
        LabError: the port cannot be listened on, or Spark has ended.
    """
    given = arguments().parse_args()
    where = address(os.environ)
    token = metrics_token(Path(os.environ.get(TOKEN_FILE, "")), TOKEN_FILE)
    options = LabOptions(
        Options(every_s=given.every, late_after_s=given.late_after),
        lateness_s=600,
        kept_s=given.keep * 3600,
        minutes=_MINUTES,
        products=_PRODUCTS,
        canary_s=given.canary or None,
    )
    metrics = AuditMetrics(given.every, options.canary_s)
    folder = Folder(given.state)
    with folder.locked(), MetricsServer(metrics, where, token):
        ended = threading.Event()
        spark = start_session("audit", in_order=True)

        def rounds(changed: threading.Event) -> Iterator[Mapping[str, Any]]:
            lab = load_lab()
            with watch_lab(spark, lab, survey(lab), options, folder, _say) as watch:
                yield from watch.updates(changed)

        # Spark's session has a handler of its own, which would break a round off in the middle.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        service = AuditService(lab_home() / "access", lambda: required_progress().unfinished, rounds, metrics, _say)
        service.run(ended)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run() -> int:
    """Runs the job as a program of its own; returns its exit code."""
    return run_command(main)
