"""The claims of a lab: most of them follow from the mirrors, the others are declared in ``scenario.yaml``.

A claim states what must hold, and the proof checks it. A claim names mirrors, topics and regions, and knows nothing of
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, model_validator

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.validation import Entry
from loosehanger.lab.mirrors.chain import as_mirror, begins_with, chain_of, stations
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.programs import ledgers

if TYPE_CHECKING:
    from loosehanger.lab.scenario import Stage
    from loosehanger.lab.topology import Topology

Kind = Literal["copy", "contains", "through", "absent", "rights", "whole", "kept", "groups"]
"""``copy``: the target topics equal the source's topics, and have no other writer. ``contains``: every record of the
source is in the target topic, where others may write too. ``through``: every record written at one end of a chain of
mirrors is at the other end and at each hop, once. ``absent``: a region holds nothing of a kind, and its users cannot
read it in the region that does. ``rights``: a region's cluster has no ACL that the manifests do not list. ``whole``:
a region's local and mirrored topics together hold what every region produced, each record once. ``kept``: every record
that a producer's ledger calls acknowledged is in a live cluster.
``groups``: a consumer group resumed elsewhere, skipped nothing, and read again exactly what was predicted when the
mirror stopped."""
OF_LEDGERS = ("kept", "groups")
"""The kinds that the proof checks against ledgers."""
Window = Mapping[str, Mapping[int, int]]
"""End offsets, by topic of a source and by partition."""


class Forbidden(Entry):
    """Data that a region must not hold."""

    topics: tuple[str, ...] = ()
    """Topics by their names where they are written; a copy under any name counts too."""
    headers: tuple[str, ...] = ()
    """Names of record headers."""
    fields: tuple[str, ...] = ()
    """Names of fields in record values."""
    groups: tuple[str, ...] = ()
    """Consumer groups of other regions, in the mirrors' checkpoints."""

    @model_validator(mode="after")
    def _is_something(self) -> Forbidden:
        if not (self.topics or self.headers or self.fields or self.groups):
            raise ValueError("names nothing; give topics, headers, fields or groups")
        return self


@dataclass(frozen=True)
class KeptIn:
    """Where a producer's acknowledged records must be."""

    regions: tuple[str, ...] = ()
    """One of these must have each record; empty for any surviving cluster."""
    not_in: tuple[str, ...] = ()
    """Regions whose cluster does not count."""


@dataclass(frozen=True)
class Claim:
    """A statement that must hold in a stage."""

    id: str
    kind: Kind
    mirrors: tuple[str, ...] = ()
    """The ids of the mirrors' sources whose flows it covers; a source has one such claim at most."""
    subject: Mapping[str, str] = field(default_factory=dict)
    """What it covers, by field name: ``mirror``, ``source``, ``target``; ``topic``, ``region``; ``producer``,
    ``regions`` and ``not_in``; ``group``. These are texts for the JSON document: see ``kept_in`` and ``forbidden``."""
    window: Window | None = None
    """The part of its mirrors' sources that it covers; None for everything, empty if unknown."""
    archives: Window = field(default_factory=dict)
    """First target offsets that are copies of the mirrors' current sources, for each topic and partition in which
    records of an earlier source precede them."""
    forbidden: Forbidden | None = None
    """The data that its region must not hold."""
    kept_in: KeptIn | None = None
    """Where the records of its producer must be."""


@dataclass(frozen=True)
class Names:
    """What a claim of ``scenario.yaml`` may name."""

    stages: Mapping[str, Stage]
    mirrors: frozenset[str]
    """All mirrors of ``manifests/``, in whatever state a stage puts them."""
    topology: Topology

    def check_mirror(self, name: str, where: str) -> None:
        """Checks that there is a mirror of this name.

        Raises:
            WrongUseError: there is not.
        """
        if name not in self.mirrors:
            known = ", ".join(sorted(self.mirrors)) or "none"
            raise WrongUseError(f"{where}: manifests/ has no mirror '{name}'; it has: {known}")

    def check_cluster(self, region: str, where: str) -> None:
        """Checks that a region has a Kafka cluster.

        Raises:
            WrongUseError: it does not.
        """
        if not self.topology.clusters(region):
            known = ", ".join(name for name in self.topology.regions if self.topology.clusters(name))
            raise WrongUseError(
                f"{where}: '{region}' is not a region with a Kafka cluster; the regions with one are: {known}"
            )

    def keeps_snapshots(self, stage: str) -> bool:
        """Whether there is a stage of this name that keeps snapshots of offsets."""
        return stage in self.stages and self.stages[stage].snapshot


Where = Callable[..., str]
"""Returns file, line and field of a part of a claim, for messages."""


class Declared(Entry):
    """A claim that ``scenario.yaml`` declares."""

    at: tuple[str, ...] = ()
    """The stages that it applies to; empty for all."""

    def holds_at(self, stage: str) -> bool:
        """Whether it applies to a stage."""
        return not self.at or stage in self.at

    def expand(self, mirrors: Sequence[Mirror], number: int) -> Iterator[Claim]:
        """Yields its claims.

        Args:
            mirrors: the lab's mirrors.
            number: its place among the stage's declared claims of its kind.
        """
        raise NotImplementedError

    def check(self, names: Names, where: Where) -> None:
        """Checks that it names only what exists.

        Raises:
            WrongUseError: it does not.
        """


class OfMirror(Declared):
    """A claim about everything that a mirror copies; each mirror has one, which ``claims_of`` expands."""

    mirror: str

    def check(self, names: Names, where: Where) -> None:
        """See ``Declared``."""
        names.check_mirror(self.mirror, where(kind_of(self)))


def _until(value: object) -> object:
    return "snapshot" if value == "mark" else value


class DeclaredContains(OfMirror):
    """``{contains: mm2, at: [failover]}``: the target has every record of the source, and other writers may exist."""

    mirror: Annotated[str, Field(alias="contains")]
    """The name of the KafkaMirrorMaker2."""
    until: Annotated[Literal["snapshot"] | None, BeforeValidator(_until)] = None
    """``snapshot``, or ``mark`` for one release: only what the mirror had copied when the stage stopped it."""

    def check(self, names: Names, where: Where) -> None:
        """See ``Declared``."""
        super().check(names, where)
        for stage in self.at or names.stages if self.until else ():
            if not names.keeps_snapshots(stage):
                raise WrongUseError(f"{where('until')}: the stage '{stage}' has no 'snapshot: true'")


class DeclaredCopy(OfMirror):
    """``{copy: mm2, at: [setup]}``: a mirror's copies are exact in these stages; in others there is no claim."""

    mirror: Annotated[str, Field(alias="copy")]
    """The name of the KafkaMirrorMaker2."""


class DeclaredThrough(Declared):
    """``{through: [mm2-b, mm2-c]}``: what the first mirror's source produced is where the last mirror writes."""

    mirrors: Annotated[tuple[str, ...], Field(alias="through", min_length=2)]
    """The names of the KafkaMirrorMaker2 resources, in the order of the hops."""

    def expand(self, mirrors: Sequence[Mirror], number: int) -> Iterator[Claim]:  # noqa: ARG002 - as every claim
        """See ``Declared``."""
        hops = chain_of(mirrors, self.mirrors)
        ends = {"source": hops[0].source if hops else "", "target": hops[-1].target if hops else ""}
        yield Claim(
            f"through:{'+'.join(self.mirrors)}",
            "through",
            (as_mirror(hops).id,) if hops else (),
            {"by": ", ".join(self.mirrors), **ends},
        )

    def check(self, names: Names, where: Where) -> None:
        """Checks the mirrors, that they are a chain, and that topics go through all of it."""
        here, topology = where("through"), names.topology
        for name in self.mirrors:
            names.check_mirror(name, here)
        mirrors = topology.mirrors
        if not {mirror.name for mirror in mirrors} >= set(self.mirrors):
            return
        hops = chain_of(mirrors, self.mirrors)
        if not hops:
            raise WrongUseError(
                f"{here}: {' -> '.join(self.mirrors)} is not a chain: each mirror must read the region that the "
                "previous one writes"
            )
        topics = [topic for region, topic in topology.declared_topics if region == hops[0].source]
        for topic in begins_with(mirrors, hops, topics):
            places = list(stations(hops, topic))
            if len(places) <= len(hops):
                stops = hops[len(places) - 1]
                raise WrongUseError(
                    f"{topology.where(stops)}: topicsPattern {stops.topics} does not match {places[-1].topic}, the "
                    f"name of {hops[0].source}'s {topic} in {places[-1].region}, and {here} claims that it goes through"
                )


class DeclaredAbsent(Declared):
    """``{absent: {topics: [LH.CUSTOMERS]}, in: west}``: the region holds none of it, and its users cannot read it."""

    forbidden: Annotated[Forbidden, Field(alias="absent")]
    region: Annotated[str, Field(alias="in", min_length=1)]

    def expand(self, mirrors: Sequence[Mirror], number: int) -> Iterator[Claim]:  # noqa: ARG002 - as every claim
        """See ``Declared``."""
        data = {name: ", ".join(names) for name, names in self.forbidden.model_dump().items() if names}
        subject = {"region": self.region, **data}
        yield Claim(f"absent:{self.region}:{number}", "absent", subject=subject, forbidden=self.forbidden)

    def check(self, names: Names, where: Where) -> None:
        """See ``Declared``."""
        declared = sorted({topic for _, topic in names.topology.declared_topics})
        for topic in self.forbidden.topics:
            if topic not in declared:
                raise WrongUseError(
                    f"{where('absent', 'topics')}: no manifest declares a topic '{topic}'; "
                    f"the declared topics are: {', '.join(declared) or 'none'}"
                )
        names.check_cluster(self.region, where("in"))


class DeclaredRights(Declared):
    """``{rights: [west]}``: each region's cluster has no ACL but those of its KafkaUser resources."""

    regions: Annotated[tuple[str, ...], Field(alias="rights", min_length=1)]

    def expand(self, mirrors: Sequence[Mirror], number: int) -> Iterator[Claim]:  # noqa: ARG002 - as every claim
        """See ``Declared``."""
        for region in self.regions:
            yield Claim(f"rights:{region}", "rights", subject={"region": region})

    def check(self, names: Names, where: Where) -> None:
        """See ``Declared``."""
        for region in self.regions:
            names.check_cluster(region, where("rights"))


class DeclaredWhole(Declared):
    """``{whole: LH.ORDERS, in: [east, west]}``: each region has what all produced, each record once."""

    topic: Annotated[str, Field(alias="whole", min_length=1)]
    """The topic's name where it is produced."""
    regions: Annotated[tuple[str, ...], Field(alias="in", min_length=1)]

    def expand(self, mirrors: Sequence[Mirror], number: int) -> Iterator[Claim]:  # noqa: ARG002 - as every claim
        """See ``Declared``."""
        for region in self.regions:
            yield Claim(f"whole:{self.topic}:{region}", "whole", subject={"topic": self.topic, "region": region})

    def check(self, names: Names, where: Where) -> None:
        """See ``Declared``."""
        for region in self.regions:
            names.check_cluster(region, where("in"))


class DeclaredKept(Declared):
    """``{kept: producer, at: [failover]}``: every record that its ledger calls acknowledged still exists."""

    producer: Annotated[str, Field(alias="kept", min_length=1)]
    """The name of its Deployment."""
    regions: Annotated[tuple[str, ...], Field(alias="in")] = ()
    """The regions of which one must have the record; empty for all live ones."""
    not_in: Annotated[tuple[str, ...], Field(alias="not-in")] = ()
    """Live regions that do not count because they will be wiped."""

    def expand(self, mirrors: Sequence[Mirror], number: int) -> Iterator[Claim]:  # noqa: ARG002 - as every claim
        """See ``Declared``."""
        regions = {"regions": ",".join(self.regions), "not_in": ",".join(self.not_in)}
        subject = {"producer": self.producer, **regions}
        kept_in = KeptIn(self.regions, self.not_in)
        yield Claim(f"kept:{self.producer}", "kept", subject=subject, kept_in=kept_in)

    def check(self, names: Names, where: Where) -> None:
        """See ``Declared``."""
        keepers = {name for _, name in ledgers(names.topology)}
        if self.producer not in keepers:
            raise WrongUseError(
                f"{where('kept')}: '{self.producer}' is not a program with a ledger; "
                f"the programs with one are: {', '.join(sorted(keepers)) or 'none'}"
            )
        if unknown := [name for name in self.not_in if name not in names.topology.regions]:
            raise WrongUseError(f"{where('not-in')}: there is no region '{unknown[0]}'")


class DeclaredGroups(Declared):
    """``{groups: consumer-x, by: mm2, at: [failover]}``: this group moved to the mirror's target. ``to: east`` in place
    of ``by``: it moved to this region, at the offsets where its members' ledger ended."""

    group: Annotated[str, Field(alias="groups", min_length=1)]
    mirror: Annotated[str, Field(alias="by")] = ""
    """The name of the KafkaMirrorMaker2 that translates its offsets; empty for none."""
    to: str = ""
    """The region that it moved to; empty for the mirror's target."""
    since: str = ""
    """The stage in which it moved; empty for the claim's own stage."""

    @model_validator(mode="after")
    def _either(self) -> DeclaredGroups:
        if bool(self.mirror) == bool(self.to):
            raise ValueError("name either 'by', a mirror, or 'to', a region")
        return self

    def expand(self, mirrors: Sequence[Mirror], number: int) -> Iterator[Claim]:  # noqa: ARG002 - as every claim
        """See ``Declared``."""
        own = [(mirror.source, mirror.target) for mirror in mirrors if mirror.name == self.mirror]
        for source, target in [("", self.to)] if self.to else own:
            subject = {"group": self.group, "mirror": self.mirror, "source": source, "target": target}
            since = {"since": self.since} if self.since else {}
            yield Claim(f"groups:{self.group}:{target}", "groups", subject={**subject, **since})

    def check(self, names: Names, where: Where) -> None:
        """See ``Declared``."""
        if self.mirror:
            names.check_mirror(self.mirror, where("by"))
        if self.since and not names.keeps_snapshots(self.since):
            raise WrongUseError(f"{where('since')}: '{self.since}' is not a stage with 'snapshot: true'")


_KINDS: Mapping[Kind, type[Declared]] = {
    "copy": DeclaredCopy,
    "contains": DeclaredContains,
    "through": DeclaredThrough,
    "absent": DeclaredAbsent,
    "rights": DeclaredRights,
    "whole": DeclaredWhole,
    "kept": DeclaredKept,
    "groups": DeclaredGroups,
}


def kind_of(entry: Declared) -> Kind:
    """Returns the kind of a declared claim, which is its first key."""
    return next(kind for kind, form in _KINDS.items() if isinstance(entry, form))


def _tag(entry: Any) -> str | None:
    """Returns which form an entry has, as a tag that is not part of the file: see ``validation``."""
    kind = next((kind for kind in _KINDS if kind in entry), None) if isinstance(entry, dict) else kind_of(entry)
    return kind and f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} claim"


DeclaredClaim = Annotated[
    Annotated[DeclaredCopy, Tag("a copy claim")]
    | Annotated[DeclaredContains, Tag("a contains claim")]
    | Annotated[DeclaredThrough, Tag("a through claim")]
    | Annotated[DeclaredAbsent, Tag("an absent claim")]
    | Annotated[DeclaredRights, Tag("a rights claim")]
    | Annotated[DeclaredWhole, Tag("a whole claim")]
    | Annotated[DeclaredKept, Tag("a kept claim")]
    | Annotated[DeclaredGroups, Tag("a groups claim")],
    Discriminator(
        _tag,
        custom_error_type="unknown_claim",
        custom_error_message=f"a claim has one of these keys: {', '.join(_KINDS)}",
    ),
]
"""A claim that ``scenario.yaml`` declares."""
_CLAIMS: TypeAdapter[tuple[DeclaredClaim, ...]] = TypeAdapter(tuple[DeclaredClaim, ...])


def recorded(declared: Sequence[DeclaredClaim]) -> list[dict[str, Any]]:
    """Returns the declared claims in the record's form."""
    found: list[dict[str, Any]] = _CLAIMS.dump_python(
        tuple(declared), mode="json", by_alias=True, exclude_defaults=True
    )
    return found


def from_record(entries: Sequence[Mapping[str, Any]]) -> tuple[DeclaredClaim, ...]:
    """Returns the declared claims that ``recorded`` has written."""
    return _CLAIMS.validate_python(tuple(entries))


def chains_of(mirrors: Iterable[Mirror], declared: Sequence[DeclaredClaim], stage: str) -> tuple[Mirror, ...]:
    """Returns the chains that a stage's claims name, each as one mirror."""
    every = tuple(mirrors)
    found = [chain_of(every, e.mirrors) for e in declared if isinstance(e, DeclaredThrough) and e.holds_at(stage)]
    return tuple(as_mirror(hops) for hops in found if hops)


def rights_judged(declared: Iterable[DeclaredClaim]) -> set[str]:
    """Returns the regions whose ACLs a claim of any stage covers: the prover must be able to read them."""
    return {region for entry in declared if isinstance(entry, DeclaredRights) for region in entry.regions}


def claims_of(
    mirrors: Iterable[Mirror],
    declared: Sequence[DeclaredClaim] = (),
    stage: str = "",
    snapshots: Mapping[str, Window] | None = None,
    archives: Mapping[str, Window] | None = None,
) -> tuple[Claim, ...]:
    """Returns the claims of a stage.

    Each source of each mirror has the claim that its copies are exact, unless ``scenario.yaml`` names the mirror: then
    it has the claim declared for this stage, or none.

    Args:
        mirrors: the lab's mirrors.
        declared: the claims of ``scenario.yaml``.
        stage: the stage.
        snapshots: offsets up to which each source, by its id, had been copied when the stage stopped its mirror.
        archives: first target offsets that are copies of each source, by its id.
    """
    every = tuple(mirrors)
    claims = [*_of_mirrors(every, declared, stage, snapshots or {}, archives or {})]
    for form in _KINDS.values():
        if not issubclass(form, OfMirror):
            of_kind = (entry for entry in declared if isinstance(entry, form) and entry.holds_at(stage))
            claims += [claim for number, entry in enumerate(of_kind) for claim in entry.expand(every, number)]
    return tuple(claims)


def _of_mirrors(
    mirrors: Iterable[Mirror],
    declared: Sequence[DeclaredClaim],
    stage: str,
    snapshots: Mapping[str, Window],
    archives: Mapping[str, Window],
) -> Iterator[Claim]:
    """The claims about everything that a mirror copies."""
    every = [entry for entry in declared if isinstance(entry, OfMirror)]
    here = {entry.mirror: entry for entry in every if entry.holds_at(stage)}
    for mirror in mirrors:
        entry = here.get(mirror.name)
        if entry is None and any(other.mirror == mirror.name for other in every):
            continue
        kind = kind_of(entry) if entry else "copy"
        has_snapshot = isinstance(entry, DeclaredContains) and entry.until
        yield Claim(
            f"{kind}:{mirror.id}",
            kind,
            (mirror.id,),
            {"mirror": mirror.name, "source": mirror.source, "target": mirror.target},
            snapshots.get(mirror.id, {}) if has_snapshot else None,
            archives.get(mirror.id, {}),
        )
