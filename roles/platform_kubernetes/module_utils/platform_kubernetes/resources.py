"""What is applied: reading manifests, their order, and the labels that tell the kit's resources from other people's."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from platform_local.documents import read_documents
from platform_local.errors import ManifestError

from .event_streams import EventStreams, to_event_streams

FIELD_MANAGER: Final = "loosehanger-lab"
"""Owns the fields that the kit sets."""
USER_FIELD_MANAGER: Final = "loosehanger-lab-user"
"""Owns those that its user sets with a command: the next set-up leaves them alone, unless a manifest has them too."""
LABELS: Final = {
    "app.kubernetes.io/managed-by": "loosehanger-lab",
    "app.kubernetes.io/part-of": "loosehanger-lab",
}
"""Every resource of the kit has them, and nothing without them is ever changed or deleted."""
SELECTOR: Final = ",".join(f"{key}={value}" for key, value in LABELS.items())

STRIMZI: Final = "kafka.strimzi.io/v1"
EVENT_STREAMS: Final = "eventstreams.ibm.com/v1beta2"

ORDER: Final = (
    ("v1", "Namespace"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    (STRIMZI, "KafkaNodePool"),
    (STRIMZI, "Kafka"),
    (EVENT_STREAMS, "EventStreams"),
    (STRIMZI, "KafkaTopic"),
    (EVENT_STREAMS, "KafkaTopic"),
    (STRIMZI, "KafkaUser"),
    (EVENT_STREAMS, "KafkaUser"),
    (STRIMZI, "KafkaMirrorMaker2"),
    (EVENT_STREAMS, "KafkaMirrorMaker2"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
)
"""The kinds that the kit makes, in the order in which they need each other; they are deleted the other way round."""
CLUSTERS: Final = ("Kafka", "EventStreams")
CLIENTS: Final = ("Job", "Deployment", "KafkaMirrorMaker2")
"""What talks to clusters, in the order in which it is stopped."""


@dataclass(frozen=True)
class Manifest:
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
        """The namespace that it is in, or that it is."""
        metadata = self.document["metadata"]
        return str(metadata["name"] if self.kind == ("v1", "Namespace") else metadata.get("namespace", ""))

    @property
    def where(self) -> str:
        """File, line and resource, for messages."""
        return f"{self.place}: {reference(self.document)}"


def reference(document: Mapping[str, Any]) -> str:
    """``Kind/name``, for messages."""
    return f"{document['kind']}/{document.get('metadata', {}).get('name', '')}".rstrip("/")


def read_manifests(
    files: Iterable[Mapping[str, str]], namespace: str | None = None, event_streams: EventStreams | None = None
) -> list[Manifest]:
    """Reads the resources of manifest files.

    Args:
        files: of ``source``, a name for messages, and ``content``.
        namespace: the only namespace that the resources may be for; None for any.
        event_streams: converts them for IBM Event Streams; None leaves Strimzi's as they stand.

    Returns:
        The resources, each with the kit's labels, in the order in which they are applied.

    Raises:
        ManifestError: a file is not YAML, or has something in it that is not a resource of this namespace.
    """
    documents = [
        (f"{file['source']}:{node.start_mark.line + 1}", document)
        for file in files
        for document, node in read_documents(file["source"], file["content"])
    ]
    for where, document in documents:
        _check(where, document)
    if event_streams:
        documents = to_event_streams(documents, event_streams)
    manifests = [Manifest(where, labelled(document)) for where, document in documents]
    for manifest in manifests:
        if namespace is not None and manifest.namespace != namespace:
            raise ManifestError(
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
            raise ManifestError(f"{where}: {field}: is missing")
    kind = document["apiVersion"], document["kind"]
    if kind not in ORDER:
        of_kind = [version for version, name in ORDER if name == kind[1]]
        if of_kind:
            raise ManifestError(
                f"{where}: {reference(document)}: apiVersion: '{kind[0]}' is not one that the kit applies; "
                f"expected {' or '.join(of_kind)}"
            )
        known = ", ".join(dict.fromkeys(name for _, name in ORDER))
        raise ManifestError(f"{where}: kind: '{kind[1]}' is not one that the kit applies; it knows: {known}")


def labelled(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the resource with the kit's labels."""
    copied: dict[str, Any] = copy.deepcopy(dict(document))
    metadata = copied["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), **LABELS}
    return copied


def is_ours(document: Mapping[str, Any]) -> bool:
    """Whether a resource of the cluster has the kit's labels."""
    labels = document["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in LABELS.items())


def content(document: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a resource says, without what the API server and the operators write into it."""
    if document is None:
        return {}
    bookkeeping = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
    metadata = {key: value for key, value in document["metadata"].items() if key not in bookkeeping}
    return {key: value for key, value in document.items() if key != "status"} | {"metadata": metadata}
