"""The aggregates count what the shop sent, in decimal money, and survive what nobody can read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline import aggregates

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SKINNY, WIDE = "M Blue Skinny Jeans", "L Black Wide Jeans"


def order(product: str, price: float, quantity: int, region: str = "EU") -> bytes:
    """An order's value."""
    body = {"id": "1", "description": product, "price": price, "quantity": quantity, "region": region}
    return json.dumps(body).encode()


ORDERS = [order(SKINNY, 19.99, 3), order(SKINNY, 0.1, 1), order(SKINNY, 0.2, 1, "NA"), order(WIDE, 59.99, 2)]
EVENTS: list[tuple[str, bytes | None]] = [
    *(("LH.ORDERS", value) for value in ORDERS),
    ("LH.ORDERS", ORDERS[1]),
    ("LH.CANCELLATIONS", b'{"id": "c", "orderid": "1"}'),
    ("LH.STOCK", b'{"warehouse": "Antwerp", "product": "x", "quantity": 120}'),
    ("LH.SENSORS", b'{"sensorid": "s", "temperature": 20.5, "humidity": 41}'),
    ("LH.SENSORS", b'{"sensorid": "s", "temperature": 21.5, "humidity": 44}'),
    ("LH.DOORS", b'{"door": "A-1-10"}'),
    ("LH.CUSTOMERS", b'{"customername": "n"}'),
]
MALFORMED: list[bytes | None] = [
    None,
    b"",
    b"not json",
    b"\xff\xfe",
    b"[1]",
    b'"text"',
    b'{"description": "x"',
    b'{"description": "x", "region": "EU", "price": "dear", "quantity": 1}',
    b'{"description": "x", "region": "EU", "price": 1.00}',
]


def parsed(spark: SparkSession, events: list[tuple[str, str, bytes | None]]) -> DataFrame:
    """The events as (region, topic, value), a second apart."""
    rows: list[tuple[Any, ...]] = [(*event, datetime.fromtimestamp(n, UTC)) for n, event in enumerate(events)]
    frame = spark.createDataFrame(rows, "consumed_in string, topic string, value binary, timestamp timestamp")
    return aggregates.parse(frame)


def test_each_region_is_summed_up(spark: SparkSession) -> None:
    here = [("europe", topic, value) for topic, value in EVENTS]
    there = [("na", f"europe.{topic}", value) for topic, value in EVENTS[:2]]
    malformed = [("na", "europe.LH.ORDERS", value) for value in MALFORMED]
    others = [("na", "heartbeats", b"{}"), ("na", "LH.OTHER", b"{}")]
    events = parsed(spark, [*here, *there, *malformed, *others]).persist()

    rows = {row.consumed_in: row.asDict() for row in aggregates.summary(events).collect()}
    assert rows["europe"] | {"first": None, "last": None} == {
        "consumed_in": "europe",
        "events": 11,
        "first": None,
        "last": None,
        "unreadable": 0,
        "orders": 5,
        "cancellations": 1,
        "units": 8,
        "revenue": Decimal("180.35"),
        "movements": 1,
        "stock_units": 120,
        "readings": 2,
        "temperature": 21.0,
        "humidity": 42.5,
    }
    assert (rows["europe"]["last"] - rows["europe"]["first"]).total_seconds() == len(EVENTS) - 1
    assert rows["na"]["events"] == 2 + len(MALFORMED)
    assert rows["na"]["unreadable"] == len(MALFORMED)
    assert rows["na"]["revenue"] == Decimal("60.07")

    by_product = aggregates.orders_by(events, "description").collect()
    assert {(row.consumed_in, row.name, row.orders, row.units, row.revenue) for row in by_product} == {
        ("europe", SKINNY, 4, 6, Decimal("60.37")),
        ("europe", WIDE, 1, 2, Decimal("119.98")),
        ("na", SKINNY, 2, 4, Decimal("60.07")),
    }
    by_region = aggregates.orders_by(events, "region").where("consumed_in = 'europe'").collect()
    assert {(row.name, row.revenue) for row in by_region} == {("EU", Decimal("180.15")), ("NA", Decimal("0.20"))}

    best = aggregates.best(aggregates.orders_by(events, "description"), 1).collect()
    assert [(row.consumed_in, row.name, row["rank"]) for row in best] == [("europe", WIDE, 1)]
    events.unpersist()
