"""Whether ``mirrorproof watch`` keeps up with a busy copier for long, at what cost, and without a false alarm.

    .lab/venv/bin/python -m scripts.bench.flow_watch [--seconds 480] [--rate 1000] [--keep FOLDER]

Two plain brokers of this machine: a writer keeps to the rate, and a copier copies in order. The watch writes canaries
and verdicts, each to a topic. Every document must be without finding, note and problem; after the end of the writer
every record must have been counted on both sides. With ``--keep`` the next run continues with the same logs and state.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from loosehanger.paths import ROOT
from loosehanger.waiting import wait_for
from scripts.bench.common import machine, table
from tests.lab.broker import Broker, running
from tests.lab.test_fetching import librdkafka

TOPICS = {"orders": 4, "stock": 2, "canary": 1}
"""Partitions. The watch alone writes the last one."""
CLUSTERS = ("V2F0Y2hlZFNvdXJjZTAwMQ", "V2F0Y2hlZFRhcmdldDAwMQ")
VERDICTS = "audit"
END_S = 120.0
BATCH_S = 0.05
"""From one batch of the writer to the next."""


def main() -> None:
    """Measures, and prints a table; ends with 1 after a false alarm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=480, help="how long the writer writes (480)")
    parser.add_argument("--rate", type=int, default=1000, help="records a second (1,000)")
    parser.add_argument("--grace", type=float, default=20, help="the watch's --grace, in seconds (20)")
    parser.add_argument("--canary", type=float, default=10, help="the watch's --canary, in seconds (10)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keeps the brokers' logs and the watch's state")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-bench-")))
        source, target = (stack.enter_context(broker(folder, name)) for name in CLUSTERS)
        if not (folder / "state").exists():
            create(source, TOPICS)
            create(target, TOPICS)
        (folder / "state").mkdir(exist_ok=True)
        sys.exit(run(folder, source, target, options))


@contextlib.contextmanager
def broker(folder: Path, cluster: str) -> Iterator[Broker]:
    """Runs a broker whose data is in the folder."""
    own = folder / cluster
    own.mkdir(parents=True, exist_ok=True)
    with running(own, cluster=cluster) as found:
        yield found


def create(at: Broker, topics: dict[str, int]) -> None:
    """Creates the topics."""
    client = at.admin()
    client.create_topics({name: {"num_partitions": count, "replication_factor": 1} for name, count in topics.items()})
    client.wait_for_topics(list(topics))
    client.close()


def write(source: Broker, rate: int, ended: threading.Event) -> int:
    """Writes records of some 100 bytes at this rate until the end; returns how many."""
    producer = Producer(librdkafka(source) | {"linger.ms": 5})
    places = [(topic, number) for topic in list(TOPICS)[:-1] for number in range(TOPICS[topic])]
    began, written = time.monotonic(), 0
    while not ended.wait(BATCH_S):
        due = int((time.monotonic() - began) * rate)
        for number in range(written, due):
            topic, partition = places[number % len(places)]
            producer.produce(topic, b"%0100d" % number, b"%d" % (number % 997), partition)
        written = due
        producer.poll(0)
    assert not producer.flush(END_S), "not all records were acknowledged"
    return written


def copy(source: Broker, target: Broker, ended: threading.Event) -> int:
    """Copies in order until the end, each record with its partition and timestamp; returns how many."""
    group = {"group.id": "copier", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(librdkafka(source) | group)
    producer = Producer(librdkafka(target) | {"linger.ms": 5, "enable.idempotence": True})
    consumer.subscribe(list(TOPICS))
    copied = 0
    while not ended.is_set():
        for record in consumer.consume(2000, 0.2):
            topic, partition = record.topic(), record.partition()
            assert topic is not None, record.error()
            assert partition is not None, record.error()
            producer.produce(
                topic,
                record.value(),
                record.key(),
                partition,
                timestamp=record.timestamp()[1],
                headers=record.headers(),
            )
            copied += 1
        assert not producer.flush(END_S), "not all copies were acknowledged"
    if copied:
        consumer.commit(asynchronous=False)
    consumer.close()
    return copied


@dataclass
class RunningWatch:
    """A running watch: what its documents have shown."""

    process: subprocess.Popen[str]
    rounds: int = 0
    alarms: list[dict[str, Any]] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    most: Counter[str] = field(default_factory=Counter)
    """The highest of some numbers of a document."""

    def read(self) -> None:
        """Reads documents until there are no more."""
        assert self.process.stdout
        for line in self.process.stdout:
            document = json.loads(line)
            self.rounds += 1
            if document["findings"] or document["notes"] or document["problems"]:
                self.alarms.append(document)
            self.most |= Counter(
                {name: document["totals"][name] for name in ("late", "in_flight", "open_buckets")}
                | {"unread": document["unread"]}
            )
            self.last = document

    def counted(self) -> tuple[int, int]:
        """Returns the records of the sources, and the copies, since the watch began."""
        flows = self.last.get("flows", ())
        return sum(flow["records"] for flow in flows), sum(flow["copies"] for flow in flows)


def run(folder: Path, source: Broker, target: Broker, options: argparse.Namespace) -> int:
    """Runs writer, copier and watch side by side; returns the exit code."""
    command = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line", "watch"]
    command += [str(source.properties("admin")), str(target.properties("admin")), "--json", "--every", "5"]
    command += ["--topics", ",".join(TOPICS), "--grace", str(options.grace), "--state", str(folder / "state")]
    command += ["--canary", str(options.canary), "--canary-topic", "canary", "--report-topic", f"target:{VERDICTS}"]
    ended, stopped = threading.Event(), threading.Event()
    results: dict[str, int] = {}

    def keep(name: str, work: Callable[..., int], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: results.update({name: work(*arguments)}), daemon=True)
        thread.start()
        return thread

    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as process:
        watch = RunningWatch(process)
        threading.Thread(target=watch.read, daemon=True).start()
        wait_for(lambda: None if watch.rounds else "no document", END_S, "the watch's first round")
        before, began = watch.counted(), time.monotonic()
        copier = keep("copied", copy, source, target, stopped)
        writer = keep("written", write, source, options.rate, ended)
        ended.wait(options.seconds)
        ended.set()
        writer.join()
        wait_for(lambda: behind(watch, before[0] + results["written"]), END_S, "every record on both sides")
        seconds, used = time.monotonic() - began, psutil.Process(process.pid)
        processor, memory = sum(used.cpu_times()[:2]), used.memory_info().rss
        process.send_signal(signal.SIGINT)
        process.wait(30)
    stopped.set()
    copier.join()
    show(watch, results, seconds, processor, memory)
    print("verdicts in the topic:", dict(verdicts(target)), "| canaries:", watch.last["canaries"])
    for alarm in watch.alarms[:3]:
        print("alarm:", json.dumps({name: alarm[name] for name in ("findings", "notes", "problems")}))
    return int(bool(watch.alarms))


def behind(watch: RunningWatch, records: int) -> str | None:
    """Returns what is not counted yet; canaries are counted besides the records."""
    here, there = watch.counted()
    if here >= records and here == there:
        return None
    return f"{records:,} written, {here:,} counted at the sources and {there:,} at the targets"


def verdicts(target: Broker) -> Counter[str]:
    """Counts the newest verdicts in the topic."""
    newest: dict[bytes, str] = {}
    with KafkaConsumer(
        VERDICTS, **target.connection().kafka_python(), auto_offset_reset="earliest", consumer_timeout_ms=3000
    ) as consumer:
        for record in consumer:
            newest[record.key] = json.loads(record.value)["verdict"]
    return Counter(newest.values())


def show(watch: RunningWatch, results: dict[str, int], seconds: float, processor: float, memory: int) -> None:
    """Prints the table."""
    head = ("s", "records", "copies", "rounds", "equal buckets", "false alarms", "most in flight", "most late",
            "most unread", "processor, s", "memory, MiB")  # fmt: skip
    most = (f"{watch.most[name]:,}" for name in ("in_flight", "late", "unread"))
    numbers = (f"{results['written']:,}", f"{watch.counted()[1]:,}", watch.rounds)
    row = (f"{seconds:.0f}", *numbers, watch.last["totals"]["equal_buckets"], len(watch.alarms), *most)
    print(f"{machine()}, load {os.getloadavg()[0]:.0f}\n\n{table(head, [(*row, f'{processor:.0f}', memory >> 20)])}\n")


if __name__ == "__main__":
    main()
