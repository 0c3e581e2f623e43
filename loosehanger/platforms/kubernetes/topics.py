"""Changes a topic on Kubernetes in its KafkaTopic, because an operator reverts changes made in Kafka alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.record import Region
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster, cluster_of
from loosehanger.platforms.kubernetes.readiness import unseen, waiting_for
from loosehanger.platforms.kubernetes.rights import list_own
from loosehanger.waiting import wait_for

_PARTITIONS = "partitions"
SEEN_SECONDS = 60.0
"""Seconds the operator may take to reconcile a change."""


def change(region: Region, topic: str, changes: Mapping[str, str | None]) -> bool:
    """Changes a topic's settings in its KafkaTopic, and waits until the operator has reconciled it.

    Args:
        region: the region.
        topic: the topic's name in Kafka.
        changes: setting → value; None for its default. ``partitions`` is a setting here.

    Returns:
        Whether the topic has a KafkaTopic; a mirror's copies have none.

    Raises:
        WrongUseError: the operator refuses the change, which is reverted.
        LabError: the API server does not answer, or no operator reconciles the change.
    """
    cluster = cluster_of(region)
    declared = next(
        (
            resource
            for resource in list_own(cluster, region.name, ("KafkaTopic",))["KafkaTopic"]
            if resource["spec"].get("topicName", resource["metadata"]["name"]) == topic
        ),
        None,
    )
    if declared is None:
        return False
    spec = declared["spec"]
    before = {**(spec.get("config") or {}), **({_PARTITIONS: spec[_PARTITIONS]} if _PARTITIONS in spec else {})}
    cluster.change(declared, _patch(changes))
    if refusal := _refusal(cluster, declared):
        cluster.change(declared, _patch({name: before.get(name) for name in changes}))
        raise WrongUseError(f"{region.name}: {topic}: the operator refuses the change: {refusal}")
    return True


def _patch(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the patch for these settings; the number of partitions is a field of its own."""
    spec: dict[str, Any] = {"config": {name: value for name, value in values.items() if name != _PARTITIONS}}
    if _PARTITIONS in values:
        spec[_PARTITIONS] = None if values[_PARTITIONS] is None else int(values[_PARTITIONS])
    return {"spec": spec}


def _refusal(cluster: KubernetesCluster, declared: Mapping[str, Any]) -> str | None:
    """Waits until an operator has observed the newest generation of a resource; returns its objection, or None."""
    metadata = declared["metadata"]
    name = f"{metadata['namespace']}: KafkaTopic/{metadata['name']}"
    present: dict[str, Any] = {}

    def not_seen() -> str | None:
        found = cluster.get(declared["apiVersion"], "KafkaTopic", metadata["name"], metadata["namespace"])
        if found is None:
            raise LabError(f"{name} was deleted outside the kit")
        present.update({**declared, **found})
        return unseen(present)

    wait_for(not_seen, SEEN_SECONDS, f"{name} was changed but not reconciled")
    return waiting_for(present)
