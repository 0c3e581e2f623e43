"""Is a resource as its manifest says, and if not, what is it waiting for: read from its status alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from loosehanger.kafka import connector_states
from loosehanger.kafka.connector_states import wanted_connectors

Document = Mapping[str, Any]
NAMED = 3
"""So many resources are named that wait for the same."""


def waiting_for(document: Document) -> str | None:
    """What a resource is still waiting for.

    Args:
        document: the resource, as the API server has it.

    Returns:
        None when it is ready: its operator has seen its newest generation and says so. Otherwise the reason, in the
        operator's own words where it gives any.
    """
    kind = document["kind"]
    if kind == "Namespace":
        phase = document.get("status", {}).get("phase", "Active")
        return None if phase == "Active" else f"the namespace is {phase}: it is being deleted"
    if kind == "Deployment":
        return _deployment(document)
    if kind == "KafkaNodePool":
        # Its Kafka gets ready for both; a pool alone only says which generation was seen.
        return None if "observedGeneration" not in document.get("status", {}) else unseen(document)
    if document["apiVersion"].startswith(("kafka.strimzi.io/", "eventstreams.ibm.com/")):
        return _of_an_operator(document)
    return None


def by_reason(reasons: Mapping[str, str]) -> str:
    """What is waited for on one line, where many resources wait for the same.

    Args:
        reasons: what each resource waits for, by its reference.

    Returns:
        Each reason once, behind the resources that have it: the first ones by name, and how many more.
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    told = []
    for reason, waiting in names.items():
        more = len(waiting) - NAMED
        told.append(f"{', '.join(waiting[:NAMED])}{f' and {more} more' if more > 0 else ''}: {reason}")
    return "; ".join(told)


def _of_an_operator(document: Document) -> str | None:
    status = document.get("status") or {}
    if not status and document["kind"] in ("KafkaTopic", "KafkaUser"):
        return "no operator has looked at it yet; they come with its cluster"
    if not status:
        return "no operator has looked at it yet; is one running that watches this namespace?"
    if not_seen := unseen(document):
        return not_seen
    ready = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), None)
    if ready is None or ready["status"] != "True":
        return "; ".join(conditions(document)) or "the operator has not said that it is ready"
    if document["kind"] == "KafkaMirrorMaker2":
        return "; ".join(connector_problems(document)) or None
    return None


def unseen(document: Document) -> str | None:
    """What to say of a resource whose newest version no operator has looked at."""
    observed, generation = document.get("status", {}).get("observedGeneration"), document["metadata"].get("generation")
    if observed == generation:
        return None
    return f"the operator has not seen its newest version yet (generation {generation}, seen: {observed or 'none'})"


def conditions(document: Document) -> Iterator[str]:
    """What the operator says beside Ready, each as ``reason: message``."""
    for condition in document.get("status", {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            continue
        said = [condition.get("reason"), condition.get("message")]
        text = ": ".join(" ".join(str(part).split()) for part in said if part)
        yield text or f"{condition['type']} is {condition['status']}"


def connector_problems(document: Document, wanted: Document | None = None) -> Iterator[str]:
    """The connectors and tasks of a mirror that are not in the state that its manifest wants.

    Args:
        document: the mirror, as the API server has it.
        wanted: what the kit has carried out, whose word it is then; None for the mirror itself.
    """
    spec = document["spec"]
    if not spec.get("replicas", 1):
        return
    present = {connector["name"]: connector for connector in document.get("status", {}).get("connectors") or ()}
    yield from (
        said
        for _, said in connector_states.connector_problems(wanted_connectors((wanted or document)["spec"]), present)
    )


def _deployment(document: Document) -> str | None:
    spec, status = document["spec"], document.get("status", {})
    wanted = spec.get("replicas", 1)
    if not_seen := unseen(document):
        return not_seen.replace("the operator", "Kubernetes")
    current = (status.get("updatedReplicas", 0), status.get("availableReplicas", 0), status.get("replicas", 0))
    if current == (wanted, wanted, wanted):
        return None
    said = "; ".join(
        f"{condition.get('reason')}: {condition.get('message')}"
        for condition in status.get("conditions") or ()
        if condition["status"] != ("False" if condition["type"] == "ReplicaFailure" else "True")
    )
    return f"{current[1]} of {wanted} pods available" + (f"; {said}" if said else "")


def pod_problems(pod: Document) -> Iterator[str]:
    """Why a pod's containers do not run, in Kubernetes' own words."""
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
            yield f"pod {name}: container {container['name']} ended with {ended['exitCode']}"
        elif not container.get("ready", True):
            yield f"pod {name}: container {container['name']} runs, and is not ready"
