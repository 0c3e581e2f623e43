"""Shows what happens in all regions while it happens: an ordinary Spark application, see README.md."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from loosehanger.clients.loss import WARN_S
from loosehanger.errors import run_command
from loosehanger.model.record import load_lab
from loosehanger.paths import lab_home
from pipeline import output
from pipeline.continuity import Folder
from pipeline.session import start_session
from pipeline.watch_display import display
from pipeline.watching import Options, Watch, publisher, survey


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="lab watch",
        description="Orders, stock, doors and sensors by the minute, and whether all that is mirrored arrives.",
        epilog="exit codes: 0 ended by Ctrl-C or --for, 1 a region cannot be read, 2 wrong use, 3 nothing is set up",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document for each update, one a line")
    parser.add_argument("--for", type=_seconds, metavar="SECONDS", help="how long to watch (default until Ctrl-C)")
    parser.add_argument(
        "--late-after",
        type=_seconds,
        default=10,
        metavar="SECONDS",
        help="a record that is not copied for longer is late (default 10)",
    )
    parser.add_argument(
        "--lateness",
        type=_seconds,
        default=600,
        metavar="SECONDS",
        help="how much older than the newest event an event may be to count in its minute (default 600)",
    )
    parser.add_argument(
        "--every", type=_seconds, default=2, metavar="SECONDS", help="from one round of reading to the next (default 2)"
    )
    parser.add_argument(
        "--warn",
        type=_seconds,
        default=WARN_S,
        metavar="SECONDS",
        help="warn of a loss that can come within this time (default 3600)",
    )
    parser.add_argument(
        "--topic-in", metavar="REGION", help="write each verdict to the topic lab.audit of this region, too"
    )
    parser.add_argument(
        "--canary",
        type=_seconds,
        nargs="?",
        const=120,
        metavar="SECONDS",
        help="send a marked record into every source now and then (default each 120), and say if it does not arrive",
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
    given = arguments().parse_args()
    options = Options(
        every_s=given.every,
        late_after_s=given.late_after,
        lateness_s=given.lateness,
        kept_s=given.keep * 3600,
        minutes=given.minutes,
        products=given.products,
        warn_s=given.warn,
        topic_in=given.topic_in or "",
        canary_s=given.canary,
    )
    lab = load_lab()
    if options.topic_in:
        publisher(lab, options.topic_in)
    ended = threading.Event()
    folder = Folder(lab_home() / "watch")
    with folder.locked():
        # Before Spark starts, which takes seconds: whether there is anything to watch.
        scope = survey(lab)
        watch = Watch(start_session("watch"), lab, scope, options, folder, _report)
        # Spark's session has a handler of its own, which would break a round off in the middle.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        if vars(given)["for"] is not None:
            timer = threading.Timer(vars(given)["for"], ended.set)
            timer.daemon = True
            timer.start()
        with watch:
            display(watch.updates(ended), as_json=given.json)
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
    output.separate_streams(sys.argv)
    sys.exit(run_command(main))
