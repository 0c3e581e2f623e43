"""The entry points that every platform has, as its action plugin offers them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

from loosehanger.lab.actions import (
    Apply,
    ApplyLinks,
    CopySecrets,
    Decommission,
    Delete,
    DeleteCopies,
    Kill,
    PlatformAction,
    RecordResources,
    Wipe,
)
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.plan import Plan
from loosehanger.lab.topology import SecretCopy
from loosehanger.platforms.outcome import Outcome

Parameters = Mapping[str, Any]
Result = dict[str, Any]
Plans = Callable[[], Mapping[str, Plan]]
NAMES = ("check", "carry_out", "delete", "status", "stop_clients", "delete_region", "bundle", "redact")
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
        parameters: validated against ``options``.
        plans: returns the plan of each region.
        check_mode: whether to report only what would change.
        report: shows a line that names what is waited for.
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
                self.redact(self._bundle, self._bundle / "regions" / self.name)
                return {"changed": False}

    @final
    def run_action(self, action: PlatformAction) -> Outcome:
        """Runs an action of a stage, and waits until it is done.

        Raises:
            WrongUseError: a resource cannot be applied.
            LabError: it failed.
        """
        match action:
            case Kill():
                return Outcome() if self.check_mode else self.kill(action)
            case Wipe():
                return self.wipe(action)
            case Delete():
                return Outcome(self.delete_resources(action.documents))
            case CopySecrets():
                return Outcome([f"Secret/{name}" for name in self.copy_secrets(action.copies)])
            case DeleteCopies():
                return Outcome([f"Secret/{name}" for name in self.delete_copies(action.names)])
            case Apply():
                return self.apply(action.documents)
            case ApplyLinks():
                return Outcome() if self.check_mode else Outcome(self.apply_links(action))
            case RecordResources():
                changed = not self.check_mode and self.record(action)
                return Outcome([f"the record of {self.name}"] if changed else [])
            case Decommission():
                # A Connect worker whose brokers stop first hangs while it stops.
                self.stop_clients()
                return Outcome(is_switched=self.delete_region())

    @cached_property
    def plans(self) -> Mapping[str, Plan]:
        """The plan of each region."""
        return self._read_plans()

    @property
    def _plan(self) -> Plan | None:
        """The plan of this region; None for one that the scenario does not use."""
        return self.plans.get(self.name)

    @property
    def _bundle(self) -> Path:
        return Path(self.parameters["folder"])

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Checks that everything can be applied."""

    # The actions of a stage. In check mode those that return what changed report only what would change.

    @abstractmethod
    def kill(self, action: Kill) -> Outcome:
        """Kills everything in the region at once; not called in check mode."""

    @abstractmethod
    def wipe(self, action: Wipe) -> Outcome:
        """Deletes everything in the region but some secrets."""

    @abstractmethod
    def delete_resources(self, documents: Sequence[Document]) -> list[str]:
        """Deletes resources; returns the references of those that existed."""

    @abstractmethod
    def copy_secrets(self, copies: Sequence[SecretCopy]) -> list[str]:
        """Copies secrets from other regions; returns the names of those that were missing or outdated."""

    @abstractmethod
    def delete_copies(self, names: Sequence[str]) -> list[str]:
        """Deletes the copies among these secrets; returns their names."""

    @abstractmethod
    def apply(self, documents: Sequence[Document]) -> Outcome:
        """Applies resources, and waits until they are ready."""

    @abstractmethod
    def apply_links(self, action: ApplyLinks) -> list[str]:
        """Starts the region's links to others; returns the names of those that changed. Not called in check mode."""

    @abstractmethod
    def record(self, action: RecordResources) -> bool:
        """Records the region's resources; whether the record changed. Not called in check mode."""

    # The other entry points.

    @abstractmethod
    def delete(self, plan: Plan) -> Sequence[str]:
        """Deletes what was described; returns the references of the resources that existed."""

    @abstractmethod
    def status(self) -> list[dict[str, Any]]:
        """The health of everything: kind, name, healthy, state, detail."""

    @abstractmethod
    def stop_clients(self) -> bool:
        """Stops everything but Kafka clusters; whether anything was running."""

    @abstractmethod
    def delete_region(self) -> bool:
        """Deletes everything; whether anything existed."""

    @abstractmethod
    def bundle(self, folder: Path) -> None:
        """Collects, in this folder, what a maintainer needs to help."""

    @abstractmethod
    def redact(self, bundle: Path, folder: Path) -> None:
        """Removes the region's secrets from a whole bundle, of which this folder is the region's own."""


def _changed(resources: Sequence[str]) -> Result:
    return {"changed": bool(resources), "resources": list(resources)}
