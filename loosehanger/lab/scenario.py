"""A scenario: a folder of ``playbooks/`` with its manifests, its stages, and what the manifests cannot say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, InstanceOf, StringConstraints, model_validator

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.claims import DeclaredClaim
from loosehanger.lab.link_settings import OneWay, parse_rate, parse_time
from loosehanger.lab.manifests.documents import Document, read_documents, read_file, read_resources
from loosehanger.lab.manifests.older_api import refuse_older_api
from loosehanger.lab.manifests.validation import Entry, validated
from loosehanger.lab.scenario_index import FILE as FILE
from loosehanger.lab.scenario_index import PLAYBOOKS, SETUP, one_line, scenario_file
from loosehanger.lab.scenario_index import scenario_names as scenario_names

MirrorState = Literal["running", "copying", "rearmed", "paused", "stopped", "dropped", "armed", "absent"]
"""What a stage does with a mirror: ``running`` is what its manifest says, and ``rearmed`` too, once a mirror that was
held is told where its source ends now; ``copying`` goes on copying records, and translates no groups any more; the
others hold or end it: ``stopped`` when everything has arrived, where nothing dies; ``dropped`` at once; and ``armed``
is one that was held already, and stays so, and is told where its source ends."""


class CopiedSecret(Entry):
    """A secret that a region needs from another, beyond those that manifests name."""

    from_: Annotated[str, Field(alias="from")]
    """The region that has it."""
    name: str
    to: str
    """The region that gets it."""
    as_: Annotated[str | None, Field(alias="as")] = None
    """Its name there; None for the same."""


def _read_as(parse: Callable[[str], float]) -> BeforeValidator:
    def read(value: object) -> float:
        try:
            return parse(str(value))
        except WrongUseError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(read)


class StartingLink(Entry):
    """What the link of two regions is like when the scenario begins, where the platform has links."""

    between: tuple[str, str]
    one_way: bool = False
    """Whether it is said of what flows from the first region to the second only."""
    delay: Annotated[float, _read_as(parse_time)] = 0.0
    jitter: Annotated[float, _read_as(parse_time)] = 0.0
    rate: Annotated[float, _read_as(parse_rate)] = 0.0

    @model_validator(mode="after")
    def _fits(self) -> StartingLink:
        if self.between[0] == self.between[1]:
            raise ValueError(f"between: {self.between[0]} has no link to itself; name two regions")
        try:
            OneWay().with_(delay=self.delay, jitter=self.jitter, rate=self.rate)
        except WrongUseError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def directions(self) -> dict[tuple[str, str], OneWay]:
        """What each direction begins with."""
        ways = [self.between] if self.one_way else [self.between, self.between[::-1]]
        return dict.fromkeys(ways, OneWay(self.delay, self.jitter, self.rate))


def _one_or_several(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Stage(Entry):
    """One stage: a playbook of the same name."""

    after: tuple[str, ...] = ()
    """The stages it may follow; empty for the first one."""
    mirrors: Annotated[dict[str, MirrorState], Field(default_factory=dict)]
    """What it does with mirrors; those that are not named run as their manifests say."""
    lost: tuple[str, ...] = ()
    """Regions that are dead in it: everything that runs there is killed at once, before anything else happens."""
    deleted: tuple[str, ...] = ()
    """Those of them of which nothing is left: data, certificates and secrets go with them."""
    rebuilt: tuple[str, ...] = ()
    """Regions that it wipes, and makes again with the certificate authorities and passwords that they had. What they
    do not have any more of these comes back from the copies that other regions have."""
    rescues: tuple[str, ...] = ()
    """Mirrors that are held: what their sources have beyond them is exported, and written elsewhere on request."""
    mark: bool = False
    """Whether it keeps how far everything was when its mirrors were held: the ends of partitions, groups' offsets."""
    fenced: tuple[str, ...] = ()
    """Regions in which nobody may write events in it: that nobody has the right to, and that nothing was written since
    the first stage that says so, is a condition of each that follows and says so too."""
    starts: tuple[str, ...] = ()
    """Consumers, by their Deployments' names, that change over to another cluster and begin there where their ledger
    ends, in topics in which no mirror translates how far their groups are."""
    proof: bool = False
    """Whether it is reached only when everything that is claimed in it is proved."""
    gone: tuple[str, ...] = ()
    """Regions that go at the end, with all that they have, when nobody uses them any more."""
    manifests: Annotated[tuple[str, ...], BeforeValidator(_one_or_several)] = ()
    """A folder below ``manifests/``, or several, with whole resources that replace those of the same name while this
    stage lasts."""
    next: str = ""
    """What to do after it, for the person who ran it."""

    @model_validator(mode="after")
    def _the_deleted_are_lost(self) -> Stage:
        if alive := [region for region in self.deleted if region not in self.lost]:
            raise ValueError(f"deleted: {alive[0]} is not lost; name it in 'lost' as well")
        return self


class Scenario(Entry):
    """What ``scenario.yaml`` says. Everything that the manifests say stands there and only there."""

    folder: Annotated[Path, Field(exclude=True, init=False)] = PLAYBOOKS
    """Where it lies."""
    document: Annotated[InstanceOf[Document], Field(exclude=True, init=False)] = Document(FILE, 1, {})
    """The file, which knows the line of each field."""
    title: Annotated[str, StringConstraints(min_length=1, max_length=60)]
    teaches: Annotated[str, StringConstraints(min_length=1)]
    """One sentence for the list of scenarios."""
    control_room: str = ""
    """The region whose console sees all regions; empty for none."""
    topics: Annotated[tuple[str, ...], Field(min_length=1)]
    """What the names of the scenario's topics begin with: the kit's own users may see these, and no others."""
    secrets: tuple[CopiedSecret, ...] = ()
    links: tuple[StartingLink, ...] = ()
    claims: tuple[DeclaredClaim, ...] = ()
    """What has to hold beside what the mirrors promise: see ``claims``."""
    stages: Annotated[dict[str, Stage], Field(min_length=1)]

    @property
    def name(self) -> str:
        """Its folder's name."""
        return self.folder.name

    @model_validator(mode="after")
    def _stages_follow_each_other(self) -> Scenario:
        if SETUP not in self.stages:
            raise ValueError(f"stages: there is no stage '{SETUP}', which every scenario begins with")
        if self.stages[SETUP].after:
            raise ValueError(f"stages.{SETUP}.after: nothing comes before '{SETUP}'")
        for name, stage in self.stages.items():
            if name != SETUP and not stage.after:
                raise ValueError(f"stages.{name}.after: is missing; name the stages that it may follow")
            if unknown := [before for before in stage.after if before not in self.stages]:
                raise ValueError(f"stages.{name}.after: there is no stage '{unknown[0]}'")
        return self

    def fence_of(self, stage: str, region: str) -> str:
        """The stage in which the fence of a region was put up that stands in a stage; itself, if it does so."""
        way = [stage]
        while before := [b for b in self.stage(way[-1]).after if region in self.stages[b].fenced and b not in way]:
            way.append(before[0])
        return way[-1]

    @property
    def link_directions(self) -> dict[tuple[str, str], OneWay]:
        """What each direction of a link begins with, by the regions that bytes flow from and to."""
        return {way: settings for link in self.links for way, settings in link.directions.items()}

    @model_validator(mode="after")
    def _links_are_said_once(self) -> Scenario:
        ways = [way for link in self.links for way in link.directions]
        if twice := [way for way in ways if ways.count(way) > 1]:
            raise ValueError(f"links: the link from {twice[0][0]} to {twice[0][1]} stands twice")
        return self

    def stage(self, name: str) -> Stage:
        """The stage of this name.

        Raises:
            WrongUseError: there is none.
        """
        if name not in self.stages:
            raise WrongUseError(f"{self.name} has no stage '{name}'; it has: {', '.join(self.stages)}")
        return self.stages[name]

    def manifests(self, stage: str) -> list[Document]:
        """The scenario's resources in a stage, in the order of their files.

        A mirror that is absent in the stage is left out; of one that is stopped or paused every connector is.

        Raises:
            WrongUseError: a file cannot be used, two resources have one name, or one replaces nothing.
        """
        at = self.stage(stage)
        found = {_identity(document): document for document in _read_folder(self.folder / "manifests")}
        for replacing in at.manifests:
            for document in _read_folder(self.folder / "manifests" / replacing):
                if _identity(document) not in found:
                    raise WrongUseError(f"{document.where()}: manifests/ has nothing of this name to replace")
                found[_identity(document)] = document
        known = {document.name for document in found.values() if document.kind == MIRROR}
        for key, named in (("mirrors", at.mirrors), ("rescues", at.rescues)):
            if unknown := set(named) - known:
                raise WrongUseError(
                    f"{_shown(self.folder / FILE)}: stages.{stage}.{key}: manifests/ has no mirror '{min(unknown)}'"
                )
        return [
            with_life(document, at.mirrors.get(document.name, "running")) if document.kind == MIRROR else document
            for document in found.values()
            if document.kind != MIRROR or at.mirrors.get(document.name) != "absent"
        ]

    @property
    def mirror_names(self) -> frozenset[str]:
        """The mirrors of ``manifests/``, whatever a stage does with them."""
        found = _read_folder(self.folder / "manifests")
        return frozenset(document.name for document in found if document.kind == MIRROR)

    def regions(self, known: Iterable[str]) -> tuple[str, ...]:
        """Those of these regions that the plays of any stage name: whatever a stage does, it finds them prepared.

        Args:
            known: every region of the inventory, in its order.
        """
        names = tuple(known)
        used = {name for stage in self.stages for name in _hosts(self.folder / f"{stage}.yaml", names)}
        return tuple(name for name in names if name in used)

    def users_that_go(self, stage: str) -> frozenset[str]:
        """The users that only mirrors need which are absent in a stage in which a region goes: they never return."""
        if not self.stage(stage).gone:
            return frozenset()
        mirrors = [document for document in _read_folder(self.folder / "manifests") if document.kind == MIRROR]
        absent = self.absent(stage)
        going, staying = (
            {user for mirror in mirrors if (mirror.name in absent) is gone for user in _users_of(mirror)}
            for gone in (True, False)
        )
        return frozenset(going - staying)

    def absent(self, stage: str) -> frozenset[str]:
        """The mirrors that must not be there in a stage."""
        return frozenset(name for name, life in self.stage(stage).mirrors.items() if life == "absent")


MIRROR = "KafkaMirrorMaker2"
CARRY_OUT = "carry_out"
"""The role that carries out what others describe, in whatever regions they did."""
CONNECTORS = ("sourceConnector", "checkpointConnector")
DROPPED: MirrorState = "dropped"
ARMED: MirrorState = "armed"
HELD: tuple[MirrorState, ...] = ("stopped", "paused", DROPPED, ARMED)
"""The lives in which a mirror is there and copies nothing."""
COPYING: MirrorState = "copying"
"""The life in which its source connector runs, and its checkpoint connector does not."""
REARMED: tuple[MirrorState, ...] = ("rearmed", ARMED)
"""The lives in which it is told where its source ends."""


def _users_of(mirror: Document) -> Iterator[str]:
    """The users as which a mirror signs in at either end: the secret of a password has its user's name."""
    spec = mirror.content.get("spec") or {}
    for end in (spec.get("target"), *(entry.get("source") for entry in spec.get("mirrors") or ())):
        if name := (((end or {}).get("authentication") or {}).get("passwordSecret") or {}).get("secretName"):
            yield str(name)


def is_held(mirror: Document, life: MirrorState = "stopped") -> bool:
    """Whether a resource is a mirror of which every connector is stopped or paused that does not run in a life."""
    held = _held_in(life)
    connectors = [
        entry[key] or {}
        for entry in (mirror.content.get("spec") or {}).get("mirrors") or ()
        for key in held
        if key in entry
    ]
    return bool(connectors) and all(connector.get("state") in HELD for connector in connectors)


def with_life(document: Document, life: MirrorState) -> Document:
    """A mirror's manifest as a stage wants it: with every connector in that state."""
    held = _held_in(life)
    if not held:
        return document
    state = life if life == "paused" else "stopped"
    spec = document.content.get("spec") or {}
    mirrors = [
        {key: {**(value or {}), "state": state} if key in held else value for key, value in mirror.items()}
        for mirror in spec.get("mirrors") or ()
    ]
    content: dict[str, Any] = {**document.content, "spec": {**spec, "mirrors": mirrors}}
    return replace(document, content=content)


def _held_in(life: MirrorState) -> tuple[str, ...]:
    """The connectors of a mirror that do not run in a life."""
    if life == COPYING:
        return CONNECTORS[1:]
    return CONNECTORS if life in HELD else ()


def read_scenario(name: str, playbooks: Path = PLAYBOOKS) -> Scenario:
    """Reads a scenario's folder.

    Args:
        name: the folder's name.
        playbooks: where it lies.

    Raises:
        WrongUseError: there is no such scenario, or its ``scenario.yaml`` cannot be used.
    """
    path = scenario_file(name, playbooks)
    text = read_file(path)
    documents = read_documents(_shown(path), text)
    if len(documents) != 1:
        raise WrongUseError(f"{documents[1].source}:{documents[1].line}: expected one document")
    scenario = validated(Scenario, documents[0]).model_copy(update={"folder": path.parent, "document": documents[0]})
    for key in ("title", "teaches"):
        if one_line(text, key) != getattr(scenario, key):
            raise WrongUseError(
                f"{documents[0].where(key)}: write it in one line, without backslashes; "
                "./lab scenarios reads it before anything is installed"
            )
    for stage in scenario.stages:
        if not (scenario.folder / f"{stage}.yaml").is_file():
            raise WrongUseError(
                f"{documents[0].where('stages', stage)}: there is no playbook {_shown(scenario.folder)}/{stage}.yaml"
            )
    return scenario


def _read_folder(folder: Path) -> Iterator[Document]:
    seen: dict[tuple[str, str, str], Document] = {}
    for path in sorted(folder.glob("*.yaml")):
        for document in read_resources(_shown(path), read_file(path)):
            refuse_older_api(document)
            if other := seen.get(_identity(document)):
                raise WrongUseError(f"{document.where()}: stands twice; it is in {other.source}:{other.line} as well")
            seen[_identity(document)] = document
            yield document


def _identity(document: Document) -> tuple[str, str, str]:
    return document.kind, document.namespace, document.name


def _hosts(playbook: Path, known: Sequence[str]) -> Iterator[str]:
    """The regions that a playbook's plays name. What is more than a list of names may be any of them."""
    for play in yaml.load(read_file(playbook), Loader=yaml.CSafeLoader) or ():
        if _roles(play) == [CARRY_OUT]:
            continue
        words = str(play.get("hosts", "")).replace(",", ":").split(":")
        yield from words if set(words) <= set(known) else known


def _roles(play: Mapping[str, Any]) -> list[Any]:
    return [role.get("role") if isinstance(role, dict) else role for role in play.get("roles") or ()]


def _shown(path: Path) -> str:
    return os.path.relpath(path)
