"""Kafka records as frames: what a record is made of, and the fingerprint that stands for its content."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
"""What Spark's Kafka source gives, without the timestamp's type."""


def fingerprint() -> Column:
    """SHA-256 of a record's content: key, value, timestamp and headers.

    Every part is framed by its length, and null differs from empty, so two records have the same fingerprint only if
    they are the same. Headers count in their order, with repeated keys and null values.

    Returns:
        A binary column of 32 bytes, over a frame of ``RECORD_SCHEMA``.
    """
    timestamp = F.unix_millis("timestamp").cast("string").cast("binary")
    # JSON tells everything about headers apart: text is escaped, bytes are base64, null values are left out.
    headers = F.to_json("headers", {"ignoreNullFields": "true"}).cast("binary")
    content = F.concat(_framed(F.col("key")), _framed(F.col("value")), _framed(timestamp), _framed(headers))
    return F.unhex(F.sha2(content, 256))


def header(name: str) -> Column:
    """The value of a record's first header of this name as text, null without one."""
    position = F.nullif(F.array_position("headers.key", name), F.lit(0)).cast("int")
    return F.try_element_at(F.col("headers.value"), position).cast("string")


def contents(records: DataFrame) -> DataFrame:
    """What the comparison needs of each record, and no more.

    Args:
        records: a frame of ``RECORD_SCHEMA``.

    Returns:
        topic, partition, offset, fingerprint; run (a hash) and seq of the event's headers, or null.
    """
    return records.select(
        "topic",
        "partition",
        "offset",
        fingerprint().alias("fingerprint"),
        F.when(F.col("headers").isNotNull(), F.xxhash64(header("lh-run"))).alias("run"),
        header("lh-seq").try_cast("long").alias("seq"),
    )


def identities(records: DataFrame) -> DataFrame:
    """What tells which record it is, whatever happened to its content.

    Args:
        records: a frame of ``RECORD_SCHEMA``.

    Returns:
        topic, partition, offset, and ``record``: a struct of offset, key, timestamp, run and seq.
    """
    return records.select(
        "topic",
        "partition",
        "offset",
        F.struct("offset", "key", "timestamp", header("lh-run").alias("run"), header("lh-seq").alias("seq")).alias(
            "record"
        ),
    )


def _framed(part: Column) -> Column:
    length = F.octet_length(part).cast("string").cast("binary")
    return F.coalesce(F.concat(length, F.lit(b":"), part), F.lit(b"-"))
