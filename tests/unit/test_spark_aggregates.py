"""The aggregates count what the shop sent, in decimal money, and survive what cannot be read."""

from __future__ import annotations

import io
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from rich.console import Console

from loosehanger.lab.programs import event_prefixes
from loosehanger.lab.topology import Topology
from loosehanger.proof.report.tables import show_aggregates
from loosehanger.sales import aggregates, sales
from tests.odd_records import DIGITS, ODD_VALUES

from ..topologies import documents, program

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


def parsed(spark: SparkSession, events: list[tuple[str, str, bytes | None]], first_ms: int = 0) -> DataFrame:
    """The events as (region, topic, value), a second apart."""
    rows: list[tuple[Any, ...]] = [(*event, first_ms + 1000 * n) for n, event in enumerate(events)]
    frame = spark.createDataFrame(rows, "consumed_in string, topic string, value binary, timestamp long")
    return aggregates.parse(frame.withColumn("timestamp", F.timestamp_millis("timestamp")))


@pytest.mark.parametrize(
    ("topic", "event"),
    [
        ("LH.ORDERS", "ORDERS"),
        ("europe.LH.ORDERS", "ORDERS"),
        ("tenant7.WEB.ORDERS", "ORDERS"),
        ("northamerica.tenant7.WEB.STOCK", "STOCK"),
        # The point is not that of a regular expression.
        ("tenant7xWEB.ORDERS", ""),
        ("tenant7.WEB.OTHER", ""),
        ("WEB.ORDERS", ""),
        ("LH.ORDERS.CLEARED", ""),
    ],
)
def test_the_events_of_a_producer_with_another_prefix_count(topic: str, event: str) -> None:
    producers = [program("europe", "europe"), program("north-america", "north-america")]
    for made in producers:
        made["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "-m", "producer"]
    environment = producers[1]["spec"]["template"]["spec"]["containers"][0]["env"]
    environment.append({"name": "PRODUCER_PREFIX", "value": "tenant7.WEB."})
    prefixes = event_prefixes(Topology(documents(*producers)))
    assert prefixes == ("LH.", "tenant7.WEB.")
    found = re.match(aggregates.topic_pattern(prefixes), topic)
    assert (found[1] if found else "") == event


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
    assert (rows["europe"]["first"], rows["europe"]["last"]) == (0, 1000 * (len(EVENTS) - 1))
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


def test_odd_records_are_unreadable_and_end_nothing(spark: SparkSession) -> None:
    extreme = [
        json.dumps({"description": "x", "region": "EU", "warehouse": "w", "product": "p", **numbers}).encode()
        for numbers in (
            {"quantity": 2**63 - 1, "price": 1},
            {"quantity": -(2**63), "price": 1},
            {"quantity": 10**9 + 1, "price": 1},
            {"quantity": 1, "price": 10**15},
            {"quantity": 1, "price": int(DIGITS)},
            {"quantity": 9 * 10**17, "price": 1, "temperature": 20, "humidity": 40},
            {"temperature": 1e300, "humidity": 1},
            {"temperature": float("nan"), "humidity": float("-inf")},
        )
    ]
    good = order("\x1b[2J" + "x" * 5000, 1.5, 2)
    odd = [*ODD_VALUES, *extreme * 12]
    events = parsed(spark, [("na", f"LH.{event}", value) for event in aggregates.EVENTS for value in [*odd, good]])
    (row,) = aggregates.summary(events).collect()
    found = row.asDict()
    assert found["events"] == len(aggregates.EVENTS) * (len(odd) + 1)
    assert (found["orders"], found["units"], found["revenue"]) == (1, 2, Decimal("3.00"))
    # One of the odd values is a reading, but for the time in it.
    assert (found["stock_units"], found["temperature"], found["humidity"]) == (0, 2.0, 3.0)
    (by_product,) = aggregates.best(aggregates.orders_by(events, "description"), 10).collect()
    assert len(by_product.name) == aggregates.LONGEST_NAME
    json.dumps(found | {"revenue": 0}, allow_nan=False)


def test_sums_of_the_largest_numbers_overflow_nothing(spark: SparkSession) -> None:
    largest = json.dumps({"description": "x", "region": "EU", "quantity": 10**9, "price": 10**12}).encode()
    (row,) = aggregates.summary(parsed(spark, [("na", "LH.ORDERS", largest)] * 50)).collect()
    assert (row.units, row.revenue) == (50 * 10**9, Decimal(50 * 10**21))


def test_events_dated_after_the_year_9999_are_summed_up(spark: SparkSession) -> None:
    events = parsed(spark, [("europe", *event) for event in EVENTS[:2]], first_ms=300_000_000_000_000)
    (row,) = aggregates.summary(events).collect()
    fields = sales._fields(row)
    assert fields["orders"] == 2
    assert fields["first"] == "+11476-08-15T05:20:00.000+00:00"
    assert fields["last"] == "+11476-08-15T05:20:01.000+00:00"
    shown = io.StringIO()
    by_name: dict[str, list[Any]] = {"by_product": [], "by_region": []}
    show_aggregates({"regions": {"europe": fields | by_name}}, Console(file=shown, width=100))
    assert "+11476-08-15 05:20:01" in shown.getvalue()
