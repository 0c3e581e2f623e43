"""What a stage makes of each region: what was described, what is there already, and what the stage's table says."""

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
    """The steps of carrying out, in their order: each needs the one before in every region."""

    KILL = "kill"
    """Regions that die."""
    WIPE = "wipe"
    """Regions that are made again: what they had goes, all but what clients know them by."""
    QUIESCE = "quiesce"
    """Producers that are going to end or to write to another cluster, where nothing is lost: they end first. Where
    none is, consumers that are going to read another one do."""
    DRAIN = "drain"
    """What is on its way arrives: the mirrors that are going to be held, and their groups' offsets, catch up. Where a
    mirror is only going to translate no more, the offsets of groups whose members have ended settle."""
    FENCE_MIRRORS = "fence_mirrors"
    """Mirrors are held, and programs that are going to use another cluster end; how far all are is kept."""
    SEED_GROUP_OFFSETS = "seed_group_offsets"
    """Groups that change over to another cluster get their offsets there, by the ledgers of their members."""
    RESET_MIRROR_OFFSETS = "reset_mirror_offsets"
    """Mirrors that are going to run again, after their source was made again, are told where it ends now."""
    CLUSTERS = "clusters"
    """Kafka clusters, their topics and their users."""
    DATAFLOW = "dataflow"
    """Mirrors, producers and consumers."""
    FENCE_WRITES = "fence_writes"
    """Nobody may write any more in regions that are fenced: how far they were is kept."""
    SALVAGE = "salvage"
    """What a dead region has, and nobody else, is listed, exported, and maybe written elsewhere."""
    CONSOLES = "consoles"
    """What people look at it with."""
    DECOMMISSION = "decommission"
    """Regions go that nobody uses any more."""
    PROOF = "proof"
    """What is claimed of the stage is proved."""


USER = "KafkaUser"
_OF_CLUSTERS = ("Namespace", "ConfigMap", "Secret", "KafkaNodePool", "Kafka", "KafkaTopic", "KafkaUser")


@dataclass(frozen=True)
class Plan:
    """What a region shall have."""

    region: str
    documents: tuple[Document, ...]
    """Everything that it shall have."""
    changes: tuple[Document, ...]
    """What of it is going to be applied: all that was described, and what the stage changes."""
    leaving: tuple[Document, ...]
    """What it has, and shall have no longer."""
    copies: tuple[SecretCopy, ...]
    """The secrets that it needs from other regions."""
    topology: Topology
    """All regions as they shall be."""
    leaves: tuple[Document, ...] = ()
    """Programs that are going to end, or to use another cluster, as they are now, but without a copy running."""
    producers_leave: bool = True
    """Whether a producer is among those of any region."""
    holds: frozenset[str] = frozenset()
    """Its mirrors that the stage holds, or of which it holds a connector."""
    copying: frozenset[str] = frozenset()
    """Those of them that go on copying records."""
    fenced: frozenset[str] = frozenset()
    """Those of them that run still."""
    dropped: frozenset[str] = frozenset()
    """Those of them that are held whatever is still on its way."""
    rearms: frozenset[str] = frozenset()
    """Its mirrors that are held, and that the stage re-arms."""
    starts: tuple[Consumer, ...] = ()
    """Its consumers, as they shall be, that begin where their ledgers end."""
    stays: tuple[Consumer, ...] = ()
    """Those of which the same is said, and that use the cluster already: their groups go on where they are."""
    rescues: frozenset[str] = frozenset()
    """Its mirrors beyond which their sources' records are rescued."""
    lost: bool = False
    """Whether everything here dies."""
    deleted: bool = False
    """Whether nothing is left of it then."""
    rebuilt: frozenset[str] = frozenset()
    """The regions, anywhere, that are wiped and made again."""
    returns: tuple[SecretCopy, ...] = ()
    """What others have copies of: what it does not have of these, when it is made again, comes back from there."""
    planned: bool = True
    """Whether nothing dies anywhere, so that what is on its way can be waited for."""
    mark: bool = False
    """Whether the stage keeps how far everything was."""
    is_new: bool = False
    """Whether nothing is here yet."""
    gone: bool = False
    """Whether the region goes with all that it has."""
    leftovers: tuple[str, ...] = ()
    """The names of secrets that it has copies of, from regions that go, and has no use for any more."""
    silence: bool = False
    """Whether the stage puts up a fence here: nobody may write any more."""
    proof: bool = False
    """Whether the proof runs here at the end."""
    links: Mapping[tuple[str, str], OneWay] = field(default_factory=dict)
    """What links begin with, by the regions that bytes flow from and to."""
    regions: tuple[str, ...] = ()
    """The regions that any stage uses, in the inventory's order."""
    new_ways: bool = False
    """Whether applications of any region are going to use another region that none of theirs used before."""

    def part(self, part: Step) -> list[Document]:
        """What is applied in one step. Users whose password is another region's wait until that region has made it."""
        if part is Step.QUIESCE:
            first = is_producer if self.producers_leave else bool
            return [document for document in self.leaves if self.planned and first(document)]
        found = [document for document in self.changes if self._part_of(document) is part]
        return [*found, *self.leaves] if part is Step.FENCE_MIRRORS else found

    @property
    def drains(self) -> list[Mirror]:
        """Those of its mirrors that everything has to get through before they are held."""
        return [m for m in self.held if m.name in self.fenced - self.copying - self.dropped] if self.planned else []

    @property
    def settles(self) -> list[Mirror]:
        """Those of its mirrors whose groups' offsets have to settle before they are translated no more."""
        return [m for m in self.held if m.name in self.fenced & self.copying] if self.planned else []

    @property
    def switches(self) -> bool:
        """Whether more happens here than that resources are applied and deleted."""
        ends = self.lost or self.rebuilt or self.gone
        groups = self.starts or self.stays
        return bool(ends or self.rearms or self.rescues or self.mark or self.drains or self.silence or groups)

    @property
    def wiped(self) -> bool:
        """Whether what was here goes, and everything is made again."""
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
        """Every source of the mirrors here from which records are rescued."""
        return self._sources(self.rescues)

    @property
    def readers_of_wiped(self) -> list[Mirror]:
        """Every source of the mirrors here that is going to be wiped."""
        return [m for m in self.topology.mirrors if m.region == self.region and m.source in self.rebuilt]

    @property
    def identity(self) -> frozenset[str]:
        """The names of the secrets by which clients know what is here, and by which it knows them."""
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
                # The region itself is no reason for a step of its own, once it is there.
                # But a way to another region must be there before programs are sent along it.
                return self.is_new or self.new_ways or any(document.kind != "Namespace" for document in self.part(part))
            case Step.DATAFLOW:
                return bool(self.part(part) or self.leaving or self.copies)
            case _:
                return bool(self.part(part))

    def deletes(self, part: Step) -> tuple[Document, ...]:
        """What goes in one step."""
        return self.leaving if part is Step.DATAFLOW else ()

    def carried_out(self, part: Step, before: Iterable[Document]) -> list[Document]:
        """What the region has once a step is carried out, in the plan's own order: a second run records the same.

        Args:
            part: the step.
            before: what the region had.
        """
        gone = {document.reference for document in self.deletes(part)}
        kept = {document.reference: document for document in before if document.reference not in gone}
        kept |= {document.reference: document for document in self.part(part)}
        order = {document.reference: place for place, document in enumerate(self.documents)}
        # What a later step deletes is there still, and comes last.
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
        fits: whether all of it must fit together, as it must to be carried out. To be deleted, it need not.

    Returns:
        A plan for each region that has, or is going to have, anything.

    Raises:
        WrongUseError: two roles describe one resource in different ways, a resource of ``manifests/`` is described by
            nobody, the resources do not fit together, or a claim cannot hold.
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
        # A region of which no play speaks is not there yet, or no longer.
        region = manifest.namespace
        here = region not in regions or described.get(region) or recorded.get(region)
        # A dead region has what it had, and one that goes needs nothing.
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
    """The programs that are going to end, or whose cluster is going to be another one."""
    found = []
    for before in recorded:
        new = changes.get((before.kind, before.name))
        old_address, new_address = cluster_address(before), cluster_address(new) if new else ""
        ends = new is not None and not replicas(new) and replicas(before)
        if new and old_address and (old_address != new_address or ends):
            found.append(with_replicas(before, 0))
    return tuple(found)


def _standing(scenario: Scenario | None, at: Stage | None) -> frozenset[str]:
    """The mirrors that a stage does not hold, since all that it may follow have held them: they only stand ready."""
    before = [scenario.stages[name].mirrors for name in at.after] if scenario and at else []
    return frozenset(
        name
        for name, life in (at.mirrors if at else {}).items()
        if life in HELD and before and all(lives.get(name) in HELD for lives in before)
    )


def turned_round(copies: Iterable[SecretCopy], region: str) -> tuple[SecretCopy, ...]:
    """The way back of copies: each secret by which clients know a region, once, from who has a copy of it.

    Args:
        copies: those of all regions.
        region: whose secrets come back.
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
    """What a region has no use for any more of the secrets that regions made that go."""
    used = {secret for document in documents for secret in secrets_of(document)}
    used |= {copy.as_name for copy in copies if copy.region == region}
    made = [secret for name in gone for document in recorded.get(name, ()) for secret in secrets_of(document)]
    return tuple(dict.fromkeys(secret for secret in made if secret not in used))


def _with_life(documents: Iterable[Document], at: Stage | None, wanted: Collection[MirrorState]) -> frozenset[str]:
    """The mirrors to which the stage's table gives one of these lives."""
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
