"""A scenario as a Mermaid flowchart: its regions after the set-up, their programs, and what each mirror copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import MirrorMaker
from loosehanger.lab.mirrors.replication import IDENTITY_POLICY
from loosehanger.lab.scenario import MIRROR, Scenario
from loosehanger.lab.scenario_index import SETUP
from loosehanger.lab.topology import SERVICE

_CLUSTER = "kafka_cluster"
"""The role that gives a region a cluster."""
_KAFKA = "kafka"
_PROGRAMS = ("producer", "clearing", "consumer")
"""The roles that run a program beside or in front of a cluster."""


@dataclass(frozen=True)
class _Role:
    """A role that the set-up gives a region."""

    name: str
    region: str
    cluster: str
    """The region whose cluster its program uses."""


def mermaid(scenario: Scenario) -> str:
    """Returns the flowchart, without the fence of Markdown.

    A cluster is a cylinder, a program of the shop a rounded box, a mirror a box in the region where it runs. An arrow
    into a mirror has the topics that it selects, one out of it the prefix that copies get. A mirror that begins stopped
    or paused is dashed.

    Raises:
        WrongUseError: the playbook or a manifest cannot be used.
    """
    roles = list(_roles(scenario))
    mirrors = [document for document in scenario.manifests(SETUP) if document.kind == MIRROR]
    regions = dict.fromkeys([*(role.region for role in roles), *(mirror.namespace for mirror in mirrors)])
    lines = ["flowchart LR"]
    for region in regions:
        lines.append(f'  subgraph {_id(region)}["{region}"]')
        lines += [f"    {line}" for line in _inside(region, roles, mirrors)]
        lines.append("  end")
    lines += [f"  {line}" for line in (*_program_arrows(roles), *_mirror_arrows(mirrors))]
    return "\n".join(lines) + "\n"


def _inside(region: str, roles: Iterable[_Role], mirrors: Iterable[Document]) -> Iterator[str]:
    for role in roles:
        if role.region == region:
            is_cluster = role.name == _CLUSTER
            yield f'{_id(region, _KAFKA)}[("Kafka")]' if is_cluster else f'{_id(region, role.name)}("{role.name}")'
    for mirror in mirrors:
        if mirror.namespace == region:
            yield f'{_id(region, mirror.name)}["{mirror.name}"]'


def _program_arrows(roles: Iterable[_Role]) -> Iterator[str]:
    for role in roles:
        program, cluster = _id(role.region, role.name), _id(role.cluster, _KAFKA)
        match role.name:
            case "producer":
                yield f"{program} --> {cluster}"
            case "consumer":
                yield f"{cluster} --> {program}"
            case "clearing":
                yield f"{cluster} <--> {program}"


def _mirror_arrows(mirrors: Iterable[Document]) -> Iterator[str]:
    for document in mirrors:
        maker, node = MirrorMaker(document.content), _id(document.namespace, document.name)
        target = _id(_region(document, maker.target), _KAFKA)
        for mirror in maker.mirrors:
            source, connector = mirror["source"], mirror.get("sourceConnector") or {}
            arrow = "-.->" if connector.get("state") in ("stopped", "paused") else "-->"
            identity = (connector.get("config") or {}).get("replication.policy.class") == IDENTITY_POLICY
            prefix = "" if identity else f'|"{source["alias"]}.…"|'
            yield f'{_id(_region(document, source), _KAFKA)} {arrow}|"{_label(mirror)}"| {node}'
            yield f"{node} {arrow}{prefix} {target}"


def _label(mirror: Mapping[str, Any]) -> str:
    # Mermaid takes a backslash as it is; a quotation mark would end the label.
    return (mirror.get("topicsPattern") or ".*").replace('"', "#quot;")


def _region(document: Document, end: Mapping[str, Any]) -> str:
    address = str(end.get("bootstrapServers", ""))
    if found := SERVICE.search(address):
        return found["region"]
    raise WrongUseError(f"{document.where()}: '{address}' is not the address of a region's cluster")


def _roles(scenario: Scenario) -> Iterator[_Role]:
    """Yields what the plays of the set-up give each region, in their order."""
    path = scenario.folder / f"{SETUP}.yaml"
    for play in yaml.safe_load(path.read_text(encoding="utf-8")):
        for entry in play.get("roles") or ():
            name = entry["role"]
            if name in (_CLUSTER, *_PROGRAMS):
                for region in play["hosts"].split(":"):
                    yield _Role(name, region, entry.get(f"{name}_cluster", region))


def _id(*names: str) -> str:
    return "_".join(names).replace("-", "_")
