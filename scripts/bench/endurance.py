"""An hour of trouble that is not a fault: what the watch says meanwhile, and what it and the consoles keep in memory.

    .lab/venv/bin/python -m scripts.bench.endurance [--minutes N] [--busy-minutes N] [--rate N] [--viewers N]

A watch runs throughout, and people look at the control room, come and go. First, brokers and mirrors are killed in
turn, a topic gets more partitions, and records come that are hours late. Then events are written at a steady rate, and
each mirror is killed once. In the end everything has to be equal, and nothing open; a finding at any time was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from kafka import KafkaProducer

from loosehanger.errors import LabError
from loosehanger.kafka.connection import connection_for
from loosehanger.waiting import wait_for
from scripts.bench.common import TARGETS, admin, finished, machine, processes, produce, sandbox, succeed, table
from scripts.bench.console import KINDS, usage
from scripts.bench.mirroring import create
from scripts.bench.viewers import viewers
from scripts.bench.watching import resident
from scripts.sandbox import Kit

GROWING, BUSY = "LH.GROWING", "LH.BUSY"
SIZE = 300
BETWEEN_S = 60.0
"""From one trouble to the next."""
ROW_S = 300.0
RECORDS = 50
HOURS_LATE = 3
SETTLED_S = 300
Trouble = Callable[[], object]


class Watching:
    """What the watch has said so far; its newest document, and every finding that any document had.

    Args:
        process: the watch.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.document: dict[str, Any] = {}
        self.findings: set[tuple[Any, ...]] = set()
        self.problems: Counter[str] = Counter()
        """In how many documents each was."""
        self.longest_s = 0.0
        """From one document to the next, since it was last asked."""
        self._came = time.monotonic()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.document = json.loads(line)
            self.problems.update(self.document["problems"])
            self.findings |= {
                tuple(finding[name] for name in ("target", "topic", "partition", "bucket", "verdict"))
                for finding in self.document["findings"]
            }
            now = time.monotonic()
            self.longest_s, self._came = max(self.longest_s, now - self._came), now

    def unsettled(self, written: int) -> str | None:
        """Returns what is still open or not counted yet; None when every bucket is equal.

        Args:
            written: how many records ``BUSY`` got.

        Raises:
            LabError: the watch has ended.
        """
        self.check()
        counted = {flow["target"]: flow["copies"] for flow in self.document["flows"] if flow["topic"] == BUSY}
        left = {f"not counted in {target}": written - counted.get(target, 0) for target in TARGETS}
        left |= {name: self.document["totals"][name] for name in ("open_buckets", "in_flight", "late")}
        return str(left) if any(left.values()) else None

    def check(self) -> None:
        """Makes sure that it runs.

        Raises:
            LabError: it has ended.
        """
        if (code := self.process.poll()) is not None:
            raise LabError(f"the watch has ended with {code}")

    def end(self) -> int:
        """Ends it; returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=60)
        self._reader.join()
        return code


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=30, help="of trouble (30)")
    parser.add_argument("--busy-minutes", type=int, default=30, help="of events at a steady rate (30)")
    parser.add_argument("--rate", type=int, default=5_000, help="of these events, a second (5,000)")
    parser.add_argument("--viewers", type=int, default=50, help="how many look at once (50)")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    with sandbox() as kit:
        succeed(kit, "setup", "03-broadcast", "-e", "consumer_replicas=0", "-e", "producer_rate=100")
        client = admin(kit, "europe")
        client.create_topics({GROWING: {"num_partitions": 1, "replication_factor": 1}})
        client.close()
        create(kit, BUSY)
        with watching(kit) as watch, viewers(kit, options.viewers, restless=True):
            wait_for(lambda: None if watch.document else "no document", 180, "the watch")
            began = time.monotonic()

            def report(what: str) -> None:
                rows.append((f"{(time.monotonic() - began) / 60:.0f}", what, *standing(kit, watch)))
                print(*rows[-1], flush=True)

            endure(itertools.cycle(troubles(kit)), options.minutes * 60, report)
            seconds = options.busy_minutes * 60
            writing = produce(kit, BUSY, options.rate * seconds, SIZE, throughput=options.rate)
            kills = iter([lambda region=region: kill(kit, region, KINDS["mirrors"]) for region in TARGETS])
            endure(kills, seconds, report, between_s=seconds / (len(TARGETS) + 1))
            finished(writing)
            succeed(kit, "setup", "03-broadcast", "-e", "consumer_replicas=0", "-e", "producer_replicas=0")
            wait_for(lambda: watch.unsettled(options.rate * seconds), SETTLED_S, "every bucket is equal")
            report("at the end")
        print("findings at any time:", sorted(watch.findings) or "none", flush=True)
        print("problems, and in how many documents:", dict(watch.problems) or "none", flush=True)
    print(f"\n{options.viewers} viewers who come and go; {machine()}\n")
    head = (
        *("minute", "while", "records", "copies", "equal buckets", "open", "late", "findings so far"),
        *("longest between documents, s", "watch, MiB", "consoles, MB", "their threads"),
    )
    print(table(head, rows))


@contextmanager
def watching(kit: Kit) -> Iterator[Watching]:
    """Runs a watch beside the lab.

    Raises:
        LabError: the watch fails.
    """
    watch = Watching(
        subprocess.Popen(
            [sys.executable, "-P", "-m", "loosehanger.cli", "watch", "--json", "--minutes", "10"],
            cwd=kit.root,
            env=kit.variables(),
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    try:
        yield watch
    finally:
        if code := watch.end():
            raise LabError(f"the watch ended with {code}")


def endure(
    coming: Iterator[Trouble], seconds: float, report: Callable[[str], None], between_s: float = BETWEEN_S
) -> None:
    """Causes troubles one after the other, and reports the state in between."""
    began = reported = time.monotonic()
    due = began + between_s
    while (now := time.monotonic()) < began + seconds:
        if now >= due:
            due += between_s
            for trouble in itertools.islice(coming, 1):
                trouble()
        if now >= reported + ROW_S:
            reported += ROW_S
            report("trouble" if between_s == BETWEEN_S else "busy")
        time.sleep(0.5)


def troubles(kit: Kit) -> list[Trouble]:
    """Returns the disturbances that a watch must survive."""
    regions = ("europe", *TARGETS)
    return [
        *(lambda region=region: kill(kit, region, KINDS["mirrors"]) for region in TARGETS),
        lambda: grow(kit),
        *(lambda region=region: kill(kit, region, KINDS["brokers"]) for region in regions),
        lambda: write_late(kit),
    ]


def kill(kit: Kit, region: str, mark: str) -> None:
    """Kills a region's processes of a kind; the process manager restarts them."""
    for process in processes(kit):
        try:
            if mark in process.cmdline() and process.environ()["LAB_REGION_FOLDER"].endswith(f"/{region}"):
                process.kill()
        except psutil.Error:
            continue


def grow(kit: Kit) -> None:
    """Adds a partition to a topic, and writes to all that are there by then."""
    client = admin(kit, "europe")
    (found,) = client.describe_topics([GROWING])
    partitions = len(found["partitions"]) + 1
    client.create_partitions({GROWING: partitions})
    client.close()
    write(kit, partitions)


def write_late(kit: Kit) -> None:
    """Writes records that are hours old."""
    write(kit, 1, round(time.time() * 1000) - HOURS_LATE * 3_600_000)


def write(kit: Kit, partitions: int, timestamp: int | None = None) -> None:
    """Writes some records to each partition of the topic that grows."""
    with KafkaProducer(**connection_for(kit.lab.region("europe"), "admin").kafka_python()) as producer:
        for number in range(RECORDS):
            producer.send(GROWING, b"%d" % number, partition=number % partitions, timestamp_ms=timestamp)


def standing(kit: Kit, watch: Watching) -> tuple[str, ...]:
    """Returns a row with the state of the lab and of the watch.

    Raises:
        LabError: the watch has ended.
    """
    watch.check()
    totals = watch.document["totals"]
    copies = sum(flow["copies"] for flow in watch.document["flows"])
    longest, watch.longest_s = watch.longest_s, 0.0
    _, megabytes, threads = usage(kit, KINDS["consoles"])
    counts = (totals["records"], copies, totals["equal_buckets"], totals["open_buckets"], totals["late"])
    return (
        *(f"{count:,}" for count in counts),
        str(len(watch.findings)),
        f"{longest:.1f}",
        str(resident(watch.process)),
        f"{megabytes:.0f}",
        str(threads),
    )


if __name__ == "__main__":
    main()
