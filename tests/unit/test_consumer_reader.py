"""What a consumer of a group commits: only what it has shown, whatever ends it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import CommitFailedError, UnsupportedCodecError

from loosehanger.errors import LabError, WrongUseError
from loosehanger.events import consume as command
from loosehanger.events import reader as module
from loosehanger.events.reader import BATCH_MOST, Reader, Selection, Start, UnknownTopicError
from loosehanger.kafka import clients
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import ClientLog, UnreadableError
from tests.odd_records import ODD_VALUES

PARTITIONS = (TopicPartition("LH.ORDERS", 0), TopicPartition("LH.STOCK", 1))
Positions = dict[TopicPartition, int]


class Cluster:
    """A cluster with one group, in the way of ``KafkaConsumer``, of two partitions with equally many records."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = values
        self.positions: Positions = dict.fromkeys(PARTITIONS, 0)
        self.committed: Positions = {}
        self.refuses = False

    def __call__(self, **_: Any) -> Cluster:
        return self

    def subscribe(self, pattern: str) -> None:
        assert re.match(pattern, "LH.ORDERS")

    def assignment(self) -> set[TopicPartition]:
        return set(self.positions)

    def poll(self, _timeout_ms: int, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        found = {}
        for partition in PARTITIONS:
            start = self.positions[partition]
            end = self.positions[partition] = min(start + max_records // 2, len(self.values))
            if start < end:
                found[partition] = [self.record(partition, offset) for offset in range(start, end)]
        return found

    def record(self, partition: TopicPartition, offset: int) -> ConsumerRecord:
        value = self.values[offset]
        return ConsumerRecord(*partition, 0, offset, offset, 0, None, value, [], None, -1, len(value), 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def commit(self, timeout_ms: int) -> None:  # noqa: ARG002 - the client's own name for it
        if self.refuses:
            raise CommitFailedError
        self.committed = dict(self.positions)

    def close(self, timeout_ms: int) -> None:
        """Nothing is open."""


def reader_of(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setattr(clients, "KafkaConsumer", cluster)
    selection = Selection((), re.compile("LH"))
    log = ClientLog(print)
    return Reader(Connection(("127.0.0.1:1",)), selection, group="g", start=Start("earliest"), follow=True,
                  client_log=log, report=print)  # fmt: skip


def both(offset: int) -> Positions:
    return dict.fromkeys(PARTITIONS, offset)


def test_what_was_shown_is_committed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([b"{}"] * 1000)
    reader = reader_of(cluster, monkeypatch)
    shown = [record for batch in reader.batches(1500, lambda: False) for record in batch]
    reader.close()
    assert len(shown) == 1500
    assert cluster.committed == both(750)


def test_a_batch_that_was_not_shown_to_its_end_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([b"{}"] * 1000)
    reader = reader_of(cluster, monkeypatch)
    for number, batch in enumerate(reader.batches(None, lambda: False)):
        assert len(batch) == BATCH_MOST
        if number == 2:
            break
    reader.close()
    assert cluster.committed == both(BATCH_MOST), "two batches were shown, each half of either partition"


def test_after_a_rebalance_only_what_is_still_its_own_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([b"{}"] * 1000)
    reader = reader_of(cluster, monkeypatch)
    next(reader.batches(None, lambda: False))
    del cluster.positions[PARTITIONS[0]]
    reader.close()
    assert cluster.committed == {PARTITIONS[1]: 0}


def test_a_commit_that_is_refused_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([b"{}"] * 1000)
    cluster.refuses = True
    reader = reader_of(cluster, monkeypatch)
    assert sum(map(len, reader.batches(2000, lambda: False))) == 2000
    reader.close()
    assert cluster.committed == {}


def test_a_follower_looks_at_partitions_that_have_more_than_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([b"{}"] * 10)
    reader = reader_of(cluster, monkeypatch)
    monkeypatch.setattr(module, "LOOK_FOR_TOPICS_S", 0.0)
    monkeypatch.setattr(cluster, "highwater", {PARTITIONS[0]: 1015, PARTITIONS[1]: 10}.get, raising=False)
    monkeypatch.setattr(cluster, "position", lambda place, **_: cluster.positions[place], raising=False)
    looks: list[Positions] = []
    monkeypatch.setattr(reader._open, "follow", lambda waiting, _: looks.append(waiting))
    for number, _ in enumerate(reader.batches(None, lambda: False)):
        if number == 2:
            break
    reader.close()
    assert looks[-1] == {PARTITIONS[0]: 10}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment of a Deployment; signals stay pytest's."""
    for name in ("KAFKA_PASSWORD_FILE", "KAFKA_CA_FILE"):
        path = tmp_path / name
        path.write_text("x")
        monkeypatch.setenv(name, str(path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("KAFKA_USERNAME", "consumer")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(Connection, "kafka_python", lambda _self: {})


@pytest.mark.usefixtures("environment")
def test_a_crash_in_the_middle_of_a_batch_skips_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster([b"{}"] * 1000)
    monkeypatch.setattr(clients, "KafkaConsumer", cluster)

    def to_json(record: ConsumerRecord, *, decoded: bool) -> str:
        assert not decoded
        if record.offset == 400:
            raise ZeroDivisionError
        return str(record.offset)

    monkeypatch.setattr(command, "to_json", to_json)
    with pytest.raises(ZeroDivisionError):
        command.main(["--json", "--group", "g"])
    shown = {int(line) for line in capfd.readouterr().out.splitlines()}
    assert shown == set(range(400))
    assert cluster.committed == both(BATCH_MOST // 2)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_odd_values_end_no_consumer(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster([*ODD_VALUES, b"the last one"])
    monkeypatch.setattr(clients, "KafkaConsumer", cluster)
    assert command.main([*options, "--group", "g", "--max", str(2 * len(cluster.values))]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2 * len(cluster.values)
    assert cluster.committed == both(len(cluster.values))


class Endless(Cluster):
    """A cluster whose second partition gives nothing beyond its first record, for a reader without a group."""

    def topics(self) -> set[str]:
        return {place.topic for place in PARTITIONS}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {place.partition for place in PARTITIONS if place.topic == topic}

    def assign(self, *_: Any) -> None:
        """All of them."""

    seek_to_beginning = seek_to_end = assign

    def end_offsets(self, places: Sequence[TopicPartition]) -> Positions:
        return dict.fromkeys(places, len(self.values))

    def position(self, partition: TopicPartition, timeout_ms: int) -> int | None:
        assert timeout_ms
        return self.positions[partition] or None

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        found = super().poll(timeout_ms, max_records)
        self.positions[PARTITIONS[1]] = 1
        return {PARTITIONS[0]: found[PARTITIONS[0]]} if PARTITIONS[0] in found else {}


def alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setattr(clients, "KafkaConsumer", cluster)
    return Reader(Connection(("127.0.0.1:1",)), Selection((), re.compile("LH")), group=None, start=Start("earliest"),
                  follow=False, client_log=ClientLog(print), report=print)  # fmt: skip


def test_a_partition_that_gives_nothing_ends_a_reader_that_does_not_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    reader = alone(Endless([b"{}"] * 10), monkeypatch)
    with pytest.raises(LabError, match=r"127\.0\.0\.1:1: no record of LH\.STOCK-1 received for 0 s from offset 1;"):
        list(reader.batches(None, lambda: False))


def test_a_record_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Endless([b"{}"] * 10)

    def poll(*_: Any, **__: Any) -> Any:
        raise UnreadableError(PARTITIONS[1], 7, UnsupportedCodecError("no codec 5"))

    monkeypatch.setattr(cluster, "poll", poll)
    with pytest.raises(LabError, match=r"^127\.0\.0\.1:1: topic LH\.STOCK, partition 1, offset 7: .*no codec 5"):
        list(alone(cluster, monkeypatch).batches(None, lambda: False))


@pytest.mark.parametrize(("only", "offsets"), [({0}, {0}), ({1}, {1}), ({0, 1}, {0, 1})])
def test_only_the_chosen_partitions_are_read(
    only: set[int], offsets: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Endless([])
    assigned: list[TopicPartition] = []
    monkeypatch.setattr(clients, "KafkaConsumer", cluster)
    monkeypatch.setattr(cluster, "topics", lambda: {"LH.STOCK"}, raising=False)
    monkeypatch.setattr(cluster, "partitions_for_topic", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(cluster, "assign", assigned.extend, raising=False)
    for name in ("seek_to_beginning", "seek_to_end"):
        monkeypatch.setattr(cluster, name, lambda *_: None, raising=False)
    reader = Reader(Connection(("127.0.0.1:1",)), Selection((), re.compile("LH")), group=None, start=Start("earliest"),
                    follow=True, client_log=ClientLog(print), report=print, only=only)  # fmt: skip
    reader._find_partitions(first=True)
    assert {partition.partition for partition in assigned} == offsets


def test_a_partition_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Endless([])
    monkeypatch.setattr(clients, "KafkaConsumer", cluster)
    monkeypatch.setattr(cluster, "topics", lambda: {"LH.STOCK"}, raising=False)
    monkeypatch.setattr(cluster, "partitions_for_topic", lambda _: {0, 1}, raising=False)
    reader = Reader(Connection(("127.0.0.1:1",)), Selection((), re.compile("LH")), group=None, start=Start("earliest"),
                    follow=True, client_log=ClientLog(print), report=print, only={5})  # fmt: skip
    with pytest.raises(WrongUseError, match=r"LH\.STOCK: there is no partition 5"):
        reader._find_partitions(first=True)


def test_a_mistyped_topic_gets_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Endless([])
    monkeypatch.setattr(clients, "KafkaConsumer", cluster)
    monkeypatch.setattr(cluster, "topics", lambda: {"LH.STOCK", "LH.ORDERS"}, raising=False)
    for topic, hint in (("LH.STOK", "; did you mean 'LH.STOCK'?"), ("nope", "; the topics are: LH.ORDERS, LH.STOCK")):
        reader = Reader(Connection(("127.0.0.1:1",)), Selection((topic,), re.compile("LH")), group=None,
                        start=Start("earliest"), follow=True, client_log=ClientLog(print), report=print)  # fmt: skip
        with pytest.raises(UnknownTopicError) as refused:
            reader._find_partitions(first=True)
        assert str(refused.value) == f"127.0.0.1:1 has no topic '{topic}' that user 'anonymous' may read{hint}"
