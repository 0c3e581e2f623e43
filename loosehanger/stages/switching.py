"""Switches from one cluster to another: the conditions, the drain, and the snapshots of offsets.

It is the same on all platforms: it asks the clusters and Connect as the administrator that the record names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kafka import TopicPartition

from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.clients import HURRIED
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.offsets import Positions, connector_states, mirror_positions
from loosehanger.lab import snapshots
from loosehanger.lab.mirrors.lineage import event_topic
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import (
    checkpoints,
    is_copy,
    is_internal,
    offset_syncs,
    selected_groups,
    selected_topics,
    target_topic,
)
from loosehanger.lab.programs import Consumer, consumers
from loosehanger.lab.record import ADMINISTRATOR, Lab
from loosehanger.lab.scenario import HELD
from loosehanger.lab.snapshots import (
    FenceSnapshot,
    MirrorSnapshot,
    OffsetReset,
    Offsets,
    group_snapshot_id,
    keep_mirror_snapshot,
    snapshot_id,
)
from loosehanger.ledger import LedgerEntry, holds, normal, number_of
from loosehanger.waiting import wait_for

T = TypeVar("T")
_DRAINING = "still draining (producers are stopped and no client has moved; run the stage again to continue)"
_SETTLING = (
    "offsets still settling (the groups' members are stopped and no client has moved; run the stage again to continue)"
)
_READING = "groups still reading (producers are stopped; run the stage again to continue)"
_SETTLED_SECONDS = 6.0
"""Seconds without growth after which an offset counts as translated; the kit's mirrors translate every two seconds."""
_DELETING_SECONDS = 30
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
        (self._source if place == mirror.source else self._target).delete_topics([syncs], _DELETING_SECONDS)
        self._target.delete_topics([checkpoints(mirror)], _DELETING_SECONDS)
        copied = self._target.ends(target_topic(mirror, topic) for topic in topics)
        for group in groups:
            if not self.unread(group):
                self._target.set_committed(group, copied)
        # Where topics keep their names, records that only the target has are missing at the source: no archive.
        empty = [part for part, end in ends.items() if not end and target_topic(mirror, part.topic) != part.topic]
        copies = [TopicPartition(target_topic(mirror, part.topic), part.partition) for part in empty]
        archives = {part: copied[part] for part in copies if copied.get(part)}
        now_ms = time.time_ns() // 1_000_000
        return OffsetReset(snapshot_id(mirror), _as_offsets(wanted), _as_offsets(archives), mirror.target, now_ms)

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


def conditions(lab: Lab, mirrors: Sequence[Mirror], *, begun: bool = False) -> list[Condition]:
    """The conditions for a planned switch away from the sources of these mirrors.

    Args:
        lab: what is set up.
        mirrors: which.
        begun: whether the switch was begun and interrupted.

    Raises:
        LabError: a cluster or Connect does not answer.
    """
    return [
        condition
        for mirror in mirrors
        for condition in _with_flow(lab, mirror, lambda flow: list(flow.conditions(begun=begun)))
    ]


def standstill(lab: Lab, mirrors: Iterable[Mirror]) -> list[Condition]:
    """The conditions that mirrors are stopped: those that are reset, or whose source is wiped.

    Raises:
        LabError: Connect does not answer.
    """
    found = []
    for mirror in mirrors:
        rest = _rest(lab, mirror)
        names = filter(None, (mirror.connector, mirror.checkpoint_connector))
        states = {state for name in names for state in connector_states(rest, name)}
        shown = ", ".join(sorted(states))
        found.append(Condition(f"{mirror.name}: connectors", shown, "STOPPED, each of them", states == {"STOPPED"}))
    return found


def archive_conditions(lab: Lab, mirrors: Iterable[Mirror], leaving: Collection[str]) -> list[Condition]:
    """The conditions that groups which leave a target have read the records that only the target has.

    They find these records in no other cluster. Where topics keep their names, producers at the target write to the
    copies, and the drain waits for the groups; otherwise no producer writes to a copy while the mirror is stopped.

    Args:
        lab: what is set up.
        mirrors: those whose offsets will be reset.
        leaving: the consumers that move to another cluster, by the names of their Deployments.

    Raises:
        LabError: a cluster or Connect does not answer.
    """
    found = []
    for mirror in mirrors:
        for consumer in consumers(lab.topology):
            if consumer.name in leaving and consumer.cluster_region == mirror.target:
                unread = partial(LiveMirror.unread_archive, group=consumer.group, pattern=consumer.pattern)
                number = _with_flow(lab, mirror, unread)
                what = f"{consumer.group}: records that only {mirror.target} has, and that it has not read"
                found.append(Condition(what, f"{number:,}", "0", not number))
    return found


def check(found: Iterable[Condition]) -> None:
    """Checks that a stage may begin.

    Raises:
        WrongUseError: a condition does not hold; the message has its numbers.
    """
    if wrong := [str(condition) for condition in found if not condition.holds]:
        raise WrongUseError(f"{'; '.join(wrong)}; nothing was changed")


def drain(lab: Lab, mirrors: Sequence[Mirror], bound: float) -> None:
    """Waits until all records of the source are copied and read, and their offsets translated.

    Raises:
        LabError: not within ``bound`` seconds; the message has the numbers.
    """
    deadline = time.monotonic() + bound

    def wait(flow: LiveMirror) -> None:
        wait_for(flow.missing, max(deadline - time.monotonic(), 0.0), _DRAINING)

    for mirror in mirrors:
        _with_flow(lab, mirror, wait)


def settle(lab: Lab, mirrors: Sequence[Mirror], bound: float) -> None:
    """Waits until the records that groups have read are at the target, and their offsets there no longer grow.

    Their members are stopped, and producers still write. MirrorMaker 2 does not report its last translation of a
    group, so an offset that has not grown for more than two of its rounds counts as final.

    Raises:
        LabError: not within ``bound`` seconds; the message says what is missing.
    """
    deadline = time.monotonic() + bound

    def wait(flow: LiveMirror) -> None:
        last: tuple[float, dict[str, Positions]] = time.monotonic(), {}

        def growing() -> str | None:
            nonlocal last
            if missing := next(flow.unsettled(), None):
                return missing
            if (now := flow.translated()) != last[1]:
                last = time.monotonic(), now
            return None if time.monotonic() - last[0] >= _SETTLED_SECONDS else "offsets of groups are still growing"

        wait_for(growing, max(deadline - time.monotonic(), 0.0), _SETTLING)

    for mirror in mirrors:
        _with_flow(lab, mirror, wait)


def fence_conditions(lab: Lab, region: str, since: FenceSnapshot | None) -> list[Condition]:
    """The conditions that no user may write events in a region, and that no event was written since the fence.

    Args:
        lab: what is set up.
        region: the fenced region.
        since: the snapshot of the fence; None if none was kept.

    Raises:
        LabError: the cluster does not answer.
    """
    with _reader(lab, region) as reader:
        topics = _topics_of_events(lab, region, reader)
        may = [user for user in reader.writers(topics) if user != ADMINISTRATOR]
        found = [Condition(f"{region}: users that may write events", ", ".join(may) or "none", "none", not may)]
        if since is None:
            return [*found, Condition(f"{region}: fence", "none was kept", "kept", False)]
        starts = {TopicPartition(topic, part): end for topic, of in since.ends.items() for part, end in of.items()}
        written = reader.written({**dict.fromkeys(reader.ends(topics), 0), **starts})
        shown = "; ".join(f"{number:,} in {topic}" for topic, number in written.items())
        return [*found, Condition(f"{region}: records written since the fence", shown or "none", "none", not written)]


def use_condition(lab: Lab, region: str) -> Condition:
    """The condition that no group has members in a region that will be deleted.

    Raises:
        LabError: the cluster does not answer.
    """
    with _reader(lab, region) as reader:
        used = {group: members for group in reader.groups() if (members := reader.members(group))}
    shown = ", ".join(f"{group} ({members})" for group, members in used.items())
    return Condition(f"{region}: groups with members", shown or "none", "none", not used)


def fence_writes(lab: Lab, home: Path, stage: str, region: str) -> None:
    """Keeps a snapshot of the offsets of a fenced region.

    Raises:
        LabError: a user may still write; the message names them. Or the cluster does not answer.
    """
    with _reader(lab, region) as reader:
        topics = _topics_of_events(lab, region, reader)
        if may := [user for user in reader.writers(topics) if user != ADMINISTRATOR]:
            raise LabError(
                f"{region}: write fence incomplete: {', '.join(may)} still has Write; revoke it in the stage's "
                "manifests, and run the stage again"
            )
        ends = _as_offsets(reader.ends(topics))
    snapshots.keep_write_fence(home, stage, FenceSnapshot(region, time.time_ns() // 1_000_000, ends))


def delete_topics(lab: Lab, region: str, topics: Sequence[str]) -> None:
    """Deletes topics of a region, where they exist.

    Raises:
        LabError: the cluster does not answer.
    """
    with _reader(lab, region) as reader:
        reader.delete_topics(topics, _DELETING_SECONDS)


def await_arrival(lab: Lab, group: str, region: str, bound: float) -> None:
    """Waits until running mirrors have copied to a region the records that a group has read at their sources.

    Raises:
        LabError: not within ``bound`` seconds; the message says what is missing.
    """
    for mirror in lab.mirrors:
        if mirror.target == region and mirror.state == "running" and mirror.source not in lab.lost:
            _with_flow(lab, mirror, lambda flow: wait_for(lambda: flow.unarrived(group), bound, _DRAINING))


def start_group(
    lab: Lab, home: Path, stage: str, consumer: Consumer, entries: Iterable[LedgerEntry], *, translated: bool
) -> None:
    """Sets the offsets of a group in the cluster that its members move to, and keeps them as a snapshot.

    The group starts at the first event that its ledger does not have.

    Args:
        lab: what is set up.
        home: its home.
        stage: the stage that is run.
        consumer: a member, as it is afterwards; it is not running.
        entries: of its ledger.
        translated: whether the group keeps its offsets in topics where a mirror has translated them.

    Raises:
        LabError: the cluster does not answer, or the group has members there.
    """
    read: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for entry in entries:
        if entry.kind == "processed" and entry.group == consumer.group:
            key = entry.run, event_topic(lab.mirrors, entry.topic), entry.partition
            read.setdefault(key, []).append((entry.first, entry.last))
    done = {key: normal(ranges) for key, ranges in read.items()}
    region, group, pattern = consumer.cluster_region, consumer.group, re.compile(consumer.pattern or ".*")
    with _reader(lab, region) as reader:
        if members := reader.members(group):
            raise LabError(f"{region}: {group} still has {members} members")
        topics = [topic for topic in reader.topics() if pattern.match(topic) and not is_internal(topic)]
        ends = reader.ends(topics)
        translated_topics = [
            topic
            for topic in (topics if translated else ())
            if any(m.target == region and selected_groups(m, [group]) and is_copy(m, topic) for m in lab.mirrors)
        ]
        committed = reader.committed(group, topics)
        starts = {part: offset for part, offset in committed.items() if part.topic in translated_topics}
        own = {part: end for part, end in ends.items() if part.topic not in translated_topics}
        starts |= own
        for record in reader.records({}, own):
            part, number = TopicPartition(record.topic, record.partition), number_of(record.headers)
            if number is None:
                # No ledger has a record without a number: only the group's own offset shows whether it was read.
                processed = record.offset < committed.get(part, 0)
            else:
                run, sequence = number
                processed = holds(done.get((run, event_topic(lab.mirrors, part.topic), part.partition), []), sequence)
            if not processed:
                starts[part] = min(starts[part], record.offset)
        reader.set_committed(group, {part: starts[part] for part in own})
        fence = MirrorSnapshot(
            mirror=group_snapshot_id(group),
            source="",
            target=region,
            cluster=reader.id(),
            held_ms=time.time_ns() // 1_000_000,
            ends=_as_offsets(ends),
            groups={group: _as_offsets(starts)},
        )
    keep_mirror_snapshot(home, stage, fence)


def stay_group(lab: Lab, home: Path, stage: str, consumer: Consumer) -> None:
    """Keeps a snapshot of a group whose members already use the cluster, and stay there.

    Raises:
        LabError: the cluster does not answer.
    """
    region = consumer.cluster_region
    with _reader(lab, region) as reader:
        cluster = reader.id()
    mark, now_ms = group_snapshot_id(consumer.group), time.time_ns() // 1_000_000
    keep_mirror_snapshot(
        home, stage, MirrorSnapshot(mark, "", region, cluster, now_ms, {}, groups={consumer.group: {}})
    )


def _topics_of_events(lab: Lab, region: str, reader: Cluster) -> list[str]:
    """The topics that any mirror copies from a region, whether it runs or not."""
    there = reader.topics()
    return sorted(
        {name for mirror in lab.mirrors if mirror.source == region for name in selected_topics(mirror, there)}
    )


def snapshot_mirrors(lab: Lab, home: Path, stage: str, mirrors: Sequence[Mirror]) -> None:
    """Keeps a snapshot of all offsets when mirrors were held.

    Raises:
        LabError: the target or Connect does not answer, or a mirror still has tasks.
    """
    for mirror in mirrors:
        rest = _rest(lab, mirror)
        held = mirror.connector if mirror.state in HELD else mirror.checkpoint_connector
        states = connector_states(rest, held)
        if states[1:]:
            raise LabError(f"{mirror.region}: {held} still has tasks: {', '.join(states[1:])}")
        held_ms = time.time_ns() // 1_000_000
        with _reader(lab, mirror.target) as target:
            copied = [topic for topic in target.topics() if is_copy(mirror, topic)]
            groups = selected_groups(mirror, target.groups())
            fence = MirrorSnapshot(
                mirror=snapshot_id(mirror),
                source=mirror.source,
                target=mirror.target,
                cluster=target.id(),
                held_ms=held_ms,
                ends=_as_offsets(target.ends(copied)),
                positions=_as_offsets(mirror_positions(rest, mirror.connector, mirror.source_alias)),
                groups={group: _as_offsets(target.committed(group, copied)) for group in groups},
            )
        keep_mirror_snapshot(home, stage, fence)


def reset_mirror_offsets(lab: Lab, mirrors: Sequence[Mirror], bound: float) -> list[OffsetReset]:
    """Resets the offsets of stopped mirrors to the end of their rebuilt sources, and deletes their old translations.

    A mirror's source offsets, offset-syncs and checkpoints belong to the cluster that it read. Once that is rebuilt,
    old offsets lie beyond its end, so that everything is copied again, or before it, so that records are skipped; and
    old offset-syncs with new offsets translate groups too far. The caller must make sure that no producer writes at
    either side, and that the target has all records of the source. Copies under another name, of partitions that are
    empty at the source, are an archive of the former cluster. A group that has read everything at the source is set
    to the end of the target, because the mirror only moves offsets forward; a group that still reads is waited for.
    Groups whose members read at the target keep their offsets.

    Raises:
        LabError: a cluster or Connect does not answer, a mirror is not stopped, a group has members at its target, or
            one has not read everything within ``bound`` seconds.
    """
    return [_with_flow(lab, mirror, lambda flow: flow.reset_offsets(bound)) for mirror in mirrors]


def beyond(lab: Lab, mirror: Mirror) -> list[Any]:
    """The records of a mirror's source that it has not copied, in the order of their partitions.

    Raises:
        LabError: the source or Connect does not answer.
    """
    with _reader(lab, mirror.source) as source:
        found = mirror_positions(_rest(lab, mirror), mirror.connector, mirror.source_alias)
        ends = source.ends(selected_topics(mirror, source.topics()))
        starts = {part: position + 1 for part, position in found.items()}
        return sorted(source.records(starts, ends), key=lambda one: (one.topic, one.partition, one.offset))


def fence_ends(fence: MirrorSnapshot) -> Positions:
    """Where each partition ended at the target when a mirror was held."""
    return {TopicPartition(topic, part): end for topic, of in fence.ends.items() for part, end in of.items()}


def _records(cluster: Cluster, starts: Positions, ends: Positions) -> int:
    """How many records follow these offsets; far from the end, offsets are counted instead."""
    distance = sum(max(0, end - starts.get(part, 0)) for part, end in ends.items())
    return distance if distance > _COUNTED else cluster.records_from(starts, ends)


def _with_flow(lab: Lab, mirror: Mirror, use: Callable[[LiveMirror], T]) -> T:
    with ExitStack() as stack:
        source, target = (stack.enter_context(_reader(lab, region)) for region in (mirror.source, mirror.target))
        every = consumers(lab.topology)
        at_home = {one.group for one in every if one.cluster_region == mirror.target and one.replicas}
        return use(LiveMirror(mirror, _rest(lab, mirror), source, target, _resting(every, mirror), at_home))


def _resting(every: Iterable[Consumer], mirror: Mirror) -> set[str]:
    """The groups without any consumer, running or not, that uses a mirror's source."""
    return {one.group for one in every} - {one.group for one in every if one.cluster_region == mirror.source}


def _reader(lab: Lab, region: str) -> Cluster:
    return Cluster.of(lab.region(region), ADMINISTRATOR, HURRIED)


def _rest(lab: Lab, mirror: Mirror) -> ConnectClient:
    connect = next(found.connect for found in lab.region(mirror.region).mirrors if found.connector == mirror.connector)
    return ConnectClient.of(connect)


def _as_offsets(positions: Positions) -> Offsets:
    found: Offsets = {}
    for part, offset in sorted(positions.items()):
        found.setdefault(part.topic, {})[part.partition] = offset
    return found
