"""What each round asks one cluster, in a thread and with clients of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from kafka import TopicPartition

from loosehanger.audit.retention import RetentionGuard
from loosehanger.kafka.cluster import Cluster

T = TypeVar("T")
Ranges = Mapping[TopicPartition, tuple[int, int]]
"""First offset and end (exclusive) of each partition."""
_DECIDING = ("cleanup.policy", "message.timestamp.type")


class BucketTotals(NamedTuple):
    """The sums over the records that were read of a partition and a bucket."""

    topic: str
    partition: int
    bucket: int
    records: int
    content: tuple[int, ...]
    """Four sums of the halves of two 64-bit hashes of each record."""
    first: int
    """The first offset."""
    last: int
    bytes: int
    untimed: int = 0
    """How many of them have no timestamp."""


@dataclass(frozen=True)
class Reading:
    """The records of one region in a round."""

    starts: Mapping[TopicPartition, int]
    until: Mapping[TopicPartition, int]
    """The offset up to which each partition has been read."""
    lost: Mapping[TopicPartition, int]
    """The number of offsets that were deleted before they could be read."""
    back: tuple[TopicPartition, ...]
    """Partitions that end before the offset up to which they have been read."""
    totals: list[BucketTotals]
    events: list[Any] = field(default_factory=list)
    """Rows of ``round_totals.tally`` for the topics whose events count."""
    problems: tuple[str, ...] = ()
    """Partitions that could not be read, and why."""
    unread: int = 0
    """Offsets that are there and left for later rounds."""


class RegionReader(ABC):
    """Reads one region, and asks its cluster.

    Args:
        name: the region's.
        cluster: for this reader's thread alone.
    """

    most_offsets = 400_000
    """The most offsets to read in one round: a backlog is read over several rounds."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.guard = RetentionGuard()
        self.ended = threading.Event()
        """Set once the watch is about to stop."""
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._last: Future[Any] | None = None
        self._read: tuple[Mapping[TopicPartition, int], Reading] | None = None
        """The last reading, and the offsets from which it began."""
        self.untimed_found: dict[TopicPartition, int] = {}
        """What ``untimed`` has found: its answer may be too late for its round."""

    @abstractmethod
    def totals(self, ranges: Ranges, events: Mapping[str, str]) -> tuple[list[BucketTotals], list[Any]]:
        """Sums up the committed records between offsets.

        Args:
            ranges: not empty.
            events: the kind of event of each topic whose events count.

        Returns:
            The sums, and the rows of the events.

        Raises:
            UnreachableError: the records cannot be read.
        """

    @property
    def busy(self) -> bool:
        """Whether its last question is still open."""
        return self._last is not None and not self._last.done()

    def ask(self, question: Callable[..., T], *arguments: Any) -> Future[T]:
        """Runs a question in its thread."""
        self._last = self._thread.submit(question, *arguments)
        return self._last

    def close(self) -> None:
        """Closes its clients."""
        self._thread.submit(self.close_consumer)
        self._thread.shutdown(wait=False)
        self.cluster.close()

    @abstractmethod
    def close_consumer(self) -> None:
        """Closes the client that reads records, in the reader's thread."""

    def unfit(self, topics: Collection[str], copies: Collection[str]) -> dict[str, str]:
        """Explains for each topic why its records cannot be judged by timestamp and content; empty where they can.

        Args:
            topics: topics that are mirrored, or copies.
            copies: the copies among them.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        configs = self.cluster.configs(topics)
        reasons = {}
        for topic in topics:
            settings = configs.get(topic)
            if settings is None:
                lacks = self.cluster.lacks("DescribeConfigs", topic)
                reasons[topic] = f"its cleanup policy is unknown: {lacks}"
                continue
            values = {name: settings[name].value or "" for name in _DECIDING if name in settings}
            reasons[topic] = ""
            if "compact" in values.get("cleanup.policy", ""):
                reasons[topic] = f"{topic} in {self.name} is compacted"
            elif topic in copies and values.get("message.timestamp.type") == "LogAppendTime":
                reasons[topic] = f"{topic} in {self.name} has the time of arrival"
        return reasons

    def untimed(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """How many records without a timestamp each log has: at its beginning, or else among its last records.

        Raises:
            UnreachableError: the cluster does not answer, or the records cannot be read.
        """
        if wanted := [place for place in places if place not in self.untimed_found]:
            starts, firsts = self.cluster.start_offsets(wanted), self.cluster.offsets_from(wanted, 0)
            found = {place: max(firsts[place] - start, 0) for place, start in starts.items()}
            if rest := [place for place, count in found.items() if not count]:
                ends, share = self.cluster.end_offsets(rest), self.most_offsets // len(rest)
                last = self.read_on({place: max(starts[place], ends[place] - share) for place in rest}, {})
                for one in last.totals:
                    found[TopicPartition(one.topic, one.partition)] += one.untimed
            self.untimed_found |= found
        return {place: self.untimed_found[place] for place in places}

    def read(self, wanted: Mapping[TopicPartition, int], events: Mapping[str, str]) -> Reading:
        """Reads on from these offsets; a reading that was too late for its round is reused.

        Raises:
            UnreachableError: the cluster does not answer, or the records cannot be read.
        """
        # The offsets advance once a reading has been taken.
        if self._read is None or self._read[0] != wanted or self._read[1].until == wanted:
            self._read = wanted, self.read_on(wanted, events)
        return self._read[1]

    def read_on(self, wanted: Mapping[TopicPartition, int], events: Mapping[str, str]) -> Reading:
        """Reads on from these offsets, as ``read`` does."""
        starts, ends = self.cluster.start_offsets(wanted), self.cluster.end_offsets(wanted)
        share = self.most_offsets // max(sum(ends[place] > offset for place, offset in wanted.items()), 1)
        back = tuple(place for place, offset in wanted.items() if ends[place] < offset)
        first = {place: max(offset, starts[place]) for place, offset in wanted.items() if place not in back}
        until = {place: max(min(ends[place], start + share), start) for place, start in first.items()}
        lost = {place: start - wanted[place] for place, start in first.items() if start > wanted[place]}
        ranges = {place: (start, until[place]) for place, start in first.items() if until[place] > start}
        totals, rows = self.totals(ranges, events) if ranges else ([], [])
        unread = sum(max(ends[place] - offset, 0) for place, offset in until.items())
        return Reading(starts, until, lost, back, totals, rows, unread=unread)
