"""The plan of a stage for each region, from what is described, what is recorded and what the stage's table says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from loosehanger.errors import WrongUseError
from loosehanger.lab.actions import (
    Action,
    Apply,
    ApplyLinks,
    ClusterAction,
    CopySecrets,
    Decommission,
    Delete,
    DeleteCopies,
    DeleteTopics,
    DrainMirrors,
    FenceWrites,
    Kill,
    Prove,
    RecordResources,
    ResetMirrorOffsets,
    SalvageRecords,
    SeedGroupOffsets,
    SnapshotMirrors,
    Wipe,
)
from loosehanger.lab.claims.checks import check_claims, check_writers
from loosehanger.lab.claims.claims import claims_of
from loosehanger.lab.followed_sign_ins import Following
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import USER, MirrorMaker, Program
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import internal_topics
from loosehanger.lab.program_sign_ins import with_sign_ins
from loosehanger.lab.programs import consumers, is_audit, is_console, is_producer, prover_region, with_replicas
from loosehanger.lab.scenario import COPYING, DROPPED, HELD, MIRROR, RESET, MirrorState, Scenario, Stage, is_held
from loosehanger.lab.token_sign_ins import check_tokens
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
    continues to copy and only stops translating, waits until the offsets of stopped groups settle."""
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


_OF_CLUSTERS = ("Namespace", "ConfigMap", "Secret", "KafkaNodePool", "Kafka", "KafkaTopic", "KafkaUser")
_SWITCHES = (Kill, Wipe, Decommission, ClusterAction)
_A = TypeVar("_A")


@dataclass(frozen=True)
class Plan:
    """What a stage does in one region, and what the region has afterwards."""

    region: str
    documents: tuple[Document, ...]
    """Every resource that the region has afterwards."""
    changes: tuple[Document, ...]
    """The resources among them that are applied: all that are described, and those that the stage changes."""
    topology: Topology
    """All regions as they are afterwards."""
    regions: tuple[str, ...] = ()
    """The regions that any stage uses, in the inventory's order."""
    actions: Mapping[Step, tuple[Action, ...]] = field(default_factory=dict)
    """What is done here in each step, in this order."""

    def has(self, step: Step) -> bool:
        """Whether there is anything to do in a step."""
        return any(map(_is_work, self.actions.get(step, ())))

    def every(self, kind: type[_A]) -> list[_A]:
        """The actions of one kind, in the order of their steps."""
        return [action for step in Step for action in self.actions.get(step, ()) if isinstance(action, kind)]

    def applied(self, step: Step) -> tuple[Document, ...]:
        """The resources that one step applies."""
        actions = self.actions.get(step, ())
        return tuple(document for action in actions if isinstance(action, Apply) for document in action.documents)

    @property
    def kills(self) -> bool:
        """Whether the stage kills the region, or wipes it."""
        return bool(self.every(Kill) or self.every(Wipe))

    @property
    def switches(self) -> bool:
        """Whether the stage does more here than apply and delete resources."""
        every = (action for of_step in self.actions.values() for action in of_step)
        return any(isinstance(action, _SWITCHES) and not isinstance(action, DeleteTopics) for action in every)


def _is_work(action: Action) -> bool:
    """Whether a stage needs a step for an action."""
    match action:
        case Apply():
            # An existing region needs no step of its own.
            return any(document.kind != "Namespace" for document in action.documents)
        case ApplyLinks():
            # A link to another region must exist before programs use it.
            return action.is_needed
        case CopySecrets():
            # Secrets of mirrors are copied for consoles, with them.
            return any(copy.maker != MIRROR for copy in action.copies)
        case RecordResources():
            return False
        case _:
            return True


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
        recorded: what was applied before, by region.
        scenario: whose stage; None for roles on their own, whose documents are everything.
        stage: its name.
        fits: whether the resources must fit together, as they must to be applied; to be deleted, they need not, and
            no actions are planned.

    Returns:
        A plan for each region that has, or is going to have, anything.

    Raises:
        WrongUseError: two roles describe one resource in different ways, no role describes a resource of
            ``manifests/``, the resources do not fit together, or a claim cannot hold.
    """
    at = scenario.stage(stage) if scenario else Stage(mirrors={})
    manifests = scenario.manifests(stage) if scenario else []
    unused = scenario.users_that_go(stage) if scenario else frozenset()
    absent = scenario.absent(stage) if scenario else frozenset()
    if fits:
        manifests, described = _with_sign_ins(scenario, manifests, described, recorded)
    regions = {
        region: _resources(region, at, described.get(region, ()), recorded.get(region, ()), manifests, absent, unused)
        for region in dict.fromkeys([*described, *recorded])
    }
    if fits:
        _check_described(manifests, regions, at, unused)
    topology = Topology(
        (document for region in regions.values() for document in region.documents.values()),
        scenario.secrets if scenario else (),
    )
    if fits:
        _check_together(topology, scenario, regions)
        if scenario:
            check_claims(scenario, topology)
        check_writers(topology, claims_of(topology.mirrors, scenario.claims if scenario else (), stage))
    planner = _Planner(scenario, stage, at, regions, topology) if fits else None
    used = scenario.regions(regions) if scenario else tuple(regions)
    return {
        name: Plan(
            name,
            tuple(region.documents.values()),
            tuple(region.changes.values()),
            topology,
            used,
            planner.actions(region) if planner else {},
        )
        for name, region in regions.items()
        if region.documents or region.leaving or (name in at.gone and region.recorded)
    }


def steps(plans: Mapping[str, Plan]) -> list[Step]:
    """The steps that it takes, over all regions, in their order."""
    return [step for step in Step if any(plan.has(step) for plan in plans.values())]


@dataclass(frozen=True)
class _Region:
    """The resources of a region: what was recorded, and what a stage makes of it."""

    name: str
    recorded: tuple[Document, ...]
    changes: Mapping[tuple[str, str], Document]
    documents: Mapping[tuple[str, str], Document]
    leaving: tuple[Document, ...]
    """Recorded resources that the stage deletes."""
    stopping: tuple[Document, ...]
    """Programs that will end or move to another cluster: as they are recorded, with no replicas."""

    @property
    def names(self) -> frozenset[str]:
        """The names of its mirrors afterwards."""
        return frozenset(document.name for document in self.documents.values() if document.kind == MIRROR)


class _Planner:
    """Plans the steps of a region, each by one function, from the stage's table and the resources.

    Args:
        scenario: whose stage; None for roles on their own.
        stage: its name.
        at: its table.
        regions: all regions.
        topology: all regions as they are afterwards.
    """

    def __init__(
        self, scenario: Scenario | None, stage: str, at: Stage, regions: Mapping[str, _Region], topology: Topology
    ) -> None:
        self._scenario = scenario
        self._stage = stage
        self._at = at
        self._regions = regions
        self._topology = topology
        self._copies = topology.secret_copies()
        self._consumers = [one for one in consumers(topology) if one.name in at.starts]
        self._standing = _standby(scenario, at)
        self._before = Topology(document for region in regions.values() for document in region.recorded)
        self._new_ways = not set(topology.crossings) <= set(self._before.crossings)
        stopping = [document for region in regions.values() for document in region.stopping]
        self._quiesces = is_producer if any(map(is_producer, stopping)) else bool

    def actions(self, region: _Region) -> dict[Step, tuple[Action, ...]]:
        """The actions of each step in one region."""
        planned: dict[Step, Callable[[_Region], Iterable[Action]]] = {
            Step.KILL: self._kill,
            Step.WIPE: self._wipe,
            Step.QUIESCE: self._quiesce,
            Step.DRAIN: self._drain,
            Step.FENCE_MIRRORS: self._fence_mirrors,
            Step.SEED_GROUP_OFFSETS: self._seed_group_offsets,
            Step.RESET_MIRROR_OFFSETS: self._reset_mirror_offsets,
            Step.CLUSTERS: self._clusters,
            Step.DATAFLOW: self._dataflow,
            Step.FENCE_WRITES: self._fence_writes,
            Step.SALVAGE: self._salvage,
            Step.CONSOLES: self._consoles,
            Step.DECOMMISSION: self._decommission,
            Step.PROOF: self._proof,
        }
        return {step: tuple(plan(region)) for step, plan in planned.items()}

    # One function for each step.

    def _kill(self, region: _Region) -> Iterator[Action]:
        if region.name in self._at.lost:
            yield Kill(deletes_data=region.name in self._at.deleted)

    def _wipe(self, region: _Region) -> Iterator[Action]:
        if region.name in self._at.rebuilt:
            documents = region.documents.values()
            clusters = tuple(document.name for document in documents if document.kind == "Kafka")
            kept = frozenset(secret for document in documents for secret in identity_of(document))
            yield Wipe(clusters, kept, reversed_copies(self._copies, region.name))

    def _quiesce(self, region: _Region) -> Iterator[Action]:
        stopped = () if self._at.lost else tuple(filter(self._quiesces, region.stopping))
        yield from self._apply(region, stopped)

    def _drain(self, region: _Region) -> Iterator[Action]:
        to_hold = frozenset() if self._at.lost else self._to_hold(region)
        copying, dropped = self._in_state(region, COPYING), self._in_state(region, DROPPED)
        drains = tuple(mirror.id for mirror in self._mirrors(region, to_hold - copying - dropped))
        settles = tuple(mirror.id for mirror in self._mirrors(region, to_hold & copying))
        if drains or settles:
            yield DrainMirrors(stage=self._stage, drains=drains, settles=settles)

    def _fence_mirrors(self, region: _Region) -> Iterator[Action]:
        yield from self._apply(region, (*self._changes(region, Step.FENCE_MIRRORS), *region.stopping))
        held, to_hold = self._held(region), self._to_hold(region)
        if self._at.snapshot and held:
            mirrors, stopped = self._mirrors(region, held), self._mirrors(region, held - to_hold)
            yield SnapshotMirrors(stage=self._stage, mirrors=mirrors, stopped_before=stopped)

    def _seed_group_offsets(self, region: _Region) -> Iterator[Action]:
        moving = {document.name for document in region.stopping}
        own = [one for one in self._consumers if one.region == region.name]
        if own:
            yield SeedGroupOffsets(
                stage=self._stage,
                region=region.name,
                stays=tuple(one for one in own if one.name not in moving),
                starts=tuple(one for one in own if one.name in moving),
                translated=bool(self._at.lost),
            )

    def _reset_mirror_offsets(self, region: _Region) -> Iterator[Action]:
        stopped = {document.name for document in region.recorded if is_held(document)}
        if mirrors := self._mirrors(region, self._in_state(region, *RESET) & stopped):
            yield ResetMirrorOffsets(stage=self._stage, mirrors=mirrors)

    def _clusters(self, region: _Region) -> Iterator[Action]:
        documents = self._changes(region, Step.CLUSTERS)
        new = region.name in self._at.rebuilt or not region.recorded
        # A step must not revive a dead region.
        is_dead = region.name in self._at.lost
        links = self._scenario.link_directions if self._scenario else {}
        link = ApplyLinks(self._topology, links, starts_region=bool(documents), is_needed=new or self._new_ways)
        yield from self._apply(region, documents, after=() if is_dead else (link,))

    def _dataflow(self, region: _Region) -> Iterator[Action]:
        if region.leaving:
            yield Delete(region.leaving)
        # A mirror's own secrets exist only once the mirror does.
        if copies := self._copies_to(region, of_mirrors=False):
            yield CopySecrets(copies)
        yield from self._apply(region, self._changes(region, Step.DATAFLOW), deleted=region.leaving)
        if own := [document for document in region.leaving if document.kind == MIRROR]:
            topics = internal_topics(own, self._before.connected().mirrors)
            yield DeleteTopics(stage=self._stage, topics=topics)

    def _fence_writes(self, region: _Region) -> Iterator[Action]:
        fenced = region.name in self._at.fenced and self._scenario
        if fenced and fenced.fence_of(self._stage, region.name) == self._stage:
            yield FenceWrites(stage=self._stage, region=region.name)

    def _salvage(self, region: _Region) -> Iterator[Action]:
        if mirrors := self._mirrors(region, region.names & set(self._at.rescues)):
            yield SalvageRecords(stage=self._stage, mirrors=mirrors)

    def _consoles(self, region: _Region) -> Iterator[Action]:
        documents = self._changes(region, Step.CONSOLES)
        if copies := self._copies_to(region, of_mirrors=True):
            yield CopySecrets(copies)
        leftovers = () if region.name in self._at.gone else self._leftovers(region)
        yield from self._apply(region, documents, after=(DeleteCopies(leftovers),) if leftovers else ())

    def _decommission(self, region: _Region) -> Iterator[Action]:
        if region.name in self._at.gone:
            yield Decommission()

    def _proof(self, region: _Region) -> Iterator[Action]:
        if self._at.proof and region.name == prover_region(self._topology):
            yield Prove()

    # What the steps share.

    def _apply(
        self,
        region: _Region,
        documents: tuple[Document, ...],
        *,
        deleted: tuple[Document, ...] = (),
        after: tuple[Action, ...] = (),
    ) -> Iterator[Action]:
        """Applies resources, and records what the region has then."""
        if documents:
            yield Apply(documents)
        yield from after
        planned, is_deleted = tuple(region.documents.values()), region.name in self._at.deleted
        yield RecordResources(documents, deleted, planned, self._topology, is_deleted)

    def _changes(self, region: _Region, step: Step) -> tuple[Document, ...]:
        """The described resources that a step applies."""
        to_hold, copied = self._to_hold(region), {copy.as_name for copy in self._copies_of(region)}
        return tuple(document for document in region.changes.values() if _step_of(document, to_hold, copied) is step)

    def _in_state(self, region: _Region, *states: MirrorState) -> frozenset[str]:
        """The mirrors of a region that the stage's table puts into one of these states."""
        return frozenset(name for name in region.names if self._at.mirrors.get(name) in states)

    def _held(self, region: _Region) -> frozenset[str]:
        """The mirrors that the stage holds, or of which it holds a connector."""
        if region.name in self._at.lost:
            return frozenset()
        return self._in_state(region, *HELD, COPYING) - self._standing

    def _to_hold(self, region: _Region) -> frozenset[str]:
        """Those of them that are still running."""
        states = self._at.mirrors
        running = {one.name for one in region.recorded if not is_held(one, states.get(one.name, "running"))}
        return self._held(region) & running

    def _mirrors(self, region: _Region, names: Collection[str]) -> tuple[Mirror, ...]:
        """Every source of some mirrors of a region."""
        every = self._topology.mirrors if names else ()
        return tuple(mirror for mirror in every if mirror.region == region.name and mirror.name in names)

    def _copies_of(self, region: _Region) -> list[SecretCopy]:
        """The secrets that a region needs from others."""
        return [copy for copy in self._copies if copy.region == region.name and copy.origin not in self._at.deleted]

    def _copies_to(self, region: _Region, *, of_mirrors: bool) -> tuple[SecretCopy, ...]:
        return tuple(copy for copy in self._copies_of(region) if (copy.maker == MIRROR) is of_mirrors)

    def _leftovers(self, region: _Region) -> tuple[str, ...]:
        """The secrets of users and regions that are deleted, which this region no longer uses."""
        used = {secret for document in region.documents.values() for secret in secrets_of(document)}
        used |= {copy.as_name for copy in self._copies if copy.region == region.name}
        gone: list[Collection[Document]] = [
            self._regions[name].recorded for name in self._at.gone if name in self._regions
        ]
        gone += [
            [one for one in other.leaving if one.kind == USER and one.name in self._at.without]
            for other in self._regions.values()
            if other.name != region.name
        ]
        made = [secret for documents in gone for document in documents for secret in secrets_of(document)]
        return tuple(dict.fromkeys(secret for secret in made if secret not in used))


def _step_of(document: Document, fenced: Collection[str], copied: Collection[str]) -> Step:
    """The step that applies a resource. A user whose password another region creates comes after that region."""
    if document.kind == MIRROR and document.name in fenced:
        return Step.FENCE_MIRRORS
    if is_console(document) or (document.kind == "Deployment" and is_audit(document)):
        return Step.CONSOLES
    if document.kind in _OF_CLUSTERS and not (document.kind == USER and _password_of(document) in copied):
        return Step.CLUSTERS
    return Step.DATAFLOW


def _with_sign_ins(
    scenario: Scenario | None,
    manifests: list[Document],
    described: Mapping[str, Iterable[Document]],
    recorded: Mapping[str, Iterable[Document]],
) -> tuple[list[Document], dict[str, list[Document]]]:
    """The manifests and what is described, with everything that follows the sign-in of a cluster's listener."""
    listed = {region: list(documents) for region, documents in described.items()}
    if scenario and scenario.sign_ins_follow:
        follow = Following(scenario.sign_ins_follow, [*listed.values(), *recorded.values()])
        manifests, listed = follow.of(manifests), {region: follow.of(own) for region, own in listed.items()}
    return manifests, with_sign_ins(listed, recorded)


def _resources(
    name: str,
    at: Stage,
    described: Iterable[Document],
    recorded: Iterable[Document],
    manifests: Iterable[Document],
    absent: Collection[str],
    unused: Collection[str],
) -> _Region:
    """The resources of one region before and after a stage.

    Args:
        name: the region.
        at: the stage's table.
        described: what the roles describe.
        recorded: what was applied before.
        manifests: the scenario's resources in the stage, of all regions.
        absent: the mirrors that the stage deletes.
        unused: the users that it deletes, unless they are described.
    """
    recorded = tuple(recorded)
    had = () if name in (*at.rebuilt, *at.gone) else recorded
    before = {(document.kind, document.name): document for document in had}
    new = _once(described)
    for manifest in manifests:
        key = manifest.kind, manifest.name
        if manifest.namespace == name and key in before and before[key].content != manifest.content:
            new.setdefault(key, manifest)
    leaving = tuple(
        document
        for key, document in before.items()
        if (document.kind == MIRROR and document.name in absent)
        or (document.kind == USER and document.name in unused and key not in new)
        or (key not in new and is_audit(document) and any(map(is_console, new.values())))
    )
    if new and ("Namespace", name) not in new:
        new = {("Namespace", name): _namespace(name), **new}
    kept = {key: document for key, document in before.items() if document not in leaving}
    return _Region(name, recorded, new, {**kept, **new}, leaving, _stopping(recorded, new))


def _check_described(
    manifests: Iterable[Document], regions: Mapping[str, _Region], at: Stage, unused: Collection[str]
) -> None:
    """Checks that a role describes each of the scenario's resources, where the stage needs it.

    Raises:
        WrongUseError: none does.
    """
    for manifest in manifests:
        region = regions.get(manifest.namespace)
        # A region that no play names does not exist yet, or no longer.
        is_here = region is None or region.changes or region.recorded
        # A dead region keeps its resources, and one that is deleted needs none.
        if not is_here or manifest.namespace in (*at.lost, *at.gone):
            continue
        if region and (manifest.kind, manifest.name) in region.documents:
            continue
        if manifest.kind == USER and manifest.name in unused:
            continue
        if not manifest.namespace:
            raise WrongUseError(
                f"{manifest.where('metadata', 'namespace')}: is missing; name the region that it belongs to"
                + _as_its_target(manifest, regions)
            )
        raise WrongUseError(
            f"{manifest.where()}: no play describes it: {manifest.namespace} needs the role that describes a "
            f"{manifest.kind}"
        )


def _stopping(recorded: Iterable[Document], changes: Mapping[tuple[str, str], Document]) -> tuple[Document, ...]:
    """The programs that will end or move to another cluster."""
    found = []
    for document in recorded:
        new = changes.get((document.kind, document.name))
        if new is None or document.kind != "Deployment":
            continue
        before, after = Program(document.content), Program(new.content)
        ends = before.replicas and not after.replicas
        if before.cluster_address and (before.cluster_address != after.cluster_address or ends):
            found.append(with_replicas(document, 0))
    return tuple(found)


def _standby(scenario: Scenario | None, at: Stage) -> frozenset[str]:
    """The mirrors that every stage before this one holds already: they are standby."""
    before = [scenario.stages[name].mirrors for name in at.after] if scenario else []
    return frozenset(
        name
        for name, state in at.mirrors.items()
        if state in HELD and before and all(states.get(name) in HELD for states in before)
    )


def reversed_copies(copies: Iterable[SecretCopy], region: str) -> tuple[SecretCopy, ...]:
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
    host = str(MirrorMaker(manifest.content).target.get("bootstrapServers", "")).split(":")[0].split(".")
    if manifest.kind == MIRROR and len(host) > 1 and host[1] in regions:
        return f": {host[1]}, as its target"
    return f": one of {', '.join(regions)}"


def _namespace(region: str) -> Document:
    content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": region}}
    return Document("the region itself", 1, content)


def _check_together(topology: Topology, scenario: Scenario | None, regions: Iterable[str]) -> None:
    topology.check()
    check_tokens(topology)
    _check_links(scenario, regions)


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
    password = (document.spec.get("authentication") or {}).get("password") or {}
    return str(((password.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name", ""))
