"""Is everything there, and healthy, and if not, why not: as the local platform tells it, from what operators report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .cluster import Cluster
from .readiness import connector_problems, pod_problems, waiting_for, wanted_connectors
from .resources import CLUSTERS
from .rights import list_own

Document = Mapping[str, Any]


def status(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The health of every cluster, mirror and program of a region: kind, name, healthy, state, detail."""
    found = list_own(cluster, namespace, (*CLUSTERS, "KafkaNodePool", "KafkaTopic", "KafkaMirrorMaker2", "Deployment"))
    pods = cluster.list("v1", "Pod", namespace)
    now = datetime.now(UTC)
    healths = [
        *(
            cluster_health(kafka, found["KafkaNodePool"], found["KafkaTopic"], pods)
            for kind in CLUSTERS
            for kafka in found[kind]
        ),
        *(mirror_health(mirror, pods) for mirror in found["KafkaMirrorMaker2"]),
        *(program_health(deployment, pods, now) for deployment in found["Deployment"]),
    ]
    return [dict(zip(("kind", "name", "healthy", "state", "detail"), health, strict=True)) for health in healths]


Health = tuple[str, str, bool, str, str]


def cluster_health(
    kafka: Document, pools: Sequence[Document], topics: Sequence[Document], pods: Sequence[Document] = ()
) -> Health:
    """A Kafka cluster's health."""
    name = kafka["metadata"]["name"]
    reasons = [reason] if (reason := waiting_for(kafka)) else []
    waiting = [topic["metadata"]["name"] for topic in topics if waiting_for(topic)]
    reasons += [f"not ready: topics {', '.join(waiting)}"] if waiting else []
    reasons += _of_its_pods(kafka, pods)
    if reasons:
        state = "Degraded" if kafka.get("status") else "Down"
        return kafka["kind"], name, False, state, "; ".join(reasons)
    nodes = sum(pool["spec"]["replicas"] for pool in pools if _of(pool) == name) or sum(
        pool.get("replicas", 0) for pool in _inner_pools(kafka)
    )
    own = [topic for topic in topics if _of(topic) == name]
    partitions = sum(topic["spec"].get("partitions", 1) for topic in own)
    # Topics that mirrors have made are no resources, and not counted.
    topics_ = [_count(len(own), "topic"), _count(partitions, "partition")] if own else []
    detail = ", ".join([_count(nodes, "node"), *topics_])
    return kafka["kind"], name, True, "Running", detail


def mirror_health(mirror: Document, pods: Sequence[Document] = ()) -> Health:
    """A mirror's health."""
    kind, name, spec = mirror["kind"], mirror["metadata"]["name"], mirror["spec"]
    if not spec.get("replicas", 1):
        return kind, name, False, "Stopped", "spec.replicas is 0"
    connectors = mirror.get("status", {}).get("connectors") or []
    idle = [c["name"] for c in connectors if c["connector"]["state"] == "RUNNING" and not c.get("tasks")]
    wanted = set(wanted_connectors(spec).values())
    said = "; ".join(connector_problems(mirror)) or waiting_for(mirror)
    if reason := "; ".join([*([said] if said else []), *_of_its_pods(mirror, pods)]):
        return kind, name, False, "Degraded", reason
    if idle:
        return kind, name, False, "Degraded", f"no task when the operator last looked: {', '.join(idle)}"
    if wanted <= {"PAUSED", "STOPPED"}:
        state = "Paused" if wanted == {"PAUSED"} else "Stopped"
        return kind, name, False, state, f"its manifest says so: {', '.join(wanted_connectors(spec))}"
    sources = ", ".join(
        entry["source"]["alias"] if "source" in entry else entry["sourceCluster"] for entry in spec["mirrors"]
    )
    tasks = sum(len(connector.get("tasks") or ()) for connector in connectors)
    detail = f"from {sources}: {_count(len(connectors), 'connector')}, {_count(tasks, 'task')} on "
    return kind, name, True, "Running", detail + _count(spec.get("replicas", 1), "worker")


def program_health(deployment: Document, pods: Sequence[Document], now: datetime) -> Health:
    """A program's health."""
    kind, name, spec = deployment["kind"], deployment["metadata"]["name"], deployment["spec"]
    if not spec.get("replicas", 1):
        return kind, name, False, "Stopped", "spec.replicas is 0"
    labels = spec["selector"]["matchLabels"].items()
    own = [pod for pod in pods if labels <= (pod["metadata"].get("labels") or {}).items()]
    if reason := waiting_for(deployment):
        return kind, name, False, "Down", "; ".join([reason, *(p for pod in own for p in pod_problems(pod))])
    detail = f"{spec.get('replicas', 1)} running"
    if started := [pod["status"]["startTime"] for pod in own if pod.get("status", {}).get("startTime")]:
        detail += f" for {(now - datetime.fromisoformat(max(started))).total_seconds():.0f} s"
    return kind, name, True, "Running", detail


def _of_its_pods(document: Document, pods: Sequence[Document]) -> list[str]:
    """What the pods of an operator's resource lack. The operator itself looks at them every few minutes only."""
    own = [
        pod
        for pod in pods
        if _of(pod) == document["metadata"]["name"]
        and (_labels(pod).get("kind") == "KafkaMirrorMaker2") == (document["kind"] == "KafkaMirrorMaker2")
    ]
    return [problem for pod in own for problem in pod_problems(pod)]


def _labels(document: Document) -> dict[str, str]:
    """Labels, with an operator's by their names without its prefix."""
    return {
        name.removeprefix("strimzi.io/").removeprefix("eventstreams.ibm.com/"): value
        for name, value in (document["metadata"].get("labels") or {}).items()
    }


def _of(document: Document) -> str:
    return _labels(document).get("cluster", "")


def _inner_pools(kafka: Document) -> Iterator[Document]:
    spec = kafka.get("spec", {})
    yield from spec.get("strimziOverrides", {}).get("nodePools") or ()


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
