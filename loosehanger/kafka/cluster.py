"""One class for a cluster: its topics, offsets, groups, settings and records, as one user sees them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from kafka import IsolationLevel, OffsetSpec, TopicPartition
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    NotCoordinatorError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from kafka.structs import OffsetAndMetadata, OffsetAndTimestamp

from loosehanger.acls import AclRule, NeededRight
from loosehanger.errors import LabError, UnreachableError
from loosehanger.headers import ORIGIN, RUN
from loosehanger.kafka.acls import read_rules
from loosehanger.kafka.clients import HURRIED, USUAL, Bounds, connect_admin, connect_consumer
from loosehanger.kafka.connection import Connection, HasClientFiles, connection_for
from loosehanger.kafka.offsets import Positions
from loosehanger.kafka.patches import NO_TIME, alter_topic, cause_of, check_settings, explain, topic_configs
from loosehanger.kafka.reading import named, read_between, read_from_ends, some_of
from loosehanger.kafka.transactions import Held, held_back
from loosehanger.waiting import wait_for

T = TypeVar("T")
_NO_COORDINATOR_YET = (CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError)
_COORDINATOR_S = 15.0

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

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Config:
        """As kafka-python describes it."""
        source = entry["config_source"]
        return cls(
            entry["value"],
            override=source == "DYNAMIC_TOPIC_CONFIG",
            mirrored=source.startswith("DYNAMIC_") and not (entry["read_only"] or entry["is_sensitive"]),
        )


class NamedRegion(HasClientFiles, Protocol):
    """A region of the lab's record."""

    @property
    def name(self) -> str:
        """Its name."""


class Cluster:
    """A cluster, as one user sees it. For one thread.

    It connects with the first request, and again with the next one after ``close``. Every method raises
    ``UnreachableError`` where the cluster does not answer, or refuses the user.

    Args:
        region: its name, for messages.
        connection: the user's way into it.
        bounds: how long to wait for an answer. After one that has not come in time the next requests wait no longer
            than ``HURRIED``, until one is answered.
        options: further settings of the admin client.
    """

    def __init__(self, region: str, connection: Connection, bounds: Bounds = USUAL, **options: Any) -> None:
        self.region = region
        self.connection = connection
        self._bounds = self._opened = bounds
        """How long to wait, and the bounds that the open client has."""
        self._options = options
        self._admin: Any = None
        self._hurried = False
        """Whether the last request timed out, or another client's."""

    @classmethod
    def of(cls, region: NamedRegion, user: str, bounds: Bounds = USUAL) -> Cluster:
        """The region's cluster as a user of the lab sees it.

        Raises:
            WrongUseError: the region has no such user, or its properties cannot be used.
        """
        return cls(region.name, connection_for(region, user), bounds)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether it has a client."""
        return self._admin is not None

    def connect(self) -> None:
        """Connects ahead of the first request."""
        self.ask(lambda _: None)

    def close(self) -> None:
        """Ends the connection."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def hurry(self) -> None:
        """Gives the next request less time, because another client has waited for this cluster already."""
        self._hurried = True

    def ask(self, request: Callable[[Any], T]) -> T:
        """Sends requests that this class has no method for.

        Args:
            request: takes the ``KafkaAdminClient``.
        """
        with self.reaching():
            return request(self._client())

    def consumer(self, **options: Any) -> Any:
        """Opens a consumer of committed records, as ``connect_consumer`` does; close it."""
        return connect_consumer(self.connection, self._bounds, **options)

    def id(self) -> str:
        """The cluster's id, which changes when it is recreated. Empty where a managed service hides it."""
        return str(self.ask(lambda admin: admin.describe_cluster())["cluster_id"] or "")

    def described(self) -> list[dict[str, Any]]:
        """The topics that the user may describe, as kafka-python gives them."""
        return [topic for topic in self.ask(lambda admin: admin.describe_topics()) if not topic["error_code"]]

    def topics(self) -> dict[str, int]:
        """The topics that the user may describe, with their number of partitions."""
        return {topic["name"]: len(topic["partitions"]) for topic in self.described()}

    def inventory(self) -> dict[str, tuple[str, int]]:
        """The id and number of partitions of each topic that may be described; a recreated topic has another id."""
        return {topic["name"]: (str(topic["topic_id"]), len(topic["partitions"])) for topic in self.described()}

    def hidden(self, topics: Collection[str]) -> set[str]:
        """Those of the topics that may exist or not, because the user lacks Describe on them."""
        described = self.ask(lambda admin: admin.describe_topics(sorted(topics))) if topics else ()
        return {topic["name"] for topic in described if topic["error_code"] == TopicAuthorizationFailedError.errno}

    def delete_topics(self, names: Iterable[str], bound: float) -> None:
        """Deletes those of these topics that exist, and waits until they are gone.

        Raises:
            LabError: they are still there after ``bound`` seconds.
        """
        wanted = set(names)

        def remaining() -> str | None:
            return ", ".join(sorted(wanted & set(self.topics()))) or None

        if present := wanted & set(self.topics()):
            self.ask(lambda admin: admin.delete_topics(sorted(present)))
            wait_for(remaining, bound, f"{self.region}: deleting topics")

    def start_offsets(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The log start offset of each partition."""
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The last stable offset of each partition."""
        return self._offsets(partitions, OffsetSpec.LATEST)

    def written_offsets(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The high watermark of each partition, which counts records of open transactions."""
        return self._offsets(partitions, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)

    def ends(self, topics: Iterable[str]) -> Positions:
        """The last stable offset of each partition of those topics that exist."""
        there = self.topics()
        return self.end_offsets(partitions_of({topic: there[topic] for topic in topics if topic in there}))

    def held_back(self, ends: Mapping[TopicPartition, int]) -> list[Held]:
        """The partitions whose last stable offset is before these offsets, and the transactions that hold them."""
        return self.ask(lambda admin: held_back(admin, ends, self.connection.username, ends))

    def offsets_since(self, partitions: Iterable[TopicPartition], since: datetime) -> Positions:
        """The offset of each partition's first record of that time or later; its end offset if it has none."""
        return self.offsets_from(partitions, int(since.timestamp() * 1000))

    def offsets_from(self, partitions: Iterable[TopicPartition], since_ms: int) -> Positions:
        """As ``offsets_since``, from a time in epoch milliseconds."""
        wanted = list(partitions)
        # Kafka reserves negative times for a partition's end and beginning.
        ends, found = self.end_offsets(wanted), self._offsets(wanted, max(since_ms, 0))
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> Positions:
        """The offset of each partition's first record of its time (epoch ms) or later; -1 if it has no such record."""
        found = self._listed({partition: max(since_ms, 0) for partition, since_ms in times.items()})
        return {partition: place.offset for partition, place in found.items()}

    def first_since(self, partitions: Iterable[TopicPartition], since_ms: int) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and timestamp of each partition's first record of that time (epoch ms) or later, if it has one."""
        found = self._listed(dict.fromkeys(partitions, max(since_ms, 0)))
        return {place: (first.offset, first.timestamp) for place, first in found.items() if first.offset >= 0}

    def described_configs(
        self, topics: Collection[str], which: str = "all"
    ) -> tuple[dict[str, dict[str, dict[str, Any]]], dict[str, KafkaError]]:
        """The settings of topics as ``topic_configs`` gives them, and Kafka's error for each of the others."""
        return self.ask(lambda admin: topic_configs(admin, topics, which))

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, Config]]:
        """The configurations of each topic by name, without the topics where the right DescribeConfigs is missing."""
        described, errors = self.described_configs(topics)
        for topic, error in errors.items():
            if isinstance(error, UnknownTopicOrPartitionError):
                described[topic] = {}  # Deleted in the meantime.
            elif not isinstance(error, TopicAuthorizationFailedError):
                raise UnreachableError(f"{self.region}: the settings of {topic} cannot be read: {error}") from error
        return {
            topic: {name: Config.of(entry) for name, entry in entries.items()} for topic, entries in described.items()
        }

    def alter(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Changes settings of a topic, and leaves its others as they are; None gives a setting its default again.

        Raises:
            WrongUseError: a topic has no such setting, or Kafka refuses the change.
        """
        where = f"{self.region}: {topic}"
        with self.reaching():
            check_settings(self._client(), topic, list(changes), where)
            alter_topic(self._client(), topic, changes, where)

    def log_dirs(self) -> list[dict[str, Any]]:
        """The brokers' folders, as kafka-python describes them, each with its ``broker``."""
        return [
            {**folder, "broker": broker.get("broker", broker.get("broker_id"))}
            for broker in self.ask(lambda admin: admin.describe_log_dirs())
            for folder in (broker.get("log_dirs") or broker.get("results") or ())
        ]

    def groups(self) -> list[str]:
        """The ids of its consumer groups; the workers of Connect have groups, too, and are not consumers."""
        listed = self.ask(lambda admin: admin.list_groups())
        # Without a protocol is a group that has only committed, and never had a member.
        return sorted({str(group["group_id"]) for group in listed if group["protocol_type"] in ("consumer", "")})

    def members(self, group: str) -> int:
        """The number of a group's members; 0 for a group that does not exist."""
        with self.reaching(), suppress(GroupIdNotFoundError):
            return len(self._client().describe_groups([group])[group]["members"])
        return 0

    def committed(self, group: str, topics: Iterable[str]) -> Positions:
        """The offsets that a group has committed in these topics; none for a group that does not exist."""
        found = self.ask(partial(_offsets_of, group))
        wanted = set(topics)
        return {part: kept.offset for part, kept in found.items() if part.topic in wanted and kept.offset >= 0}

    def set_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets a group's committed offsets; it must have no member.

        Raises:
            LabError: the cluster refuses.
        """
        if not (kept := {part: OffsetAndMetadata(offset, "", -1) for part, offset in offsets.items()}):
            return
        for part, error in self.ask(lambda admin: admin.alter_group_offsets(group, kept)).items():
            if error is not NoError:
                raise LabError(f"{self.region}: {group}, {part.topic}-{part.partition}: {error.__name__}")

    def rules(self) -> list[AclRule]:
        """Every rule of the cluster's authorizer."""
        return self.ask(read_rules)

    def writers(self, topics: Iterable[str]) -> list[str]:
        """The users that have the right to write any of these topics, in alphabetical order."""
        needed = [NeededRight("TOPIC", topic, "WRITE") for topic in topics]
        users = {rule: rule.principal.removeprefix("User:") for rule in self.rules() if rule.allows}
        return sorted({user for rule, user in users.items() if any(rule.covers(user, right) for right in needed)})

    def transactional(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those partitions with a transactional producer, as far as the brokers remember.

        Brokers forget a producer that has been silent for a day (``producer.id.expiration.ms``), and brokers before
        Kafka 2.8 do not answer, which raises nothing here.
        """
        try:
            found = self.ask(lambda admin: admin.describe_producers(partitions)) if partitions else {}
        except UnreachableError:
            return set()
        return {
            partition
            for partition, state in found.items()
            if any(
                producer.coordinator_epoch >= 0 or producer.current_transaction_start_offset >= 0
                for producer in state.active_producers
            )
        }

    def records(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Iterator[Any]:
        """The committed records between offsets; of a partition without a start, from its beginning."""
        left = {part: end for part, end in ends.items() if starts.get(part, 0) < end}
        if not left:
            return
        with self.reaching():
            consumer = self.consumer()
            try:
                yield from read_between(consumer, starts, left, self.region)
            finally:
                consumer.close()

    def records_from(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
        """Counts the committed records between offsets: transaction markers take offsets, too, and are not records."""
        return sum(1 for _ in self.records(starts, ends))

    def written(self, starts: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Counts the records from these offsets on, by the producer that their headers name."""
        found: Counter[str] = Counter()
        for record in self.records(starts, self.ends({part.topic for part in starts})):
            headers = dict(record.headers)
            run, origin = ((headers.get(name) or b"").decode(errors="replace") for name in (RUN, ORIGIN))
            who = f"run {run} of a producer in {origin}" if run else "a producer whose records have no run"
            found[f"{record.topic} by {who}"] += 1
        return dict(found)

    def last_records(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], timeout_s: float
    ) -> tuple[Positions, dict[TopicPartition, str]]:
        """Finds the offset of each partition's last committed record, reading backwards from its end.

        Transaction markers, aborted records and compacted records take offsets, too, and are not counted as records.

        Args:
            ranges: first offset and end of each partition.
            timeout_s: bound, in seconds. A cluster that has not given a single record within it counts as silent.

        Returns:
            The partitions that have a record; and the inconclusive ones, with the reason.
        """
        deadline = time.monotonic() + timeout_s
        wanted = {partition: (start, end) for partition, (start, end) in ranges.items() if start < end}
        found: Positions = {}

        def take(place: TopicPartition, batch: Collection[Any]) -> None:
            found[place] = max([found.get(place, -1), *(one.offset for one in batch if one.offset < wanted[place][1])])

        with self.reaching(), self.consumer() as consumer:
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

    def lacks(self, right: str, topic: str) -> str:
        """Names the operation that the user is not authorized for."""
        return f"user '{self.connection.username or 'ANONYMOUS'}' lacks {right} on topic {topic} in {self.region}"

    def explained(self, partition: TopicPartition, reason: str) -> str:
        """Why a partition cannot be read: the reason of ``read_from_ends``, or the missing ACL."""
        refused = reason.startswith(TopicAuthorizationFailedError.__name__)
        return self.lacks("Read", partition.topic) if refused else reason

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turns what clients raise into an ``UnreachableError``."""
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

    def _client(self) -> Any:
        bounds = min(self._bounds, HURRIED) if self._hurried else self._bounds
        if self._opened != bounds:
            self.close()
        if self._admin is None:
            self._admin, self._opened = connect_admin(self.connection, bounds, **self._options), bounds
        return self._admin

    def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int,
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> Positions:
        return {place: found.offset for place, found in self._listed(dict.fromkeys(partitions, spec), level).items()}

    def _listed(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> Mapping[TopicPartition, Any]:
        return self.ask(lambda admin: _listed(admin, specs, level)) if specs else {}


def _listed(
    admin: Any, specs: Mapping[TopicPartition, OffsetSpec | int], level: IsolationLevel
) -> Mapping[TopicPartition, Any]:
    """The offsets that these times lead to; -1 in a topic whose records have no times."""
    try:
        found: Mapping[TopicPartition, Any] = admin.list_partition_offsets(specs, isolation_level=level)
    except UnsupportedForMessageFormatError:
        # A topic with a message.format.version before 0.10: the error names it for all that were asked for.
        by_topic: dict[str, dict[TopicPartition, OffsetSpec | int]] = {}
        for place, spec in specs.items():
            by_topic.setdefault(place.topic, {})[place] = spec
        if len(by_topic) == 1:
            return dict.fromkeys(specs, OffsetAndTimestamp(-1, NO_TIME, None))
        return {place: one for topic in by_topic.values() for place, one in _listed(admin, topic, level).items()}
    return found


def number_of(configs: Mapping[str, Config], name: str) -> int:
    """A topic's setting; -1, which means no bound, if it is unknown."""
    value = configs[name].value if name in configs else None
    return int(value) if value is not None else -1


def partitions_of(topics: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of the topics, given the number of each."""
    return [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]


def _offsets_of(group: str, admin: Any) -> dict[TopicPartition, Any]:
    """All offsets of a group. A cluster that is first asked for a group has no coordinator for some seconds.

    Raises:
        UnreachableError: it gets none.
    """
    found: dict[TopicPartition, Any] = {}

    def missing() -> str | None:
        try:
            found.update(admin.list_group_offsets({group: None})[group])
        except _NO_COORDINATOR_YET as error:
            return type(error).__name__
        return None

    try:
        wait_for(missing, _COORDINATOR_S, f"the coordinator of group '{group}'")
    except LabError as error:
        raise UnreachableError(str(error)) from error
    return found
