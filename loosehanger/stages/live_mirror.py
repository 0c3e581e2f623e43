"""A mirror between two clusters that are both running, and what must hold of it before its clients move.

It is the same on all platforms: it asks the clusters and Connect as the administrator that the record names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kafka import TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka.clients import HURRIED
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.offsets import Positions, connector_states, mirror_positions
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import (
    checkpoints,
    offset_syncs,
    selected_groups,
    selected_topics,
    target_topic,
)
from loosehanger.lab.programs import Consumer, consumers
from loosehanger.lab.record import Lab
from loosehanger.lab.snapshots import (
    OffsetReset,
    Offsets,
    snapshot_id,
)
from loosehanger.waiting import wait_for

T = TypeVar("T")
_READING = "groups still reading (producers are stopped; run the stage again to continue)"
DELETING_SECONDS = 30
"""Seconds until topics that are deleted are gone."""
_COUNTED = 1000
"""Up to this many offsets, records are counted one by one: transaction markers take offsets and are not records."""
MOST_BEHIND = 20_000
"""Records that a mirror may be behind when a planned switch begins: producers wait until it has caught up."""


@dataclass(frozen=True)
class Condition:
    """A condition that must hold before a switch may begin."""

    what: str
    value: str
    """The present value."""
    wanted: str
    """The value that is required."""
    holds: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.value}" + ("" if self.holds else f"; it must be {self.wanted}")


class LiveMirror:
    """A mirror between two clusters that are both running."""

    def __init__(
        self,
        mirror: Mirror,
        rest: ConnectClient,
        source: Cluster,
        target: Cluster,
        resting: Collection[str] = (),
        at_home: Collection[str] = (),
    ) -> None:
        self._mirror = mirror
        self._rest = rest
        self._source = source
        self._target = target
        self._resting = resting
        """Groups that have offsets at the source and no members there, as in a backup."""
        self._at_home = at_home
        """Groups whose members read at the target and stay there."""

    @property
    def groups(self) -> list[str]:
        """The groups at the source that it translates."""
        return selected_groups(self._mirror, self._source.groups()) if self._mirror.translates else []

    def topics(self) -> list[str]:
        """The topics that it copies."""
        return selected_topics(self._mirror, self._source.topics())

    def behind(self) -> int:
        """How many records of the source it has not copied."""
        positions = mirror_positions(self._rest, self._mirror.connector, self._mirror.source_alias)
        return _records(
            self._source,
            {part: position + 1 for part, position in positions.items()},
            self._source.ends(self.topics()),
        )

    def states(self) -> list[str]:
        """The states of the connectors that must run, and of their tasks."""
        names = [self._mirror.connector, *([self._mirror.checkpoint_connector] if self._mirror.translates else [])]
        return [state for name in names for state in connector_states(self._rest, name)]

    def unread(self, group: str) -> int:
        """The group's consumer lag at the source, in records."""
        topics = self.topics()
        return _records(self._source, self._source.committed(group, topics), self._source.ends(topics))

    def untranslated(self, group: str) -> int:
        """The group's consumer lag at the target, in records: it would read them next."""
        topics = [target_topic(self._mirror, topic) for topic in self.topics()]
        return _records(self._target, self._target.committed(group, topics), self._target.ends(topics))

    def conditions(self, *, begun: bool) -> Iterator[Condition]:
        """The conditions for stopping producers in a planned switch.

        Args:
            begun: whether the switch was begun and interrupted: that run may have stopped the mirror already.
        """
        name = self._mirror.name
        states = set(self.states())
        shown = ", ".join(sorted(states))
        right = ("RUNNING", "STOPPED") if begun else ("RUNNING",)
        wanted = f"{' or '.join(right)}, each of them"
        yield Condition(f"{name}: connectors and tasks", shown, wanted, states <= set(right))
        behind = self.behind()
        yield Condition(f"{name}: records behind", f"{behind:,}", f"{MOST_BEHIND:,} or less", behind <= MOST_BEHIND)
        groups = self.groups
        for group in groups:
            if group in self._resting:
                lacking = len(self.unplaced(group))
                what = f"{group}: partitions without its offset in {self._mirror.target}"
                yield Condition(what, str(lacking), "0", not lacking)
            else:
                unread = self.unread(group)
                most, holds_ = f"{MOST_BEHIND:,} or less", unread <= MOST_BEHIND
                yield Condition(f"{group}: records that it has not read", f"{unread:,}", most, holds_)
            members = self._target.members(group)
            yield Condition(f"{group}: members in {self._mirror.target}", str(members), "0", not members)

    def unsettled(self) -> Iterator[str]:
        """What is wrong with the offsets of groups at the target, if their members moved now."""
        for group in self.groups:
            yield from self._out_of_place(group)

    def _out_of_place(self, group: str) -> Iterator[str]:
        if missing := self.unarrived(group):
            yield missing
        for part in self.unplaced(group):
            yield f"{group} has no offset in {self._mirror.target} for {part.topic}-{part.partition}"

    def unplaced(self, group: str) -> list[TopicPartition]:
        """The partitions in which a group has an offset at the source, and none at the target."""
        done = self._source.committed(group, self.topics())
        there = self._target.committed(group, [target_topic(self._mirror, topic) for topic in self.topics()])
        return [
            part
            for part, offset in done.items()
            if offset and TopicPartition(target_topic(self._mirror, part.topic), part.partition) not in there
        ]

    def unarrived(self, group: str) -> str | None:
        """A partition whose records, as read by a group at the source, are not at the target yet; None if all are."""
        positions = mirror_positions(self._rest, self._mirror.connector, self._mirror.source_alias)
        for part, offset in self._source.committed(group, self.topics()).items():
            if positions.get(part, -1) < offset - 1:
                return f"{part.topic}-{part.partition} is not in {self._mirror.target} as far as {group} has read it"
        return None

    def unread_archive(self, group: str, pattern: str) -> int:
        """The consumer lag of a group at the target, in copies of partitions that are empty at the source.

        Args:
            group: which.
            pattern: a regular expression for the names of the topics that it reads; empty for all.
        """
        names = {target_topic(self._mirror, topic): topic for topic in self.topics()}
        read = [name for name, topic in names.items() if name != topic and re.match(pattern or ".*", name)]
        copies = self._target.ends(read)
        empty = {part for part, end in self._source.ends(names.values()).items() if not end}
        ends = {part: end for part, end in copies.items() if TopicPartition(names[part.topic], part.partition) in empty}
        committed = self._target.committed(group, {part.topic for part in ends})
        return _records(self._target, {part: committed.get(part, 0) for part in ends}, ends)

    def translated(self) -> dict[str, Positions]:
        """The offset at the target of each group."""
        topics = [target_topic(self._mirror, topic) for topic in self.topics()]
        return {group: self._target.committed(group, topics) for group in self.groups}

    def reset_offsets(self, bound: float) -> OffsetReset:
        """See ``reset_mirror_offsets``."""
        mirror, topics = self._mirror, self.topics()
        if set(self.states()) != {"STOPPED"}:
            raise LabError(f"{mirror.region}: {mirror.name} is not stopped: {', '.join(self.states())}")
        # Groups of a standby mirror as well: it would never translate offsets of topics that are not written to.
        groups = [group for group in selected_groups(mirror, self._source.groups()) if group not in self._at_home]
        for group in groups:
            if members := self._target.members(group):
                raise LabError(f"{mirror.target}: {group} still has {members} members")
            if self._source.members(group):
                # Offsets that it commits later, in a partition without new records, are never translated.
                wait_for(partial(self._unread_reason, group), bound, _READING)
        known = mirror_positions(self._rest, mirror.connector, mirror.source_alias)
        ends = self._source.ends(topics)
        wanted = {part: end - 1 for part, end in ends.items() if end}
        self._rest.set_positions(mirror.connector, mirror.source_alias, dict.fromkeys(known) | wanted)
        place, syncs = offset_syncs(mirror)
        (self._source if place == mirror.source else self._target).delete_topics([syncs], DELETING_SECONDS)
        self._target.delete_topics([checkpoints(mirror)], DELETING_SECONDS)
        copied = self._target.ends(target_topic(mirror, topic) for topic in topics)
        for group in groups:
            if not self.unread(group):
                self._target.set_committed(group, copied)
        # Where topics keep their names, records that only the target has are missing at the source: no archive.
        empty = [part for part, end in ends.items() if not end and target_topic(mirror, part.topic) != part.topic]
        copies = [TopicPartition(target_topic(mirror, part.topic), part.partition) for part in empty]
        archives = {part: copied[part] for part in copies if copied.get(part)}
        now_ms = time.time_ns() // 1_000_000
        return OffsetReset(snapshot_id(mirror), as_offsets(wanted), as_offsets(archives), mirror.target, now_ms)

    def _unread_reason(self, group: str) -> str | None:
        unread = self.unread(group)
        return f"{group} has {unread:,} records to read in {self._mirror.source}" if unread else None

    def missing(self) -> str | None:
        """What has not drained yet; None when everything has."""
        if behind := self.behind():
            return f"{self._mirror.name} is {behind:,} records behind"
        for group in self.groups:
            if group in self._resting:
                if reason := next(self._out_of_place(group), None):
                    return reason
                continue
            if unread := self._unread_reason(group):
                return unread
            if left := self.untranslated(group):
                return f"{group} is {left:,} records behind in {self._mirror.target}"
        return None


def with_flow(lab: Lab, mirror: Mirror, use: Callable[[LiveMirror], T]) -> T:
    """Runs a function with a mirror whose two clusters are open; returns what it returns."""
    with ExitStack() as stack:
        source, target = (stack.enter_context(open_cluster(lab, region)) for region in (mirror.source, mirror.target))
        every = consumers(lab.topology)
        at_home = {one.group for one in every if one.cluster_region == mirror.target and one.replicas}
        return use(LiveMirror(mirror, connect_of(lab, mirror), source, target, _resting(every, mirror), at_home))


def _resting(every: Iterable[Consumer], mirror: Mirror) -> set[str]:
    """The groups without any consumer, running or not, that uses a mirror's source."""
    return {one.group for one in every} - {one.group for one in every if one.cluster_region == mirror.source}


def open_cluster(lab: Lab, region: str) -> Cluster:
    """Returns the cluster of a region, for its administrator; it is closed by its block."""
    return Cluster.of(lab.region(region), ADMINISTRATOR, HURRIED)


def connect_of(lab: Lab, mirror: Mirror) -> ConnectClient:
    """Returns Connect's REST interface of the workers of a mirror."""
    connect = next(found.connect for found in lab.region(mirror.region).mirrors if found.connector == mirror.connector)
    return ConnectClient.of(connect)


def topics_of_events(lab: Lab, region: str, reader: Cluster) -> list[str]:
    """The topics that any mirror copies from a region, whether it runs or not."""
    there = reader.topics()
    return sorted(
        {name for mirror in lab.mirrors if mirror.source == region for name in selected_topics(mirror, there)}
    )


def _records(cluster: Cluster, starts: Positions, ends: Positions) -> int:
    """How many records follow these offsets; far from the end, offsets are counted instead."""
    distance = sum(max(0, end - starts.get(part, 0)) for part, end in ends.items())
    return distance if distance > _COUNTED else cluster.records_from(starts, ends)


def as_offsets(positions: Positions) -> Offsets:
    """Returns positions in the form of snapshots, ordered by topic and partition."""
    found: Offsets = {}
    for part, offset in sorted(positions.items()):
        found.setdefault(part.topic, {})[part.partition] = offset
    return found
