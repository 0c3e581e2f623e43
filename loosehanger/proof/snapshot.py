"""The offsets to compare: the first and last record of each side, frozen before any record is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.cluster import Cluster, Config, partitions_of
from loosehanger.kafka.patches import NO_TIME
from loosehanger.kafka.reading import some_of
from loosehanger.kafka.transactions import Held
from loosehanger.proof.flows import Flow
from loosehanger.proof.read.batches import Ranges, read_beside, read_records
from loosehanger.proof.read.fetching import Fetched, Records, fetch_few, frame_of, takes_files
from loosehanger.proof.read.small_partitions import SmallPartitions

_LOOK_S = 0.2
_REPORT_S = 5.0
_GRACE_S = 5.0
"""The least seconds to wait for an open transaction, so that one in flight does not matter."""


@dataclass(frozen=True)
class Cut:
    """The source offsets up to which records are judged."""

    at: datetime
    ranges: Ranges
    last_records: Mapping[TopicPartition, int]
    configs: Mapping[str, Mapping[str, Config]]


@dataclass(frozen=True)
class OffsetSnapshot:
    """The offsets to read: of each target up to now, of each source up to an offset that no copy can be newer than."""

    clusters: Mapping[str, Cluster]
    targets: Mapping[str, Ranges]
    sources: Mapping[str, Ranges]
    target_configs: Mapping[str, Mapping[str, Mapping[str, Config]]]
    at: datetime
    """When the log starts of the targets were read."""
    since: datetime | None = None
    """Older records are left out on both sides."""
    archives: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """By region, the first offset of each partition to compare: earlier records are copies of a former source."""
    fetched: Mapping[str, Records] = field(default_factory=dict, repr=False)
    """The records of regions with few of them, which are read already."""
    small: Mapping[str, SmallPartitions] = field(default_factory=dict, repr=False)
    """Of the other regions, the partitions with few records, which are read already."""

    @classmethod
    def freeze(
        cls,
        flows: Sequence[Flow],
        clusters: Mapping[str, Cluster],
        since: datetime | None = None,
        archives: Mapping[str, Mapping[TopicPartition, int]] = MappingProxyType({}),
    ) -> OffsetSnapshot:
        """Freezes the targets first and the sources after them.

        Args:
            flows: the flows to compare.
            clusters: by region.
            since: older records are left out on both sides.
            archives: by region, the parts of targets to leave out: see ``archives``.

        Raises:
            UnreachableError: a cluster does not answer.
        """
        at_target = _grouped((flow.target, flow.target_topic) for flow in flows)
        at_source = _grouped((flow.source, flow.topic) for flow in flows)
        targets = {
            region: _without(archives.get(region, {}), freeze(clusters[region], topics))
            for region, topics in at_target.items()
        }
        at = datetime.now(UTC)
        configs = {
            region: clusters[region].configs({partition.topic for partition in targets[region]}) for region in targets
        }
        sources = {region: freeze(clusters[region], topics) for region, topics in at_source.items()}
        return cls(clusters, targets, sources, configs, at, since, archives)

    @property
    def records(self) -> int:
        """The most records to read."""
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
        return some_of(names)

    def deleted(self, region: str, partition: TopicPartition) -> int:
        """The number of compared offsets that a target's partition has deleted."""
        start, _ = self.targets[region].get(partition, (0, 0))
        return start - self.archive(region, partition)

    def archive(self, region: str, partition: TopicPartition) -> int:
        """The first offset of a target's partition to compare."""
        return self.archives.get(region, {}).get(partition, 0)

    def has_append_time(self, flow: Flow) -> bool:
        """Whether the target gives each record the time of its arrival, as far as its settings may be read."""
        config = self.target_configs[flow.target].get(flow.target_topic, {}).get("message.timestamp.type")
        return config is not None and config.value == "LogAppendTime"

    def fetch(self) -> OffsetSnapshot:
        """Reads the regions with few records, in parallel and without Spark."""
        if self.since:
            return self
        wanted = {region: self._of_both_sides(region) for region in {*self.targets, *self.sources}}
        with ThreadPoolExecutor(max_workers=max(len(wanted), 1)) as threads:
            found = threads.map(lambda region: fetch_few(self.clusters[region].connection, wanted[region]), wanted)
            few = dict(zip(wanted, found, strict=True))
        return replace(self, fetched={region: records for region, records in few.items() if records is not None})

    def with_small_partitions(self, spark: SparkSession) -> OffsetSnapshot:
        """Reads the small partitions of the regions with many records, in parallel, for a session that takes files."""
        if self.since or not takes_files(spark):
            return self
        regions = sorted({*self.targets, *self.sources} - self.fetched.keys())
        wanted = {region: self._of_both_sides(region) for region in regions}
        with ThreadPoolExecutor(max_workers=max(len(regions), 1)) as threads:
            found = threads.map(
                lambda region: SmallPartitions.read(self.clusters[region].connection, wanted[region]), regions
            )
            return replace(self, small=dict(zip(regions, found, strict=True)))

    def at_hand(self, region: str, partition: TopicPartition, offsets: tuple[int, int]) -> list[Fetched] | None:
        """The records of these offsets, if they have been read already."""
        found = self.fetched.get(region, {}).get(partition)
        return None if found is None else [record for record in found if offsets[0] <= record.offset < offsets[1]]

    def _of_both_sides(self, region: str) -> Ranges:
        ranges = dict(self.targets.get(region, {}))
        for partition, (start, end) in self.sources.get(region, {}).items():
            there = ranges.get(partition, (start, end))
            ranges[partition] = (min(start, there[0]), max(end, there[1]))
        return ranges

    def read(self, spark: SparkSession, region: str, ranges: Ranges) -> DataFrame:
        """Reads these offsets of a region."""
        few = {partition: self.at_hand(region, partition, offsets) for partition, offsets in ranges.items()}
        if ranges and takes_files(spark) and None not in few.values():
            return frame_of(spark, {partition: records or [] for partition, records in few.items()})
        if region in self.small:
            return read_beside(spark, self.clusters[region].connection, ranges, self.small[region])
        if not self.since:
            return read_records(spark, self.clusters[region].connection, ranges)
        # By the offset of the first such record less is read; older ones may still come after it.
        firsts = self.clusters[region].offsets_since(ranges, self.since)
        later = {partition: (max(start, firsts[partition]), end) for partition, (start, end) in ranges.items()}
        found = read_records(spark, self.clusters[region].connection, later)
        return found.where(F.col("timestamp") >= F.lit(self.since))

    def read_untimed(self, spark: SparkSession, region: str, ranges: Ranges) -> DataFrame:
        """Reads those of these records of a region that have no timestamp, which ``since`` leaves out."""
        found = read_records(spark, self.clusters[region].connection, ranges)
        return found.where(F.unix_millis("timestamp") == NO_TIME)


def is_compacted(flow: Flow, cuts: Mapping[str, Cut]) -> bool:
    """Whether the flow's topic keeps the latest value of each key only."""
    cut = cuts.get(flow.source)
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


def settle(
    cluster: Cluster, topics: Iterable[str], deadline: float, report: Callable[[str], None]
) -> tuple[Ranges, list[Held]]:
    """Freezes partitions at their high watermark, and waits until no transaction before it is open.

    Args:
        cluster: where they are.
        topics: those that exist are frozen.
        deadline: end of the wait, by the monotonic clock; it lasts a few seconds at least.
        report: takes a line that names what is being waited for.

    Returns:
        First offset and end of every partition; and those that an open transaction still holds, whose end is the last
        stable offset instead.

    Raises:
        UnreachableError: the cluster does not answer.
    """
    wanted = set(topics)
    partitions = partitions_of({topic: count for topic, count in cluster.topics().items() if topic in wanted})
    ends = cluster.written_offsets(partitions)
    deadline, next_report = max(deadline, time.monotonic() + _GRACE_S), time.monotonic() + _LOOK_S
    waiting: Mapping[TopicPartition, int] = ends
    while held := cluster.held_back(waiting):
        now = time.monotonic()
        if now >= deadline:
            break
        if now >= next_report:
            more = f" and {len(held) - 1} more partitions" if len(held) > 1 else ""
            report(f"waiting for an open transaction: {cluster.region}: {held[0]}{more}")
            next_report = now + _REPORT_S
        time.sleep(min(_LOOK_S, max(deadline - now, 0)))
        waiting = {place: ends[place] for place in (TopicPartition(one.topic, one.partition) for one in held)}
    stable = ends | {TopicPartition(one.topic, one.partition): one.stable for one in held}
    starts = cluster.start_offsets(partitions)
    return {place: (starts[place], max(starts[place], stable[place])) for place in partitions}, held


def _without(archives: Mapping[TopicPartition, int], ranges: Ranges) -> Ranges:
    """The ranges, but for what lies before these offsets."""
    begins = {partition: max(start, archives.get(partition, 0)) for partition, (start, _) in ranges.items()}
    return {partition: (begins[partition], max(begins[partition], end)) for partition, (_, end) in ranges.items()}


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for region, topic in pairs:
        groups.setdefault(region, set()).add(topic)
    return groups
