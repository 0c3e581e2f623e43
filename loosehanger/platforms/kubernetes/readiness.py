"""Decides from a resource's status whether it is as its manifest says, and what it is waiting for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from loosehanger.kafka import connector_states
from loosehanger.kafka.connector_states import wanted_connectors
from loosehanger.lab.manifests.views import MIRROR

Document = Mapping[str, Any]
NAMED = 3
"""Most resources named that wait for the same reason."""


def waiting_for(document: Document) -> str | None:
    """Returns what a resource is waiting for.

    Args:
        document: the resource, from the API server.

    Returns:
        None when it is ready: its operator has observed its newest generation and reports Ready. Otherwise the reason,
        in the operator's words if it gives any.
    """
    kind = document["kind"]
    if kind == "Namespace":
        phase = document.get("status", {}).get("phase", "Active")
        return None if phase == "Active" else f"the namespace is {phase}: it is being deleted"
    if kind == "Deployment":
        return _deployment(document)
    if kind == "KafkaNodePool":
        # Its Kafka reports Ready for both; a pool only has its observed generation.
        return None if "observedGeneration" not in document.get("status", {}) else unseen(document)
    if document["apiVersion"].startswith(("kafka.strimzi.io/", "eventstreams.ibm.com/")):
        return _of_an_operator(document)
    return None


def by_reason(reasons: Mapping[str, str]) -> str:
    """Groups the reasons of waiting resources in one line.

    Args:
        reasons: the reason of each resource, by its reference.

    Returns:
        Each reason once, after its resources: the first ones by name, and the number of the others.
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    lines = []
    for reason, waiting in names.items():
        more = len(waiting) - NAMED
        lines.append(f"{', '.join(waiting[:NAMED])}{f' and {more} more' if more > 0 else ''}: {reason}")
    return "; ".join(lines)


def _of_an_operator(document: Document) -> str | None:
    status = document.get("status") or {}
    if not status and document["kind"] in ("KafkaTopic", "KafkaUser"):
        return "no operator has reconciled it yet; its cluster starts the operators"
    if not status:
        return "no operator has reconciled it yet; check that one watches this namespace"
    if not_seen := unseen(document):
        return not_seen
    ready = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), None)
    if ready is None or ready["status"] != "True":
        return "; ".join(conditions(document)) or "the operator does not report it as ready"
    if document["kind"] == MIRROR:
        return "; ".join(connector_problems(document)) or None
    return None


def unseen(document: Document) -> str | None:
    """Returns the message for a resource whose newest generation no operator has observed; None if one has."""
    observed, generation = document.get("status", {}).get("observedGeneration"), document["metadata"].get("generation")
    if observed == generation:
        return None
    return f"the operator has not seen its newest version yet (generation {generation}, seen: {observed or 'none'})"


def conditions(document: Document) -> Iterator[str]:
    """Yields the operator's conditions other than Ready, each as ``reason: message``."""
    for condition in document.get("status", {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            continue
        parts = [condition.get("reason"), condition.get("message")]
        text = ": ".join(" ".join(str(part).split()) for part in parts if part)
        yield text or f"{condition['type']} is {condition['status']}"


def connector_problems(document: Document, wanted: Document | None = None) -> Iterator[str]:
    """Yields the problems of a mirror's connectors and tasks that are not in the manifest's state.

    Args:
        document: the mirror, from the API server.
        wanted: the mirror as the kit applied it, which defines the desired state; None for ``document``.
    """
    spec = document["spec"]
    if not spec.get("replicas", 1):
        return
    present = {connector["name"]: connector for connector in document.get("status", {}).get("connectors") or ()}
    yield from (
        problem
        for _, problem in connector_states.connector_problems(wanted_connectors((wanted or document)["spec"]), present)
    )


def _deployment(document: Document) -> str | None:
    spec, status = document["spec"], document.get("status", {})
    wanted = spec.get("replicas", 1)
    if not_seen := unseen(document):
        return not_seen.replace("the operator", "Kubernetes")
    current = (status.get("updatedReplicas", 0), status.get("availableReplicas", 0), status.get("replicas", 0))
    if current == (wanted, wanted, wanted):
        return None
    reasons = "; ".join(
        f"{condition.get('reason')}: {condition.get('message')}"
        for condition in status.get("conditions") or ()
        if condition["status"] != ("False" if condition["type"] == "ReplicaFailure" else "True")
    )
    return f"{current[1]} of {wanted} pods available" + (f"; {reasons}" if reasons else "")


def pod_problems(pod: Document) -> Iterator[str]:
    """Yields why a pod's containers do not run, in Kubernetes' own words."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"pod {name} cannot be scheduled: {condition.get('message', condition.get('reason'))}"
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = container.get("state") or {}
        if waiting := state.get("waiting"):
            if waiting.get("reason") not in ("ContainerCreating", "PodInitializing"):
                yield f"pod {name}: {waiting.get('reason')}: {waiting.get('message', '')}".rstrip(": ")
        elif (ended := state.get("terminated")) and ended.get("exitCode"):
            yield f"pod {name}: container {container['name']} exited with {ended['exitCode']}"
        elif not container.get("ready", True):
            yield f"pod {name}: container {container['name']} is running and not ready"
