"""``mirrorproof watch`` between two brokers of a user's own, with a copier that the kit did not bring.

First all is quiet, also while the copier stands still and after the watch was started again. Then the copier loses a
record, writes one twice and changes one: each is named, with exact counts. Two flows at once, odd bytes, and
partitions without a record. Canaries arrive, verdicts are records of a topic, and the copier's group decides about the
last record of a partition. Where the source has deleted records, only those that were never copied are counted.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from loosehanger.audit.balance import KINDS
from loosehanger.audit.client_reader import ClientReader
from loosehanger.errors import UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.paths import ROOT

from .broker import Broker, running
from .conftest import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TOPICS = {"orders": 4, "stock": 2}
"""Partitions; the last one of each has no record."""
CANARY, LAST, GAP, RACED = "canary", "last", "gap", "raced"
GRACE_S = 4.0
WITHIN_S = 60.0
TOKEN = "token-of-a-test"


def create(broker: Broker, topics: dict[str, int]) -> None:
    client = broker.admin()
    client.create_topics({name: {"num_partitions": count, "replication_factor": 1} for name, count in topics.items()})
    client.wait_for_topics(list(topics))
    client.close()


@dataclass
class Writer:
    """Writes numbered records with odd bytes, some each second, until it is closed."""

    source: Broker
    written: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with KafkaProducer(**self.source.connection().kafka_python()) as producer:
            while not self.ended.wait(0.1):
                for topic, partitions in TOPICS.items():
                    self.written += 1
                    key = b"\xff\x00%d" % self.written if self.written % 3 else None
                    value = b"\x00\xfe odd %d" % self.written if self.written % 5 or key is None else None
                    headers = [("h", b"\xff"), ("h", b"\x00"), ("", b"")] if self.written % 2 else []
                    producer.send(topic, value, key=key, partition=self.written % (partitions - 1), headers=headers)


@dataclass
class Copier:
    """Copies record by record, in order; what it does wrong, it does once for each of its ``faults``."""

    source: Broker
    target: Broker
    faults: list[str] = field(default_factory=list)
    copied: int = 0
    stands: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        consumer = KafkaConsumer(**self.source.connection().kafka_python(), enable_auto_commit=False)
        places = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
        consumer.assign([*places, TopicPartition(CANARY, 0)])
        consumer.seek_to_beginning()
        with KafkaProducer(**self.target.connection().kafka_python()) as producer:
            while not self.ended.is_set():
                if self.stands.is_set():
                    self.ended.wait(0.1)
                    continue
                for place, records in consumer.poll(100).items():
                    for record in records:
                        self._copy(producer, place, record)
                producer.flush()
        consumer.close()

    def _copy(self, producer: Any, place: TopicPartition, record: Any) -> None:
        self.copied += 1
        value = record.value
        # A later record of the partition must come, so that the loss shows.
        is_marked = value is not None and record.key is not None and place.topic != CANARY
        fault = self.faults.pop(0) if self.faults and is_marked else ""
        if fault == "missing":
            return
        if fault == "altered":
            value += b"?"
        for _ in range(2 if fault == "doubled" else 1):
            producer.send(
                f"copy.{place.topic}",
                value,
                key=record.key,
                partition=place.partition,
                headers=list(record.headers),
                timestamp_ms=record.timestamp,
            )


@dataclass
class Watching:
    """A running ``mirrorproof watch``."""

    process: subprocess.Popen[str]
    documents: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.documents.append(json.loads(line))

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The first document from now on of which this holds."""
        seen, deadline = len(self.documents), time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            for document in self.documents[seen:]:
                seen += 1
                if holds(document):
                    return document
            assert self.process.poll() is None, "the watch has ended"
            time.sleep(0.05)
        raise AssertionError(f"not within {WITHIN_S:.0f} s: {what}; last: {self.documents[-1:]}")

    def end(self) -> tuple[int, float, str]:
        """Ends it by Ctrl-C: its exit code, the seconds that it took, and what it said last."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(20)
        assert self.process.stderr
        return code, time.monotonic() - began, self.process.stderr.read()


@contextmanager
def watching(config: Path, folder: Path, *more: str) -> Iterator[Watching]:
    command = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line", "watch", str(config), "--json"]
    command += ["--state", str(folder / "state"), "--every", "1", "--grace", str(GRACE_S), *more]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        found = Watching(process)
        reader = threading.Thread(target=found.read, daemon=True)
        reader.start()
        try:
            yield found
        finally:
            if process.poll() is None:
                process.kill()
            reader.join()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    old, new = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    with running(old) as source, running(new, cluster="TmV3Q2x1c3Rlck5ld05ldw") as target:
        topics = TOPICS | dict.fromkeys((CANARY, LAST, GAP, RACED), 1)
        create(source, topics)
        create(target, {f"copy.{topic}": count for topic, count in topics.items()})
        yield source, target


@pytest.fixture
def config(brokers: tuple[Broker, Broker], tmp_path: Path) -> Path:
    path = tmp_path / "flows.yaml"
    source, target = (broker.properties("admin") for broker in brokers)
    path.write_text(
        f"clusters:\n  old: {{file: '{source}'}}\n  new: {{file: '{target}'}}\nflows:\n"
        "  - {name: orders, source: old, target: new, topics: [orders], names: {prefix: copy.}}\n"
        "  - {name: stock, source: old, target: new, topics: [stock], names: {prefix: copy.}}\n"
        f"  - {{name: canary, source: old, target: new, topics: [{CANARY}], names: {{prefix: copy.}}}}\n",
        encoding="utf-8",
    )
    return path


def kinds(document: dict[str, Any]) -> dict[str, int]:
    return {name: document["totals"][name] for name in KINDS if document["totals"][name]}


def examples(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [example for finding in document["findings"] for example in finding["examples"]]


def is_quiet(document: dict[str, Any]) -> bool:
    return not document["findings"] and not document["problems"] and not document["notes"]


def asked(port: int, path: str, authorization: str) -> tuple[int, str]:
    answer = requests.get(f"http://127.0.0.1:{port}{path}", headers={"Authorization": authorization}, timeout=10)
    return answer.status_code, answer.text


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@pytest.mark.timeout(420)
def test_nothing_is_alarmed_falsely_and_every_fault_is_named(
    brokers: tuple[Broker, Broker], config: Path, tmp_path: Path
) -> None:
    writer, copier = Writer(brokers[0]), Copier(*brokers)
    threads = [threading.Thread(target=run, daemon=True) for run in (writer.run, copier.run)]
    for thread in threads:
        thread.start()
    try:
        _watch_quietly(config, tmp_path, copier)
        _watch_faults(config, tmp_path, copier)
    finally:
        for part in (writer, copier):
            part.ended.set()
        for thread in threads:
            thread.join(20)


def _watch_quietly(config: Path, folder: Path, copier: Copier) -> None:
    with watching(config, folder, "--canary", "2", "--canary-topic", CANARY) as watch:
        watch.until(lambda one: all(flow["equal_buckets"] > 1 for flow in one["flows"]), "equal buckets")
        (canary,) = watch.documents[-1]["canaries"]
        assert (canary["mirror"], canary["verdict"], canary["sent"] > 2) == ("canary", "arriving", True), canary
        assert canary["latency_s"] < WITHIN_S
        assert all(map(is_quiet, watch.documents)), watch.documents
        # A copier that stands still has lost nothing.
        copier.stands.set()
        late = watch.until(
            lambda one: one["totals"]["late"] and any((flow["loss"] or {}).get("behind") for flow in one["flows"]),
            "records are late, and a lag",
        )
        assert not late["findings"]
        records = watch.documents[-1]["totals"]["records"]
        code, seconds, said = watch.end()
        assert (code, seconds < 8) == (0, True), (code, seconds, said)
        assert "records at the sources" in said
        assert "inconclusive" in said
    with watching(config, folder) as watch:
        again = watch.until(lambda _: True, "the first round")
        assert again["totals"]["records"] >= records, "it goes on where it was"
        watch.until(lambda one: one["totals"]["late"] > 0, "records are late still")
        copier.stands.clear()
        watch.until(lambda one: not one["totals"]["late"] and one["totals"]["records"] > records, "all has arrived")
        assert all(map(is_quiet, watch.documents)), [one for one in watch.documents if not is_quiet(one)]
        # Killed: the next one continues from what the last round stored.
        watch.process.kill()


def _watch_faults(config: Path, folder: Path, copier: Copier) -> None:
    token, port = folder / "token", free_port()
    token.write_text(TOKEN, encoding="utf-8")
    served = ("--metrics", str(port), "--metrics-token-file", str(token), "--report-topic", "new:audit")
    with watching(config, folder, *served) as watch:
        expected: dict[str, int] = {}
        watch.until(is_quiet, "quiet after a kill")
        for fault, kind in (("missing", "missing"), ("doubled", "duplicates"), ("altered", "altered")):
            copier.faults.append(fault)
            expected[kind] = 1
            # Counted first, and named a moment later.
            found = watch.until(
                lambda one: kinds(one) == expected and {found["kind"] for found in examples(one)} == set(expected),
                f"{expected}, with an example of each",
            )
            assert all(example["key"].startswith("0xff00") for example in examples(found)), kind
        _look_at_pages(port)
        assert not watch.documents[-1]["problems"]
        code, seconds, said = watch.end()
        assert (code, seconds < 8) == (0, True), (code, seconds, said)
        assert "disproved" in said
    assert reported(copier.target) == expected, "the newest verdict of each bucket is a record of the topic"
    with watching(config, folder) as watch:
        assert kinds(watch.until(lambda _: True, "the first round")) == expected, "findings outlive a restart"


def reported(target: Broker) -> dict[str, int]:
    """The differences by the newest verdicts of the report's topic."""
    newest = {}
    with KafkaConsumer(
        "audit", **target.connection().kafka_python(), auto_offset_reset="earliest", consumer_timeout_ms=3000
    ) as consumer:
        for record in consumer:
            newest[record.key] = json.loads(record.value)
    assert {verdict["sources"] for verdict in newest.values()} == {"old"}
    return kinds({"totals": {name: sum(found[name] for found in newest.values()) for name in KINDS}})


def config_of(folder: Path, brokers: tuple[Broker, Broker], topic: str) -> Path:
    """Writes a configuration with one topic."""
    old, new = (broker.properties("admin") for broker in brokers)
    path = folder / "flow.yaml"
    path.write_text(
        f"clusters:\n  old: {{file: '{old}'}}\n  new: {{file: '{new}'}}\nflows:\n"
        f"  - {{name: {topic}, source: old, target: new, topics: [{topic}], names: {{prefix: copy.}}}}\n",
        encoding="utf-8",
    )
    return path


def put(broker: Broker, topic: str, values: Iterable[int], timestamp_ms: int) -> None:
    """Writes a record for each number, all of the same time."""
    with KafkaProducer(**broker.connection().kafka_python()) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=0, timestamp_ms=timestamp_ms)


def has_committed(cluster: Cluster, offset: int) -> bool:
    """Commits an offset for the copier; whether that was accepted."""
    try:
        cluster.set_committed("copier", {TopicPartition(LAST, 0): offset})
    except UnreachableError:
        return False
    return True


@pytest.mark.timeout(240)
def test_the_copiers_group_decides_about_the_last_record_of_a_partition(
    brokers: tuple[Broker, Broker], tmp_path: Path
) -> None:
    source, target = brokers
    with Cluster("old", source.connection()) as cluster:
        wait_until(lambda: has_committed(cluster, 0), WITHIN_S, "the group's coordinator, which a new broker creates")
        with watching(config_of(tmp_path, brokers, LAST), tmp_path, "--copier-group", "last:copier") as watch:
            watch.until(lambda _: True, "the first round")
            now = round(time.time() * 1000)
            put(source, LAST, (1, 2), now)
            put(target, f"copy.{LAST}", (1,), now)
            late = watch.until(lambda one: one["totals"]["late"] == 1, "the last record is late")
            assert not kinds(late)
            assert has_committed(cluster, 2)
            found = watch.until(lambda one: bool(examples(one)), "it is named")
            assert kinds(found) == {"missing": 1}
            assert [example["source_offset"] for example in examples(found)] == [1]


@pytest.mark.timeout(240)
def test_copies_of_records_that_the_source_has_deleted_are_not_unexpected(
    brokers: tuple[Broker, Broker], tmp_path: Path
) -> None:
    source, target = brokers
    with watching(config_of(tmp_path, brokers, GAP), tmp_path) as watch:
        watch.until(lambda _: True, "the first round")
        now = round(time.time() * 1000)
        put(source, GAP, range(300), now)
        put(target, f"copy.{GAP}", range(101), now)
        watch.until(lambda one: one["totals"]["records"] == 300, "all are read")
        client = source.admin()
        client.delete_records({TopicPartition(GAP, 0): 250})
        client.close()
        put(target, f"copy.{GAP}", range(250, 300), now)
        watch.until(lambda one: bool(kinds(one)), "the loss")
        seen = len(watch.documents)
        # The records are named beside the rounds.
        watch.until(lambda _: len(watch.documents) > seen + 3 * GRACE_S, "further rounds")
        found = [kinds(one) for one in watch.documents[seen - 1 :]]
        assert all(one == {"never_mirrored": 149} for one in found), found


def test_records_that_are_deleted_while_they_are_read_are_not_left_out(
    brokers: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, source = TopicPartition(RACED, 0), brokers[0]
    put(source, RACED, range(30), round(time.time() * 1000))
    client = source.admin()
    client.delete_records({place: 20})
    client.close()
    reader = ClientReader("old", Cluster("old", source.connection()))
    try:
        with monkeypatch.context() as before:
            # As it was a moment before.
            before.setattr(Cluster, "start_offsets", lambda _, places: dict.fromkeys(places, 0))
            with pytest.raises(UnreachableError, match="old: records were deleted while they were read"):
                reader.read({place: 0}, {})
        reading = reader.read({place: 0}, {})
        assert (reading.lost, sum(found.records for found in reading.totals)) == ({place: 20}, 10)
    finally:
        reader.close()


def _look_at_pages(port: int) -> None:
    basic = "Basic " + base64.b64encode(f"any:{TOKEN}".encode()).decode()
    assert asked(port, "/metrics", "Bearer wrong")[0] == 401
    assert asked(port, "/", "Bearer wrong")[0] == 401
    status, metrics = asked(port, "/metrics", f"Bearer {TOKEN}")
    assert status == 200
    for kind in ("missing", "duplicates", "altered"):
        values = [
            float(line.split()[-1])
            for line in metrics.splitlines()
            if line.startswith("loosehanger_audit_differences{") and f'kind="{kind}"' in line
        ]
        assert sum(values) == 1, kind
    assert 'loosehanger_audit_round_verdict{verdict="disproved"} 1.0' in metrics
    assert "loosehanger_mirror_lag_records{" in metrics
    status, page = asked(port, "/", basic)
    assert (status, "Disproved" in page, "<code>orders</code>" in page) == (200, True, True)
