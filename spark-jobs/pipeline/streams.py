"""What the watch makes of the records as they come: events by the minute, and what became of each record's copies.

Only pure transforms of (streaming) frames; ``watching`` starts the queries.

**Two times.** *Event time* is the record's timestamp: the minute that an event counts in. *Sighting time*, ``seen``, is
the batch in which the watch read a record: what ages are measured in. Timestamps cannot do that: a producer may set
them years off, MM2 keeps them however late it copies, and a record behind the watermark would be dropped unjudged.

**Why a left semi join.** Each record is looked for among the copies by a stream-stream join on its content, bounded by
the time between the two sightings. A full outer join would name the records that stay alone, but gives a row for each
*pair*: a mirror that repeats itself after a crash, or two equal records, would count twice. The semi join lets a record
through once, when its first copy is seen, before or after a restart. The rest is arithmetic: what was seen, less what
was copied, is in flight, overdue or missing, by its age. ``applyInPandasWithState`` and its successor could do both, in
Python workers that cost far more than the join, and with two more packages to install.

**Watermarks.** Spark takes the latest time of each of the join's inputs, never one for each partition, and the minimum
of both (``spark.sql.streaming.multipleWatermarkPolicy``). So an idle partition holds nothing up, but a mirror that
stopped would: no copy, no progress, and state that grows for ever. The policy ``max`` would only move the trouble to an
idle producer. Here a *tick*, a row for each batch, goes into both inputs: time goes on, whoever is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from pipeline import aggregates
from pipeline.records import fingerprint

RECORD, COPIED, COPY, TICK = "record", "copied", "copy", "tick"
"""Kinds of news: a source record was seen, and its copy was; a copy was seen; a batch was run."""

# The clock may be set back by as much without a record being taken for late.
_SLACK_S = 5
_NAMES = {"ORDERS": "description", "STOCK": "warehouse"}


class Flow(NamedTuple):
    """What a mirror copies: one topic, from one region to another."""

    source: str
    target: str
    topic: str
    target_topic: str


def activity(records: DataFrame, lateness_s: float) -> DataFrame:
    """The events of each minute, by event time. Minutes stay open for events that come late.

    Args:
        records: region, topic, timestamp, value, seen.
        lateness_s: how much older than the newest event an event may be, in seconds; older ones are dropped.

    Returns:
        minute, region, event, name (an order's product, a stock movement's warehouse, else empty), events, unreadable,
        units, revenue, temperature and humidity (means). For an output mode of update: a row replaces its predecessor.
    """
    # A timestamp in the future would carry the watermark with it, and make every other event late.
    dated = records.withColumn("timestamp", F.least("timestamp", "seen")).withColumnRenamed("region", "consumed_in")
    events = aggregates.parse(dated).withWatermark("timestamp", f"{lateness_s} seconds")
    readable = F.col("readable")
    name = F.lit("")
    for event, field in _NAMES.items():
        name = F.when(readable & (F.col("event") == event), F.col(f"body.{field}")).otherwise(name)
    order, sensor = (readable & (F.col("event") == event) for event in ("ORDERS", "SENSORS"))
    price, quantity = F.col("body.price"), F.col("body.quantity")
    revenue = (price * quantity.cast("decimal(18,0)")).cast("decimal(38,2)")
    return (
        events.groupBy(
            F.window("timestamp", "1 minute").alias("window"),
            F.col("consumed_in").alias("region"),
            "event",
            name.alias("name"),
        )
        .agg(
            F.count("*").alias("events"),
            F.count_if(~readable).alias("unreadable"),
            F.coalesce(F.sum(F.when(readable, quantity)), F.lit(0).cast("long")).alias("units"),
            F.coalesce(F.sum(F.when(order, revenue)), F.lit(0)).cast("decimal(38,2)").alias("revenue"),
            F.avg(F.when(sensor, F.col("body.temperature"))).alias("temperature"),
            F.avg(F.when(sensor, F.col("body.humidity"))).alias("humidity"),
        )
        .select(F.col("window.start").alias("minute"), "*")
        .drop("window")
    )


def track(records: DataFrame, ticks: DataFrame, flows: Iterable[Flow], missing_after_s: float) -> DataFrame:
    """The news of every flow: records that were seen, those whose copy was seen, and copies.

    Args:
        records: a frame of ``RECORD_SCHEMA`` with region and seen, over all regions.
        ticks: ``value`` (a number that is another in each batch) and seen.
        flows: what is mirrored.
        missing_after_s: a copy that is seen more than that after its record, in seconds, is not taken for its copy;
            nor one that is seen more than that before it, since a region that is a source and a target is not read at
            one instant with the others, and a batch may take long.

    Returns:
        kind, source, target, topic, seen (of ``COPIED``: when the record itself was seen). For an output mode of
        append; each record and each copy gives one row of its kind, each record that was copied one more.
    """
    flows = list(flows)
    sent = _sightings(records, flows, lambda flow: (flow.source, flow.topic))
    copies = _sightings(records, flows, lambda flow: (flow.target, flow.target_topic))
    left = _timed(sent, ticks, "record")
    right = _timed(copies, ticks, "copy")
    matched = left.join(
        right.select("copy_content", "copy_seen"),
        (F.col("copy_content") == F.col("record_content"))
        & (F.col("copy_seen") >= F.col("record_seen") - _interval(missing_after_s))
        & (F.col("copy_seen") <= F.col("record_seen") + _interval(missing_after_s)),
        "left_semi",
    ).select(*(F.col(f"record_{name}").alias(name) for name in ("source", "target", "topic", "seen")))
    nowhere = (F.lit("").alias(name) for name in ("source", "target", "topic"))
    return (
        _news(copies, COPY)
        .union(_news(sent, RECORD))
        .union(_news(matched, COPIED))
        .union(_news(ticks.select(*nowhere, "seen"), TICK))
    )


def tally(news: DataFrame) -> DataFrame:
    """How many pieces of news of each kind there are.

    Args:
        news: as from ``track``, of one batch.

    Returns:
        kind, source, target, topic, seen, count.
    """
    return news.groupBy("kind", "source", "target", "topic", "seen").count()


def _sightings(records: DataFrame, flows: list[Flow], side: Callable[[Flow], tuple[str, str]]) -> DataFrame:
    wanted: dict[tuple[str, str], list[Column]] = {}
    for flow in flows:
        names = (F.lit(name).alias(field) for field, name in flow._asdict().items() if field != "target_topic")
        wanted.setdefault(side(flow), []).append(F.struct(*names))
    regions = sorted({region for region, _ in wanted})
    pairs = (part for place, found in wanted.items() for part in (F.lit("\0".join(place)), F.array(*found)))
    found = F.try_element_at(F.create_map(*pairs), F.concat_ws("\0", "region", "topic"))
    # The regions are literals in the plan, so this spares reading those that have no part in it.
    here = records.where(F.col("region").isin(regions)).withColumn("flow", F.explode(found))
    place = F.concat_ws("\0", "flow.source", "flow.target", "flow.topic", F.col("partition").cast("string"))
    content = F.concat(fingerprint(), place.cast("binary"))
    return here.select("flow.source", "flow.target", "flow.topic", "seen", content.alias("content"))


def _timed(sightings: DataFrame, ticks: DataFrame, side: str) -> DataFrame:
    # A tick's content is no constant: the optimizer would see that it matches nothing, and leave the ticks out.
    tick = ticks.select(
        *(F.lit("").alias(name) for name in ("source", "target", "topic")),
        "seen",
        F.concat(F.lit(f"{side} "), F.col("value").cast("string")).cast("binary").alias("content"),
    )
    # New names, and so new columns: else the join would read each region a second time, from offsets of its own.
    named = sightings.unionByName(tick)
    return named.select(*(F.col(name).alias(f"{side}_{name}") for name in named.columns)).withWatermark(
        f"{side}_seen", f"{_SLACK_S} seconds"
    )


def _news(rows: DataFrame, kind: str) -> DataFrame:
    return rows.select(F.lit(kind).alias("kind"), "source", "target", "topic", "seen")


def _interval(seconds: float) -> Column:
    return F.expr(f"INTERVAL {round(seconds * 1000)} MILLISECONDS")
