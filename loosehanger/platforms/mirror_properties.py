"""The properties of MirrorMaker 2 in its dedicated mode: one file for ``connect-mirror-maker.sh``, one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loosehanger.kafka.properties import format_properties
from loosehanger.lab.manifests.resources import as_text
from loosehanger.lab.manifests.views import Content, MirrorMaker

EXACTLY_ONCE = "exactly.once.source.support"
"""The worker's setting."""
_AS_THE_CLUSTER_SAYS = ("heartbeats.topic", "checkpoints.topic", "offset-syncs.topic")
"""Topics that get three replicas where nothing is said, and so cannot be created on a cluster of one broker."""
_OF_ONE_CONNECTOR = "exactly.once.support"
"""Of the source connector only: the others do not start with it, and here a flow's settings are those of all three."""
_WORKERS_TOPICS = ("config.storage", "offset.storage", "status.storage")


@dataclass(frozen=True)
class DedicatedFlow:
    """What is copied from one cluster to another."""

    source: str
    """The source's alias."""
    target: str
    """The target's alias."""
    topics: str
    """Which topics: MM2's own list of regular expressions."""
    connector: Mapping[str, Any] = field(default_factory=dict)
    """The settings of its connectors; those of a checkpoint connector make it emit checkpoints."""
    worker: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the Connect worker."""


def flows_of(manifest: MirrorMaker, alias: str = "", topics: str | None = None) -> list[DedicatedFlow]:
    """Returns the flows of a KafkaMirrorMaker2, one for each source that records are copied from.

    Args:
        manifest: the resource.
        alias: what the aliases begin with. In dedicated mode the names of internal topics follow from them, and those
            of another mirror with the same aliases would be the same.
        topics: other topics than the manifest's; None for the manifest's.
    """
    target = f"{alias}{manifest.target['alias']}"
    found = []
    for mirror in manifest.mirrors:
        if "sourceConnector" not in mirror:
            continue
        settings = _of_connector(mirror["sourceConnector"])
        if "checkpointConnector" in mirror:
            of_checkpoints = _of_connector(mirror["checkpointConnector"])
            settings |= {key: value for key, value in of_checkpoints.items() if key != "tasks.max"}
            settings |= _given(
                {"groups": mirror.get("groupsPattern"), "groups.exclude": mirror.get("groupsExcludePattern")}
            )
        else:
            settings["emit.checkpoints.enabled"] = False
        settings |= _given({"topics.exclude": mirror.get("topicsExcludePattern")})
        wanted = topics or mirror.get("topicsPattern") or ".*"
        worker = manifest.target.get("config") or {}
        found.append(DedicatedFlow(f"{alias}{mirror['source']['alias']}", target, wanted, settings, worker))
    return found


def mirror_properties(clients: Mapping[str, Mapping[str, str]], flows: Sequence[DedicatedFlow]) -> str:
    """Returns the file's content.

    Args:
        clients: by alias, the client properties of each cluster.
        flows: what is copied; between other pairs of clusters nothing is.
    """
    lines: dict[str, Any] = {"clusters": ", ".join(clients)}
    for alias, properties in clients.items():
        lines |= {f"{alias}.{key}": value for key, value in properties.items()}
    # A pair that copies nothing still gets workers, which write at its target, unless its heartbeats are off as well.
    for source, target in _unused_pairs(clients, flows):
        lines |= {f"{source}->{target}.{key}": False for key in ("enabled", "emit.heartbeats.enabled")}
    for flow in flows:
        pair = f"{flow.source}->{flow.target}"
        lines |= {f"{flow.target}.{topic}.replication.factor": -1 for topic in _WORKERS_TOPICS}
        lines |= {f"{flow.target}.{key}": value for key, value in flow.worker.items()}
        lines |= {f"{pair}.{topic}.replication.factor": -1 for topic in _AS_THE_CLUSTER_SAYS}
        lines |= {f"{pair}.enabled": True, f"{pair}.topics": flow.topics}
        lines |= {f"{pair}.{key}": value for key, value in flow.connector.items() if key != _OF_ONE_CONNECTOR}
    if any(flow.worker.get(EXACTLY_ONCE) == "enabled" for flow in flows):
        # Workers fence the tasks before them through an interface of their own.
        lines |= {"dedicated.mode.enable.internal.rest": True, "listeners": "http://127.0.0.1:0"}
    return format_properties({key: as_text(value) for key, value in lines.items()})


def _of_connector(connector: Content | None) -> dict[str, Any]:
    return {**((connector or {}).get("config") or {}), **_given({"tasks.max": (connector or {}).get("tasksMax")})}


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _unused_pairs(aliases: Iterable[str], flows: Iterable[DedicatedFlow]) -> list[tuple[str, str]]:
    used = {(flow.source, flow.target) for flow in flows}
    return [(one, other) for one in aliases for other in aliases if one != other and (one, other) not in used]
