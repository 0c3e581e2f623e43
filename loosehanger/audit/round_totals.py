"""The totals of the records that a round has read: one pass, one small frame. Pure transforms.

A row sums up the records of one partition, ten seconds of record time, and one name by which the shop's events are
counted. The audit needs the fingerprints, the pages need the events. Reading costs most, so one pass computes both.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.patches import NO_TIME
from loosehanger.proof.compare.fingerprints import CONTENT, halves
from loosehanger.proof.read.records import bucket, hashes
from loosehanger.sales import aggregates

_NAMES = {"ORDERS": "description", "STOCK": "warehouse"}
"""The field by which an event is counted, besides its kind."""
# The bytes that Kafka stores for a record besides key, value and headers.
_OVERHEAD = 12


def tally(records: DataFrame, events: Mapping[str, str]) -> DataFrame:
    """The sums over the records.

    Args:
        records: a frame of ``records.RECORD_SCHEMA``, of one region.
        events: the kind of event of each topic whose events count.

    Returns:
        topic, partition, bucket, event (empty for records that are none) and name (an order's product, a stock
        movement's warehouse, else empty); records, content_0 to 3 (sums, as in ``fingerprints``), first and last
        (offsets), bytes, untimed (how many have no timestamp); and of events unreadable, units, revenue, readings,
        temperature and humidity (sums).
    """
    pairs = [part for topic, event in events.items() for part in (F.lit(topic), F.lit(event))]
    event = F.coalesce(F.try_element_at(F.create_map(*pairs), F.col("topic")), F.lit("")) if pairs else F.lit("")
    rows = records.select(
        *("topic", "partition", "offset"),
        bucket().alias("bucket"),
        (F.unix_millis("timestamp") == NO_TIME).alias("untimed"),
        *(hashed.alias(f"hash_{number}") for number, hashed in enumerate(hashes())),
        (_size("key") + _size("value") + F.lit(_OVERHEAD)).alias("size"),
        event.alias("event"),
        F.when(event != "", aggregates.body()).alias("body"),
    ).withColumn("readable", aggregates.readable())
    readable = F.col("readable")
    name = F.lit("")
    for kind, field in _NAMES.items():
        name = F.when(readable & (F.col("event") == kind), aggregates.name_of(field)).otherwise(name)
    order, sensor = (readable & (F.col("event") == kind) for kind in ("ORDERS", "SENSORS"))
    return rows.groupBy("topic", "partition", "bucket", "event", name.alias("name")).agg(
        F.count("*").alias("records"),
        *(F.sum(half).alias(name) for name, half in zip(CONTENT, halves(), strict=True)),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.sum("size").alias("bytes"),
        F.count_if("untimed").alias("untimed"),
        F.count_if(~readable).alias("unreadable"),
        _total(F.when(readable, F.col("body.quantity")), "long").alias("units"),
        _total(F.when(order, aggregates.revenue()), "decimal(38,2)").alias("revenue"),
        F.count_if(sensor).alias("readings"),
        _total(F.when(sensor, F.col("body.temperature")), "double").alias("temperature"),
        _total(F.when(sensor, F.col("body.humidity")), "double").alias("humidity"),
    )


def _size(column: str) -> Column:
    return F.coalesce(F.octet_length(column), F.lit(0))


def _total(column: Column, type_: str) -> Column:
    return F.coalesce(F.sum(column), F.lit(0).cast(type_)).cast(type_)
