"""What the platforms' actions share: a stage is planned, checked and run for all regions in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ansible import constants
from ansible.module_utils.parsing.convert_bool import boolean

from loosehanger.ansible.described import plans, scenario_of
from loosehanger.ansible.kit_action import KitAction, RegionsFailedError
from loosehanger.errors import LabError
from loosehanger.lab.plan import Plan, Step, steps
from loosehanger.lab.record import check_stage, load_lab, read_progress
from loosehanger.platforms import registry
from loosehanger.platforms.base import Parameters, Plans, Platform, Result
from loosehanger.platforms.outcome import Outcome
from loosehanger.stages import gates
from loosehanger.stages.region_workers import Done, region_workers
from loosehanger.stages.runner import StageRunner
from loosehanger.stages.steps import conditions


class PlatformAction(KitAction):
    """Runs one of a platform's entry points: ``check`` and ``carry_out`` for all regions, the others for one."""

    platform: ClassVar[type[Platform]]

    def act(self, parameters: Parameters, variables: Mapping[str, Any]) -> Result:
        """Runs the entry point."""
        home = Path(parameters["home"]).absolute()
        try:
            match parameters["entry_point"]:
                case "check":
                    return self._check(parameters, variables, home)
                case "carry_out":
                    return self._carry_out(parameters, variables, home)
            # A set-up that is incomplete can be deleted as well.
            fits = parameters["entry_point"] != "delete"
            return self._platform(parameters, lambda: plans(variables, home, fits=fits)).run()
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise LabError(f"{parameters['region'] or 'this machine'}{where}: {error.strerror or error}") from error

    def _platform(self, parameters: Parameters, plans_: Plans) -> Platform:
        return self.platform(parameters, plans_, check_mode=self._task.check_mode, report=self._display.display)

    def _platforms(
        self, parameters: Parameters, variables: Mapping[str, Any], every: Mapping[str, Plan]
    ) -> dict[str, Platform]:
        """The platform of each region of the play that the stage uses."""
        regions = [region for region in parameters["regions"] if region in every]
        return {region: self._platform(self._of_region(variables, region), lambda: every) for region in regions}

    def _of_region(self, variables: Mapping[str, Any], region: str) -> Parameters:
        """The task's options for one region: a variable of the region comes before the first region's."""
        of_host = variables["hostvars"][region]
        own = {name: of_host[key] for name, key in self.platform.of_region.items() if key in of_host}
        return self.validated({**self._task.args, **own, "region": region})

    def _check(self, parameters: Parameters, variables: Mapping[str, Any], home: Path) -> Result:
        """Checks that the stage may come, and everything in it; returns its steps."""
        scenario, stage = scenario_of(variables)
        progress = read_progress(home)
        if scenario:
            check_stage(scenario, stage, progress)
        every = plans(variables, home)
        platforms = self._platforms(parameters, variables, every)
        for region in platforms:
            self._warn_of_dropped(every[region])

        def check(region: str, _: None) -> None:
            platforms[region].check(every[region])

        with region_workers(list(platforms), check) as workers:
            # The conditions are about all regions, and are asked while each is checked.
            checks = workers.run(None)
            asked = scenario and progress and next(iter(every), "") in platforms
            if scenario and asked and not _is_true(variables, "carry_out_force"):
                gates.check(conditions(load_lab(home), home, registry.run_step_in_pod, scenario, stage))
            failed = {done.region: done.error for done in checks if done.error}
        if failed:
            raise RegionsFailedError(failed, {"lab_regions": {region: {"failures": 1} for region in failed}})
        return {"changed": False, "steps": [str(step) for step in steps(every)]}

    def _warn_of_dropped(self, plan: Plan) -> None:
        for document in plan.changes:
            if document.dropped:
                added = ", ".join(document.dropped)
                # Ansible shows a task's own warnings only where it shows tasks that change nothing.
                warning = f"warning: {document.where()}: leaving out what an API server has added: {added}"
                self._display.display(warning, stderr=True)

    def _carry_out(self, parameters: Parameters, variables: Mapping[str, Any], home: Path) -> Result:
        """Plans the stage, and runs it step by step, each in all regions at once, after all have ended the last one."""
        _, stage = scenario_of(variables)
        every = plans(variables, home)
        platforms = self._platforms(parameters, variables, every)
        runner = StageRunner(
            home,
            stage,
            every,
            self._display.display,
            registry.run_step_in_pod,
            check_mode=self._task.check_mode,
            force=_is_true(variables, "carry_out_force"),
            write_salvaged=_is_true(variables, "carry_out_write_rescued"),
        )
        counts = {region: {"ok": 0, "changed": 0, "failures": 0} for region in parameters["regions"]}
        diffs: list[dict[str, str]] = []

        def run(region: str, step: Step) -> Outcome:
            return runner.run(region, step, platforms[region].run_action)

        with region_workers(list(platforms), run) as workers:
            planned = steps(every)
            for step in planned:
                failed: dict[str, LabError] = {}
                for done in workers.run(step):
                    count = counts[done.region]
                    if done.error or done.answer is None:
                        failed |= {done.region: done.error or LabError(f"{done.region}: no answer")}
                        count["failures"] += 1
                        continue
                    count["ok"] += 1
                    count["changed"] += done.answer.is_changed
                    diffs += _diff(done.region, done.answer)
                    self._show(planned, step, done)
                if failed:
                    raise RegionsFailedError(failed, {"lab_regions": counts})
        changed = any(count["changed"] for count in counts.values())
        return {"changed": changed, "lab_regions": counts, "diff": diffs}

    def _show(self, planned: Sequence[Step], step: Step, done: Done[Outcome]) -> None:
        """Shows the line of a step that is done in a region."""
        outcome = done.answer or Outcome()
        if not outcome.is_changed:
            text = "unchanged"
        else:
            text = f"{len(outcome.changed)} changed" if outcome.changed else "changed"
        width = max(9, *map(len, planned))
        line = f"[{planned.index(step) + 1}/{len(planned)}] {step:<{width}} {done.region:<16} {text:<12}"
        color = constants.COLOR_CHANGED if outcome.is_changed else constants.COLOR_OK
        self._display.display(f"{line} {done.seconds:5.1f} s", color=color)


def _diff(region: str, outcome: Outcome) -> list[dict[str, str]]:
    """What differs in a region, as Ansible shows it."""
    if outcome.before == outcome.after:
        return []
    headers = {"before_header": region, "after_header": region}
    return [{"before": outcome.before, "after": outcome.after, **headers}]


def _is_true(variables: Mapping[str, Any], name: str) -> bool:
    """Whether an option is on; on the command line it is a text."""
    return bool(boolean(variables.get(name) or False))
