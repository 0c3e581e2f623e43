"""``./lab mirror-properties``: the lab's mirrors as a properties file for MirrorMaker 2's dedicated mode."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from loosehanger.cli.client_settings import properties_file
from loosehanger.cli.kafka_tools import become
from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.files import write_file
from loosehanger.kafka.oauth import ENDPOINT
from loosehanger.kafka.properties import parse_properties, read_properties
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import Content, MirrorMaker
from loosehanger.lab.record import Lab
from loosehanger.lab.scenario import MIRROR
from loosehanger.paths import lab_home
from loosehanger.platforms.mirror_properties import DedicatedFlow, flows_of, mirror_properties
from loosehanger.platforms.registry import addresses_from
from loosehanger.suggestions import did_you_mean

_FILE = "mirror-maker.properties"


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Writes the file, which only its owner can read, and prints its path or its content, or runs it.

    Raises:
        WrongUseError: there is no such mirror, or its clusters are not on this machine.
        LabError: Java cannot be started.
    """
    documents = _chosen(lab, options.mirrors)
    path = lab_home() / "access" / _FILE
    text = _text(lab, documents, options.alias, options.topics)
    write_file(path, text)
    if options.run:
        settings = parse_properties(text, str(path))
        endpoints = {value for name, value in settings.items() if name.endswith(ENDPOINT)}
        become("org.apache.kafka.connect.mirror.MirrorMaker", str(path), log_level="WARN", token_endpoints=endpoints)
    print(path.read_text(encoding="utf-8") if options.show else path, end="" if options.show else "\n")
    return ExitCode.DONE


def _chosen(lab: Lab, names: Sequence[str]) -> list[Document]:
    known = {f"{document.namespace}/{document.name}": document for document in lab.topology.of_kind(MIRROR)}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are: {', '.join(known) or 'none'}"
            raise WrongUseError(f"there is no mirror '{name}'{hint}")
    if not known:
        raise WrongUseError(f"{lab.scenario} has no mirror at this stage")
    return [known[name] for name in names] if names else list(known.values())


def _text(lab: Lab, documents: Iterable[Document], alias: str, topics: str | None) -> str:
    clients: dict[str, dict[str, str]] = {}
    flows: list[tuple[DedicatedFlow, dict[str, str]]] = []
    for document in documents:
        manifest = MirrorMaker(document.content)
        target, *sources = (_client(lab, document, end, path) for end, path in manifest.ends)
        clients[f"{alias}{manifest.target['alias']}"] = target
        readers = {
            f"{alias}{mirror['source']['alias']}": one for mirror, one in zip(manifest.mirrors, sources, strict=True)
        }
        flows += [(flow, readers[flow.source]) for flow in flows_of(manifest, alias, topics)]
    for flow, reader in flows:
        clients.setdefault(flow.source, reader)
    return mirror_properties(clients, [_reading_as(flow, reader, clients) for flow, reader in flows])


def _reading_as(
    flow: DedicatedFlow, reader: Mapping[str, str], clients: Mapping[str, Mapping[str, str]]
) -> DedicatedFlow:
    """A cluster that is written as well has the writer's sign-in in the file: a flow from it needs its own."""
    if reader == clients[flow.source]:
        return flow
    own = {f"source.cluster.{key}": value for key, value in reader.items()}
    return replace(flow, connector={**flow.connector, **own})


def _client(lab: Lab, document: Document, end: Content, path: tuple[str | int, ...]) -> dict[str, str]:
    """The client properties with which a mirror reaches one of its ends, over the link if that is far away."""
    where = document.where(*path, "bootstrapServers")
    region = lab.topology.address(str(end.get("bootstrapServers", "")), where).region
    user = sign_ins.user_of(end)
    if not user:
        raise WrongUseError(
            f"{document.where(*path, 'authentication')}: names no KafkaUser whose sign-in could be written"
        )
    properties = read_properties(properties_file(lab.region(region), user))
    servers = properties["bootstrap.servers"].split(",")
    far = document.namespace != region
    over_the_link = addresses_from(lab_home(), region, servers, document.namespace) if far else None
    return {**properties, "bootstrap.servers": ",".join(over_the_link or servers)}
