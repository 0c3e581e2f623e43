"""Counters of what a console has read of each topic, for Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000)
"""Upper bounds of the latency histogram's buckets, in ms; a last bucket has no bound."""
MOST_TOPICS = 1000
"""Most topics that are counted; further ones are not."""


@dataclass
class TopicTotals:
    """What was read of a topic since the console started."""

    records: int = 0
    bytes: int = 0
    """Of keys, values and headers, uncompressed."""
    latencies: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    """Records by the bucket of their latency; of a large batch, a sample of its records."""
    latency_ms: int = 0
    """The sum of these latencies."""

    def cumulative(self) -> list[tuple[str, int]]:
        """The histogram's buckets as Prometheus counts them: upper bound in seconds, and records up to it."""
        counted, found = 0, []
        for bound, count in zip((*(str(ms / 1000) for ms in BOUNDS_MS), "+Inf"), self.latencies, strict=True):
            counted += count
            found.append((bound, counted))
        return found


class Totals:
    """The counters of a region's topics. They only grow, so that a reader that stops and starts leaves no gap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, TopicTotals] = {}

    def add(self, counts: Mapping[str, tuple[int, int]], latencies: Iterable[tuple[str, int]]) -> None:
        """Adds a batch.

        Args:
            counts: records and bytes, by topic.
            latencies: topic and latency in ms, of each record in the sample.
        """
        with self._lock:
            for topic, (records, size) in counts.items():
                if topic in self._topics or len(self._topics) < MOST_TOPICS:
                    totals = self._topics.setdefault(topic, TopicTotals())
                    totals.records += records
                    totals.bytes += size
            for topic, ms in latencies:
                if topic in self._topics:
                    self._topics[topic].latencies[bisect_left(BOUNDS_MS, ms)] += 1
                    self._topics[topic].latency_ms += ms

    def of(self, topics: Iterable[str]) -> dict[str, TopicTotals]:
        """A copy of the counters of those topics that were read."""
        with self._lock:
            return {
                topic: TopicTotals(one.records, one.bytes, list(one.latencies), one.latency_ms)
                for topic in topics
                if (one := self._topics.get(topic)) is not None
            }
