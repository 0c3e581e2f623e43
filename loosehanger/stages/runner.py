"""Runs one step of a stage in one region: what the platform does, and the snapshots that a switch needs besides."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loosehanger.lab.plan import Plan, Step
from loosehanger.lab.record import load_lab
from loosehanger.lab.scenario import MIRROR
from loosehanger.lab.snapshots import (
    RegionEnding,
    RegionLoss,
    RegionWipe,
    has_mirror_snapshot,
    is_lost,
    is_wiped,
    keep_ending,
    keep_loss,
    keep_wipe,
)
from loosehanger.platforms.outcome import Outcome
from loosehanger.stages.gates import prove
from loosehanger.stages.steps import (
    Arrival,
    KeepMarks,
    KeepSilence,
    RearmMirrors,
    RescueRecords,
    StartGroups,
    SwitchStep,
    ask,
    forget_mirrors,
)

RunStep = Callable[[Plan, Step], Outcome]
"""A platform's part of a step, in one region."""


@dataclass(frozen=True)
class StageRunner:
    """A stage that was planned, and how it is run.

    On every platform a switch waits, sets offsets and keeps snapshots in the same way; the platform applies resources.
    """

    home: Path
    """The lab's home."""
    stage: str
    """The stage's name; empty where there is no scenario."""
    plans: Mapping[str, Plan]
    """The plan of each region."""
    report: Callable[[str], None]
    """Shows a line that names what is waited for."""
    check_mode: bool = False
    """Whether to report only what would change."""
    force: bool = False
    """Whether the stage waits for nothing and needs no proof."""
    write_salvaged: bool = False
    """Whether salvaged records are written to the mirrors' targets."""

    def run(self, region: str, step: Step, of_platform: RunStep) -> Outcome:
        """Runs one step in one region, and waits until it is done.

        Args:
            region: which.
            step: which.
            of_platform: what the platform does in this step.

        Raises:
            LabError: the step failed; run the stage again.
        """
        plan = self.plans[region]
        match step:
            case Step.DRAIN | Step.FENCE_WRITES | Step.PROOF:
                if not self.check_mode and not self.force and plan.has(step):
                    self._wait(plan, step)
                return Outcome()
            case Step.SEED_GROUP_OFFSETS | Step.RESET_MIRROR_OFFSETS | Step.SALVAGE:
                return Outcome() if self.check_mode or not plan.has(step) else self._switch(plan, step)
            case Step.WIPE if is_wiped(self.home, self.stage, region):
                return Outcome()
            case _ if self.check_mode:
                return of_platform(plan, step)
            case Step.KILL if plan.lost:
                return self._kill(plan, of_platform)
            case Step.WIPE if plan.wiped:
                return self._wipe(plan, of_platform)
            case Step.DECOMMISSION if plan.gone:
                # Kept before anything is deleted: a run that is interrupted here must not start from its conditions.
                keep_ending(self.home, self.stage, RegionEnding(region, _now_ms()))
        return self._apply(plan, step, of_platform)

    def _wait(self, plan: Plan, step: Step) -> None:
        """Waits for what must be true before the next step; changes nothing."""
        if step is Step.PROOF:
            prove(self.home, self.stage, self.report)
        elif step is Step.DRAIN:
            drains, settles = (tuple(mirror.id for mirror in of) for of in (plan.drains, plan.settles))
            self._ask(Arrival(stage=self.stage, drains=drains, settles=settles))
        else:
            self._ask(KeepSilence(stage=self.stage, region=plan.region))

    def _switch(self, plan: Plan, step: Step) -> Outcome:
        """Changes the offsets of groups and of mirrors that are held, or salvages records."""
        work: StartGroups | RearmMirrors | RescueRecords
        if step is Step.SEED_GROUP_OFFSETS:
            starts, stays, translated = plan.starts, plan.stays, not plan.planned
            work = StartGroups(stage=self.stage, region=plan.region, starts=starts, stays=stays, translated=translated)
        elif step is Step.RESET_MIRROR_OFFSETS:
            work = RearmMirrors(stage=self.stage, mirrors=tuple(plan.rearmed))
        else:
            work = RescueRecords(stage=self.stage, mirrors=tuple(plan.rescued), write=self.write_salvaged)
        return Outcome(is_switched=self._ask(work))

    def _kill(self, plan: Plan, of_platform: RunStep) -> Outcome:
        """Kills a region, and keeps when it died: a second run finds nothing that could still be killed."""
        first = not is_lost(self.home, self.stage, plan.region)
        if first:
            keep_loss(self.home, self.stage, RegionLoss(plan.region, _now_ms()))
        outcome = of_platform(plan, Step.KILL)
        if first and outcome.died_ms is not None:
            keep_loss(self.home, self.stage, RegionLoss(plan.region, outcome.died_ms))
        return outcome

    def _wipe(self, plan: Plan, of_platform: RunStep) -> Outcome:
        """Wipes a region; once in a stage, however often it runs."""
        outcome = of_platform(plan, Step.WIPE)
        keep_wipe(self.home, self.stage, RegionWipe(plan.region, _now_ms()))
        return outcome

    def _apply(self, plan: Plan, step: Step, of_platform: RunStep) -> Outcome:
        leaving = [document for document in plan.deletes(step) if document.kind == MIRROR]
        # Read while the mirrors are recorded: the record no longer names their topics once they are deleted.
        forget = forget_mirrors(load_lab(self.home), self.stage, leaving) if leaving else None
        outcome = of_platform(plan, step)
        if forget:
            self._ask(forget)
        if step is Step.FENCE_MIRRORS and plan.mark:
            # A mirror that is held and has no snapshot was held by a run that was interrupted before it kept one.
            held = [m for m in plan.held if m.name in plan.fenced or not has_mirror_snapshot(self.home, self.stage, m)]
            if held:
                self._ask(KeepMarks(stage=self.stage, mirrors=tuple(held)))
        return outcome

    def _ask(self, step: SwitchStep) -> bool:
        return bool(ask(load_lab(self.home), self.home, step))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
