"""The configuration file of ``mirrorproof``: clusters, flows, what is judged, and where results go."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.properties import parse_properties, read_properties
from loosehanger.lab.manifests.documents import Document, read_documents, read_file
from loosehanger.lab.manifests.validation import FieldError, validated
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import DEFAULT_EXCLUDED
from loosehanger.lab.record import Lab
from loosehanger.mirrorproof.entries import CheckedEntry
from loosehanger.mirrorproof.flows import is_manifest, read_flows
from loosehanger.mirrorproof.mapping import NamesEntry
from loosehanger.proof.compare.configurations import Handling
from loosehanger.proof.read.external import flow_name, several_clusters
from loosehanger.suggestions import instead

_TOPIC_NAME = re.compile(r"[\w.-]{1,249}", re.ASCII)
_FLOW_NAME = re.compile(r"[\w.-]+", re.ASCII)
_SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"
_OF_A_CLUSTER = ("properties", "file", "environment")
Properties = dict[str, str]


class ClusterEntry(CheckedEntry):
    """How to reach a cluster: client properties as Kafka's own tools take them, from one of three places."""

    properties: Annotated[
        dict[str, str | int | float | bool] | str | None,
        Field(description="client properties, as keys and values or as the text of a properties file; ${env:NAME} is "
              "replaced by a variable"),
    ] = None  # fmt: skip
    file: Annotated[str | None, Field(description="a properties file, relative to the folder of this file")] = None
    environment: Annotated[
        str | None,
        Field(description="the prefix of environment variables: with OLD_, OLD_BOOTSTRAP_SERVERS is bootstrap.servers"),
    ] = None

    @field_validator("properties", mode="before")
    @classmethod
    def _without_values_in_messages(cls, given: Any) -> Any:
        if given is None or isinstance(given, str):
            return given
        if not isinstance(given, dict):
            raise ValueError("expected client properties")  # noqa: TRY004
        wrong = [str(key) for key, value in given.items() if not isinstance(value, str | int | float | bool)]
        if wrong:
            raise FieldError([((key,), "expected a text, a number, or true or false") for key in wrong])
        return {str(key): str(value).lower() if isinstance(value, bool) else value for key, value in given.items()}

    @model_validator(mode="after")
    def _one(self) -> ClusterEntry:
        given = [name for name in _OF_A_CLUSTER if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of {', '.join(_OF_A_CLUSTER)}; has {' and '.join(given) or 'none'}")
        return self


class FlowEntry(CheckedEntry):
    """What is copied from one cluster to another."""

    name: Annotated[str, Field(description="the name in reports and for --flow; by default SOURCE-TARGET")] = ""
    source: Annotated[str, Field(description="the name of a cluster")]
    target: Annotated[str, Field(description="the name of a cluster")]
    topics: Annotated[tuple[str, ...], Field(description="names of topics at the source; each of them must exist")] = ()
    patterns: Annotated[tuple[str, ...], Field(description="regular expressions of whole names at the source")] = ()
    exclude: Annotated[tuple[str, ...], Field(description="regular expressions of whole names that are left out")] = ()
    groups: Annotated[
        tuple[str, ...],
        Field(description="consumer groups that must skip nothing after a switch to the target; each must have "
              "committed offsets at the source"),
    ] = ()  # fmt: skip
    names: Annotated[NamesEntry, Field(description="how the copies are named; by default like their sources")] = (
        NamesEntry()
    )

    @model_validator(mode="after")
    def _usable(self) -> FlowEntry:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if self.name and not _FLOW_NAME.fullmatch(self.name):
            problems.append((("name",), f"'{self.name}': use letters, digits, '.', '_' and '-' only"))
        if self.source == self.target:
            problems.append((("target",), "is the source, so that each topic would be compared with itself"))
        if not self.topics and not self.patterns:
            problems.append((("topics",), "names no topics; give topics, patterns or both"))
        for index, topic in enumerate(self.topics):
            if not _TOPIC_NAME.fullmatch(topic):
                problems.append(
                    (("topics", index), f"'{topic}' is not a topic's name; write patterns under 'patterns'")
                )
        for key, patterns in (("patterns", self.patterns), ("exclude", self.exclude)):
            for index, pattern in enumerate(patterns):
                if problem := _problem_of(pattern):
                    problems.append(((key, index), problem))
        if problems:
            raise FieldError(problems)
        return self

    def as_mirror(self) -> Mirror:
        """The mirror that the flow stands for."""
        policy = self.names.as_policy(self.source)
        named = [topic.replace(".", "\\.") for topic in self.topics]
        return Mirror(
            flow_name(self.name or f"{self.source}-{self.target}"),
            *(policy.alias or self.source, self.target, self.source, self.target, policy.policy, policy.separator),
            topics=",".join([*named, *self.patterns]),
            topics_exclude=", ".join([*self.exclude, DEFAULT_EXCLUDED]),
            connector="",
            renaming=policy.renaming,
        )


class JudgeEntry(CheckedEntry):
    """What disproves, what is only reported, and what is ignored."""

    records: Annotated[Literal["judge"], Field(description="records that differ always disprove")] = "judge"
    order: Annotated[Handling, Field(description="records of a partition in another order")] = "judge"
    settings: Annotated[Handling, Field(description="settings of topics that differ")] = "report"
    groups: Annotated[Handling, Field(description="records that the groups of a flow would skip")] = "judge"


class ResultsEntry(CheckedEntry):
    """Where results go, besides the terminal; relative to the folder of this file."""

    json_: Annotated[str | None, Field(alias="json", description="the document")] = None
    html: Annotated[str | None, Field(description="an HTML page")] = None
    junit: Annotated[str | None, Field(description="a JUnit report for CI")] = None

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        known = ("json", "html", "junit")
        if not isinstance(given, dict):
            raise ValueError(f"expected keys and values: {', '.join(known)}")  # noqa: TRY004
        if unknown := [str(key) for key in given if key not in known]:
            raise FieldError([((key,), f"unknown key{instead(key, known, 'the keys are')}") for key in unknown])
        return given


class ConfigurationEntry(CheckedEntry):
    """The file as a whole."""

    clusters: dict[str, ClusterEntry] = Field(default_factory=dict, description="by name")
    flows: Annotated[tuple[FlowEntry, ...], Field(description="what is copied from where to where")] = ()
    read: Annotated[
        tuple[str, ...],
        Field(description="files of copiers whose flows are compared, too: MM2's properties, a manifest with "
              "KafkaMirrorMaker2, Replicator's configuration; clusters of the same name here replace theirs"),
    ] = ()  # fmt: skip
    judge: Annotated[JudgeEntry, Field(description="what disproves")] = JudgeEntry()
    results: Annotated[ResultsEntry, Field(description="where results go")] = ResultsEntry()


@dataclass(frozen=True)
class ClientSource:
    """Where a cluster's client properties come from; they are read when they are needed."""

    where: str
    """For messages."""
    read: Callable[[Mapping[str, str]], Properties] = field(repr=False)
    """Takes the environment."""


@dataclass(frozen=True)
class Configuration:
    """What a configuration file says."""

    path: Path
    clusters: Mapping[str, ClientSource]
    mirrors: tuple[Mirror, ...]
    """The flows."""
    judge: JudgeEntry = field(default_factory=JudgeEntry)
    results: Mapping[str, Path] = field(default_factory=dict)
    """By kind: ``json``, ``html``, ``junit``."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name of a flow's mirror, the consumer groups that must continue at its target."""

    def flow_names(self) -> list[str]:
        """The names of the flows."""
        return [mirror.name.removeprefix(flow_name("")) for mirror in self.mirrors]

    def lab(
        self,
        environment: Mapping[str, str],
        flows: Collection[str] = (),
        warn: Callable[[str], object] | None = None,
    ) -> Lab:
        """Reads the client properties, and returns the clusters and flows in the form that the proof takes.

        Args:
            environment: the variables that the file and placeholders may name.
            flows: names of flows; empty for all.
            warn: takes a line about each property that has no effect.

        Raises:
            WrongUseError: there is no such flow, or client properties cannot be used.
        """
        known = dict(zip(self.flow_names(), self.mirrors, strict=True))
        for name in flows:
            if name not in known:
                raise WrongUseError(f"{self.path}: has no flow '{name}'{instead(name, known, 'the flows are')}")
        chosen = [mirror for name, mirror in known.items() if not flows or name in flows]
        properties = {}
        for cluster in sorted({end for mirror in chosen for end in (mirror.source, mirror.target)}):
            source = self.clusters[cluster]
            properties[cluster] = source.read(environment)
            Connection.with_placeholders(properties[cluster], source.where, environment, warn)
        return several_clusters(self.path.stem, properties, chosen, environment)


def read_configuration(path: Path) -> Configuration:
    """Reads a configuration file, or the configuration of a copier in its place.

    Args:
        path: YAML of ``mirrorproof``'s own; or MM2's properties, a ``KafkaMirrorMaker2``, Replicator's configuration.

    Raises:
        WrongUseError: it cannot be used; the message has file and line of every problem.
    """
    if path.suffix not in (".yaml", ".yml"):
        return _of_copiers(path, ConfigurationEntry(read=(path.name,)), None)
    documents = read_documents(str(path), read_file(path), "a configuration (keys and values: clusters, flows)")
    if all(is_manifest(document) or "apiVersion" in document.content for document in documents):
        return _of_copiers(path, ConfigurationEntry(read=(path.name,)), None)
    if len(documents) > 1:
        raise WrongUseError(f"{documents[1].where()}: a configuration is one document; this is a second one")
    return _of_copiers(path, validated(ConfigurationEntry, documents[0]), documents[0])


def _of_copiers(path: Path, entry: ConfigurationEntry, document: Document | None) -> Configuration:
    """Joins what the file itself says with the files of copiers that it names."""

    def where(*way: str | int) -> str:
        return document.where(*way) if document else str(path)

    clusters = {name: _client_source(one, path.parent, where("clusters", name)) for name, one in entry.clusters.items()}
    mirrors, incomplete = [flow.as_mirror() for flow in entry.flows], dict[str, str]()
    for name in entry.read:
        found = read_flows(path.parent / name)
        mirrors += found.mirrors
        for cluster, properties in found.clusters.items():
            if cluster not in clusters:
                clusters[cluster] = ClientSource(f"{name}: cluster {cluster}", partial(_given, dict(properties)))
                incomplete |= {cluster: found.incomplete[cluster]} if cluster in found.incomplete else {}
    if not mirrors:
        raise WrongUseError(f"{where('flows')}: nothing to compare; give flows, or a copier's files under 'read'")
    for index, flow in enumerate(entry.flows):
        for key in ("source", "target"):
            if (name := getattr(flow, key)) not in clusters:
                hint = instead(name, clusters, "the clusters are")
                raise WrongUseError(f"{where('flows', index, key)}: there is no cluster '{name}'{hint}")
    for cluster, at in incomplete.items():
        raise WrongUseError(
            f"{at}: the credentials of cluster '{cluster}' are in Secrets; give its client properties under 'clusters'"
            + ("" if document else " of a configuration that names this file under 'read'")
        )
    names = [mirror.name for mirror in mirrors]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        at = where("flows", min(names.index(twice[0]), max(0, len(entry.flows) - 1)))
        raise WrongUseError(f"{at}: two flows are called '{twice[0].removeprefix(flow_name(''))}'; give each a name")
    results = entry.results
    given = {"json": results.json_, "html": results.html, "junit": results.junit}
    groups = {mirror.name: flow.groups for mirror, flow in zip(mirrors, entry.flows, strict=False) if flow.groups}
    files = {kind: path.parent / to for kind, to in given.items() if to}
    return Configuration(path, clusters, tuple(mirrors), entry.judge, files, groups)


def schema() -> dict[str, Any]:
    """The JSON schema of the file, for editors."""
    return {"$schema": _SCHEMA_ID, **ConfigurationEntry.model_json_schema(by_alias=True)}


def _problem_of(pattern: str) -> str:
    if "," in pattern:
        return f"'{pattern}' has a comma, which separates patterns; write it without"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"'{pattern}' is not a regular expression: {error}"
    return ""


def _client_source(entry: ClusterEntry, folder: Path, where: str) -> ClientSource:
    if entry.file is not None:
        return ClientSource(str(folder / entry.file), partial(_of_file, folder / entry.file))
    if entry.environment is not None:
        return ClientSource(where, partial(_of_environment, entry.environment, where))
    if isinstance(entry.properties, str):
        return ClientSource(where, partial(_given, parse_properties(entry.properties, where)))
    return ClientSource(where, partial(_given, {key: str(value) for key, value in (entry.properties or {}).items()}))


def _given(properties: Properties, _: Mapping[str, str]) -> Properties:
    return properties


def _of_file(path: Path, _: Mapping[str, str]) -> Properties:
    return read_properties(path)


def _of_environment(prefix: str, where: str, environment: Mapping[str, str]) -> Properties:
    found = {
        name.removeprefix(prefix).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(prefix) and name != prefix
    }
    if not found:
        raise WrongUseError(f"{where}: no environment variable begins with {prefix}; set {prefix}BOOTSTRAP_SERVERS")
    return found
