"""What the proof asks of a cluster besides its records: topics, offsets, configurations. Only reads, no group."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kafka import IsolationLevel, KafkaAdminClient, KafkaConsumer, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import KafkaError

from lab.access import Region
from lab.connection import Connection

USER = "prover"
_BOOTSTRAP_MS = 10_000
_REQUEST_MS = 15_000

# What goes wrong comes as an exception; the clients' own warnings on standard error only repeat it.
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("kafka").propagate = False


class UnreachableError(Exception):
    """Something that the proof needs does not answer: the message says what, and why."""


@dataclass(frozen=True)
class Config:
    """One configuration of a topic."""

    value: str | None
    override: bool
    """Set for this topic, not inherited."""
    mirrored: bool
    """Of a kind that MM2 synchronises: dynamic, and nothing that only the cluster's file says."""


class Cluster:
    """A region's cluster, seen by a user who may only read."""

    def __init__(self, region: str, connection: Connection) -> None:
        self.region = region
        self.connection = connection
        self._admin: Any = None

    @classmethod
    def of(cls, region: Region) -> Cluster:
        """The region's cluster as the prover sees it."""
        return cls(region.name, region.connection(USER))

    def close(self) -> None:
        """Ends the connection."""
        if self._admin:
            self._admin.close()

    def topics(self) -> dict[str, int]:
        """The topics that may be read, with their number of partitions.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        with self.reaching():
            topics = self._client().describe_topics()
        return {topic["name"]: len(topic["partitions"]) for topic in topics if not topic["error_code"]}

    def identity(self) -> tuple[str, dict[str, str]]:
        """The cluster's id, and that of each topic that may be read: other ones, when they were made anew.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        with self.reaching():
            cluster, topics = self._client().describe_cluster(), self._client().describe_topics()
        return cluster["cluster_id"], {
            topic["name"]: str(topic["topic_id"]) for topic in topics if not topic["error_code"]
        }

    def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each partition's log begins.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each partition's committed records end: its last stable offset.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        return self._offsets(partitions, OffsetSpec.LATEST)

    def offsets_since(self, partitions: Iterable[TopicPartition], since: datetime) -> dict[TopicPartition, int]:
        """Where each partition's first record of that time or later is; its end where there is none.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        wanted = list(partitions)
        ends, found = self.end_offsets(wanted), self._offsets(wanted, int(since.timestamp() * 1000))
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, Config]]:
        """The configurations of each topic by name.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        if not topics:
            return {}
        resources = [ConfigResource("topic", topic) for topic in topics]
        with self.reaching():
            described = self._client().describe_configs(resources, config_filter="all")["topic"]
        return {
            topic: {
                name: Config(
                    entry["value"],
                    override=entry["config_source"] == "DYNAMIC_TOPIC_CONFIG",
                    mirrored=entry["config_source"].startswith("DYNAMIC_")
                    and not (entry["read_only"] or entry["is_sensitive"]),
                )
                for name, entry in entries.items()
            }
            for topic, entries in described.items()
        }

    def last_records(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """The offset of each partition's last committed record, found from the end without reading the partition.

        Transaction markers, aborted records and what compaction removed take offsets too, and are not records.

        Args:
            ranges: first offset and end of each partition.
            timeout_s: bound, in seconds.

        Returns:
            The partitions that have a record.

        Raises:
            UnreachableError: the cluster does not answer, or not within the bound.
        """
        deadline = time.monotonic() + timeout_s
        found: dict[TopicPartition, int] = {}
        ends = {partition: (start, end) for partition, (start, end) in ranges.items() if start < end}
        back = 16
        with self.reaching(), self._consumer() as consumer:
            while ends:
                consumer.assign(list(ends))
                for partition, (start, end) in ends.items():
                    consumer.seek(partition, max(start, end - back))
                unread = set(ends)
                while unread:
                    if time.monotonic() > deadline:
                        raise UnreachableError(
                            f"{self.region}: {_names(unread)} could not be read in {timeout_s:.0f} s"
                        )
                    for partition, records in consumer.poll(timeout_ms=200).items():
                        offsets = [record.offset for record in records if record.offset < ranges[partition][1]]
                        found[partition] = max([found.get(partition, -1), *offsets])
                    unread = {partition for partition in unread if consumer.position(partition) < ends[partition][1]}
                    consumer.pause(*(ends.keys() - unread))
                found = {partition: offset for partition, offset in found.items() if offset >= 0}
                ends = {
                    partition: (start, end)
                    for partition, (start, end) in ends.items()
                    if partition not in found and end - back > start
                }
                back *= 16
        return found

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        consumer = KafkaConsumer(**consumer_settings(self.connection))
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False)

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec | int) -> dict[TopicPartition, int]:
        specs = dict.fromkeys(partitions, spec)
        if not specs:
            return {}
        with self.reaching():
            offsets = self._client().list_partition_offsets(specs, isolation_level=IsolationLevel.READ_COMMITTED)
        return {partition: found.offset for partition, found in offsets.items()}

    def _client(self) -> Any:
        if self._admin is None:
            self._admin = KafkaAdminClient(
                **self.connection.kafka_python(),
                bootstrap_timeout_ms=_BOOTSTRAP_MS,
                request_timeout_ms=_REQUEST_MS,
            )
        return self._admin

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Around whatever asks the cluster something.

        Raises:
            UnreachableError: in place of what the client raises.
        """
        try:
            yield
        except (KafkaError, OSError) as error:
            raise UnreachableError(f"{self.region}: the cluster does not answer ({_reason(error)})") from error


def consumer_settings(connection: Connection) -> dict[str, Any]:
    """The settings of a consumer that reads committed records of partitions it is given, and belongs to no group."""
    return connection.kafka_python() | {
        "bootstrap_timeout_ms": _BOOTSTRAP_MS,
        "request_timeout_ms": _REQUEST_MS,
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "allow_auto_create_topics": False,
    }


def partitions_of(topics: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of the topics, given the number of each."""
    return [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{partition.topic}-{partition.partition}" for partition in partitions))


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
