"""Evidence about a switch: reads ledgers and snapshots, waits for groups, and reads the surviving clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka import TopicPartition
from pyspark.sql import SparkSession

from loosehanger.errors import LabError
from loosehanger.kafka.clients import HURRIED
from loosehanger.kafka.cluster import Cluster, number_of
from loosehanger.kafka.transactions import Held
from loosehanger.lab.claims.claims import Claim, KeptIn
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.mirrors.lineage import event_topic
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab
from loosehanger.lab.recovery import Recovery, recovery
from loosehanger.lab.snapshots import MirrorSnapshot, Snapshots, group_snapshot_id, last_wipe_ms, read_snapshots
from loosehanger.ledger import LedgerEntry, ledger_files, read_entries
from loosehanger.proof.compare.switches import (
    MovedGroup,
    Retained,
    SequenceRange,
    count,
    is_behind,
    kept,
    moved,
    sequence_ranges,
)
from loosehanger.proof.read.batches import Ranges, read_records
from loosehanger.proof.session import fit
from loosehanger.proof.snapshot import settle

_LOOK_S = 0.5


@dataclass(frozen=True)
class Switch:
    """The evidence about a stage's switch."""

    kept: Mapping[str, Retained] = field(default_factory=dict)
    """By the producer that keeps the ledger."""
    groups: Mapping[str, MovedGroup] = field(default_factory=dict)
    """By group."""
    recovery: Recovery | None = None
    """How long it took; None where nothing was switched."""
    death_ms: int | None = None
    """When the first region died, in milliseconds since the epoch; None where none did."""
    inconclusive: Mapping[str, str] = field(default_factory=dict)
    """By claim, why it is inconclusive."""


def look(
    lab: Lab, home: Path, claims: Sequence[Claim], spark: SparkSession, timeout_s: float, report: Callable[[str], None]
) -> Switch:
    """Collects the evidence for claims about ledgers.

    Args:
        lab: what is set up.
        home: its home, with the snapshots.
        claims: of the kinds ``kept`` and ``groups``.
        spark: the session.
        timeout_s: seconds within which a group must pass the records that were there at the mirror's fence.
        report: takes a line of progress.

    Raises:
        LabError: a ledger cannot be read.
        UnreachableError: a surviving cluster does not answer.
    """
    snapshots = read_snapshots(home, lab.unfinished or lab.stage)
    folders = {name: folder for region in lab.regions.values() for name, folder in region.ledgers.items()}
    asked = _asked(lab, home, claims, folders)
    passed = {group: _wait_until_passed(lab, group, fence, timeout_s, report) for group, fence in asked.groups.items()}
    # The ledgers are read before the clusters, so that the clusters have every record of the ledgers.
    ledgers = _Ledgers(
        {name: list(read_entries(ledger_files(folder))) for name, folder in folders.items()}, lab.mirrors
    )
    report("reading what the ledgers speak of")
    found = {
        region: _read(
            spark,
            Cluster.of(lab.region(region), PROVER),
            lab.mirrors,
            ledgers.every,
            [fence for fence in asked.groups.values() if fence.target == region],
            time.monotonic() + timeout_s,
            report,
        )
        for region in lab.clusters
    }
    of_producers = _of_producers(asked.producers, ledgers, found, last_wipe_ms(home))
    return Switch(
        kept=of_producers,
        groups={
            group: moved(
                ledgers.every,
                group,
                fence.cluster,
                fence.held_ms,
                found[fence.target].by_group[group],
                ledgers.behind(fence),
                passed=passed[group],
            )
            for group, fence in asked.groups.items()
        },
        inconclusive=asked.inconclusive | _unreadable(lab, claims, asked.producers, of_producers, found),
        recovery=recovery(snapshots, ledgers.every),
        death_ms=min((loss.died_ms for loss in snapshots.losses), default=None),
    )


@dataclass(frozen=True)
class _ClaimSubjects:
    """What the claims are about."""

    groups: dict[str, MirrorSnapshot] = field(default_factory=dict)
    """The fence of each group."""
    producers: dict[str, list[str]] = field(default_factory=dict)
    """The regions of which one must have each acknowledged record of a producer."""
    inconclusive: dict[str, str] = field(default_factory=dict)
    """By claim, why it is inconclusive."""


def _asked(lab: Lab, home: Path, claims: Sequence[Claim], ledgers: Container[str]) -> _ClaimSubjects:
    asked, stage = _ClaimSubjects(), lab.unfinished or lab.stage
    for claim in claims:
        try:
            if claim.kind == "groups":
                snapshots = read_snapshots(home, claim.subject.get("since", stage))
                asked.groups[claim.subject["group"]] = _fence(claim, snapshots)
            else:
                asked.producers[claim.subject["producer"]] = _counted(lab, claim, ledgers)
        except LabError as error:
            asked.inconclusive[claim.id] = str(error)
    return asked


class _Ledgers:
    """The ledgers' entries, with topics' names where applications write them."""

    def __init__(self, read: Mapping[str, Sequence[LedgerEntry]], mirrors: Sequence[Mirror]) -> None:
        self._read = read
        self._mirrors = mirrors
        self.of = {name: self._as_events(entries) for name, entries in read.items()}
        """By the name of the program that keeps the ledger."""
        self.every = [entry for entries in self.of.values() for entry in entries]

    @property
    def processed(self) -> list[LedgerEntry]:
        """What consumers have processed."""
        return [entry for entry in self.every if entry.kind == "processed"]

    def behind(self, fence: MirrorSnapshot) -> set[LedgerEntry]:
        """The entries about records behind a mirror's fence, which has the topics' names at the target."""
        return set(
            self._as_events(entry for entries in self._read.values() for entry in entries if is_behind(entry, fence))
        )

    def _as_events(self, entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
        return [replace(entry, topic=event_topic(self._mirrors, entry.topic)) for entry in entries]


@dataclass(frozen=True)
class _Read:
    """The records of one cluster that ledgers speak of."""

    cluster_id: str
    sequence_ranges: list[SequenceRange]
    by_group: Mapping[str, list[SequenceRange]]
    """The same, each with its place for the group."""
    beginnings: Mapping[tuple[str, int], int]
    """As returned by the function of that name."""
    held: tuple[Held, ...] = ()
    """What open transactions hold back: it is there, and cannot be read."""


def _read(
    spark: SparkSession,
    cluster: Cluster,
    mirrors: Sequence[Mirror],
    entries: Sequence[LedgerEntry],
    fences: Sequence[MirrorSnapshot],
    deadline: float,
    report: Callable[[str], None],
) -> _Read:
    try:
        wanted = {entry.topic for entry in entries}
        topics = [topic for topic in cluster.topics() if event_topic(mirrors, topic) in wanted]
        ranges, held = settle(cluster, topics, deadline, report)
        fit(spark, sum(end - start for start, end in ranges.values()))
        cluster_id = cluster.id()
        records = read_records(spark, cluster.connection, ranges)
        by_group = {
            group: _of_events(mirrors, sequence_ranges(records, starts, fence.ends))
            for fence in fences
            for group, starts in fence.groups.items()
        }
        plain = next(iter(by_group.values()), None)
        everything = _of_events(mirrors, sequence_ranges(records)) if plain is None else plain
        return _Read(cluster_id, everything, by_group, beginnings(cluster, mirrors, ranges), tuple(held))
    finally:
        cluster.close()


def _of_producers(
    producers: Mapping[str, Sequence[str]], ledgers: _Ledgers, found: Mapping[str, _Read], wiped_ms: int | None
) -> dict[str, Retained]:
    """What the surviving clusters have of each producer's acknowledged records."""
    alive = {region.cluster_id for region in found.values()}

    def given_up(entry: LedgerEntry) -> bool:
        return wiped_ms is not None and entry.until <= wiped_ms and entry.cluster not in alive

    return {
        name: kept(
            [*ledgers.of[name], *ledgers.processed],
            [span for region in regions for span in found[region].sequence_ranges],
            _latest(found[region].beginnings for region in regions),
            given_up,
        )
        for name, regions in producers.items()
    }


def _unreadable(
    lab: Lab,
    claims: Sequence[Claim],
    producers: Mapping[str, Sequence[str]],
    of_producers: Mapping[str, Retained],
    found: Mapping[str, _Read],
) -> dict[str, str]:
    """The claims about producers whose missing records may be behind an open transaction, with the reason."""
    inconclusive = {}
    for claim in claims:
        name = claim.subject.get("producer", "")
        gone = {(key.topic, key.partition) for key in of_producers[name].lost} if name in of_producers else set()
        held = [
            f"{region}: {one}"
            for region in producers.get(name, ())
            for one in found[region].held
            if (event_topic(lab.mirrors, one.topic), one.partition) in gone
        ]
        if held:
            lost = sum(map(count, of_producers[name].lost.values()))
            inconclusive[claim.id] = f"{lost:,} acknowledged records cannot be read anywhere, and may be in {held[0]}"
    return inconclusive


def _counted(lab: Lab, claim: Claim, ledgers: Container[str]) -> list[str]:
    """The regions of which one must have each acknowledged record of a producer."""
    if claim.subject["producer"] not in ledgers:
        raise LabError(f"'{claim.subject['producer']}' keeps no ledger that can be read from here")
    kept_in = claim.kept_in or KeptIn()
    regions = [*kept_in.regions] or [region for region in lab.clusters if region not in kept_in.not_in]
    if away := [region for region in regions if region not in lab.clusters]:
        raise LabError(f"{away[0]} has no surviving cluster, although the claim names it")
    return regions


def _of_events(mirrors: Sequence[Mirror], found: Iterable[SequenceRange]) -> list[SequenceRange]:
    """The same with topics' names where applications write them."""
    return [replace(one, key=one.key._replace(topic=event_topic(mirrors, one.key.topic))) for one in found]


def beginnings(cluster: Cluster, mirrors: Sequence[Mirror], ranges: Ranges) -> dict[tuple[str, int], int]:
    """The times of what logs begin with that do not begin with their first record any more, in epoch milliseconds.

    Args:
        cluster: where they are.
        mirrors: those that there are, which may have given topics another name.
        ranges: where each partition begins and ends.

    Raises:
        UnreachableError: the cluster does not answer.
    """
    shortened = [place for place, (start, _) in ranges.items() if start]
    times = {place: time_ms for place, (_, time_ms) in cluster.first_since(shortened, 0).items()}
    # Of an empty log the last record has become too old as well.
    configs = cluster.configs({place.topic for place in shortened if place not in times})
    now_ms = round(time.time() * 1000)
    for place in shortened:
        retention_ms = number_of(configs.get(place.topic, {}), "retention.ms")
        if place not in times and retention_ms >= 0:
            times[place] = now_ms - retention_ms
    return _latest({(event_topic(mirrors, topic), number): time_ms} for (topic, number), time_ms in times.items())


def _latest(found: Iterable[Mapping[tuple[str, int], int]]) -> dict[tuple[str, int], int]:
    times: dict[tuple[str, int], int] = {}
    for of_some in found:
        for place, time_ms in of_some.items():
            times[place] = max(time_ms, times.get(place, 0))
    return times


def _fence(claim: Claim, snapshots: Snapshots) -> MirrorSnapshot:
    group, mirror = claim.subject["group"], claim.subject["mirror"]
    for fence in snapshots.fences:
        if fence.mirror == group_snapshot_id(group) if not mirror else fence.mirror.split("/")[0] == mirror:
            # A group that had committed nothing begins with the first record.
            return (
                fence
                if group in fence.groups
                else MirrorSnapshot(**{**vars(fence), "groups": {**fence.groups, group: {}}})
            )
    moment = f"mirror {mirror} was held" if mirror else "its offsets were set"
    raise LabError(f"no snapshot has the offsets of {group} from when {moment}; run the stage again")


def _wait_until_passed(
    lab: Lab, group: str, fence: MirrorSnapshot, timeout_s: float, report: Callable[[str], None]
) -> bool:
    """Waits until a group has read what was there when the mirror was held; False when it has not."""
    ends = {TopicPartition(topic, part): end for topic, of in fence.ends.items() for part, end in of.items()}
    cluster = Cluster.of(lab.region(fence.target), PROVER)
    try:
        starts = cluster.start_offsets(ends)
        ranges = {part: (starts[part], end) for part, end in ends.items() if starts[part] < end}
        last, _ = cluster.last_records(ranges, timeout_s)
    finally:
        cluster.close()
    deadline = time.monotonic() + timeout_s
    is_reported = False
    with Cluster.of(lab.region(fence.target), PROVER, HURRIED) as target:
        while True:
            committed = target.committed(group, fence.ends)
            left = sum(max(0, offset + 1 - committed.get(part, starts[part])) for part, offset in last.items())
            if not left:
                return True
            if time.monotonic() >= deadline:
                return False
            if not is_reported:
                report(f"waiting: {group} has {left:,} records to read in {fence.target}")
                is_reported = True
            time.sleep(_LOOK_S)
