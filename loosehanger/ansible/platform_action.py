"""What the platforms' actions share: stages in their order, switches, plans, and the region in every failure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.module_utils.parsing.convert_bool import boolean

from loosehanger.errors import LabError
from loosehanger.ledger import ledger_files, read_entries
from loosehanger.model.marks import (
    Ending,
    Loss,
    Wipe,
    is_lost,
    is_marked,
    is_rearmed,
    is_wiped,
    keep_ending,
    keep_loss,
    keep_rearmed,
    keep_rescue,
    keep_wipe,
    last_fence,
    mark_of_group,
    read_marks,
)
from loosehanger.model.mirror import Mirror
from loosehanger.model.plan import Part, Plan, steps
from loosehanger.model.record import Lab, check_stage, load_lab, read_progress
from loosehanger.model.scenario import MIRROR
from loosehanger.platforms import switching
from loosehanger.platforms.entry_points import EntryPoints, Parameters, Plans, Result
from loosehanger.platforms.proving import prove
from loosehanger.platforms.rescue import rescue

from .described import plans, scenario_of
from .kit_action import KitAction

_ASKING = (Part.DRAINS, Part.SILENCE, Part.PROOF)
"""The steps in which nothing is applied."""
DRAIN_SECONDS = 60
"""How long what is on its way may take to arrive, once producers are stopped."""


class PlatformAction(KitAction):
    """Runs one of a platform's entry points for a region."""

    platform: ClassVar[type[EntryPoints]]

    def act(self, parameters: Parameters, variables: Mapping[str, Any]) -> Result:
        """Runs the entry point."""
        home = Path(parameters["home"]).absolute()
        try:
            match parameters["entry_point"]:
                case "check":
                    return self._check(parameters, variables, home)
                case "carry_out":
                    return self._step(parameters, variables, home)
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
        checked = self._run(parameters, lambda: every)
        # The conditions are about all regions: one asks.
        first = parameters["region"] == next(iter(every), "")
        if scenario and first and progress and not _is_true(variables, "carry_out_force"):
            switching.check(switching.stage_conditions(load_lab(home), home, scenario, stage))
        return checked | {"steps": [str(step) for step in steps(every)]}

    def _step(self, parameters: Parameters, variables: Mapping[str, Any], home: Path) -> Result:
        """Carries out one step; what a switch needs besides is the same on every platform."""
        _, stage = scenario_of(variables)
        every = plans(variables, home)
        here, part = every.get(parameters["region"]), Part(parameters["part"])
        only_told = self._task.check_mode or here is None
        if part in _ASKING:
            if here and not only_told and not _is_true(variables, "carry_out_force"):
                self._wait(here, part, home, stage)
            return {"changed": False}
        if part is Part.STARTS:
            return self._start(here, home, stage) if here and not only_told else {"changed": False}
        if part is Part.REARMS:
            return self._rearm(here, home, stage) if here and not only_told else {"changed": False}
        if part is Part.RESCUES:
            write = _is_true(variables, "carry_out_write_rescued")
            return self._rescue(here, home, stage, write=write) if here and not only_told else {"changed": False}
        if part is Part.WIPES and here and is_wiped(home, stage, here.region):
            return {"changed": False}
        leaving = here.leaving if here and part is Part.FLOWS and not only_told else ()
        goes = [document for document in leaving if document.kind == MIRROR]
        before = load_lab(home) if goes else None
        dies = here is not None and not only_told and part is Part.LOSSES and here.lost
        # Whoever is interrupted after it finds nothing that could still be killed.
        first = dies and not is_lost(home, stage, parameters["region"])
        if first:
            keep_loss(home, stage, Loss(parameters["region"], _now_ms()))
        if part is Part.ENDS and here and here.gone and not only_told:
            keep_ending(home, stage, Ending(here.region, _now_ms()))
        done = self._run(parameters, lambda: every)
        if here and not only_told:
            if before:
                switching.forget_mirrors(before, goes)
            if part is Part.WIPES and here.wiped:
                keep_wipe(home, stage, Wipe(here.region, _now_ms()))
            if first and "died_ms" in done:
                keep_loss(home, stage, Loss(here.region, done["died_ms"]))
            if part is Part.FENCES and here.mark:
                # Held before, and not marked: the stage was interrupted in between.
                held = [m for m in here.held if m.name in here.fenced or not is_marked(home, stage, m)]
                switching.keep_marks(load_lab(home), home, stage, held)
        return done

    def _wait(self, here: Plan, part: Part, home: Path, stage: str) -> None:
        """What is waited for, or made sure of, and changes nothing."""
        lab = load_lab(home)
        if part is Part.DRAINS:
            switching.settle(lab, _as_they_are(lab, here.settles), DRAIN_SECONDS)
            switching.drain(lab, _as_they_are(lab, here.drains), DRAIN_SECONDS)
        if part is Part.SILENCE and here.silence:
            switching.keep_silence(lab, home, stage, here.region)
        if part is Part.PROOF and here.proof:
            prove(home, stage, self._display.display)

    def _start(self, here: Plan, home: Path, stage: str) -> Result:
        """Sets where groups begin, each once in a stage: when their members run, it would set them back."""
        lab = load_lab(home)
        kept = {fence.mirror for fence in read_marks(home, stage).fences}
        for consumer in here.stays:
            if mark_of_group(consumer.group) not in kept:
                switching.stay_group(lab, home, stage, consumer)
        wanted = [consumer for consumer in here.starts if mark_of_group(consumer.group) not in kept]
        for consumer in wanted:
            folder = lab.region(here.region).ledgers.get(consumer.name)
            if folder is None:
                raise LabError(f"{here.region}: '{consumer.name}' keeps no ledger that can be read from here")
            switching.await_arrival(lab, consumer.group, consumer.cluster_region, DRAIN_SECONDS)
            entries = read_entries(ledger_files(folder))
            switching.start_group(lab, home, stage, consumer, entries, translated=not here.planned)
        return {"changed": bool(wanted)}

    def _rearm(self, here: Plan, home: Path, stage: str) -> Result:
        """Re-arms mirrors, each once in a stage: when producers write again, it would pass over records."""
        wanted = [mirror for mirror in here.rearmed if not is_rearmed(home, stage, mirror)]
        for mirror in wanted:
            for done in switching.rearm(load_lab(home), [mirror], DRAIN_SECONDS):
                keep_rearmed(home, stage, done)
        return {"changed": bool(wanted)}

    def _rescue(self, here: Plan, home: Path, stage: str, *, write: bool) -> Result:
        """Rescues what the sources of mirrors have beyond them."""
        for mirror in here.rescued:
            fence = last_fence(home, mirror)
            if fence is None:
                raise LabError(f"no mark tells where everything was when mirror {mirror.name} was held")
            keep_rescue(home, stage, rescue(load_lab(home), home, mirror, fence, write=write))
        return {"changed": bool(here.rescued)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _is_true(variables: Mapping[str, Any], name: str) -> bool:
    """Whether an option is on; on the command line it is a text."""
    return bool(boolean(variables.get(name) or False))


def _as_they_are(lab: Lab, mirrors: Iterable[Mirror]) -> list[Mirror]:
    """Mirrors as the record has them, before the stage changes them."""
    wanted = {mirror.id for mirror in mirrors}
    return [mirror for mirror in lab.mirrors if mirror.id in wanted]
