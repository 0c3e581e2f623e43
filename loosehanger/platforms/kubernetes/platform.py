"""The Kubernetes platform's entry points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from loosehanger.errors import WrongUseError
from loosehanger.lab.plan import Plan, Step
from loosehanger.lab.record import recorded_documents
from loosehanger.platforms import base
from loosehanger.platforms.kubernetes import access, apply, preflight, region_failure
from loosehanger.platforms.kubernetes.bundle import collect, take_secrets_out
from loosehanger.platforms.kubernetes.event_streams import EventStreams
from loosehanger.platforms.kubernetes.resources import check_documents
from loosehanger.platforms.kubernetes.rights import may_read
from loosehanger.platforms.kubernetes.run_step import carry_out, delete_described
from loosehanger.platforms.kubernetes.services import ClusterContext
from loosehanger.platforms.kubernetes.status import status
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
        preflight.check(
            self.region,
            check_documents(plan.changes, self.name, self._event_streams),
            dialect="eventstreams" if self.parameters["event_streams"] else "strimzi",
            operator_comes=self.parameters["operator_comes"],
            dies=plan.lost or plan.wiped,
        )

    def _check_switch(self, plan: Plan) -> None:
        """Checks that a stage that switches can be carried out here.

        Raises:
            WrongUseError: it cannot; the message says why.
        """
        every = self.plans.values()
        if any(other.switches for other in every) and len({self.region.places[other.region] for other in every}) > 1:
            raise WrongUseError(
                "on several Kubernetes clusters the kit cannot switch between regions, for no way leads to a mirror on "
                "another one; nothing was changed"
            )
        if self.parameters["event_streams"] and (plan.lost or plan.wiped):
            raise WrongUseError(f"{self.name}: with Event Streams the kit cannot lose a region; nothing was changed")
        comes_back = recorded_documents(self.home, self.name) and not (plan.lost or plan.wiped)
        if comes_back and region_failure.is_dead(self.region):
            region_failure.check_data(self.region, [document.content for document in plan.changes])

    def carry_out(self, plan: Plan, part: Step) -> Outcome:
        """Applies manifests and waits for the operators; or, in a region that is lost, kills and deletes its pods."""
        bound = self.parameters["delete_seconds"]
        if part is Step.KILL:
            kills = plan.lost and not self.check_mode
            return region_failure.lose(self.region, deleted=plan.deleted, bound=bound) if kills else Outcome()
        if part is Step.WIPE:
            return self._wipe(plan, bound) if plan.wiped and not self.check_mode else Outcome()
        return carry_out(
            self.region,
            plan,
            part,
            self._clients(plan),
            self._event_streams,
            ready_seconds=self.parameters["ready_seconds"],
            delete_seconds=bound,
            dry_run=self.check_mode,
        )

    def _wipe(self, plan: Plan, bound: float) -> Outcome:
        clusters = [document.name for document in plan.documents if document.kind == "Kafka"]
        changed = region_failure.wipe(self.region, clusters, plan.identity, plan.returns, bound=bound)
        # The clients' files belong to the cluster that was wiped.
        access.unrecord(self.region, self.home)
        return Outcome(changed)

    def delete(self, plan: Plan) -> Sequence[str]:
        """Deletes what was described."""
        return delete_described(
            self.region,
            plan,
            self._clients(plan),
            self._event_streams,
            delete_seconds=self.parameters["delete_seconds"],
            dry_run=self.check_mode,
        )

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
        return bool(apply.stop_clients(self.region, bound=self.parameters["delete_seconds"], dry_run=self.check_mode))

    def delete_region(self) -> bool:
        """Deletes the kit's resources, and the namespace if the kit created it."""
        if self._out_of_reach:
            self.report(f"{self.name}: nothing is recorded of it, and the account may not read it: left alone")
            return False
        had = recorded_documents(self.home, self.name)
        recorded = access.forget(self.region, self.home, dry_run=self.check_mode)
        deleted = apply.delete_region(
            self.region,
            bound=self.parameters["delete_seconds"],
            dry_run=self.check_mode,
            dead=region_failure.is_dead(self.region),
            clusters=[document.name for document in had if document.kind == "Kafka"],
        )
        return bool(deleted) or recorded

    def bundle(self, folder: Path) -> None:
        """Reads resources, events and logs."""
        collect(self.region.cluster, self.name, folder)

    def scrub(self, bundle: Path, folder: Path) -> None:
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

    def _clients(self, plan: Plan) -> access.Clients:
        inventory = list(self.parameters["kubeconfigs"])
        region = self.parameters["client_region"] or access.client_region(self.home, inventory, plan.topology)
        if region not in inventory:
            known = ", ".join(inventory)
            raise WrongUseError(
                f"platform_kubernetes_client_region: '{region}' is no region; the inventory has: {known}"
            )
        return access.Clients(self.home, region, self.parameters["image"])


def _absolute(kubeconfig: str) -> str:
    """A path as it is also right for the commands, wherever they are called."""
    return str(Path(kubeconfig).expanduser().absolute()) if kubeconfig else ""
