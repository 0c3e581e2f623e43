"""The local platform's entry points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from loosehanger.errors import WrongUseError
from loosehanger.lab.actions import ApplyLinks, Kill, RecordResources, Wipe
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.loader import check_document
from loosehanger.lab.manifests.resources import KafkaMirrorMaker2
from loosehanger.lab.plan import Plan
from loosehanger.lab.programs import is_audit
from loosehanger.lab.record import recorded_documents
from loosehanger.lab.topology import SecretCopy
from loosehanger.platforms import base
from loosehanger.platforms.local import kafka_releases
from loosehanger.platforms.local.access import record
from loosehanger.platforms.local.apply import apply, delete, delete_region, erase, wipe
from loosehanger.platforms.local.bundle import collect, take_secrets_out
from loosehanger.platforms.local.jmx_exporter import check_rules
from loosehanger.platforms.local.links import apply_links
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.preflight import check_clusters, check_machine, check_ports, check_users
from loosehanger.platforms.local.processes import is_supervised, kill_everything
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import copy_secrets, delete_copies, return_secrets
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
        audits = sum(
            is_audit(one) and one.kind == "Deployment" for found in self.plans.values() for one in found.changes
        )
        check_users(plan)
        if not plan.every(Wipe):
            check_clusters(self.region, manifests)
        check_machine(self.region, regions=with_cluster, memory_mb=memory_mb, disk_mb=disk_mb, audits=audits)
        check_ports(self.region, manifests)
        check_rules(self.region, manifests)
        if not self.check_mode:
            kafka_releases.fetch(self.region, manifests)
        for manifest in manifests:
            if isinstance(manifest.resource, KafkaMirrorMaker2) and (
                refused := LocalMirrorMaker(self.region, manifest.resource).objections()
            ):
                reasons = "; ".join(refused)
                raise WrongUseError(f"{manifest.source}: {manifest.resource.reference}: Connect refuses {reasons}")

    def kill(self, action: Kill) -> Outcome:
        """Kills all processes."""
        killed = kill_everything(self.region)
        outcome = Outcome([f"{killed.processes} processes"], died_ms=killed.at_ms) if killed else Outcome()
        if action.deletes_data and erase(self.region, self._stop_seconds):
            outcome.changed.append(f"Namespace/{self.name}")
        return outcome

    def wipe(self, action: Wipe) -> Outcome:
        """Stops all processes, and deletes the region's files."""
        there = self.region.folder.exists()
        returned: list[str] = []
        if not self.check_mode:
            wipe(self.region, action.kept, self._stop_seconds)
            returned = return_secrets(self.region, action.returns)
        return Outcome([*([f"Namespace/{self.name}"] if there else []), *(f"Secret/{name}" for name in returned)])

    def delete_resources(self, documents: Sequence[Document]) -> list[str]:
        """Deletes resources in reverse order of their dependencies."""
        return delete(self.region, [check_document(document) for document in documents], dry_run=self.check_mode)

    def copy_secrets(self, copies: Sequence[SecretCopy]) -> list[str]:
        """Copies secrets from the folders of other regions."""
        copied = []
        ordered = sorted(copies, key=lambda copy: copy.origin)
        for name, of_origin in groupby(ordered, key=lambda copy: copy.origin):
            origin = LocalRegion(self.home, self.checkout, name, 0)
            copied += copy_secrets(origin, self.region, of_origin, dry_run=self.check_mode)
        return copied

    def delete_copies(self, names: Sequence[str]) -> list[str]:
        """Deletes the copies among these secrets."""
        return delete_copies(self.region, names, dry_run=self.check_mode)

    def apply(self, documents: Sequence[Document]) -> Outcome:
        """Starts processes, and waits until they are ready."""
        manifests = [check_document(document, self.name) for document in documents]
        ready_seconds = self.parameters["ready_seconds"]
        return apply(self.region, manifests, ready_seconds=ready_seconds, dry_run=self.check_mode)

    def apply_links(self, action: ApplyLinks) -> list[str]:
        """Starts relays, and waits until they are ready."""
        if not (action.starts_region or is_supervised(self.region)):
            return []
        return apply_links(self.region, action.topology, action.settings, self.parameters["ready_seconds"])

    def record(self, action: RecordResources) -> bool:
        """Writes the files by which clients reach the region."""
        return record(self.region, action.documents(recorded_documents(self.home, self.name)), action.topology)

    def delete(self, plan: Plan) -> Sequence[str]:
        """Deletes what was described, and its record; the region itself stays."""
        wanted = [document for document in plan.changes if document.kind != "Namespace"]
        deleted = self.delete_resources(wanted)
        before = recorded_documents(self.home, self.name)
        if before and not self.check_mode:
            gone = {document.reference for document in wanted}
            record(self.region, [document for document in before if document.reference not in gone], plan.topology)
        return deleted

    @property
    def _stop_seconds(self) -> float:
        seconds: int = self.parameters["stop_seconds"]
        return seconds

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
        return delete_region(self.region, self._stop_seconds)

    def bundle(self, folder: Path) -> None:
        """Copies logs and manifests."""
        collect(self.region, folder)

    def redact(self, bundle: Path, folder: Path) -> None:
        """Removes the region's secrets."""
        take_secrets_out(self.region, bundle, folder)
