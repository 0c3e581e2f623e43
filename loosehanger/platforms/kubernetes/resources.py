"""The applied resources: their order, and the labels that mark them as the kit's."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.platforms.kubernetes.event_streams import API_VERSIONS, EventStreams, to_event_streams

FIELD_MANAGER: Final = "loosehanger-lab"
"""Field manager of the fields that the kit sets."""
USER_FIELD_MANAGER: Final = "loosehanger-lab-user"
"""Field manager of the fields that a user sets by a command; the next set-up keeps them unless a manifest sets them."""
LABELS: Final = {
    "app.kubernetes.io/managed-by": "loosehanger-lab",
    "app.kubernetes.io/part-of": "loosehanger-lab",
}
"""The labels of all resources of the kit. Resources without them are never changed or deleted."""
SELECTOR: Final = ",".join(f"{key}={value}" for key, value in LABELS.items())
ASKS_CONNECT: Final = {"loosehanger-lab/asks-connect": "true"}
"""The additional label of pods that query mirrors; network policies admit no other pods."""
MIRROR_PODS: Final = {"app.kubernetes.io/name": "kafka-mirror-maker-2"}
"""A label of every mirror's pods, which Strimzi and Event Streams both set."""
BROKER_PODS: Final = {"app.kubernetes.io/name": "kafka"}
"""A label of the pods of brokers, and of the entity operator's."""

STRIMZI: Final = "kafka.strimzi.io/v1"
RULES: Final = ("monitoring.coreos.com/v1", "PrometheusRule")
"""The Prometheus operator's kind for rules; only clusters that have this operator serve it."""

_OPERATORS = (STRIMZI, *API_VERSIONS)
ORDER: Final = (
    ("v1", "Namespace"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "PersistentVolumeClaim"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    (STRIMZI, "KafkaNodePool"),
    (STRIMZI, "Kafka"),
    *((version, "EventStreams") for version in API_VERSIONS),
    *((version, kind) for kind in ("KafkaTopic", "KafkaUser", MIRROR) for version in _OPERATORS),
    RULES,
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
)
"""The kinds that the kit creates, in the order of their dependencies; they are deleted in reverse."""
CLUSTERS: Final = ("Kafka", "EventStreams")
CLIENTS: Final = ("Job", "Deployment", MIRROR)
"""The clients of clusters, in the order in which they are stopped."""


@dataclass(frozen=True)
class ManifestEntry:
    """A resource of a manifest file."""

    place: str
    """File and line, for messages."""
    document: dict[str, Any]

    @property
    def kind(self) -> tuple[str, str]:
        """``apiVersion`` and ``kind``."""
        return self.document["apiVersion"], self.document["kind"]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace; for a Namespace, its own name."""
        metadata = self.document["metadata"]
        return str(metadata["name"] if self.kind == ("v1", "Namespace") else metadata.get("namespace", ""))

    @property
    def where(self) -> str:
        """File, line and resource, for messages."""
        return f"{self.place}: {reference(self.document)}"


def reference(document: Mapping[str, Any]) -> str:
    """Returns ``Kind/name``, for messages."""
    return f"{document['kind']}/{document.get('metadata', {}).get('name', '')}".rstrip("/")


def check_documents(
    resources: Iterable[Document], namespace: str | None = None, event_streams: EventStreams | None = None
) -> list[ManifestEntry]:
    """Prepares resources to be applied.

    Args:
        resources: the resources of the manifests.
        namespace: the only namespace that the resources may have; None for any.
        event_streams: settings to convert them for IBM Event Streams; None for Strimzi.

    Returns:
        The resources, each with the kit's labels, in the order in which they are applied.

    Raises:
        WrongUseError: a resource has another namespace, or a kind that the kit does not apply.
    """
    documents = [(f"{document.source}:{document.line}", document.content) for document in resources]
    for where, document in documents:
        _check(where, document)
    if event_streams:
        documents = to_event_streams(documents, event_streams)
    manifests = [ManifestEntry(where, labelled(document)) for where, document in documents]
    for manifest in manifests:
        if namespace is not None and manifest.namespace != namespace:
            raise WrongUseError(
                f"{manifest.where}: metadata.namespace: '{manifest.namespace}' is not the region's namespace "
                f"'{namespace}'"
            )
    return sorted(manifests, key=lambda manifest: ORDER.index(manifest.kind))


def _check(where: str, document: Mapping[str, Any]) -> None:
    metadata = document.get("metadata")
    for field, value in {
        "apiVersion": document.get("apiVersion"),
        "kind": document.get("kind"),
        "metadata.name": metadata.get("name") if isinstance(metadata, dict) else None,
    }.items():
        if not isinstance(value, str) or not value:
            raise WrongUseError(f"{where}: {field}: is missing")
    kind = document["apiVersion"], document["kind"]
    if kind not in ORDER:
        of_kind = [version for version, name in ORDER if name == kind[1]]
        if of_kind:
            raise WrongUseError(
                f"{where}: {reference(document)}: apiVersion: '{kind[0]}' is not one that the kit applies; "
                f"expected {' or '.join(of_kind)}"
            )
        known = ", ".join(dict.fromkeys(name for _, name in ORDER))
        raise WrongUseError(f"{where}: kind: '{kind[1]}' is not one that the kit applies; it knows: {known}")


def labelled(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of the resource with the kit's labels."""
    copied: dict[str, Any] = copy.deepcopy(dict(document))
    metadata = copied["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), **LABELS}
    return copied


def is_ours(document: Mapping[str, Any]) -> bool:
    """Whether a resource of the cluster has the kit's labels."""
    labels = document["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in LABELS.items())


def content(document: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a resource without the fields that the API server and the operators write."""
    if document is None:
        return {}
    bookkeeping = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
    metadata = {key: value for key, value in document["metadata"].items() if key not in bookkeeping}
    return {key: value for key, value in document.items() if key != "status"} | {"metadata": metadata}
