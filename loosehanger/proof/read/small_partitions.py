"""Partitions with few records each, read by a single client into a file of the job's folder.

Spark's source has a consumer for each partition, with a connection, a handshake and a sign-in of its own, and a task.
For a thousand partitions that takes minutes, and over a long way hours. One client reads them all in a few requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.connection import Connection
from loosehanger.proof.read.fetching import DoubtError, RecordFetcher, append, frame_of_file, new_file
from loosehanger.proof.session import small_frame

_MOST_OFFSETS = 2_000
"""Of a partition. Beyond it a consumer of its own, in Java, is quicker."""
_MOST_IN_ALL = 2_000_000
_AT_ONCE = 100_000
"""Offsets that are read together, and held in memory."""
_MOST_BYTES = 64 * 1024 * 1024
"""The most that is read at once, of keys, values and headers."""
_MOST_IN_FILE = 512 * 1024 * 1024
"""Bytes of the file, beyond which no more is read into it."""
_MOST_FAILURES = 2
_BOUNDS = "topic string, partition int, start long, end long"
_WHOLE = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
Ranges = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True)
class SmallPartitions:
    """Records in a file."""

    file: Path | None = None
    """None where there are no partitions."""
    ranges: Ranges = field(default_factory=dict)
    """First offset and end (exclusive) of each partition whose records are in the file, all of them."""

    @classmethod
    def read(cls, connection: Connection, ranges: Ranges) -> SmallPartitions:
        """Reads the committed records of those of these partitions that have few.

        What a single client cannot read for certain, as ``RecordFetcher`` knows it, is left out: Spark reads it.

        Args:
            connection: the way into the cluster.
            ranges: first offset and end (exclusive) of each partition.
        """
        chosen = _smallest(ranges)
        if not chosen:
            return cls()
        file, failures = new_file(), 0
        there: dict[TopicPartition, tuple[int, int]] = {}
        with closing(RecordFetcher(connection)) as fetcher:
            for chunk in _chunks(chosen):
                try:
                    found = fetcher.fetch_undoubted(chunk, _MOST_BYTES)
                except DoubtError:
                    failures += 1
                    if failures == _MOST_FAILURES:
                        break
                    continue
                append(file, found)
                there.update((place, chunk[place]) for place in found)
                if file.stat().st_size > _MOST_IN_FILE:
                    break
        return cls(file, there)

    def covers(self, place: TopicPartition, offsets: tuple[int, int]) -> bool:
        """Whether all records of these offsets are in the file."""
        start, end = self.ranges.get(place, (0, 0))
        return place in self.ranges and start <= offsets[0] and offsets[1] <= end

    def frame(self, spark: SparkSession, ranges: Ranges) -> DataFrame:
        """The records of these offsets, which it covers: a frame of ``RECORD_SCHEMA``, each partition in order."""
        assert self.file is not None
        records = frame_of_file(spark, self.file)
        if ranges == self.ranges:
            return records
        rows = [(place.topic, place.partition, *offsets) for place, offsets in ranges.items()]
        wanted = F.broadcast(small_frame(spark, rows, _BOUNDS))
        within = (F.col("offset") >= F.col("start")) & (F.col("offset") < F.col("end"))
        return records.join(wanted, ["topic", "partition"]).where(within).select(*_WHOLE)


def _smallest(ranges: Ranges) -> Ranges:
    """The partitions with few records, the smallest first, as far as they are few together."""
    chosen: dict[TopicPartition, tuple[int, int]] = {}
    in_all = 0
    for place, (start, end) in sorted(ranges.items(), key=lambda item: item[1][1] - item[1][0]):
        in_all += end - start
        if end - start > _MOST_OFFSETS or in_all > _MOST_IN_ALL:
            break
        chosen[place] = (start, end)
    return chosen


def _chunks(ranges: Ranges) -> Iterator[Ranges]:
    chunk: dict[TopicPartition, tuple[int, int]] = {}
    size = 0
    for place, (start, end) in ranges.items():
        if chunk and size + end - start > _AT_ONCE:
            yield chunk
            chunk, size = {}, 0
        chunk[place], size = (start, end), size + end - start
    if chunk:
        yield chunk
