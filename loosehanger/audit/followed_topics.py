"""The topics that a watch follows: the position in each, and how new and recreated ones are treated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition

from loosehanger.audit.balance import AuditBalance, RegionPartition, bucket_of
from loosehanger.audit.notes import Note, Notes
from loosehanger.audit.region_reader import Reading
from loosehanger.audit.regions import Regions
from loosehanger.audit.scope import Scope
from loosehanger.proof.read.buckets import BUCKET_MS


@dataclass
class Topic:
    """The position in a topic up to which it has been read."""

    id: str
    following: dict[int, int] = field(default_factory=dict)
    """The next offset of each partition."""


class FollowedTopics:
    """The topics of all regions.

    Args:
        regions: which they are in.
        balance: is restarted where records were not read.
        notes: takes what is not judged.
        since_ms: from when on records are judged, in epoch milliseconds.
    """

    def __init__(self, regions: Regions, balance: AuditBalance, notes: Notes, since_ms: int) -> None:
        self._regions = regions
        self._balance = balance
        self._notes = notes
        self.since_ms = since_ms
        self._topics: dict[str, dict[str, Topic]] = {name: {} for name in regions.readers}

    def following(self, region: str) -> dict[TopicPartition, int]:
        """The next offset of each partition of a region."""
        return {
            TopicPartition(topic, number): offset
            for topic, known in self._topics[region].items()
            for number, offset in known.following.items()
        }

    def read(self) -> dict[RegionPartition, int]:
        """The offset up to which each partition has been read."""
        return {RegionPartition(name, *place): offset for name, place, offset in self._offsets()}

    def serve(self, scope: Scope, now_ms: int) -> None:
        """Judges the current flows; a new one only from now on, if earlier records were not counted for it."""
        followed = {(name, topic) for name, topics in self._topics.items() for topic in topics}
        for region, topic in sorted(self._balance.serve(scope.flows, followed)):
            sides = [(region, topic), *((flow.source, flow.topic) for flow in self._balance.sources((region, topic)))]
            known = [self._topics[name][of_side] for name, of_side in sides if of_side in self._topics[name]]
            for number in {number for side in known for number in side.following}:
                self._balance.restart(RegionPartition(region, topic, number), bucket_of(now_ms) + 1)
            says = "the mirrors of this topic have changed; judged from now on"
            self._notes.add(Note(now_ms, region, topic, None, says))

    def follow(self, topics: Mapping[str, Mapping[str, tuple[str, int]]], now_ms: int) -> list[tuple[str, str]]:
        """Follows these topics, with partitions that are new, and no others.

        Args:
            topics: id and number of partitions, by region and topic.
            now_ms: the time, in epoch milliseconds.

        Returns:
            The recreated topics, each with its region.
        """
        fresh: dict[str, list[TopicPartition]] = {}
        recreated = []
        for name, of_region in topics.items():
            known = self._topics[name]
            for topic, (topic_id, partitions) in of_region.items():
                if topic in known and known[topic].id != topic_id:
                    self._restart_recreated(name, topic, now_ms)
                    known[topic] = Topic(topic_id, dict.fromkeys(range(partitions), 0))
                    recreated.append((name, topic))
                followed = known.setdefault(topic, Topic(topic_id))
                fresh.setdefault(name, []).extend(
                    TopicPartition(topic, number) for number in range(partitions) if number not in followed.following
                )
            for topic in known.keys() - of_region.keys():
                del known[topic]
        self._begin({name: places for name, places in fresh.items() if places}, bucket_of(now_ms))
        return recreated

    def advance(self, region: str, reading: Reading, now_ms: int) -> None:
        """Continues after the records that were read, and notes what could not be read."""
        for place, offset in reading.until.items():
            self._topics[region][place.topic].following[place.partition] = offset
        for place, offsets in reading.lost.items():
            self._restart(region, place, now_ms)
            says = "deleted before it could be read: not judged"
            self._notes.add(Note(now_ms, region, place.topic, place.partition, says, offsets))
        for place in reading.back:
            # The next look finds a recreated topic's new id; an unclean leader election keeps the id.
            self._restart(region, place, now_ms)
            self._topics[region][place.topic].following[place.partition] = reading.starts[place]
            says = "the partition ends before the offset up to which it was read: it was recreated, or has lost its end"
            self._notes.add(Note(now_ms, region, place.topic, place.partition, says))

    def dump(self) -> dict[str, dict[str, list[Any]]]:
        """The whole state, as JSON types."""
        return {
            name: {topic: [known.id, known.following] for topic, known in topics.items()}
            for name, topics in self._topics.items()
        }

    def load(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        """Restores what ``dump`` returned."""
        for name, topics in stored.items():
            self._topics[name] = {
                topic: Topic(id_, {int(number): offset for number, offset in following.items()})
                for topic, (id_, following) in topics.items()
            }

    def _offsets(self) -> Iterator[tuple[str, tuple[str, int], int]]:
        for name, topics in self._topics.items():
            for topic, known in topics.items():
                for number, offset in known.following.items():
                    yield name, (topic, number), offset

    def _begin(self, fresh: Mapping[str, list[TopicPartition]], now: int) -> None:
        """Decides the offset from which new partitions are read, and the bucket from which they are judged."""
        readers = self._regions.readers
        starts = self._regions.ask(
            {name: (readers[name].cluster.start_offsets, places) for name, places in fresh.items()}
        )
        first = bucket_of(self.since_ms)
        firsts: dict[str, dict[int, list[TopicPartition]]] = {}
        for name, of_region in starts.items():
            for place, start in of_region.items():
                targets = self._balance.targets(RegionPartition(name, *place))
                for target in targets:
                    # A partition that is new since the watch began, and still complete, is judged from that time on.
                    if start == 0 or self._balance.round == 0:
                        self._balance.begin(target, first)
                    else:
                        self._balance.restart(target, now + 1)
                since = min((self._balance.since[target] for target in targets), default=first)
                firsts.setdefault(name, {}).setdefault(since, []).append(place)
        for name, by_bucket in firsts.items():
            for bucket, places in by_bucket.items():
                cluster = readers[name].cluster
                found = self._regions.ask({name: (cluster.offsets_from, places, bucket * BUCKET_MS)})
                for place, offset in found.get(name, {}).items():
                    self._topics[name][place.topic].following[place.partition] = offset

    def _restart_recreated(self, region: str, topic: str, now_ms: int) -> None:
        for number in self._topics[region][topic].following:
            self._restart(region, TopicPartition(topic, number), now_ms)
        says = "the topic was deleted and recreated; judged from now on"
        self._notes.add(Note(now_ms, region, topic, None, says))

    def _restart(self, region: str, place: TopicPartition, now_ms: int) -> None:
        for target in self._balance.targets(RegionPartition(region, *place)):
            self._balance.restart(target, bucket_of(now_ms) + 1)
