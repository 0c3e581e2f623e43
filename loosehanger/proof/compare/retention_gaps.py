"""Gaps in the offsets show records that the source deleted before a mirror had copied them.

Neither side has these records. But Kafka numbers a partition's records from 0, so a source that begins at offset 1,900
has had at most 1,900 records before. If the target has fewer copies from before the first record that the source still
has, including copies that the target has deleted itself, the rest is a *gap*: never mirrored, unless something else
explains it.

* A transaction takes an offset for its marker. It has written at least one record, so that markers explain at most as
  many offsets as there are copies. What an abort leaves behind is not bounded by anything.
* The promise of a mirror begins with the first record that it copied, not with records that the source had deleted by
  then.
* Records that the target would have deleted by now as well do not matter: a target without copies from before the first
  record that the source still has is not examined.

The skipped offsets can be read in two places. Connect has the mirror's position, while that is before the deleted
records. MM2's topic of offset syncs maps target offsets to source offsets, and gets a new entry whenever the mirror
skips an offset. The topic is compacted, so older entries disappear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.mirrors.replication import offset_syncs_topic
from loosehanger.proof.compare.comparison import Beginning, Counts
from loosehanger.proof.flows import Flow, FlowId, MirrorId
from loosehanger.proof.read.batches import read_records
from loosehanger.proof.read.external import is_external
from loosehanger.proof.read.mirrors import AT_REST, MirrorProgress
from loosehanger.proof.session import small_frame
from loosehanger.proof.snapshot import Cut, OffsetSnapshot, freeze

T = TypeVar("T")
_PLACE = ("topic", "partition")
_BOUNDS = "topic string, partition int, source_start long, first_copy long"
# The most skips of a partition to count exactly at a target with transactions; the others count by their offsets.
_MOST_COUNTED = 20


@dataclass(frozen=True)
class Sync:
    """An offset at the source, and that of its copy at the target."""

    upstream: int
    downstream: int


@dataclass(frozen=True)
class Trail:
    """The offset syncs of a partition, since its target topic was created."""

    first: Sync
    last: Sync | None
    """The last one before the records that the source still has."""
    skips: Sequence[tuple[Sync, Sync]] = ()
    """Neighbours up to that one between which the source's offsets advanced by more than the target's."""
    back: int | None = None
    """The lowest source offset at which the mirror started over."""
    highest: int = -1
    """The highest of the source's offsets."""


@dataclass
class RetentionGap:
    """The records that a partition lacks."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    """Source offsets that were deleted before they were mirrored: first and end."""
    at_most: int = 0
    """The most further records that this may be, if the number is unknown."""

    @property
    def lost(self) -> int:
        """The number of records that were deleted before they were mirrored."""
        return sum(end - start for start, end in self.ranges)


def explain(
    beginning: Beginning,
    held: int,
    transactional: bool,
    trail: Trail | None,
    copies: Mapping[tuple[int, int], int],
) -> RetentionGap:
    """Explains the offsets before the first record that the source still has.

    Args:
        beginning: the partition.
        held: the most copies of them that the target has, or has deleted itself.
        transactional: whether the source shows any sign of transactions.
        trail: of the offset syncs; None without any.
        copies: the copies between two offsets of the target, where their number is not the difference of the offsets.
    """
    at_most = beginning.source_start - held
    if at_most <= 0:
        return RetentionGap()
    if transactional:
        # Markers take offsets, so that no range is known to be one of records.
        return RetentionGap(at_most=at_most if at_most > held else 0)
    if trail is None:
        return RetentionGap(at_most=max(at_most - beginning.never_mirrored, 0))
    ranges = []
    for before, after in steps(beginning, trail):
        between = before.downstream, after.downstream
        start = before.upstream + copies.get(between, between[1] - between[0])
        end = min(after.upstream, beginning.source_start)
        if start < end:
            ranges.append((start, end))
    if any(end - start == 1 for start, end in ranges):
        # A transaction marker leaves such a gap: there may have been transactions, including aborted ones.
        return RetentionGap(at_most=at_most)
    found = RetentionGap(ranges)
    if trail.first.downstream > beginning.target_start:
        # Older syncs were compacted away.
        unknown = trail.first.upstream - (trail.first.downstream - beginning.archive)
        found.at_most = max(min(unknown, at_most - found.lost), 0)
    return found


def steps(beginning: Beginning, trail: Trail) -> list[tuple[Sync, Sync]]:
    """The neighbours of a trail between which offsets may have been skipped; the last pair ends at the log start."""
    if trail.last is None:
        return []
    there = beginning.target_end if beginning.first_copy is None else beginning.first_copy
    last = (trail.last, Sync(beginning.source_start, there))
    return [*trail.skips, last]


def position_gap(position: int | None, start: int) -> tuple[int, int] | None:
    """The source offsets between the last copied one and the beginning of the log, if there are any."""
    return (position + 1, start) if position is not None and position + 1 < start else None


def offset_syncs(records: DataFrame) -> DataFrame:
    """Decodes MM2's offset syncs as ``loosehanger.internal_topics`` does, in Spark's own expressions.

    Args:
        records: a frame of ``records.RECORD_SCHEMA`` from a topic of offset syncs.

    Returns:
        topic (at the source), partition, upstream, downstream, and number, which orders them.
    """

    def integer(binary: str) -> str:
        return f"CAST(conv(hex({binary}), 16, 10) AS LONG)"

    return records.where("octet_length(value) = 16 AND octet_length(key) > 6").select(
        F.expr("CAST(substring(key, 3, octet_length(key) - 6) AS STRING)").alias("topic"),
        F.expr(f"CAST({integer('substring(key, octet_length(key) - 3, 4)')} AS INT)").alias("partition"),
        F.expr(integer("substring(value, 1, 8)")).alias("upstream"),
        F.expr(integer("substring(value, 9, 8)")).alias("downstream"),
        F.col("offset").alias("number"),
    )


def trails(syncs: DataFrame, bounds: DataFrame) -> dict[TopicPartition, Trail]:
    """The trails of some partitions.

    Args:
        syncs: as from ``offset_syncs``.
        bounds: topic, partition, source_start, and first_copy (the end of the target's log without one).
    """
    in_order = Window.partitionBy(*_PLACE).orderBy("number")
    sync = F.struct("upstream", "downstream")
    of_those = syncs.join(F.broadcast(bounds), [*_PLACE])
    # A recreated target has lower offsets than before; the syncs of the old one no longer apply.
    anew = F.coalesce(F.col("downstream") < F.lag("downstream").over(in_order), F.lit(False))
    lives = of_those.withColumn("life", F.count_if(anew).over(in_order.rowsBetween(Window.unboundedPreceding, 0)))
    latest = lives.withColumn("latest", F.max("life").over(Window.partitionBy(*_PLACE))).where("life = latest")
    linked = latest.withColumns({"this": sync, "before": F.lag(sync).over(in_order)})
    # A step that ends in a record that the source still has is not a skip: it begins with the last sync in time.
    in_time = F.expr("upstream < source_start AND downstream < first_copy")
    skipped = in_time & F.expr(
        "upstream > before.upstream AND downstream >= before.downstream"
        " AND upstream - before.upstream > downstream - before.downstream"
    )
    once_more = F.expr("upstream <= before.upstream AND downstream > before.downstream")
    rows = linked.groupBy(*_PLACE).agg(
        F.min_by("this", "number").alias("first"),
        F.max_by("this", F.when(in_time, F.col("number"))).alias("last"),
        F.sort_array(F.collect_list(F.when(skipped, F.struct("number", "before", "this")))).alias("skips"),
        F.min(F.when(once_more, F.col("upstream"))).alias("back"),
        F.count_if(in_time).alias("in_time"),
        F.max("upstream").alias("highest"),
    )
    return {
        TopicPartition(row.topic, row.partition): Trail(
            Sync(*row.first),
            Sync(*row.last) if row.in_time else None,
            tuple((Sync(*skip.before), Sync(*skip.this)) for skip in row.skips),
            row.back,
            row.highest,
        )
        for row in rows.collect()
    }


def retention_gaps(
    spark: SparkSession,
    flows: Iterable[Flow],
    counts: Mapping[FlowId, Counts],
    cuts: Mapping[str, Cut],
    progress: Mapping[MirrorId, MirrorProgress],
    frozen: OffsetSnapshot,
) -> dict[FlowId, History]:
    """Finds records that were deleted before they were mirrored, and topics that were recreated.

    Args:
        spark: the session.
        flows: the compared flows, without compacted ones: compaction also removes offsets.
        counts: of the comparison.
        cuts: by source region.
        progress: of each mirror.
        frozen: the offsets that were compared.

    Returns:
        The flows with results.

    Raises:
        UnreachableError: a cluster does not answer.
    """
    found: dict[FlowId, History] = {}
    by_mirror: dict[MirrorId, list[Flow]] = {}
    for flow in flows:
        by_mirror.setdefault(flow.mirror.id, []).append(flow)
    for key, its_flows in by_mirror.items():
        look = _Look(spark, its_flows, counts, cuts[its_flows[0].source], progress[key], frozen)
        found |= look.histories()
    return found


@dataclass
class History:
    """The results from a flow's offsets."""

    retention_gaps: dict[int, RetentionGap] = field(default_factory=dict)
    """By partition."""
    made_again: dict[int, str] = field(default_factory=dict)
    """Partitions whose topic is not the one that the mirror has copied from, each with the reason."""

    def never_mirrored(self, beginnings: Iterable[Beginning]) -> int:
        """The number of records deleted before they were mirrored, beyond those that sequence numbers show."""
        numbered = {beginning.partition: beginning.never_mirrored for beginning in beginnings}
        return sum(max(part.lost - numbered.get(number, 0), 0) for number, part in self.retention_gaps.items())

    def __bool__(self) -> bool:
        return bool(self.made_again) or any(part.ranges or part.at_most for part in self.retention_gaps.values())


class _Look:
    """The examination of one mirror's flows."""

    def __init__(
        self,
        spark: SparkSession,
        flows: Sequence[Flow],
        counts: Mapping[FlowId, Counts],
        cut: Cut,
        progress: MirrorProgress,
        frozen: OffsetSnapshot,
    ) -> None:
        self._spark = spark
        self._mirror = flows[0].mirror
        self._flows = {flow.topic: flow for flow in flows}
        self._counts = counts
        self._cut = cut
        self._progress = progress
        self._frozen = frozen
        self._source = frozen.clusters[self._mirror.source]
        self._begun = self._find_begun()
        self._gaps = self._find_gaps()

    def histories(self) -> dict[FlowId, History]:
        """The results for each flow that has any."""
        found = {flow.id: History() for flow in self._flows.values()}
        transactional = self._transactional()
        short = self._begun.keys() | self._gaps.keys()
        strange = {place for place in self._places() if self._counts[self._flow(place)].unexpected}
        trails = self._trails((short - transactional) | strange)
        for place in short:
            gap = self._explain(place, place in transactional, trails.get(place))
            found[self._flow(place)].retention_gaps[place.partition] = gap
        for place, reason in self._made_again(trails).items():
            found[self._flow(place)].made_again[place.partition] = reason
        return {flow: history for flow, history in found.items() if history}

    def _flow(self, place: TopicPartition) -> FlowId:
        return self._flows[place.topic].id

    def _places(self) -> Iterable[TopicPartition]:
        return (place for place in self._cut.ranges if place.topic in self._flows)

    def _there(self, place: TopicPartition) -> TopicPartition:
        return TopicPartition(self._flows[place.topic].target_topic, place.partition)

    def _find_begun(self) -> dict[TopicPartition, tuple[Beginning, int]]:
        """The partitions of which the source has deleted more than the target has, and the most copies there."""
        begun = {}
        for topic, flow in self._flows.items():
            for beginning in self._counts[flow.id].beginnings:
                place = TopicPartition(topic, beginning.partition)
                start = beginning.source_start
                if beginning.first_copy is None:
                    # Records deleted after the cut may have been copied after the target's offsets were read.
                    start = min(start, self._cut.ranges[place][0])
                held = beginning.target_start + beginning.held
                if self._frozen.since:
                    held = beginning.target_end if beginning.first_copy is None else beginning.first_copy
                held -= beginning.archive
                if start > held:
                    begun[place] = replace(beginning, source_start=start), held
        return self._without_older(begun)

    def _find_gaps(self) -> dict[TopicPartition, tuple[int, int]]:
        """The gaps between the mirror's position and the source's log start at the cut."""
        if not self._mirror.connect:
            return {}
        gaps = {
            place: position_gap(self._progress.positions.get(place), self._cut.ranges[place][0])
            for place in self._places()
        }
        return self._without_older({place: gap for place, gap in gaps.items() if gap})

    def _without_older(self, places: dict[TopicPartition, T]) -> dict[TopicPartition, T]:
        """Without the partitions where the source still has every record that counts."""
        if not self._frozen.since or not places:
            return places
        firsts = self._source.offsets_since(places, self._frozen.since)
        starts = self._source.start_offsets(places)
        return {place: found for place, found in places.items() if firsts[place] <= starts[place]}

    def _transactional(self) -> set[TopicPartition]:
        """The partitions whose source shows a sign of transactions: offsets without records, or such a producer."""
        signs = set()
        for place, (beginning, _) in self._begun.items():
            first = beginning.source_first if self._frozen.since else beginning.source_start
            if first is not None and beginning.source_end - first > beginning.source_left:
                signs.add(place)
        return signs | self._source.transactional((self._begun.keys() | self._gaps.keys()) - signs)

    def _explain(self, place: TopicPartition, transactional: bool, trail: Trail | None) -> RetentionGap:
        gap = self._gaps.get(place)
        at_rest = self._progress.state in AT_REST
        found = RetentionGap()
        if place in self._begun:
            beginning, held = self._begun[place]
            # Without a copy of a record that the source still has, records may be in flight.
            settled = beginning.first_copy is not None or at_rest
            usable = trail if settled else None
            copies = self._copies(place, beginning, usable)
            found = explain(beginning, held, transactional, usable, copies)
        if gap and not found.ranges:
            length = gap[1] - gap[0]
            if transactional or self._frozen.since or not at_rest:
                region, there = self._mirror.target, self._there(place)
                markers = self._frozen.targets[region].get(there, (0, 0))[1] - self._frozen.archive(region, there)
                found.at_most = max(found.at_most, length if not transactional or length > markers else 0)
            else:
                found = RetentionGap([gap], max(found.at_most - length, 0))
        return found

    def _copies(self, place: TopicPartition, beginning: Beginning, trail: Trail | None) -> dict[tuple[int, int], int]:
        """The records at the target between the syncs, where transactions may have used offsets without records."""
        there = self._there(place)
        end = beginning.target_end if beginning.first_copy is None else beginning.first_copy
        if trail is None or (not self._frozen.since and end - beginning.target_start == beginning.held):
            return {}
        between = [(before.downstream, after.downstream) for before, after in steps(beginning, trail)]
        counted = [span for span in between if span[0] >= beginning.target_start and span[0] < span[1]]
        connection = self._frozen.clusters[self._mirror.target].connection
        return {
            span: read_records(self._spark, connection, {there: span}).count()
            for span in sorted(counted, key=lambda span: span[1] - span[0], reverse=True)[:_MOST_COUNTED]
        }

    def _trails(self, places: set[TopicPartition]) -> dict[TopicPartition, Trail]:
        cluster, topic = self._syncs_topic() if places else (None, "")
        if cluster is None:
            return {}
        bounds = []
        for place in sorted(places):
            there = self._frozen.targets[self._mirror.target].get(self._there(place), (0, 0))[1]
            begun = self._begun.get(place)
            start = begun[0].source_start if begun else self._cut.ranges[place][0]
            first_copy = begun[0].first_copy if begun else None
            bounds.append((place.topic, place.partition, start, there if first_copy is None else first_copy))
        syncs = offset_syncs(read_records(self._spark, cluster.connection, freeze(cluster, [topic])))
        return trails(syncs, small_frame(self._spark, bounds, _BOUNDS))

    def _syncs_topic(self) -> tuple[Cluster | None, str]:
        """The mirror's topic of offset syncs; none if it may not be read, or could be another mirror's."""
        if is_external(self._mirror.name):
            return None, ""
        separator = self._mirror.separator
        found = [
            (cluster, topic)
            for region, alias in (
                (self._mirror.target, self._mirror.source_alias),
                (self._mirror.source, self._mirror.target_alias),
            )
            for cluster, topic in ((self._frozen.clusters[region], offset_syncs_topic(alias, separator)),)
            if topic in cluster.topics()
        ]
        # With mirrors in both directions, one of two is the other's.
        return found[0] if len(found) == 1 else (None, "")

    def _made_again(self, trails: Mapping[TopicPartition, Trail]) -> dict[TopicPartition, str]:
        copied = {
            place: self._progress.positions.get(place, -1) if self._mirror.connect else -1 for place in self._places()
        }
        copied |= {place: max(copied[place], trail.highest) for place, trail in trails.items()}
        ends = self._frozen.sources[self._mirror.source]
        beyond = [place for place, offset in copied.items() if offset >= ends.get(place, (0, 0))[1]]
        # A mirror that reads uncommitted records may be beyond an open transaction.
        written = self._source.written_offsets(beyond)
        reasons = {
            place: f"the mirror has copied source offset {copied[place]:,}, and the source ends at {written[place]:,}"
            for place in beyond
            if copied[place] >= written[place]
        }
        for place, trail in trails.items():
            if trail.back is not None and place not in reasons and self._counts[self._flow(place)].unexpected:
                reasons[place] = f"the mirror began once more at source offset {trail.back:,}"
        return reasons
