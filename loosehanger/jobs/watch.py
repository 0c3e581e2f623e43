"""Shows the activity of all regions live."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from loosehanger.audit.display import display
from loosehanger.audit.lab_watch import LabOptions, publisher, survey, watch_lab
from loosehanger.audit.loop import Options
from loosehanger.audit.metrics import AuditMetrics, MetricsServer
from loosehanger.audit.state import Folder
from loosehanger.errors import WrongUseError, run_command
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.retention_risk import WARN_S
from loosehanger.lab import job_options, targets
from loosehanger.lab.record import Lab, load_lab
from loosehanger.paths import lab_home
from loosehanger.proof.report import output
from loosehanger.proof.session import start_session

_PATIENCE_S = 1.5
_FIRST = "Spark is warming up; the first numbers appear in about ten seconds."


def main() -> int:
    """Watches until a signal stops it.

    Returns:
        The exit code.

    Raises:
        LabError: a region cannot be read.
    """
    given = job_options.parser("watch").parse_args()
    options = LabOptions(
        Options(every_s=given.every, late_after_s=given.late_after, warn_s=given.warn or WARN_S),
        lateness_s=given.lateness,
        kept_s=given.keep * 3600,
        minutes=given.minutes,
        products=given.products,
        topic_in=given.topic_in or "",
        canary_s=given.canary,
    )
    lab = load_lab()
    if options.topic_in:
        publisher(lab, options.topic_in)
    job_options.check_watch(given)
    token = _metrics_token(lab, given.metrics_token_file) if given.metrics else ""
    ended = threading.Event()
    folder = Folder(lab_home() / "watch")
    with folder.locked(), ExitStack() as serving:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: _leave())
        # Before Spark starts, which takes seconds: whether there is anything to watch.
        scope = survey(lab)
        metrics = AuditMetrics(given.every, options.canary_s)
        # One that was killed could not withdraw its target.
        targets.forget_dead_watch(lab_home())
        if given.metrics:
            served = serving.enter_context(MetricsServer(metrics, given.metrics, token))
            if given.metrics_token_file is None:
                serving.callback(_withdraw)
                _announce(given.metrics[0], served.port, lab.scenario)
        watch = watch_lab(start_session("watch"), lab, scope, options, folder, _report)
        # Spark's session has a handler of its own, which would break a round off in the middle.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: _end(ended))
        if vars(given)["for"] is not None:
            timer = threading.Timer(vars(given)["for"], ended.set)
            timer.daemon = True
            timer.start()
        with watch:
            display(metrics.following(watch.updates(ended)), _FIRST, as_json=given.json)
    return 0


def _metrics_token(lab: Lab, file: Path | None) -> str:
    """The token that a scraper must send: a file's, else the password of the control room's scraper.

    Raises:
        WrongUseError: the file cannot be read, or the lab has no such user.
    """
    if file is not None:
        return job_options.metrics_token(file)
    for region in lab.regions.values():
        for console in region.consoles:
            if console.scraper:
                return connection_for(region, console.scraper).password or ""
    raise WrongUseError("--metrics: this lab has no user for scrapers; name a file with a token: --metrics-token-file")


def _announce(host: str, port: int, scenario: str) -> None:
    targets.announce_watch(lab_home(), f"[{host}]:{port}" if ":" in host else f"{host}:{port}", scenario)


def _withdraw() -> None:
    targets.withdraw_watch(lab_home())


def _end(ended: threading.Event) -> None:
    """Ends the watch after this round; on a terminal in the middle of it, if that takes longer than people wait.

    A watch that is killed loses nothing either: the next one continues from what the last round stored.
    """
    ended.set()
    if not sys.stdout.isatty():
        return
    timer = threading.Timer(_PATIENCE_S, _leave)
    timer.daemon = True
    timer.start()


def _leave() -> NoReturn:
    # An audit that was stopped on purpose is not down.
    _withdraw()
    if sys.stdout.isatty():
        # The display hides the cursor.
        os.write(sys.stdout.fileno(), b"\x1b[?25h\n")
    os._exit(0)


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run() -> int:
    """Runs the job as a program of its own; returns its exit code."""
    output.separate_streams(sys.argv)
    return run_command(main)
