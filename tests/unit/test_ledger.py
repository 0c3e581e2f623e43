"""Ledgers: what they say of records, how short they stay, and what a producer's and a consumer's programs write."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaTimeoutError

from loosehanger import ledger as module
from loosehanger.errors import WrongUseError
from loosehanger.events.reader import Reader, Selection, Start
from loosehanger.kafka import clients
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import ClientLog
from loosehanger.ledger import Ledger, LedgerEntry, ledger_files, number_of, read_entries, read_pending
from producer.delivery import SENT_AHEAD, Delivery

from .test_consumer_reader import PARTITIONS, Cluster
from .test_producer_delivery import EVENTS, Broker


def written(folder: Path) -> list[LedgerEntry]:
    return list(read_entries(ledger_files(folder)))


def ranges(entries: list[LedgerEntry], kind: str) -> dict[tuple[str, str, int], list[tuple[int, int]]]:
    """First and last sequence numbers by cluster, topic and partition."""
    found: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for entry in entries:
        if entry.kind == kind:
            found.setdefault((entry.cluster, entry.topic, entry.partition), []).append((entry.first, entry.last))
    return found


def test_records_in_a_row_are_one_line_and_a_hole_begins_another(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "one", "a-group")
    ledger.cluster = "A"
    for place, sequence in enumerate([0, 1, 2, 5, 6]):
        ledger.add("processed", "run", "LH.ORDERS", 0, sequence, 1000 + place, 10 + 2 * place)
    ledger.add("processed", "other-run", "LH.ORDERS", 0, 7, 2000, 30)
    ledger.close()
    assert written(tmp_path) == [
        LedgerEntry("processed", "run", "A", "LH.ORDERS", 0, 0, 2, 1000, 1002, "a-group", 10, 14),
        LedgerEntry("processed", "run", "A", "LH.ORDERS", 0, 5, 6, 1003, 1004, "a-group", 16, 18),
        LedgerEntry("processed", "other-run", "A", "LH.ORDERS", 0, 7, 7, 2000, 2000, "a-group", 30, 30),
    ]


def test_what_is_read_again_is_another_line_although_its_numbers_go_on(tmp_path: Path) -> None:
    """A group that was set back finds the same records at the same places, or earlier ones."""
    ledger = Ledger(tmp_path, "one", "a-group")
    for sequence, offset in ((4, 4), (5, 3)):
        ledger.add("processed", "run", "t", 0, sequence, 0, offset)
    ledger.close()
    assert [(entry.first, entry.first_offset) for entry in written(tmp_path)] == [(4, 4), (5, 3)]


def test_a_ledger_stays_short_and_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_BYTES", 4000)
    ledger = Ledger(tmp_path, "one")
    for sequence in range(3000):
        ledger.add("acked", "run", "LH.ORDERS", sequence % 3, sequence // 3, sequence)
        if sequence % 10 == 0:
            ledger.flush()
    ledger.close()
    assert ledger_files(tmp_path)[0].stat().st_size < 4000
    by_partition = ranges(written(tmp_path), "acked")
    for partition in range(3):
        found = by_partition["", "LH.ORDERS", partition]
        assert [number for first, last in found for number in range(first, last + 1)] == list(range(1000))


def test_what_is_recent_keeps_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_BYTES", 1)
    ledger = Ledger(tmp_path, "one")
    now = time.time_ns() // 1_000_000
    for sequence in range(4):
        ledger.write("acked", "run", "t", 0, sequence, sequence, now if sequence > 1 else 5 + sequence)
    assert [(entry.first, entry.last, entry.since) for entry in written(tmp_path)] == [
        (0, 1, 5),
        (2, 2, now),
        (3, 3, now),
    ]


def test_a_line_that_was_not_finished_was_never_said_and_another_file_is_no_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "one")
    ledger.write("acked", "run", "t", 0, 0, 9, 0)
    (path,) = ledger_files(tmp_path)
    path.write_text(path.read_text() + path.read_text()[:20])
    assert len(written(tmp_path)) == 1
    path.write_text("something else\n")
    with pytest.raises(WrongUseError, match=r"one\.jsonl:1: is not a line of a ledger"):
        written(tmp_path)


# A producer.


def delivery(broker: Broker, folder: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> Delivery:
    broker._metadata = type("Metadata", (), {"cluster_id": "A"})  # type: ignore[attr-defined]
    monkeypatch.setattr(Delivery, "_connect", lambda _self: broker)
    return Delivery(
        Connection(("127.0.0.1:1",)),
        prefix="LH.",
        run=run,
        origin="europe",
        client_log=ClientLog(print),
        stop=threading.Event(),
        ledger=Ledger(folder, run),
    )


def test_a_producer_says_what_it_sends_before_it_does_and_what_is_acknowledged_after_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(partitions=1)
    one = delivery(broker, tmp_path, "one", monkeypatch)
    one.open(["ORDERS", "STOCK"], 0, print)
    monkeypatch.setattr(broker, "send", _before(broker, lambda: ranges(written(tmp_path), "sent")))
    for event in EVENTS[:10]:
        one.send(event)
    assert ranges(written(tmp_path), "acked") == {}
    broker.acknowledge(7)
    one.settle()
    assert one.close(0.01) == 3
    entries = written(tmp_path)
    assert ranges(entries, "sent") == {("A", "LH.ORDERS", 0): [(0, SENT_AHEAD - 1)], ("A", "LH.STOCK", 0): [(0, 999)]}
    assert ranges(entries, "acked") == {("A", "LH.ORDERS", 0): [(0, 3)], ("A", "LH.STOCK", 0): [(0, 2)]}
    assert ranges(entries, "unknown") == {("A", "LH.ORDERS", 0): [(4, 4)], ("A", "LH.STOCK", 0): [(3, 4)]}


def test_a_partition_that_gets_no_answer_does_not_keep_back_when_others_got_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(partitions=1)
    one = delivery(broker, tmp_path, "one", monkeypatch)
    one.open(["ORDERS", "STOCK"], 0, print)
    for event in EVENTS[:6]:
        one.send(event)
    # They were sent in turn.
    broker.results = broker.results[1::2]
    broker.acknowledge(3)
    before = time.time_ns() // 1_000_000
    one.settle()
    answered = time.time_ns() // 1_000_000
    assert one.acknowledged == 3
    assert one.close(0.01) == 3
    (acked,) = [entry for entry in written(tmp_path) if entry.kind == "acked"]
    assert (acked.topic, acked.first, acked.last) == ("LH.STOCK", 0, 2)
    assert before <= acked.since <= acked.until <= answered
    assert {record.topic for record in read_pending(tmp_path)} == {"LH.ORDERS"}


def _before(broker: Broker, look: Any) -> Any:
    send = broker.send

    def checked(topic: str, **record: Any) -> Any:
        assert ("A", topic, record["partition"]) in look(), "sent before it was said"
        return send(topic, **record)

    return checked


def test_what_had_no_answer_is_sent_again_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Broker(partitions=1), Broker(partitions=1)
    one = delivery(first, tmp_path, "one", monkeypatch)
    one.open(["ORDERS", "STOCK"], 0, print)
    for event in EVENTS[:6]:
        one.send(event)
    first.acknowledge(4)
    one.close(0.01)
    assert len(read_pending(tmp_path)) == 2
    # A run that gets nowhere leaves it to the next.
    monkeypatch.setattr(second, "silences", [KafkaTimeoutError()] * 100)
    nowhere = delivery(second, tmp_path, "nowhere", monkeypatch)
    nowhere._stop.set()
    nowhere.open(["ORDERS"], 0, print)
    nowhere.close(0)
    second.silences = []
    two = delivery(second, tmp_path, "two", monkeypatch)
    two.open(["ORDERS", "STOCK"], 0, print)
    two.send(EVENTS[0])
    assert second.records[:2] == first.records[4:]
    assert [dict(record["headers"])["lh-run"] for record in second.records] == [b"one", b"one", b"two"]
    second.acknowledge(3)
    assert two.close(1) == 0
    assert (two.sent, two.again) == (3, 2)
    assert read_pending(tmp_path) == []
    by_run = [(entry.run, entry.topic, entry.first) for entry in written(tmp_path) if entry.kind == "acked"][-3:]
    assert sorted(by_run) == [("one", "LH.ORDERS", 2), ("one", "LH.STOCK", 2), ("two", "LH.ORDERS", 0)]


# A consumer.


RUN_OF_OURS = ("lh-run", b"run")
FOREIGN: list[list[tuple[str, bytes | None]]] = [
    [],
    [RUN_OF_OURS],
    [("lh-run", None), ("lh-seq", None)],
    [("lh-run", b""), ("lh-seq", b"5")],
    [("lh-run", b"\xff"), ("lh-seq", b"5")],
    [RUN_OF_OURS, ("lh-seq", b"five")],
    [RUN_OF_OURS, ("lh-seq", b"-5")],
    [RUN_OF_OURS, ("lh-seq", b"\xff")],
    [RUN_OF_OURS, ("lh-seq", b"5" * 19)],
    [RUN_OF_OURS, ("lh-seq", b"5\n")],
    [RUN_OF_OURS, ("lh-seq", b"")],
]
"""Headers of records that no producer of the kit has numbered."""


@pytest.mark.parametrize("headers", FOREIGN)
def test_what_other_programs_write_has_no_number(headers: list[tuple[str, bytes | None]]) -> None:
    assert number_of(headers) is None
    assert number_of([RUN_OF_OURS, ("lh-seq", b"12"), *headers]) == ("run", 12)


class Numbered(Cluster):
    """A cluster whose records have a producer's headers, but for every tenth, which another program has written."""

    _metadata = type("Metadata", (), {"cluster_id": "B"})

    def record(self, partition: TopicPartition, offset: int) -> ConsumerRecord:
        numbered = [("lh-run", b"run"), ("lh-seq", b"%d" % offset)]
        headers = FOREIGN[offset // 10 % len(FOREIGN)] if offset % 10 == 9 else numbered
        return super().record(partition, offset)._replace(headers=headers)


def test_a_consumer_says_what_it_has_shown_before_it_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbered([b"{}"] * 100)
    monkeypatch.setattr(clients, "KafkaConsumer", cluster)
    reader = Reader(
        Connection(("127.0.0.1:1",)),
        Selection((), re.compile("^LH")),
        group="a-group",
        start=Start(end="earliest"),
        follow=True,
        client_log=ClientLog(print),
        report=print,
        ledger=Ledger(tmp_path, "consumer", "a-group"),
    )
    batches = reader.batches(None, lambda: False)
    assert len(next(batches)) == 200
    assert written(tmp_path) == [], "what is only read is not shown yet"
    next(batches)
    commit = cluster.commit

    def checked(timeout_ms: int) -> None:
        assert sum(entry.count for entry in written(tmp_path)) == 180
        commit(timeout_ms)

    monkeypatch.setattr(cluster, "commit", checked)
    reader.close()
    assert set(cluster.committed) == set(PARTITIONS)
    found = [entry for entry in written(tmp_path) if entry.topic == "LH.STOCK"]
    assert [(entry.first, entry.last, entry.last_offset) for entry in found] == [
        (tens, tens + 8, tens + 8) for tens in range(0, 100, 10)
    ]
    assert {(entry.cluster, entry.group) for entry in found} == {("B", "a-group")}
