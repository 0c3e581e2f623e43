"""Regions that die, and regions that are made again, on Kubernetes.

Operators would bring back whatever ends. So they are told first to leave the region's clusters and mirrors alone; what
keeps its pods goes without them, and then all pods are killed at once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from loosehanger.errors import WrongUseError
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
"""The annotation by which an operator leaves a resource alone."""
_CARRIED_OUT: Final = ("Kafka", "KafkaMirrorMaker2")
"""What an operator makes pods of."""
_OF_KUBERNETES: Final = ("ReplicaSet", "Job")
_KILLED_SECONDS: Final = 60

Document = Mapping[str, Any]


def lose(region: RegionNamespace, *, deleted: bool, bound: float) -> Outcome:
    """Kills everything in a region at once, so that nothing of it comes back by itself.

    Args:
        region: which.
        deleted: whether all that it has goes as well: data, certificates, secrets and the namespace.
        bound: how long what is deleted may take to go, in seconds.

    Raises:
        LabError: no operator answers, or something does not go.
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
    """Deletes all that a region has but some secrets, and gives it back those of its secrets that only others have.

    Args:
        region: which.
        clusters: the names of the Kafka clusters that it is going to have: what older ones left must be gone.
        kept: the names of the secrets that stay.
        returns: the copies that others have of its secrets, and what they were.
        bound: how long what is deleted may take to go, in seconds.

    Returns:
        The references of what was deleted, and of the secrets that came back.

    Raises:
        LabError: something does not go.
    """
    cluster = region.cluster
    if region.create_namespace:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": region.name}}
        cluster.apply(labelled(namespace))
    names = [*_let_go(region, bound), *clusters]
    # The operators within the region as well: one of them would delete a user's secret with the user.
    gone = _kill(region, names).changed
    gone += stop_clients(region, bound=bound)
    found = list_own(cluster, region.name, ("KafkaTopic", "KafkaUser", "Kafka", "KafkaNodePool"))
    # And so would Kubernetes, which may not have noticed yet to whom a secret belongs.
    _free(cluster, region.name, kept)
    gone += delete_resources(region, found["KafkaUser"], bound=bound, propagation="Orphan")
    for kind in ("KafkaTopic", "Kafka", "KafkaNodePool"):
        gone += delete_resources(region, found[kind], bound=bound, dead=True)
    gone += delete_resources(region, list(_left_by(cluster, region.name, names, kept)), bound=bound)
    return [*gone, *_return(region, returns)]


def is_dead(region: RegionNamespace) -> bool:
    """Whether the region has died, and was not brought back."""
    found = list_own(region.cluster, region.name, _CARRIED_OUT)
    return any(_is_paused(resource) for resources in found.values() for resource in resources)


def revived(region: RegionNamespace, manifests: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Manifests of a region as they are applied: what operators leave alone, since it died, is theirs again."""
    return [_revived(region.cluster, manifest) for manifest in manifests]


def _revived(cluster: KubernetesCluster, manifest: ManifestEntry) -> ManifestEntry:
    document = manifest.document
    if document["kind"] not in _CARRIED_OUT:
        return manifest
    present = cluster.get(*manifest.kind, manifest.name, document["metadata"]["namespace"])
    if present is None or not _is_paused(present):
        return manifest
    annotations = {**(document["metadata"].get("annotations") or {}), PAUSED: "false"}
    return replace(manifest, document={**document, "metadata": {**document["metadata"], "annotations": annotations}})


def _is_paused(resource: Document) -> bool:
    return (resource["metadata"].get("annotations") or {}).get(PAUSED) == "true"


def _let_go(region: RegionNamespace, bound: float) -> list[str]:
    """Has operators leave the region's clusters and mirrors alone; returns the names of these."""
    cluster = region.cluster
    found = list_own(cluster, region.name, _CARRIED_OUT)
    carried_out = [resource for kind in _CARRIED_OUT for resource in found[kind]]
    for resource in carried_out:
        cluster.change(resource, {"metadata": {"annotations": {PAUSED: "true"}}})
    wait_for(
        patient(lambda: next((reason for one in carried_out if (reason := _unpaused(cluster, one))), None)),
        bound,
        f"{region.name}: not everything is left alone",
    )
    return [resource["metadata"]["name"] for resource in carried_out]


def _unpaused(cluster: KubernetesCluster, resource: Document) -> str | None:
    metadata = resource["metadata"]
    present = cluster.get(resource["apiVersion"], resource["kind"], metadata["name"], metadata["namespace"]) or {}
    conditions = (present.get("status") or {}).get("conditions") or ()
    if not present or any(condition["type"] == "ReconciliationPaused" for condition in conditions):
        return None
    return f"{reference(resource)}: its operator has not said that it pauses; is one running?"


def _kill(region: RegionNamespace, names: Collection[str]) -> Outcome:
    """Kills the pods of clusters and mirrors of these names, and of the kit's programs, so that none comes again."""
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
        return f"pods that live: {', '.join(pod['metadata']['name'] for pod in left)}" if left else None

    wait_for(patient(alive), _KILLED_SECONDS, region.name)
    return Outcome([reference(pod) for pod in pods], died_ms=died_ms) if pods else Outcome()


def _pods(cluster: KubernetesCluster, namespace: str, names: Collection[str]) -> Iterator[Document]:
    return (pod for pod in cluster.list("v1", "Pod", namespace) if _is_of(pod, names))


def _is_of(resource: Document, names: Collection[str]) -> bool:
    """Whether something was made for a cluster or a mirror of one of these names, or is the kit's own."""
    labels = resource["metadata"].get("labels") or {}
    return labels.get(CLUSTER_LABEL) in names or LABELS.items() <= labels.items()


def _owners(pod: Document) -> Iterator[tuple[str, str, str]]:
    """What of an operator's keeps a pod."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] not in _OF_KUBERNETES:
            yield owner["apiVersion"], owner["kind"], owner["name"]


def _free(cluster: KubernetesCluster, namespace: str, secrets: Iterable[str]) -> None:
    """Has secrets belong to nothing that they would go with."""
    for name in secrets:
        secret = cluster.get("v1", "Secret", name, namespace)
        if secret and secret["metadata"].get("ownerReferences"):
            cluster.change(secret, {"metadata": {"ownerReferences": None}})


def _left_by(
    cluster: KubernetesCluster, namespace: str, names: Collection[str], kept: Collection[str]
) -> Iterator[Document]:
    """The volumes and the secrets that clusters leave, or their users, without the secrets that are kept."""
    selector = f"{CLUSTER_LABEL} in ({', '.join(sorted(names))})"
    if names:
        yield from cluster.list("v1", "PersistentVolumeClaim", namespace, selector)
        for secret in cluster.list("v1", "Secret", namespace, selector):
            if secret["metadata"]["name"] not in kept:
                yield secret
    yield from cluster.list("v1", "PersistentVolumeClaim", namespace, SELECTOR)


def _return(region: RegionNamespace, returns: Iterable[SecretCopy]) -> list[str]:
    """Of a secret that nobody has, nothing is said: who needs it says so."""
    returned = []
    for back in returns:
        secret = region.places[back.origin].cluster().get("v1", "Secret", back.name, back.origin)
        if secret is None or region.cluster.get("v1", "Secret", back.as_name, region.name):
            continue
        # It is its own again, and no copy.
        document = copied(back, secret, region.name)
        del document["metadata"]["annotations"][COPIED_FROM]
        region.cluster.apply(document)
        returned.append(reference(document))
    return returned


def check_data(region: RegionNamespace, documents: Iterable[Document]) -> None:
    """Checks that a region that comes back as it died has its data still.

    Args:
        region: which.
        documents: what it shall have.

    Raises:
        WrongUseError: its brokers had it in their pods.
    """
    for document in documents:
        if document["kind"] == "KafkaNodePool" and not any(claims(document["spec"])):
            raise WrongUseError(
                f"{region.name}: {reference(document)} has no volumes, so that its data died with its pods; go on with "
                "a stage that makes the region again, or set up with kafka_cluster_storage_size"
            )
