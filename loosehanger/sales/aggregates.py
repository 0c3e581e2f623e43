"""Aggregates of the shop's events by region. Money is decimal; every record counts, including the shop's duplicates."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.lab.programs import SHOP_PREFIX

EVENTS = ("ORDERS", "CANCELLATIONS", "DOORS", "STOCK", "CUSTOMERS", "SENSORS")

MOST_QUANTITY, MOST_PRICE, MOST_READING = 10**9, 10**12, 10**6
"""The largest plausible number. Sums of larger ones could overflow, and Spark would fail the job for one record."""
LONGEST_NAME = 200
# Every field that the aggregates use, of all kinds of events.
_BODY = (
    "description string, region string, price decimal(18,2), quantity bigint, warehouse string, product string, "
    "temperature double, humidity double, broken string"
)
_BOUNDS = {
    "quantity": MOST_QUANTITY,
    "price": MOST_PRICE,
    "temperature": MOST_READING,
    "humidity": MOST_READING,
}
_REQUIRED = {
    "ORDERS": ("description", "region", "price", "quantity"),
    "STOCK": ("warehouse", "product", "quantity"),
    "SENSORS": ("temperature", "humidity"),
}


def topic_pattern(prefixes: Sequence[str] = (SHOP_PREFIX,)) -> str:
    """Returns what matches an event topic under any replication policy, which may add a prefix; its group is the event.

    Args:
        prefixes: what the names begin with where the events are written.
    """
    return rf"^(?:.*[._-])?(?:{'|'.join(map(re.escape, prefixes))})({'|'.join(EVENTS)})$"


def parse(records: DataFrame, topic: str | None = None) -> DataFrame:
    """Reads the events' values.

    Args:
        records: consumed_in (a region), topic, timestamp, value.
        topic: matches the event topics: see ``topic_pattern``.

    Returns:
        consumed_in, event (such as ORDERS), timestamp, body (a struct), ``readable``: whether it is a JSON object with
        the fields that its kind of event needs, of the right types, and no number that cannot be meant.
    """
    events = records.select(
        "consumed_in",
        F.regexp_extract("topic", topic or topic_pattern(), 1).alias("event"),
        "timestamp",
        body().alias("body"),
    ).where("event != ''")
    return events.withColumn("readable", readable())


def body() -> Column:
    """An event's value as a struct; over a frame with the column ``value``."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken", "allowNonNumericNumbers": "false"}
    return F.from_json(F.col("value").cast("string"), _BODY, options)


def summary(events: DataFrame) -> DataFrame:
    """Counts of each region.

    Args:
        events: as from ``parse``.

    Returns:
        consumed_in, events, first and last (in milliseconds), unreadable, orders, cancellations, units, revenue,
        stock_units, movements, readings, temperature (mean, in °C) and humidity (mean, in %).
    """
    order, stock, sensor = (F.col("readable") & (F.col("event") == name) for name in ("ORDERS", "STOCK", "SENSORS"))
    return events.groupBy("consumed_in").agg(
        F.count("*").alias("events"),
        F.unix_millis(F.min("timestamp")).alias("first"),
        F.unix_millis(F.max("timestamp")).alias("last"),
        F.count_if(~F.col("readable")).alias("unreadable"),
        F.count_if(order).alias("orders"),
        F.count_if(F.col("readable") & (F.col("event") == "CANCELLATIONS")).alias("cancellations"),
        _total(F.when(order, F.col("body.quantity"))).alias("units"),
        _total(F.when(order, revenue())).alias("revenue"),
        F.count_if(stock).alias("movements"),
        _total(F.when(stock, F.col("body.quantity"))).alias("stock_units"),
        F.count_if(sensor).alias("readings"),
        F.round(F.avg(F.when(sensor, F.col("body.temperature"))), 2).alias("temperature"),
        F.round(F.avg(F.when(sensor, F.col("body.humidity"))), 2).alias("humidity"),
    )


def orders_by(events: DataFrame, field: str) -> DataFrame:
    """Orders, units and revenue of each region, by a field of the order.

    Args:
        events: as from ``parse``.
        field: ``description`` (the product) or ``region`` (where the order came from).

    Returns:
        consumed_in, name, orders, units, revenue.
    """
    orders = events.where(F.col("readable") & (F.col("event") == "ORDERS"))
    return orders.groupBy("consumed_in", name_of(field).alias("name")).agg(
        F.count("*").alias("orders"),
        _total(F.col("body.quantity")).alias("units"),
        _total(revenue()).alias("revenue"),
    )


def best(by: DataFrame, count: int) -> DataFrame:
    """The ``count`` names with the most revenue over all regions, with every region's row for them.

    Args:
        by: as from ``orders_by``.
        count: the number of names.

    Returns:
        The rows of ``by`` for these names, with ``rank`` (1 is the most).
    """
    # Each region has its own copy of the same orders: the largest revenue counts, not the sum.
    names = by.groupBy("name").agg(F.max("revenue").alias("most")).orderBy(F.desc("most"), "name").limit(count)
    ranked = names.agg(F.collect_list("name").alias("names")).select(F.posexplode("names").alias("rank", "name"))
    return by.join(F.broadcast(ranked), "name").withColumn("rank", F.col("rank") + 1)


def name_of(field: str) -> Column:
    """A field by which events are grouped, cut to a length that can be shown."""
    return F.substring(F.col(f"body.{field}"), 1, LONGEST_NAME)


def revenue() -> Column:
    """The revenue of an order: price times quantity."""
    return (F.col("body.price") * F.col("body.quantity").cast("decimal(18,0)")).cast("decimal(38,2)")


def _total(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0).cast("long"))


def readable() -> Column:
    """Whether ``body`` is a JSON object with the fields of its kind of ``event``, and only plausible numbers."""
    found = F.col("body").isNotNull() & F.col("body.broken").isNull()
    for name, most in _BOUNDS.items():
        # Compared with both ends: the smallest long has no absolute value. NaN is more than any number.
        number = F.col(f"body.{name}")
        found = found & (number.isNull() | number.between(-most, most))
    for event, fields in _REQUIRED.items():
        complete = F.lit(True)
        for name in fields:
            complete = complete & F.col(f"body.{name}").isNotNull()
        found = found & ((F.col("event") != event) | complete)
    return F.coalesce(found, F.lit(False))
