"""Service names of regions on other clusters: what no DNS resolves becomes the address of their external listener.

A name such as ``europe-kafka-bootstrap.europe.svc:9098`` is resolved by Kubernetes within the cluster that has
Europe. Elsewhere it stands for the listener that Europe's Kafka offers to the outside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from platform_local.errors import PlatformError

from .cluster import Cluster
from .resources import CLUSTERS, EVENT_STREAMS, STRIMZI

EXTERNAL = "external"
"""The name of the listener for clients from elsewhere."""
REPLACED = "loosehanger-lab/services"
"""Which addresses stand for which names."""
_SERVICE = re.compile(
    r"\b(?P<cluster>[a-z0-9][a-z0-9-]*)-kafka-bootstrap\.(?P<namespace>[a-z0-9][a-z0-9-]*)"
    r"\.svc(?:\.cluster\.local)?:\d+\b"
)


@dataclass(frozen=True)
class Place:
    """Where a region is: which kubeconfig, and which context in it. Regions with the same are on one cluster."""

    kubeconfig: str = ""
    context: str = ""

    def cluster(self) -> Cluster:
        """The way to its API server."""
        return Cluster(self.kubeconfig, self.context)


def resolve(document: Mapping[str, Any], here: Place, places: Mapping[str, Place]) -> dict[str, Any]:
    """The resource, with names of services on other clusters replaced by their addresses.

    Args:
        document: the resource.
        here: where it is going to be.
        places: where each region is.

    Raises:
        PlatformError: a region elsewhere offers nothing to the outside.
    """

    replaced: dict[str, str] = {}

    def address(match: re.Match[str]) -> str:
        place = places.get(match["namespace"], here)
        if place == here:
            return match[0]
        found = external_address(place.cluster(), match["namespace"], match["cluster"])
        replaced[found] = match[0]
        return found

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item) for item in value]
        return _SERVICE.sub(address, value) if isinstance(value, str) else value

    resolved: dict[str, Any] = walk(dict(document))
    if replaced:
        annotations = resolved["metadata"].get("annotations") or {}
        resolved["metadata"]["annotations"] = {**annotations, REPLACED: json.dumps(replaced, sort_keys=True)}
    return resolved


def unresolve(document: Mapping[str, Any]) -> dict[str, Any]:
    """The resource with the names of services that ``resolve`` has replaced."""
    text = json.dumps(document)
    annotations = document["metadata"].get("annotations") or {}
    for address, name in json.loads(annotations.get(REPLACED, "{}")).items():
        text = text.replace(json.dumps(address), json.dumps(name))
    original: dict[str, Any] = json.loads(text)
    return original


def external_address(cluster: Cluster, region: str, name: str) -> str:
    """The address of a Kafka cluster's external listener, as its operator reports it.

    Raises:
        PlatformError: it has none, or none yet.
    """
    versions = ((STRIMZI, CLUSTERS[0]), (EVENT_STREAMS, CLUSTERS[1]))
    found = next((kafka for version in versions if (kafka := cluster.get(*version, name, region))), None)
    if found is None:
        raise PlatformError(f"{region}: there is no Kafka cluster '{name}' on {cluster.name}; set that region up first")
    status = found.get("status", {})
    listeners = status.get("listeners") or status.get("kafkaListeners") or []
    for listener in listeners:
        if listener.get("name") == EXTERNAL and listener.get("bootstrapServers"):
            return str(listener["bootstrapServers"])
    raise PlatformError(
        f"{region}: Kafka/{name} offers no address to other clusters; "
        "set kafka_cluster_external_listener, see inventories/strimzi"
    )
