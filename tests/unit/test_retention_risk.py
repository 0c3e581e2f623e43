"""Time to loss: a mirror that is behind is reported before the source deletes what it has not copied, and after."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import IsolationLevel, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import IncompatibleBrokerVersion, KafkaTimeoutError

from loosehanger.errors import LabError
from loosehanger.kafka import clients, cluster, retention_risk
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.retention_risk import PartitionRisk, RetentionReader, by_topic
from loosehanger.times import span

PLACE = TopicPartition("A", 0)
HOUR = 3600


class Source:
    """A cluster with one partition: a record a second of 88 bytes, and what Kafka adds to make it 100."""

    def __init__(self, start: int = 0, end: int = 0, **settings: str) -> None:
        self.start, self.end = start, end
        self.settings = settings
        self.at = 0
        self.away = False
        self.timed = True
        self.stable: int | None = None
        """The last stable offset, where a transaction is open; it began at ``began``, if that is known."""
        self.began: float | None = None

    def list_partition_offsets(
        self, specs: Mapping[TopicPartition, Any], isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[TopicPartition, Any]:
        if self.away:
            raise KafkaTimeoutError("nothing there")
        end = self.end
        if isolation_level is IsolationLevel.READ_COMMITTED and self.stable is not None:
            end = self.stable
        return {
            place: SimpleNamespace(offset=self.start if spec == OffsetSpec.EARLIEST else end)
            for place, spec in specs.items()
        }

    def describe_producers(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Any]:
        state = SimpleNamespace(producer_id=5, current_transaction_start_offset=self.stable)
        return {place: SimpleNamespace(active_producers=[state]) for place in places}

    def list_transactions(self, producer_id_filters: Collection[int]) -> dict[int, list[Any]]:
        if self.began is None:
            raise IncompatibleBrokerVersion
        return {1: [SimpleNamespace(producer_id=number, transactional_id="till-7") for number in producer_id_filters]}

    def describe_transactions(self, names: Collection[str]) -> dict[str, Any]:
        began_ms = (self.began or 0) * 1000
        return {n: SimpleNamespace(transaction_start_time_ms=began_ms, transaction_timeout_ms=900_000) for n in names}

    def seek(self, _: TopicPartition, offset: int) -> None:
        self.at = offset

    def position(self, _: TopicPartition) -> int:
        return self.at

    def poll(self, **_: Any) -> dict[TopicPartition, list[Any]]:
        time_ms = self.at * 1000 if self.timed else -1
        record = SimpleNamespace(offset=self.at, timestamp=time_ms, key=None, value=b"x" * 88, headers=())
        return {PLACE: [record]}

    def assign(self, *_: Any) -> None:
        """There is one partition."""

    resume = pause = assign
    close = assign


def looking(monkeypatch: pytest.MonkeyPatch, source: Source) -> RetentionReader:
    """Looks at this source."""
    monkeypatch.setattr(clients, "KafkaAdminClient", lambda **_: source)
    monkeypatch.setattr(clients, "KafkaConsumer", lambda **_: source)
    monkeypatch.setattr(
        cluster, "topic_configs", lambda *_: ({"A": {n: {"value": v} for n, v in source.settings.items()}}, {})
    )
    return RetentionReader(Cluster("europe", Connection(("x:1",))))


def look(watch: RetentionReader, position: int | None, now: float) -> PartitionRisk:
    """The one partition, at this time."""
    (found,) = watch.look({PLACE: position}, now=now)
    return found


def kept(seconds: int = 7 * 24 * HOUR, size: int = -1, policy: str = "delete") -> dict[str, str]:
    """Settings of retention."""
    return {"retention.ms": str(seconds * 1000), "retention.bytes": str(size), "cleanup.policy": policy}


def test_a_mirror_that_has_everything_is_in_no_danger(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look(looking(monkeypatch, Source(0, 100, **kept(HOUR))), 99, 100)
    assert (found.behind, found.age_s, found.loss_in_s, found.gone, found.endangered()) == (0, None, None, 0, False)


def test_a_mirror_that_stands_still_loses_when_its_oldest_record_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = looking(monkeypatch, Source(0, 1000, **kept(HOUR)))
    found = look(watch, 99, 1000)
    assert (found.behind, found.age_s, found.loss_in_s, found.by) == (900, 900, 2700, "time")
    assert not found.endangered(), "a quarter of the hour is used up"
    assert look(watch, 99, 2800).endangered()
    assert look(watch, 99, 2800).loss_in_s == 900


def test_a_mirror_that_is_too_slow_loses_later_and_a_quick_one_never(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = looking(monkeypatch, Source(0, 10_000, **kept(HOUR)))
    look(watch, 99, 3000)
    slow = look(watch, 99 + 50, 3100)
    assert slow.pace == 0.5
    assert slow.loss_in_s == (HOUR - (3100 - 150)) / 0.5
    quick = look(watch, 99 + 350, 3200)
    assert (quick.pace, quick.loss_in_s, quick.by) == (3.0, None, "")


class Reading(Source):
    """Its connection for reading takes until something else was asked."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__(0, 1000, **kept(HOUR))
        self.asked, self.ended = threading.Event(), threading.Event()
        self.failures = [*failures]
        self.openers: list[threading.Thread] = []
        self.closed = 0

    def consumer(self, **_: Any) -> Reading:
        assert self.asked.wait(10)
        self.openers.append(threading.current_thread())
        if self.failures:
            raise self.failures.pop()
        return self

    def list_partition_offsets(self, *arguments: Any, **options: Any) -> dict[TopicPartition, Any]:
        self.asked.set()
        return super().list_partition_offsets(*arguments, **options)

    def close(self) -> None:
        self.closed += 1
        self.ended.set()


def reading(monkeypatch: pytest.MonkeyPatch, source: Reading) -> RetentionReader:
    watch = looking(monkeypatch, source)
    monkeypatch.setattr(clients, "KafkaConsumer", source.consumer)
    watch.connect_ahead()
    return watch


def test_the_connection_for_reading_is_opened_once_while_other_things_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Reading()
    watch = reading(monkeypatch, source)
    assert [look(watch, 99, 1000).age_s, look(watch, 99, 1100).age_s] == [900, 1000]
    assert [one is threading.main_thread() for one in source.openers] == [False]
    watch.close()
    assert source.closed == 2, "this one, and that of the questions"


def test_a_connection_that_was_opened_ahead_for_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Reading()
    watch = reading(monkeypatch, source)
    watch.close()
    assert (source.openers, source.closed) == ([], 0)
    source.asked.set()
    assert source.ended.wait(10)
    assert (len(source.openers), source.closed) == (1, 1)


def test_a_connection_that_could_not_be_opened_ahead_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Reading(KafkaTimeoutError("nothing there"))
    watch = reading(monkeypatch, source)
    assert look(watch, 99, 1000).age_s == 900
    assert [one is threading.main_thread() for one in source.openers] == [False, True]


def test_a_connection_that_cannot_be_opened_either_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = reading(monkeypatch, Reading(*(KafkaTimeoutError("nothing there") for _ in range(2))))
    with pytest.raises(LabError, match="nothing there"):
        look(watch, 99, 1000)
    assert look(watch, 99, 1000).age_s == 900


def test_records_without_a_time_wait_and_have_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0, 1000, **kept(HOUR))
    source.timed = False
    watch = looking(monkeypatch, source)
    for now in (10_000, 20_000):
        found = look(watch, 99, now)
        assert (found.behind, found.age_s, found.loss_in_s, found.endangered()) == (900, None, None, False)


def test_retention_by_size_deletes_what_is_more_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0, 1000, **kept(-1, 100_000))
    watch = looking(monkeypatch, source)
    assert look(watch, 99, 1000).loss_in_s is None, "how quickly it grows is unknown"
    source.end = 1050
    found = look(watch, 99, 1010)
    assert (found.loss_in_s, found.by) == ((100_000 - 95_000) / (50 * 100 / 10), "size")
    assert found.endangered()
    source.end = 2000
    assert look(watch, 99, 1020).loss_in_s == 0


def test_a_topic_that_deletes_nothing_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(looking(monkeypatch, Source(0, 100, **kept(1, 1, "compact"))), 0, 1e6).loss_in_s is None


def test_what_is_gone_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look(looking(monkeypatch, Source(1500, 2000, **kept(HOUR))), -1, 2000)
    assert (found.gone, found.behind, found.lost) == (1500, 500, True)
    assert look(looking(monkeypatch, Source(1500, 2000, **kept(HOUR))), None, 2000).gone == 0, "it has begun there"


def test_a_source_that_ends_before_the_position_was_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = looking(monkeypatch, Source(0, 50, **kept()))
    assert look(watch, 50, 100).made_again
    assert not look(watch, 49, 100).made_again


def test_markers_at_the_end_are_nothing_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0, 100, **kept(HOUR))

    def nothing(**_: Any) -> dict[TopicPartition, list[Any]]:
        source.at = 100
        return {}

    monkeypatch.setattr(source, "poll", nothing)
    assert look(looking(monkeypatch, source), 98, 1e6).behind == 0


def held(watch: RetentionReader, now: float) -> list[str]:
    """What is reported of the one topic, of which everything readable is copied."""
    (danger,) = by_topic([look(watch, 9, now)]).values()
    return danger.warnings()


def test_a_transaction_that_is_open_for_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0, 1015, **kept())
    source.stable, source.began = 10, time.time() - 78
    assert held(looking(monkeypatch, source), 1000) == [
        "A: up to 1,005 records are behind the last stable offset and are not copied, held by transaction 'till-7' of "
        "producer 5, open for 1.3 min (timeout 15.0 min)"
    ]
    source.began = time.time()
    assert held(looking(monkeypatch, source), 1000) == [], "transactions take a moment"


def test_a_reader_whose_ends_stop_at_the_transaction_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consoles' ends are those of a consumer of committed records."""
    source = Source(end=1106)
    source.stable, source.began = 101, 0.0
    watch = looking(monkeypatch, source)
    (risk,) = watch.look({PLACE: 100}, now=1000, ends={PLACE: 101})
    assert (risk.behind, risk.held.offsets if risk.held else None, risk.overdue) == (0, 1005, True)


def test_where_the_age_of_a_transaction_is_not_known_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0, 1015, **kept())
    source.stable = 10
    watch = looking(monkeypatch, source)
    assert (held(watch, 1000), held(watch, 1029)) == ([], [])
    (said,) = held(watch, 1030)
    assert said.endswith("held by a transaction of producer 5; the brokers are too old to name the transaction")
    source.stable = 20
    assert held(watch, 1031) == [], "another transaction is open"
    source.stable = None
    assert held(watch, 1090) == []


def test_a_cluster_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    source.away = True
    with pytest.raises(LabError, match="europe: the cluster does not answer"):
        look(looking(monkeypatch, source), 0, 0)


def test_the_worst_partition_stands_for_a_topic() -> None:
    found = by_topic(
        [
            PartitionRisk("A", 0, 9, 0, 20, 10, 100.0, 0.0, 50.0, "time", 0.1, gone=3),
            PartitionRisk("A", 1, 9, 0, 20, 5, 200.0, 0.0, 500.0, "time", 0.4),
            PartitionRisk("B", 0, 9, 0, 9, 0, made_again=True),
        ]
    )
    a = found["A"]
    assert (a.behind, a.age_s, a.loss_in_s, a.partition, a.gone) == (15, 200.0, 50.0, 0, 3)
    lost, endangered = a.warnings()
    assert lost == "A: 3 offsets were deleted before they were copied: they are lost"
    assert endangered == "A: 15 offsets behind, the oldest 3.3 min old; the source may delete them by time in 50 s"
    (again,) = found["B"].warnings()
    assert "delete its offsets of this topic" in again
    assert [span(seconds) for seconds in (None, 5, 90, 7200, 200_000)] == ["-", "5 s", "1.5 min", "2.0 h", "2.3 d"]


def test_what_could_not_be_read_in_time_is_what_was_read_before_as_long_as_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(0, 100, **kept(HOUR))
    watch = looking(monkeypatch, source)
    monkeypatch.setattr(retention_risk, "_READ_S", 0.01)
    first = look(watch, 49, 1000)
    assert (first.oldest, first.behind, first.unread) == (50, 50, False)
    monkeypatch.setattr(source, "poll", lambda **_: {})
    for _ in range(2):
        lost = look(watch, 49, 1100)
        assert (lost.oldest, lost.behind, lost.age_s, lost.unread) == (50, 50, 1050, True)
    moved = look(watch, 60, 1200)
    assert (moved.oldest, moved.unread) == (None, True)


def test_what_came_after_the_ends_were_read_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = looking(monkeypatch, Source(0, 120, **kept(HOUR)))
    ends = {PLACE: 100}
    (all_copied,) = watch.look({PLACE: 99}, now=100, ends=ends)
    assert (all_copied.behind, all_copied.age_s, all_copied.end) == (0, None, 100)
    (ahead,) = watch.look({PLACE: 110}, now=100, ends=ends)
    assert (ahead.behind, ahead.age_s, ahead.made_again) == (0, None, False), "it has copied what came since"
    (behind,) = watch.look({PLACE: 89}, now=100, ends=ends)
    assert (behind.behind, behind.age_s) == (10, 10)
    (again,) = watch.look({PLACE: 130}, now=100, ends={PLACE: 200})
    assert again.made_again


def test_the_ends_of_a_cluster_that_is_away_are_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0, 7)
    watch = looking(monkeypatch, source)
    assert watch.ends([PLACE]) == {PLACE: 7}
    source.away = True
    with pytest.raises(LabError, match="europe: the cluster does not answer"):
        watch.ends([PLACE])
