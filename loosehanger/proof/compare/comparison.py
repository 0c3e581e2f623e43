"""Finds every difference between both sides of the flows, up to frozen offsets: first by fingerprints of buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

from kafka import TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.cluster import number_of
from loosehanger.proof.compare import differences, fingerprints
from loosehanger.proof.compare.digests import Digests, Place, chunk_digests
from loosehanger.proof.difference import readable_key
from loosehanger.proof.flows import Flow, FlowId, MirrorId
from loosehanger.proof.read import records
from loosehanger.proof.read.batches import Ranges, no_records, read_regions
from loosehanger.proof.read.mirrors import MirrorProgress
from loosehanger.proof.read.records import FLOW, FLOW_PARTITION, PLACE
from loosehanger.proof.report.record_times import iso
from loosehanger.proof.session import fit, small_frame
from loosehanger.proof.snapshot import Cut, OffsetSnapshot, is_compacted

# The bytes on disk of a record besides key, value and headers: an upper estimate.
_RECORD_OVERHEAD = 100
_FLOWS = "flow int, source string, topic string, target string, target_topic string, slot int"
_CUTS = "flow int, partition int, until long"
_PARTITIONS = "flow int, partition int"
_BOUNDS = (
    "flow int, partition int, source_start long, target_deleted long, "
    "first_source long, first_target long, expire_before long, size_retained boolean"
)

Spans = dict[TopicPartition, tuple[int, int]]
Read = Callable[[str, Ranges], DataFrame]
"""Reads these offsets in a region: a frame of ``records.RECORD_SCHEMA``, each task a part of one partition in order."""


@dataclass(frozen=True)
class Beginning:
    """A flow's partition whose target begins with records that the source no longer has."""

    partition: int
    source_start: int
    source_end: int
    source_first: int | None
    """Offset of the first record that the source still has."""
    source_left: int
    """The number of records that it still has."""
    target_start: int
    target_end: int
    first_copy: int | None
    """Offset of the first copy of a record that the source still has."""
    held: int
    """The number of copies at the target before it."""
    never_mirrored: int
    """Records that neither side has, by the producer's sequence numbers."""
    archive: int = 0
    """Offset of the target at which copies of this source begin."""


@dataclass
class Counts:
    """The comparison's counts for one flow."""

    source_records: int = 0
    target_records: int = 0
    after_cut: int = 0
    missing: int = 0
    duplicates: int = 0
    reordered: int = 0
    unexpected: int = 0
    altered: int = 0
    moved: int = 0
    expired: int = 0
    never_mirrored: int = 0
    """Records that the source deleted before the mirror had copied them."""
    source_gaps: int = 0
    untimed: int = 0
    """Records without a timestamp; their copies have the time at which they were copied."""
    buckets: int = 0
    """Buckets of time that were compared by their fingerprints."""
    opened: int = 0
    """Those of them that were compared record by record."""
    truncated: dict[int, int] = field(default_factory=dict)
    """Target partitions with missing records whose log has lost its beginning, and the offsets where they begin."""
    by_partition: list[dict[str, int]] = field(default_factory=list)
    """Partition, source_records, target_records and after_cut of each."""
    examples: list[dict[str, Any]] = field(default_factory=list)
    beginnings: list[Beginning] = field(default_factory=list)
    """Partitions whose source has deleted records of which the target still has copies."""


@dataclass
class _Partition:
    """The results for a flow's partition: from the buckets that agree, and from those that were opened."""

    outline: Row
    pairs: Row | None = None

    @property
    def flow(self) -> int:
        """The number of its flow."""
        return int(self.outline.flow)

    @property
    def place(self) -> tuple[int, int]:
        """Flow and partition."""
        return self.outline.flow, self.outline.partition

    def number(self, name: str) -> int:
        """A number of the pairs; 0 if no bucket was opened."""
        return int(self.pairs[name]) if self.pairs else 0

    def first(self, name: str) -> int | None:
        """The offset where the matched records begin, on one side."""
        found = [row[name] for row in (self.outline, self.pairs) if row and row[name] is not None]
        return min(found, default=None)


class Comparison:
    """One comparison of all flows, which have numbers here: their places among ``flows``.

    A flow whose mirror is behind is judged as far as the mirror has come.

    Args:
        spark: the session.
        flows: the flows to compare.
        cuts: by source region.
        progress: of each mirror.
        frozen: the offsets to read.
        read: reads records.
        windows: the end of each partition at the source, for flows that are judged in part only.
        digests: takes the digests of the partitions, in the same reading; None if they are not wanted.
        read_untimed: reads records without a timestamp, where ``read`` leaves out older ones; None where it reads all.
    """

    def __init__(
        self,
        spark: SparkSession,
        flows: Sequence[Flow],
        cuts: Mapping[str, Cut],
        progress: Mapping[MirrorId, MirrorProgress],
        frozen: OffsetSnapshot,
        read: Read,
        windows: Mapping[FlowId, Mapping[int, int]] | None = None,
        digests: Digests | None = None,
        read_untimed: Read | None = None,
    ) -> None:
        self._digests = digests
        self._read_untimed = read_untimed
        self._spark = spark
        self._frozen = frozen
        self._read_region = read
        self._numbered = list(flows)
        slots = _slots(flows)
        self._slots = max(slots, default=-1) + 1
        rows = [
            (number, flow.source, flow.topic, flow.target, flow.target_topic, slots[number])
            for number, flow in enumerate(flows)
        ]
        self._flows = F.broadcast(small_frame(spark, rows, _FLOWS))
        self._until = list(_judged(flows, cuts, progress, windows or {}))
        self._until_frame = small_frame(spark, self._until, _CUTS)
        self._slot_of = slots
        self._compacted = {number for number, flow in enumerate(flows) if is_compacted(flow, cuts)}
        self._counts = [Counts() for _ in flows]

    def run(self, example_count: int) -> dict[FlowId, Counts]:
        """Compares all flows.

        Args:
            example_count: the number of differences of each kind and flow to show.
        """
        tallied = self._tally_sources().persist()
        copies = fingerprints.tally(self._read(self._frozen.targets), chunk=self._digests.size if self._digests else 0)
        if self._digests:
            copies = copies.persist()
        target = fingerprints.outline(copies)
        compared = fingerprints.compare(self._source_outlines(tallied), self._of_target(target)).persist()
        sequences = (
            fingerprints.sequences(tallied)
            .withColumnRenamed("region", "source")
            .join(self._flows.select("flow", "source", "topic"), ["source", "topic"])
        )
        partitions = self._partitions(compared)
        if self._digests:
            self._digests.take(chunk_digests(tallied), self._frozen.sources, self._judged_places())
            self._digests.take(chunk_digests(copies), self._frozen.targets)
        for row in sequences.groupBy(*FLOW).agg(F.sum("gaps").alias("gaps")).collect():
            self._counts[row.flow].source_gaps = row.gaps
        named, behind = None, self._behind(partitions)
        partitions = [known for known in partitions if known.place not in behind]
        if any(known.outline.opened or known.outline.shifted for known in partitions):
            rest = compared
            if behind:
                places = small_frame(self._spark, list(behind), _PARTITIONS)
                rest = compared.join(F.broadcast(places), [*FLOW_PARTITION], "left_anti")
            named = self._open(rest, partitions)
        for known in [*partitions, *behind.values()]:
            self._count(known)
        if named:
            self._name(named.persist(), sequences, partitions, example_count)
            named.unpersist()
        for frame in (tallied, copies, compared):
            frame.unpersist()
        return {flow.id: count for flow, count in zip(self._numbered, self._counts, strict=True)}

    def _read(self, ranges: Mapping[str, Ranges], read: Read | None = None) -> DataFrame:
        frames = read_regions(read or self._read_region, ranges, "region")
        nothing = no_records(self._spark).withColumn("region", F.lit(""))
        return reduce(DataFrame.unionByName, frames or [nothing])

    def _tally_sources(self) -> DataFrame:
        until: dict[tuple[str, str, int], list[int]] = {}
        for number, partition, end in self._until:
            flow = self._numbered[number]
            ends = until.setdefault((flow.source, flow.topic, partition), [0] * self._slots)
            ends[self._slot_of[number]] = end
        names = [f"until_{slot}" for slot in range(self._slots)]
        frame = small_frame(
            self._spark,
            [(*place, *ends) for place, ends in until.items()],
            ", ".join(["region string", "topic string", "partition int", *(f"{name} long" for name in names)]),
        )
        sources = self._read(self._frozen.sources).join(F.broadcast(frame), [*PLACE])
        return fingerprints.tally(sources, names, runs=True, chunk=self._digests.size if self._digests else 0)

    def _judged_places(self) -> set[Place]:
        """The partitions of the sources that have an end to judge up to: no other is read."""
        flows = self._numbered
        return {(flows[number].source, TopicPartition(flows[number].topic, part)) for number, part, _ in self._until}

    def _source_outlines(self, tallied: DataFrame) -> DataFrame:
        outline = fingerprints.outline(tallied, self._slots).withColumnRenamed("region", "source")
        of_flows = outline.join(self._flows.drop("target", "target_topic"), ["source", "topic"])
        return of_flows.withColumn("in_cut", F.get("below", "slot")).drop("source", "topic", "slot", "below")

    def _of_source(self, ranges: Mapping[str, Ranges], read: Read | None = None) -> DataFrame:
        """The records at the sources, for each flow that they belong to."""
        here = records.contents(self._read(ranges, read)).withColumnRenamed("region", "source")
        of_flows = here.join(self._flows.drop("target", "target_topic"), ["source", "topic"])
        return of_flows.drop("source", "topic", "slot")

    def _of_target(self, frame: DataFrame) -> DataFrame:
        there = frame.withColumnsRenamed({"region": "target", "topic": "target_topic"})
        of_flows = there.join(self._flows.drop("source", "topic"), ["target", "target_topic"])
        return of_flows.drop("target", "target_topic", "slot")

    def _partitions(self, compared: DataFrame) -> list[_Partition]:
        agrees = ~F.col("differs")
        rows = compared.groupBy(*FLOW_PARTITION).agg(
            F.count("*").alias("buckets"),
            F.count_if("differs").alias("opened"),
            F.count_if(agrees & (F.col("shift") != 0)).alias("shifted"),
            *(
                F.coalesce(F.sum(F.when(condition, F.col(column))), F.lit(0)).alias(name)
                for name, condition, column in (
                    ("in_cut", agrees, "here.in_cut"),
                    ("at_source", agrees, "here.records"),
                    ("opened_in_cut", F.col("differs"), "here.in_cut"),
                    ("opened_at_target", F.col("differs"), "there.records"),
                )
            ),
            F.coalesce(F.sum("here.records"), F.lit(0)).alias("source_left"),
            F.min("here.first_offset").alias("source_first"),
            F.min(F.when(agrees, F.col("here.first_offset"))).alias("first_source"),
            F.min(F.when(agrees, F.col("there.first_offset"))).alias("first_target"),
            *(
                function(F.when(F.col("differs"), F.col(f"{side}.{end}_offset"))).alias(f"{side}_{end}")
                for side in ("here", "there")
                for end, function in (("first", F.min), ("last", F.max))
            ),
        )
        return [_Partition(row) for row in rows.collect()]

    def _behind(self, partitions: Iterable[_Partition]) -> dict[tuple[int, int], _Partition]:
        """The partitions that differ only in records written after the cut, which are still in flight.

        There always are such records while a producer writes. Where few records were fetched already, no bucket has to
        be opened for them: the target has a prefix of the source's records, which includes all records of the cut.
        """
        until = {(flow, partition): end for flow, partition, end in self._until}
        found = {}
        for known in partitions:
            row, flow, (here, there) = known.outline, self._numbered[known.flow], self._sides(known)
            source = self._frozen.at_hand(flow.source, here, _range(self._frozen.sources[flow.source], here))
            target = self._frozen.at_hand(flow.target, there, _range(self._frozen.targets[flow.target], there))
            if not row.opened or source is None or target is None:
                continue
            rest = source[len(target) :]
            copied = all(record.content == copy.content for record, copy in zip(source, target, strict=False))
            if copied and len(target) <= len(source) and not (rest and rest[0].offset < until.get(known.place, 0)):
                agreed = {"opened": 0, "in_cut": row.in_cut + row.opened_in_cut, "at_source": len(target)}
                nothing = {"opened_in_cut": 0, "opened_at_target": 0}
                found[known.place] = _Partition(Row(**row.asDict() | agreed | nothing))
        return found

    def _open(self, compared: DataFrame, partitions: list[_Partition]) -> DataFrame | None:
        """Compares differing buckets record by record; adds results to ``partitions``, and names the differences."""
        latest = self._open_compacted(partitions)
        ordinary = compared
        if self._compacted:
            keys = small_frame(self._spark, [(number,) for number in sorted(self._compacted)], "flow int")
            ordinary = compared.join(F.broadcast(keys), [*FLOW], "left_anti")
        marked = self._match(ordinary, partitions).persist()
        unclear = fingerprints.displaced(ordinary, differences.lone_offsets(marked)).unionByName(
            marked.where("reordered").select(*FLOW_PARTITION)
        )
        whole = {tuple(row) for row in unclear.distinct().collect()}
        if any(known.place in whole and known.outline.at_source for known in partitions):
            marked.unpersist()
            entire = small_frame(self._spark, sorted(whole), _PARTITIONS).withColumn("entire", F.lit(True))
            ordinary = (
                ordinary.join(F.broadcast(entire), [*FLOW_PARTITION], "left")
                .withColumn("differs", F.col("differs") | F.coalesce("entire", F.lit(False)))
                .drop("entire")
            )
            others = [known for known in partitions if known.flow in self._compacted]
            partitions[:] = [*self._partitions(ordinary), *others]
            marked = self._match(ordinary, partitions).persist()
        rows = {(row.flow, row.partition): row for row in differences.summarise(marked).collect()}
        for known in partitions:
            known.pairs = rows.get(known.place)
        faults = ("source_only", "target_only", "reordered")
        named = [latest] if latest else []
        if any(known.number(name) for known in partitions for name in faults):
            named.append(differences.name_differences(marked))
        bounds = small_frame(self._spark, [self._bounds(known) for known in partitions], _BOUNDS)
        return differences.name_expired(reduce(DataFrame.unionByName, named), bounds) if named else None

    def _match(self, compared: DataFrame, partitions: Iterable[_Partition]) -> DataFrame:
        """The matched records of the buckets that differ. Records between them in a partition are read as well."""
        source: dict[str, Spans] = {}
        target: dict[str, Spans] = {}
        for known in partitions:
            row = known.outline
            if row.opened and known.flow not in self._compacted:
                flow, (here, there) = self._numbered[known.flow], self._sides(known)
                _widen(source.setdefault(flow.source, {}), here, row.here_first, row.here_last)
                _widen(target.setdefault(flow.target, {}), there, row.there_first, row.there_last)
        opened = compared.where("differs").select(*fingerprints.BUCKET)
        here = self._of_source(source).join(opened, [*fingerprints.BUCKET], "left_semi")
        there = self._of_target(records.contents(self._read(target))).join(opened, [*fingerprints.BUCKET], "left_semi")
        pairs = differences.match_copies(here, there, self._until_frame)
        # Where older records are left out, the whole log is read only for copies that no other record explains.
        if self._read_untimed and (sources := self._sources_of(pairs.where("source_record IS NULL"))):
            here = here.unionByName(self._of_source(sources, self._read_untimed))
            return differences.mark_untimed(differences.match_copies(here, there, self._until_frame))
        return differences.mark_reordered(differences.pair_untimed(pairs))

    def _sources_of(self, places: DataFrame) -> dict[str, Spans]:
        """The whole logs at the sources of these flows' partitions."""
        found: dict[str, Spans] = {}
        for row in places.select(*FLOW_PARTITION).distinct().collect():
            flow = self._numbered[row.flow]
            place, frozen = TopicPartition(flow.topic, row.partition), self._frozen.sources[flow.source]
            found.setdefault(flow.source, {})[place] = _range(frozen, place)
        return found

    def _open_compacted(self, partitions: Iterable[_Partition]) -> DataFrame | None:
        """Compares the latest values of compacted topics, whole partitions at a time."""
        source: dict[str, Spans] = {}
        target: dict[str, Spans] = {}
        differing = [
            known
            for known in partitions
            # If equal records are in another order, another one may be the latest of its key.
            if (known.outline.opened or known.outline.shifted) and known.flow in self._compacted
        ]
        if not differing:
            return None
        for known in differing:
            flow, (here, there) = self._numbered[known.flow], self._sides(known)
            source.setdefault(flow.source, {})[here] = _range(self._frozen.sources[flow.source], here)
            target.setdefault(flow.target, {})[there] = _range(self._frozen.targets[flow.target], there)
        # Some flows of a source may differ and others not; the target side of those that do not is not read.
        opened = F.broadcast(small_frame(self._spark, [known.place for known in differing], _PARTITIONS))
        here, there = self._of_source(source), self._of_target(records.contents(self._read(target)))
        if self._read_untimed:
            here = here.unionByName(self._of_source(source, self._read_untimed))
        latest = differences.compare_latest(
            here.join(opened, [*FLOW_PARTITION], "left_semi"),
            there.join(opened, [*FLOW_PARTITION], "left_semi"),
            self._until_frame,
        )
        return differences.without_untimed(latest) if self._read_untimed else latest

    def _sides(self, known: _Partition) -> tuple[TopicPartition, TopicPartition]:
        """The partition at the source and at the target."""
        flow, number = self._numbered[known.flow], known.outline.partition
        return TopicPartition(flow.topic, number), TopicPartition(flow.target_topic, number)

    def _count(self, known: _Partition) -> None:
        row, count = known.outline, self._counts[known.flow]
        here, there = row.in_cut, row.in_cut
        if known.flow in self._compacted:
            here, there = here + row.opened_in_cut, there + row.opened_at_target
        here += known.number("source_records")
        there += known.number("matched") + known.number("target_only")
        count.source_records += here
        count.target_records += there
        after_cut = row.at_source - row.in_cut + known.number("after_cut")
        count.after_cut += after_cut
        count.untimed += known.number("untimed")
        count.buckets += row.buckets
        count.opened += row.opened
        numbers = {"source_records": here, "target_records": there, "after_cut": after_cut}
        count.by_partition.append({"partition": row.partition, **numbers})
        target, there = self._numbered[known.flow].target, self._sides(known)[1]
        if known.number("source_only") and self._frozen.deleted(target, there):
            count.truncated[row.partition], _ = _range(self._frozen.targets[target], there)

    def _name(
        self, named: DataFrame, sequences: DataFrame, partitions: Iterable[_Partition], example_count: int
    ) -> None:
        held: dict[tuple[int, int], int] = {}
        counted = F.count("*").alias("records"), F.count_if(F.col("source_record").isNull()).alias("at_target")
        for row in named.groupBy(*FLOW_PARTITION, "kind").agg(*counted).collect():
            count = self._counts[row.flow]
            setattr(count, row.kind, getattr(count, row.kind) + row.records)
            if row.kind == "expired":
                held[row.flow, row.partition] = row.at_target
        if held:
            found = differences.never_mirrored(named, sequences).collect()
            lost = {(row.flow, row.partition): row.never_mirrored for row in found}
            for known in partitions:
                count = self._counts[known.flow]
                count.never_mirrored += lost.get(known.place, 0)
                if held.get(known.place) and known.flow not in self._compacted:
                    count.beginnings.append(self._beginning(known, held[known.place], lost.get(known.place, 0)))
        if example_count:
            for row in differences.examples(named, example_count).collect():
                self._counts[row.flow].examples.append(example(row))

    def _beginning(self, known: _Partition, held: int, never_mirrored: int) -> Beginning:
        row, flow, (here, there) = known.outline, self._numbered[known.flow], self._sides(known)
        return Beginning(
            row.partition,
            *_range(self._frozen.sources[flow.source], here),
            row.source_first,
            row.source_left,
            *_range(self._frozen.targets[flow.target], there),
            known.first("first_target"),
            held,
            never_mirrored,
            self._frozen.archive(flow.target, there),
        )

    def _bounds(self, known: _Partition) -> tuple[Any, ...]:
        """The records of a flow's partition that retention may have removed, for ``differences.name_expired``."""
        flow, (here, there) = self._numbered[known.flow], self._sides(known)
        source_start, _ = _range(self._frozen.sources[flow.source], here)
        deleted = self._frozen.deleted(flow.target, there)
        # A topic whose configuration may not be read can have any retention; a finding reports that.
        is_known = there.topic in self._frozen.target_configs[flow.target]
        configs = self._frozen.target_configs[flow.target].get(there.topic, {})
        retention_ms, retention_bytes = (number_of(configs, name) for name in ("retention.ms", "retention.bytes"))
        # Retention has continued to delete since the cut.
        frozen_ms = int(self._frozen.at.timestamp() * 1000)
        expire_before = frozen_ms - retention_ms if retention_ms >= 0 else None
        long_enough = (
            known.number("source_only") > 0
            and deleted > 0
            and retention_bytes >= 0
            and _size(self._read_region(flow.target, {there: self._frozen.targets[flow.target][there]}))
            >= retention_bytes
        )
        firsts = known.first("first_source"), known.first("first_target")
        size_retained = long_enough or not is_known
        return (*known.place, source_start, deleted, *firsts, expire_before, size_retained)


def compare(
    spark: SparkSession,
    flows: Sequence[Flow],
    cuts: Mapping[str, Cut],
    progress: Mapping[MirrorId, MirrorProgress],
    frozen: OffsetSnapshot,
    example_count: int,
    windows: Mapping[FlowId, Mapping[int, int]] | None = None,
    digests: Digests | None = None,
) -> dict[FlowId, Counts]:
    """Reads both sides and compares them: first the fingerprints, then the buckets that differ record by record.

    Returns:
        The counts of each flow.
    """
    fit(spark, frozen.records)
    if digests:
        digests.fit(frozen.records)
    read_untimed = partial(frozen.read_untimed, spark) if frozen.since else None
    read = partial(frozen.read, spark)
    comparison = Comparison(spark, flows, cuts, progress, frozen, read, windows, digests, read_untimed)
    return comparison.run(example_count)


def _size(log: DataFrame) -> int:
    """The approximate bytes of a partition's log: an upper estimate."""
    payload = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    headers = F.coalesce(F.octet_length(F.to_json("headers")), F.lit(0))
    (row,) = log.agg(F.sum(payload + headers + _RECORD_OVERHEAD).alias("size")).collect()
    return int(row["size"] or 0)


def _slots(flows: Iterable[Flow]) -> list[int]:
    """The position of each flow among those of the same source topic: each may be judged up to another offset."""
    taken: dict[tuple[str, str], int] = {}
    slots = []
    for flow in flows:
        slots.append(taken.get((flow.source, flow.topic), 0))
        taken[flow.source, flow.topic] = slots[-1] + 1
    return slots


def _judged(
    flows: Iterable[Flow],
    cuts: Mapping[str, Cut],
    progress: Mapping[MirrorId, MirrorProgress],
    windows: Mapping[FlowId, Mapping[int, int]],
) -> Iterator[tuple[int, int, int]]:
    """The number of each flow, each of its partitions, and the source offset below which it is judged."""
    places = {source: _by_topic(cut.ranges) for source, cut in cuts.items()}
    behind: dict[tuple[str, MirrorId], Mapping[TopicPartition, int]] = {}
    for number, flow in enumerate(flows):
        cut, mirror, key = cuts[flow.source], progress[flow.mirror.id], (flow.source, flow.mirror.id)
        if key not in behind:
            behind[key] = mirror.behind(cut.last_records)
        window = windows.get(flow.id)
        for partition in places[flow.source].get(flow.topic, ()):
            _, end = cut.ranges[partition]
            until = mirror.positions.get(partition, -1) + 1 if partition in behind[key] else end
            within = until if window is None else min(until, window.get(partition.partition, 0))
            yield number, partition.partition, within


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place)
    return found


def example(row: Row) -> dict[str, Any]:
    """A difference as in the JSON document."""
    source, target = row.source_record, row.target_record
    record = source or target
    return {
        "kind": row.kind,
        "partition": row.partition,
        "source_offset": source.offset if source else None,
        "target_offset": target.offset if target else None,
        **({"target_partition": target.partition} if row.kind == "moved" else {}),
        "key": readable_key(record.key),
        "timestamp": iso(record.timestamp),
    }


def _range(ranges: Ranges, partition: TopicPartition) -> tuple[int, int]:
    return ranges.get(partition, (0, 0))


def _widen(spans: Spans, partition: TopicPartition, first: int | None, last: int | None) -> None:
    if first is not None and last is not None:
        start, end = spans.get(partition, (first, last + 1))
        spans[partition] = (min(start, first), max(end, last + 1))
