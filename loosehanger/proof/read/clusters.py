"""Topics, offsets and configurations of a cluster, for the proof. It only reads, and joins no group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kafka import IsolationLevel, OffsetSpec, TopicPartition
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from loosehanger.errors import UnreachableError
from loosehanger.kafka.clients import HURRIED, USUAL, connect_admin, connect_consumer
from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.kafka.patches import UnreadableError, cause_of, explain, topic_configs
from loosehanger.kafka.transactions import Held, held_back
from loosehanger.lab.record import Region

USER = "prover"
_FIRST_STEP = 16
"""How many offsets before a partition's end are read first to find its last record."""
_STEPS_GROW = 16
_AT_ONCE = 70
"""How many partitions one consumer reads at a time: its work for each of them delays all."""
_MOST_NAMES = 10

# Failures arrive as exceptions; the clients' own warnings on standard error only repeat them.
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("kafka").propagate = False


@dataclass(frozen=True)
class Config:
    """One configuration of a topic."""

    value: str | None
    override: bool
    """Set for this topic, not inherited."""
    mirrored: bool
    """Whether MM2 synchronises it: it is dynamic, and not from the broker's properties file."""


class Cluster:
    """A region's cluster, seen by a user who may only read."""

    def __init__(self, region: str, connection: Connection) -> None:
        self.region = region
        self.connection = connection
        self._admin: Any = None
        self._bounds = USUAL
        self._hurried = False
        """Whether the last request timed out, or another client's: the next one gets less time."""

    @classmethod
    def of(cls, region: Region) -> Cluster:
        """The region's cluster as the prover sees it."""
        return cls(region.name, connection_for(region, USER))

    def close(self) -> None:
        """Ends the connection."""
        if self._admin:
            self._admin.close()

    def hurry(self) -> None:
        """Gives the next request less time, because another client has waited for this cluster already."""
        self._hurried = True

    def topics(self) -> dict[str, int]:
        """Lists the topics that the user may describe, with their number of partitions.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        with self.reaching():
            topics = self._client().describe_topics()
        return {topic["name"]: len(topic["partitions"]) for topic in topics if not topic["error_code"]}

    def hidden(self, topics: Collection[str]) -> set[str]:
        """Those of the topics that may exist or not, because the user lacks Describe on them.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        if not topics:
            return set()
        with self.reaching():
            described = self._client().describe_topics(sorted(topics))
        return {topic["name"] for topic in described if topic["error_code"] == TopicAuthorizationFailedError.errno}

    def id(self) -> str:
        """The cluster's id, which changes when it is recreated. Empty where a managed service hides it.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        with self.reaching():
            return str(self._client().describe_cluster()["cluster_id"] or "")

    def inventory(self) -> dict[str, tuple[str, int]]:
        """The id and number of partitions of each topic that may be described; a recreated topic has another id.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        with self.reaching():
            topics = self._client().describe_topics()
        return {
            topic["name"]: (str(topic["topic_id"]), len(topic["partitions"]))
            for topic in topics
            if not topic["error_code"]
        }

    def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The last stable offset of each partition.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        return self._offsets(partitions, OffsetSpec.LATEST)

    def written_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition, which counts records of open transactions.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        return self._offsets(partitions, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)

    def held_back(self, ends: Mapping[TopicPartition, int]) -> list[Held]:
        """The partitions whose last stable offset is before these offsets, and the transactions that hold them.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        with self.reaching():
            return held_back(self._client(), ends, self.connection.username, ends)

    def offsets_since(self, partitions: Iterable[TopicPartition], since: datetime) -> dict[TopicPartition, int]:
        """The offset of each partition's first record of that time or later; its end offset if it has no such record.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        return self.offsets_from(partitions, int(since.timestamp() * 1000))

    def offsets_from(self, partitions: Iterable[TopicPartition], since_ms: int) -> dict[TopicPartition, int]:
        """As ``offsets_since``, from a time in epoch milliseconds.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        wanted = list(partitions)
        # Kafka reserves negative times for a partition's end and beginning.
        since_ms = max(since_ms, 0)
        ends, found = self.end_offsets(wanted), self._offsets(wanted, since_ms)
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    def first_since(self, partitions: Iterable[TopicPartition], since_ms: int) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and timestamp of each partition's first record of that time (epoch ms) or later, if it has one.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        specs = dict.fromkeys(partitions, max(since_ms, 0))
        if not specs:
            return {}
        with self.reaching():
            found = self._client().list_partition_offsets(specs, isolation_level=IsolationLevel.READ_COMMITTED)
        return {place: (first.offset, first.timestamp) for place, first in found.items() if first.offset >= 0}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of each partition's first record of its time (epoch ms) or later; -1 if it has no such record.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        specs = {partition: max(since_ms, 0) for partition, since_ms in times.items()}
        if not specs:
            return {}
        with self.reaching():
            found = self._client().list_partition_offsets(specs, isolation_level=IsolationLevel.READ_COMMITTED)
        return {partition: place.offset for partition, place in found.items()}

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, Config]]:
        """The configurations of each topic by name, without the topics where the right DescribeConfigs is missing.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        with self.reaching():
            described, errors = topic_configs(self._client(), topics)
        for topic, error in errors.items():
            if isinstance(error, UnknownTopicOrPartitionError):
                described[topic] = {}  # Deleted in the meantime.
            elif not isinstance(error, TopicAuthorizationFailedError):
                raise UnreachableError(f"{self.region}: the settings of {topic} cannot be read: {error}") from error
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

    def lacks(self, right: str, topic: str) -> str:
        """Names the operation that the user is not authorized for."""
        return f"user '{self.connection.username or 'ANONYMOUS'}' lacks {right} on topic {topic} in {self.region}"

    def explained(self, partition: TopicPartition, reason: str) -> str:
        """Why a partition cannot be read: the reason of ``read_from_ends``, or the missing ACL."""
        refused = reason.startswith(TopicAuthorizationFailedError.__name__)
        return self.lacks("Read", partition.topic) if refused else reason

    def transactional(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those partitions with a transactional producer, as far as the brokers remember.

        Brokers forget a producer that has been silent for a day (``producer.id.expiration.ms``), and brokers before
        Kafka 2.8 do not answer.
        """
        if not partitions:
            return set()
        try:
            found = self._client().describe_producers(partitions)
        except (KafkaError, OSError):
            return set()
        return {
            partition
            for partition, state in found.items()
            if any(
                producer.coordinator_epoch >= 0 or producer.current_transaction_start_offset >= 0
                for producer in state.active_producers
            )
        }

    def last_records(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], timeout_s: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Finds the offset of each partition's last committed record, reading backwards from its end.

        Transaction markers, aborted records and compacted records take offsets, too, and are not counted as records.

        Args:
            ranges: first offset and end of each partition.
            timeout_s: bound, in seconds.

        Returns:
            The partitions that have a record; and the inconclusive ones, with the reason.

        Raises:
            UnreachableError: the cluster does not answer, or has not given a single record within the bound.
        """
        deadline = time.monotonic() + timeout_s
        wanted = {partition: (start, end) for partition, (start, end) in ranges.items() if start < end}
        found: dict[TopicPartition, int] = {}

        def take(place: TopicPartition, batch: Collection[Any]) -> None:
            found[place] = max([found.get(place, -1), *(one.offset for one in batch if one.offset < wanted[place][1])])

        with self.reaching(), self._consumer() as consumer:
            unread = read_from_ends(
                consumer, wanted, deadline, take, lambda place, whole: whole and found.get(place, -1) >= 0
            )
        inconclusive = {
            partition: self.explained(partition, reason) or f"not within {timeout_s:.0f} s"
            for partition, reason in unread.items()
        }
        if wanted and inconclusive.keys() == wanted.keys() and not any(unread.values()):
            raise UnreachableError(f"{self.region}: {named(inconclusive)} could not be read in {timeout_s:.0f} s")
        return {place: last for place, last in found.items() if last >= 0 and place not in unread}, inconclusive

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        consumer = connect_consumer(self.connection)
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False)

    def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int,
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        specs = dict.fromkeys(partitions, spec)
        if not specs:
            return {}
        with self.reaching():
            offsets = self._client().list_partition_offsets(specs, isolation_level=level)
        return {partition: found.offset for partition, found in offsets.items()}

    def _client(self) -> Any:
        bounds = HURRIED if self._hurried else USUAL
        if self._admin and self._bounds != bounds:
            admin, self._admin = self._admin, None
            admin.close()
        if self._admin is None:
            self._admin, self._bounds = connect_admin(self.connection, bounds), bounds
        return self._admin

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turns what the client raises into an ``UnreachableError``.

        Raises:
            UnreachableError: the cluster does not answer, or refuses.
        """
        try:
            yield
            self._hurried = False
        except TopicAuthorizationFailedError as error:
            topics = some_of(sorted(map(str, error.args[0]))) if error.args and error.args[0] else "a topic"
            raise UnreachableError(f"{self.region}: {self.lacks('Read', topics)}") from error
        except (KafkaError, OSError) as error:
            reason = explain(cause_of(error, self._admin), self.connection.username)
            # Not after a closed connection: a broker that restarts is back in a moment.
            self._hurried = self._hurried or isinstance(error, (KafkaTimeoutError, RequestTimedOutError, TimeoutError))
            raise UnreachableError(f"{self.region}: the cluster {reason}") from error


def number_of(configs: Mapping[str, Config], name: str) -> int:
    """A topic's setting; -1, which means no bound, if it is unknown."""
    value = configs[name].value if name in configs else None
    return int(value) if value is not None else -1


def partitions_of(topics: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of the topics, given the number of each."""
    return [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]


def read_from_ends(
    consumer: Any,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    deadline: float,
    take: Callable[[TopicPartition, Collection[Any]], None],
    enough: Callable[[TopicPartition, bool], bool],
    first_step: int = _FIRST_STEP,
) -> dict[TopicPartition, str]:
    """Reads partitions from their ends in ever larger steps, until enough was read of each, or all of it.

    Args:
        consumer: the consumer; its assignment is changed.
        ranges: first offset and end of each partition.
        deadline: of the monotonic clock.
        take: takes the records as they come; of a batch, the last ones may be beyond the end.
        enough: whether enough was read of a partition. The second argument says whether a step is complete.
        first_step: how many offsets from the end are read at first.

    Returns:
        The inconclusive partitions, with the reason; an empty one if the time was up.
    """
    unread: dict[TopicPartition, str] = {}
    places = list(ranges)
    for first in range(0, len(places), _AT_ONCE):
        chunk = {place: ranges[place] for place in places[first : first + _AT_ONCE]}
        unread |= _read_chunk(consumer, chunk, deadline, take, enough, first_step)
    return unread


def _read_chunk(
    consumer: Any,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    deadline: float,
    take: Callable[[TopicPartition, Collection[Any]], None],
    enough: Callable[[TopicPartition, bool], bool],
    first_step: int,
) -> dict[TopicPartition, str]:
    unread: dict[TopicPartition, str] = {}
    # What is being read of each partition.
    reading = {place: (max(start, end - first_step), end) for place, (start, end) in ranges.items() if start < end}
    try:
        consumer.assign(list(reading))
        # One that was assigned before and paused stays so.
        consumer.resume(*reading)
        for place, (begin, _) in reading.items():
            consumer.seek(place, begin)
        while reading and time.monotonic() < deadline:
            try:
                for place, batch in consumer.poll(timeout_ms=200).items():
                    take(place, batch)
            except UnreadableError as error:
                # The others of the consumer can be read as before.
                unread[error.place] = str(error)
                reading.pop(error.place, None)
                consumer.pause(error.place)
            for place, (begin, until) in list(reading.items()):
                position = consumer.position(place, timeout_ms=_left_ms(deadline))
                whole = position is not None and position >= until
                start, end = ranges[place]
                if enough(place, whole) or (whole and begin <= start):
                    del reading[place]
                    consumer.pause(place)
                elif whole:
                    reading[place] = (max(start, end - (end - begin) * _STEPS_GROW), begin)
                    consumer.seek(place, reading[place][0])
    except (KafkaError, ValueError) as error:
        if len(ranges) == 1:
            return {place: f"{type(error).__name__}: {error}" for place in ranges}
        # The client does not say which of them it cannot read.
        for place, span in ranges.items():
            unread |= _read_chunk(consumer, {place: span}, deadline, take, enough, first_step)
        return unread
    return unread | dict.fromkeys(reading, "")


def _left_ms(deadline: float) -> int:
    return max(1, min(round(USUAL.answer_s * 1000), round((deadline - time.monotonic()) * 1000)))


def named(partitions: Iterable[TopicPartition]) -> str:
    """Names partitions in a message: ten of them, and how many more."""
    return some_of(f"{place.topic}-{place.partition}" for place in sorted(partitions))


def some_of(names: Iterable[str]) -> str:
    """The first ten names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMES:,} more" if len(listed) > _MOST_NAMES else ""
    return ", ".join(listed[:_MOST_NAMES]) + more
