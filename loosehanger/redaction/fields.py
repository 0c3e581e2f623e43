"""Redacts records: drops named fields of JSON values, at any depth, and named headers.

A record that cannot be redacted is not passed on, since anything might be in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql.streaming.query import StreamingQuery

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.proof.compare.isolation import has_field
from loosehanger.proof.read.batches import allow_token_endpoint

DEPTH = 4
"""The depth of nested objects and arrays to redact, including the value itself."""
MOST_RECORDS = 20_000
"""The most records in a batch, so that a stream with a large backlog needs no more memory."""
_EVERY = "1 second"
# Possessive, because Java's regular expressions would otherwise recurse for each character.
_JSON_STRING = r'"(?:[^"\\]++|\\.)*+"'
_JSON_NUMBER = r"[0-9][0-9.eE+-]*"


@dataclass(frozen=True)
class Clearing:
    """The parameters of a redaction stream."""

    source: str
    """The topic that it reads."""
    target: str
    """The topic that it writes, in the same cluster."""
    fields: tuple[str, ...]
    """Names of the fields that it drops, on any level of a value."""
    headers: tuple[str, ...]
    """Names of the headers that it drops."""


@dataclass(frozen=True)
class Batch:
    """The results of a batch of records."""

    read: int
    withheld: int
    example: str
    """The first withheld record of the lowest partition, and the reason; empty for none."""


def cleared(records: DataFrame, fields: Sequence[str], headers: Sequence[str]) -> DataFrame:
    """Redacts records.

    A value is a JSON object and comes out as one: without the fields, and with the same meaning otherwise, though not
    letter for letter (names are sorted, 20.0 becomes 20). A tombstone stays one: its key is deleted. Keys stay as they
    are.

    Args:
        records: with the columns ``value`` and ``headers`` of Spark's Kafka source, and any others.
        fields: the names to drop, of fields on any level of a value.
        headers: the names to drop, of headers.

    Returns:
        The same columns, and ``withheld``: why a record must not be passed on; null if it may.
    """
    parsed = F.when(F.is_valid_utf8("value"), F.try_parse_json(F.col("value").cast("string")))
    is_object = F.coalesce(_is(F.col("parsed"), "OBJECT"), F.lit(False))
    text = F.when(is_object, F.to_json(_without(F.col("parsed"), fields, DEPTH)))
    # Below the depth limit, or in JSON as the text of a field, a reader would still find the field.
    remains = has_field(F.col("text"), fields) if fields else F.lit(False)
    # Spark's JSON parser does not take every large number, and takes others as infinite.
    is_exact = F.try_parse_json("text").isNotNull() & ~_is_infinite("text", "value")
    withheld = (
        F.when(F.col("value").isNull(), None)
        .when(F.col("text").isNull(), "its value is not a JSON object")
        .when(~is_exact, "it has a number that is out of range")
        .when(remains, "it has such a field where it cannot be removed")
    )
    kept = F.filter("headers", lambda header: ~header["key"].isin(*headers)) if headers else F.col("headers")
    return (
        records.withColumn("parsed", parsed)
        .withColumn("text", text)
        .withColumns({"withheld": withheld, "value": F.encode("text", "UTF-8"), "headers": kept})
        .drop("parsed", "text")
    )


def _without(value: Column, fields: Sequence[str], depth: int) -> Column:
    """A variant without these fields, down to a depth."""
    if not depth or not fields:
        return value

    def inner(part: Column) -> Column:
        return _without(part, fields, depth - 1)

    members = F.map_filter(value.cast("map<string, variant>"), lambda name, _: ~name.isin(*fields))
    return (
        F.when(_is(value, "OBJECT"), F.to_variant_object(F.transform_values(members, lambda _, part: inner(part))))
        .when(_is(value, "ARRAY"), F.to_variant_object(F.transform(value.cast("array<variant>"), inner)))
        .otherwise(value)
    )


def _is_infinite(text: str, value: str) -> Column:
    """Whether a number of a JSON text was beyond a double, and was written again as the string ``"Infinity"``."""
    numbers = F.regexp_extract_all(
        F.regexp_replace(F.col(value).cast("string"), _JSON_STRING, '""'), F.lit(_JSON_NUMBER), F.lit(0)
    )
    is_beyond = F.exists(numbers, lambda number: number.try_cast("double") == F.lit(float("inf")))
    return F.when(F.col(text).rlike('"-?Infinity"'), is_beyond).otherwise(F.lit(False))


def _is(value: Column, kind: str) -> Column:
    return F.schema_of_variant(value).startswith(kind)


def check_partitions(clearing: Clearing, topics: dict[str, int]) -> str:
    """The topics or partitions that a stream still lacks; empty for none.

    Args:
        clearing: the stream.
        topics: the topics that its user sees, with their number of partitions.

    Raises:
        WrongUseError: records cannot keep their partitions.
    """
    if missing := [topic for topic in (clearing.source, clearing.target) if topic not in topics]:
        return f"there is no topic {missing[0]}, or its user may not see it"
    if topics[clearing.target] < topics[clearing.source]:
        raise WrongUseError(
            f"{clearing.target} has {topics[clearing.target]} partitions and {clearing.source} has "
            f"{topics[clearing.source]}: a record keeps its partition; give {clearing.target} as many"
        )
    return ""


def start(
    spark: SparkSession, connection: Connection, clearing: Clearing, checkpoint: Path, report: Callable[[Batch], None]
) -> StreamingQuery:
    """Starts a stream that continues from this checkpoint, or begins at the start of the source.

    Each record arrives in the partition and the order that it has at the source. Records that were in flight when a
    stream was killed are written again by the next one.

    Args:
        spark: the session.
        connection: the connection to the cluster, for both topics.
        clearing: what to do.
        checkpoint: the folder in which it keeps its positions.
        report: takes the result of each batch, after it is written.
    """
    allow_token_endpoint(spark, connection)
    client = {f"kafka.{name}": value for name, value in connection.java().items()}
    source = (
        spark.readStream.format("kafka")
        .options(**client)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", clearing.source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(MOST_RECORDS))
        .load()
        .select("key", "value", "partition", "offset", "headers")
    )

    def write(records: DataFrame, _number: int) -> None:
        first = F.min(F.when(F.col("withheld").isNotNull(), F.struct("partition", "offset", "withheld")))
        # Persisted, because it is used twice: the counted records are those that are written.
        records.persist()
        counted = records.agg(F.count("*").alias("read"), F.count("withheld").alias("withheld"), first.alias("first"))
        (row,) = counted.select("read", "withheld", "first.*").toDF("read", "withheld", "at", "offset", "why").collect()
        (
            records.where(F.col("withheld").isNull())
            .select("key", "value", "partition", "headers")
            .write.format("kafka")
            .options(**client)
            .option("topic", clearing.target)
            .option("includeHeaders", "true")
            .save()
        )
        records.unpersist()
        example = f"{clearing.source}-{row['at']} at {row['offset']}: {row['why']}" if row["withheld"] else ""
        report(Batch(row["read"], row["withheld"], example))

    return (
        cleared(source, clearing.fields, clearing.headers)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=_EVERY)
        .start()
    )
