"""Finds every difference between both sides of the flows, up to frozen offsets: outlines first, then what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from typing import Any

from kafka import TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from lab.access import Mirror
from pipeline import comparison, outlines, records
from pipeline.clusters import Cluster, Config, partitions_of
from pipeline.mirrors import Progress
from pipeline.reading import Ranges, no_records, read_records
from pipeline.records import FLOW, FLOW_PARTITION, PLACE
from pipeline.session import fit, small_frame

# What a record adds on disk to key, value and headers; rather too much than too little.
_RECORD_OVERHEAD = 100
_LONGEST_KEY = 64
# A retention beyond what a date can be taken back by.
_FOR_EVER_MS = 50 * 365 * 86_400_000
_FLOWS = "source string, target string, topic string, target_topic string, number int"
_CUTS = "source string, target string, topic string, partition int, until long"
_PARTITIONS = "source string, target string, topic string, partition int"
_BOUNDS = (
    "source string, target string, topic string, partition int, source_start long, target_start long, "
    "first_source long, first_target long, expire_before timestamp, size_retained boolean"
)

Spans = dict[TopicPartition, tuple[int, int]]
Read = Callable[[str, Ranges], DataFrame]
"""Reads these offsets in a region: a frame of ``records.RECORD_SCHEMA``, each task a part of one partition in order."""
FlowKey = tuple[str, str, str]
MirrorKey = tuple[str, str]


@dataclass(frozen=True)
class Flow:
    """One topic on its way from one region to another."""

    mirror: Mirror
    topic: str
    target_topic: str

    @property
    def mirror_key(self) -> MirrorKey:
        """What tells mirrors apart."""
        return self.mirror.name, self.mirror.connector

    @property
    def key(self) -> FlowKey:
        """Source, target, and the topic's name at the source."""
        return self.mirror.source, self.mirror.target, self.topic


@dataclass(frozen=True)
class Cut:
    """The source offsets that are judged: everything before them, whatever comes after."""

    at: datetime
    ranges: Ranges
    last_records: Mapping[TopicPartition, int]
    configs: Mapping[str, Mapping[str, Config]]


@dataclass
class Counts:
    """What the comparison found in one flow."""

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
    buckets: int = 0
    """Buckets of time that were compared by their outlines."""
    opened: int = 0
    """Those of them that were compared record by record."""
    truncated: list[str] = field(default_factory=list)
    """Target partitions with missing records whose log has lost its beginning."""
    by_partition: list[dict[str, int]] = field(default_factory=list)
    """Partition, source_records and target_records of each."""
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    """What is read: each target up to now, and each source up to an offset that nothing read there is newer than."""

    clusters: Mapping[str, Cluster]
    targets: Mapping[str, Ranges]
    sources: Mapping[str, Ranges]
    target_configs: Mapping[str, Mapping[str, Mapping[str, Config]]]
    since: datetime | None = None
    """Older records are left out on both sides."""

    @classmethod
    def freeze(cls, flows: Sequence[Flow], clusters: Mapping[str, Cluster], since: datetime | None = None) -> Frozen:
        """Freezes the targets first and the sources after them.

        Raises:
            UnreachableError: a cluster does not answer.
        """
        at_target = _grouped((flow.mirror.target, flow.target_topic) for flow in flows)
        at_source = _grouped((flow.mirror.source, flow.topic) for flow in flows)
        targets = {region: freeze(clusters[region], topics) for region, topics in at_target.items()}
        configs = {
            region: clusters[region].configs({partition.topic for partition in targets[region]}) for region in targets
        }
        sources = {region: freeze(clusters[region], topics) for region, topics in at_source.items()}
        return cls(clusters, targets, sources, configs, since)

    @property
    def records(self) -> int:
        """How many there are to read, at most."""
        sides = (*self.targets.values(), *self.sources.values())
        return sum(end - start for ranges in sides for start, end in ranges.values())

    def moved(self) -> str:
        """Names the partitions whose log has lost its beginning since; empty if none has."""
        names = []
        for frozen in (self.sources, self.targets):
            for region, ranges in frozen.items():
                starts = self.clusters[region].start_offsets(ranges)
                names += [
                    f"{region}'s {partition.topic}-{partition.partition}"
                    for partition, (start, _) in ranges.items()
                    if starts[partition] > start
                ]
        return ", ".join(names)

    def read(self, spark: SparkSession, region: str, ranges: Ranges) -> DataFrame:
        """Reads these offsets of a region."""
        if not self.since:
            return read_records(spark, self.clusters[region].connection, ranges)
        # By the offset of the first such record less is read; older ones may still come after it.
        firsts = self.clusters[region].offsets_since(ranges, self.since)
        later = {partition: (max(start, firsts[partition]), end) for partition, (start, end) in ranges.items()}
        found = read_records(spark, self.clusters[region].connection, later)
        return found.where(F.col("timestamp") >= F.lit(self.since))


@dataclass
class _Partition:
    """What is known of a flow's partition: from the buckets that agree, and from those that were opened."""

    outline: Row
    pairs: Row | None = None

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Flow and partition."""
        return (*_key(self.outline), self.outline.partition)

    def number(self, name: str) -> int:
        """A number of the pairs; 0 if nothing was opened."""
        return int(self.pairs[name]) if self.pairs else 0

    def first(self, name: str) -> int | None:
        """The offset where the matched records begin, on one side."""
        found = [row[name] for row in (self.outline, self.pairs) if row and row[name] is not None]
        return min(found, default=None)


class Comparison:
    """One comparison of all flows.

    A flow whose mirror is behind is judged as far as the mirror has come.

    Args:
        spark: the session.
        flows: what to compare.
        cuts: by source region.
        progress: how far each mirror has come.
        frozen: what to read.
        read: reads it.
    """

    def __init__(
        self,
        spark: SparkSession,
        flows: Sequence[Flow],
        cuts: Mapping[str, Cut],
        progress: Mapping[MirrorKey, Progress],
        frozen: Frozen,
        read: Read,
    ) -> None:
        self._spark = spark
        self._cuts = cuts
        self._frozen = frozen
        self._read_region = read
        self._target_topics = {flow.key: flow.target_topic for flow in flows}
        self._targets = {name: number for number, name in enumerate(sorted({flow.mirror.target for flow in flows}))}
        self._flows = F.broadcast(
            small_frame(
                spark, [(*flow.key, flow.target_topic, self._targets[flow.mirror.target]) for flow in flows], _FLOWS
            )
        )
        self._until = list(_judged(flows, cuts, progress))
        self._until_frame = small_frame(spark, self._until, _CUTS)
        self._compacted = {flow.key for flow in flows if is_compacted(flow, cuts)}
        self._counts = {flow.key: Counts() for flow in flows}

    def run(self, example_count: int) -> dict[FlowKey, Counts]:
        """Carries it out.

        Args:
            example_count: how many differences of each kind and flow to show.
        """
        tallied = self._tally_sources().persist()
        target = outlines.outline(outlines.tally(self._read(self._frozen.targets)))
        compared = outlines.compare(self._source_outlines(tallied), self._of_target(target)).persist()
        sequences = (
            outlines.sequences(tallied)
            .withColumnRenamed("region", "source")
            .join(self._flows.drop("target_topic", "number"), ["source", "topic"])
        )
        partitions = self._partitions(compared)
        for row in sequences.groupBy(*FLOW).agg(F.sum("gaps").alias("gaps")).collect():
            self._counts[_key(row)].source_gaps = row.gaps
        named = None
        if any(known.outline.opened or known.outline.shifted for known in partitions):
            named = self._open(compared, partitions)
        for known in partitions:
            self._count(known)
        if named:
            self._name(named.persist(), sequences, example_count)
            named.unpersist()
        for frame in (tallied, compared):
            frame.unpersist()
        return self._counts

    def _read(self, ranges: Mapping[str, Ranges]) -> DataFrame:
        frames = [
            self._read_region(region, wanted).withColumn("region", F.lit(region)) for region, wanted in ranges.items()
        ]
        nothing = no_records(self._spark).withColumn("region", F.lit(""))
        return reduce(DataFrame.unionByName, frames or [nothing])

    def _tally_sources(self) -> DataFrame:
        until: dict[tuple[str, str, int], list[int]] = {}
        for source, target, topic, partition, end in self._until:
            until.setdefault((source, topic, partition), [0] * len(self._targets))[self._targets[target]] = end
        names = [f"until_{number}" for number in self._targets.values()]
        ends = small_frame(
            self._spark,
            [(*place, *numbers) for place, numbers in until.items()],
            ", ".join(["region string", "topic string", "partition int", *(f"{name} long" for name in names)]),
        )
        sources = self._read(self._frozen.sources).join(F.broadcast(ends), [*PLACE])
        return outlines.tally(sources, names, runs=True)

    def _source_outlines(self, tallied: DataFrame) -> DataFrame:
        outline = outlines.outline(tallied, len(self._targets)).withColumnRenamed("region", "source")
        return (
            outline.join(self._flows, ["source", "topic"])
            .withColumn("in_cut", F.get("below", "number"))
            .drop("target_topic", "number", "below")
        )

    def _of_target(self, frame: DataFrame) -> DataFrame:
        there = frame.withColumnsRenamed({"region": "target", "topic": "target_topic"})
        return there.join(self._flows, ["target", "target_topic"]).drop("target_topic", "number")

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
            F.min(F.when(agrees, F.col("here.first_offset"))).alias("first_source"),
            F.min(F.when(agrees, F.col("there.first_offset"))).alias("first_target"),
            *(
                function(F.when(F.col("differs"), F.col(f"{side}.{end}_offset"))).alias(f"{side}_{end}")
                for side in ("here", "there")
                for end, function in (("first", F.min), ("last", F.max))
            ),
        )
        return [_Partition(row) for row in rows.collect()]

    def _open(self, compared: DataFrame, partitions: list[_Partition]) -> DataFrame | None:
        """Compares what differs record by record; notes what it finds in ``partitions``, and names the differences."""
        latest = self._open_compacted(partitions)
        ordinary = compared
        if self._compacted:
            keys = small_frame(self._spark, sorted(self._compacted), "source string, target string, topic string")
            ordinary = compared.join(F.broadcast(keys), [*FLOW], "left_anti")
        marked = self._match(ordinary, partitions).persist()
        unclear = outlines.displaced(ordinary, comparison.lone_offsets(marked)).unionByName(
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
            others = [known for known in partitions if _key(known.outline) in self._compacted]
            partitions[:] = [*self._partitions(ordinary), *others]
            marked = self._match(ordinary, partitions).persist()
        rows = {(*_key(row), row.partition): row for row in comparison.summarise(marked).collect()}
        for known in partitions:
            known.pairs = rows.get(known.place)
        faults = ("source_only", "target_only", "reordered")
        named = [latest] if latest else []
        if any(known.number(name) for known in partitions for name in faults):
            named.append(comparison.name_differences(marked))
        bounds = small_frame(self._spark, [self._bounds(known) for known in partitions], _BOUNDS)
        return comparison.name_expired(reduce(DataFrame.unionByName, named), bounds) if named else None

    def _match(self, compared: DataFrame, partitions: Iterable[_Partition]) -> DataFrame:
        """The records of the buckets that differ, matched. Of a partition, what lies between them is read as well."""
        source: dict[str, Spans] = {}
        target: dict[str, Spans] = {}
        for row in (known.outline for known in partitions):
            if row.opened and _key(row) not in self._compacted:
                here = TopicPartition(row.topic, row.partition)
                there = TopicPartition(self._target_topics[_key(row)], row.partition)
                _widen(source.setdefault(row.source, {}), here, row.here_first, row.here_last)
                _widen(target.setdefault(row.target, {}), there, row.there_first, row.there_last)
        opened = compared.where("differs").select(*outlines.BUCKET)
        at_source = records.contents(self._read(source)).withColumnRenamed("region", "source")
        at_target = self._of_target(records.contents(self._read(target)))
        pairs = comparison.match_copies(
            at_source.join(opened, ["source", *PLACE[1:], "bucket"]),
            at_target.join(opened, [*outlines.BUCKET], "left_semi"),
            self._until_frame,
        )
        return comparison.mark_reordered(pairs)

    def _open_compacted(self, partitions: Iterable[_Partition]) -> DataFrame | None:
        """Compares the latest values of compacted topics, whole partitions at a time."""
        source: dict[str, Spans] = {}
        target: dict[str, Spans] = {}
        differing = [known.outline for known in partitions if known.outline.opened]
        for row in differing:
            if _key(row) in self._compacted:
                here = TopicPartition(row.topic, row.partition)
                there = TopicPartition(self._target_topics[_key(row)], row.partition)
                source.setdefault(row.source, {})[here] = _range(self._frozen.sources[row.source], here)
                target.setdefault(row.target, {})[there] = _range(self._frozen.targets[row.target], there)
        if not source:
            return None
        at_source = records.contents(self._read(source)).withColumnRenamed("region", "source")
        of_flows = at_source.join(self._flows.drop("target_topic", "number"), ["source", "topic"])
        at_target = self._of_target(records.contents(self._read(target)))
        return comparison.compare_latest(of_flows, at_target, self._until_frame)

    def _count(self, known: _Partition) -> None:
        row, count = known.outline, self._counts[_key(known.outline)]
        here, there = row.in_cut, row.in_cut
        if _key(row) in self._compacted:
            here, there = here + row.opened_in_cut, there + row.opened_at_target
        here += known.number("source_records")
        there += known.number("matched") + known.number("target_only")
        count.source_records += here
        count.target_records += there
        count.after_cut += row.at_source - row.in_cut + known.number("after_cut")
        count.buckets += row.buckets
        count.opened += row.opened
        count.by_partition.append({"partition": row.partition, "source_records": here, "target_records": there})
        start, _ = _range(
            self._frozen.targets[row.target], TopicPartition(self._target_topics[_key(row)], row.partition)
        )
        if known.number("source_only") and start:
            count.truncated.append(f"{self._target_topics[_key(row)]}-{row.partition} begins at offset {start}")

    def _name(self, differences: DataFrame, sequences: DataFrame, example_count: int) -> None:
        for row in differences.groupBy(*FLOW, "kind").count().collect():
            setattr(self._counts[_key(row)], row.kind, row["count"])
        if any(count.expired for count in self._counts.values()):
            for row in comparison.never_mirrored(differences, sequences).collect():
                self._counts[_key(row)].never_mirrored += row.never_mirrored
        if example_count:
            for row in comparison.examples(differences, example_count).collect():
                self._counts[_key(row)].examples.append(_example(row))

    def _bounds(self, known: _Partition) -> tuple[Any, ...]:
        """What retention may have removed of a flow's partition, for ``comparison.name_expired``."""
        row = known.outline
        here = TopicPartition(row.topic, row.partition)
        there = TopicPartition(self._target_topics[_key(row)], row.partition)
        source_start, _ = _range(self._frozen.sources[row.source], here)
        target_start, _ = _range(self._frozen.targets[row.target], there)
        configs = self._frozen.target_configs[row.target].get(there.topic, {})
        retention_ms, retention_bytes = (_number(configs, name) for name in ("retention.ms", "retention.bytes"))
        expires = 0 <= retention_ms < _FOR_EVER_MS
        expire_before = self._cuts[row.source].at - timedelta(milliseconds=retention_ms) if expires else None
        long_enough = (
            known.number("source_only") > 0
            and target_start > 0
            and retention_bytes >= 0
            and self._size(row.target, there) >= retention_bytes
        )
        firsts = known.first("first_source"), known.first("first_target")
        return (*_key(row), row.partition, source_start, target_start, *firsts, expire_before, long_enough)

    def _size(self, region: str, partition: TopicPartition) -> int:
        """About how many bytes a target partition's log has, rather more than less."""
        log = self._read_region(region, {partition: self._frozen.targets[region][partition]})
        payload = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
        headers = F.coalesce(F.octet_length(F.to_json("headers")), F.lit(0))
        (row,) = log.agg(F.sum(payload + headers + _RECORD_OVERHEAD).alias("size")).collect()
        return int(row["size"] or 0)


def compare(
    spark: SparkSession,
    flows: Sequence[Flow],
    cuts: Mapping[str, Cut],
    progress: Mapping[MirrorKey, Progress],
    frozen: Frozen,
    example_count: int,
) -> dict[FlowKey, Counts]:
    """Reads both sides and compares them: their outlines first, then the buckets that differ record by record.

    Returns:
        What was found in each flow.
    """
    fit(spark, frozen.records)
    return Comparison(spark, flows, cuts, progress, frozen, partial(frozen.read, spark)).run(example_count)


def is_compacted(flow: Flow, cuts: Mapping[str, Cut]) -> bool:
    """Whether the flow's topic keeps the latest value of each key only."""
    cut = cuts.get(flow.mirror.source)
    policy = cut.configs.get(flow.topic, {}).get("cleanup.policy") if cut else None
    return policy is not None and "compact" in (policy.value or "")


def freeze(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
    """First offset and end of the committed records of every partition of those topics that exist.

    Raises:
        UnreachableError: the cluster does not answer.
    """
    wanted = set(topics)
    partitions = partitions_of({topic: count for topic, count in cluster.topics().items() if topic in wanted})
    ends = cluster.end_offsets(partitions)
    starts = cluster.start_offsets(partitions)
    return {partition: (starts[partition], max(starts[partition], ends[partition])) for partition in partitions}


def _judged(
    flows: Iterable[Flow], cuts: Mapping[str, Cut], progress: Mapping[MirrorKey, Progress]
) -> Iterator[tuple[str, str, str, int, int]]:
    for flow in flows:
        cut, mirror = cuts[flow.mirror.source], progress[flow.mirror_key]
        behind = mirror.behind(cut.last_records)
        for partition, (_, end) in cut.ranges.items():
            if partition.topic == flow.topic:
                until = mirror.positions.get(partition, -1) + 1 if partition in behind else end
                yield (*flow.key, partition.partition, until)


def _example(row: Row) -> dict[str, Any]:
    source, target = row.source_record, row.target_record
    record = source or target
    return {
        "kind": row.kind,
        "partition": row.partition,
        "source_offset": source.offset if source else None,
        "target_offset": target.offset if target else None,
        **({"target_partition": target.partition} if row.kind == "moved" else {}),
        "key": _readable(record.key),
        "timestamp": record.timestamp.astimezone(UTC).isoformat(timespec="milliseconds"),
    }


def _readable(key: bytearray | None) -> str | None:
    if key is None:
        return None
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    shown = text if text.isprintable() and (text or not key) else f"0x{key.hex()}"
    return shown if len(shown) <= _LONGEST_KEY else f"{shown[:_LONGEST_KEY]}…"


def _key(row: Row) -> FlowKey:
    return row.source, row.target, row.topic


def _range(ranges: Ranges, partition: TopicPartition) -> tuple[int, int]:
    return ranges.get(partition, (0, 0))


def _widen(spans: Spans, partition: TopicPartition, first: int | None, last: int | None) -> None:
    if first is not None and last is not None:
        start, end = spans.get(partition, (first, last + 1))
        spans[partition] = (min(start, first), max(end, last + 1))


def _number(configs: Mapping[str, Config], name: str) -> int:
    value = configs[name].value if name in configs else None
    return int(value) if value is not None else -1


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for region, topic in pairs:
        groups.setdefault(region, set()).add(topic)
    return groups
