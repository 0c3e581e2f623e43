"""Kafka records as frames: what a record is made of, and the hashes that stand for its content."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.headers import RUN, SEQ
from loosehanger.proof.read.buckets import BUCKET_MS as BUCKET_MS

RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
"""What Spark's Kafka source gives, without the timestamp's type."""
FLOW = ("flow",)
"""The number of a flow among those that are compared."""
FLOW_PARTITION = (*FLOW, "partition")
PLACE = ("region", "topic", "partition")
"""A partition of a region's topic."""
IDENTITY = (
    "struct<partition: int, offset: bigint, key: binary, timestamp: bigint, run: string, seq: string, payload: bigint>"
)
"""The identity of a record, whatever happened to its content; its timestamp in milliseconds, -1 for none; and a hash of
key, value and headers."""


def bucket() -> Column:
    """The bucket of time that a record lies in, by its own timestamp."""
    return F.expr(f"unix_millis(timestamp) div {BUCKET_MS}")


def hashes() -> tuple[Column, Column]:
    """Two independent 64-bit hashes of a record's content: key, value, timestamp and headers.

    A null leaves a hash as it was, so the numbers between the parts separate them. Headers count in their
    order, with repeated keys and null values.
    """
    parts = (F.lit(1), F.col("key"), F.lit(2), F.col("value"), F.unix_millis("timestamp"), _headers())
    return F.xxhash64(*parts), F.xxhash64(F.lit(0), *parts)


def fingerprint() -> Column:
    """SHA-256 of a record's content: key, value, timestamp and headers.

    Every part is framed by its length, and null differs from empty, so two records have the same fingerprint only if
    they are the same. Headers count in their order, with repeated keys and null values.

    Returns:
        A binary column of 32 bytes, over a frame of ``RECORD_SCHEMA``.
    """
    timestamp = F.unix_millis("timestamp").cast("string").cast("binary")
    content = F.concat(
        framed(F.col("key")), framed(F.col("value")), framed(timestamp), framed(_headers().cast("binary"))
    )
    return F.unhex(F.sha2(content, 256))


def header(name: str) -> Column:
    """The value of a record's first header of this name as text, null without one."""
    position = F.nullif(F.array_position("headers.key", name), F.lit(0)).cast("int")
    return F.try_element_at(F.col("headers.value"), position).cast("string")


def contents(records: DataFrame) -> DataFrame:
    """What the comparison record by record needs.

    Args:
        records: a frame of ``RECORD_SCHEMA``, and region.

    Returns:
        region, topic, partition, bucket, fingerprint, tombstone (whether the value is null), and ``record`` (of the
        type ``IDENTITY``).
    """
    return records.select(
        *PLACE,
        bucket().alias("bucket"),
        fingerprint().alias("fingerprint"),
        F.col("value").isNull().alias("tombstone"),
        F.struct(
            *("partition", "offset", "key"),
            F.unix_millis("timestamp").alias("timestamp"),
            header(RUN).alias("run"),
            header(SEQ).alias("seq"),
            F.xxhash64(*_payload()).alias("payload"),
        ).alias("record"),
    )


def _payload() -> tuple[Column, ...]:
    return F.lit(1), F.col("key"), F.lit(2), F.col("value"), F.lit(3), _headers()


def _headers() -> Column:
    # Different headers give different JSON: text is escaped, bytes are base64, null values are left out.
    return F.to_json("headers", {"ignoreNullFields": "true"})


def framed(part: Column) -> Column:
    """A binary part with its length before it, and what differs from all of these for null."""
    length = F.octet_length(part).cast("string").cast("binary")
    return F.coalesce(F.concat(length, F.lit(b":"), part), F.lit(b"-"))
