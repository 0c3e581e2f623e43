"""Shows what happens in all regions while it happens: an ordinary Spark application, see README.md."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from lab.access import lab_home, load_lab
from lab.errors import run_command
from pipeline.continuity import Folder
from pipeline.ledger import Bounds
from pipeline.session import start_session
from pipeline.watch_display import display
from pipeline.watching import Options, Watch, survey


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="watch",
        description="Orders, stock, doors and sensors minute by minute, and which records are on their way or missing.",
        epilog="exit codes: 0 ended by Ctrl-C or --for, 1 a region cannot be read, 2 wrong use, 3 nothing is set up",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document for each update, one a line")
    parser.add_argument("--for", type=_seconds, metavar="SECONDS", help="how long to watch (default until Ctrl-C)")
    parser.add_argument(
        "--late-after", type=_seconds, default=10, metavar="SECONDS", help="a slower copy is late (default 10)"
    )
    parser.add_argument(
        "--missing-after",
        type=_seconds,
        default=60,
        metavar="SECONDS",
        help="a record without a copy for longer is missing (default 60)",
    )
    parser.add_argument(
        "--lateness",
        type=_seconds,
        default=600,
        metavar="SECONDS",
        help="how much older than the newest event an event may be to count in its minute (default 600)",
    )
    parser.add_argument(
        "--every", type=_seconds, default=2, metavar="SECONDS", help="time between two batches (default 2)"
    )
    parser.add_argument("--minutes", type=_count, default=5, metavar="N", help="how many minutes to show (default 5)")
    parser.add_argument("--products", type=_count, default=5, metavar="N", help="how many products (default 5)")
    parser.add_argument(
        "--keep", type=_hours, default=24, metavar="HOURS", help="how long results are kept and counted (default 24)"
    )
    return parser


def main() -> int:
    """Watches until it is told to end.

    Returns:
        The exit code.

    Raises:
        LabError: a region cannot be read.
    """
    parser = arguments()
    given = parser.parse_args()
    if given.late_after > given.missing_after:
        parser.error("--late-after must not be greater than --missing-after")
    bounds = Bounds(given.late_after, given.missing_after, given.keep * 3600)
    options = Options(bounds, given.lateness, given.every, given.minutes, given.products)
    lab = load_lab()
    ended = threading.Event()
    folder = Folder(lab_home() / "watch")
    with folder.locked():
        # Before Spark starts, which takes seconds: whether there is anything to watch.
        scope = survey(lab, options)
        watch = Watch(start_session("watch"), lab, scope, options, folder, _report)
        # Spark's session has a handler of its own, which would break a batch off in the middle.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        if vars(given)["for"] is not None:
            timer = threading.Timer(vars(given)["for"], ended.set)
            timer.daemon = True
            timer.start()
        with watch.running() as queries:
            display(watch.updates(queries, ended), as_json=given.json)
    return 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise ValueError(text)
    return seconds


def _hours(text: str) -> float:
    hours = float(text)
    if not 1 <= hours < 1e6:
        raise ValueError(text)
    return hours


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 1000:
        raise ValueError(text)
    return count


if __name__ == "__main__":
    sys.exit(run_command(main))
