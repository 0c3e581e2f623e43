"""Changing a topic on Kubernetes: in its KafkaTopic, for an operator soon undoes what is changed in Kafka alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.record import Region
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.readiness import unseen, waiting_for
from loosehanger.platforms.kubernetes.rights import list_own
from loosehanger.waiting import wait_for

_PARTITIONS = "partitions"
SEEN_SECONDS = 60.0
"""How long the operator may take to look at a change."""


def change(region: Region, topic: str, changes: Mapping[str, str | None]) -> bool:
    """Changes a topic's settings where they are declared, and waits until the operator has carried that out.

    Args:
        region: whose topic.
        topic: its name in Kafka.
        changes: setting → value; None for its default. ``partitions`` counts as one.

    Returns:
        Whether there is such a resource: a mirror's copies have none.

    Raises:
        WrongUseError: the operator refuses the change; it is taken back.
        LabError: the API server does not answer, or no operator looks at the change.
    """
    if region.kubernetes is None:
        raise LabError(f"{region.name}: the record does not say where its resources are; run the set-up again")
    cluster = KubernetesCluster(region.kubernetes.kubeconfig, region.kubernetes.context)
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
    """What makes a resource have these settings; the number of partitions stands beside them."""
    spec: dict[str, Any] = {"config": {name: value for name, value in values.items() if name != _PARTITIONS}}
    if _PARTITIONS in values:
        spec[_PARTITIONS] = None if values[_PARTITIONS] is None else int(values[_PARTITIONS])
    return {"spec": spec}


def _refusal(cluster: KubernetesCluster, declared: Mapping[str, Any]) -> str | None:
    """What an operator says against the newest version of a resource, once it has looked at it."""
    metadata = declared["metadata"]
    name = f"{metadata['namespace']}: KafkaTopic/{metadata['name']}"
    present: dict[str, Any] = {}

    def not_seen() -> str | None:
        found = cluster.get(declared["apiVersion"], "KafkaTopic", metadata["name"], metadata["namespace"])
        if found is None:
            raise LabError(f"{name} has been deleted by somebody else")
        present.update({**declared, **found})
        return unseen(present)

    wait_for(not_seen, SEEN_SECONDS, f"{name} has been changed, and not been carried out")
    return waiting_for(present)
