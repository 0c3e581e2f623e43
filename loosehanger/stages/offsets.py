"""Offsets of groups and of mirrors that a stage sets, and the records beyond them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kafka import TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka.offsets import mirror_positions
from loosehanger.lab.mirrors.lineage import event_topic
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import (
    is_copy,
    is_internal,
    selected_groups,
    selected_topics,
)
from loosehanger.lab.programs import Consumer
from loosehanger.lab.record import Lab
from loosehanger.lab.snapshots import (
    MirrorSnapshot,
    OffsetReset,
    group_snapshot_id,
    keep_mirror_snapshot,
)
from loosehanger.ledger import LedgerEntry, holds, normal, number_of
from loosehanger.stages import live_mirror


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
    with live_mirror.open_cluster(lab, region) as reader:
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
            ends=live_mirror.as_offsets(ends),
            groups={group: live_mirror.as_offsets(starts)},
        )
    keep_mirror_snapshot(home, stage, fence)


def stay_group(lab: Lab, home: Path, stage: str, consumer: Consumer) -> None:
    """Keeps a snapshot of a group whose members already use the cluster, and stay there.

    Raises:
        LabError: the cluster does not answer.
    """
    region = consumer.cluster_region
    with live_mirror.open_cluster(lab, region) as reader:
        cluster = reader.id()
    snapshot, now_ms = group_snapshot_id(consumer.group), time.time_ns() // 1_000_000
    keep_mirror_snapshot(
        home, stage, MirrorSnapshot(snapshot, "", region, cluster, now_ms, {}, groups={consumer.group: {}})
    )


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
    return [live_mirror.with_flow(lab, mirror, lambda flow: flow.reset_offsets(bound)) for mirror in mirrors]


def beyond(lab: Lab, mirror: Mirror) -> list[Any]:
    """The records of a mirror's source that it has not copied, in the order of their partitions.

    Raises:
        LabError: the source or Connect does not answer.
    """
    with live_mirror.open_cluster(lab, mirror.source) as source:
        found = mirror_positions(live_mirror.connect_of(lab, mirror), mirror.connector, mirror.source_alias)
        ends = source.ends(selected_topics(mirror, source.topics()))
        starts = {part: position + 1 for part, position in found.items()}
        return sorted(source.records(starts, ends), key=lambda one: (one.topic, one.partition, one.offset))


def delete_topics(lab: Lab, region: str, topics: Sequence[str]) -> None:
    """Deletes topics of a region, where they exist.

    Raises:
        LabError: the cluster does not answer.
    """
    with live_mirror.open_cluster(lab, region) as reader:
        reader.delete_topics(topics, live_mirror.DELETING_SECONDS)
