"""Measures how long after its production an event counts in the watch's totals, at its source and in a target.

    .lab/venv/bin/python -m scripts.bench.watching [--rate N ...] [--seconds N]

Kafka's ProducerPerformance writes orders to LH.ORDERS in Europe at a steady rate while ``watch`` runs. A document of
the watch that counts N orders has shown the N oldest of them. An order's delay is the time of the first document that
counts it, minus the record's timestamp; both times come from the same clock.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from kafka import KafkaConsumer, TopicPartition

from loosehanger.kafka.connection import connection_for
from producer.shop import Shop
from scripts.bench.common import configure, finished, kafka_tool, machine, percentiles, sandbox, table
from scripts.sandbox import Kit

TOPIC = "LH.ORDERS"
REGIONS = ("europe", "north-america")
PAYLOADS = 1000
SHOWN_S = 180
LOOK_S = 0.1
READ_S = 600.0
MINUTE_S = 60


@dataclass
class Shown:
    """How many orders the watch had counted at which time, by region: (epoch in ms, orders), oldest first."""

    counts: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: {region: [] for region in REGIONS})
    rounds: list[float] = field(default_factory=list)
    """When each document came, in seconds."""
    since: float = 0.0
    """The time from which the watch counts, as epoch in ms."""
    faults: int = 0
    """Findings, notes and problems in the newest document."""

    def take(self, document: dict[str, Any]) -> None:
        """Notes what a document counts."""
        now = time.time() * 1000
        self.rounds.append(now / 1000)
        self.since = datetime.fromisoformat(document["since"]).timestamp() * 1000
        self.faults = sum(len(document[name]) for name in ("findings", "notes", "problems", "not_judged"))
        for region, found in self.counts.items():
            minutes = document["regions"].get(region, {}).get("minutes", ())
            found.append((now, sum(minute["orders"] for minute in minutes)))


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, nargs="+", default=[1_000, 10_000], help="events a second (1000 10000)")
    parser.add_argument("--seconds", type=int, default=60, help="seconds of each run (60)")
    options = parser.parse_args()
    rows = []
    with sandbox() as kit:
        configure(kit, {}, {})
        for rate in options.rate:
            for region, delays in run(kit, rate, options.seconds).items():
                for begin in range(0, len(delays), MINUTE_S * rate):
                    minute = ", ".join(percentiles_text(delays[begin : begin + MINUTE_S * rate]))
                    print(f"{rate:,}/s {region}, from {begin // rate} s on: p50, p95, p99 {minute}", flush=True)
                rows.append((f"{rate:,}", region, *percentiles_text(delays), f"{len(delays):,}"))
    print(f"\n{options.seconds} s at each rate; {machine()}\n")
    print(table(("Events/s", "Region", "p50 s", "p95 s", "p99 s", "Events"), rows))


def run(kit: Kit, rate: int, seconds: int) -> dict[str, list[float]]:
    """Returns the delay of every order in seconds, by region."""
    shutil.rmtree(kit.home / "watch", ignore_errors=True)
    shown = Shown()
    watching = subprocess.Popen(
        [sys.executable, "-P", "-m", "loosehanger.cli", "watch", "--json", "--minutes", "60"],
        cwd=kit.root,
        env=kit.variables(),
        stdout=subprocess.PIPE,
        text=True,
    )
    reader = threading.Thread(target=follow, args=(watching, shown))
    reader.start()
    try:
        wait_until_counted(shown, 0)
        # The watch begins with the ten seconds in which it was started, which may have orders of an earlier run.
        before = max(found[-1][1] for found in shown.counts.values())
        memory, begun = resident(watching), len(shown.rounds)
        finished(
            kafka_tool(
                kit, "europe", "ProducerPerformance", "--topic", TOPIC, "--num-records", str(rate * seconds),
                "--payload-file", str(payloads(kit.home)), "--throughput", str(rate), "--command-config", "{config}",
                "--command-property", "acks=all", "batch.size=65536", "linger.ms=5",
            )
        )  # fmt: skip
        wait_until_counted(shown, before + rate * seconds)
        steps = [after - at for at, after in itertools.pairwise(shown.rounds[begun:])]
        print(
            f"{rate:,}/s: a document every {statistics.median(steps):.1f} s (at most {max(steps):.1f}), "
            f"memory {memory} MiB, then {resident(watching)}; {shown.faults} findings, notes and problems",
            flush=True,
        )
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait()
        reader.join()
    written = timestamps(kit, shown.since)
    return {region: delays(written, counts)[before:] for region, counts in shown.counts.items()}


def percentiles_text(delays: list[float]) -> tuple[str, ...]:
    """Returns percentiles of delays, as text."""
    return tuple(f"{value:.1f}" for value in percentiles(delays))


def resident(watching: subprocess.Popen[str]) -> int:
    """Returns the memory of a watch and of its Java virtual machine, in MiB."""
    process = psutil.Process(watching.pid)
    return sum(one.memory_info().rss for one in (process, *process.children(recursive=True))) // 2**20


def payloads(folder: Path) -> Path:
    """Writes a file of the shop's orders, one a line, and returns its path."""
    shop, found = Shop(seed=1, topics=("ORDERS",)), list[str]()
    while len(found) < PAYLOADS:
        found += [event.value.decode() for event in shop.step(round(shop.due * 1000))]
    file = folder / "orders.jsonl"
    file.write_text("\n".join(found), encoding="utf-8")
    return file


def follow(watching: subprocess.Popen[str], shown: Shown) -> None:
    """Reads the watch's documents as they arrive."""
    for line in watching.stdout or ():
        shown.take(json.loads(line))


def wait_until_counted(shown: Shown, orders: int) -> None:
    """Waits until the watch has counted this many orders in every region.

    Raises:
        TimeoutError: it has not within ``SHOWN_S``.
    """
    deadline = time.monotonic() + SHOWN_S
    while not all(found and found[-1][1] >= orders for found in shown.counts.values()):
        if time.monotonic() > deadline:
            message = (
                f"{orders} orders were not counted within {SHOWN_S} s: { {r: f[-1:] for r, f in shown.counts.items()} }"
            )
            raise TimeoutError(message)
        time.sleep(LOOK_S)


def timestamps(kit: Kit, since: float) -> list[int]:
    """Returns the times at which the orders were written, in epoch milliseconds, oldest first."""
    found: list[int] = []
    with KafkaConsumer(**connection_for(kit.lab.region("europe"), "prover").kafka_python()) as consumer:
        partitions = [TopicPartition(TOPIC, number) for number in consumer.partitions_for_topic(TOPIC) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + READ_S
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            if time.monotonic() >= deadline:
                message = f"not read to the end within {READ_S:.0f} s"
                raise TimeoutError(message)
            for batch in consumer.poll(timeout_ms=500, max_records=5000).values():
                found += [record.timestamp for record in batch if record.timestamp >= since]
    return sorted(found)


def delays(written: list[int], counts: list[tuple[float, int]]) -> list[float]:
    """Returns for each order, oldest first, the seconds until a document counted it."""
    found: list[float] = []
    for shown_at, counted in counts:
        found += [(shown_at - at) / 1000 for at in written[len(found) : counted]]
    return found


if __name__ == "__main__":
    main()
