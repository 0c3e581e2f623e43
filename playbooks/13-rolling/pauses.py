"""Watches the copies in a region while a command runs: how long each partition paused, and what is lost or duplicate.

    pauses.py [--json] [--rest SECONDS] REGION COMMAND ...

Run it from the root of the kit while the scenario is set up; README.md says how. It reads from the moment at which it
starts until every partition has received a record that was written after the command's end. Exit code 0, or 1 if
records are lost or the command failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, LabError, WrongUseError, run_command
from loosehanger.headers import RUN, SEQ
from loosehanger.kafka.clients import connect_consumer
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.patches import prepare
from loosehanger.lab.mirrors.replication import is_copy
from loosehanger.lab.record import Lab, load_lab

USER = "prover"
REST_S = 90.0
"""Seconds that the copies may take to continue after the command."""
POLL_MS = 50
FIRST_S = 30.0
"""Seconds to wait for the first record of a partition; a partition without records by then is left out."""


@dataclass
class Watched:
    """The records that arrived in one partition."""

    records: int = 0
    longest_pause_s: float = 0.0
    """The longest time in which a record had been produced, and none arrived."""
    oldest_s: float = 0.0
    """The greatest age of a record at its arrival, from its production on."""
    lost: int = 0
    duplicates: int = 0
    _last: float = 0.0
    _highest: dict[str, int] = field(default_factory=dict)
    _newest: float = 0.0

    def take(self, run: str, number: int, written: float, now: float) -> None:
        """Counts a record; a mirror keeps the order within a partition, so a gap is a loss.

        Args:
            run: the producer's run.
            number: the record's number in its run and partition.
            written: when it was produced, in seconds since the epoch.
            now: when it arrived, likewise.
        """
        self.records += 1
        if self._last:
            self.longest_pause_s = max(self.longest_pause_s, now - max(self._last, written))
        self._last, self._newest = now, max(self._newest, written)
        self.oldest_s = max(self.oldest_s, now - written)
        highest = self._highest.get(run, number - 1)
        self._highest[run] = max(highest, number)
        self.lost += max(0, number - highest - 1)
        self.duplicates += number <= highest

    def has_seen(self, since: float) -> bool:
        """Whether a record arrived that was written after a moment, in seconds since the epoch."""
        return self._newest > since


class Watch:
    """Reads all copies in a region.

    Args:
        consumer: reads the copies.
        topics: the copies.
    """

    def __init__(self, consumer: KafkaConsumer, topics: list[str]) -> None:
        self._consumer = consumer
        self.found: dict[TopicPartition, Watched] = {
            TopicPartition(topic, number): Watched()
            for topic in topics
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        }
        consumer.assign(list(self.found))
        consumer.seek_to_end()
        for partition in self.found:
            consumer.position(partition)  # Fixes the start before the command runs.

    def begin(self) -> None:
        """Reads until every partition has a record; one that has none in time counts as idle.

        Raises:
            LabError: no record arrives at all.
        """
        deadline = time.monotonic() + FIRST_S
        while time.monotonic() < deadline and not all(one.records for one in self.found.values()):
            self.poll()
        self.found = {partition: one for partition, one in self.found.items() if one.records}
        if not self.found:
            raise LabError(f"no record arrived within {FIRST_S:.0f} s; see ./lab status")

    def poll(self) -> None:
        """Counts the records that have arrived."""
        for partition, records in self._consumer.poll(timeout_ms=POLL_MS).items():
            now = time.time()
            for record in records:
                headers = dict(record.headers)
                if partition in self.found and SEQ in headers:
                    run, number = headers[RUN].decode(), int(headers[SEQ])
                    self.found[partition].take(run, number, record.timestamp / 1000, now)

    def behind(self, since: float) -> list[str]:
        """Returns the partitions without a record that was written after a moment."""
        return [f"{p.topic}-{p.partition}" for p, one in self.found.items() if not one.has_seen(since)]


def watch(consumer: KafkaConsumer, topics: list[str], run: Callable[[], int], rest: float) -> dict[str, Any]:
    """Watches while a command runs, and until the copies have caught up.

    Args:
        consumer: reads the copies.
        topics: the copies.
        run: runs the command, and returns its exit code.
        rest: seconds that the copies may take to continue after it.

    Raises:
        LabError: no record arrives, or a partition does not continue.
    """
    watched, codes = Watch(consumer, topics), []
    watched.begin()
    for one in watched.found.values():
        one.longest_pause_s = one.oldest_s = 0.0  # Pauses before the command are not its doing.
    thread = threading.Thread(target=lambda: codes.append(run()), daemon=True)
    began = time.time()
    thread.start()
    while thread.is_alive():
        watched.poll()
    ended = time.time()
    while (behind := watched.behind(ended)) and time.time() < ended + rest:
        watched.poll()
    if behind:
        raise LabError(f"no record of {', '.join(behind)} for {rest:.0f} s after the command; see ./lab status")
    partitions = [
        {"partition": f"{partition.topic}-{partition.partition}", **_public(one)}
        for partition, one in sorted(watched.found.items())
    ]
    return {
        "exit_code": codes[0],
        "seconds": round(ended - began, 1),
        "longest_pause_s": max(one["longest_pause_s"] for one in partitions),
        "lost": sum(one["lost"] for one in partitions),
        "duplicates": sum(one["duplicates"] for one in partitions),
        "partitions": partitions,
    }


def _public(one: Watched) -> dict[str, Any]:
    return {
        name: round(value, 1) if isinstance(value, float) else value
        for name, value in asdict(one).items()
        if not name.startswith("_")
    }


def copies(lab: Lab, region: str, consumer: KafkaConsumer) -> list[str]:
    """Returns the topics in a region that a mirror writes.

    Raises:
        WrongUseError: no mirror writes to the region.
    """
    mirrors = [mirror for mirror in lab.mirrors if mirror.target == region]
    found = sorted(topic for topic in consumer.topics() if any(is_copy(mirror, topic) for mirror in mirrors))
    if not found:
        raise WrongUseError(f"no mirror copies to {region}; ./lab status shows where they do")
    return found


def show(found: dict[str, Any]) -> None:
    """Prints a row for each partition, and a line for all of them."""
    print(f"{'partition':20} {'records':>8} {'longest pause':>14} {'oldest':>8} {'lost':>5} {'duplicates':>11}")
    for one in found["partitions"]:
        pause, oldest = f"{one['longest_pause_s']:.1f} s", f"{one['oldest_s']:.1f} s"
        print(
            f"{one['partition']:20} {one['records']:>8,} {pause:>14} {oldest:>8} {one['lost']:>5,}"
            f" {one['duplicates']:>11,}"
        )
    print(
        f"{found['lost']:,} lost, {found['duplicates']:,} duplicates; the longest pause of a partition was"
        f" {found['longest_pause_s']:.1f} s, in {found['seconds']:.0f} s"
    )


def main() -> int:
    """Watches the copies in a region while the command runs."""
    parser = Parser(prog="pauses.py", description="Watches the copies in a region while a command runs.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--rest", type=float, default=REST_S, metavar="SECONDS",
        help=f"how long the copies may take to continue after the command (default {REST_S:.0f})",
    )  # fmt: skip
    parser.add_argument("region", help="the mirror's target")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command to run meanwhile")
    options = parser.parse_args()
    if not options.command:
        raise WrongUseError("give a command to run meanwhile, such as ./lab stage upgrade")
    prepare(lambda line: print(line, file=sys.stderr))
    lab = load_lab()
    connection = connection_for(lab.region(options.region), USER)
    consumer = connect_consumer(connection, max_poll_records=5000, fetch_max_wait_ms=20)

    def run() -> int:
        try:
            return subprocess.run(options.command, check=False, stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode
        except OSError as error:
            print(f"{options.command[0]}: {error.strerror}", file=sys.stderr)
            return 127

    try:
        found = watch(consumer, copies(lab, options.region, consumer), run, options.rest)
    finally:
        consumer.close(autocommit=False)
    found = {"region": options.region, "command": options.command, **found}
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)
    return ExitCode.FAILED if found["lost"] or found["exit_code"] else ExitCode.DONE


if __name__ == "__main__":
    sys.exit(run_command(main))
