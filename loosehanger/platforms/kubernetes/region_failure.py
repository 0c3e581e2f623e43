"""Loses and recreates regions on Kubernetes.

Operators would restore killed pods. So their reconciliation is paused first for the region's clusters and mirrors, the
controllers of the pods are deleted without the pods, and then all pods are killed at once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.lab.topology import SecretCopy
from loosehanger.platforms.kubernetes.apply import (
    RegionNamespace,
    delete_region,
    delete_resources,
    patient,
    stop_clients,
)
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.copied_secrets import COPIED_FROM, copied
from loosehanger.platforms.kubernetes.event_streams import CLUSTER_LABEL, STRIMZI_LABELS
from loosehanger.platforms.kubernetes.preflight import claims
from loosehanger.platforms.kubernetes.resources import LABELS, SELECTOR, ManifestEntry, labelled, reference
from loosehanger.platforms.kubernetes.rights import list_own
from loosehanger.platforms.outcome import Outcome
from loosehanger.waiting import wait_for

PAUSED: Final = f"{STRIMZI_LABELS}pause-reconciliation"
"""The annotation that pauses an operator's reconciliation of a resource."""
_RECONCILED: Final = ("Kafka", MIRROR)
"""The kinds from which an operator creates pods."""
_OF_KUBERNETES: Final = ("ReplicaSet", "Job")
_KILLED_SECONDS: Final = 60

Document = Mapping[str, Any]


def lose(region: RegionNamespace, *, deleted: bool, bound: float) -> Outcome:
    """Kills everything in a region at once, so that nothing restarts automatically.

    Args:
        region: which.
        deleted: whether data, certificates, secrets and the namespace are deleted too.
        bound: how long the deletion may take, in seconds.

    Raises:
        LabError: no operator pauses, or a resource is not deleted in time.
    """
    names = _let_go(region, bound)
    outcome = _kill(region, names)
    if deleted:
        outcome.changed += delete_region(region, bound=bound, dead=True, clusters=names)
    return outcome


def wipe(
    region: RegionNamespace,
    clusters: Iterable[str],
    kept: Collection[str],
    returns: Iterable[SecretCopy],
    *,
    bound: float,
) -> list[str]:
    """Deletes everything in a region but some secrets, and restores those of its secrets that only other regions have.

    Args:
        region: which.
        clusters: the names of its future Kafka clusters, of whose predecessors nothing may remain.
        kept: the names of the secrets that stay.
        returns: the copies of its secrets in other regions.
        bound: how long the deletion may take, in seconds.

    Returns:
        The references of the deleted resources and of the restored secrets.

    Raises:
        LabError: a resource is not deleted in time.
    """
    cluster = region.cluster
    if region.create_namespace:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": region.name}}
        cluster.apply(labelled(namespace))
    names = [*_let_go(region, bound), *clusters]
    # The region's own operators too: the user operator would delete a user's secret with the user.
    gone = _kill(region, names).changed
    gone += stop_clients(region, bound=bound)
    found = list_own(cluster, region.name, ("KafkaTopic", "KafkaUser", "Kafka", "KafkaNodePool"))
    # Kubernetes would too, with garbage collection that may lag behind.
    _free(cluster, region.name, kept)
    gone += delete_resources(region, found["KafkaUser"], bound=bound, propagation="Orphan")
    for kind in ("KafkaTopic", "Kafka", "KafkaNodePool"):
        gone += delete_resources(region, found[kind], bound=bound, dead=True)
    gone += delete_resources(region, list(_left_by(cluster, region.name, names, kept)), bound=bound)
    return [*gone, *_return(region, returns)]


def is_dead(region: RegionNamespace) -> bool:
    """Whether the region was lost and not recreated."""
    found = list_own(region.cluster, region.name, _RECONCILED)
    return any(_is_paused(resource) for resources in found.values() for resource in resources)


def revived(region: RegionNamespace, manifests: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Returns a region's manifests without the annotations that pause reconciliation since its loss."""
    return [_revived(region.cluster, manifest) for manifest in manifests]


def _revived(cluster: KubernetesCluster, manifest: ManifestEntry) -> ManifestEntry:
    document = manifest.document
    if document["kind"] not in _RECONCILED:
        return manifest
    present = cluster.get(*manifest.kind, manifest.name, document["metadata"]["namespace"])
    if present is None or not _is_paused(present):
        return manifest
    annotations = {**(document["metadata"].get("annotations") or {}), PAUSED: "false"}
    return replace(manifest, document={**document, "metadata": {**document["metadata"], "annotations": annotations}})


def _is_paused(resource: Document) -> bool:
    return (resource["metadata"].get("annotations") or {}).get(PAUSED) == "true"


def _let_go(region: RegionNamespace, bound: float) -> list[str]:
    """Pauses reconciliation of the region's clusters and mirrors; returns their names."""
    cluster = region.cluster
    found = list_own(cluster, region.name, _RECONCILED)
    reconciled = [resource for kind in _RECONCILED for resource in found[kind]]
    for resource in reconciled:
        cluster.change(resource, {"metadata": {"annotations": {PAUSED: "true"}}})
    wait_for(
        patient(lambda: next((reason for one in reconciled if (reason := _unpaused(cluster, one))), None)),
        bound,
        f"{region.name}: reconciliation is not paused everywhere",
    )
    return [resource["metadata"]["name"] for resource in reconciled]


def _unpaused(cluster: KubernetesCluster, resource: Document) -> str | None:
    metadata = resource["metadata"]
    present = cluster.get(resource["apiVersion"], resource["kind"], metadata["name"], metadata["namespace"]) or {}
    conditions = (present.get("status") or {}).get("conditions") or ()
    if not present or any(condition["type"] == "ReconciliationPaused" for condition in conditions):
        return None
    return f"{reference(resource)}: its operator has not confirmed the pause; check that it runs"


def _kill(region: RegionNamespace, names: Collection[str]) -> Outcome:
    """Kills the pods of clusters and mirrors of these names, and of the kit's programs, so that none is recreated."""
    cluster = region.cluster
    pods = list(_pods(cluster, region.name, names))
    for deployment in cluster.list("apps/v1", "Deployment", region.name):
        if _is_of(deployment, names):
            cluster.change(deployment, {"spec": {"replicas": 0}})
    keepers = [
        {"apiVersion": version, "kind": kind, **present}
        for version, kind, name in sorted({owner for pod in pods for owner in _owners(pod)})
        if (present := cluster.get(version, kind, name, region.name))
    ]
    delete_resources(region, keepers, bound=_KILLED_SECONDS, propagation="Orphan")
    died_ms = time.time_ns() // 1_000_000

    def alive() -> str | None:
        left = list(_pods(cluster, region.name, names))
        for pod in left:
            cluster.delete(pod, grace_seconds=0)
        return f"pods still running: {', '.join(pod['metadata']['name'] for pod in left)}" if left else None

    wait_for(patient(alive), _KILLED_SECONDS, region.name)
    return Outcome([reference(pod) for pod in pods], died_ms=died_ms) if pods else Outcome()


def _pods(cluster: KubernetesCluster, namespace: str, names: Collection[str]) -> Iterator[Document]:
    return (pod for pod in cluster.list("v1", "Pod", namespace) if _is_of(pod, names))


def _is_of(resource: Document, names: Collection[str]) -> bool:
    """Whether a resource belongs to a cluster or a mirror of one of these names, or is the kit's own."""
    labels = resource["metadata"].get("labels") or {}
    return labels.get(CLUSTER_LABEL) in names or LABELS.items() <= labels.items()


def _owners(pod: Document) -> Iterator[tuple[str, str, str]]:
    """Yields an operator's objects that own a pod."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] not in _OF_KUBERNETES:
            yield owner["apiVersion"], owner["kind"], owner["name"]


def _free(cluster: KubernetesCluster, namespace: str, secrets: Iterable[str]) -> None:
    """Removes the owner references of secrets, so that they are not deleted with their owners."""
    for name in secrets:
        secret = cluster.get("v1", "Secret", name, namespace)
        if secret and secret["metadata"].get("ownerReferences"):
            cluster.change(secret, {"metadata": {"ownerReferences": None}})


def _left_by(
    cluster: KubernetesCluster, namespace: str, names: Collection[str], kept: Collection[str]
) -> Iterator[Document]:
    """Returns the volumes and secrets that clusters and their users leave, without the secrets that are kept."""
    selector = f"{CLUSTER_LABEL} in ({', '.join(sorted(names))})"
    if names:
        yield from cluster.list("v1", "PersistentVolumeClaim", namespace, selector)
        for secret in cluster.list("v1", "Secret", namespace, selector):
            if secret["metadata"]["name"] not in kept:
                yield secret
    yield from cluster.list("v1", "PersistentVolumeClaim", namespace, SELECTOR)


def _return(region: RegionNamespace, returns: Iterable[SecretCopy]) -> list[str]:
    """Restores secrets from copies. A secret without copies is skipped; the resource that needs it reports it."""
    returned = []
    for back in returns:
        secret = region.places[back.origin].cluster().get("v1", "Secret", back.name, back.origin)
        if secret is None or region.cluster.get("v1", "Secret", back.as_name, region.name):
            continue
        # It is the region's own secret again, not a copy.
        document = copied(back, secret, region.name)
        del document["metadata"]["annotations"][COPIED_FROM]
        region.cluster.apply(document)
        returned.append(reference(document))
    return returned


def check_data(region: RegionNamespace, documents: Iterable[Document]) -> None:
    """Checks that a region that restarts after its loss still has its data.

    Args:
        region: which.
        documents: its desired resources.

    Raises:
        WrongUseError: its brokers kept their data in their pods.
    """
    for document in documents:
        if document["kind"] == "KafkaNodePool" and not any(claims(document["spec"])):
            raise WrongUseError(
                f"{region.name}: {reference(document)} has no volumes, so its data was lost with its pods; continue "
                "with a stage that recreates the region, or set up with kafka_cluster_storage_size"
            )
