"""What the platforms' actions share: stages in their order, switches, plans, and the region in every failure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.module_utils.parsing.convert_bool import boolean

from loosehanger.ansible.described import plans, scenario_of
from loosehanger.ansible.kit_action import KitAction
from loosehanger.errors import LabError
from loosehanger.lab.plan import Plan, Step, steps
from loosehanger.lab.record import check_stage, load_lab, read_progress
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
from loosehanger.platforms.base import Parameters, Plans, Platform, Result
from loosehanger.stages import switching
from loosehanger.stages.gates import prove
from loosehanger.stages.steps import (
    Arrival,
    KeepMarks,
    KeepSilence,
    RearmMirrors,
    RescueRecords,
    StartGroups,
    ask,
    conditions,
    forget_mirrors,
)

_ASKING = (Step.DRAIN, Step.FENCE_WRITES, Step.PROOF)
"""The steps in which nothing is applied."""
_SWITCHING = (Step.SEED_GROUP_OFFSETS, Step.RESET_MIRROR_OFFSETS, Step.SALVAGE)
"""Those in which groups, and mirrors that stand still, are told something."""


class PlatformAction(KitAction):
    """Runs one of a platform's entry points for a region."""

    platform: ClassVar[type[Platform]]

    def act(self, parameters: Parameters, variables: Mapping[str, Any]) -> Result:
        """Runs the entry point."""
        home = Path(parameters["home"]).absolute()
        try:
            match parameters["entry_point"]:
                case "check":
                    return self._check(parameters, variables, home)
                case "carry_out":
                    return self._step(parameters, variables, home) | {"lab_step": parameters["part"]}
            # What was set up halfway, or never, can be deleted all the same.
            fits = parameters["entry_point"] != "delete"
            return self._run(parameters, lambda: plans(variables, home, fits=fits))
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise LabError(f"{parameters['region']}{where}: {error.strerror or error}") from error

    def _run(self, parameters: Parameters, plans_: Plans) -> Result:
        check_mode, report = self._task.check_mode, self._display.display
        return self.platform(parameters, plans_, check_mode=check_mode, report=report).run()

    def _check(self, parameters: Parameters, variables: Mapping[str, Any], home: Path) -> Result:
        """Checks that the stage may come, and everything in it; tells which steps it takes."""
        scenario, stage = scenario_of(variables)
        progress = read_progress(home)
        if scenario:
            check_stage(scenario, stage, progress)
        every = plans(variables, home)
        if here := every.get(parameters["region"]):
            for document in here.changes:
                if document.dropped:
                    added = ", ".join(document.dropped)
                    # Ansible shows a task's own warnings only where it shows tasks that change nothing.
                    said = f"warning: {document.where()}: leaving out what an API server has added: {added}"
                    self._display.display(said, stderr=True)
        checked = self._run(parameters, lambda: every)
        # The conditions are about all regions: one asks.
        first = parameters["region"] == next(iter(every), "")
        if scenario and first and progress and not _is_true(variables, "carry_out_force"):
            switching.check(conditions(load_lab(home), home, scenario, stage))
        return checked | {"steps": [str(step) for step in steps(every)], "lab_used": parameters["region"] in every}

    def _step(self, parameters: Parameters, variables: Mapping[str, Any], home: Path) -> Result:
        """Carries out one step; what a switch needs besides is the same on every platform."""
        _, stage = scenario_of(variables)
        every = plans(variables, home)
        here, part = every.get(parameters["region"]), Step(parameters["part"])
        only_told = self._task.check_mode or here is None
        if part in _ASKING:
            if here and not only_told and not _is_true(variables, "carry_out_force"):
                self._wait(here, part, home, stage)
            return {"changed": False}
        if part in _SWITCHING:
            write = _is_true(variables, "carry_out_write_rescued")
            return self._switch(here, part, home, stage, write=write) if here and not only_told else {"changed": False}
        if part is Step.WIPE and here and is_wiped(home, stage, here.region):
            return {"changed": False}
        leaving = here.leaving if here and part is Step.DATAFLOW and not only_told else ()
        goes = [document for document in leaving if document.kind == MIRROR]
        # Once they are gone, nobody knows what they had.
        forget = forget_mirrors(load_lab(home), stage, goes) if goes else None
        dies = here is not None and not only_told and part is Step.KILL and here.lost
        # Whoever is interrupted after it finds nothing that could still be killed.
        first = dies and not is_lost(home, stage, parameters["region"])
        if first:
            keep_loss(home, stage, RegionLoss(parameters["region"], _now_ms()))
        if part is Step.DECOMMISSION and here and here.gone and not only_told:
            keep_ending(home, stage, RegionEnding(here.region, _now_ms()))
        done = self._run(parameters, lambda: every)
        if here and not only_told:
            if forget:
                ask(load_lab(home), home, forget)
            if part is Step.WIPE and here.wiped:
                keep_wipe(home, stage, RegionWipe(here.region, _now_ms()))
            if first and "died_ms" in done:
                keep_loss(home, stage, RegionLoss(here.region, done["died_ms"]))
            if part is Step.FENCE_MIRRORS and here.mark:
                # Held before, and not marked: the stage was interrupted in between.
                held = [m for m in here.held if m.name in here.fenced or not has_mirror_snapshot(home, stage, m)]
                if held:
                    ask(load_lab(home), home, KeepMarks(stage=stage, mirrors=tuple(held)))
        return done

    def _wait(self, here: Plan, part: Step, home: Path, stage: str) -> None:
        """What is waited for, or made sure of, and changes nothing."""
        if part is Step.DRAIN and here.has(part):
            drains, settles = (tuple(mirror.id for mirror in of) for of in (here.drains, here.settles))
            ask(load_lab(home), home, Arrival(stage=stage, drains=drains, settles=settles))
        if part is Step.FENCE_WRITES and here.silence:
            ask(load_lab(home), home, KeepSilence(stage=stage, region=here.region))
        if part is Step.PROOF and here.proof:
            prove(home, stage, self._display.display)

    def _switch(self, here: Plan, part: Step, home: Path, stage: str, *, write: bool) -> Result:
        """What is done to groups and to mirrors that stand still, by asking clusters and Connect."""
        step: StartGroups | RearmMirrors | RescueRecords
        match part:
            case Step.SEED_GROUP_OFFSETS:
                starts, stays, translated = here.starts, here.stays, not here.planned
                step = StartGroups(stage=stage, region=here.region, starts=starts, stays=stays, translated=translated)
            case Step.RESET_MIRROR_OFFSETS:
                step = RearmMirrors(stage=stage, mirrors=tuple(here.rearmed))
            case _:
                step = RescueRecords(stage=stage, mirrors=tuple(here.rescued), write=write)
        return {"changed": ask(load_lab(home), home, step)} if here.has(part) else {"changed": False}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _is_true(variables: Mapping[str, Any], name: str) -> bool:
    """Whether an option is on; on the command line it is a text."""
    return bool(boolean(variables.get(name) or False))
