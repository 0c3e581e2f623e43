"""The Kubernetes platform's entry points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from loosehanger.errors import WrongUseError
from loosehanger.lab.actions import ApplyLinks, Kill, RecordResources, Wipe
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.plan import Plan
from loosehanger.lab.record import recorded_documents
from loosehanger.lab.topology import SecretCopy, Topology
from loosehanger.platforms import base
from loosehanger.platforms.kubernetes import access, apply, audit, copied_secrets, preflight, region_failure
from loosehanger.platforms.kubernetes.bundle import collect, take_secrets_out
from loosehanger.platforms.kubernetes.console_facts import with_facts
from loosehanger.platforms.kubernetes.console_password import with_password
from loosehanger.platforms.kubernetes.event_streams import EventStreams
from loosehanger.platforms.kubernetes.resources import ManifestEntry, check_documents
from loosehanger.platforms.kubernetes.rights import may_read
from loosehanger.platforms.kubernetes.services import ClusterContext
from loosehanger.platforms.kubernetes.status import status
from loosehanger.platforms.kubernetes.user_credentials import check_sign_ins
from loosehanger.platforms.outcome import Outcome


class KubernetesPlatform(base.Platform):
    """See the file's description."""

    options: ClassVar[Mapping[str, Any]] = {
        **base.OPTIONS,
        "kubeconfigs": {"type": "dict", "required": True},
        "contexts": {"type": "dict", "required": True},
        "create_namespaces": {"type": "bool", "default": True},
        "python_image": {"type": "str", "default": ""},
        "event_streams": {"type": "dict", "default": {}},
        "operator_comes": {"type": "bool", "default": False},
        "ready_seconds": {"type": "int", "default": 600},
        "delete_seconds": {"type": "int", "default": 300},
        "client_region": {"type": "str", "default": ""},
        "image": {"type": "str"},
    }
    of_region: ClassVar[Mapping[str, str]] = {
        "create_namespaces": "platform_kubernetes_create_namespaces",
        "python_image": "platform_kubernetes_python_image",
        "event_streams": "platform_kubernetes_event_streams",
        "operator_comes": "platform_kubernetes_operator_comes",
        "ready_seconds": "platform_kubernetes_ready_timeout",
        "delete_seconds": "platform_kubernetes_delete_timeout",
        "client_region": "platform_kubernetes_client_region",
        "image": "platform_kubernetes_image",
    }

    @cached_property
    def region(self) -> apply.RegionNamespace:
        """The region, and the places of all others."""
        contexts = self.parameters["contexts"]
        kubeconfigs = self.parameters["kubeconfigs"].items()
        places = {name: ClusterContext(_absolute(path), contexts[name]) for name, path in kubeconfigs}
        return apply.RegionNamespace(
            name=self.name,
            place=places[self.name],
            places=places,
            create_namespace=self.parameters["create_namespaces"],
            python_image=self.parameters["python_image"],
            checkout=self.checkout,
            report=self.report,
        )

    def check(self, plan: Plan) -> None:
        """Checks the cluster: its operator, its nodes, and the account's rights."""
        self._check_switch(plan)
        audit.check(self.plans, self._clients(plan.topology), self.parameters["python_image"])
        check_sign_ins(self.region, plan)
        preflight.check(
            self.region,
            self._manifests(plan.changes),
            dialect="eventstreams" if self.parameters["event_streams"] else "strimzi",
            operator_comes=self.parameters["operator_comes"],
            dies=plan.kills,
        )

    def _check_switch(self, plan: Plan) -> None:
        """Checks that a stage that switches can be carried out here.

        Raises:
            WrongUseError: it cannot; the message says why.
        """
        every = self.plans.values()
        if any(other.switches for other in every) and len({self.region.places[other.region] for other in every}) > 1:
            raise WrongUseError(
                "on several Kubernetes clusters the kit cannot switch between regions, as it cannot reach a mirror on "
                "another one; nothing was changed"
            )
        if self.parameters["event_streams"] and plan.kills:
            raise WrongUseError(f"{self.name}: with Event Streams the kit cannot lose a region; nothing was changed")
        comes_back = recorded_documents(self.home, self.name) and not plan.kills
        if comes_back and region_failure.is_dead(self.region):
            region_failure.check_data(self.region, [document.content for document in plan.changes])

    def kill(self, action: Kill) -> Outcome:
        """Kills the region's pods."""
        return region_failure.lose(self.region, deleted=action.deletes_data, bound=self._delete_seconds)

    def wipe(self, action: Wipe) -> Outcome:
        """Deletes the region's resources; in check mode it reports nothing."""
        if self.check_mode:
            return Outcome()
        bound = self._delete_seconds
        changed = region_failure.wipe(self.region, action.clusters, action.kept, action.returns, bound=bound)
        # The clients' files belong to the cluster that was wiped.
        access.unrecord(self.region, self.home)
        return Outcome(changed)

    def delete_resources(self, documents: Sequence[Document]) -> list[str]:
        """Deletes resources, and waits for their operators."""
        manifests = self._manifests(documents)
        return apply.delete(self.region, manifests, bound=self._delete_seconds, dry_run=self.check_mode)

    def copy_secrets(self, copies: Sequence[SecretCopy]) -> list[str]:
        """Copies secrets from the namespaces of other regions."""
        return copied_secrets.copy_secrets(self.region, copies, dry_run=self.check_mode)

    def delete_copies(self, names: Sequence[str]) -> list[str]:
        """Deletes the copies among these secrets."""
        return copied_secrets.delete_copies(self.region, names, dry_run=self.check_mode)

    def apply(self, documents: Sequence[Document]) -> Outcome:
        """Applies manifests, and waits for the operators."""
        manifests = region_failure.revived(self.region, self._manifests(documents))
        manifests = with_password(self.name, self.home, manifests)
        manifests = with_facts(self.region, self.home, manifests, dry_run=self.check_mode)
        manifests = audit.with_record(self.home, manifests, self.plans)
        ready_seconds = self.parameters["ready_seconds"]
        return apply.apply(self.region, manifests, ready_seconds=ready_seconds, dry_run=self.check_mode)

    def apply_links(self, action: ApplyLinks) -> list[str]:  # noqa: ARG002 - pods reach each other without links
        """Does nothing: the platform has no links."""
        return []

    def record(self, action: RecordResources) -> bool:
        """Writes the files by which clients reach the region into a Secret."""
        documents = action.documents(recorded_documents(self.home, self.name))
        return access.record(self.region, self._clients(action.topology), documents, deleted=action.is_deleted)

    def delete(self, plan: Plan) -> Sequence[str]:
        """Deletes what was described, and its record; the region itself stays."""
        wanted = [document for document in plan.changes if document.kind != "Namespace"]
        deleted = self.delete_resources(wanted)
        before = recorded_documents(self.home, self.name)
        if before and not self.check_mode:
            gone = {document.reference for document in wanted}
            kept = [document for document in before if document.reference not in gone]
            access.record(self.region, self._clients(plan.topology), kept)
        return deleted

    def status(self) -> list[dict[str, Any]]:
        """Reads what operators report."""
        if self._out_of_reach:
            return []
        recorded = recorded_documents(self.home, self.name)
        described = {document.reference: document.content for document in recorded}
        return status(self.region.cluster, self.name, described)

    def stop_clients(self) -> bool:
        """Deletes everything but the Kafka clusters."""
        if self._out_of_reach:
            return False
        return bool(apply.stop_clients(self.region, bound=self._delete_seconds, dry_run=self.check_mode))

    def delete_region(self) -> bool:
        """Deletes the kit's resources, and the namespace if the kit created it."""
        if self._out_of_reach:
            self.report(f"{self.name}: nothing is recorded of it, and the account may not read it: left alone")
            return False
        had = recorded_documents(self.home, self.name)
        recorded = access.forget(self.region, self.home, dry_run=self.check_mode)
        deleted = apply.delete_region(
            self.region,
            bound=self._delete_seconds,
            dry_run=self.check_mode,
            dead=region_failure.is_dead(self.region),
            clusters=[document.name for document in had if document.kind == "Kafka"],
        )
        return bool(deleted) or recorded

    def bundle(self, folder: Path) -> None:
        """Reads resources, events and logs."""
        collect(self.region.cluster, self.name, folder)

    def redact(self, bundle: Path, folder: Path) -> None:
        """Removes the region's secrets."""
        take_secrets_out(self.region.cluster, self.name, bundle, folder)

    @cached_property
    def _out_of_reach(self) -> bool:
        """Whether the scenario does not use the region: nothing is recorded, and the account has no rights there."""
        return not recorded_documents(self.home, self.name) and not may_read(self.region.cluster, self.name)

    @property
    def _event_streams(self) -> EventStreams | None:
        settings = self.parameters["event_streams"]
        try:
            return EventStreams(**settings) if settings else None
        except TypeError as error:
            known = ", ".join(field.name for field in fields(EventStreams))
            raise WrongUseError(f"platform_kubernetes_event_streams: {error}; it has: {known}") from error

    @property
    def _delete_seconds(self) -> float:
        seconds: int = self.parameters["delete_seconds"]
        return seconds

    def _manifests(self, documents: Iterable[Document]) -> list[ManifestEntry]:
        return check_documents(documents, self.name, self._event_streams)

    def _clients(self, topology: Topology) -> access.Clients:
        """Where the kit's clients run.

        Raises:
            WrongUseError: the inventory does not have the region that was chosen for them.
        """
        inventory = list(self.parameters["kubeconfigs"])
        region = self.parameters["client_region"] or access.client_region(self.home, inventory, topology)
        if region not in inventory:
            known = ", ".join(inventory)
            raise WrongUseError(
                f"platform_kubernetes_client_region: '{region}' is not a region; the inventory has: {known}"
            )
        return access.Clients(self.home, region, self.parameters["image"])


def _absolute(kubeconfig: str) -> str:
    """An absolute path, which is right for commands that are called from any folder."""
    return str(Path(kubeconfig).expanduser().absolute()) if kubeconfig else ""
