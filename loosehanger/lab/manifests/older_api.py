"""Manifests of Strimzi's older API ``v1beta2``: fields with another name or place in ``v1``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import Document, dotted, locate
from loosehanger.lab.manifests.views import MIRROR

_OLDER = re.compile(r"kafka\.strimzi\.io/v1(alpha|beta)\d+")
_NEW = "kafka.strimzi.io/v1"
_TOOL = "Strimzi's conversion tool does most of it: bin/v1-api-conversion.sh convert-file --file"
_FIELDS = {
    MIRROR: {
        "spec.connectCluster": "the cluster that it names becomes spec.target",
        "spec.clusters": "spec.target and spec.mirrors[].source",
        "spec.mirrors[].sourceCluster": "spec.mirrors[].source, with alias, bootstrapServers, tls and authentication",
        "spec.mirrors[].targetCluster": "spec.target, so remove it",
        "spec.mirrors[].heartbeatConnector": "nothing, so remove it",
        "spec.mirrors[].topicsBlacklistPattern": "spec.mirrors[].topicsExcludePattern",
        "spec.mirrors[].groupsBlacklistPattern": "spec.mirrors[].groupsExcludePattern",
        "spec.mirrors[].sourceConnector.pause": "spec.mirrors[].sourceConnector.state",
        "spec.mirrors[].checkpointConnector.pause": "spec.mirrors[].checkpointConnector.state",
    },
    "Kafka": {
        "spec.zookeeper": "nothing (KRaft), so remove it",
        "spec.kafka.replicas": "spec.replicas of a KafkaNodePool",
        "spec.kafka.storage": "spec.storage of a KafkaNodePool",
    },
    "KafkaUser": {"spec.authorization.acls[].operation": "spec.authorization.acls[].operations, a list"},
}
"""By kind: each field that v1 does not have, and its replacement."""
_OF_THE_WORKERS = {
    "group.id": "groupId",
    "config.storage.topic": "configStorageTopic",
    "offset.storage.topic": "offsetStorageTopic",
    "status.storage.topic": "statusStorageTopic",
}


def refuse_older_api(document: Document) -> None:
    """Refuses a resource of an older API, and names the line, the field and its replacement in v1.

    Raises:
        WrongUseError: the resource is of an older API.
    """
    version = str(document.content.get("apiVersion", ""))
    if not _OLDER.fullmatch(version):
        return
    changes = [(_line(document, ("apiVersion",)), f"apiVersion → {_NEW}"), *_changes(document)]
    listed = "; ".join(f"line {line}: {change}" for line, change in changes)
    raise WrongUseError(
        f"{document.where('apiVersion')}: '{version}' is Strimzi's older API; write {_NEW}: {listed}. "
        f"{_TOOL} {document.source} --in-place"
    )


def _changes(document: Document) -> Iterator[tuple[int, str]]:
    for field, instead in _FIELDS.get(document.kind, {}).items():
        for path in _found(document.content, field.split(".")):
            yield _line(document, path), f"{dotted(path)} → {instead}"
    if document.kind != MIRROR:
        return
    clusters = document.spec.get("clusters")
    for index, cluster in enumerate(clusters if isinstance(clusters, list) else ()):
        config = cluster.get("config") if isinstance(cluster, dict) else None
        for name, new in _OF_THE_WORKERS.items():
            if isinstance(config, dict) and name in config:
                path = ("spec", "clusters", index, "config", name)
                yield _line(document, path), f"{dotted(path)} → spec.target.{new}"


def _found(content: Any, parts: list[str], path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yields the paths at which a field exists; ``[]`` stands for each entry of a list."""
    if not parts:
        yield path
        return
    name = parts[0].removesuffix("[]")
    if not isinstance(content, dict) or name not in content:
        return
    if name == parts[0]:
        yield from _found(content[name], parts[1:], (*path, name))
    elif isinstance(content[name], list):
        for index, entry in enumerate(content[name]):
            yield from _found(entry, parts[1:], (*path, name, index))


def _line(document: Document, path: tuple[str | int, ...]) -> int:
    return locate(document.node, path)[1] if document.node else document.line
