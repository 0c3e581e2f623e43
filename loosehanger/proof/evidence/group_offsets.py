"""How consumer groups would continue at the target: the records that each of them has still to read, on both sides.

A copy that is proved has the source's records in their order. So of two offsets in it, the one with fewer committed
records behind it is further on: the difference is what the group would skip, or read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kafka import TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.offsets import Positions
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.flows import Flow, FlowId
from loosehanger.proof.session import small_frame
from loosehanger.proof.snapshot import Cut, OffsetSnapshot

_FROM = "topic string, partition int, start long, end long"
_Part = tuple[str, int, int, int]
"""A part of a partition: topic, partition, first offset and end (exclusive)."""


@dataclass(frozen=True)
class GroupPosition:
    """A group in one partition of a flow, on both sides."""

    partition: int
    source_offset: int
    """The committed offset at the source."""
    target_offset: int | None
    """The committed offset at the target; None if there is none."""
    left: int
    """The records of the cut that the group has still to read at the source."""
    left_at_target: int
    """The copies of the cut's records that it has still to read at the target; all of them without an offset there."""

    @property
    def skipped(self) -> int:
        """The records that the group would not read after a switch to the target."""
        return 0 if self.target_offset is None else max(0, self.left - self.left_at_target)

    @property
    def again(self) -> int:
        """The records that it would read once more."""
        return 0 if self.target_offset is None else max(0, self.left_at_target - self.left)

    @property
    def is_absent(self) -> bool:
        """Whether it would begin at the target where ``auto.offset.reset`` says, with records there to begin in."""
        return self.target_offset is None and self.left_at_target > 0


@dataclass(frozen=True)
class GroupOffsets:
    """A group in all partitions of a flow in which it has committed an offset at the source."""

    group: str
    positions: tuple[GroupPosition, ...]

    @property
    def skipped(self) -> int:
        """The records that the group would not read after a switch to the target."""
        return sum(one.skipped for one in self.positions)

    @property
    def again(self) -> int:
        """The records that it would read once more."""
        return sum(one.again for one in self.positions)


def group_offsets(
    spark: SparkSession,
    flows: Sequence[Flow],
    groups: Mapping[str, Collection[str]],
    cuts: Mapping[str, Cut],
    frozen: OffsetSnapshot,
    counts: Mapping[FlowId, Counts],
) -> dict[FlowId, list[GroupOffsets]]:
    """Reads the groups' offsets, and counts the records behind them.

    The targets' offsets are read before the sources': a group that works meanwhile only seems to read more again.

    Args:
        spark: the session.
        flows: the flows, which were compared.
        groups: the groups by the name of the mirror.
        cuts: by source region.
        frozen: the offsets that were compared.
        counts: the results of the comparison.

    Raises:
        UnreachableError: a cluster does not answer, or the user may not describe a group.
    """
    wanted = [(flow, group) for flow in flows for group in groups.get(flow.mirror.name, ())]
    at_target = _committed(frozen, [(flow.target, group, flow.target_topic) for flow, group in wanted])
    at_source = _committed(frozen, [(flow.source, group, flow.topic) for flow, group in wanted])
    pairs: list[tuple[Flow, str, int, int, int | None, _Part, _Part]] = []
    for flow, group in wanted:
        ranges, copies = cuts[flow.source].ranges, frozen.targets.get(flow.target, {})
        for place, offset in sorted(at_source[flow.source, group].items()):
            if place.topic == flow.topic and place in ranges:
                copy = TopicPartition(flow.target_topic, place.partition)
                there = at_target[flow.target, group].get(copy)
                behind = _part(copy, there or 0, copies.get(copy, (0, 0)))
                pairs.append((flow, group, place.partition, offset, there, _part(place, offset, ranges[place]), behind))
    left = _counted(spark, frozen, {(flow.source, part) for flow, *_, part, _ in pairs})
    left |= _counted(spark, frozen, {(flow.target, part) for flow, *_, part in pairs})
    newer = {
        (flow.id, row["partition"]): row["after_cut"] for flow in flows for row in counts[flow.id].by_partition
    }  # fmt: skip
    found: dict[tuple[FlowId, str], list[GroupPosition]] = {}
    for flow, group, partition, offset, there, part, behind in pairs:
        copied = max(0, left.get((flow.target, behind), 0) - newer.get((flow.id, partition), 0))
        position = GroupPosition(partition, offset, there, left.get((flow.source, part), 0), copied)
        found.setdefault((flow.id, group), []).append(position)
    offsets: dict[FlowId, list[GroupOffsets]] = {}
    for (flow_id, group), positions in found.items():
        offsets.setdefault(flow_id, []).append(GroupOffsets(group, tuple(positions)))
    return offsets


def _committed(frozen: OffsetSnapshot, wanted: Collection[tuple[str, str, str]]) -> dict[tuple[str, str], Positions]:
    """By region and group, the offsets in these topics.

    Args:
        frozen: has the clusters.
        wanted: region, group and topic.
    """
    topics: dict[tuple[str, str], set[str]] = {}
    for region, group, topic in wanted:
        topics.setdefault((region, group), set()).add(topic)
    return {(region, group): frozen.clusters[region].committed(group, own) for (region, group), own in topics.items()}


def _part(place: TopicPartition, offset: int, bounds: tuple[int, int]) -> _Part:
    """What is left of a partition from an offset on."""
    start, end = bounds
    return place.topic, place.partition, min(max(offset, start), end), end


def _counted(
    spark: SparkSession, frozen: OffsetSnapshot, parts: Collection[tuple[str, _Part]]
) -> dict[tuple[str, _Part], int]:
    """The committed records in each part of a region's partition; none are left out."""
    found: dict[tuple[str, _Part], int] = {}
    for region in sorted({region for region, _ in parts}):
        own = sorted(part for at, part in parts if at == region and part[2] < part[3])
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for topic, partition, start, end in own:
            place = TopicPartition(topic, partition)
            least, most = ranges.get(place, (start, end))
            ranges[place] = (min(least, start), max(most, end))
        if not ranges:
            continue
        places = F.broadcast(small_frame(spark, own, _FROM))
        rows = (
            frozen.read(spark, region, ranges)
            .select("topic", "partition", "offset")
            .join(places, ["topic", "partition"])
            .where("offset >= start AND offset < end")
            .groupBy("topic", "partition", "start", "end")
            .count()
            .collect()
        )
        found |= {(region, (row.topic, row.partition, row.start, row.end)): row["count"] for row in rows}
    return found
