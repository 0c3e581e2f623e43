"""A scenario: a folder of ``playbooks/`` with manifests, stages, and ``scenario.yaml``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AliasChoices, BeforeValidator, Field, InstanceOf, StringConstraints, model_validator

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.claims import DeclaredClaim
from loosehanger.lab.link_settings import OneWay, parse_rate, parse_time
from loosehanger.lab.manifests.documents import Document, read_documents, read_file, read_resources
from loosehanger.lab.manifests.older_api import refuse_older_api
from loosehanger.lab.manifests.validation import Entry, validated
from loosehanger.lab.manifests.views import MIRROR as MIRROR
from loosehanger.lab.manifests.views import USER, MirrorMaker
from loosehanger.lab.scenario_index import FILE as FILE
from loosehanger.lab.scenario_index import PLAYBOOKS, SETUP, one_line, scenario_file
from loosehanger.lab.scenario_index import scenario_names as scenario_names
from loosehanger.suggestions import instead

MirrorState = Literal["running", "copying", "reset", "paused", "stopped", "dropped", "reset-stopped", "absent"]
"""The state that a stage gives a mirror. ``running``: as its manifest says. ``reset``: running, after the mirror's
offsets are reset to the end of its source. ``copying``: it copies records, and no longer translates groups.
``stopped``: it stops, and in a planned switch only after it has drained. ``paused``: its connectors are paused.
``dropped``: it stops at once. ``reset-stopped``: it stays stopped, and its offsets are reset as well."""
_OLD_STATES = {"rearmed": "reset", "armed": "reset-stopped"}
"""The earlier names of states, which are read for one release."""


class CopiedSecret(Entry):
    """A secret that one region needs from another and that no manifest names."""

    from_: Annotated[str, Field(alias="from")]
    """The region that owns it."""
    name: str
    to: str
    """The region that receives a copy."""
    as_: Annotated[str | None, Field(alias="as")] = None
    """Its name there; None for the same name."""


def _read_as(parse: Callable[[str], float]) -> BeforeValidator:
    def read(value: object) -> float:
        try:
            return parse(str(value))
        except WrongUseError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(read)


class StartingLink(Entry):
    """The initial settings of the link between two regions, on platforms that have links."""

    between: tuple[str, str]
    one_way: bool = False
    """Whether the settings apply only to traffic from the first region to the second."""
    outbound_only: bool = False
    """Whether a firewall of the first region refuses all connections from the second."""
    delay: Annotated[float, _read_as(parse_time)] = 0.0
    jitter: Annotated[float, _read_as(parse_time)] = 0.0
    rate: Annotated[float, _read_as(parse_rate)] = 0.0

    @model_validator(mode="after")
    def _fits(self) -> StartingLink:
        if self.between[0] == self.between[1]:
            raise ValueError(f"between: {self.between[0]} has no link to itself; name two regions")
        if self.one_way and self.outbound_only:
            raise ValueError("outbound_only: is about connections, which need both ways; remove one_way")
        try:
            OneWay().with_(delay=self.delay, jitter=self.jitter, rate=self.rate)
        except WrongUseError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def directions(self) -> dict[tuple[str, str], OneWay]:
        """Returns the initial settings of each direction."""
        there, back = self.between, self.between[::-1]
        settings = OneWay(self.delay, self.jitter, self.rate)
        return {there: settings} | ({} if self.one_way else {back: settings.with_(refuses=self.outbound_only)})


def _state(value: object) -> object:
    return _OLD_STATES.get(value, value) if isinstance(value, str) else value


def _one_or_several(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Stage(Entry):
    """One stage: a playbook of the same name."""

    after: tuple[str, ...] = ()
    """The stages it may follow; empty for the first stage."""
    mirrors: Annotated[dict[str, Annotated[MirrorState, BeforeValidator(_state)]], Field(default_factory=dict)]
    """The state of each mirror in this stage; other mirrors run as their manifests say."""
    lost: tuple[str, ...] = ()
    """Regions that it kills: all processes there are killed at once, before anything else happens."""
    deleted: tuple[str, ...] = ()
    """Lost regions that also lose their data, certificates and secrets."""
    rebuilt: tuple[str, ...] = ()
    """Regions that it wipes and recreates with their previous certificate authorities and passwords, restored from
    the copies in other regions where the region no longer has them."""
    rescues: tuple[str, ...] = ()
    """Stopped mirrors whose uncopied source records are exported, and written to the target on request."""
    snapshot: Annotated[bool, Field(validation_alias=AliasChoices("snapshot", "mark"))] = False
    """Whether it records end offsets and group offsets when it stops its mirrors. The earlier name is read for one
    release."""
    fenced: tuple[str, ...] = ()
    """Regions with a write fence on event topics: no user may hold Write, and no record may have been written since
    the first of the consecutive stages that fence the region."""
    starts: tuple[str, ...] = ()
    """Consumers, by Deployment name, that move to another cluster and resume there at the end of their ledger, for
    topics whose group offsets no mirror translates."""
    proof: bool = False
    """Whether the stage is reached only if all its claims are proved."""
    without: tuple[str, ...] = ()
    """Users that do not exist in this stage. Those that exist are deleted when the mirrors have moved."""
    gone: tuple[str, ...] = ()
    """Regions that it deletes at the end, with all their data, when no program uses them."""
    manifests: Annotated[tuple[str, ...], BeforeValidator(_one_or_several)] = ()
    """Folders below ``manifests/`` whose resources replace those of the same name in this stage."""
    next: str = ""
    """The next step, shown to the user after the stage."""

    @model_validator(mode="after")
    def _the_deleted_are_lost(self) -> Stage:
        if alive := [region for region in self.deleted if region not in self.lost]:
            raise ValueError(f"deleted: {alive[0]} is not lost; name it in 'lost' as well")
        return self


class Exercise(Entry):
    """A fault that a learner must find, which ``./lab fault inject --exercise`` injects without naming it."""

    fault: str
    """Its name in the catalogue of faults."""
    mirror: str = ""
    """``REGION/NAME``; empty for the first that fits."""
    topic: str = ""
    """The topic, or for a fault that creates a topic of its own the name of that; empty for any."""


class Scenario(Entry):
    """The content of ``scenario.yaml``, which has only what manifests cannot express."""

    folder: Annotated[Path, Field(exclude=True, init=False)] = PLAYBOOKS
    """The folder of the scenario."""
    document: Annotated[InstanceOf[Document], Field(exclude=True, init=False)] = Document(FILE, 1, {})
    """The parsed file, which knows the line of each field."""
    title: Annotated[str, StringConstraints(min_length=1, max_length=60)]
    teaches: Annotated[str, StringConstraints(min_length=1)]
    """One sentence for the list of scenarios."""
    control_room: str = ""
    """The region whose console shows all regions; empty for none."""
    topics: Annotated[tuple[str, ...], Field(min_length=1)]
    """Prefixes of the scenario's topic names: the kit's own users may see only these topics."""
    sign_ins_follow: tuple[str, ...] = ()
    """Regions whose users, and the mirrors' ends there, sign in as the cluster's listener asks, whatever their
    manifests say: variables may replace the cluster by one with another sign-in."""
    secrets: tuple[CopiedSecret, ...] = ()
    links: tuple[StartingLink, ...] = ()
    claims: tuple[DeclaredClaim, ...] = ()
    """Declared claims, besides those that follow from the mirrors: see ``claims``."""
    stages: Annotated[dict[str, Stage], Field(min_length=1)]
    exercises: tuple[Exercise, ...] = ()
    """What is injected for the exercises of its lab, the first one first."""

    @property
    def name(self) -> str:
        """The name of its folder."""
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
        """Returns the stage that first put up the fence that a region has in this stage; possibly the stage itself."""
        way = [stage]
        while before := [b for b in self.stage(way[-1]).after if region in self.stages[b].fenced and b not in way]:
            way.append(before[0])
        return way[-1]

    @property
    def link_directions(self) -> dict[tuple[str, str], OneWay]:
        """Initial link settings by direction: the regions that bytes flow from and to."""
        return {way: settings for link in self.links for way, settings in link.directions.items()}

    @model_validator(mode="after")
    def _links_are_said_once(self) -> Scenario:
        ways = [way for link in self.links for way in link.directions]
        if twice := [way for way in ways if ways.count(way) > 1]:
            raise ValueError(f"links: duplicate link from {twice[0][0]} to {twice[0][1]}")
        return self

    def stage(self, name: str) -> Stage:
        """Returns the stage of this name.

        Raises:
            WrongUseError: the scenario has no such stage.
        """
        if name not in self.stages:
            raise WrongUseError(f"{self.name} has no stage '{name}'{instead(name, self.stages, 'it has')}")
        return self.stages[name]

    def manifests(self, stage: str) -> list[Document]:
        """Returns the scenario's resources in a stage, in the order of their files.

        Leaves out mirrors that are absent in the stage, and stops or pauses every connector of those that it stops or
        pauses.

        Raises:
            WrongUseError: a file cannot be used, two resources have one name, or one replaces nothing.
        """
        at = self.stage(stage)
        found = {_identity(document): document for document in _read_folder(self.folder / "manifests")}
        for replacing in at.manifests:
            for document in _read_folder(self.folder / "manifests" / replacing):
                if _identity(document) not in found:
                    raise WrongUseError(f"{document.where()}: manifests/ has no resource of this name to replace")
                found[_identity(document)] = document
        known = {document.name for document in found.values() if document.kind == MIRROR}
        for key, named in (("mirrors", at.mirrors), ("rescues", at.rescues)):
            if unknown := set(named) - known:
                raise WrongUseError(
                    f"{_shown(self.folder / FILE)}: stages.{stage}.{key}: manifests/ has no mirror '{min(unknown)}'"
                )
        users = {document.name for document in found.values() if document.kind == "KafkaUser"}
        if unknown := set(at.without) - users:
            raise WrongUseError(
                f"{_shown(self.folder / FILE)}: stages.{stage}.without: manifests/ has no user '{min(unknown)}'"
            )
        return [
            in_state(document, at.mirrors.get(document.name, "running")) if document.kind == MIRROR else document
            for document in found.values()
            if not (document.kind == MIRROR and at.mirrors.get(document.name) == "absent")
            and not (document.kind == "KafkaUser" and document.name in at.without)
        ]

    @property
    def mirror_names(self) -> frozenset[str]:
        """All mirrors of ``manifests/``, in whatever state a stage puts them."""
        found = _read_folder(self.folder / "manifests")
        return frozenset(document.name for document in found if document.kind == MIRROR)

    def regions(self, known: Iterable[str]) -> tuple[str, ...]:
        """Returns the regions that a play of any stage names, so that a set-up prepares all of them.

        Args:
            known: every region of the inventory, in its order.
        """
        names = tuple(known)
        used = {name for stage in self.stages for name in _hosts(self.folder / f"{stage}.yaml", names)}
        return tuple(name for name in names if name in used)

    def creates(self, document: Document, stage: str, known: Iterable[str]) -> bool:
        """Returns whether a stage creates a resource of the manifests that does not exist.

        It does not in a region that none of its plays names, in one that it kills or deletes, nor a user that goes.

        Args:
            document: the resource.
            stage: the stage's name.
            known: every region that a play may name.
        """
        at, region = self.stage(stage), document.namespace
        if region in (*at.lost, *at.gone) or region not in _hosts(self.folder / f"{stage}.yaml", tuple(known)):
            return False
        return not (document.kind == USER and document.name in self.users_that_go(stage))

    def users_that_go(self, stage: str) -> frozenset[str]:
        """Returns the users that a stage deletes.

        Those that it names; and where it deletes a region those that only absent mirrors need, which never return.
        """
        named = frozenset(self.stage(stage).without)
        if not self.stage(stage).gone:
            return named
        mirrors = [document for document in _read_folder(self.folder / "manifests") if document.kind == MIRROR]
        absent = self.absent(stage)
        going, staying = (
            {user for mirror in mirrors if (mirror.name in absent) is gone for user in _users_of(mirror)}
            for gone in (True, False)
        )
        return named | frozenset(going - staying)

    def absent(self, stage: str) -> frozenset[str]:
        """Returns the mirrors that a stage deletes."""
        return frozenset(name for name, state in self.stage(stage).mirrors.items() if state == "absent")


CARRY_OUT = "carry_out"
"""The role that applies the resources that other roles describe, in every region."""
CONNECTORS = ("sourceConnector", "checkpointConnector")
DROPPED: MirrorState = "dropped"
RESET_STOPPED: MirrorState = "reset-stopped"
HELD: tuple[MirrorState, ...] = ("stopped", "paused", DROPPED, RESET_STOPPED)
"""The states in which a mirror exists and copies nothing."""
COPYING: MirrorState = "copying"
"""The state in which a mirror's source connector runs, and its checkpoint connector does not."""
RESET: tuple[MirrorState, ...] = ("reset", RESET_STOPPED)
"""The states in which a mirror's offsets are reset to the end of its source."""


def _users_of(mirror: Document) -> Iterator[str]:
    """Yields the users that a mirror signs in as at either end; a user's password secret has the user's name."""
    for end, _ in MirrorMaker(mirror.content).ends:
        if name := ((end.get("authentication") or {}).get("passwordSecret") or {}).get("secretName"):
            yield str(name)


def is_held(mirror: Document, state: MirrorState = "stopped") -> bool:
    """Whether a resource is a mirror whose connectors that a state stops are all stopped or paused."""
    held = _held_in(state)
    connectors = [entry[key] or {} for entry in MirrorMaker(mirror.content).mirrors for key in held if key in entry]
    return bool(connectors) and all(connector.get("state") in HELD for connector in connectors)


def in_state(document: Document, state: MirrorState) -> Document:
    """Returns a mirror's manifest with every connector in a stage's state."""
    held = _held_in(state)
    if not held:
        return document
    shown = state if state == "paused" else "stopped"
    maker = MirrorMaker(document.content)
    mirrors = [
        {key: {**(value or {}), "state": shown} if key in held else value for key, value in mirror.items()}
        for mirror in maker.mirrors
    ]
    content: dict[str, Any] = {**document.content, "spec": {**maker.spec, "mirrors": mirrors}}
    return replace(document, content=content)


def _held_in(state: MirrorState) -> tuple[str, ...]:
    """Returns the connectors of a mirror that do not run in a state."""
    if state == COPYING:
        return CONNECTORS[1:]
    return CONNECTORS if state in HELD else ()


def read_scenario(name: str, playbooks: Path = PLAYBOOKS) -> Scenario:
    """Reads a scenario's folder.

    Args:
        name: the folder's name.
        playbooks: the folder of all scenarios.

    Raises:
        WrongUseError: the scenario does not exist, or its ``scenario.yaml`` is not valid.
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
                raise WrongUseError(
                    f"{document.where()}: duplicate resource; it is also in {other.source}:{other.line}"
                )
            seen[_identity(document)] = document
            yield document


def _identity(document: Document) -> tuple[str, str, str]:
    return document.kind, document.namespace, document.name


def _hosts(playbook: Path, known: Sequence[str]) -> Iterator[str]:
    """Yields the regions that a playbook's plays name. A pattern that is not a list of names may match any region."""
    for play in yaml.load(read_file(playbook), Loader=yaml.CSafeLoader) or ():
        if _roles(play) == [CARRY_OUT]:
            continue
        words = str(play.get("hosts", "")).replace(",", ":").split(":")
        yield from words if set(words) <= set(known) else known


def _roles(play: Mapping[str, Any]) -> list[Any]:
    return [role.get("role") if isinstance(role, dict) else role for role in play.get("roles") or ()]


def _shown(path: Path) -> str:
    return os.path.relpath(path)
