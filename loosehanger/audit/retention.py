"""Deletions at a target that its retention does not explain: a stream of records does not show deletions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from kafka import TopicPartition

from loosehanger.kafka.cluster import Cluster

_CONFIGS_S = 30.0


class RetentionGuard:
    """Checks the log start offsets of a region's partitions repeatedly. Used by the thread of its cluster.

    It remembers the first record of each partition that is young enough for ``retention.ms``. While that record is
    young enough, time-based retention deletes neither it nor any later record.
    """

    def __init__(self) -> None:
        self._young: dict[TopicPartition, tuple[int, int]] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._kept: tuple[float, dict[str, tuple[int, int]]] = (0.0, {})

    def look(
        self,
        cluster: Cluster,
        partitions: Iterable[TopicPartition],
        sizes: Mapping[str, float],
        now_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """The number of offsets deleted since the last look without a reason, by partition.

        Args:
            cluster: the region's.
            partitions: of its targets.
            sizes: approximate bytes of a record, by topic.
            now_ms: the wall clock, in milliseconds.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        wanted = list(partitions)
        now_ms = round(time.time() * 1000) if now_ms is None else now_ms
        kept = self._retention(cluster, {place.topic for place in wanted})
        starts, ends = cluster.start_offsets(wanted), cluster.end_offsets(wanted)
        found = {}
        for place in wanted:
            kept_ms, kept_bytes = kept.get(place.topic, (0, -1))
            before = self._starts.get(place, starts[place])
            offset, timestamp = self._young.get(place, (starts[place], 0))
            young = kept_ms < 0 or timestamp >= now_ms - kept_ms
            size = (ends[place] - before) * sizes.get(place.topic, 0.0)
            if starts[place] > offset and place in self._young and young and not 0 <= kept_bytes <= size:
                found[place] = starts[place] - max(offset, before)
        self._starts = starts
        self._young = {}
        for kept_ms in {kept_ms for kept_ms, _ in kept.values()}:
            of_this = [place for place in wanted if kept.get(place.topic, (0, 0))[0] == kept_ms]
            since = 0 if kept_ms < 0 else now_ms - kept_ms
            self._young |= cluster.first_since(of_this, since)
        return found

    def _retention(self, cluster: Cluster, topics: set[str]) -> dict[str, tuple[int, int]]:
        """``retention.ms`` and ``retention.bytes`` of each topic that may be described."""
        asked, known = self._kept
        if time.monotonic() - asked > _CONFIGS_S or not topics <= known.keys():
            configs = cluster.configs(topics)
            known = {
                topic: (int(entries["retention.ms"].value or -1), int(entries["retention.bytes"].value or -1))
                for topic, entries in configs.items()
                if {"retention.ms", "retention.bytes"} <= entries.keys()
            }
            self._kept = time.monotonic(), known
        return known
