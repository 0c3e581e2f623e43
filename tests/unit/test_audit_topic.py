"""Verdicts reach the topic at least once, and the latest one for a bucket."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kafka.errors import KafkaTimeoutError

from loosehanger.audit.topic import TOPIC, AuditTopic
from loosehanger.kafka.connection import Connection

ROW = {
    "minute": 0,
    "judged": 31_000,
    "target": "na",
    "topic": "A",
    "partition": 2,
    "bucket": 20_000,
    "verdict": "missing",
}


class Sending:
    """What a producer gives back, and a producer that acknowledges on request."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes, bytes]] = []
        self.on_success: list[Callable[[Any], None]] = []
        self.on_failure: list[Callable[[Any], None]] = []
        self.down = False

    def send(self, topic: str, value: bytes, key: bytes) -> Sending:
        if self.down:
            raise KafkaTimeoutError("no metadata")
        self.records.append((topic, key, value))
        return self

    def add_callback(self, call: Callable[[Any], None]) -> Sending:
        self.on_success.append(call)
        return self

    def add_errback(self, call: Callable[[Any], None]) -> Sending:
        self.on_failure.append(call)
        return self


def topic_with(producer: Sending) -> AuditTopic:
    """The topic with this producer."""
    topic = AuditTopic(Connection(("x:1",)))
    topic._producer = producer
    return topic


def test_a_verdict_is_a_record_with_its_bucket_as_key() -> None:
    producer = Sending()
    topic = topic_with(producer)
    topic.publish([ROW])
    ((name, key, value),) = producer.records
    assert (name, key) == (TOPIC, b"na/A/2/1970-01-01T00:00:20.000+00:00")
    assert json.loads(value)["judged"] == "1970-01-01T00:00:31.000+00:00"
    assert json.loads(value)["verdict"] == "missing"
    assert topic.dump() == [ROW], "no broker has acknowledged it"
    topic.publish([])
    assert len(producer.records) == 1, "it is on its way"
    producer.on_success[0](None)
    assert topic.dump() == []


def test_what_was_not_acknowledged_is_sent_again_also_by_the_next_watch() -> None:
    producer = Sending()
    producer.down = True
    topic = topic_with(producer)
    topic.publish([ROW])
    producer.down = False
    topic.publish([])
    assert len(producer.records) == 1
    producer.on_failure[0](None)
    again = topic_with(producer)
    again.load(json.loads(json.dumps(topic.dump())))
    again.publish([])
    assert len(producer.records) == 2


def test_a_newer_verdict_is_not_taken_for_acknowledged_with_the_older_one() -> None:
    producer = Sending()
    topic = topic_with(producer)
    topic.publish([ROW])
    topic.publish([ROW | {"verdict": "equal"}])
    producer.on_success[0](None)
    assert [row["verdict"] for row in topic.dump()] == ["equal"]
