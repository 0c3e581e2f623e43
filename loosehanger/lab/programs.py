"""What of a lab's Deployments are consumers, and which console sees every region: read from what was described."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loosehanger.lab.manifests.documents import Document

if TYPE_CHECKING:
    from loosehanger.lab.topology import Topology


@dataclass(frozen=True)
class Consumer:
    """A program of a region that reads events."""

    name: str
    """Of its Deployment."""
    region: str
    """The region that it runs in."""
    cluster_region: str
    """The region whose cluster it reads."""
    user: str
    """The user of that cluster that it reads as."""
    pattern: str = ""
    """The topics that it reads: a regular expression; empty for its own default."""
    group: str = ""
    """The group that it is a member of; empty for none."""
    replicas: int = 1
    """In how many copies it runs."""


def consumers(topology: Topology) -> list[Consumer]:
    """Every consumer there is, in the order of their regions' documents."""
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
    """Whether a resource is a program that writes events."""
    return document.kind == "Deployment" and "producer" in _program(document)[0]


def cluster_address(document: Document) -> str:
    """The address of the cluster that a producer or a consumer uses; empty for any other resource."""
    if document.kind != "Deployment":
        return ""
    command, variables = _program(document)
    return variables.get("KAFKA_BOOTSTRAP_SERVERS", "") if {"producer", "consumers"} & set(command) else ""


def ledgers(topology: Topology) -> dict[tuple[str, str], str]:
    """The claim that holds the ledger of each program that keeps one, by region and name of its Deployment."""
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
    """In how many copies a Deployment runs."""
    return int((deployment.content.get("spec") or {}).get("replicas", 1))


def with_replicas(document: Document, replicas: int) -> Document:
    """A Deployment in another number of copies."""
    spec = {**document.content["spec"], "replicas": replicas}
    return replace(document, content={**document.content, "spec": spec})


def control_room(topology: Topology) -> tuple[str, str] | None:
    """The region and the name of the web console that sees every region; None where there is none."""
    for document in topology.of_kind("Deployment"):
        _, variables = _program(document)
        if variables.get("CONSOLE_CONTROL_ROOM") == "true":
            return document.namespace, variables.get("CONSOLE_NAME", "")
    return None


def prover_region(topology: Topology) -> str:
    """The region that provers are in: the control room's, else the first one with a cluster; empty where none is."""
    if room := control_room(topology):
        return room[0]
    return next((region for region in topology.regions if topology.clusters(region)), "")


def _program(deployment: Document) -> tuple[list[str], dict[str, str]]:
    """The commands of a Deployment's containers, and the values of their environment variables."""
    pod = ((deployment.content.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = pod.get("containers") or ()
    command = [str(word) for container in containers for word in container.get("command") or ()]
    variables = [variable for container in containers for variable in container.get("env") or ()]
    return command, {str(variable.get("name")): str(variable.get("value", "")) for variable in variables}
