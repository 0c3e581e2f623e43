"""The parts of a switch that ask clusters, each in a form that can be sent to a pod.

On this machine they run in the caller's process. On Kubernetes the clusters' addresses resolve only in pods, so a part
is sent there as JSON with the snapshots kept so far; its answer and its new snapshots come back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter

from loosehanger.errors import LabError
from loosehanger.lab import snapshots
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.validation import Entry
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.programs import Consumer
from loosehanger.lab.record import Lab
from loosehanger.lab.recovery import Leg, Recovery, recovery
from loosehanger.lab.scenario import COPYING, DROPPED, HELD, REARMED, Scenario
from loosehanger.lab.snapshots import group_snapshot_id, read_snapshots
from loosehanger.ledger import ledger_files, read_entries
from loosehanger.stages import switching
from loosehanger.stages.salvage import rescue
from loosehanger.stages.switching import Condition

DRAIN_SECONDS = 60
"""Seconds that records in flight may take to arrive, once producers are stopped."""


class _Step(Entry):
    changes: ClassVar[bool] = True
    """Whether it changes the lab: then no other step may be running."""
    stage: str
    """The stage whose snapshots are read and kept."""

    @abstractmethod
    def take(self, lab: Lab, home: Path) -> Any:
        """Runs it where the clusters can be reached; the answer can be written as JSON.

        Raises:
            LabError: a cluster or Connect does not answer, or waiting timed out.
        """


class Gate(_Step):
    """Checks what must hold before a stage, beside its place among the stages; answers with the conditions."""

    changes: ClassVar[bool] = False
    kind: Literal["gate"] = "gate"
    begun: bool
    """Whether the stage was begun and interrupted."""
    moves: tuple[str, ...]
    """The ids of the mirrors that must be caught up, because they will be held."""
    still: tuple[str, ...]
    """The ids of those that must be stopped already."""
    rearms: tuple[str, ...]
    """The ids of those whose offsets will be reset."""
    starts: tuple[str, ...]
    """The consumers that move to another cluster, by the names of their Deployments."""
    fences: tuple[tuple[str, str], ...]
    """The fenced regions, each with the stage that fenced it; that stage may be this one."""
    going: tuple[str, ...]
    """The regions that will be deleted, where no group may have members."""

    def take(self, lab: Lab, home: Path) -> list[dict[str, Any]]:
        """See ``_Step``."""
        found: list[Condition] = []
        for region, fenced in self.fences:
            kept = read_snapshots(home, fenced).silences
            since = next((silence for silence in kept if silence.region == region), None)
            found += switching.fence_conditions(lab, region, since)
        found += [switching.use_condition(lab, region) for region in self.going]
        found += switching.conditions(lab, _recorded(lab, self.moves), begun=self.begun)
        found += switching.standstill(lab, _recorded(lab, self.still))
        found += switching.archive_conditions(lab, _recorded(lab, self.rearms), self.starts)
        return [asdict(condition) for condition in found]


class Arrival(_Step):
    """Waits until records in flight have arrived."""

    kind: Literal["arrival"] = "arrival"
    drains: tuple[str, ...]
    """The ids of the mirrors that must drain."""
    settles: tuple[str, ...]
    """The ids of those whose groups' offsets must settle."""

    def take(self, lab: Lab, home: Path) -> None:  # noqa: ARG002 - as every step
        """See ``_Step``."""
        # The mirrors as recorded, before the stage changes them.
        switching.settle(lab, _recorded(lab, self.settles), DRAIN_SECONDS)
        switching.drain(lab, _recorded(lab, self.drains), DRAIN_SECONDS)


class KeepSilence(_Step):
    """Checks that no user may write events in a region, and keeps a snapshot of its offsets."""

    kind: Literal["silence"] = "silence"
    region: str

    def take(self, lab: Lab, home: Path) -> None:
        """See ``_Step``."""
        switching.keep_silence(lab, home, self.stage, self.region)


class KeepMarks(_Step):
    """Keeps a snapshot of all offsets once mirrors are held."""

    kind: Literal["hold"] = "hold"
    mirrors: tuple[Mirror, ...]

    def take(self, lab: Lab, home: Path) -> None:
        """See ``_Step``."""
        switching.keep_marks(lab, home, self.stage, self.mirrors)


class StartGroups(_Step):
    """Sets the offsets of groups, each once in a stage: once members run, it would rewind them."""

    kind: Literal["start"] = "start"
    region: str
    """The region of the members and their ledgers."""
    stays: tuple[Consumer, ...]
    """Members of groups that already use the cluster."""
    starts: tuple[Consumer, ...]
    """Members of groups that move to another cluster, as they are afterwards."""
    translated: bool
    """Whether a mirror has translated the groups' offsets."""

    def take(self, lab: Lab, home: Path) -> bool:
        """See ``_Step``; whether a group's offsets were set."""
        kept = {fence.mirror for fence in read_snapshots(home, self.stage).fences}
        for consumer in self.stays:
            if group_snapshot_id(consumer.group) not in kept:
                switching.stay_group(lab, home, self.stage, consumer)
        wanted = [consumer for consumer in self.starts if group_snapshot_id(consumer.group) not in kept]
        for consumer in wanted:
            folder = lab.region(self.region).ledgers.get(consumer.name)
            if folder is None:
                raise LabError(f"{self.region}: '{consumer.name}' keeps no ledger that can be read from here")
            switching.await_arrival(lab, consumer.group, consumer.cluster_region, DRAIN_SECONDS)
            entries = read_entries(ledger_files(folder))
            switching.start_group(lab, home, self.stage, consumer, entries, translated=self.translated)
        return bool(wanted)


class RearmMirrors(_Step):
    """Resets the offsets of mirrors, each once in a stage: once producers write again, it would skip records."""

    kind: Literal["rearm"] = "rearm"
    mirrors: tuple[Mirror, ...]

    def take(self, lab: Lab, home: Path) -> bool:
        """See ``_Step``; whether a mirror's offsets were reset."""
        wanted = [mirror for mirror in self.mirrors if not snapshots.is_rearmed(home, self.stage, mirror)]
        for mirror in wanted:
            for done in switching.rearm(lab, [mirror], DRAIN_SECONDS):
                snapshots.keep_rearmed(home, self.stage, done)
        return bool(wanted)


class RescueRecords(_Step):
    """Salvages the records that only the sources of mirrors have."""

    kind: Literal["rescue"] = "rescue"
    mirrors: tuple[Mirror, ...]
    write: bool
    """Whether they are written to the targets as well."""

    def take(self, lab: Lab, home: Path) -> bool:
        """See ``_Step``; always True, so that the command shows the result."""
        for mirror in self.mirrors:
            fence = snapshots.last_mirror_snapshot(home, mirror)
            if fence is None:
                raise LabError(f"no snapshot has the offsets of when mirror {mirror.name} was held; salvage needs one")
            snapshots.keep_rescue(home, self.stage, rescue(lab, home, mirror, fence, write=self.write))
        return True


class ForgetTopics(_Step):
    """Deletes the internal topics of mirrors."""

    kind: Literal["forget"] = "forget"
    topics: dict[str, tuple[str, ...]]
    """Their names, by region."""

    def take(self, lab: Lab, home: Path) -> None:  # noqa: ARG002 - as every step
        """See ``_Step``."""
        for region, names in self.topics.items():
            switching.delete_topics(lab, region, names)


class Legs(_Step):
    """Reads how long a switch took; answers with the recovery, or None."""

    changes: ClassVar[bool] = False
    kind: Literal["legs"] = "legs"

    def take(self, lab: Lab, home: Path) -> dict[str, Any] | None:
        """See ``_Step``."""
        entries = read_entries(file for folder in lab.ledgers for file in ledger_files(folder))
        found = recovery(read_snapshots(home, self.stage), entries)
        return None if found is None else asdict(found)


SwitchStep = Gate | Arrival | KeepSilence | KeepMarks | StartGroups | RearmMirrors | RescueRecords | ForgetTopics | Legs
STEPS: TypeAdapter[SwitchStep] = TypeAdapter(Annotated[SwitchStep, Field(discriminator="kind")])
"""Reads a step from JSON."""


def ask(lab: Lab, home: Path, step: SwitchStep) -> Any:
    """Runs a step where the lab's clusters can be reached; returns its answer.

    Args:
        lab: what is set up.
        home: its home, with the snapshots.
        step: which.

    Raises:
        LabError: see ``_Step.take``; or the pod does not start.
    """
    if lab.pod is None:
        return step.take(lab, home)
    from loosehanger.stages import remote_steps  # its imports are slow

    return remote_steps.take(lab, lab.pod, home, step)


def conditions(lab: Lab, home: Path, scenario: Scenario, stage: str) -> list[Condition]:
    """Everything that must hold before a stage, beside its place among the stages, and whether it does.

    Raises:
        LabError: a cluster or Connect does not answer.
    """
    gate = _gate(lab, home, scenario, stage)
    if not (gate.moves or gate.still or gate.fences or gate.going):
        return []
    return [Condition(**found) for found in ask(lab, home, gate)]


def legs(lab: Lab, home: Path, stage: str) -> Recovery | None:
    """How long a switch took; None if the stage switched nothing.

    Raises:
        LabError: the ledgers cannot be reached.
    """
    found = ask(lab, home, Legs(stage=stage))
    if found is None:
        return None
    return Recovery(found["begins"], tuple(Leg(**leg) for leg in found["legs"]))


def forget_mirrors(lab: Lab, stage: str, mirrors: Iterable[Document]) -> ForgetTopics:
    """Returns the step that deletes the internal topics of mirrors: the workers' state, offset-syncs and checkpoints.

    Args:
        lab: what is set up, with the mirrors.
        stage: the stage that deletes them.
        mirrors: those that are deleted.
    """
    topics: dict[str, dict[str, None]] = {}
    for mirror in mirrors:
        for region, names in switching.own_topics(lab, mirror).items():
            topics.setdefault(region, {}).update(dict.fromkeys(names))
    return ForgetTopics(stage=stage, topics={region: tuple(names) for region, names in topics.items()})


def _gate(lab: Lab, home: Path, scenario: Scenario, stage: str) -> Gate:
    at = scenario.stage(stage)
    begun = stage == lab.unfinished
    gate = Gate(stage=stage, begun=begun, moves=(), still=(), rearms=(), starts=at.starts, fences=(), going=())
    if at.lost:
        return gate
    moves = [
        mirror.id
        for mirror in lab.mirrors
        for life in [at.mirrors.get(mirror.name)]
        if mirror.state == "running" and ((life in HELD and life != DROPPED) or (life == COPYING and mirror.translates))
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
    rearms = tuple(
        mirror.id
        for mirror in lab.mirrors
        if at.mirrors.get(mirror.name) in REARMED
        and mirror.state != "running"
        # The interrupted run may have started it without recording that.
        and not (again and snapshots.is_rearmed(home, stage, mirror))
    )
    still = (*(mirror.id for mirror in lab.mirrors if mirror.source in wiped and mirror.id not in rearms), *rearms)
    found: Mapping[str, Any] = {"moves": tuple(moves), "still": still, "rearms": rearms, "fences": tuple(fences)}
    return gate.model_copy(update={**found, "going": tuple(going)})


def _recorded(lab: Lab, ids: Iterable[str]) -> list[Mirror]:
    wanted = set(ids)
    return [mirror for mirror in lab.mirrors if mirror.id in wanted]
