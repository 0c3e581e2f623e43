"""Copies a topic into another one, without named fields and headers."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
import time
from datetime import datetime
from pathlib import Path

from loosehanger.errors import LabError, UnreachableError, run_command
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.proof.session import ERRORS, cause, ended, is_alive, start_session
from loosehanger.redaction.fields import Batch, Clearing, check_partitions, start
from loosehanger.waiting import wait_for

_LOOK_S = 0.5


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="clear",
        description="Copies a topic within its cluster, without named fields and headers, until a signal stops it. "
        "The cluster is the one that the KAFKA_... variables name.",
        epilog="exit codes: 0 ended by a signal, 1 it failed, 2 wrong use",
    )
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic to read")
    parser.add_argument("--to", dest="target", required=True, metavar="TOPIC", help="the topic to write")
    parser.add_argument(
        "--fields", type=_names, default=(), metavar="A,B", help="fields to drop, wherever in a value they are"
    )
    parser.add_argument("--headers", type=_names, default=(), metavar="A,B", help="headers to drop")
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="FOLDER", help="where it stores its progress")
    parser.add_argument("--wait", type=float, default=120, metavar="S", help="how long to wait for both topics (120)")
    parser.add_argument("--every", type=float, default=60, metavar="S", help="time between lines of the log (60)")
    return parser


class Log:
    """Counts and logs the results of the records.

    Args:
        every_s: time between two lines, in seconds. Withheld records are logged at once.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._logged_at = time.monotonic()
        self.read = 0
        self.withheld = 0

    def add(self, batch: Batch) -> None:
        """Takes a batch that is written."""
        self.read += batch.read
        self.withheld += batch.withheld
        if batch.withheld:
            say(f"withheld {batch.withheld} of {batch.read} records; the first is {batch.example}")
        if time.monotonic() - self._logged_at >= self._every_s:
            self._logged_at = time.monotonic()
            say(self.summary)

    @property
    def summary(self) -> str:
        """The numbers since the start."""
        return f"{self.read} records read, {self.read - self.withheld} passed on, {self.withheld} withheld"


def say(text: str) -> None:
    """Writes one line with the time to standard output, at once."""
    print(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S%z} {text}", flush=True)


def main() -> int:
    """Redacts until a signal stops it.

    Raises:
        LabError: the topics are not there in time, or records cannot be read or written.
    """
    parser = arguments()
    given = parser.parse_args()
    if given.source == given.target:
        parser.error(f"--to {given.target}: a topic cannot be cleared into itself")
    if not (given.fields or given.headers):
        parser.error("there is nothing to drop: give --fields, --headers or both")
    clearing = Clearing(given.source, given.target, given.fields, given.headers)
    connection = Connection.from_environment()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    _wait_for_topics(connection, clearing, given.wait)
    log = Log(given.every)
    spark = start_session("clear", in_order=True)
    # Spark's session has handlers of its own.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        query = start(spark, connection, clearing, given.checkpoint, log.add)
        say(
            f"from {clearing.source} to {clearing.target} as {connection!r}, without the fields "
            f"{', '.join(clearing.fields) or '(none)'} and the headers {', '.join(clearing.headers) or '(none)'}"
        )
        while query.isActive and not stop.is_set():
            stop.wait(_LOOK_S)
        failure = None if stop.is_set() else query.exception()
    except ERRORS as error:
        raise LabError(cause(error) if is_alive(spark) else ended(error)) from error
    if failure:
        raise LabError(f"{cause(failure)}; {log.summary}")
    with contextlib.suppress(*ERRORS):
        query.stop()
    say(f"done: {log.summary}")
    return 0


def _wait_for_topics(connection: Connection, clearing: Clearing, bound: float) -> None:
    cluster = Cluster("clear", connection)

    def missing() -> str | None:
        try:
            return check_partitions(clearing, cluster.topics()) or None
        except UnreachableError as error:
            return str(error)

    try:
        wait_for(missing, bound, "clear")
    finally:
        cluster.close()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError(text)
    return names


def run() -> int:
    """Runs the job as a program of its own; returns its exit code."""
    return run_command(main)
