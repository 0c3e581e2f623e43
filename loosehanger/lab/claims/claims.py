"""The claims of a lab: most of them follow from the mirrors, the others are declared in ``scenario.yaml``.

A claim states what must hold, and the proof checks it. A claim names mirrors, topics and regions, and knows nothing of
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from loosehanger.lab.manifests.validation import Entry
from loosehanger.lab.mirrors.chain import as_mirror, chain_of
from loosehanger.lab.mirrors.mirror import Mirror

Kind = Literal["copy", "contains", "through", "absent", "whole", "kept", "groups"]
"""``copy``: the target topics equal the source's topics, and have no other writer. ``contains``: every record of the
source is in the target topic, where others may write too. ``through``: every record written at one end of a chain of
mirrors is at the other end and at each hop, once. ``absent``: a region holds nothing of a kind, and its users cannot
read it in the region that does. ``whole``: a region's local and mirrored topics together hold what every region
produced, each record once. ``kept``: every record that a producer's ledger calls acknowledged is in a live cluster.
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


class _Declared(Entry):
    at: tuple[str, ...] = ()
    """The stages that it applies to; empty for all."""

    def holds_at(self, stage: str) -> bool:
        """Whether it applies to a stage."""
        return not self.at or stage in self.at


class DeclaredContains(_Declared):
    """``{contains: mm2, at: [failover]}``: the target has every record of the source, and other writers may exist."""

    mirror: Annotated[str, Field(alias="contains")]
    """The name of the KafkaMirrorMaker2."""
    until: Literal["mark"] | None = None
    """``mark``: only what the mirror had copied when the stage stopped it."""


class DeclaredCopy(_Declared):
    """``{copy: mm2, at: [setup]}``: a mirror's copies are exact in these stages; in others there is no claim."""

    mirror: Annotated[str, Field(alias="copy")]
    """The name of the KafkaMirrorMaker2."""


class DeclaredThrough(_Declared):
    """``{through: [mm2-b, mm2-c]}``: what the first mirror's source produced is where the last mirror writes."""

    mirrors: Annotated[tuple[str, ...], Field(alias="through", min_length=2)]
    """The names of the KafkaMirrorMaker2 resources, in the order of the hops."""


class DeclaredAbsent(_Declared):
    """``{absent: {topics: [LH.CUSTOMERS]}, in: west}``: the region holds none of it, and its users cannot read it."""

    forbidden: Annotated[Forbidden, Field(alias="absent")]
    region: Annotated[str, Field(alias="in", min_length=1)]


class DeclaredWhole(_Declared):
    """``{whole: LH.ORDERS, in: [east, west]}``: each region has what all produced, each record once."""

    topic: Annotated[str, Field(alias="whole", min_length=1)]
    """The topic's name where it is produced."""
    regions: Annotated[tuple[str, ...], Field(alias="in", min_length=1)]


class DeclaredKept(_Declared):
    """``{kept: producer, at: [failover]}``: every record that its ledger calls acknowledged still exists."""

    producer: Annotated[str, Field(alias="kept", min_length=1)]
    """The name of its Deployment."""
    regions: Annotated[tuple[str, ...], Field(alias="in")] = ()
    """The regions of which one must have it; empty for all live ones."""
    not_in: Annotated[tuple[str, ...], Field(alias="not-in")] = ()
    """Live regions that do not count because they will be wiped."""


class DeclaredGroups(_Declared):
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


_KINDS: Mapping[Kind, type[_Declared]] = {
    "copy": DeclaredCopy,
    "contains": DeclaredContains,
    "through": DeclaredThrough,
    "absent": DeclaredAbsent,
    "whole": DeclaredWhole,
    "kept": DeclaredKept,
    "groups": DeclaredGroups,
}


OF_MIRRORS = (DeclaredCopy, DeclaredContains)
"""Kinds of claims about everything that a mirror copies; each mirror has one."""


def kind_of(entry: _Declared) -> Kind:
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


def claims_of(
    mirrors: Iterable[Mirror],
    declared: Sequence[DeclaredClaim] = (),
    stage: str = "",
    marks: Mapping[str, Window] | None = None,
    archives: Mapping[str, Window] | None = None,
) -> tuple[Claim, ...]:
    """Returns the claims of a stage.

    Each source of each mirror has the claim that its copies are exact, unless ``scenario.yaml`` names the mirror: then
    it has the claim declared for this stage, or none.

    Args:
        mirrors: the lab's mirrors.
        declared: the claims of ``scenario.yaml``.
        stage: the stage.
        marks: offsets up to which each source, by its id, had been copied when the stage stopped its mirror.
        archives: first target offsets that are copies of each source, by its id.
    """
    every = tuple(mirrors)
    spoken_of = {entry.mirror for entry in declared if isinstance(entry, OF_MIRRORS)}
    at_stage = [entry for entry in declared if entry.holds_at(stage)]
    here = {entry.mirror: entry for entry in at_stage if isinstance(entry, OF_MIRRORS)}
    marked = {name for name, entry in here.items() if isinstance(entry, DeclaredContains) and entry.until}
    kinds = {name: kind_of(entry) for name, entry in here.items()}
    of_mirrors = [
        Claim(
            f"{kind}:{mirror.id}",
            kind,
            (mirror.id,),
            {"mirror": mirror.name, "source": mirror.source, "target": mirror.target},
            (marks or {}).get(mirror.id, {}) if mirror.name in marked else None,
            (archives or {}).get(mirror.id, {}),
        )
        for mirror in every
        for kind in [kinds.get(mirror.name, None if mirror.name in spoken_of else "copy")]
        if kind
    ]
    through = [
        Claim(
            f"through:{'+'.join(entry.mirrors)}",
            "through",
            (as_mirror(hops).id,) if hops else (),
            {
                "by": ", ".join(entry.mirrors),
                "source": hops[0].source if hops else "",
                "target": hops[-1].target if hops else "",
            },
        )
        for entry in at_stage
        if isinstance(entry, DeclaredThrough)
        for hops in [chain_of(every, entry.mirrors)]
    ]
    absent = [
        Claim(
            f"absent:{entry.region}:{number}",
            "absent",
            subject={
                "region": entry.region,
                **{name: ", ".join(names) for name, names in entry.forbidden.model_dump().items() if names},
            },
            forbidden=entry.forbidden,
        )
        for number, entry in enumerate(entry for entry in at_stage if isinstance(entry, DeclaredAbsent))
    ]
    wholes = [
        Claim(f"whole:{entry.topic}:{region}", "whole", subject={"topic": entry.topic, "region": region})
        for entry in at_stage
        if isinstance(entry, DeclaredWhole)
        for region in entry.regions
    ]
    kept = [
        Claim(
            f"kept:{entry.producer}",
            "kept",
            subject={
                "producer": entry.producer,
                "regions": ",".join(entry.regions),
                "not_in": ",".join(entry.not_in),
            },
            kept_in=KeptIn(entry.regions, entry.not_in),
        )
        for entry in at_stage
        if isinstance(entry, DeclaredKept)
    ]
    groups = [
        Claim(
            f"groups:{entry.group}:{target}",
            "groups",
            subject={
                "group": entry.group,
                "mirror": entry.mirror,
                "source": source,
                "target": target,
                **({"since": entry.since} if entry.since else {}),
            },
        )
        for entry in at_stage
        if isinstance(entry, DeclaredGroups)
        for source, target in (
            [("", entry.to)] if entry.to else [(m.source, m.target) for m in every if m.name == entry.mirror]
        )
    ]
    return (*of_mirrors, *through, *absent, *wholes, *kept, *groups)
