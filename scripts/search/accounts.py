"""Counts acknowledged records in their copies, by the producers' ledgers alone: the proof is not asked."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka import TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka.clients import PATIENT, connect_consumer
from loosehanger.kafka.cluster import Cluster, partitions_of
from loosehanger.kafka.connection import connection_for
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.record import Lab
from loosehanger.ledger import LedgerEntry, Numbers, ledger_files, normal, number_of, read_entries

STANDSTILL_S = 60.0
"""Seconds without a record after which reading fails."""
Acknowledged = dict[tuple[str, str, str, int], Numbers]
"""The sequence numbers that a cluster acknowledged, by its id, topic, run and partition."""
Seen = Mapping[tuple[str, int], int]
"""How often a topic has a record, by run and sequence number."""


@dataclass(frozen=True)
class CopyCount:
    """What a copy has of the records that its source acknowledged."""

    place: str
    acknowledged: int
    missing: int
    """Records that the copy does not have."""
    twice: int
    """Records that it has more often than the source."""
    at_source: int
    """Acknowledged records that the source itself does not have."""

    @property
    def is_exact(self) -> bool:
        """Whether each acknowledged record is there once."""
        return not (self.missing or self.twice or self.at_source)


def acknowledged(entries: Iterable[LedgerEntry]) -> Acknowledged:
    """Returns what clusters have acknowledged."""
    found: dict[tuple[str, str, str, int], list[tuple[int, int]]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "acked":
            found[entry.cluster, entry.topic, entry.run, entry.partition].append((entry.first, entry.last))
    return {key: normal(ranges) for key, ranges in found.items()}


def compare(
    place: str, wanted: Iterable[tuple[str, int, Numbers]], source: Sequence[Seen], copy: Sequence[Seen]
) -> CopyCount:
    """Compares one topic with its copy.

    Args:
        place: the copy, for messages.
        wanted: what was acknowledged: run, partition and sequence numbers.
        source: how often the source has each record, by partition.
        copy: the same for the copy.
    """
    count = missing = twice = gone = 0
    for run, partition, numbers in wanted:
        there = source[partition] if partition < len(source) else {}
        here = copy[partition] if partition < len(copy) else {}
        for first, last in numbers:
            for number in range(first, last + 1):
                count += 1
                at_source, at_target = there.get((run, number), 0), here.get((run, number), 0)
                gone += not at_source
                missing += not at_target
                twice += at_target > max(at_source, 1)
    return CopyCount(place, count, missing, twice, gone)


class Accountant:
    """Reads the topics of one lab, and each record only once.

    Args:
        lab: the lab, with ledgers.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._seen: dict[tuple[str, str], list[Counter[tuple[str, int]]]] = {}
        self._positions: dict[tuple[str, TopicPartition], int] = {}
        self._ids: dict[str, str] = {}

    def acknowledged(self) -> Acknowledged:
        """Returns what has been acknowledged until now."""
        return acknowledged(read_entries(file for folder in self._lab.ledgers for file in ledger_files(folder)))

    def counts(self, wanted: Acknowledged) -> list[CopyCount]:
        """Returns a count for each copy of a topic that a producer with a ledger writes.

        Raises:
            LabError: a cluster does not answer, or a topic cannot be read to its end.
        """
        return list(self._counts(wanted))

    def _counts(self, wanted: Acknowledged) -> Iterator[CopyCount]:
        by_topic: dict[tuple[str, str], list[tuple[str, int, Numbers]]] = defaultdict(list)
        for (cluster, topic, run, partition), numbers in wanted.items():
            by_topic[cluster, topic].append((run, partition, numbers))
        for mirror in self._lab.mirrors:
            if mirror.state != "running" or not {mirror.source, mirror.target} <= {*self._lab.clusters}:
                continue
            for (cluster, topic), parts in by_topic.items():
                if cluster == self._id(mirror.source) and selected_topics(mirror, [topic]):
                    copy = target_topic(mirror, topic)
                    place = f"{copy} in {mirror.target}, by {mirror.id}"
                    yield compare(place, parts, self._read(mirror.source, topic), self._read(mirror.target, copy))

    def _id(self, region: str) -> str:
        if region not in self._ids:
            with Cluster.of(self._lab.region(region), ADMINISTRATOR) as cluster:
                self._ids[region] = cluster.id()
        return self._ids[region]

    def _read(self, region: str, topic: str) -> list[Counter[tuple[str, int]]]:
        """Returns how often a topic has each record, by partition; none for a topic that does not exist."""
        with Cluster.of(self._lab.region(region), ADMINISTRATOR) as cluster:
            topics = cluster.topics()
            places = list(partitions_of({topic: topics[topic]})) if topic in topics else []
            starts, ends = cluster.start_offsets(places), cluster.end_offsets(places)
        seen = self._seen.setdefault((region, topic), [])
        seen.extend(Counter() for _ in range(len(places) - len(seen)))
        wanted = {}
        for place in places:
            position = max(self._positions.get((region, place), 0), starts[place])
            if position < ends[place]:
                wanted[place] = position
        if wanted:
            self._read_on(region, wanted, ends, seen)
        return seen

    def _read_on(
        self,
        region: str,
        wanted: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        seen: Sequence[Counter[tuple[str, int]]],
    ) -> None:
        consumer = connect_consumer(connection_for(self._lab.region(region), ADMINISTRATOR), PATIENT)
        try:
            consumer.assign(list(wanted))
            for place, position in wanted.items():
                consumer.seek(place, position)
            moved, before = time.monotonic(), dict(wanted)
            while any(before[place] < ends[place] for place in wanted):
                if time.monotonic() - moved > STANDSTILL_S:
                    raise LabError(f"{region}: no record read for {STANDSTILL_S:.0f} s from {sorted(wanted)}")
                for place, records in consumer.poll(timeout_ms=500).items():
                    for record in records:
                        # Records from the end offset on are left to the next call.
                        if record.offset < ends[place] and (number := number_of(record.headers)):
                            seen[place.partition][number] += 1
                now = {place: min(consumer.position(place), ends[place]) for place in wanted}
                if now != before:
                    moved, before = time.monotonic(), now
            self._positions.update({(region, place): ends[place] for place in wanted})
        finally:
            consumer.close()
