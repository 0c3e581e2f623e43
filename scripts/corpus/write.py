"""Writes the cases of the corpus to two clusters: a topic on each side for each case, the copy with its damage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka.connection import Connection
from scripts.corpus.cases import Case, CaseRecord

_PATIENCE_S = 60
_TRANSACTION_MS = 900_000
"""The longest that a broker allows, so that a transaction that a case leaves open stays open."""
_LARGEST = 2_000_000
_JUNK = b"former"


class SideWriter:
    """Writes one side of the cases.

    Args:
        connection: of a user who may create topics and write.
    """

    def __init__(self, connection: Connection) -> None:
        self._settings = {**connection.kafka_python(), "max_request_size": _LARGEST}
        self._librdkafka = {
            "bootstrap.servers": ",".join(connection.bootstrap_servers),
            "security.protocol": connection.security_protocol,
            "sasl.mechanisms": connection.sasl_mechanism,
            "sasl.username": connection.username,
            "sasl.password": connection.password,
        }
        self._open: list[KafkaProducer] = []
        self._admin = KafkaAdminClient(**connection.kafka_python())

    def close(self) -> None:
        """Closes every client; transactions that cases leave open stay open."""
        for producer in self._open:
            producer.close(timeout=0)
        self._admin.close()

    def create(self, topics: Mapping[str, Mapping[str, Any]]) -> None:
        """Creates topics.

        Args:
            topics: the partitions and settings of each, by its name.
        """
        wanted = {
            name: {
                "num_partitions": side.get("partitions", 1),
                "replication_factor": 1,
                "configs": {key: str(value) for key, value in side.get("settings", {}).items()},
            }
            for name, side in topics.items()
        }
        self._admin.create_topics(wanted)
        self._admin.wait_for_topics(list(wanted))

    def send(self, topic: str, records: Sequence[CaseRecord], compression: str = "", batch: int = 0) -> None:
        """Sends records without a transaction."""
        codec = {"compression_type": compression} if compression else {}
        if any(map(_is_refused, records)):
            # Only these: librdkafka writes the present time in place of the timestamp 0.
            self._send_by_librdkafka(topic, records)
            return
        with KafkaProducer(**self._settings, **codec) as producer:
            size = batch or len(records) or 1
            for start in range(0, len(records), size):
                _send(producer, topic, records[start : start + size])

    def _send_by_librdkafka(self, topic: str, records: Sequence[CaseRecord]) -> None:
        problems: list[str] = []
        producer = Producer({**self._librdkafka, "message.max.bytes": _LARGEST})
        for one in records:
            producer.produce(
                topic,
                one.value,
                one.key,
                one.partition,
                timestamp=one.timestamp,
                headers=list(one.headers),
                on_delivery=lambda error, _: problems.append(str(error)) if error else None,
            )
        if producer.flush(_PATIENCE_S) or problems:
            raise LabError(f"{topic}: not every record was written: {', '.join(problems[:1]) or 'no answer'}")

    def transact(self, topic: str, records: Sequence[CaseRecord], size: int) -> None:
        """Sends records in transactions of ``size`` records each."""
        with self._transactional(topic) as producer:
            for start in range(0, len(records), size):
                producer.begin_transaction()
                _send(producer, topic, records[start : start + size])
                producer.commit_transaction()

    def abort(self, topic: str, records: Sequence[CaseRecord]) -> None:
        """Sends records in a transaction and aborts it."""
        with self._transactional(f"{topic}-aborted") as producer:
            producer.begin_transaction()
            _send(producer, topic, records)
            producer.abort_transaction()

    def leave_open(self, topic: str, records: Sequence[CaseRecord]) -> None:
        """Sends records in a transaction that stays open."""
        producer = self._transactional(f"{topic}-open")
        self._open.append(producer)
        producer.begin_transaction()
        _send(producer, topic, records)

    def delete(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Deletes the records before these offsets, by partition."""
        if offsets:
            self._admin.delete_records({TopicPartition(topic, part): offset for part, offset in offsets.items()})

    def _transactional(self, name: str) -> KafkaProducer:
        settings = {**self._settings, "transactional_id": name, "transaction_timeout_ms": _TRANSACTION_MS}
        producer = KafkaProducer(**settings)
        producer.init_transactions()
        return producer


def _is_refused(record: CaseRecord) -> bool:
    """Whether kafka-python refuses a record that the protocol allows."""
    return record.key is None is record.value or any(value is None for _, value in record.headers)


def _send(producer: KafkaProducer, topic: str, records: Iterable[CaseRecord]) -> None:
    sent = [
        producer.send(
            topic,
            record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp_ms=record.timestamp,
        )
        for record in records
    ]
    producer.flush()
    for one in sent:
        one.get(_PATIENCE_S)


def write(cases: Sequence[Case], source: Connection, target: Connection, base_ms: int) -> list[SideWriter]:
    """Writes every case to both clusters.

    Args:
        cases: the cases.
        source: an administrator's connection to an empty cluster.
        target: the same for the other cluster.
        base_ms: the time of each case's first record.

    Returns:
        The writers; they hold open the transactions that cases leave open.
    """
    here, there = SideWriter(source), SideWriter(target)
    here.create({case.topic: case.source for case in cases if not case.source.get("absent")})
    there.create(
        {
            case.copied_topic: {"partitions": case.copied_partitions, "settings": _settings(case)}
            for case in cases
            if not case.copy.get("absent")
        }
    )
    for case in cases:
        _write_source(here, case, case.written(base_ms))
        _write_target(there, case, case.copied(base_ms))
    for case in cases:
        here.delete(case.topic, case.source.get("delete_before", {}))
        there.delete(case.copied_topic, case.copy.get("delete_before", {}))
    return [here, there]


def _settings(case: Case) -> dict[str, Any]:
    return {**case.source.get("settings", {}), **case.copy.get("settings", {})}


def _write_source(side: SideWriter, case: Case, records: Sequence[CaseRecord]) -> None:
    how, topic = case.source, case.topic
    if how.get("absent"):
        return
    if "transaction" in how:
        side.transact(topic, records, how["transaction"])
    elif "aborted" in how:
        first, last = min(how["aborted"]), max(how["aborted"])
        side.send(topic, records[:first])
        side.abort(topic, records[first : last + 1])
        side.send(topic, records[last + 1 :])
    elif "open_at" in how:
        side.send(topic, records[: how["open_at"]])
        side.leave_open(topic, records[how["open_at"] : how["open_at"] + 1])
        side.send(topic, records[how["open_at"] + 1 :])
    else:
        side.send(topic, records, how.get("compression", ""))


def _write_target(side: SideWriter, case: Case, records: Sequence[CaseRecord]) -> None:
    how, topic = case.copy, case.copied_topic
    if how.get("absent"):
        return
    if former := how.get("former"):
        junk = CaseRecord(-1, 0, records[0].timestamp, _JUNK, _JUNK)
        side.send(topic, [junk] * former)
        side.delete(topic, {0: former})
    if "transaction" in how:
        side.transact(topic, records, how["transaction"])
    elif "aborted_first" in how:
        numbers = set(how["aborted_first"])
        before = [record for record in records if record.number < min(numbers)]
        side.send(topic, before)
        side.abort(topic, [record for record in records if record.number in numbers])
        side.send(topic, records[len(before) :])
    elif "open_last" in how:
        numbers = set(how["open_last"])
        side.send(topic, [record for record in records if record.number not in numbers])
        side.leave_open(topic, [record for record in records if record.number in numbers])
    else:
        side.send(topic, records, how.get("compression", ""), how.get("batch", 0))


def close(writers: Iterable[SideWriter]) -> None:
    """Closes what ``write`` returned."""
    for writer in writers:
        with closing(writer):
            pass
