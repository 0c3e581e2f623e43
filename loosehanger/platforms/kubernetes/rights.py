"""What the kit's account must be allowed to do: the role's README lists the same, and the tests run with just that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.event_streams import API_VERSIONS, GROUP
from loosehanger.platforms.kubernetes.resources import ORDER, SELECTOR, STRIMZI

_ALL: Final = ("get", "list", "create", "patch", "delete")
_READ: Final = ("get", "list")


@dataclass(frozen=True)
class Right:
    """One rule of a Kubernetes Role."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]

    def attributes(self, namespace: str) -> Iterator[dict[str, str]]:
        """Each thing that the rule allows, as ``SelfSubjectAccessReview`` asks for it."""
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
"""What it takes in every region's namespace, whatever the operator."""

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
"""What it takes besides, for the operator's resources."""

OF_LOSSES: Final = (
    Right("", ("pods",), ("delete",)),
    Right("core.strimzi.io", ("strimzipodsets",), ("get", "delete")),
)
"""What it takes besides in a region that dies, or is made again."""

NAMESPACES: Final = Right("", ("namespaces",), ("get", "create", "patch", "delete"))
"""What it takes besides where the kit makes the namespaces."""


def rights(dialect: str, *, create_namespace: bool, dies: bool = False) -> list[Right]:
    """What the account needs."""
    besides = [*(OF_LOSSES if dies else ()), *([NAMESPACES] if create_namespace else [])]
    return [*NAMESPACED, OF_OPERATOR[dialect], *besides]


def may_read(cluster: KubernetesCluster, namespace: str) -> bool:
    """Whether the account may read the kit's records in a namespace, which it may wherever it has set something up."""
    return cluster.allowed({"resource": "secrets", "verb": "list", "namespace": namespace})


def own_kinds(cluster: KubernetesCluster, namespace: str) -> list[tuple[str, str]]:
    """The kinds that the kit makes, in their order, as ``apiVersion`` and ``kind``.

    Where a cluster has both operators, an account needs rights for one of them only: the other's kinds are left out.
    Where it serves both versions of Event Streams' API, each resource is in both, and the newer one is taken.
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
    return [(version, kind) for version, kind in ORDER if version not in left_out]


def list_own(cluster: KubernetesCluster, namespace: str, kinds: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The kit's resources of these kinds in a namespace, by their kind; of each kind a list, if an empty one."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for version, kind in own_kinds(cluster, namespace):
        if kind in found:
            found[kind] += cluster.list(version, kind, namespace, SELECTOR)
    return found
