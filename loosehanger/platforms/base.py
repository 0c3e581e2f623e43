"""The entry points that every platform has, as its action plugin offers them: what is the same wherever regions are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

from loosehanger.lab.plan import Plan, Step
from loosehanger.platforms.outcome import Outcome

Parameters = Mapping[str, Any]
Result = dict[str, Any]
Plans = Callable[[], Mapping[str, Plan]]
NAMES = ("check", "carry_out", "delete", "status", "stop_clients", "delete_region", "bundle", "scrub")
OPTIONS: Mapping[str, Any] = {
    "entry_point": {"type": "str", "required": True, "choices": list(NAMES)},
    "home": {"type": "path", "required": True},
    "checkout": {"type": "path", "required": True},
    "region": {"type": "str", "default": ""},
    "regions": {"type": "list", "elements": "str", "default": []},
    "folder": {"type": "path"},
}
"""What every platform's action takes; an argument specification of Ansible."""


class Platform(ABC):
    """A platform's entry points, for one region.

    Args:
        parameters: as ``options`` has them, validated.
        plans: tells what each region shall have.
        check_mode: only tell what would change.
        report: takes a line that says what is being waited for.
    """

    options: ClassVar[Mapping[str, Any]]
    """What the platform's action takes, ``OPTIONS`` included."""
    of_region: ClassVar[Mapping[str, str]]
    """The options that each region may set for itself, and the variable of the inventory that does."""

    def __init__(
        self, parameters: Parameters, plans: Plans, *, check_mode: bool, report: Callable[[str], None]
    ) -> None:
        self.parameters = parameters
        self._read_plans = plans
        self.check_mode = check_mode
        self.report = report
        self.home = Path(parameters["home"]).absolute()
        self.checkout = Path(parameters["checkout"])
        self.name: str = parameters["region"]

    @final
    def run(self) -> Result:
        """Runs the entry point of one region that the parameters name; what Ansible calls a task's result.

        Raises:
            LabError: the work failed, or with WrongUseError the input cannot be used.
        """
        match self.parameters["entry_point"]:
            case "delete":
                return _changed(self.delete(plan) if (plan := self._plan) else ())
            case "status":
                return {"changed": False, "resources": self.status()}
            case "stop_clients":
                return {"changed": self.stop_clients()}
            case "delete_region":
                return {"changed": self.delete_region()}
            case "bundle":
                self.bundle(self._bundle / "regions" / self.name)
                return {"changed": False}
            case _:
                self.scrub(self._bundle, self._bundle / "regions" / self.name)
                return {"changed": False}

    @final
    def run_step(self, plan: Plan, step: Step) -> Outcome:
        """Runs a step of a stage, and waits until it is done.

        Raises:
            LabError: it failed.
        """
        if step is not Step.DECOMMISSION:
            return self.carry_out(plan, step)
        if not plan.gone:
            return Outcome()
        # A Connect worker whose brokers stop first hangs while it stops.
        self.stop_clients()
        return Outcome(is_switched=self.delete_region())

    @cached_property
    def plans(self) -> Mapping[str, Plan]:
        """What each region shall have."""
        return self._read_plans()

    @property
    def _plan(self) -> Plan | None:
        """What this region shall have; None for one that the scenario does not use."""
        return self.plans.get(self.name)

    @property
    def _bundle(self) -> Path:
        return Path(self.parameters["folder"])

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Makes sure that everything can be carried out."""

    @abstractmethod
    def carry_out(self, plan: Plan, part: Step) -> Outcome:
        """Carries out one step, and waits until it is ready."""

    @abstractmethod
    def delete(self, plan: Plan) -> Sequence[str]:
        """Deletes what was described; the references of what was there."""

    @abstractmethod
    def status(self) -> list[dict[str, Any]]:
        """The health of everything: kind, name, healthy, state, detail."""

    @abstractmethod
    def stop_clients(self) -> bool:
        """Ends everything but Kafka clusters; whether there was any."""

    @abstractmethod
    def delete_region(self) -> bool:
        """Deletes everything; whether there was any."""

    @abstractmethod
    def bundle(self, folder: Path) -> None:
        """Collects, in this folder, what a maintainer needs to help."""

    @abstractmethod
    def scrub(self, bundle: Path, folder: Path) -> None:
        """Takes the region's secrets out of a whole bundle, of which this folder is the region's own."""


def _changed(resources: Sequence[str]) -> Result:
    return {"changed": bool(resources), "resources": list(resources)}
