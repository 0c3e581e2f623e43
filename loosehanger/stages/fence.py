"""The write fence of a region, and the snapshots of offsets when mirrors are held."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from kafka import TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka.offsets import Positions, connector_states, mirror_positions
from loosehanger.lab import snapshots
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import (
    is_copy,
    selected_groups,
)
from loosehanger.lab.record import Lab
from loosehanger.lab.scenario import HELD
from loosehanger.lab.snapshots import (
    FenceSnapshot,
    MirrorSnapshot,
    keep_mirror_snapshot,
    snapshot_id,
)
from loosehanger.stages import live_mirror


def fence_writes(lab: Lab, home: Path, stage: str, region: str) -> None:
    """Keeps a snapshot of the offsets of a fenced region.

    Raises:
        LabError: a user may still write; the message names them. Or the cluster does not answer.
    """
    with live_mirror.open_cluster(lab, region) as reader:
        topics = live_mirror.topics_of_events(lab, region, reader)
        if may := [user for user in reader.writers(topics) if user != ADMINISTRATOR]:
            raise LabError(
                f"{region}: write fence incomplete: {', '.join(may)} still has Write; revoke it in the stage's "
                "manifests, and run the stage again"
            )
        ends = live_mirror.as_offsets(reader.ends(topics))
    snapshots.keep_write_fence(home, stage, FenceSnapshot(region, time.time_ns() // 1_000_000, ends))


def snapshot_mirrors(lab: Lab, home: Path, stage: str, mirrors: Sequence[Mirror]) -> None:
    """Keeps a snapshot of all offsets when mirrors were held.

    Raises:
        LabError: the target or Connect does not answer, or a mirror still has tasks.
    """
    for mirror in mirrors:
        rest = live_mirror.connect_of(lab, mirror)
        held = mirror.connector if mirror.state in HELD else mirror.checkpoint_connector
        states = connector_states(rest, held)
        if states[1:]:
            raise LabError(f"{mirror.region}: {held} still has tasks: {', '.join(states[1:])}")
        held_ms = time.time_ns() // 1_000_000
        with live_mirror.open_cluster(lab, mirror.target) as target:
            copied = [topic for topic in target.topics() if is_copy(mirror, topic)]
            groups = selected_groups(mirror, target.groups())
            fence = MirrorSnapshot(
                mirror=snapshot_id(mirror),
                source=mirror.source,
                target=mirror.target,
                cluster=target.id(),
                held_ms=held_ms,
                ends=live_mirror.as_offsets(target.ends(copied)),
                positions=live_mirror.as_offsets(mirror_positions(rest, mirror.connector, mirror.source_alias)),
                groups={group: live_mirror.as_offsets(target.committed(group, copied)) for group in groups},
            )
        keep_mirror_snapshot(home, stage, fence)


def fence_ends(fence: MirrorSnapshot) -> Positions:
    """Where each partition ended at the target when a mirror was held."""
    return {TopicPartition(topic, part): end for topic, of in fence.ends.items() for part, end in of.items()}
