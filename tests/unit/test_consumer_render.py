"""How records look, above all unexpected ones."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import ConsumerRecord

from loosehanger.events.render import LONGEST, Line, colours_wanted, describe, safe, to_json
from producer.shop import Shop
from tests.odd_records import ODD_VALUES, TOPICS, records


@pytest.fixture(autouse=True)
def brussels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Brussels")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def record(
    value: bytes | None,
    topic: str = "LH.ORDERS",
    key: bytes | None = b"a key",
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp: int = 1_763_715_600_007,
) -> ConsumerRecord:
    return ConsumerRecord(topic, 2, 0, 4711, timestamp, 0, key, value, headers or [], None, 0, 0, 0)


def value(**fields: Any) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("topic", "event", "text"),
    [
        (
            "LH.ORDERS",
            value(quantity=2, description="XL Canvas Bootcut Jeans", price=39.9, customer="Zoë Ürün", region="EU"),
            "order 2 × XL Canvas Bootcut Jeans at 39.90 by Zoë Ürün (EU)",
        ),
        ("LH.CANCELLATIONS", value(orderid="4-2", reason="BADFIT"), "cancelled: order 4-2, BADFIT"),
        (
            "LH.DOORS",
            value(employee="jo.doe", door="DE-2-34", badgetime="2025-11-21 08:58:03.250"),
            "badge of jo.doe at door DE-2-34, 08:58:03 UTC",
        ),
        (
            "LH.STOCK",
            value(quantity=120, product="S Twill Loose Jeans", warehouse="Antwerp"),
            "stock 120 × S Twill Loose Jeans into Antwerp",
        ),
        ("LH.CUSTOMERS", value(customername="Zoë Ürün"), "new customer Zoë Ürün"),
        (
            "europe.LH.SENSORS",
            value(sensorid="A-1-17", temperature=21.0, humidity=45, sensortime="Fri Nov 21 08:58:03 UTC 2025"),
            "sensor A-1-17: 21.0 °C, 45 % humidity, 08:58:03 UTC",
        ),
    ],
)
def test_each_event_has_a_readable_form(topic: str, event: bytes, text: str) -> None:
    assert describe(topic, event) == text


def test_every_event_of_the_shop_is_understood() -> None:
    shop = Shop(1)
    for _ in range(3000):
        for event in shop.step(1_763_715_600_000):
            assert not describe(f"LH.{event.topic}", event.value).startswith("{")


def test_a_line_has_all_columns() -> None:
    line = Line.of(record(value(customername="Jo"), topic="LH.CUSTOMERS"))
    assert line.plain() == "2025-11-21 10:00:00.007 LH.CUSTOMERS/2     @4711   [a key] new customer Jo"


def test_a_plain_line_reads_back_and_colours_change_no_character() -> None:
    line = Line.of(record(value(customername="Jo"), topic="LH.CUSTOMERS"))
    assert Line.parse(line.plain()) == line
    coloured = line.coloured()
    assert coloured != line.plain()
    for code in ("\x1b[2m", "\x1b[35m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == line.plain()
    assert Line.parse("kafka client: socket disconnected") is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "(no value)"),
        (b"", ""),
        (b'{"some":"thing else"}', '{"some":"thing else"}'),
        (b"[1, 2]", "[1, 2]"),
        (b'{"quantity":"many","description":1,"price":"dear"}', '{"quantity":"many","description":1,"price":"dear"}'),
        (b"\x00\xff", "2 bytes 0x00ff"),
        (b"\x1b]0;title\x07\x1b[2J", r"\x1b]0;title\x07\x1b[2J"),
        ("a\u202eb\u009bc\u200bd".encode(), r"a\u202eb\x9bc\u200bd"),
        (b"two\nlines\r", r"two\nlines\r"),
        (b"[" * 100_000, "[" * 1000 + "… (100000 bytes)"),
        ("👖".encode() * 5000, "👖" * 1000 + "… (20000 bytes)"),
        (b"\xff" * 100_000, "100000 bytes 0x" + "ff" * 492 + "f… (100000 bytes)"),
    ],
)
def test_strange_values_are_shown_safely(data: bytes | None, text: str) -> None:
    assert describe("LH.ORDERS", data) == text


def test_what_was_cut_on_arrival_says_how_long_it_was() -> None:
    for data in ("a" + "👖" * 4096, "👖" * 4096):
        shown = describe("LH.ORDERS", data.encode()[:16_384], 2_000_000)
        assert shown.endswith("👖… (2000000 bytes)")
    assert describe("LH.CUSTOMERS", b'{"customername":"Jo"}', 22) == '{"customername":"Jo"}', (
        "not what it says in whole"
    )


def test_an_event_cannot_smuggle_control_characters() -> None:
    assert describe("LH.CUSTOMERS", rb'{"customername":"\u001b[31mred\u009b"}') == r"new customer \x1b[31mred\x9b"
    assert Line.of(record(b"", key=b"\x1b[31m")).plain().endswith(r"[\x1b[31m] ")


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def check(one: ConsumerRecord) -> None:
    """Has the record shown in each way."""
    line = Line.of(one)
    assert line.plain().isprintable()
    assert len(line.plain()) < 3 * LONGEST
    read_back = Line.parse(line.plain())
    assert read_back
    assert read_back.coloured().startswith("\x1b[2m")
    document = to_json(one)
    assert document.isascii()
    assert document.isprintable()
    json.loads(document, parse_constant=refuse)


@given(records())
@settings(deadline=None)
def test_whatever_a_record_holds_something_printable_is_shown(one: ConsumerRecord) -> None:
    check(one)


@pytest.mark.parametrize("topic", TOPICS)
def test_each_of_the_odd_values_is_shown_in_each_topic(topic: str) -> None:
    for data in ODD_VALUES:
        check(record(data, topic=topic, key=data, headers=[("h", data)]))


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (253_402_300_799_999 - 86_400_000, "9999-12-31 00:59:59.999"),
        (253_402_300_800_000 + 86_400_000, "        253402387200000"),
        (2**63 - 1, "    9223372036854775807"),
        (-(2**63), "   -9223372036854775808"),
        (-5, "                     -5"),
    ],
)
def test_a_time_that_no_calendar_has_is_shown_in_milliseconds(timestamp: int, shown: str) -> None:
    assert Line.of(record(b"{}", timestamp=timestamp)).time == shown


@given(st.text())
def test_safe_text_is_printable(text: str) -> None:
    assert safe(text).isprintable()


def test_json_holds_everything() -> None:
    document = json.loads(to_json(record(b'{"a":[1,2.50]}', headers=[("h", b"1"), ("h", b"\xff"), ("n", None)])))
    assert document == {
        "topic": "LH.ORDERS",
        "partition": 2,
        "offset": 4711,
        "timestamp": 1_763_715_600_007,
        "key": "a key",
        "value": {"a": [1, 2.5]},
        "headers": [["h", "1"], ["h", {"base64": "/w=="}], ["n", None]],
    }


@pytest.mark.parametrize("data", [b"\xff", b"no JSON", b"NaN", b'{"a":Infinity}', b"1e400", b"[" * 100_000])
def test_json_of_what_is_not_json_is_base64(data: bytes) -> None:
    assert json.loads(to_json(record(data)))["value"] == {"base64": base64.b64encode(data).decode()}


def test_a_record_without_a_time_has_a_line() -> None:
    assert Line.of(record(b"{}", timestamp=-1)).plain().startswith("0000-00-00 00:00:00.000 ")


class Terminal:
    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "no_color", "term", "coloured"),
    [
        (True, "", "xterm", True),
        (False, "", "xterm", False),
        (True, "1", "xterm", False),
        (True, "", "dumb", False),
    ],
)
def test_colours_are_for_terminals_only(
    terminal: bool, no_color: str, term: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    assert colours_wanted(Terminal(terminal)) is coloured  # type: ignore[arg-type]


def test_headers_are_shown_on_request() -> None:
    found = record(b"x", headers=[("source", b"test"), ("\x1b", b"\xff"), ("none", None)])
    assert Line.of(found).text == "x"
    assert Line.of(found, with_headers=True).text == "x  {source: test, \\x1b: 1 bytes 0xff, none: }"
    assert Line.of(record(b"x"), with_headers=True).text == "x"
