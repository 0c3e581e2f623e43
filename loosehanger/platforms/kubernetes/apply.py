"""Applies and deletes the kit's resources, and waits until the operators have reconciled them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loosehanger.errors import LabError, UnreachableError, WrongUseError
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.platforms.kubernetes import event_streams, monitoring, programs, services
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.readiness import by_reason, pod_problems, waiting_for
from loosehanger.platforms.kubernetes.resources import (
    CLIENTS,
    LABELS,
    MIRROR_PODS,
    SELECTOR,
    ManifestEntry,
    content,
    is_ours,
    reference,
)
from loosehanger.platforms.kubernetes.rights import own_kinds
from loosehanger.platforms.kubernetes.services import ClusterContext
from loosehanger.platforms.outcome import Outcome
from loosehanger.waiting import wait_for

REPORT_SECONDS = 15

Report = Callable[[str], None]


@dataclass(frozen=True)
class RegionNamespace:
    """A region: a namespace of a Kubernetes cluster."""

    name: str
    place: ClusterContext
    places: Mapping[str, ClusterContext]
    """The cluster of each region, including this one."""
    create_namespace: bool
    """Whether the kit creates and deletes the namespace; otherwise it uses an existing one."""
    python_image: str
    """A stock Python image for the kit's programs; empty to use the image of the manifests."""
    checkout: Path
    report: Report

    @property
    def cluster(self) -> KubernetesCluster:
        """Returns the client of its API server."""
        return self.place.cluster()

    def own(self, manifests: Iterable[ManifestEntry]) -> list[ManifestEntry]:
        """Returns the manifests that the kit may apply: without the namespace, unless the kit manages it."""
        return [manifest for manifest in manifests if self.create_namespace or manifest.document["kind"] != "Namespace"]


def apply(
    region: RegionNamespace, manifests: Sequence[ManifestEntry], *, ready_seconds: float, dry_run: bool = False
) -> Outcome:
    """Applies the manifests of one region in the order of their dependencies, and waits until all are ready.

    Args:
        region: the region.
        manifests: its manifests, sorted.
        ready_seconds: how long all of them together may take to get ready.
        dry_run: only report changes; the API server validates everything and stores nothing.

    Raises:
        WrongUseError: the API server refuses a manifest, or a resource that the kit does not manage has its name.
        LabError: a resource does not get ready in time; the message says what it waits for.
    """
    cluster = region.cluster
    wanted = region.own(manifests)
    if region.python_image and any(manifest.document["kind"] == "Deployment" for manifest in wanted):
        code = programs.code_map(region.checkout, region.name)
        wanted.insert(0, ManifestEntry("the kit's programs", code))
    wanted += monitoring.beside_control_room(cluster, region.checkout, region.name, wanted)
    existing = {id(manifest): _present(cluster, manifest) for manifest in wanted}
    if strangers := [stranger for m in wanted if (stranger := foreign(m, existing[id(m)]))]:
        raise WrongUseError("; ".join(strangers))
    outcome = Outcome()
    before, after = [], []
    for manifest in wanted:
        document = _prepared(region, cluster, manifest)
        was = existing[id(manifest)]
        try:
            applied = _apply(region, cluster, document, dry_run=dry_run)
        except WrongUseError as error:
            raise WrongUseError(f"{manifest.where}: {error}") from error
        except LabError as error:
            raise LabError(f"{manifest.where}: {error}") from error
        if content(was) != content(applied):
            outcome.changed.append(reference(document))
            if document["kind"] != "Secret":
                before += [content(was)] if was else []
                after.append(content(applied))
    outcome.before = yaml.safe_dump_all(before, sort_keys=True) if before else ""
    outcome.after = yaml.safe_dump_all(after, sort_keys=True) if after else ""
    if not dry_run:
        _wait_ready(region, cluster, wanted, ready_seconds)
    return outcome


def foreign(manifest: ManifestEntry, present: Mapping[str, Any] | None) -> str | None:
    """Returns the message for a resource that has the name of one of the kit's and is not managed by it."""
    if present is None or is_ours(present):
        return None
    if present["kind"] == "Namespace":
        advice = "Set platform_kubernetes_create_namespaces to false to use it as it is"
    else:
        advice = "Delete it, or choose another name"
    label = ", ".join(f"{key}={value}" for key, value in LABELS.items())
    return (
        f"{manifest.where}: already exists and is not managed by the kit (it lacks the labels {label}); not changed. "
        f"{advice}"
    )


def delete(
    region: RegionNamespace, manifests: Iterable[ManifestEntry], *, bound: float, dry_run: bool = False
) -> list[str]:
    """Deletes the resources of manifests that the kit created, in reverse order of their dependencies, and waits.

    Returns:
        The references of those that existed.

    Raises:
        LabError: a resource is not deleted in time; the message names what holds it.
    """
    cluster = region.cluster
    present = [_present(cluster, manifest) for manifest in reversed(region.own(manifests))]
    return delete_resources(region, [r for r in present if r and is_ours(r)], bound=bound, dry_run=dry_run)


def stop_clients(region: RegionNamespace, *, bound: float, dry_run: bool = False) -> list[str]:
    """Deletes the kit's jobs, programs and mirrors in a region, and waits until they are gone."""
    cluster = region.cluster
    kinds = own_kinds(cluster, region.name)
    clients = [
        resource
        for kind in CLIENTS
        for version, name in kinds
        if name == kind
        for resource in cluster.list(version, name, region.name, SELECTOR)
    ]
    return delete_resources(region, clients, bound=bound, dry_run=dry_run)


def delete_region(
    region: RegionNamespace, *, bound: float, dry_run: bool = False, dead: bool = False, clusters: Iterable[str] = ()
) -> list[str]:
    """Deletes the kit's resources in a region, then its namespace if the kit manages it and it holds nothing else.

    Topics and users are deleted first, while their cluster's operators run, because these must remove the finalizers.

    Args:
        region: the region.
        bound: how long each kind may take, in seconds.
        dry_run: only report what would be deleted.
        dead: whether no operator runs there any more.
        clusters: the names of its current and former Kafka clusters, whose authorities' secrets may outlive them.

    Returns:
        The references of the deleted resources.

    Raises:
        LabError: a resource is not deleted in time, or the namespace holds foreign resources; the message names them.
    """
    cluster = region.cluster
    namespace = cluster.get("v1", "Namespace", region.name) if region.create_namespace else None
    if namespace and namespace.get("status", {}).get("phase") == "Terminating":
        _wait_gone(cluster, region, [namespace], bound)
        return []
    deleted = []
    for version, kind in reversed(own_kinds(cluster, region.name)):
        if kind != "Namespace":
            found = cluster.list(version, kind, region.name, SELECTOR)
            deleted += delete_resources(region, found, bound=bound, dry_run=dry_run, dead=dead)
    deleted += delete_resources(region, _authorities(cluster, region.name, clusters), bound=bound, dry_run=dry_run)
    if namespace is None or not is_ours(namespace) or dry_run:
        return deleted
    if left := remains(cluster, region.name):
        raise LabError(
            f"{region.name}: the kit's resources are deleted; the namespace stays, because it also holds "
            f"resources that the kit does not manage: {', '.join(left)}; delete or move "
            "them, and run the clean-up again"
        )
    return deleted + delete_resources(region, [namespace], bound=bound, dry_run=False)


def _authorities(cluster: KubernetesCluster, namespace: str, clusters: Iterable[str]) -> list[dict[str, Any]]:
    """Returns the certificate authority secrets that clusters of these names have left."""
    return [
        secret
        for prefix in (event_streams.STRIMZI_LABELS, event_streams.LABELS)
        for name in clusters
        for secret in cluster.list("v1", "Secret", namespace, f"{prefix}cluster={name}")
    ]


def remains(cluster: KubernetesCluster, namespace: str) -> list[str]:
    """Returns resources of a namespace that neither the kit, nor an operator for it, nor Kubernetes has created."""
    left = []
    for version, kind in cluster.kinds("delete"):
        if kind in _EVERYWHERE:
            continue
        left += [
            reference(resource)
            for resource in cluster.list(version, kind, namespace)
            if not (_is_made_by_kubernetes(resource) or is_ours(resource) or _has_owner(resource))
        ]
    return sorted(set(left))


_EVERYWHERE = ("Event", "Endpoints", "EndpointSlice", "PodMetrics", "Lease", "ControllerRevision")


def _is_made_by_kubernetes(resource: Mapping[str, Any]) -> bool:
    name = resource["metadata"]["name"]
    match resource["kind"]:
        case "ConfigMap":
            return name in ("kube-root-ca.crt", "openshift-service-ca.crt")
        case "ServiceAccount":
            return name in ("default", "builder", "deployer", "pipeline")
        case "RoleBinding":
            return str(name).startswith("system:")
        case "Secret":
            return bool(resource.get("type") == "kubernetes.io/service-account-token")
    return False


def _has_owner(resource: Mapping[str, Any]) -> bool:
    metadata = resource["metadata"]
    # A deleted cluster's volumes and authorities have the cluster's label, and no owner.
    labels = metadata.get("labels") or {}
    of_cluster = any(label in labels for label in ("strimzi.io/cluster", "eventstreams.ibm.com/cluster"))
    left = resource["kind"] in ("PersistentVolumeClaim", "Secret")
    return bool(metadata.get("ownerReferences")) or (left and of_cluster)


def _present(cluster: KubernetesCluster, manifest: ManifestEntry) -> dict[str, Any] | None:
    version, kind = manifest.kind
    found = cluster.get(version, kind, manifest.name, manifest.document["metadata"].get("namespace"))
    return {"apiVersion": version, "kind": kind, **found} if found else None


def _prepared(region: RegionNamespace, cluster: KubernetesCluster, manifest: ManifestEntry) -> dict[str, Any]:
    document = services.resolve(manifest.document, region.place, region.places)
    if document["kind"] == "Deployment":
        return programs.prepared(document, cluster, python_image=region.python_image)
    return document


def _apply(
    region: RegionNamespace, cluster: KubernetesCluster, document: Mapping[str, Any], *, dry_run: bool
) -> dict[str, Any]:
    if dry_run and document["kind"] != "Namespace" and _cannot_be_tried(region, cluster, document):
        return dict(document)
    return cluster.apply(document, dry_run=dry_run)


def _cannot_be_tried(region: RegionNamespace, cluster: KubernetesCluster, document: Mapping[str, Any]) -> bool:
    """Whether a dry run must skip this, because the set-up creates its namespace or installs its operator later."""
    comes_with_operator = not cluster.serves(document["apiVersion"], document["kind"])
    return comes_with_operator or (region.create_namespace and cluster.get("v1", "Namespace", region.name) is None)


def _wait_ready(
    region: RegionNamespace, cluster: KubernetesCluster, manifests: Sequence[ManifestEntry], bound: float
) -> None:
    open_ = list(manifests)
    reported = time.monotonic()

    def missing() -> str | None:
        nonlocal reported
        reasons = {}
        for manifest in list(open_):
            present = _present(cluster, manifest)
            reason = waiting_for(present) if present else "it was deleted outside the kit"
            if reason is None and _is_off(manifest.document):
                # Terminating pods no longer count for a Deployment, and still run.
                reason = pods_left(region, cluster, manifest.document)
            if reason is None:
                open_.remove(manifest)
            else:
                reasons[reference(manifest.document)] = reason
        text = by_reason(reasons)
        if text and time.monotonic() - reported > REPORT_SECONDS:
            # A Deployment's status only counts the missing pods.
            line = "; ".join([text, *_pods(region, cluster, open_)])
            region.report(f"{region.name}: waiting for {line}")
            reported = time.monotonic()
        return text or None

    try:
        wait_for(patient(missing), bound, f"{region.name}: not everything got ready")
    except LabError as error:
        pods = ""
        with suppress(UnreachableError):
            pods = "; ".join(_pods(region, cluster, open_))
        pods = f"; {pods}" if pods else ""
        raise LabError(f"{error}{pods} (platform_kubernetes_ready_timeout sets the bound)") from error


def patient(condition: Callable[[], str | None]) -> Callable[[], str | None]:
    """Wraps a condition so that it is unmet, and does not fail, while the API server is unreachable."""

    def looked() -> str | None:
        try:
            return condition()
        except UnreachableError as error:
            return str(error)

    return looked


def _pods(region: RegionNamespace, cluster: KubernetesCluster, manifests: Iterable[ManifestEntry]) -> list[str]:
    every = [pod for manifest in manifests for pod in _pods_of(region, cluster, manifest.document)]
    return [problem for pod in every for problem in pod_problems(pod)]


def _is_off(document: Mapping[str, Any]) -> bool:
    """Whether a resource is a program without replicas."""
    return document["kind"] == "Deployment" and not document["spec"].get("replicas", 1)


def pods_left(region: RegionNamespace, cluster: KubernetesCluster, resource: Mapping[str, Any]) -> str | None:
    """Returns the message for a resource whose pods still exist; None if there are none."""
    left = [pod["metadata"]["name"] for pod in _pods_of(region, cluster, resource)]
    return f"{reference(resource)}: pods still running: {', '.join(left)}" if left else None


def _pods_of(region: RegionNamespace, cluster: KubernetesCluster, resource: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the pods of a resource."""
    name = resource["metadata"]["name"]
    label = event_streams.cluster_label(resource["apiVersion"])
    selectors: dict[str, dict[str, str]] = {
        "Deployment": (resource.get("spec") or {}).get("selector", {}).get("matchLabels", {}),
        "Kafka": {label: name},
        "EventStreams": {label: name},
        MIRROR: {label: name, **MIRROR_PODS},
    }
    selector = selectors.get(resource["kind"])
    if not selector:
        return []
    return cluster.list("v1", "Pod", region.name, ",".join(f"{key}={value}" for key, value in selector.items()))


def delete_resources(
    region: RegionNamespace,
    resources: Sequence[Mapping[str, Any]],
    *,
    bound: float,
    dry_run: bool = False,
    dead: bool = False,
    propagation: str = "Background",
) -> list[str]:
    """Deletes resources in this order, and waits until they are gone.

    Args:
        region: the region.
        resources: the resources.
        bound: how long they may take, in seconds.
        dry_run: only report what would be deleted.
        dead: whether their operators no longer run, so that their finalizers are removed here.
        propagation: the deletion policy for the objects that they own.

    Returns:
        Their references.

    Raises:
        LabError: a resource is not deleted in time; the message names what holds it.
    """
    cluster = region.cluster
    if not dry_run:
        for resource in resources:
            cluster.delete(resource, propagation)
            if dead and resource["metadata"].get("finalizers"):
                cluster.change(resource, {"metadata": {"finalizers": None}})
        _wait_gone(cluster, region, resources, bound)
    return [reference(resource) for resource in resources]


def _wait_gone(
    cluster: KubernetesCluster, region: RegionNamespace, resources: Sequence[Mapping[str, Any]], bound: float
) -> None:
    open_ = list(resources)

    def still_there() -> str | None:
        for resource in list(open_):
            metadata = resource["metadata"]
            present = cluster.get(resource["apiVersion"], resource["kind"], metadata["name"], metadata.get("namespace"))
            if present is None or present["metadata"]["uid"] != metadata["uid"]:
                # A mirror must not write while its topics are deleted.
                if resource["kind"] == MIRROR and (left := pods_left(region, cluster, resource)):
                    return left
                open_.remove(resource)
                continue
            holders = present["metadata"].get("finalizers") or present.get("spec", {}).get("finalizers") or []
            by = f", held by {', '.join(holders)}; is its operator running?" if holders else ""
            return f"{reference(resource)} is still there{by}"
        return None

    wait_for(patient(still_there), bound, f"{region.name}: not everything is deleted")
