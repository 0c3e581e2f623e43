"""Switching from one cluster to another: what must hold first, what has to arrive, and how far everything was.

Written once for all platforms: it asks the clusters and Connect as the kit's administrator, by the record.
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
from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.offsets import ClusterReader, Positions, connector_states, mirror_positions
from loosehanger.lab import snapshots
from loosehanger.lab.manifests.documents import Document
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
_DRAINING = "draining (producers stay stopped, and nothing has moved: run the stage again)"
_SETTLING = "waiting for the groups' offsets (their members stay stopped, and nothing has moved: run the stage again)"
_READING = "waiting for groups (producers stay stopped: run the stage again)"
_SETTLED_SECONDS = 6.0
"""So long a group's offset does not grow before it counts as translated: the kit's mirrors do so every two seconds, or
sooner."""
_DELETING_SECONDS = 30
_COUNTED = 1000
"""Of so many offsets it is counted how many are records: markers of transactions take offsets, and are none."""
MOST_BEHIND = 20_000
"""Records that a mirror may be behind when a planned switch begins: producers wait until it has caught up."""


@dataclass(frozen=True)
class Condition:
    """Something that must hold before a switch may begin."""

    what: str
    value: str
    """How it is."""
    wanted: str
    """How it must be."""
    holds: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.value}" + ("" if self.holds else f"; it must be {self.wanted}")


class LiveMirror:
    """A mirror between two clusters that both live."""

    def __init__(
        self,
        mirror: Mirror,
        rest: ConnectClient,
        source: ClusterReader,
        target: ClusterReader,
        resting: Collection[str] = (),
        at_home: Collection[str] = (),
    ) -> None:
        self._mirror = mirror
        self._rest = rest
        self._source = source
        self._target = target
        self._resting = resting
        """Groups whose members do not read at the source: they only have offsets there, such as in a backup."""
        self._at_home = at_home
        """Groups whose members read at the target, and go on reading there."""

    @property
    def groups(self) -> list[str]:
        """The groups that it translates, of those that the source has."""
        return selected_groups(self._mirror, self._source.groups()) if self._mirror.translates else []

    def topics(self) -> list[str]:
        """The topics that it copies."""
        return selected_topics(self._mirror, self._source.topics())

    def behind(self) -> int:
        """How many records of the source it has not come to."""
        positions = mirror_positions(self._rest, self._mirror.connector, self._mirror.source_alias)
        return _records(
            self._source,
            {part: position + 1 for part, position in positions.items()},
            self._source.ends(self.topics()),
        )

    def states(self) -> list[str]:
        """The states of those of its connectors that shall run, and of their tasks."""
        names = [self._mirror.connector, *([self._mirror.checkpoint_connector] if self._mirror.translates else [])]
        return [state for name in names for state in connector_states(self._rest, name)]

    def unread(self, group: str) -> int:
        """How many records of the source a group has not come to."""
        topics = self.topics()
        return _records(self._source, self._source.committed(group, topics), self._source.ends(topics))

    def untranslated(self, group: str) -> int:
        """How many records at the target lie behind what a group has there: it would read them, again or at last."""
        topics = [target_topic(self._mirror, topic) for topic in self.topics()]
        return _records(self._target, self._target.committed(group, topics), self._target.ends(topics))

    def conditions(self, *, begun: bool) -> Iterator[Condition]:
        """What must hold before producers may be stopped for a planned switch.

        Args:
            begun: whether the switch was begun and interrupted: that run may have stopped the mirror already.
        """
        name = self._mirror.name
        states = set(self.states())
        told = ", ".join(sorted(states))
        right = ("RUNNING", "STOPPED") if begun else ("RUNNING",)
        wanted = f"{' or '.join(right)}, each of them"
        yield Condition(f"{name}: connectors and tasks", told, wanted, states <= set(right))
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
        """What is wrong with where groups would go on at the target, if their members ended now."""
        for group in self.groups:
            yield from self._out_of_place(group)

    def _out_of_place(self, group: str) -> Iterator[str]:
        if missing := self.unarrived(group):
            yield missing
        for part in self.unplaced(group):
            yield f"{group} has no offset in {self._mirror.target} for {part.topic}-{part.partition}"

    def unplaced(self, group: str) -> list[TopicPartition]:
        """The partitions in which a group has come to something at the source, and has no offset at the target."""
        done = self._source.committed(group, self.topics())
        there = self._target.committed(group, [target_topic(self._mirror, topic) for topic in self.topics()])
        return [
            part
            for part, offset in done.items()
            if offset and TopicPartition(target_topic(self._mirror, part.topic), part.partition) not in there
        ]

    def unarrived(self, group: str) -> str | None:
        """What a group has read at the source and is not at the target yet; None where everything is."""
        positions = mirror_positions(self._rest, self._mirror.connector, self._mirror.source_alias)
        for part, offset in self._source.committed(group, self.topics()).items():
            if positions.get(part, -1) < offset - 1:
                return f"{part.topic}-{part.partition} is not in {self._mirror.target} as far as {group} has read it"
        return None

    def unread_archive(self, group: str, pattern: str) -> int:
        """How many records a group has not read at the target, in copies of which the source has nothing.

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

    def rearm(self, bound: float) -> OffsetReset:
        """See ``rearm``."""
        mirror, topics = self._mirror, self.topics()
        if set(self.states()) != {"STOPPED"}:
            raise LabError(f"{mirror.region}: {mirror.name} is not stopped: {', '.join(self.states())}")
        # Also those of a mirror that goes on standing ready: of topics in which nothing is written until it runs, it
        # would never translate anything.
        groups = [group for group in selected_groups(mirror, self._source.groups()) if group not in self._at_home]
        for group in groups:
            if members := self._target.members(group):
                raise LabError(f"{mirror.target}: {group} has {members} members still")
            if self._source.members(group):
                # Of what it reads later, in a partition in which nothing is written any more, nothing is translated.
                wait_for(partial(self._unread_told, group), bound, _READING)
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
        # Where names are kept, what only the target has is no archive: the source lacks it, and the proof says so.
        empty = [part for part, end in ends.items() if not end and target_topic(mirror, part.topic) != part.topic]
        copies = [TopicPartition(target_topic(mirror, part.topic), part.partition) for part in empty]
        archives = {part: copied[part] for part in copies if copied.get(part)}
        now_ms = time.time_ns() // 1_000_000
        return OffsetReset(snapshot_id(mirror), _as_offsets(wanted), _as_offsets(archives), mirror.target, now_ms)

    def _unread_told(self, group: str) -> str | None:
        unread = self.unread(group)
        return f"{group} has {unread:,} records to read in {self._mirror.source}" if unread else None

    def missing(self) -> str | None:
        """What has not arrived yet; None when everything has."""
        if behind := self.behind():
            return f"{self._mirror.name} is {behind:,} records behind"
        for group in self.groups:
            if group in self._resting:
                if reason := next(self._out_of_place(group), None):
                    return reason
                continue
            if unread := self._unread_told(group):
                return unread
            if left := self.untranslated(group):
                return f"{group} is {left:,} records behind in {self._mirror.target}"
        return None


def conditions(lab: Lab, mirrors: Sequence[Mirror], *, begun: bool = False) -> list[Condition]:
    """What must hold before a planned switch away from what these mirrors copy, and whether it does.

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
    """That mirrors are stopped: those that are going to be re-armed, or whose source is going to be wiped.

    Raises:
        LabError: Connect does not answer.
    """
    found = []
    for mirror in mirrors:
        rest = _rest(lab, mirror)
        names = filter(None, (mirror.connector, mirror.checkpoint_connector))
        states = {state for name in names for state in connector_states(rest, name)}
        told = ", ".join(sorted(states))
        found.append(Condition(f"{mirror.name}: connectors", told, "STOPPED, each of them", states == {"STOPPED"}))
    return found


def archive_conditions(lab: Lab, mirrors: Iterable[Mirror], leaving: Collection[str]) -> list[Condition]:
    """Whether groups that leave mirrors' targets have read what is an archive there when the mirrors are re-armed.

    They do not find elsewhere what is in no cluster but this one. Where names are kept, the target's own producers
    write in the copies, and drains see to what is read; in others nobody writes as long as the mirror stands still.

    Args:
        lab: what is set up.
        mirrors: which are going to be re-armed.
        leaving: the consumers that change over to another cluster, by their Deployments' names.

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
    """Waits until everything that was written at the source is at the target, read, and noted there as read.

    Raises:
        LabError: not within ``bound`` seconds; the message has the numbers.
    """
    deadline = time.monotonic() + bound

    def wait(flow: LiveMirror) -> None:
        wait_for(flow.missing, max(deadline - time.monotonic(), 0.0), _DRAINING)

    for mirror in mirrors:
        _with_flow(lab, mirror, wait)


def settle(lab: Lab, mirrors: Sequence[Mirror], bound: float) -> None:
    """Waits until what groups have read is at the target, and their offsets there grow no more.

    Their members have ended, and producers go on. MirrorMaker 2 does not tell when it has translated a group for the
    last time; but an offset that has not grown for longer than two of its rounds is as near as it gets.

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
            return None if time.monotonic() - last[0] >= _SETTLED_SECONDS else "offsets of groups grow still"

        wait_for(growing, max(deadline - time.monotonic(), 0.0), _SETTLING)

    for mirror in mirrors:
        _with_flow(lab, mirror, wait)


def fence_conditions(lab: Lab, region: str, since: FenceSnapshot | None) -> list[Condition]:
    """Whether nobody writes events in a region, and nobody may.

    Args:
        lab: what is set up.
        region: which is fenced.
        since: how far it was when it was; None for one that was not kept.

    Raises:
        LabError: the cluster does not answer.
    """
    with _looker(lab, region) as looker:
        topics = _topics_of_events(lab, region, looker)
        may = [user for user in looker.writers(topics) if user != ADMINISTRATOR]
        found = [Condition(f"{region}: users that may write events", ", ".join(may) or "none", "none", not may)]
        if since is None:
            return [*found, Condition(f"{region}: fence", "none was kept", "kept", False)]
        starts = {TopicPartition(topic, part): end for topic, of in since.ends.items() for part, end in of.items()}
        written = looker.written({**dict.fromkeys(looker.ends(topics), 0), **starts})
        told = "; ".join(f"{number:,} in {who}" for who, number in written.items())
        return [*found, Condition(f"{region}: records written since the fence", told or "none", "none", not written)]


def use_condition(lab: Lab, region: str) -> Condition:
    """Whether nobody reads in a region that is going to go, as a member of a group.

    Raises:
        LabError: the cluster does not answer.
    """
    with _looker(lab, region) as looker:
        used = {group: members for group in looker.groups() if (members := looker.members(group))}
    told = ", ".join(f"{group} ({members})" for group, members in used.items())
    return Condition(f"{region}: groups with members", told or "none", "none", not used)


def keep_silence(lab: Lab, home: Path, stage: str, region: str) -> None:
    """Keeps how far a region is, where nobody may write events any more.

    Raises:
        LabError: somebody may; the message names them. Or the cluster does not answer.
    """
    with _looker(lab, region) as looker:
        topics = _topics_of_events(lab, region, looker)
        if may := [user for user in looker.writers(topics) if user != ADMINISTRATOR]:
            raise LabError(
                f"{region}: the fence has a hole: {', '.join(may)} may still write events there; take the right away "
                "(manifests of the stage), and run it again"
            )
        ends = _as_offsets(looker.ends(topics))
    snapshots.keep_silence(home, stage, FenceSnapshot(region, time.time_ns() // 1_000_000, ends))


def own_topics(lab: Lab, mirror: Document) -> dict[str, list[str]]:
    """The topics that a mirror has for itself, by their region: its workers' state, and what it knows.

    Args:
        lab: what is set up.
        mirror: its resource.
    """
    target = mirror.content["spec"]["target"]
    state = [str(target[key]) for key in ("configStorageTopic", "offsetStorageTopic", "statusStorageTopic")]
    own = [found for found in lab.mirrors if found.name == mirror.name and found.region == mirror.namespace]
    topics = {}
    for region in {found.target for found in own}:
        known = [checkpoints(found) for found in own]
        known += [syncs for found in own for place, syncs in [offset_syncs(found)] if place == region]
        topics[region] = [*state, *known]
    return topics


def delete_topics(lab: Lab, region: str, topics: Sequence[str]) -> None:
    """Deletes topics of a region, those of them that are there.

    Raises:
        LabError: the cluster does not answer.
    """
    with _looker(lab, region) as looker:
        looker.delete_topics(topics, _DELETING_SECONDS)


def await_arrival(lab: Lab, group: str, region: str, bound: float) -> None:
    """Waits until mirrors that run have brought to a region what a group has read in their sources.

    Raises:
        LabError: not within ``bound`` seconds; the message says what is missing.
    """
    for mirror in lab.mirrors:
        if mirror.target == region and mirror.state == "running" and mirror.source not in lab.lost:
            _with_flow(lab, mirror, lambda flow: wait_for(lambda: flow.unarrived(group), bound, _DRAINING))


def start_group(
    lab: Lab, home: Path, stage: str, consumer: Consumer, entries: Iterable[LedgerEntry], *, translated: bool
) -> None:
    """Sets where a group begins in a cluster to which its members are going to change over, and keeps it as a mark.

    It begins with the first event that the ledger does not have.

    Args:
        lab: what is set up.
        home: its home.
        stage: which is carried out.
        consumer: a member, as it shall be; it does not run.
        entries: of its ledger.
        translated: whether it begins, in topics in which a mirror has translated how far the group is, there.

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
    with _looker(lab, region) as looker:
        if members := looker.members(group):
            raise LabError(f"{region}: {group} has {members} members still")
        topics = [topic for topic in looker.topics() if pattern.match(topic) and not is_internal(topic)]
        ends = looker.ends(topics)
        told = [
            topic
            for topic in (topics if translated else ())
            if any(m.target == region and selected_groups(m, [group]) and is_copy(m, topic) for m in lab.mirrors)
        ]
        committed = looker.committed(group, topics)
        starts = {part: offset for part, offset in committed.items() if part.topic in told}
        own = {part: end for part, end in ends.items() if part.topic not in told}
        starts |= own
        for record in looker.records({}, own):
            part, number = TopicPartition(record.topic, record.partition), number_of(record.headers)
            if number is None:
                # No ledger knows what nobody has numbered: the group itself has passed it here, or has not.
                processed = record.offset < committed.get(part, 0)
            else:
                run, sequence = number
                processed = holds(done.get((run, event_topic(lab.mirrors, part.topic), part.partition), []), sequence)
            if not processed:
                starts[part] = min(starts[part], record.offset)
        looker.set_committed(group, {part: starts[part] for part in own})
        fence = MirrorSnapshot(
            mirror=group_snapshot_id(group),
            source="",
            target=region,
            cluster=looker.cluster_id(),
            held_ms=time.time_ns() // 1_000_000,
            ends=_as_offsets(ends),
            groups={group: _as_offsets(starts)},
        )
    keep_mirror_snapshot(home, stage, fence)


def stay_group(lab: Lab, home: Path, stage: str, consumer: Consumer) -> None:
    """Keeps as a mark that a group need not change over: its members use the cluster already, and go on there.

    Raises:
        LabError: the cluster does not answer.
    """
    region = consumer.cluster_region
    with _looker(lab, region) as looker:
        cluster = looker.cluster_id()
    mark, now_ms = group_snapshot_id(consumer.group), time.time_ns() // 1_000_000
    keep_mirror_snapshot(
        home, stage, MirrorSnapshot(mark, "", region, cluster, now_ms, {}, groups={consumer.group: {}})
    )


def _topics_of_events(lab: Lab, region: str, looker: ClusterReader) -> list[str]:
    """What mirrors copy from a region, wherever they stand and whether they run."""
    there = looker.topics()
    return sorted(
        {name for mirror in lab.mirrors if mirror.source == region for name in selected_topics(mirror, there)}
    )


def keep_marks(lab: Lab, home: Path, stage: str, mirrors: Sequence[Mirror]) -> None:
    """Keeps how far everything was when mirrors were held.

    Raises:
        LabError: the target or Connect does not answer, or a mirror has tasks still.
    """
    for mirror in mirrors:
        rest = _rest(lab, mirror)
        held = mirror.connector if mirror.state in HELD else mirror.checkpoint_connector
        states = connector_states(rest, held)
        if states[1:]:
            raise LabError(f"{mirror.region}: {held} has tasks still: {', '.join(states[1:])}")
        held_ms = time.time_ns() // 1_000_000
        with _looker(lab, mirror.target) as target:
            copied = [topic for topic in target.topics() if is_copy(mirror, topic)]
            groups = selected_groups(mirror, target.groups())
            fence = MirrorSnapshot(
                mirror=snapshot_id(mirror),
                source=mirror.source,
                target=mirror.target,
                cluster=target.cluster_id(),
                held_ms=held_ms,
                ends=_as_offsets(target.ends(copied)),
                positions=_as_offsets(mirror_positions(rest, mirror.connector, mirror.source_alias)),
                groups={group: _as_offsets(target.committed(group, copied)) for group in groups},
            )
        keep_mirror_snapshot(home, stage, fence)


def rearm(lab: Lab, mirrors: Sequence[Mirror], bound: float) -> list[OffsetReset]:
    """Tells mirrors that are stopped where their sources end now, and forgets what they knew of the old ones.

    A mirror's positions, its map of offsets and its checkpoints belong to the cluster that it read. When that was made
    again, old positions are beyond its end, so that everything is copied once more, or below it, so that records are
    passed over; and an old map beside new positions translates groups ahead of where they are. So the caller has to
    see to it that nobody writes at either side, and that the target has what the source has. What it has under another
    name, where the source has nothing, is an archive of the cluster that was there before. A group that has read
    everything at the source is set to the end of the target: the mirror itself would only ever set it forward. So one
    that reads there is waited for. Groups that are at home at the target, and only translated, stay as they are.

    Raises:
        LabError: a cluster or Connect does not answer, a mirror is not stopped, a group has members at its target, or
            one has not read everything within ``bound`` seconds.
    """
    return [_with_flow(lab, mirror, lambda flow: flow.rearm(bound)) for mirror in mirrors]


def beyond(lab: Lab, mirror: Mirror) -> list[Any]:
    """The records of a mirror's source that it has not copied, in the order of their partitions.

    Raises:
        LabError: the source or Connect does not answer.
    """
    with _looker(lab, mirror.source) as source:
        found = mirror_positions(_rest(lab, mirror), mirror.connector, mirror.source_alias)
        ends = source.ends(selected_topics(mirror, source.topics()))
        starts = {part: position + 1 for part, position in found.items()}
        return sorted(source.records(starts, ends), key=lambda one: (one.topic, one.partition, one.offset))


def fence_ends(fence: MirrorSnapshot) -> Positions:
    """Where each partition ended at the target when a mirror was held."""
    return {TopicPartition(topic, part): end for topic, of in fence.ends.items() for part, end in of.items()}


def _records(cluster: ClusterReader, starts: Positions, ends: Positions) -> int:
    """How many records lie behind these offsets. Far from the end it is the offsets that are counted."""
    distance = sum(max(0, end - starts.get(part, 0)) for part, end in ends.items())
    return distance if distance > _COUNTED else cluster.records_from(starts, ends)


def _with_flow(lab: Lab, mirror: Mirror, use: Callable[[LiveMirror], T]) -> T:
    with ExitStack() as stack:
        source, target = (stack.enter_context(_looker(lab, region)) for region in (mirror.source, mirror.target))
        every = consumers(lab.topology)
        at_home = {one.group for one in every if one.cluster_region == mirror.target and one.replicas}
        return use(LiveMirror(mirror, _rest(lab, mirror), source, target, _resting(every, mirror), at_home))


def _resting(every: Iterable[Consumer], mirror: Mirror) -> set[str]:
    """The groups of consumers of which none uses a mirror's source, running or not."""
    return {one.group for one in every} - {one.group for one in every if one.cluster_region == mirror.source}


def _looker(lab: Lab, region: str) -> ClusterReader:
    return ClusterReader(region, connection_for(lab.region(region), ADMINISTRATOR))


def _rest(lab: Lab, mirror: Mirror) -> ConnectClient:
    connect = next(found.connect for found in lab.region(mirror.region).mirrors if found.connector == mirror.connector)
    return ConnectClient.of(connect)


def _as_offsets(positions: Positions) -> Offsets:
    found: Offsets = {}
    for part, offset in sorted(positions.items()):
        found.setdefault(part.topic, {})[part.partition] = offset
    return found
