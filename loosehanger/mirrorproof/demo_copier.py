"""The records of ``mirrorproof demo``, and a copier that makes one kind of mistake."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

from kafka import TopicPartition
from kafka.admin import NewTopic
from kafka.consumer.fetcher import ConsumerRecord

from loosehanger.errors import LabError
from loosehanger.kafka.clients import connect_admin, connect_consumer, connect_producer
from loosehanger.kafka.cluster import Cluster, partitions_of
from loosehanger.kafka.connection import Connection

Mistake = Literal["lost", "changed", "doubled"]
DAMAGED, WHOLE = "orders", "payments"
TOPICS = {DAMAGED: 3, WHOLE: 1}
"""The topics, with their numbers of partitions."""
RECORDS = {DAMAGED: 3000, WHOLE: 500}
_EVERY = 250
"""The copier makes its mistake at this offset of a partition and its multiples."""
EXPECTED: dict[Mistake, str] = {
    "lost": "loses 9 records of orders",
    "changed": "changes 9 records of orders",
    "doubled": "writes 9 records of orders twice",
}
_APART_MS = 10
_SENT_S = 30.0
_SILENT_S = 20.0
_DELETED_S = 30.0


def write_records(source: Connection) -> dict[str, int]:
    """Creates the topics, and writes orders and payments of the last seconds; returns their number by topic.

    Raises:
        LabError: the broker does not accept them.
    """
    _create_topics(source)
    with connect_producer(source) as producer:
        for topic, count in RECORDS.items():
            first_ms = int(time.time() * 1000) - count * _APART_MS
            for number in range(count):
                value = json.dumps({topic[:-1]: number, "amount": f"{number % 97 + 0.99:.2f}"})
                producer.send(
                    topic,
                    value.encode(),
                    key=b"customer-%d" % (number % 89),
                    partition=number % TOPICS[topic],
                    timestamp_ms=first_ms + number * _APART_MS,
                )
        producer.flush(timeout=_SENT_S)
    return dict(RECORDS)


def copy(source: Connection, target: Connection, mistake: Mistake | None) -> None:
    """Copies every record to a topic of the same name, with a mistake in ``orders``; None for a copier without one.

    Raises:
        LabError: the source has fewer records than it should.
    """
    _create_topics(target)
    places = partitions_of(TOPICS)
    with connect_producer(target) as producer:
        consumer = connect_consumer(source)
        try:
            consumer.assign(places)
            _copy_all(consumer, producer, places, mistake)
        finally:
            consumer.close()
        producer.flush(timeout=_SENT_S)


def _copy_all(consumer: Any, producer: Any, places: list[TopicPartition], mistake: Mistake | None) -> None:
    ends = consumer.end_offsets(places)
    deadline = time.monotonic() + _SILENT_S
    while any(consumer.position(place) < ends[place] for place in places):
        if time.monotonic() > deadline:
            raise LabError(f"the copier received no record for {_SILENT_S:.0f} s; run the demo again")
        for records in consumer.poll(timeout_ms=500).values():
            deadline = time.monotonic() + _SILENT_S
            for record in records:
                for value in _copies(record, mistake):
                    producer.send(
                        record.topic,
                        value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )


def _copies(record: ConsumerRecord, mistake: Mistake | None) -> list[bytes]:
    """The values that are written for a record."""
    value: bytes = record.value
    if mistake is None or record.topic != DAMAGED or record.offset == 0 or record.offset % _EVERY:
        return [value]
    return {"lost": [], "changed": [value.replace(b".99", b".98")], "doubled": [value, value]}[mistake]


def remove_copies(target: Connection) -> None:
    """Deletes the topics of the copies.

    Raises:
        LabError: they are still there after half a minute.
    """
    with Cluster("new", target) as cluster:
        cluster.delete_topics(TOPICS, _DELETED_S)


def _create_topics(connection: Connection) -> None:
    admin = connect_admin(connection)
    try:
        admin.create_topics([NewTopic(name, partitions, 1) for name, partitions in TOPICS.items()])
        admin.wait_for_topics(list(TOPICS))
    finally:
        admin.close()
