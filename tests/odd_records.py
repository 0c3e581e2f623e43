"""Unexpected records, for hypothesis: whatever a producer may send, for any reader."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from kafka.consumer.fetcher import ConsumerRecord

from producer.shop import Shop

TOPICS = ("LH.ORDERS", "LH.CANCELLATIONS", "europe.LH.DOORS", "LH.STOCK", "LH.CUSTOMERS", "LH.SENSORS", "other")
DIGITS = "9" * 400
ODD_VALUES = (
    b"",
    b"\x00\xff",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{\x00}\x00",
    b"{",
    b"null",
    b"[1]",
    b"NaN",
    b"-Infinity",
    b"[" * 100_000,
    b"[" * 900 + b"]" * 900,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b"1e400",
    DIGITS.encode() * 20,
    rb'"\ud800"',
    rb'{"customername":"\udfff\u0000\u001b[2J"}',
    b'{"customername":{"customername":[null]}}',
    b'{"sensortime":"x"}',
    b'{"sensortime":"x","sensorid":1,"temperature":2,"humidity":3}',
    b'{"sensortime":"Fri Nov 21 08:58:03","sensorid":1,"temperature":1e400,"humidity":NaN}',
    f'{{"quantity":1,"description":"x","price":{DIGITS},"customer":"x","region":"x"}}'.encode(),
    f'{{"quantity":{DIGITS},"description":"x","price":1,"customer":"x","region":"x"}}'.encode(),
    b'{"quantity":1,"description":"x","price":NaN,"customer":"x","region":"x"}',
    b'{"quantity":1,"quantity":2,"price":1,"price":"x"}',
    b'{"quantity":9223372036854775807,"description":"x","price":9999999999999999.99,"customer":"x","region":"x"}',
    b'{"employee":"x","door":"x","badgetime":7}',
    b'{"employee":"x","door":"x","badgetime":{"a":1}}',
    b"\x1b]0;title\x07\x1b[2J\xc2\x9b\xe2\x80\xae",
    b"x" * 2_000_000,
    b"\xf0\x9f\x91\x96" * 50_000,
)
ODD_NUMBERS = (0, -1, 10**17, 2**63 - 1, -(2**63), 10**400, 0.1, 1e308, float("inf"), float("nan"), True)
ODD_TIMESTAMPS = (-(2**63), -1, 0, 1, 253_402_300_799_999, 253_402_300_800_000, 8_640_000_000_000_001, 2**63 - 1)

_texts = st.text(st.characters(), max_size=30)  # lone surrogates too: JSON's escapes can say them
_leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(ODD_NUMBERS), _texts)
_shapes = st.recursive(
    _leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3))
)


def _shop_events() -> list[dict[str, Any]]:
    """One event of each topic of the shop."""
    shop, found = Shop(1), dict[str, dict[str, Any]]()
    for _ in range(500):
        found |= {event.topic: json.loads(event.value) for event in shop.step(1_763_715_600_000)}
    return list(found.values())


_events = _shop_events()


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """An event of the shop's of which one field is something else, missing, or there twice."""
    event = draw(st.sampled_from(_events))
    field = draw(st.sampled_from(sorted(event)))
    how = draw(st.sampled_from(("other", "missing", "twice")))
    rest = {name: value for name, value in event.items() if name != field}
    if how == "missing":
        return json.dumps(rest).encode()
    other = json.dumps(draw(_shapes))
    if how == "other":
        return json.dumps({**event, field: json.loads(other)}).encode()
    return f'{json.dumps(event)[:-1]}, "{field}": {other}}}'.encode()


def values() -> st.SearchStrategy[bytes | None]:
    """Values, from none to two megabytes."""
    shapes = _shapes.map(lambda shape: json.dumps(shape).encode())
    return st.one_of(st.none(), st.binary(), st.sampled_from(ODD_VALUES), _damaged(), shapes)


def headers() -> st.SearchStrategy[list[tuple[str, bytes | None]]]:
    """Headers, as the client hands them over; the kit's own names with foreign content among them."""
    names = st.one_of(
        st.sampled_from(("lh-time", "lh-seq", "lh-run", "", "\ufffd")), st.text(st.characters(codec="utf-8"))
    )
    content = st.one_of(st.none(), st.binary(), st.sampled_from((b"9" * 16, b"9" * 5000, b"\xb2")))
    return st.lists(st.tuples(names, content), max_size=4)


def records() -> st.SearchStrategy[ConsumerRecord]:
    """Records, as kafka-python has them."""

    def record(
        topic: str, timestamp: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> ConsumerRecord:
        sizes = [len(data) if data is not None else -1 for data in (key, value)]
        length = sum(len(name.encode()) + len(data or b"") for name, data in headers)
        return ConsumerRecord(topic, 2, 0, 4711, timestamp, 0, key, value, headers, None, *sizes, length)

    timestamps = st.one_of(st.sampled_from(ODD_TIMESTAMPS), st.integers(-(2**63), 2**63 - 1))
    return st.builds(record, st.sampled_from(TOPICS), timestamps, values(), values(), headers())
