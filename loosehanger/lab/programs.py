"""The lab's producers, consumers and control room, recognised among its Deployments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loosehanger.lab.manifests.documents import Document

if TYPE_CHECKING:
    from loosehanger.lab.topology import Topology


@dataclass(frozen=True)
class Consumer:
    """A consumer Deployment."""

    name: str
    """The name of its Deployment."""
    region: str
    """The region it runs in."""
    cluster_region: str
    """The region whose cluster it consumes from."""
    user: str
    """The user of that cluster that it signs in as."""
    pattern: str = ""
    """The topics it subscribes to, as a regular expression; empty for its default."""
    group: str = ""
    """Its consumer group; empty for none."""
    replicas: int = 1
    """The number of its replicas."""


def consumers(topology: Topology) -> list[Consumer]:
    """Returns all consumers, in the order of their regions' documents."""
    found = []
    for document in topology.of_kind("Deployment"):
        command, variables = _program(document)
        if "consumers" in command:
            address = topology.address(variables.get("KAFKA_BOOTSTRAP_SERVERS", ""), document.where())
            user, pattern = variables.get("KAFKA_USERNAME", ""), variables.get("CONSUMER_PATTERN", "")
            group = variables.get("CONSUMER_GROUP", "")
            names = document.name, document.namespace, address.region
            found.append(Consumer(*names, user, pattern, group, replicas(document)))
    return found


def is_producer(document: Document) -> bool:
    """Whether a resource is a producer's Deployment."""
    return document.kind == "Deployment" and "producer" in _program(document)[0]


def cluster_address(document: Document) -> str:
    """Returns the bootstrap address of a producer or a consumer; empty for any other resource."""
    if document.kind != "Deployment":
        return ""
    command, variables = _program(document)
    return variables.get("KAFKA_BOOTSTRAP_SERVERS", "") if {"producer", "consumers"} & set(command) else ""


def ledgers(topology: Topology) -> dict[tuple[str, str], str]:
    """Returns the PersistentVolumeClaim of each program's ledger, by region and name of its Deployment."""
    found = {}
    for document in topology.of_kind("Deployment"):
        _, variables = _program(document)
        if folder := variables.get("PRODUCER_LEDGER") or variables.get("CONSUMER_LEDGER"):
            pod = document.content["spec"]["template"]["spec"]
            mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0].get("volumeMounts") or ()}
            claims = {
                volume["name"]: volume["persistentVolumeClaim"]["claimName"]
                for volume in pod.get("volumes") or ()
                if "persistentVolumeClaim" in volume
            }
            if claim := claims.get(mounts.get(folder, "")):
                found[document.namespace, document.name] = claim
    return found


def replicas(deployment: Document) -> int:
    """Returns the number of a Deployment's replicas."""
    return int((deployment.content.get("spec") or {}).get("replicas", 1))


def with_replicas(document: Document, replicas: int) -> Document:
    """Returns a Deployment with another number of replicas."""
    spec = {**document.content["spec"], "replicas": replicas}
    return replace(document, content={**document.content, "spec": spec})


def control_room(topology: Topology) -> tuple[str, str] | None:
    """Returns the region and the name of the web console that shows every region; None without one."""
    for document in topology.of_kind("Deployment"):
        _, variables = _program(document)
        if variables.get("CONSOLE_CONTROL_ROOM") == "true":
            return document.namespace, variables.get("CONSOLE_NAME", "")
    return None


def prover_region(topology: Topology) -> str:
    """Returns the region that the proof runs in: the control room's, else the first with a cluster; empty for none."""
    if room := control_room(topology):
        return room[0]
    return next((region for region in topology.regions if topology.clusters(region)), "")


def _program(deployment: Document) -> tuple[list[str], dict[str, str]]:
    """Returns the commands of a Deployment's containers, and the values of their environment variables."""
    pod = ((deployment.content.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = pod.get("containers") or ()
    command = [str(word) for container in containers for word in container.get("command") or ()]
    variables = [variable for container in containers for variable in container.get("env") or ()]
    return command, {str(variable.get("name")): str(variable.get("value", "")) for variable in variables}
