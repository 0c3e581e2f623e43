"""The Kubernetes rights that the kit's account needs; the role's README lists them, and tests run with only them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.event_streams import API_VERSIONS, GROUP
from loosehanger.platforms.kubernetes.resources import ORDER, RULES, SELECTOR, STRIMZI

_ALL: Final = ("get", "list", "create", "patch", "delete")
_READ: Final = ("get", "list")


@dataclass(frozen=True)
class Right:
    """One rule of a Kubernetes Role."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]

    def attributes(self, namespace: str) -> Iterator[dict[str, str]]:
        """Yields each action that the rule allows, in the form of a ``SelfSubjectAccessReview``."""
        for resource in self.resources:
            name, _, subresource = resource.partition("/")
            for verb in self.verbs:
                asked = {"group": self.group, "resource": name, "verb": verb, "namespace": namespace}
                yield asked | ({"subresource": subresource} if subresource else {})


NAMESPACED: Final = (
    Right("", ("configmaps", "secrets", "persistentvolumeclaims"), _ALL),
    Right("", ("pods", "events", "resourcequotas"), _READ),
    Right("", ("pods/log",), ("get",)),
    Right("apps", ("deployments",), _ALL),
    Right("batch", ("jobs",), _ALL),
    Right("networking.k8s.io", ("networkpolicies",), _ALL),
)
"""Rights in every region's namespace, for both operators."""

OF_OPERATOR: Final = {
    "strimzi": Right(
        STRIMZI.split("/")[0],
        ("kafkas", "kafkanodepools", "kafkatopics", "kafkausers", "kafkamirrormaker2s"),
        _ALL,
    ),
    "eventstreams": Right(
        GROUP,
        ("eventstreams", "kafkatopics", "kafkausers", "kafkamirrormaker2s"),
        _ALL,
    ),
}
"""Additional rights for the operator's resources."""

OF_LOSSES: Final = (
    Right("", ("pods",), ("delete",)),
    Right("core.strimzi.io", ("strimzipodsets",), ("get", "delete")),
)
"""Additional rights in a region that is lost or recreated."""

OF_RULES: Final = Right(RULES[0].split("/")[0], ("prometheusrules",), _ALL)
"""Optional rights: without them the kit applies no alerts."""

NAMESPACES: Final = Right("", ("namespaces",), ("get", "create", "patch", "delete"))
"""Additional rights if the kit creates the namespaces."""


def rights(dialect: str, *, create_namespace: bool, dies: bool = False) -> list[Right]:
    """Returns the rights that the account needs."""
    besides = [*(OF_LOSSES if dies else ()), *([NAMESPACES] if create_namespace else [])]
    return [*NAMESPACED, OF_OPERATOR[dialect], *besides]


def may_read(cluster: KubernetesCluster, namespace: str) -> bool:
    """Whether the account may read the kit's records in a namespace, as in every region that it has set up."""
    return cluster.allowed({"resource": "secrets", "verb": "list", "namespace": namespace})


def may_use_rules(cluster: KubernetesCluster, namespace: str) -> bool:
    """Whether the cluster has the Prometheus operator's rules, and the account may create them in a namespace."""
    return cluster.serves(*RULES) and all(cluster.allowed(asked) for asked in OF_RULES.attributes(namespace))


def own_kinds(cluster: KubernetesCluster, namespace: str) -> list[tuple[str, str]]:
    """Returns the kinds that the kit creates, in order, as ``apiVersion`` and ``kind``.

    The Prometheus operator's kind is left out where the account may not use it.
    On a cluster with both operators an account needs rights for one of them only, and the other's kinds are left out.
    On one that serves both versions of Event Streams' API each resource is in both, and the newer version is used.
    """
    of_event_streams = next((v for v in API_VERSIONS if cluster.serves(v, "EventStreams")), API_VERSIONS[0])
    readable = {
        version
        for version, right in ((STRIMZI, OF_OPERATOR["strimzi"]), (of_event_streams, OF_OPERATOR["eventstreams"]))
        if cluster.allowed(
            {"group": right.group, "resource": right.resources[0], "verb": "list", "namespace": namespace}
        )
    }
    left_out = {STRIMZI, *API_VERSIONS} - (readable or {STRIMZI, of_event_streams})
    if not may_use_rules(cluster, namespace):
        left_out.add(RULES[0])
    return [(version, kind) for version, kind in ORDER if version not in left_out]


def list_own(cluster: KubernetesCluster, namespace: str, kinds: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Returns the kit's resources in a namespace, with a list, possibly empty, for each of these kinds."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for version, kind in own_kinds(cluster, namespace):
        if kind in found:
            found[kind] += cluster.list(version, kind, namespace, SELECTOR)
    return found
