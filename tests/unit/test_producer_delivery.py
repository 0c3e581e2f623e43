"""What goes over to Kafka: headers, sequence numbers, the partition, and what becomes of it."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from kafka.partitioner.default import murmur2
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata
from kafka.structs import TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import ClientLog
from producer import delivery as module
from producer.delivery import Delivery
from producer.shop import Event

EVENTS = [Event(topic, f"key-{number}", b"{}") for number in range(500) for topic in ("ORDERS", "STOCK")]


class Broker:
    """Takes records in the way of ``KafkaProducer``, and acknowledges them on request."""

    def __init__(self, partitions: int = 3) -> None:
        self.partitions = partitions
        self.records: list[dict[str, Any]] = []
        self.results: list[FutureProduceResult] = []
        self.failures: list[Exception] = []
        self.silences: list[Exception] = []
        self.closed_after: float | None = None

    def partitions_for(self, _topic: str) -> set[int]:
        if self.silences:
            raise self.silences.pop()
        return set(range(self.partitions))

    def send(self, topic: str, **record: Any) -> FutureRecordMetadata:
        if self.failures:
            raise self.failures.pop()
        self.records.append({"topic": topic, **record})
        self.results.append(FutureProduceResult(TopicPartition(topic, record["partition"])))
        return FutureRecordMetadata(self.results[-1], 0, 0, None, 0, 0, 0)

    def acknowledge(self, count: int, error: Exception | None = None) -> None:
        for result in self.results[:count]:
            result.success((0, -1, (lambda _: error) if error else None))
        del self.results[:count]

    def close(self, timeout: float = 0) -> None:
        self.closed_after = timeout


def opened(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Delivery:
    monkeypatch.setattr(Delivery, "_connect", lambda _self: broker)
    delivery = Delivery(
        Connection(("127.0.0.1:1",)),
        prefix="LH.",
        run="a-run",
        origin="europe",
        client_log=ClientLog(print),
        stop=threading.Event(),
    )
    delivery.open(["ORDERS", "STOCK"], 0, print)
    return delivery


def test_each_partition_counts_from_zero_without_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    delivery = opened(broker, monkeypatch)
    for number, event in enumerate(EVENTS):
        if number % 7 == 0:
            broker.failures = [KafkaTimeoutError("no metadata"), ValueError("unknown partition")]
        delivery.send(event)
    assert [record["key"].decode() for record in broker.records] == [event.key for event in EVENTS]
    counts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for record in broker.records:
        headers = dict(record["headers"])
        assert record["partition"] == (murmur2(record["key"]) & 0x7FFFFFFF) % 3
        assert headers["lh-run"] == b"a-run"
        assert headers["lh-origin"] == b"europe"
        assert headers["lh-time"] == str(record["timestamp_ms"]).encode()
        counts[record["topic"], record["partition"]].append(int(headers["lh-seq"]))
    assert len(counts) == 6
    assert all(numbers == list(range(len(numbers))) for numbers in counts.values())


def test_the_partition_is_the_one_that_java_chooses() -> None:
    # Kafka's own test vectors for its hash, as signed integers there.
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-longer-string-x"[:6]) != murmur2(b"foobar")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_FLIGHT_MOST", 100)
    monkeypatch.setattr(module, "SLICE_S", 0.01)
    broker = Broker()
    delivery = opened(broker, monkeypatch)
    for event in EVENTS:
        if not delivery.room():
            break
        delivery.send(event)
    assert delivery.sent == 100
    broker.acknowledge(40)
    assert delivery.room()
    assert delivery.acknowledged == 40


def test_a_record_that_was_not_written_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    delivery = opened(broker, monkeypatch)
    for event in EVENTS[:3]:
        delivery.send(event)
    broker.acknowledge(2)
    broker.acknowledge(1, TopicAuthorizationFailedError("LH.STOCK"))
    with pytest.raises(LabError, match="not written: TopicAuthorizationFailedError"):
        delivery.room()
    assert delivery.close(0) == 1


def test_closing_counts_what_did_not_get_through(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    delivery = opened(broker, monkeypatch)
    for event in EVENTS[:5]:
        delivery.send(event)
    broker.acknowledge(2)
    assert delivery.close(0.05) == 3
    assert broker.closed_after == 0


def test_closing_waits_for_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    delivery = opened(broker, monkeypatch)
    for event in EVENTS[:5]:
        delivery.send(event)
    acknowledging = threading.Timer(0.05, broker.acknowledge, [5])
    acknowledging.start()
    assert delivery.close(10) == 0
    acknowledging.join()
    assert delivery.acknowledged == 0, "the count is settled by settle(), not by close()"


def test_a_cluster_that_is_not_there_is_named() -> None:
    delivery = Delivery(
        Connection(("127.0.0.1:1",)),
        prefix="LH.",
        run="a-run",
        origin="europe",
        client_log=ClientLog(print),
        stop=threading.Event(),
    )
    delivery._connect = _unreachable  # type: ignore[method-assign]
    with pytest.raises(LabError, match=r"no cluster answers at 127\.0\.0\.1:1 .*; gave up after 0 s"):
        delivery.open(["ORDERS"], 0, print)


def test_a_busy_broker_gets_the_time_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.silences = [KafkaTimeoutError("no metadata")] * 3
    opened(broker, monkeypatch)
    assert broker.closed_after is None


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (
            TopicAuthorizationFailedError(),
            r"shows user 'anonymous' no topic LH.ORDERS \(TopicAuthorizationFailedError\)",
        ),
        (KafkaTimeoutError(), r"has not shown user 'anonymous' a topic LH.ORDERS within 0 s"),
    ],
)
def test_a_topic_that_is_not_shown_is_told_with_the_reason(
    error: Exception, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.silences = [error]
    monkeypatch.setattr(module, "ANSWER_S", 0)
    with pytest.raises(LabError, match=rf"127\.0\.0\.1:1 {reported}; gave up after 0 s"):
        opened(broker, monkeypatch)
    assert broker.closed_after is not None, "a new client asks for the rights anew"


def _unreachable() -> Any:
    raise KafkaTimeoutError("Unable to bootstrap")
