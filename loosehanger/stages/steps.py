"""Runs the steps of a switch that ask clusters, where the clusters can be reached.

On this machine that is the caller's process. On Kubernetes the clusters' addresses resolve only in pods, so a step is
sent there as JSON with the snapshots kept so far; its answer and its new snapshots come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter

from loosehanger.errors import LabError
from loosehanger.lab import snapshots
from loosehanger.lab.actions import (
    ClusterAction,
    DeleteTopics,
    DrainMirrors,
    FenceWrites,
    ResetMirrorOffsets,
    SalvageRecords,
    SeedGroupOffsets,
    SnapshotMirrors,
)
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab
from loosehanger.lab.recovery import Leg, Recovery, recovery
from loosehanger.lab.scenario import COPYING, DROPPED, HELD, RESET, Scenario
from loosehanger.lab.snapshots import group_snapshot_id, read_snapshots
from loosehanger.ledger import ledger_files, read_entries
from loosehanger.platforms.operations import RunInPod
from loosehanger.stages import drain, fence, gates, offsets
from loosehanger.stages.live_mirror import Condition
from loosehanger.stages.salvage import rescue

DRAIN_SECONDS = 60
"""Seconds that records in flight may take to arrive, once producers are stopped."""


class Gate(ClusterAction):
    """Checks what must hold before a stage, beside its place among the stages; answers with the conditions."""

    changes: ClassVar[bool] = False
    kind: Literal["gate"] = "gate"
    begun: bool
    """Whether the stage was begun and interrupted."""
    moves: tuple[str, ...]
    """The ids of the mirrors that must be caught up, because they will be held."""
    still: tuple[str, ...]
    """The ids of those that must be stopped already."""
    resets: tuple[str, ...]
    """The ids of those whose offsets will be reset."""
    starts: tuple[str, ...]
    """The consumers that move to another cluster, by the names of their Deployments."""
    fences: tuple[tuple[str, str], ...]
    """The fenced regions, each with the stage that fenced it; that stage may be this one."""
    going: tuple[str, ...]
    """The regions that will be deleted, where no group may have members."""


class Legs(ClusterAction):
    """Reads how long a switch took; answers with the recovery, or None."""

    changes: ClassVar[bool] = False
    kind: Literal["legs"] = "legs"


SwitchStep = (
    Gate
    | DrainMirrors
    | FenceWrites
    | SnapshotMirrors
    | SeedGroupOffsets
    | ResetMirrorOffsets
    | SalvageRecords
    | DeleteTopics
    | Legs
)
STEPS: TypeAdapter[SwitchStep] = TypeAdapter(Annotated[SwitchStep, Field(discriminator="kind")])
"""Reads a step from JSON."""


def take(step: ClusterAction, lab: Lab, home: Path) -> Any:
    """Runs a step where the clusters can be reached; the answer can be written as JSON.

    Args:
        step: which.
        lab: what is set up.
        home: its home, with the snapshots.

    Returns:
        For a step that changes offsets or salvages records, whether it did; the conditions of a gate; the legs.

    Raises:
        LabError: a cluster or Connect does not answer, or waiting timed out.
    """
    match step:
        case Gate():
            return _conditions(step, lab, home)
        case DrainMirrors():
            # The mirrors as recorded, before the stage changes them.
            drain.settle(lab, _recorded(lab, step.settles), DRAIN_SECONDS)
            return drain.drain(lab, _recorded(lab, step.drains), DRAIN_SECONDS)
        case FenceWrites():
            return fence.fence_writes(lab, home, step.stage, step.region)
        case SnapshotMirrors():
            return fence.snapshot_mirrors(lab, home, step.stage, step.mirrors)
        case SeedGroupOffsets():
            return _seed(step, lab, home)
        case ResetMirrorOffsets():
            return _reset(step, lab, home)
        case SalvageRecords():
            return _salvage(step, lab, home)
        case DeleteTopics():
            for region, names in step.topics.items():
                offsets.delete_topics(lab, region, names)
            return None
        case _:
            entries = read_entries(file for folder in lab.ledgers for file in ledger_files(folder))
            found = recovery(read_snapshots(home, step.stage), entries)
            return None if found is None else asdict(found)


def _conditions(gate: Gate, lab: Lab, home: Path) -> list[dict[str, Any]]:
    """The conditions of a gate, and whether each holds."""
    found: list[Condition] = []
    for region, fenced in gate.fences:
        kept = read_snapshots(home, fenced).write_fences
        since = next((one for one in kept if one.region == region), None)
        found += gates.fence_conditions(lab, region, since)
    found += [gates.use_condition(lab, region) for region in gate.going]
    found += gates.conditions(lab, _recorded(lab, gate.moves), begun=gate.begun)
    found += gates.standstill(lab, _recorded(lab, gate.still))
    found += gates.archive_conditions(lab, _recorded(lab, gate.resets), gate.starts)
    return [asdict(condition) for condition in found]


def _seed(step: SeedGroupOffsets, lab: Lab, home: Path) -> bool:
    """Sets the offsets of groups that have no snapshot yet; whether any was set."""
    kept = {one.mirror for one in read_snapshots(home, step.stage).fences}
    for consumer in step.stays:
        if group_snapshot_id(consumer.group) not in kept:
            offsets.stay_group(lab, home, step.stage, consumer)
    wanted = [consumer for consumer in step.starts if group_snapshot_id(consumer.group) not in kept]
    for consumer in wanted:
        folder = lab.region(step.region).ledgers.get(consumer.name)
        if folder is None:
            raise LabError(f"{step.region}: '{consumer.name}' keeps no ledger that can be read from here")
        drain.await_arrival(lab, consumer.group, consumer.cluster_region, DRAIN_SECONDS)
        entries = read_entries(ledger_files(folder))
        offsets.start_group(lab, home, step.stage, consumer, entries, translated=step.translated)
    return bool(wanted)


def _reset(step: ResetMirrorOffsets, lab: Lab, home: Path) -> bool:
    """Resets the offsets of mirrors that this stage has not reset yet; whether any was."""
    wanted = [mirror for mirror in step.mirrors if not snapshots.is_reset(home, step.stage, mirror)]
    for mirror in wanted:
        for done in offsets.reset_mirror_offsets(lab, [mirror], DRAIN_SECONDS):
            snapshots.keep_reset(home, step.stage, done)
    return bool(wanted)


def _salvage(step: SalvageRecords, lab: Lab, home: Path) -> bool:
    """Salvages records; always True, so that the command shows the result."""
    for mirror in step.mirrors:
        snapshot = snapshots.last_mirror_snapshot(home, mirror)
        if snapshot is None:
            raise LabError(f"no snapshot has the offsets of when mirror {mirror.name} was held; salvage needs one")
        snapshots.keep_rescue(home, step.stage, rescue(lab, home, mirror, snapshot, write=step.write))
    return True


def ask(lab: Lab, home: Path, run_in_pod: RunInPod, step: ClusterAction) -> Any:
    """Runs a step where the lab's clusters can be reached; returns its answer.

    Args:
        lab: what is set up.
        home: its home, with the snapshots.
        run_in_pod: runs it in a pod, where the lab has pods.
        step: which.

    Raises:
        LabError: see ``take``; or the pod does not start.
    """
    if lab.pod is None:
        return take(step, lab, home)
    from loosehanger.stages import remote_steps  # its imports are slow

    return remote_steps.take(lab, lab.pod, home, run_in_pod, step)


def conditions(lab: Lab, home: Path, run_in_pod: RunInPod, scenario: Scenario, stage: str) -> list[Condition]:
    """Everything that must hold before a stage, beside its place among the stages, and whether it does.

    Raises:
        LabError: a cluster or Connect does not answer.
    """
    gate = _gate(lab, home, scenario, stage)
    if not (gate.moves or gate.still or gate.fences or gate.going):
        return []
    return [Condition(**found) for found in ask(lab, home, run_in_pod, gate)]


def legs(lab: Lab, home: Path, run_in_pod: RunInPod, stage: str) -> Recovery | None:
    """How long a switch took; None if the stage switched nothing.

    Raises:
        LabError: the ledgers cannot be reached.
    """
    found = ask(lab, home, run_in_pod, Legs(stage=stage))
    if found is None:
        return None
    return Recovery(found["begins"], tuple(Leg(**leg) for leg in found["legs"]))


def _gate(lab: Lab, home: Path, scenario: Scenario, stage: str) -> Gate:
    at = scenario.stage(stage)
    begun = stage == lab.unfinished
    gate = Gate(stage=stage, begun=begun, moves=(), still=(), resets=(), starts=at.starts, fences=(), going=())
    if at.lost:
        return gate
    moves = [
        mirror.id
        for mirror in lab.mirrors
        for state in [at.mirrors.get(mirror.name)]
        if mirror.state == "running"
        and ((state in HELD and state != DROPPED) or (state == COPYING and mirror.translates))
    ]
    # A run that was interrupted while it deleted a region finds it half deleted; the conditions held before.
    ended = [region for region in at.gone if begun and snapshots.is_ending(home, stage, region)]
    going = [region for region in at.gone if region in lab.regions and region not in ended]
    fences = [
        (region, fenced)
        for region in at.fenced
        if region in going or region not in at.gone
        if (fenced := scenario.fence_of(stage, region)) != stage
    ]
    # A stage that starts over ignores the snapshots of its earlier run.
    again = stage in (lab.stage, lab.unfinished)
    wiped = [region for region in at.rebuilt if not (again and snapshots.is_wiped(home, stage, region))]
    resets = tuple(
        mirror.id
        for mirror in lab.mirrors
        if at.mirrors.get(mirror.name) in RESET
        and mirror.state != "running"
        # The interrupted run may have started it without recording that.
        and not (again and snapshots.is_reset(home, stage, mirror))
    )
    still = (*(mirror.id for mirror in lab.mirrors if mirror.source in wiped and mirror.id not in resets), *resets)
    found: Mapping[str, Any] = {"moves": tuple(moves), "still": still, "resets": resets, "fences": tuple(fences)}
    return gate.model_copy(update={**found, "going": tuple(going)})


def _recorded(lab: Lab, ids: Iterable[str]) -> list[Mirror]:
    wanted = set(ids)
    return [mirror for mirror in lab.mirrors if mirror.id in wanted]
