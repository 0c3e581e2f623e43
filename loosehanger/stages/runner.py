"""Runs one step of a stage in one region: what the platform does, and the snapshots that a switch needs besides."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loosehanger.lab.actions import (
    Action,
    ClusterAction,
    Decommission,
    DrainMirrors,
    FenceWrites,
    Kill,
    PlatformAction,
    Prove,
    RecordResources,
    SalvageRecords,
    SnapshotMirrors,
    Wipe,
)
from loosehanger.lab.plan import Plan, Step
from loosehanger.lab.record import load_lab
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
from loosehanger.platforms.operations import RunInPod
from loosehanger.platforms.outcome import Outcome
from loosehanger.stages.stage_proof import prove
from loosehanger.stages.steps import ask

RunAction = Callable[[PlatformAction], Outcome]
"""Runs an action of a platform, in one region."""


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
    run_in_pod: RunInPod
    check_mode: bool = False
    """Whether to report only what would change."""
    force: bool = False
    """Whether the stage waits for nothing and needs no proof."""
    write_salvaged: bool = False
    """Whether salvaged records are written to the mirrors' targets."""

    def run(self, region: str, step: Step, of_platform: RunAction) -> Outcome:
        """Runs one step in one region, and waits until it is done.

        Args:
            region: which.
            step: which.
            of_platform: runs what the platform does in this step.

        Raises:
            LabError: the step failed; run the stage again.
        """
        outcome = Outcome()
        for action in self.plans[region].actions.get(step, ()):
            found = self._run(region, action, of_platform)
            # The record changes with what is applied: it counts where nothing else has changed.
            if not (isinstance(action, RecordResources) and outcome.changed):
                outcome.add(found)
        return outcome

    def _run(self, region: str, action: Action, of_platform: RunAction) -> Outcome:
        match action:
            case ClusterAction() | Prove() if self.check_mode:
                return Outcome()
            case DrainMirrors() | FenceWrites() | Prove() if self.force:
                return Outcome()
            case Prove():
                prove(self.home, self.stage, self.report)
                return Outcome()
            case SnapshotMirrors():
                return self._snapshot(action)
            case SalvageRecords():
                return self._ask(action.model_copy(update={"write": self.write_salvaged}))
            case ClusterAction():
                return self._ask(action)
            case Wipe() if is_wiped(self.home, self.stage, region):
                return Outcome()
            case _ if self.check_mode:
                return of_platform(action)
            case Kill():
                return self._kill(region, action, of_platform)
            case Wipe():
                return self._wipe(region, action, of_platform)
            case Decommission():
                # Kept before anything is deleted: a run that is interrupted here must not start from its conditions.
                keep_ending(self.home, self.stage, RegionEnding(region, _now_ms()))
        return of_platform(action)

    def _kill(self, region: str, action: Kill, of_platform: RunAction) -> Outcome:
        """Kills a region, and keeps when it died: a second run finds nothing that could still be killed."""
        first = not is_lost(self.home, self.stage, region)
        if first:
            keep_loss(self.home, self.stage, RegionLoss(region, _now_ms()))
        outcome = of_platform(action)
        if first and outcome.died_ms is not None:
            keep_loss(self.home, self.stage, RegionLoss(region, outcome.died_ms))
        return outcome

    def _wipe(self, region: str, action: Wipe, of_platform: RunAction) -> Outcome:
        """Wipes a region; once in a stage, however often it runs."""
        outcome = of_platform(action)
        keep_wipe(self.home, self.stage, RegionWipe(region, _now_ms()))
        return outcome

    def _snapshot(self, action: SnapshotMirrors) -> Outcome:
        """Keeps the snapshots of mirrors that were held now, or by a run that was interrupted before it kept one."""
        home, stage = self.home, self.stage
        kept = [mirror for mirror in action.stopped_before if has_mirror_snapshot(home, stage, mirror)]
        held = tuple(mirror for mirror in action.mirrors if mirror not in kept)
        return self._ask(SnapshotMirrors(stage=stage, mirrors=held)) if held else Outcome()

    def _ask(self, action: ClusterAction) -> Outcome:
        return Outcome(is_switched=bool(ask(load_lab(self.home), self.home, self.run_in_pod, action)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
