"""Edits the kit's resources in a region's namespace for faults, with the rights of the kit's account."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.lab.record import Region
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster, cluster_of
from loosehanger.platforms.kubernetes.event_streams import cluster_label
from loosehanger.platforms.kubernetes.readiness import unseen, waiting_for
from loosehanger.platforms.kubernetes.resources import BROKER_PODS, CLUSTERS, MIRROR_PODS
from loosehanger.platforms.kubernetes.rights import list_own
from loosehanger.waiting import wait_for

SEEN_S = 60.0
"""Seconds the operator may take to reconcile a change."""
READY_S = 300.0
"""Seconds until a resource whose pods were deleted is ready again."""


def read(region: Region, kind: str, name: str) -> dict[str, Any]:
    """Returns a resource of the kit from the API server; for a Kafka the EventStreams that stands for it.

    Raises:
        WrongUseError: there is none.
        LabError: the API server does not answer.
    """
    return _read(cluster_of(region), region.name, kind, name)


def merge(region: Region, kind: str, name: str, fields: Mapping[str, Any]) -> None:
    """Changes fields of a resource by a JSON merge patch (RFC 7386), and waits until its operator has observed it.

    Raises:
        WrongUseError: there is no such resource, or the API server refuses the change.
        LabError: no operator observes it, or the API server does not answer.
    """
    cluster = cluster_of(region)
    resource = _read(cluster, region.name, kind, name)
    cluster.change(resource, fields)

    def not_seen() -> str | None:
        return unseen(_read(cluster, region.name, kind, name))

    wait_for(not_seen, SEEN_S, f"{region.name}: {kind}/{name} was changed but not reconciled")


def await_ready(region: Region, kind: str, name: str) -> None:
    """Waits until a resource is ready, in its operator's words.

    Raises:
        LabError: it does not become ready.
    """
    cluster = cluster_of(region)
    wait_for(lambda: waiting_for(_read(cluster, region.name, kind, name)), READY_S, f"{region.name}: {kind}/{name}")


def pods_of(region: Region, kind: str, name: str) -> list[str]:
    """Returns the names of a resource's pods that the account may delete.

    Raises:
        WrongUseError: it may delete none here, or the resource has none.
        LabError: the API server does not answer.
    """
    cluster = cluster_of(region)
    if not cluster.allowed({"resource": "pods", "verb": "delete", "namespace": region.name}):
        raise WrongUseError(f"{region.name}: the account may not delete pods here; give it the verb delete on pods")
    found = [pod["metadata"]["name"] for pod in _pods(cluster, region.name, kind, name)]
    if not found:
        raise WrongUseError(f"{region.name}: {kind}/{name} has no pod; see ./lab status")
    return sorted(found)


def delete_pod(region: Region, kind: str, name: str, pod: str) -> None:
    """Deletes a pod of a resource at once, as when its node dies; its operator recreates it.

    Raises:
        LabError: the API server does not answer.
    """
    cluster = cluster_of(region)
    for found in _pods(cluster, region.name, kind, name):
        if found["metadata"]["name"] == pod:
            cluster.delete(found, grace_seconds=0)


def _pods(cluster: KubernetesCluster, namespace: str, kind: str, name: str) -> list[dict[str, Any]]:
    resource = _read(cluster, namespace, kind, name)
    labels = {cluster_label(resource["apiVersion"]): name, **(MIRROR_PODS if kind == MIRROR else BROKER_PODS)}
    return cluster.list("v1", "Pod", namespace, ",".join(f"{key}={value}" for key, value in labels.items()))


def _read(cluster: KubernetesCluster, namespace: str, kind: str, name: str) -> dict[str, Any]:
    kinds = CLUSTERS if kind in CLUSTERS else (kind,)
    for resource in chain.from_iterable(list_own(cluster, namespace, kinds).values()):
        if resource["metadata"]["name"] == name:
            return resource
    raise WrongUseError(f"{namespace}: there is no {kind} '{name}' of the kit; run the set-up again")
