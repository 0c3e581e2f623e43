"""Service names of regions on other clusters, which are replaced by the address of their external listener.

Kubernetes resolves a name such as ``west-kafka-bootstrap.west.svc:9098`` only within the region's own cluster. On other
clusters it stands for the external listener of the region's Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loosehanger.errors import LabError
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.event_streams import API_VERSIONS
from loosehanger.platforms.kubernetes.resources import CLUSTERS, STRIMZI

EXTERNAL = "external"
"""The name of the listener for clients of other clusters."""
_SERVICE = re.compile(
    r"\b(?P<cluster>[a-z0-9][a-z0-9-]*)-kafka-bootstrap\.(?P<namespace>[a-z0-9][a-z0-9-]*)"
    r"\.svc(?:\.cluster\.local)?:\d+\b"
)


@dataclass(frozen=True)
class ClusterContext:
    """The kubeconfig and the context of a region's cluster; regions with equal ones are on one cluster."""

    kubeconfig: str = ""
    context: str = ""

    def cluster(self) -> KubernetesCluster:
        """The way to its API server."""
        return KubernetesCluster(self.kubeconfig, self.context)


def resolve(document: Mapping[str, Any], here: ClusterContext, places: Mapping[str, ClusterContext]) -> dict[str, Any]:
    """Returns the resource, with the names of services on other clusters replaced by their addresses.

    Args:
        document: the resource.
        here: the cluster that it will be on.
        places: the cluster of each region.

    Raises:
        LabError: a region on another cluster has no external listener.
    """

    def address(match: re.Match[str]) -> str:
        place = places.get(match["namespace"], here)
        if place == here:
            return match[0]
        return external_address(place.cluster(), match["namespace"], match["cluster"])

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item) for item in value]
        return _SERVICE.sub(address, value) if isinstance(value, str) else value

    resolved: dict[str, Any] = walk(dict(document))
    return resolved


def external_address(cluster: KubernetesCluster, region: str, name: str) -> str:
    """Returns the address of a Kafka cluster's external listener, from its status.

    Raises:
        LabError: the cluster has no such address, or not yet.
    """
    versions = ((STRIMZI, CLUSTERS[0]), *((version, CLUSTERS[1]) for version in API_VERSIONS))
    found = next((kafka for version in versions if (kafka := cluster.get(*version, name, region))), None)
    if found is None:
        raise LabError(f"{region}: no Kafka cluster '{name}' on {cluster.name}; set that region up first")
    status = found.get("status", {})
    listeners = status.get("listeners") or status.get("kafkaListeners") or []
    for listener in listeners:
        if listener.get("name") == EXTERNAL and listener.get("bootstrapServers"):
            return str(listener["bootstrapServers"])
    raise LabError(
        f"{region}: Kafka/{name} has no address for other clusters; "
        "set kafka_cluster_external_listener, see inventories/strimzi"
    )
