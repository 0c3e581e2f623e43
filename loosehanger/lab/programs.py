"""The lab's producers, consumers and control room, recognised among its Deployments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import Program

if TYPE_CHECKING:
    from loosehanger.lab.topology import Topology


SHOP_PREFIX = "LH."
"""What the names of the shop's topics begin with, unless a producer has another prefix."""
AUDIT = "audit"
"""The name of the audit's Deployment, and of its volume."""


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
        program = Program(document.content)
        variables = program.variables
        if "consumers" in program.command:
            address = topology.address(variables.get("KAFKA_BOOTSTRAP_SERVERS", ""), document.where())
            user, pattern = variables.get("KAFKA_USERNAME", ""), variables.get("CONSUMER_PATTERN", "")
            group = variables.get("CONSUMER_GROUP", "")
            names = document.name, document.namespace, address.region
            found.append(Consumer(*names, user, pattern, group, program.replicas))
    return found


def is_producer(document: Document) -> bool:
    """Whether a resource is a producer's Deployment."""
    return document.kind == "Deployment" and "producer" in Program(document.content).command


def event_prefixes(topology: Topology) -> tuple[str, ...]:
    """Returns what the names of the shop's topics begin with where its producers write them."""
    own = (
        Program(one.content).variables.get("PRODUCER_PREFIX")
        for one in topology.of_kind("Deployment")
        if is_producer(one)
    )
    return tuple(dict.fromkeys((SHOP_PREFIX, *filter(None, own))))


def is_console(document: Document) -> bool:
    """Whether a resource is a web console's Deployment."""
    return document.kind == "Deployment" and Program(document.content).is_console


def is_audit(document: Document) -> bool:
    """Whether a resource is the Deployment of the audit, or its volume."""
    if document.kind == "PersistentVolumeClaim":
        return document.name == AUDIT
    return document.kind == "Deployment" and Program(document.content).is_audit


def ledgers(topology: Topology) -> dict[tuple[str, str], str]:
    """Returns the PersistentVolumeClaim of each program's ledger, by region and name of its Deployment."""
    found = {}
    for document in topology.of_kind("Deployment"):
        program = Program(document.content)
        variables, pod = program.variables, program.pod
        if folder := variables.get("PRODUCER_LEDGER") or variables.get("CONSUMER_LEDGER"):
            mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0].get("volumeMounts") or ()}
            claims = {
                volume["name"]: volume["persistentVolumeClaim"]["claimName"]
                for volume in pod.get("volumes") or ()
                if "persistentVolumeClaim" in volume
            }
            if claim := claims.get(mounts.get(folder, "")):
                found[document.namespace, document.name] = claim
    return found


def with_replicas(document: Document, replicas: int) -> Document:
    """Returns a Deployment with another number of replicas."""
    spec = {**document.content["spec"], "replicas": replicas}
    return replace(document, content={**document.content, "spec": spec})


def control_room(topology: Topology) -> tuple[str, str] | None:
    """Returns the region and the name of the web console that shows every region; None without one."""
    for document in topology.of_kind("Deployment"):
        variables = Program(document.content).variables
        if variables.get("CONSOLE_CONTROL_ROOM") == "true":
            return document.namespace, variables.get("CONSOLE_NAME", "")
    return None


def prover_region(topology: Topology) -> str:
    """Returns the region that the proof runs in: the control room's, else the first with a cluster; empty for none."""
    if room := control_room(topology):
        return room[0]
    return next((region for region in topology.regions if topology.clusters(region)), "")
