"""SHA-256 of each partition's records in the order of their offsets, for signed evidence.

The sums of ``fingerprints`` find accidents. A forger could make other records with the same sums, but not with the same
digests. Three levels, none of which depends on how the records were shared among tasks:

* A **record**: SHA-256 of the fields offset, timestamp (milliseconds since 1970), key and value, and then of each
  header its name (UTF-8) and its value. A field is its length in bytes in decimal digits, a colon, and the bytes;
  numbers are decimal digits. A null is ``-`` alone, so it differs from an empty field.
* A **chunk**: all records of a partition whose offsets have the same quotient when divided by the chunk's size, which
  is its number. SHA-256 of the hexadecimal digests (lower case, without separators) of its records, in the order of
  offsets. A chunk without records has no digest.
* A **partition**: SHA-256 of a line ``NUMBER RECORDS DIGEST`` and a line feed for each of its chunks, in order.

Only committed records count. ``chunks`` has the same definition in plain Python.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafka import TopicPartition
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.proof.compare.chunks import Chunk, partition_digest
from loosehanger.proof.read.batches import Ranges
from loosehanger.proof.read.records import PLACE, framed

_MOST_CHUNKS = 16_384
"""The most chunks of a proof: about 1.5 MB of evidence."""
Place = tuple[str, TopicPartition]
"""A partition of a region's topic."""


@dataclass(frozen=True)
class PartitionDigest:
    """What stands for the records of a partition."""

    start: int
    """The first offset that was read."""
    end: int
    """The end of the offsets that were read (exclusive)."""
    chunks: tuple[Chunk, ...]

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(records for _, records, _ in self.chunks)

    @property
    def sha256(self) -> str:
        """The digest of the partition."""
        return partition_digest(self.chunks)


@dataclass
class Digests:
    """The digests of all partitions that were compared, as far as they are wanted."""

    size: int = 0
    """How many offsets a chunk has at most; 0 until it is known."""
    partitions: dict[Place, PartitionDigest] = field(default_factory=dict)

    def fit(self, offsets: int) -> None:
        """Chooses the size of chunks for so many offsets, unless it is chosen already."""
        self.size = self.size or chunk_size(offsets)

    def take(self, frame: DataFrame, ranges: Mapping[str, Ranges], places: Collection[Place] | None = None) -> None:
        """Adds partitions.

        Args:
            frame: as from ``chunk_digests``.
            ranges: the offsets that were read, by region.
            places: those of the partitions whose records are all in the frame; None for each of them.
        """
        found: dict[Place, list[Chunk]] = {
            (region, partition): []
            for region, offsets in ranges.items()
            for partition in offsets
            if places is None or (region, partition) in places
        }
        for row in frame.collect():
            place = row.region, TopicPartition(row.topic, row.partition)
            if place in found:
                found[place].append((row.chunk, row.records, row.digest))
        for (region, partition), chunks in found.items():
            start, end = ranges[region][partition]
            self.partitions[region, partition] = PartitionDigest(start, end, tuple(sorted(chunks)))


def chunk_size(offsets: int) -> int:
    """Returns how many offsets a chunk has: 1 for a few thousand records, so that each can be named."""
    size = 1
    while offsets > size * _MOST_CHUNKS:
        size *= 2
    return size


def record_digest() -> Column:
    """The digest of a record, in hexadecimal, over a frame of ``records.RECORD_SCHEMA``."""
    numbers = (F.col("offset"), F.unix_millis("timestamp"))
    parts = [
        *(framed(number.cast("string").cast("binary")) for number in numbers),
        *(framed(F.col(name)) for name in ("key", "value")),
        F.coalesce(F.aggregate("headers", F.lit(b""), _with_header), F.lit(b"")),
    ]
    return F.sha2(F.concat(*parts), 256)


def chunk_of(size: int) -> Column:
    """The number of the chunk that a record is in."""
    return F.expr(f"offset div {size}")


def chunk_digests(collected: DataFrame) -> DataFrame:
    """The digests of the chunks.

    Args:
        collected: for each region, topic, partition and chunk, and any further grouping, ``digests``: a list of
            structures of offset and digest.

    Returns:
        region, topic, partition, chunk, records and digest.
    """
    whole = collected.groupBy(*PLACE, "chunk").agg(F.sort_array(F.flatten(F.collect_list("digests"))).alias("digests"))
    return whole.select(
        *PLACE,
        "chunk",
        F.size("digests").alias("records"),
        F.sha2(F.array_join("digests.digest", "").cast("binary"), 256).alias("digest"),
    )


def digests_of(records: DataFrame, size: int) -> DataFrame:
    """As ``chunk_digests``, for records that are read for nothing else.

    Args:
        records: a frame of ``records.RECORD_SCHEMA``, and region.
        size: how many offsets a chunk has.
    """
    rows = records.select(*PLACE, chunk_of(size).alias("chunk"), "offset", record_digest().alias("digest"))
    listed = rows.groupBy(*PLACE, "chunk").agg(F.collect_list(F.struct("offset", "digest")).alias("digests"))
    return chunk_digests(listed)


def _with_header(found: Column, header: Column) -> Column:
    return F.concat(found, framed(header["key"].cast("binary")), framed(header["value"]))
