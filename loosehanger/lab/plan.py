"""The plan of a stage for each region, from what is described, what is recorded and what the stage's table says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.checks import check_claims, check_writers
from loosehanger.lab.claims.claims import claims_of
from loosehanger.lab.link_settings import OneWay
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.programs import (
    Consumer,
    cluster_address,
    consumers,
    is_producer,
    prover_region,
    replicas,
    with_replicas,
)
from loosehanger.lab.scenario import COPYING, DROPPED, HELD, MIRROR, REARMED, MirrorState, Scenario, Stage, is_held
from loosehanger.lab.topology import OF_IDENTITY, SecretCopy, Topology, identity_of, secrets_of


class Step(StrEnum):
    """The steps of a stage, in their order: each begins once every region has finished the one before."""

    KILL = "kill"
    """Kills the regions that the stage loses."""
    WIPE = "wipe"
    """Deletes everything in regions that are rebuilt, except the secrets that identify them to clients."""
    QUIESCE = "quiesce"
    """Stops the producers that will end or move to another cluster, unless a region is lost. Where no producer does,
    stops the consumers that will."""
    DRAIN = "drain"
    """Waits until the mirrors that will be held, and the offsets that they translate, have caught up. Where a mirror
    goes on copying and only stops translating, waits until the offsets of stopped groups settle."""
    FENCE_MIRRORS = "fence_mirrors"
    """Holds mirrors, stops the programs that will use another cluster, and keeps snapshots of all offsets."""
    SEED_GROUP_OFFSETS = "seed_group_offsets"
    """Sets the offsets of groups that move to another cluster, from the ledgers of their members."""
    RESET_MIRROR_OFFSETS = "reset_mirror_offsets"
    """Sets the offsets of mirrors whose source was rebuilt to the end of the new source."""
    CLUSTERS = "clusters"
    """Applies Kafka clusters, their topics and their users."""
    DATAFLOW = "dataflow"
    """Applies mirrors, producers and consumers."""
    FENCE_WRITES = "fence_writes"
    """Checks that no user may write events in fenced regions, and keeps a snapshot of their offsets."""
    SALVAGE = "salvage"
    """Lists and exports the records that only a dead region has, and on request writes them to another region."""
    CONSOLES = "consoles"
    """Applies the web consoles."""
    DECOMMISSION = "decommission"
    """Deletes the regions that are no longer used."""
    PROOF = "proof"
    """Checks the stage's claims."""


USER = "KafkaUser"
_OF_CLUSTERS = ("Namespace", "ConfigMap", "Secret", "KafkaNodePool", "Kafka", "KafkaTopic", "KafkaUser")


@dataclass(frozen=True)
class Plan:
    """What a stage does in one region, and what the region has afterwards."""

    region: str
    documents: tuple[Document, ...]
    """Every resource that the region has afterwards."""
    changes: tuple[Document, ...]
    """The resources among them that are applied: all that are described, and those that the stage changes."""
    leaving: tuple[Document, ...]
    """Recorded resources that the stage deletes."""
    copies: tuple[SecretCopy, ...]
    """The secrets that it needs from other regions."""
    topology: Topology
    """All regions as they are afterwards."""
    leaves: tuple[Document, ...] = ()
    """Programs that will end or move to another cluster: as they are recorded, with no replicas."""
    producers_leave: bool = True
    """Whether a producer is among those of any region."""
    holds: frozenset[str] = frozenset()
    """Its mirrors that the stage holds, or of which it holds a connector."""
    copying: frozenset[str] = frozenset()
    """Those of them that still copy records."""
    fenced: frozenset[str] = frozenset()
    """Those of them that are still running."""
    dropped: frozenset[str] = frozenset()
    """Those of them that are held without waiting for records that are not yet copied."""
    rearms: frozenset[str] = frozenset()
    """Its mirrors that are held, and whose offsets the stage resets."""
    starts: tuple[Consumer, ...] = ()
    """Its consumers that move to another cluster, where their groups start at the end of their ledgers."""
    stays: tuple[Consumer, ...] = ()
    """Programs that already use this cluster; their groups keep their offsets."""
    rescues: frozenset[str] = frozenset()
    """Its mirrors whose sources have records to salvage."""
    lost: bool = False
    """Whether the stage kills the region."""
    deleted: bool = False
    """Whether its data is deleted as well."""
    rebuilt: frozenset[str] = frozenset()
    """All regions that the stage wipes and rebuilds."""
    returns: tuple[SecretCopy, ...] = ()
    """Secrets that other regions hold copies of, from which a rebuilt region is restored."""
    planned: bool = True
    """Whether the switch is planned: no region dies, so that mirrors can drain."""
    mark: bool = False
    """Whether the stage keeps snapshots of offsets."""
    is_new: bool = False
    """Whether nothing is recorded of the region yet."""
    gone: bool = False
    """Whether the stage deletes the region."""
    leftovers: tuple[str, ...] = ()
    """The names of secrets copied from regions that are deleted, which it no longer uses."""
    silence: bool = False
    """Whether the stage fences the region: no user may write events there."""
    proof: bool = False
    """Whether the proof runs here at the end."""
    links: Mapping[tuple[str, str], OneWay] = field(default_factory=dict)
    """The settings that links start with, by source and target region."""
    regions: tuple[str, ...] = ()
    """The regions that any stage uses, in the inventory's order."""
    new_ways: bool = False
    """Whether programs of any region will use a region that none of that region used before."""

    def part(self, part: Step) -> list[Document]:
        """The resources that one step applies. A user whose password another region creates comes after that region."""
        if part is Step.QUIESCE:
            first = is_producer if self.producers_leave else bool
            return [document for document in self.leaves if self.planned and first(document)]
        found = [document for document in self.changes if self._part_of(document) is part]
        return [*found, *self.leaves] if part is Step.FENCE_MIRRORS else found

    @property
    def drains(self) -> list[Mirror]:
        """Its mirrors that must catch up before they are held."""
        return [m for m in self.held if m.name in self.fenced - self.copying - self.dropped] if self.planned else []

    @property
    def settles(self) -> list[Mirror]:
        """Its mirrors that stop translating, and whose groups' offsets must settle first."""
        return [m for m in self.held if m.name in self.fenced & self.copying] if self.planned else []

    @property
    def switches(self) -> bool:
        """Whether the stage does more here than apply and delete resources."""
        ends = self.lost or self.rebuilt or self.gone
        groups = self.starts or self.stays
        return bool(ends or self.rearms or self.rescues or self.mark or self.drains or self.silence or groups)

    @property
    def wiped(self) -> bool:
        """Whether the stage wipes and rebuilds the region."""
        return self.region in self.rebuilt

    @property
    def held(self) -> list[Mirror]:
        """Every source of the mirrors here that the stage holds."""
        return self._sources(self.holds)

    @property
    def rearmed(self) -> list[Mirror]:
        """Every source of the mirrors here that the stage re-arms."""
        return self._sources(self.rearms)

    @property
    def rescued(self) -> list[Mirror]:
        """Every source of the mirrors here that has records to salvage."""
        return self._sources(self.rescues)

    @property
    def readers_of_wiped(self) -> list[Mirror]:
        """Every source of the mirrors here that the stage wipes."""
        return [m for m in self.topology.mirrors if m.region == self.region and m.source in self.rebuilt]

    @property
    def identity(self) -> frozenset[str]:
        """The names of the secrets that identify the region to clients, and clients to it."""
        return frozenset(secret for document in self.documents for secret in identity_of(document))

    def _sources(self, names: frozenset[str]) -> list[Mirror]:
        return [m for m in self.topology.mirrors if m.region == self.region and m.name in names]

    def has(self, part: Step) -> bool:
        """Whether there is anything to do in a step."""
        match part:
            case Step.KILL:
                return self.lost
            case Step.WIPE:
                return self.wiped
            case Step.DECOMMISSION:
                return self.gone
            case Step.SEED_GROUP_OFFSETS:
                return bool(self.starts or self.stays)
            case Step.RESET_MIRROR_OFFSETS:
                return bool(self.rearms)
            case Step.SALVAGE:
                return bool(self.rescues)
            case Step.DRAIN:
                return bool(self.drains or self.settles)
            case Step.FENCE_WRITES:
                return self.silence
            case Step.PROOF:
                return self.proof
            case Step.FENCE_MIRRORS:
                return bool(self.part(part) or (self.mark and self.holds))
            case Step.CONSOLES:
                return bool(self.part(part) or self.leftovers)
            case Step.CLUSTERS:
                # An existing region needs no step of its own.
                # A link to another region must exist before programs use it.
                return self.is_new or self.new_ways or any(document.kind != "Namespace" for document in self.part(part))
            case Step.DATAFLOW:
                return bool(self.part(part) or self.leaving or self.copies)
            case _:
                return bool(self.part(part))

    def deletes(self, part: Step) -> tuple[Document, ...]:
        """The resources that one step deletes."""
        return self.leaving if part is Step.DATAFLOW else ()

    def carried_out(self, part: Step, before: Iterable[Document]) -> list[Document]:
        """The resources of the region after a step, in the plan's own order, so that a second run records the same.

        Args:
            part: the step.
            before: what the region had.
        """
        gone = {document.reference for document in self.deletes(part)}
        kept = {document.reference: document for document in before if document.reference not in gone}
        kept |= {document.reference: document for document in self.part(part)}
        order = {document.reference: place for place, document in enumerate(self.documents)}
        # Resources that a later step deletes still exist, and come last.
        return sorted(kept.values(), key=lambda document: order.get(document.reference, len(order)))

    def _part_of(self, document: Document) -> Step:
        if document.kind == MIRROR and document.name in self.fenced:
            return Step.FENCE_MIRRORS
        if document.kind == "Deployment" and is_console(document.content):
            return Step.CONSOLES
        copied = {copy.as_name for copy in self.copies}
        if document.kind in _OF_CLUSTERS and not (document.kind == "KafkaUser" and _password_of(document) in copied):
            return Step.CLUSTERS
        return Step.DATAFLOW


def plan_stage(
    described: Mapping[str, Iterable[Document]],
    recorded: Mapping[str, Iterable[Document]],
    scenario: Scenario | None = None,
    stage: str = "",
    *,
    fits: bool = True,
) -> dict[str, Plan]:
    """Plans a stage.

    Args:
        described: what the roles describe, by region.
        recorded: what was carried out before, by region.
        scenario: whose stage; None for roles on their own, whose documents are everything.
        stage: its name.
        fits: whether the resources must fit together, as they must to be applied; to be deleted, they need not.

    Returns:
        A plan for each region that has, or is going to have, anything.

    Raises:
        WrongUseError: two roles describe one resource in different ways, no role describes a resource of
            ``manifests/``, the resources do not fit together, or a claim cannot hold.
    """
    at = scenario.stage(stage) if scenario else None
    manifests = scenario.manifests(stage) if scenario else []
    absent = scenario.absent(stage) if scenario else frozenset()
    lost, rebuilt, gone = (frozenset(named) for named in ((at.lost, at.rebuilt, at.gone) if at else ((), (), ())))
    deleted = frozenset(at.deleted) if at else frozenset()
    regions = dict.fromkeys([*described, *recorded])
    unused = scenario.users_that_go(stage) if scenario else frozenset()
    changes: dict[str, dict[tuple[str, str], Document]] = {}
    documents: dict[str, dict[tuple[str, str], Document]] = {}
    leaving: dict[str, list[Document]] = {}
    for region in regions:
        had = () if region in (*rebuilt, *gone) else recorded.get(region, ())
        before = {(document.kind, document.name): document for document in had}
        new = _once(described.get(region, ()))
        for manifest in manifests:
            key = manifest.kind, manifest.name
            if manifest.namespace == region and key in before and before[key].content != manifest.content:
                new.setdefault(key, manifest)
        leaving[region] = [
            document
            for (kind, name), document in before.items()
            if (kind == MIRROR and name in absent) or (kind == USER and name in unused and (kind, name) not in new)
        ]
        kept = {key: document for key, document in before.items() if document not in leaving[region]}
        namespace = _namespace(region)
        if new and ("Namespace", region) not in new:
            new = {("Namespace", region): namespace, **new}
        changes[region], documents[region] = new, {**kept, **new}
    for manifest in manifests:
        # A region that no play names does not exist yet, or no longer.
        region = manifest.namespace
        here = region not in regions or described.get(region) or recorded.get(region)
        # A dead region keeps its resources, and one that is deleted needs none.
        if (
            fits
            and here
            and region not in (*lost, *gone)
            and (manifest.kind, manifest.name) not in documents.get(manifest.namespace, {})
            and not (manifest.kind == USER and manifest.name in unused)
        ):
            if not manifest.namespace:
                raise WrongUseError(
                    f"{manifest.where('metadata', 'namespace')}: is missing; name the region that it belongs to"
                    + _as_its_target(manifest, regions)
                )
            raise WrongUseError(
                f"{manifest.where()}: no play describes it: {manifest.namespace or 'its region'} needs the role that "
                f"describes a {manifest.kind}"
            )
    leaves = {region: _leaving(recorded.get(region, ()), changes[region]) for region in regions}
    producers_leave = any(is_producer(document) for leaving_here in leaves.values() for document in leaving_here)
    topology = Topology(
        (document for region in documents.values() for document in region.values()),
        scenario.secrets if scenario else (),
    )
    if fits:
        topology.check()
        _check_links(scenario, regions)
        if scenario:
            check_claims(scenario, topology)
        check_writers(topology, claims_of(topology.mirrors, scenario.claims if scenario else (), stage))
    standing = _standing(scenario, at)
    copies = topology.secret_copies() if fits else ()
    named = {
        region: [one for one in consumers(topology) if at and one.name in at.starts and one.region == region]
        if fits
        else []
        for region in regions
    }
    old_ways = Topology(document for region in regions for document in recorded.get(region, ())).crossings
    new_ways = not set(topology.crossings) <= set(old_ways)
    return {
        region: Plan(
            region,
            tuple(documents[region].values()),
            tuple(changes[region].values()),
            tuple(leaving[region]),
            tuple(copy for copy in copies if copy.region == region and copy.origin not in deleted),
            topology,
            leaves[region],
            producers_leave=producers_leave,
            holds=(
                holds := frozenset()
                if region in lost
                else _with_life(documents[region].values(), at, (*HELD, COPYING)) - standing
            ),
            dropped=holds & _with_life(documents[region].values(), at, (DROPPED,)),
            starts=tuple(one for one in named[region] if one.name in {document.name for document in leaves[region]}),
            stays=tuple(one for one in named[region] if one.name not in {document.name for document in leaves[region]}),
            copying=holds & _with_life(documents[region].values(), at, (COPYING,)),
            fenced=holds
            & {
                document.name
                for document in recorded.get(region, ())
                if at and not is_held(document, at.mirrors.get(document.name, "running"))
            },
            rearms=_with_life(documents[region].values(), at, REARMED)
            & {document.name for document in recorded.get(region, ()) if is_held(document)},
            rescues=frozenset(at.rescues if at else ())
            & {document.name for document in documents[region].values() if document.kind == MIRROR},
            lost=region in lost,
            deleted=region in deleted,
            rebuilt=rebuilt,
            returns=turned_round(copies, region) if region in rebuilt else (),
            planned=not lost,
            mark=bool(at and at.mark),
            is_new=region in rebuilt or not recorded.get(region),
            gone=region in gone,
            leftovers=() if region in gone else _leftovers(documents[region].values(), copies, region, recorded, gone),
            silence=bool(scenario and at and region in at.fenced and scenario.fence_of(stage, region) == stage),
            proof=bool(at and at.proof and region == prover_region(topology)),
            links=scenario.link_directions if scenario else {},
            regions=scenario.regions(regions) if scenario else tuple(regions),
            new_ways=new_ways,
        )
        for region in regions
        if documents[region] or leaving[region] or (region in gone and recorded.get(region))
    }


def steps(plans: Mapping[str, Plan]) -> list[Step]:
    """The steps that it takes, over all regions, in their order."""
    return [part for part in Step if any(plan.has(part) for plan in plans.values())]


def _leaving(recorded: Iterable[Document], changes: Mapping[tuple[str, str], Document]) -> tuple[Document, ...]:
    """The programs that will end or move to another cluster."""
    found = []
    for before in recorded:
        new = changes.get((before.kind, before.name))
        old_address, new_address = cluster_address(before), cluster_address(new) if new else ""
        ends = new is not None and not replicas(new) and replicas(before)
        if new and old_address and (old_address != new_address or ends):
            found.append(with_replicas(before, 0))
    return tuple(found)


def _standing(scenario: Scenario | None, at: Stage | None) -> frozenset[str]:
    """The mirrors that every stage before this one holds already: they are standby."""
    before = [scenario.stages[name].mirrors for name in at.after] if scenario and at else []
    return frozenset(
        name
        for name, life in (at.mirrors if at else {}).items()
        if life in HELD and before and all(lives.get(name) in HELD for lives in before)
    )


def turned_round(copies: Iterable[SecretCopy], region: str) -> tuple[SecretCopy, ...]:
    """Reverses copies: each secret that identifies a region to clients, once, from a region that holds a copy.

    Args:
        copies: those of all regions.
        region: whose secrets are restored.
    """
    found = {
        copy.name: SecretCopy(copy.region, copy.as_name, region, copy.name, copy.maker)
        for copy in copies
        if copy.origin == region and copy.maker in OF_IDENTITY
    }
    return tuple(found.values())


def _leftovers(
    documents: Iterable[Document],
    copies: Iterable[SecretCopy],
    region: str,
    recorded: Mapping[str, Iterable[Document]],
    gone: Collection[str],
) -> tuple[str, ...]:
    """The secrets created by regions that are deleted, which this region no longer uses."""
    used = {secret for document in documents for secret in secrets_of(document)}
    used |= {copy.as_name for copy in copies if copy.region == region}
    made = [secret for name in gone for document in recorded.get(name, ()) for secret in secrets_of(document)]
    return tuple(dict.fromkeys(secret for secret in made if secret not in used))


def _with_life(documents: Iterable[Document], at: Stage | None, wanted: Collection[MirrorState]) -> frozenset[str]:
    """The mirrors that the stage's table puts into one of these states."""
    lives = at.mirrors if at else {}
    return frozenset(
        document.name for document in documents if document.kind == MIRROR and lives.get(document.name) in wanted
    )


def is_console(deployment: Mapping[str, Any]) -> bool:
    """Whether a Deployment is a web console."""
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    return any(
        variable.get("name") == "CONSOLE_NAME"
        for container in pod.get("containers") or ()
        for variable in container.get("env") or ()
    )


def _once(documents: Iterable[Document]) -> dict[tuple[str, str], Document]:
    found: dict[tuple[str, str], Document] = {}
    for document in documents:
        other = found.setdefault((document.kind, document.name), document)
        if other.content != document.content:
            raise WrongUseError(
                f"{document.where()}: is described in another way in {other.source}:{other.line}; take one of them out"
            )
    return found


def _as_its_target(manifest: Document, regions: Iterable[str]) -> str:
    """The region of a mirror's target, or all regions, for a message."""
    target = (manifest.content.get("spec") or {}).get("target") or {}
    host = str(target.get("bootstrapServers", "")).split(":")[0].split(".")
    if manifest.kind == MIRROR and len(host) > 1 and host[1] in regions:
        return f": {host[1]}, as its target"
    return f": one of {', '.join(regions)}"


def _namespace(region: str) -> Document:
    content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": region}}
    return Document("the region itself", 1, content)


def _check_links(scenario: Scenario | None, regions: Iterable[str]) -> None:
    known = [*regions]
    for index, link in enumerate(scenario.links if scenario else ()):
        for region in link.between:
            if scenario and region not in known:
                raise WrongUseError(
                    f"{scenario.document.where('links', index, 'between')}: there is no region '{region}'; "
                    f"the regions are: {', '.join(known)}"
                )


def _password_of(document: Document) -> str:
    password = ((document.content.get("spec") or {}).get("authentication") or {}).get("password") or {}
    return str(((password.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name", ""))
