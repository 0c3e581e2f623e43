"""The health of every resource of a region, in the form of the local platform, from the operators' reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loosehanger.kafka.connector_states import held, wanted_connectors
from loosehanger.kafka.failed_topics import name_topics_from
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.event_streams import inner_pools
from loosehanger.platforms.kubernetes.readiness import connector_problems, pod_problems, waiting_for
from loosehanger.platforms.kubernetes.resources import CLUSTERS
from loosehanger.platforms.kubernetes.rights import list_own

Document = Mapping[str, Any]
_LOG_LINES = 2000
"""Lines of a worker's log that are searched for the topic of a failed task."""


def status(
    cluster: KubernetesCluster, namespace: str, described: Mapping[str, Document] | None = None
) -> list[dict[str, Any]]:
    """Returns the health of every cluster, mirror and program of a region: kind, name, healthy, state, detail.

    Args:
        cluster: the Kubernetes cluster.
        namespace: the region.
        described: the resources that the kit applied there, by ``Kind/name``, if known.
    """
    known = described or {}
    found = list_own(cluster, namespace, (*CLUSTERS, "KafkaNodePool", "KafkaTopic", MIRROR, "Deployment"))
    pods = cluster.list("v1", "Pod", namespace)
    now = datetime.now(UTC)
    healths = [
        *(
            cluster_health(kafka, found["KafkaNodePool"], found["KafkaTopic"], pods)
            for kind in CLUSTERS
            for kafka in found[kind]
        ),
        *(mirror_health(_with_topics(cluster, mirror, pods), pods, _of_kit(mirror, known)) for mirror in found[MIRROR]),
        *(program_health(program, pods, now, _of_kit(program, known)) for program in found["Deployment"]),
    ]
    return [dict(zip(("kind", "name", "healthy", "state", "detail"), health, strict=True)) for health in healths]


def _of_kit(document: Document, described: Mapping[str, Document]) -> Document | None:
    return described.get(f"{document['kind']}/{document['metadata']['name']}")


Health = tuple[str, str, bool, str, str]


def cluster_health(
    kafka: Document, pools: Sequence[Document], topics: Sequence[Document], pods: Sequence[Document] = ()
) -> Health:
    """Returns the health of a Kafka cluster."""
    name = kafka["metadata"]["name"]
    reasons = [reason] if (reason := waiting_for(kafka)) else []
    waiting = [topic["metadata"]["name"] for topic in topics if waiting_for(topic)]
    reasons += [f"not ready: topics {', '.join(waiting)}"] if waiting else []
    reasons += _of_its_pods(kafka, pods)
    if reasons:
        state = "Degraded" if kafka.get("status") else "Down"
        return kafka["kind"], name, False, state, "; ".join(reasons)
    nodes = sum(pool["spec"]["replicas"] for pool in pools if _of(pool) == name) or sum(
        pool.get("replicas", 0) for pool in inner_pools(kafka)
    )
    own = [topic for topic in topics if _of(topic) == name]
    partitions = sum(topic["spec"].get("partitions", 1) for topic in own)
    # Topics that mirrors created are not resources, and are not counted.
    topics_ = [_count(len(own), "topic"), _count(partitions, "partition")] if own else []
    detail = ", ".join([_count(nodes, "node"), *topics_])
    return kafka["kind"], name, True, "Running", detail


def mirror_health(mirror: Document, pods: Sequence[Document] = (), described: Document | None = None) -> Health:
    """Returns the health of a mirror.

    Args:
        mirror: the resource from the API server.
        pods: the pods of its namespace.
        described: the resource as the kit applied it; None to use ``mirror``.
    """
    kind, name, spec = mirror["kind"], mirror["metadata"]["name"], mirror["spec"]
    wanted = described or mirror
    if by_hand := _replicas_differ(spec, wanted["spec"]):
        return kind, name, False, *by_hand
    waiting = "; ".join(connector_problems(mirror, wanted)) or waiting_for(mirror)
    if reason := "; ".join([*([waiting] if waiting else []), *_of_its_pods(mirror, pods)]):
        return kind, name, False, "Degraded", reason
    if not spec.get("replicas", 1):
        return kind, name, True, "Stopped", "as it should be: spec.replicas is 0"
    connectors = mirror.get("status", {}).get("connectors") or []
    idle = [c["name"] for c in connectors if c["connector"]["state"] == "RUNNING" and not c.get("tasks")]
    if idle:
        return kind, name, False, "Degraded", f"no task when the operator last looked: {', '.join(idle)}"
    if as_wanted := held(wanted_connectors(wanted["spec"])):
        return kind, name, True, *as_wanted
    sources = ", ".join(
        entry["source"]["alias"] if "source" in entry else entry["sourceCluster"] for entry in spec["mirrors"]
    )
    tasks = sum(len(connector.get("tasks") or ()) for connector in connectors)
    detail = f"from {sources}: {_count(len(connectors), 'connector')}, {_count(tasks, 'task')} on "
    return kind, name, True, "Running", detail + _count(spec.get("replicas", 1), "worker")


def _with_topics(cluster: KubernetesCluster, mirror: Document, pods: Sequence[Document]) -> Document:
    """Returns a mirror whose failed tasks name the topic that failed, which only the workers' logs have."""
    reported = mirror.get("status") or {}
    present = {connector["name"]: connector for connector in reported.get("connectors") or ()}
    named = name_topics_from(present, lambda: _logs(cluster, mirror, pods))
    return {**mirror, "status": {**reported, "connectors": [*named.values()]}} if named else mirror


def _logs(cluster: KubernetesCluster, mirror: Document, pods: Sequence[Document]) -> Iterator[str]:
    """Yields the ends of the logs of a mirror's workers."""
    namespace = mirror["metadata"]["namespace"]
    for pod in _own(mirror, pods):
        for container in pod["spec"]["containers"]:
            yield cluster.log(namespace, pod["metadata"]["name"], container["name"], _LOG_LINES)


def program_health(
    deployment: Document, pods: Sequence[Document], now: datetime, described: Document | None = None
) -> Health:
    """Returns the health of a program.

    Args:
        deployment: the resource from the API server.
        pods: the pods of its namespace.
        now: the current time.
        described: the resource as the kit applied it; None to use ``deployment``.
    """
    kind, name, spec = deployment["kind"], deployment["metadata"]["name"], deployment["spec"]
    if by_hand := _replicas_differ(spec, (described or deployment)["spec"]):
        return kind, name, False, *by_hand
    labels = spec["selector"]["matchLabels"].items()
    own = [pod for pod in pods if labels <= (pod["metadata"].get("labels") or {}).items()]
    if reason := waiting_for(deployment):
        return kind, name, False, "Down", "; ".join([reason, *(p for pod in own for p in pod_problems(pod))])
    if not spec.get("replicas", 1):
        return kind, name, True, "Stopped", "as it should be: spec.replicas is 0"
    detail = f"{spec.get('replicas', 1)} running"
    if started := [pod["status"]["startTime"] for pod in own if pod.get("status", {}).get("startTime")]:
        detail += f" for {(now - datetime.fromisoformat(max(started))).total_seconds():.0f} s"
    return kind, name, True, "Running", detail


def _replicas_differ(spec: Document, wanted: Document) -> tuple[str, str] | None:
    """Returns state and reason if the replicas differ from those that the kit applied; None if they do not."""
    replicas, should = spec.get("replicas", 1), wanted.get("replicas", 1)
    if bool(replicas) == bool(should):
        return None
    return "Degraded" if replicas else "Stopped", f"spec.replicas is {replicas} and should be {should}"


def _of_its_pods(document: Document, pods: Sequence[Document]) -> list[str]:
    """Returns the problems of the pods of an operator's resource, which its status shows minutes later."""
    return [problem for pod in _own(document, pods) for problem in pod_problems(pod)]


def _own(document: Document, pods: Sequence[Document]) -> list[Document]:
    """Returns the pods of an operator's resource."""
    return [
        pod
        for pod in pods
        if _of(pod) == document["metadata"]["name"]
        and (_labels(pod).get("kind") == MIRROR) == (document["kind"] == MIRROR)
    ]


def _labels(document: Document) -> dict[str, str]:
    """Returns labels, with the operator's prefix removed from their names."""
    return {
        name.removeprefix("strimzi.io/").removeprefix("eventstreams.ibm.com/"): value
        for name, value in (document["metadata"].get("labels") or {}).items()
    }


def _of(document: Document) -> str:
    return _labels(document).get("cluster", "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
