"""Reads the flows that a copier's own configuration describes: MirrorMaker 2, Strimzi's resource, Replicator.

MM2's rules are those of Kafka 4.3.1's ``MirrorMakerConfig``, Replicator's those of Confluent's documentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.kafka.properties import parse_properties
from loosehanger.lab.manifests.documents import Document, read_file, read_resources
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.renaming import Renaming
from loosehanger.lab.mirrors.replication import DEFAULT_EXCLUDED, IDENTITY_POLICY, selected_topics
from loosehanger.proof.read.external import flow_name

_DEFAULT_POLICY = IDENTITY_POLICY.replace("Identity", "Default")
_POLICY, _SEPARATOR = "replication.policy.class", "replication.policy.separator"
_EXCLUDED = ("topics.exclude", "topics.blacklist")
"""The setting, and its name before Kafka 4."""
_OF_CLIENTS = ("bootstrap.servers", "security.", "sasl.", "ssl.", "config.providers")
"""The properties that decide how a client reaches a cluster; others tune MM2's own clients."""
_TOPIC = "${topic}"
_CONNECTOR = "connector.class"


@dataclass(frozen=True)
class ReadFlows:
    """What a copier's configuration describes."""

    mirrors: tuple[Mirror, ...]
    clusters: Mapping[str, Mapping[str, str]] = field(repr=False)
    """Client properties by cluster, with placeholders."""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """The clusters whose credentials stand elsewhere, and where they are named."""


def read_flows(path: Path) -> ReadFlows:
    """Reads a copier's configuration, which its content identifies.

    Args:
        path: MM2's properties file, a manifest with ``KafkaMirrorMaker2``, or Replicator's properties or JSON.

    Raises:
        WrongUseError: the file cannot be read, or describes no flow that can be compared.
    """
    text, where = read_file(path), str(path)
    if path.suffix in (".yaml", ".yml"):
        return _of_manifest(where, text)
    if path.suffix == ".json":
        properties = _of_json(where, text)
    else:
        properties = {key: value.strip() for key, value in parse_properties(text, where).items()}
    if "Replicator" in properties.get(_CONNECTOR, "") or any(key.startswith("src.kafka.") for key in properties):
        return _of_replicator(where, properties)
    if "clusters" in properties:
        return _of_mirror_maker(where, properties)
    raise WrongUseError(
        f"{where}: describes no flows; expected MM2's properties (clusters = A, B), a manifest with {MIRROR}, "
        "or Replicator's configuration (src.kafka.…, dest.kafka.…)"
    )


def is_manifest(document: Document) -> bool:
    """Whether a document is one that ``read_flows`` takes."""
    return document.kind in (MIRROR, "List")


def _of_mirror_maker(where: str, properties: Mapping[str, str]) -> ReadFlows:
    names = [name.strip() for name in properties["clusters"].split(",") if name.strip()]
    mirrors = []
    for source, target in permutations(names, 2):
        pair = f"{source}->{target}."
        if properties.get(f"{pair}enabled", "false").lower() != "true":
            continue
        settings = {**properties, **_below(properties, pair)}
        mirrors.append(_mirror(f"{where}: {source}->{target}", f"{source}-{target}", (source, target), settings))
    if not mirrors:
        raise WrongUseError(f"{where}: no flow is enabled; MM2 copies where it has SOURCE->TARGET.enabled = true")
    # A property without a cluster's name applies to all of them.
    common = {key: value for key, value in properties.items() if key.startswith(_OF_CLIENTS)}
    clusters = {
        name: {**common, **{k: v for k, v in _below(properties, f"{name}.").items() if k.startswith(_OF_CLIENTS)}}
        for name in names
    }
    return ReadFlows(tuple(mirrors), clusters)


def _below(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}


def _mirror(where: str, name: str, ends: tuple[str, str], settings: Mapping[str, str]) -> Mirror:
    """A flow by MM2's settings for it, the general ones included."""
    policy, separator = settings.get(_POLICY, _DEFAULT_POLICY), settings.get(_SEPARATOR, ".")
    if policy not in (_DEFAULT_POLICY, IDENTITY_POLICY):
        raise WrongUseError(
            f"{where}: {_POLICY}: the names that '{policy}' gives are unknown; write the flow with 'names' instead"
        )
    source, target = ends
    found = Mirror(
        *(flow_name(name), source, target, source, target),
        policy="identity" if policy == IDENTITY_POLICY else "default",
        separator=separator,
        topics=settings.get("topics", ".*"),
        topics_exclude=next((settings[key] for key in _EXCLUDED if key in settings), DEFAULT_EXCLUDED),
        connector="",
    )
    _check(found, where)
    return found


def _check(mirror: Mirror, where: str) -> None:
    try:
        selected_topics(mirror, ())
    except WrongUseError as error:
        raise WrongUseError(f"{where}: {error}") from error


def _of_manifest(where: str, text: str) -> ReadFlows:
    mirrors: list[Mirror] = []
    clusters: dict[str, Mapping[str, str]] = {}
    incomplete: dict[str, str] = {}
    for document in read_resources(where, text):
        if document.kind != MIRROR:
            continue
        for path, target, source, entry in _entries(document):
            at = document.where(*path)
            ends = []
            for end in (source, target):
                alias = str(end.get("alias") or "")
                if not alias or not end.get("bootstrapServers"):
                    raise WrongUseError(f"{at}: a cluster of this flow has no alias or no bootstrapServers")
                ends.append(alias)
                clusters[alias] = {"bootstrap.servers": str(end["bootstrapServers"])}
                if "tls" in end or "authentication" in end:
                    incomplete[alias] = at
            connector = entry.get("sourceConnector")
            if not isinstance(connector, dict):
                continue
            settings = {str(key): str(value) for key, value in (connector.get("config") or {}).items()}
            for key, old, setting in (
                ("topicsPattern", "", "topics"),
                ("topicsExcludePattern", "topicsBlacklistPattern", "topics.exclude"),
            ):
                if value := entry.get(key) or entry.get(old):
                    settings[setting] = str(value)
            mirrors.append(_mirror(at, f"{document.name}-{ends[0]}-{ends[1]}", (ends[0], ends[1]), settings))
    if not mirrors:
        raise WrongUseError(f"{where}: has no {MIRROR} with a sourceConnector")
    return ReadFlows(tuple(mirrors), clusters, incomplete)


def _entries(
    document: Document,
) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]]:
    """The path, the target, the source and the content of each flow, in the shape of v1 or of v1beta2."""
    spec = document.spec
    listed = [one for one in spec.get("clusters") or () if isinstance(one, dict)]
    known = {str(one.get("alias")): one for one in listed}
    for index, entry in enumerate(spec.get("mirrors") or ()):
        if not isinstance(entry, dict):
            continue
        path = ("spec", "mirrors", index)
        if isinstance(entry.get("source"), dict):
            target = spec.get("target")
            yield path, target if isinstance(target, dict) else {}, entry["source"], entry
            continue
        ends = [known.get(str(entry.get(key))) for key in ("targetCluster", "sourceCluster")]
        for key, end in zip(("targetCluster", "sourceCluster"), ends, strict=True):
            if end is None:
                raise WrongUseError(
                    f"{document.where(*path, key)}: '{entry.get(key)}' is not in spec.clusters; it has: "
                    f"{', '.join(known) or 'none'}"
                )
        yield path, ends[0] or {}, ends[1] or {}, entry


def _of_json(where: str, text: str) -> dict[str, str]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise WrongUseError(f"{where}: is not JSON: {error}") from error
    config = content.get("config", content) if isinstance(content, dict) else None
    if not isinstance(config, dict):
        raise WrongUseError(f"{where}: expected a connector's configuration: name and config")
    return {str(key): str(value) for key, value in config.items()}


def _of_replicator(where: str, properties: Mapping[str, str]) -> ReadFlows:
    """Replicator: topics by a list and by one regular expression; ``topic.rename.format`` has ``${topic}``."""
    renamed = properties.get("topic.rename.format", _TOPIC) or _TOPIC
    if renamed.count(_TOPIC) != 1 or "${" in renamed.replace(_TOPIC, ""):
        raise WrongUseError(
            f"{where}: topic.rename.format: expected a name with {_TOPIC} in it, as in {_TOPIC}-replica"
        )
    prefix, _, suffix = renamed.partition(_TOPIC)
    names = [one.strip() for one in properties.get("topic.whitelist", "").split(",") if one.strip()]
    patterns = [properties["topic.regex"]] if properties.get("topic.regex") else []
    if not names and not patterns:
        raise WrongUseError(f"{where}: names no topics; give topic.whitelist or topic.regex")
    if any("," in pattern for pattern in patterns):
        raise WrongUseError(f"{where}: topic.regex: has a comma; write the flow with 'patterns' instead")
    excluded = [re.escape(one.strip()) for one in properties.get("topic.blacklist", "").split(",") if one.strip()]
    found = Mirror(
        *(flow_name(properties.get("name", "replicator")), "source", "destination", "source", "destination"),
        policy="identity",
        separator=".",
        topics=",".join([*(one.replace(".", "\\.") for one in names), *patterns]),
        topics_exclude=", ".join([*excluded, DEFAULT_EXCLUDED]),
        connector="",
    )
    if prefix or suffix:
        found = replace(found, policy="renamed", renaming=Renaming(prefix=prefix, suffix=suffix))
    _check(found, where)
    clusters = {
        end: {key: value for key, value in _below(properties, start).items() if key.startswith(_OF_CLIENTS)}
        for end, start in (("source", "src.kafka."), ("destination", "dest.kafka."))
    }
    return ReadFlows((found,), clusters)
