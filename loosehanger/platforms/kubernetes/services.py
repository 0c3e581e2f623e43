"""Service names of regions on other clusters: what no DNS resolves becomes the address of their external listener.

A name such as ``west-kafka-bootstrap.west.svc:9098`` is resolved by Kubernetes within the cluster that has that region.
Elsewhere it stands for the listener that its Kafka offers to the outside.
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
"""The name of the listener for clients from elsewhere."""
_SERVICE = re.compile(
    r"\b(?P<cluster>[a-z0-9][a-z0-9-]*)-kafka-bootstrap\.(?P<namespace>[a-z0-9][a-z0-9-]*)"
    r"\.svc(?:\.cluster\.local)?:\d+\b"
)


@dataclass(frozen=True)
class ClusterContext:
    """Where a region is: which kubeconfig, and which context in it. Regions with the same are on one cluster."""

    kubeconfig: str = ""
    context: str = ""

    def cluster(self) -> KubernetesCluster:
        """The way to its API server."""
        return KubernetesCluster(self.kubeconfig, self.context)


def resolve(document: Mapping[str, Any], here: ClusterContext, places: Mapping[str, ClusterContext]) -> dict[str, Any]:
    """The resource, with names of services on other clusters replaced by their addresses.

    Args:
        document: the resource.
        here: where it is going to be.
        places: where each region is.

    Raises:
        LabError: a region elsewhere offers nothing to the outside.
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
    """The address of a Kafka cluster's external listener, as its operator reports it.

    Raises:
        LabError: it has none, or none yet.
    """
    versions = ((STRIMZI, CLUSTERS[0]), *((version, CLUSTERS[1]) for version in API_VERSIONS))
    found = next((kafka for version in versions if (kafka := cluster.get(*version, name, region))), None)
    if found is None:
        raise LabError(f"{region}: there is no Kafka cluster '{name}' on {cluster.name}; set that region up first")
    status = found.get("status", {})
    listeners = status.get("listeners") or status.get("kafkaListeners") or []
    for listener in listeners:
        if listener.get("name") == EXTERNAL and listener.get("bootstrapServers"):
            return str(listener["bootstrapServers"])
    raise LabError(
        f"{region}: Kafka/{name} offers no address to other clusters; "
        "set kafka_cluster_external_listener, see inventories/strimzi"
    )
