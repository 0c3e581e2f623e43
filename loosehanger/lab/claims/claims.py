"""What a lab promises, claim by claim: most of it follows from the mirrors, the rest stands in ``scenario.yaml``.

A claim says what has to hold; whether it does, the proof finds out. Here nothing is known of records: a claim names the
mirrors, topics and regions that it is about.
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
"""``copy``: the target topics are the source's, exactly, and have no other writer. ``contains``: every record of the
source is in the target topic, where others may write too. ``through``: what was written at one end of a chain of
mirrors is at the other end and at each hop, once. ``absent``: nothing of a kind is in a region, and nobody there could
read it where it is. ``whole``: a region's local and mirrored topics together hold what
every region has produced, each record once. ``kept``: every record that a producer's ledger calls acknowledged is
in a cluster that lives. ``groups``: a consumer group went on elsewhere, skipped nothing, and read again exactly what
was predicted when the mirror was held."""
OF_LEDGERS = ("kept", "groups")
"""The kinds that ledgers decide on."""
Window = Mapping[str, Mapping[int, int]]
"""For each topic of a source and each of its partitions the offset where it ends."""


class Forbidden(Entry):
    """What must not be in a region."""

    topics: tuple[str, ...] = ()
    """Topics by their names where they are written; a copy under any name counts as well."""
    headers: tuple[str, ...] = ()
    """Names of records' headers."""
    fields: tuple[str, ...] = ()
    """Names of fields in records' values."""
    groups: tuple[str, ...] = ()
    """Consumer groups of other regions, in what mirrors note of them."""

    @model_validator(mode="after")
    def _is_something(self) -> Forbidden:
        if not (self.topics or self.headers or self.fields or self.groups):
            raise ValueError("names nothing; give topics, headers, fields or groups")
        return self


@dataclass(frozen=True)
class Claim:
    """Something that has to hold."""

    id: str
    kind: Kind
    mirrors: tuple[str, ...] = ()
    """The ids of the mirrors' sources whose flows it is about; of each there is one such claim at most."""
    subject: Mapping[str, str] = field(default_factory=dict)
    """What it speaks of, by the names of the field: ``mirror``, ``source``, ``target``; ``topic``, ``region``;
    ``producer``, ``not_in`` (regions, with commas); ``group``."""
    window: Window | None = None
    """What of its mirrors' sources it is about: everything where it is None; empty where nobody knows."""
    archives: Window = field(default_factory=dict)
    """Where its mirrors' copies begin to be their source's, for each topic and partition of the target in which there
    is something of an earlier one."""
    forbidden: Forbidden | None = None
    """What must not be in its region."""


class _Declared(Entry):
    at: tuple[str, ...] = ()
    """The stages in which it is claimed; empty for all."""

    def holds_at(self, stage: str) -> bool:
        """Whether it is claimed in a stage."""
        return not self.at or stage in self.at


class DeclaredContains(_Declared):
    """``{contains: mm2, at: [failover]}``: what a mirror's source has is in the target, where others write too."""

    mirror: Annotated[str, Field(alias="contains")]
    """The name of its resource."""
    until: Literal["mark"] | None = None
    """``mark``: only what the mirror had copied when the stage held it."""


class DeclaredCopy(_Declared):
    """``{copy: mm2, at: [setup]}``: a mirror's copies are exact in these stages; in others it claims nothing."""

    mirror: Annotated[str, Field(alias="copy")]
    """The name of its resource."""


class DeclaredThrough(_Declared):
    """``{through: [mm2-b, mm2-c]}``: what the first mirror's source has of its own is where the last one writes."""

    mirrors: Annotated[tuple[str, ...], Field(alias="through", min_length=2)]
    """The names of their resources, in the order of the hops."""


class DeclaredAbsent(_Declared):
    """``{absent: {topics: [LH.CUSTOMERS]}, in: west}``: nothing of it is there, and nobody there could read it."""

    forbidden: Annotated[Forbidden, Field(alias="absent")]
    region: Annotated[str, Field(alias="in", min_length=1)]


class DeclaredWhole(_Declared):
    """``{whole: LH.ORDERS, in: [east, west]}``: each of these regions sees what all have produced, each record once."""

    topic: Annotated[str, Field(alias="whole", min_length=1)]
    """The topic's name where it is produced."""
    regions: Annotated[tuple[str, ...], Field(alias="in", min_length=1)]


class DeclaredKept(_Declared):
    """``{kept: producer, at: [failover]}``: what this producer's ledger calls acknowledged is somewhere."""

    producer: Annotated[str, Field(alias="kept", min_length=1)]
    """The name of its Deployment."""
    regions: Annotated[tuple[str, ...], Field(alias="in")] = ()
    """The regions of which one must have it; empty for all that live."""
    not_in: Annotated[tuple[str, ...], Field(alias="not-in")] = ()
    """Regions whose clusters live and do not count, since they are going to be wiped."""


class DeclaredGroups(_Declared):
    """``{groups: consumer-x, by: mm2, at: [failover]}``: this group has moved to the mirror's target; with ``to: east``
    in place of ``by``, to where its members' ledger ended in this region."""

    group: Annotated[str, Field(alias="groups", min_length=1)]
    mirror: Annotated[str, Field(alias="by")] = ""
    """The name of the resource that translates its offsets; empty for none."""
    to: str = ""
    """The region that it has moved to; empty for the mirror's target."""
    since: str = ""
    """The stage in which it moved; empty for the one in which it is claimed."""

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
"""Claims about everything that a mirror copies, of which each mirror has one."""


def kind_of(entry: _Declared) -> Kind:
    """The kind of a claim of ``scenario.yaml``: the key that it begins with."""
    return next(kind for kind, form in _KINDS.items() if isinstance(entry, form))


def _tag(entry: Any) -> str | None:
    """Which form an entry has, in words that are no part of the file: see ``validation``."""
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
"""A claim of ``scenario.yaml``."""
_CLAIMS: TypeAdapter[tuple[DeclaredClaim, ...]] = TypeAdapter(tuple[DeclaredClaim, ...])


def recorded(declared: Sequence[DeclaredClaim]) -> list[dict[str, Any]]:
    """The declared claims as the record keeps them."""
    found: list[dict[str, Any]] = _CLAIMS.dump_python(
        tuple(declared), mode="json", by_alias=True, exclude_defaults=True
    )
    return found


def from_record(entries: Sequence[Mapping[str, Any]]) -> tuple[DeclaredClaim, ...]:
    """The declared claims, as ``recorded`` has written them."""
    return _CLAIMS.validate_python(tuple(entries))


def chains_of(mirrors: Iterable[Mirror], declared: Sequence[DeclaredClaim], stage: str) -> tuple[Mirror, ...]:
    """The chains of mirrors that claims speak of in a stage, each as one mirror."""
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
    """What is claimed in a stage.

    Each source of each mirror claims that its copies are exact, unless ``scenario.yaml`` speaks of the mirror: then it
    claims what stands there for this stage, and nothing where nothing does.

    Args:
        mirrors: those that are there.
        declared: what ``scenario.yaml`` has.
        stage: the stage.
        marks: how far each source of a mirror, by its id, had been copied when the stage held it.
        archives: where its copies begin to be this source's, likewise.
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
