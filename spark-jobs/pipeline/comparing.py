"""Reads both sides of the flows up to frozen offsets and finds every difference, by ``pipeline.comparison``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from kafka import TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from lab.access import Mirror
from pipeline import comparison, records
from pipeline.clusters import Cluster, Config, partitions_of
from pipeline.mirrors import Progress
from pipeline.reading import Ranges, no_records, read_records

# What a record adds on disk to key, value and headers; rather too much than too little.
_RECORD_OVERHEAD = 100
# So few rows are sent to every task instead of being shuffled.
_FEW = 100_000
_LONGEST_KEY = 64
# A retention beyond what a date can be taken back by.
_FOR_EVER_MS = 50 * 365 * 86_400_000
_FLOWS = "source string, target string, topic string, target_topic string"
_CUTS = "source string, target string, topic string, partition int, until long"
_BOUNDS = (
    "source string, target string, topic string, partition int, source_start long, target_start long, "
    "first_source long, first_target long, expire_before timestamp, size_retained boolean"
)

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
    """What the comparison found in one flow; partitions of the cut, records of the cut."""

    source_records: int = 0
    target_records: int = 0
    after_cut: int = 0
    missing: int = 0
    duplicates: int = 0
    reordered: int = 0
    unexpected: int = 0
    altered: int = 0
    expired: int = 0
    source_gaps: int = 0
    truncated: list[str] = field(default_factory=list)
    """Target partitions with missing records whose log has lost its beginning."""
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    """What is read: each target up to now, and each source up to an offset that nothing read there is newer than."""

    clusters: Mapping[str, Cluster]
    targets: Mapping[str, Ranges]
    sources: Mapping[str, Ranges]
    target_configs: Mapping[str, Mapping[str, Mapping[str, Config]]]

    @classmethod
    def freeze(cls, flows: Sequence[Flow], clusters: Mapping[str, Cluster]) -> Frozen:
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
        return cls(clusters, targets, sources, configs)

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


def compare(
    spark: SparkSession,
    flows: Sequence[Flow],
    cuts: Mapping[str, Cut],
    progress: Mapping[MirrorKey, Progress],
    frozen: Frozen,
    example_count: int,
) -> dict[FlowKey, Counts]:
    """Reads both sides and compares them.

    A flow whose mirror is behind is judged as far as the mirror has come.

    Returns:
        What was found in each flow.
    """
    sides = _Sides(spark, flows, frozen)
    until = spark.createDataFrame(list(_judged(flows, cuts, progress)), _CUTS)
    pairs = comparison.mark_reordered(
        comparison.match_copies(
            sides.sources(frozen.sources, records.contents), sides.targets(frozen.targets, records.contents), until
        )
    ).persist()
    summary = comparison.summarise(pairs).collect()
    counts = {flow.key: Counts() for flow in flows}
    for row in summary:
        count = counts[_key(row)]
        count.source_records += row.source_records
        count.after_cut += row.after_cut
        count.target_records += row.matched + row.target_only
        count.reordered += row.reordered
        count.source_gaps += row.source_gaps
    lone = sum(row.source_only + row.target_only for row in summary)
    found = []
    if lone:
        found.append(_name(spark, sides, pairs, lone, summary, cuts, frozen).persist())
        for row in found[0].groupBy(*comparison.FLOW, "kind").count().collect():
            setattr(counts[_key(row)], row.kind, row["count"])
    if any(row.reordered for row in summary):
        found.append(sides.identify_reordered(pairs, example_count))
    if found and example_count:
        shown = [comparison.examples(frame, example_count) for frame in found]
        for row in reduce(DataFrame.unionByName, shown).collect():
            counts[_key(row)].examples.append(_example(row))
    _name_truncated(counts, summary, sides.names, frozen)
    pairs.unpersist()
    return counts


def _name(
    spark: SparkSession,
    sides: _Sides,
    pairs: DataFrame,
    lone_count: int,
    summary: Sequence[Row],
    cuts: Mapping[str, Cut],
    frozen: Frozen,
) -> DataFrame:
    """Names every difference; only the offsets in question are read a second time."""
    lone = comparison.lone_pairs(pairs).persist()
    bounds = [sides.bounds(row, cuts, frozen) for row in summary]
    small = F.broadcast(lone) if lone_count < _FEW else lone
    source, target = sides.around(lone)
    identified = comparison.identify(small, source, target).persist()
    named = comparison.name_altered(identified)
    return comparison.name_expired(named, spark.createDataFrame(bounds, _BOUNDS))


class _Sides:
    """The frames of both sides, keyed by flow."""

    def __init__(self, spark: SparkSession, flows: Sequence[Flow], frozen: Frozen) -> None:
        self._spark = spark
        self._frozen = frozen
        self.names = {flow.key: flow.target_topic for flow in flows}
        rows = [(*flow.key, flow.target_topic) for flow in flows]
        self._flows = spark.createDataFrame(rows, _FLOWS)

    def sources(self, ranges: Mapping[str, Ranges], shape: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """Source, and what ``shape`` makes of the records."""
        return self._union("source", ranges, shape)

    def targets(self, ranges: Mapping[str, Ranges], shape: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """Source, target, and what ``shape`` makes of the records, under the topic's name at the source."""
        there = self._union("target", ranges, shape).withColumnRenamed("topic", "target_topic")
        return there.join(F.broadcast(self._flows), ["target", "target_topic"]).drop("target_topic")

    def around(self, lone: DataFrame) -> tuple[DataFrame, DataFrame]:
        """The records of both sides again, but only from the first to the last offset in question."""
        spans = (
            lone.groupBy(*comparison.FLOW_PARTITION)
            .agg(
                F.min("source_offset").alias("source_from"),
                F.max("source_offset").alias("source_to"),
                F.min("target_offset").alias("target_from"),
                F.max("target_offset").alias("target_to"),
            )
            .collect()
        )
        source: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        target: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        for row in spans:
            if row.source_from is not None:
                _widen(source, row.source, TopicPartition(row.topic, row.partition), row.source_from, row.source_to)
            if row.target_from is not None:
                there = TopicPartition(self.names[_key(row)], row.partition)
                _widen(target, row.target, there, row.target_from, row.target_to)
        return self.sources(source, records.identities), self.targets(target, records.identities)

    def identify_reordered(self, pairs: DataFrame, count: int) -> DataFrame:
        """The first reordered records of each flow, as differences."""
        nothing = F.lit(None).cast("struct<offset: bigint>")
        chosen = comparison.examples(
            pairs.where("reordered").withColumns(
                {
                    "kind": F.lit("reordered"),
                    "source_record": F.struct(F.col("source_offset").alias("offset")),
                    "target_record": nothing,
                }
            ),
            count,
        ).select(*comparison.FLOW_PARTITION, "kind", "source_offset", "target_offset")
        source, target = self.around(chosen)
        at_source = source.withColumnsRenamed({"offset": "source_offset", "record": "source_record"})
        at_target = target.withColumnsRenamed({"offset": "target_offset", "record": "target_record"})
        return (
            F.broadcast(chosen)
            .join(at_source, ["source", "topic", "partition", "source_offset"])
            .join(at_target, [*comparison.FLOW_PARTITION, "target_offset"])
            .select(*comparison.FLOW_PARTITION, "kind", "source_record", "target_record")
        )

    def bounds(self, row: Row, cuts: Mapping[str, Cut], frozen: Frozen) -> tuple[Any, ...]:
        """What retention may have removed of a flow's partition, for ``comparison.name_expired``."""
        there = TopicPartition(self.names[_key(row)], row.partition)
        target_start = _range(frozen.targets[row.target], there.topic, there.partition)[0]
        configs = frozen.target_configs[row.target].get(there.topic, {})
        retention_ms, retention_bytes = (_number(configs, name) for name in ("retention.ms", "retention.bytes"))
        expire_before = (
            cuts[row.source].at - timedelta(milliseconds=retention_ms) if 0 <= retention_ms < _FOR_EVER_MS else None
        )
        long_enough = (
            row.source_only > 0
            and target_start > 0
            and retention_bytes >= 0
            and self._size(row.target, there) >= retention_bytes
        )
        source_start = _range(frozen.sources[row.source], row.topic, row.partition)[0]
        return (
            *(*_key(row), row.partition, source_start, target_start),
            *(row.first_source, row.first_target, expire_before, long_enough),
        )

    def _size(self, region: str, partition: TopicPartition) -> int:
        """About how many bytes a target partition's log has, rather more than less."""
        log = read_records(
            self._spark,
            self._frozen.clusters[region].connection,
            {partition: self._frozen.targets[region][partition]},
        )
        payload = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
        headers = F.coalesce(F.octet_length(F.to_json("headers")), F.lit(0))
        (row,) = log.agg(F.sum(payload + headers + _RECORD_OVERHEAD).alias("size")).collect()
        return int(row["size"] or 0)

    def _union(self, name: str, ranges: Mapping[str, Ranges], shape: Callable[[DataFrame], DataFrame]) -> DataFrame:
        frames = [
            shape(read_records(self._spark, self._frozen.clusters[region].connection, wanted)).withColumn(
                name, F.lit(region)
            )
            for region, wanted in ranges.items()
        ]
        nothing = shape(no_records(self._spark)).withColumn(name, F.lit(""))
        return reduce(DataFrame.unionByName, frames or [nothing])


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


def _name_truncated(
    counts: Mapping[FlowKey, Counts], summary: Iterable[Row], names: Mapping[FlowKey, str], frozen: Frozen
) -> None:
    for row in summary:
        start, _ = _range(frozen.targets[row.target], names[_key(row)], row.partition)
        if row.source_only and start:
            counts[_key(row)].truncated.append(f"{names[_key(row)]}-{row.partition} begins at offset {start}")


def _example(row: Row) -> dict[str, Any]:
    source, target = row.source_record, row.target_record
    record = source or target
    return {
        "kind": row.kind,
        "partition": row.partition,
        "source_offset": source.offset if source else None,
        "target_offset": target.offset if target else None,
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


def _range(ranges: Ranges, topic: str, partition: int) -> tuple[int, int]:
    return ranges.get(TopicPartition(topic, partition), (0, 0))


def _widen(
    spans: dict[str, dict[TopicPartition, tuple[int, int]]],
    region: str,
    partition: TopicPartition,
    first: int,
    last: int,
) -> None:
    start, end = spans.setdefault(region, {}).get(partition, (first, last + 1))
    spans[region][partition] = (min(start, first), max(end, last + 1))


def _number(configs: Mapping[str, Config], name: str) -> int:
    value = configs[name].value if name in configs else None
    return int(value) if value is not None else -1


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for region, topic in pairs:
        groups.setdefault(region, set()).add(topic)
    return groups
