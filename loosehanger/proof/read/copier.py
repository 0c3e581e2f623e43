"""The progress of a copier without an interface, estimated from its copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from kafka import TopicPartition

from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import target_topic

OBSERVED_S = 5.0
"""The least seconds of observation before copies count as not growing."""
_STILL_S = 15.0
"""Seconds since copies last grew, within which they still grow: copiers write in batches."""
_READ_S = 15.0
Contents = Callable[[Cluster, Mapping[TopicPartition, int], float], Mapping[TopicPartition, Any]]
"""Reads the records at these offsets, until a deadline of the monotonic clock."""


class Copier:
    """Any copier between two clusters, observed by the end offsets of its copies and the timestamps of their records.

    Args:
        mirror: the topics, and their names at the target.
        source: the source's cluster, for this observation alone, since each thread needs its own clients.
        target: the target's cluster, likewise.
        last_records: the source offsets that it must reach.
        contents: reads records.
    """

    def __init__(
        self,
        mirror: Mirror,
        source: Cluster,
        target: Cluster,
        last_records: Mapping[TopicPartition, int],
        contents: Contents,
    ) -> None:
        self._source = source
        self._target = target
        self._last_records = last_records
        self._contents = contents
        self._copies = {
            place: TopicPartition(target_topic(mirror, place.topic), place.partition) for place in last_records
        }
        self._reached = dict.fromkeys(last_records, -1)
        self._ends: dict[TopicPartition, int] | None = None
        self._grew = float("-inf")

    @classmethod
    @contextmanager
    def observed(
        cls,
        mirror: Mirror,
        source: Cluster,
        target: Cluster,
        last_records: Mapping[TopicPartition, int],
        contents: Contents,
    ) -> Iterator[Copier]:
        """Observes a copier with separate clients, and closes them."""
        with (
            closing(Cluster(source.region, source.connection)) as here,
            closing(Cluster(target.region, target.connection)) as there,
        ):
            yield cls(mirror, here, there, last_records, contents)

    def look(self) -> None:
        """Notes whether the copies have grown since the last look.

        Raises:
            UnreachableError: the target does not answer.
        """
        ends = self._target.end_offsets(self._present(self._copies))
        before, self._ends = self._ends, ends
        if before is not None and any(end > before.get(copy, 0) for copy, end in ends.items()):
            self._grew = time.monotonic()

    @property
    def still_grows(self) -> bool:
        """Whether any copy has grown recently: a copier may process one partition after the other."""
        return time.monotonic() - self._grew <= _STILL_S

    def reached(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The least source offset up to which each of these partitions has been copied or skipped.

        A partition is copied in order. So every source record before the first one with the timestamp of the last copy
        was copied, or never will be. A copy that is newer than every source record is beyond the end.

        Raises:
            UnreachableError: a cluster does not answer.
        """
        copies = {self._copies[place]: place for place in wanted}
        present = self._present(copies.values())
        starts, ends = self._target.start_offsets(present), self._target.end_offsets(present)
        last, _ = self._target.last_records({copy: (starts[copy], ends[copy]) for copy in present}, _READ_S)
        records = self._contents(self._target, last, time.monotonic() + _READ_S) if last else {}
        times = {copies[copy]: record.timestamp for copy, record in records.items()}
        for place, offset in self._source.offsets_at(times).items():
            before = self._last_records[place] if offset < 0 else offset - 1
            self._reached[place] = max(self._reached[place], min(before, self._last_records[place]))
        return {place: self._reached[place] for place in wanted}

    def _present(self, places: Collection[TopicPartition]) -> list[TopicPartition]:
        """The copies of those partitions of the source that have one."""
        counts = self._target.topics()
        copies = (self._copies[place] for place in places)
        return [copy for copy in copies if copy.partition < counts.get(copy.topic, 0)]
