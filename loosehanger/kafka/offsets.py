"""Reads and sets offsets: of partitions and groups, as a user who may see the whole cluster, and of mirrors."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kafka import IsolationLevel, OffsetSpec, TopicPartition
from kafka.errors import GroupIdNotFoundError, KafkaError, NoError
from kafka.structs import OffsetAndMetadata

from loosehanger.acls import AclRule, NeededRight
from loosehanger.errors import LabError, UnreachableError
from loosehanger.headers import ORIGIN, RUN
from loosehanger.kafka.acls import read_rules
from loosehanger.kafka.clients import HURRIED, connect_admin, connect_consumer
from loosehanger.kafka.connect import ConnectClient, parts
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import explain
from loosehanger.waiting import wait_for

_SILENT_S = 15.0
"""Seconds without a record after which reading fails, where records remain."""
Positions = dict[TopicPartition, int]


class ClusterReader:
    """A cluster's topics, groups and offsets. Close it."""

    def __init__(self, region: str, connection: Connection) -> None:
        self._region = region
        self._connection = connection
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        with self._reaching():
            self._client: Any = connect_admin(connection, HURRIED)

    def __enter__(self) -> ClusterReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def cluster_id(self) -> str:
        """The cluster's id."""
        with self._reaching():
            return str(self._client.describe_cluster()["cluster_id"])

    def topics(self) -> dict[str, int]:
        """Every topic, with its number of partitions."""
        with self._reaching():
            return {topic["name"]: len(topic["partitions"]) for topic in self._client.describe_topics()}

    def ends(self, topics: Iterable[str]) -> Positions:
        """The last stable offset of each partition of these topics."""
        counts = self.topics()
        specs = {TopicPartition(t, p): OffsetSpec.LATEST for t in topics if t in counts for p in range(counts[t])}
        with self._reaching():
            found = self._client.list_partition_offsets(specs, isolation_level=IsolationLevel.READ_COMMITTED)
        return {partition: offset.offset for partition, offset in found.items()}

    def groups(self) -> list[str]:
        """The ids of its consumer groups; the workers of Connect have groups, too, and are no consumers."""
        with self._reaching():
            found = self._client.list_groups()
        # Without a protocol is a group that has only committed, and never had a member.
        return sorted({str(group["group_id"]) for group in found if group["protocol_type"] in ("consumer", "")})

    def committed(self, group: str, topics: Iterable[str]) -> Positions:
        """The offsets that a group has committed in these topics; none for a group that does not exist."""
        with self._reaching():
            found = self._client.list_group_offsets({group: None})[group]
        wanted = set(topics)
        return {part: kept.offset for part, kept in found.items() if part.topic in wanted and kept.offset >= 0}

    def set_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets a group's committed offsets; it must have no member.

        Raises:
            LabError: the cluster does not answer, or refuses.
        """
        kept = {part: OffsetAndMetadata(offset, "", -1) for part, offset in offsets.items()}
        with self._reaching():
            for part, error in (self._client.alter_group_offsets(group, kept) if kept else {}).items():
                if error is not NoError:
                    raise LabError(f"{self._region}: {group}, {part.topic}-{part.partition}: {error.__name__}")

    def delete_topics(self, names: Iterable[str], bound: float) -> None:
        """Deletes those of these topics that exist, and waits until they are gone.

        Raises:
            LabError: the cluster does not answer, or they are still there after ``bound`` seconds.
        """
        wanted = set(names)
        present = wanted & set(self.topics())
        if not present:
            return
        with self._reaching():
            self._client.delete_topics(sorted(present))
        wait_for(
            lambda: ", ".join(sorted(wanted & set(self.topics()))) or None, bound, f"{self._region}: deleting topics"
        )

    def members(self, group: str) -> int:
        """The number of a group's members; 0 for a group that does not exist."""
        with self._reaching(), suppress(GroupIdNotFoundError):
            return len(self._client.describe_groups([group])[group]["members"])
        return 0

    def records_from(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
        """Counts the committed records between offsets: transaction markers take offsets, too, and are not records."""
        return sum(1 for _ in self.records(starts, ends))

    def rules(self) -> list[AclRule]:
        """Every rule of the cluster's authorizer."""
        with self._reaching():
            return read_rules(self._client)

    def writers(self, topics: Iterable[str]) -> list[str]:
        """The users that have the right to write any of these topics, in alphabetical order."""
        needed = [NeededRight("TOPIC", topic, "WRITE") for topic in topics]
        users = {rule: rule.principal.removeprefix("User:") for rule in self.rules() if rule.allows}
        return sorted({user for rule, user in users.items() if any(rule.covers(user, right) for right in needed)})

    def written(self, starts: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Counts the records from these offsets on, by the producer that their headers name."""
        ends = self.ends({part.topic for part in starts})
        found: Counter[str] = Counter()
        for record in self.records(starts, ends):
            headers = dict(record.headers)
            run, origin = ((headers.get(name) or b"").decode(errors="replace") for name in (RUN, ORIGIN))
            who = f"run {run} of a producer in {origin}" if run else "a producer whose records have no run"
            found[f"{record.topic} by {who}"] += 1
        return dict(found)

    def records(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Iterator[Any]:
        """The committed records between offsets; of a partition without a start, from its beginning."""
        left = {part: end for part, end in ends.items() if starts.get(part, 0) < end}
        if not left:
            return
        with self._reaching():
            consumer = connect_consumer(self._connection, HURRIED)
            try:
                consumer.assign(list(left))
                for part in left:
                    consumer.seek(part, starts.get(part, 0))
                at: dict[TopicPartition, int] = {}
                moved = time.monotonic()
                while left:
                    for part, batch in consumer.poll(200).items():
                        yield from (record for record in batch if record.offset < ends[part])
                        moved = time.monotonic()
                    before, at = at, {part: consumer.position(part) for part in left}
                    left = {part: end for part, end in left.items() if at[part] < end}
                    # A consumer waits for ever for a partition without a leader.
                    if at != before:
                        moved = time.monotonic()
                    elif time.monotonic() >= moved + _SILENT_S:
                        part = next(iter(left))
                        raise LabError(
                            f"{self._region}: {part.topic}-{part.partition}: no record received for {_SILENT_S:.0f} s, "
                            f"from offset {at[part]}"
                        )
            finally:
                consumer.close()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (KafkaError, OSError) as error:
            reason = explain(error, self._connection.username)
            raise UnreachableError(f"{self._region}: the cluster {reason}") from error


def connector_states(rest: ConnectClient, connector: str) -> list[str]:
    """The states of a connector and of its tasks.

    Raises:
        LabError: there is no such connector, or Connect does not answer.
    """
    status = rest.status(connector)
    if status is None:
        raise LabError(f"there is no connector {connector}")
    return [part.state for part in parts(connector, status)]


def mirror_positions(rest: ConnectClient, connector: str, alias: str) -> Positions:
    """The offset of the last record that a mirror has copied, for each partition of the source of this alias."""
    found = rest.positions(connector, alias)
    return {TopicPartition(*place): offset for place, offset in found.items()}
