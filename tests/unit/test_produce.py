"""A record that a user typed: how it is encoded, and what they learn of its delivery."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata
from kafka.structs import TopicPartition

from loosehanger.errors import ExitCode, InconclusiveError, LabError, UnreachableError, WrongUseError
from loosehanger.kafka import produce as module
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.produce import NewRecord, RecordProducer, Written, new_record

CONNECTION = Connection(("127.0.0.1:1",), username="operator")


@pytest.mark.parametrize(
    ("typed", "record"),
    [
        ({"key": "k", "value": "v"}, NewRecord("LH.ORDERS", b"k", b"v")),
        ({"key": "", "value": ""}, NewRecord("LH.ORDERS", b"", b"")),
        ({"key": "Größe", "value": None}, NewRecord("LH.ORDERS", "Größe".encode(), None)),
        ({"key": None, "value": "a\nb\x00"}, NewRecord("LH.ORDERS", None, b"a\nb\x00")),
        (
            {"key": "k", "value": "v", "headers": ["a: b: c", "empty:", "a:again"], "partition": 0},
            NewRecord("LH.ORDERS", b"k", b"v", (("a", b"b: c"), ("empty", b""), ("a", b"again")), 0),
        ),
    ],
)
def test_what_was_typed_is_what_is_written(typed: dict[str, Any], record: NewRecord) -> None:
    assert new_record("LH.ORDERS", **typed) == record


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"key": None, "value": None}, "needs a key or a value"),
        ({"key": "k", "value": "\ud800"}, "value: character 1 is not valid Unicode"),
        ({"key": "a\udfff", "value": "v"}, "key: character 2"),
        ({"key": "k", "value": "v", "headers": ["source"]}, "header: 'source' is not a header"),
        ({"key": "k", "value": "v", "headers": [": x"]}, "header: ': x' is not a header"),
        ({"key": "k", "value": "v", "headers": ["\ud800: x"]}, "header: character 1"),
        ({"key": "k", "value": "v", "partition": -1}, "-1 is negative"),
        ({"topic": "../x", "key": "k", "value": "v"}, "'../x' is not a topic's name"),
        ({"topic": "..", "key": "k", "value": "v"}, "is not a topic's name"),
        ({"topic": "x" * 250, "key": "k", "value": "v"}, "is not a topic's name"),
    ],
)
def test_what_cannot_be_a_record_is_refused_with_the_reason(typed: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUseError) as refused:
        new_record(**{"topic": "LH.ORDERS", **typed})
    assert said in str(refused.value)


class Client:
    """Takes records in the way of ``KafkaProducer``; a broker acknowledges or refuses them as the test says."""

    def __init__(self, outcome: Exception | int = 0, topic: Exception | None = None) -> None:
        self.outcome, self.topic = outcome, topic
        self.sent: list[tuple[Any, ...]] = []
        self.closed = False

    def partitions_for(self, _topic: str) -> set[int]:
        if self.topic:
            raise self.topic
        return {0, 1, 2}

    def send(self, topic: str, *record: Any) -> FutureRecordMetadata:
        self.sent.append((topic, *record))
        result = FutureProduceResult(TopicPartition(topic, record[-1] or 0))
        future = FutureRecordMetadata(result, 0, 77, None, 0, 0, 0)
        if isinstance(self.outcome, Exception):
            result.failure(self.outcome)
        else:
            result.success((self.outcome, -1, None))
        return future

    def close(self, timeout: float) -> None:
        assert timeout <= module.CLOSE_S
        self.closed = True


def opened(monkeypatch: pytest.MonkeyPatch, *clients: Client | Exception) -> RecordProducer:
    """A producer that gets these clients, one after the other."""
    waiting = list(clients)

    def connect(_: Connection, **options: Any) -> Client:
        assert options["allow_auto_create_topics"] is False
        assert options["delivery_timeout_ms"] == 10_000
        client = waiting.pop(0)
        if isinstance(client, Exception):
            raise client
        return client

    monkeypatch.setattr(module, "connect_producer", connect)
    return RecordProducer(CONNECTION, "europe")


def test_an_acknowledged_record_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(41)
    with opened(monkeypatch, client) as producer:
        assert producer.send(new_record("T", "k", None, ["a: b"], 2)) == Written("T", 2, 41, 77)
        waiting = [producer.post(new_record("T", "k", str(number))) for number in range(3)]
        assert len(client.sent) == 4, "posting waits for nothing"
        assert [outcome().offset for outcome in waiting] == [41] * 3
    assert client.sent[0] == ("T", None, b"k", [("a", b"b")], 2)
    assert client.closed


@pytest.mark.parametrize(
    ("client", "kind", "said"),
    [
        (Client(topic=KafkaTimeoutError()), WrongUseError, "europe: no topic 'T' that user 'operator' may see"),
        (Client(topic=TopicAuthorizationFailedError({"T"})), LabError, "user 'operator' lacks Write"),
        (Client(TopicAuthorizationFailedError()), LabError, "europe: T: user 'operator' lacks Write"),
        (
            Client(
                KafkaError("Unexpected error in InitProducerIdResponse: [Error 31] ClusterAuthorizationFailedError")
            ),
            LabError,
            "lacks Write",
        ),
        (Client(MessageSizeTooLargeError()), WrongUseError, "larger than the topic's max.message.bytes allows"),
        (Client(KafkaTimeoutError("late")), InconclusiveError, "it may have been written or not"),
        (KafkaConnectionError(), UnreachableError, "europe: Kafka at 127.0.0.1:1 does not answer"),
    ],
)
def test_a_record_that_was_not_acknowledged_says_why(
    monkeypatch: pytest.MonkeyPatch, client: Client | Exception, kind: type[LabError], said: str
) -> None:
    with pytest.raises(LabError) as refused, opened(monkeypatch, client) as producer:
        producer.send(new_record("T", "k", "v"))
    assert type(refused.value) is kind
    assert said in str(refused.value)
    assert refused.value.exit_code == {
        WrongUseError: ExitCode.WRONG_USE, InconclusiveError: ExitCode.INCONCLUSIVE,
    }.get(kind, ExitCode.FAILED)  # fmt: skip


def test_a_partition_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    with (
        opened(monkeypatch, client) as producer,
        pytest.raises(WrongUseError, match="T has no partition 3; it has 0 to 2"),
    ):
        producer.send(new_record("T", "k", "v", partition=3))
    assert client.sent == []


def test_a_refusal_does_not_stop_the_next_record(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing, next_one = Client(MessageSizeTooLargeError()), Client(3)
    with opened(monkeypatch, refusing, next_one) as producer:
        with pytest.raises(WrongUseError):
            producer.send(new_record("T", "k", "x" * 99))
        assert refusing.closed
        assert producer.send(new_record("T", "k", "v")).offset == 3
