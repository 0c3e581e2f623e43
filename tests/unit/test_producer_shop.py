"""The shop's events: their shapes, what belongs together, and that a seed repeats them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from producer import words
from producer.shop import TOPICS, Event, Shop, events_per_second, sensor_timestamp, timestamp

OPENED_MS = 1_763_715_600_000  # 2025-11-21 09:00:00 UTC
DAY = 86_400.0
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
PLACE = r"(A|B|DM|DE|G|H)-[0-3]-"
PRODUCT = re.compile(rf"({'|'.join(words.SIZES)}) ({'|'.join(words.MATERIALS)}) ({'|'.join(words.STYLES)}) Jeans")


class Happened(NamedTuple):
    at_ms: int
    event: Event
    body: dict[str, Any]


def run(seconds: float, seed: int = 1, topics: tuple[str, ...] = TOPICS) -> list[Happened]:
    """What happens in so many seconds of shop time, with a clock that is right for each step."""
    shop = Shop(seed, topics=topics)
    happened = []
    while shop.due < seconds:
        now_ms = OPENED_MS + int(shop.due * 1000)
        happened += [Happened(now_ms, event, json.loads(event.value)) for event in shop.step(now_ms)]
    return happened


@pytest.fixture(scope="module")
def two_days() -> list[Happened]:
    return run(2 * DAY)


def of(happened: list[Happened], topic: str) -> list[Happened]:
    return [one for one in happened if one.event.topic == topic]


def when(text: str) -> int:
    """The epoch milliseconds of a T1 time."""
    return round(datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp() * 1000)


def test_a_seed_repeats_every_byte_and_another_does_not() -> None:
    first = run(3600)
    assert first == run(3600)
    assert first != run(3600, seed=2)


def test_times_have_the_shops_formats() -> None:
    assert timestamp(OPENED_MS + 7) == "2025-11-21 09:00:00.007"
    assert sensor_timestamp(OPENED_MS + 999) == "Fri Nov 21 09:00:00 UTC 2025"


def test_orders_have_their_shape(two_days: list[Happened]) -> None:
    for at_ms, event, body in of(two_days, "ORDERS"):
        assert list(body) == [
            "id", "customer", "customerid", "description", "price", "quantity", "region", "ordertime",
        ]  # fmt: skip
        assert event.key == body["id"]
        assert UUID.fullmatch(body["id"])
        assert UUID.fullmatch(body["customerid"])
        assert PRODUCT.fullmatch(body["description"])
        assert 5.0 <= body["price"] <= 59.99
        assert round(body["price"], 2) == body["price"]
        assert 1 <= body["quantity"] <= 10
        assert body["region"] == "EU"
        assert when(body["ordertime"]) == at_ms


def test_cancellations_have_their_shape_and_follow_their_order(two_days: list[Happened]) -> None:
    ordered = {body["id"]: at_ms for at_ms, _, body in of(two_days, "ORDERS")}
    cancellations = of(two_days, "CANCELLATIONS")
    assert len({body["orderid"] for _, _, body in cancellations}) == len(cancellations) > 200
    for at_ms, event, body in cancellations:
        assert list(body) == ["id", "orderid", "canceltime", "reason"]
        assert event.key == body["id"]
        assert body["reason"] in ("CHANGEDMIND", "BADFIT")
        assert when(body["canceltime"]) == at_ms
        assert 300_000 <= at_ms - ordered[body["orderid"]] <= 7_200_001


def test_doors_have_their_shape_and_come_late(two_days: list[Happened]) -> None:
    lateness = []
    for at_ms, event, body in of(two_days, "DOORS"):
        assert list(body) == ["recordid", "door", "employee", "badgetime"]
        assert event.key == body["recordid"]
        match = re.fullmatch(PLACE + r"(\d\d)", body["door"])
        assert match
        assert 10 <= int(match[2]) <= 60
        assert re.fullmatch(r"[a-z]+\.[a-z]+", body["employee"])
        lateness.append(at_ms - when(body["badgetime"]))
    assert min(lateness) >= 0
    assert 170_000 < max(lateness) <= 180_000
    assert any(later < earlier for earlier, later in pairwise(body["badgetime"] for *_, body in of(two_days, "DOORS")))


def test_sensors_have_their_shape_and_come_late(two_days: list[Happened]) -> None:
    lateness = []
    for at_ms, event, body in of(two_days, "SENSORS"):
        assert list(body) == ["sensortime", "sensorid", "temperature", "humidity"]
        assert event.key == body["sensorid"]
        match = re.fullmatch(PLACE + r"(\d\d)", body["sensorid"])
        assert match
        assert 10 <= int(match[2]) <= 30
        assert 19.5 <= body["temperature"] <= 23.5
        assert round(body["temperature"], 1) == body["temperature"]
        assert 41 <= body["humidity"] <= 59
        at = datetime.strptime(body["sensortime"], "%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC)
        lateness.append(at_ms - at.timestamp() * 1000)
    assert min(lateness) >= 0
    assert 290_000 < max(lateness) <= 301_000


def test_stock_has_its_shape_and_a_tenth_comes_twice(two_days: list[Happened]) -> None:
    stock = of(two_days, "STOCK")
    for at_ms, event, body in stock:
        assert list(body) == ["movementid", "warehouse", "product", "quantity", "updatetime"]
        assert event.key == body["movementid"]
        assert body["warehouse"] in words.WAREHOUSES
        assert PRODUCT.fullmatch(body["product"])
        assert 20 <= body["quantity"] <= 500
        assert body["quantity"] % 10 == 0
        assert when(body["updatetime"]) == at_ms
    times = Counter(event for _, event, _ in stock)
    assert set(times.values()) == {1, 2}
    assert sum(n == 2 for n in times.values()) / len(times) == pytest.approx(0.1, abs=0.02)


def test_only_stock_comes_twice(two_days: list[Happened]) -> None:
    events = [event for _, event, _ in two_days if event.topic != "STOCK"]
    assert len({(event.topic, event.value) for event in events}) == len(events)


def test_new_customers_place_a_first_order(two_days: list[Happened]) -> None:
    registered = {}
    for at_ms, event, body in of(two_days, "CUSTOMERS"):
        assert list(body) == ["customerid", "customername", "registered"]
        assert event.key == body["customerid"]
        assert when(body["registered"]) == at_ms
        registered[body["customerid"]] = (at_ms, body["customername"])
    first_orders = [one for one in of(two_days, "ORDERS") if one.body["customerid"] in registered]
    assert len({one.body["customerid"] for one in first_orders}) == len(first_orders)
    assert len(first_orders) / len(registered) == pytest.approx(0.22, abs=0.02)
    for at_ms, _, body in first_orders:
        then_ms, name = registered[body["customerid"]]
        assert body["customer"] == name
        assert body["quantity"] == 1
        assert 180_000 <= at_ms - then_ms <= 1_380_001


def test_one_in_two_hundred_normal_orders_is_cancelled() -> None:
    happened = run(8 * DAY, topics=("ORDERS", "CANCELLATIONS"))
    ordered = {body["id"]: at_ms for at_ms, _, body in of(happened, "ORDERS")}
    delays = [at_ms - ordered[body["orderid"]] for at_ms, _, body in of(happened, "CANCELLATIONS")]
    normal = 8 * DAY / 10
    # The odd ones are all cancelled within 15 to 30 minutes, so that the others can be counted beside them.
    beside = sum(not 900_000 <= delay <= 1_800_001 for delay in delays)
    assert beside / normal == pytest.approx(0.005 * (6900 - 900) / 6900, rel=0.2)


def test_false_positives_are_one_honest_customer(two_days: list[Happened]) -> None:
    orders, cancelled = of(two_days, "ORDERS"), _cancelled_after(two_days)
    by_customer = defaultdict(list)
    for one in orders:
        by_customer[one.body["customerid"], one.body["description"]].append(one)
    # The same customer may order the same product by chance, but hardly within a quarter of an hour.
    pairs = [
        (first, second)
        for ordered in by_customer.values()
        for first, second in pairwise(ordered)
        if second.at_ms - first.at_ms <= 900_001
    ]
    assert len(pairs) == pytest.approx(2 * 144, abs=6)
    for large, small in pairs:
        assert large.body["quantity"] >= 5
        assert small.body["quantity"] <= 5
        assert small.body["region"] == large.body["region"]
        assert 0.0 < large.body["price"] - small.body["price"] <= 10.0
        assert 30_000 <= small.at_ms - large.at_ms <= 900_001
        if large.at_ms < OPENED_MS + (2 * DAY - 1800) * 1000:
            assert 900_000 <= cancelled[large.body["id"]] - large.at_ms <= 1_800_001


def test_suspicious_orders_game_the_price(two_days: list[Happened]) -> None:
    orders, cancelled = of(two_days, "ORDERS"), _cancelled_after(two_days)
    small_ones = [one for one in orders if one.body["customer"] in words.SUSPICIOUS_CUSTOMERS]
    assert len(small_ones) == pytest.approx(48, abs=2)
    ids = {(one.body["customer"], one.body["customerid"]) for one in small_ones}
    assert len(ids) == len({name for name, _ in ids}) <= 4
    for small in small_ones:
        large_ones = [
            one
            for one in orders
            if one.body["description"] == small.body["description"]
            and 0 <= small.at_ms - one.at_ms <= 1_800_000
            and one.body["quantity"] >= 5
            and cancelled.get(one.body["id"], 0) - one.at_ms >= 900_000
            and one is not small
        ]
        assert 1 <= len(large_ones) <= 3
        assert len({one.body["customerid"] for one in large_ones}) == len(large_ones)
        assert len({one.body["price"] for one in large_ones}) == 1
        assert 0.0 < large_ones[0].body["price"] - small.body["price"] <= 10.0
        assert small.body["quantity"] <= 5


def _cancelled_after(happened: list[Happened]) -> dict[str, int]:
    return {body["orderid"]: at_ms for at_ms, _, body in of(happened, "CANCELLATIONS")}


def test_the_average_is_what_is_promised(two_days: list[Happened]) -> None:
    assert len(two_days) / (2 * DAY) == pytest.approx(events_per_second(), rel=0.01)
    for topic in TOPICS:
        assert len(of(two_days, topic)) / (2 * DAY) == pytest.approx(events_per_second([topic]), rel=0.2)


def test_only_the_topics_wanted(two_days: list[Happened]) -> None:
    some = run(DAY, topics=("STOCK", "CANCELLATIONS"))
    assert {one.event.topic for one in some} == {"STOCK", "CANCELLATIONS"}
    everything = [one for one in two_days if one.at_ms < OPENED_MS + DAY * 1000]
    assert some == [one for one in everything if one.event.topic in ("STOCK", "CANCELLATIONS")]


def test_region_and_warehouses_are_those_given() -> None:
    shop = Shop(3, region_code="SA", warehouses=["SãoPaulo", "LaPaz"])
    values = [event for _ in range(2000) for event in shop.step(OPENED_MS)]
    assert {json.loads(e.value)["region"] for e in values if e.topic == "ORDERS"} == {"SA"}
    assert {json.loads(e.value)["warehouse"] for e in values if e.topic == "STOCK"} == {"SãoPaulo", "LaPaz"}
    assert any("SãoPaulo".encode() in event.value for event in values), "not escaped, as UTF-8"


def test_values_are_compact(two_days: list[Happened]) -> None:
    for _, event, body in two_days[:1000]:
        assert event.value == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def test_words_hold_no_blanks() -> None:
    for word in (*words.SIZES, *words.MATERIALS, *words.STYLES, *words.WAREHOUSES, *words.BUILDINGS):
        assert word.split() == [word]
