"""The local platform's entry points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.loader import check_document
from loosehanger.lab.manifests.resources import KafkaMirrorMaker2
from loosehanger.lab.plan import Plan, Step
from loosehanger.platforms import base
from loosehanger.platforms.local.apply import delete_region, erase, wipe
from loosehanger.platforms.local.bundle import collect, take_secrets_out
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.preflight import check_machine, check_ports
from loosehanger.platforms.local.processes import kill_everything
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.run_step import carry_out, delete_described
from loosehanger.platforms.local.secret_store import return_secrets
from loosehanger.platforms.local.status import status
from loosehanger.platforms.outcome import Outcome


class LocalPlatform(base.Platform):
    """See the file's description."""

    options: ClassVar[Mapping[str, Any]] = {
        **base.OPTIONS,
        "port_base": {"type": "int", "required": True},
        "port_bases": {"type": "dict", "default": {}},
        "ready_seconds": {"type": "int", "default": 120},
        "stop_seconds": {"type": "int", "default": 25},
        "memory_mb": {"type": "int", "default": 0},
        "disk_mb": {"type": "int", "default": 0},
    }
    of_region: ClassVar[Mapping[str, str]] = {
        "port_base": "platform_local_port_base",
        "ready_seconds": "platform_local_ready_timeout",
        "memory_mb": "platform_local_memory_mb",
        "disk_mb": "platform_local_disk_mb",
    }

    @property
    def region(self) -> LocalRegion:
        """The region on this machine."""
        every = {str(name): int(base) for name, base in self.parameters["port_bases"].items()}
        used = self.plans[self.name].regions if every and self.name in self.plans else ()
        bases = {name: base for name, base in every.items() if name in used}
        return LocalRegion(self.home, self.checkout, self.name, self.parameters["port_base"], bases)

    def check(self, plan: Plan) -> None:
        """Checks the machine, its ports and the manifests."""
        with_cluster = sum(bool(plan.topology.clusters(name)) for name in self.plans)
        memory_mb, disk_mb = self.parameters["memory_mb"], self.parameters["disk_mb"]
        manifests = [check_document(document) for document in plan.changes]
        check_machine(self.region, regions=with_cluster, memory_mb=memory_mb, disk_mb=disk_mb)
        check_ports(self.region, manifests)
        for manifest in manifests:
            if isinstance(manifest.resource, KafkaMirrorMaker2) and (
                refused := LocalMirrorMaker(self.region, manifest.resource).objections()
            ):
                reasons = "; ".join(refused)
                raise WrongUseError(f"{manifest.source}: {manifest.resource.reference}: Connect refuses {reasons}")

    def carry_out(self, plan: Plan, part: Step) -> Outcome:
        """Starts processes, and waits until they are ready; or kills them all, in a region that is lost."""
        if part is Step.KILL:
            return self._lose(plan) if plan.lost else Outcome()
        if part is Step.WIPE:
            return self._wipe(plan) if plan.wiped else Outcome()
        return carry_out(
            self.region, plan, part, ready_seconds=self.parameters["ready_seconds"], dry_run=self.check_mode
        )

    def _lose(self, plan: Plan) -> Outcome:
        if self.check_mode:
            return Outcome()
        killed = kill_everything(self.region)
        outcome = Outcome([f"{killed.processes} processes"], died_ms=killed.at_ms) if killed else Outcome()
        if plan.deleted and erase(self.region, self.parameters["stop_seconds"]):
            outcome.changed.append(f"Namespace/{self.name}")
        return outcome

    def _wipe(self, plan: Plan) -> Outcome:
        there = self.region.folder.exists()
        if not self.check_mode:
            wipe(self.region, plan.identity, self.parameters["stop_seconds"])
        returned = [] if self.check_mode else return_secrets(self.region, plan.returns)
        return Outcome([*([f"Namespace/{self.name}"] if there else []), *(f"Secret/{name}" for name in returned)])

    def delete(self, plan: Plan) -> Sequence[str]:
        """Deletes what was described."""
        return delete_described(self.region, plan, dry_run=self.check_mode)

    def status(self) -> list[dict[str, Any]]:
        """Asks the clusters, Connect, and the process manager."""
        return status(self.region)

    def stop_clients(self) -> bool:
        """Does nothing: deleting a region kills all its processes at once, so that none waits for another."""
        return False

    def delete_region(self) -> bool:
        """Kills all processes, and deletes the folder."""
        if self.check_mode:
            return self.region.folder.exists()
        return delete_region(self.region, self.parameters["stop_seconds"])

    def bundle(self, folder: Path) -> None:
        """Copies logs and manifests."""
        collect(self.region, folder)

    def scrub(self, bundle: Path, folder: Path) -> None:
        """Removes the region's secrets."""
        take_secrets_out(self.region, bundle, folder)
