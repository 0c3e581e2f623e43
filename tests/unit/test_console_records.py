"""One record in full, whatever it holds; and pages of records, older and newer, none twice and none left out."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from loosehanger.console import search as search_module
from loosehanger.console.live import RecordFilter
from loosehanger.console.parts import MOST_CHARACTERS, MOST_HEX_BYTES, MOST_NODES, Part
from loosehanger.console.search import (
    LONGEST_POSITION,
    SearchRequest,
    SearchResult,
    positions,
    read_position,
    search_request,
    write_position,
)
from loosehanger.errors import WrongUseError
from tests.consoles import HOSTILE, NOWHERE, MadeUpSearcher, Record, Running, running, settings
from tests.odd_records import values

BEGAN = 1_700_000_000_000
NESTED = {"id": "7", "items": [{"price": 12.5}, []], "none": None, "customer": {"name": HOSTILE, "a": {"b": {"c": 1}}}}
MEGABYTE = b"{" + b'"x": "' + b"y" * 1_000_000 + b'"}'
ODD = (
    Record(value=json.dumps(NESTED).encode(), key="Größe-34".encode(), headers=[("source", b"a: b"), ("bad", b"\xff")]),
    Record(value=None, key=b"dead"),
    Record(value=b"", key=None, headers=[("nothing", None), ("empty", b"")]),
    Record(value=b"\xff\xfe\x00" * 3, key=b"\x80"),
    Record(value=MEGABYTE, key=b"k" * 10_000),
    Record(value=b'{"a": 12345678901234567890.10, "a": 1e400}', key=b"[1, 2]"),
)
SYNCS = "mm2-offset-syncs.b.internal"
INTERNAL = (
    Record(topic=SYNCS, key=b"\0\x01T" + bytes(4), value=bytes(7) + b"\x11" + bytes(7) + b"\x16"),
    Record(topic=SYNCS, key=b"\0\x01T" + bytes(4), value=b"\x11"),
)


def searcher_of(records: list[Record]) -> MadeUpSearcher:
    searcher = MadeUpSearcher("europe", NOWHERE)
    searcher.records = records
    return searcher


def text_of(html: str) -> str:
    """What a tree shows."""
    return re.sub(r"<[^>]+>", "", html).replace("&#34;", '"').replace("&#39;", "'").replace("&lt;", "<")


def test_json_is_a_tree_of_what_is_written() -> None:
    part = Part(ODD[0].value)
    assert part.forms == ["tree", "text", "hex"]
    assert part.tree.count("<details open>") == 2
    assert part.tree.count("<details>") == 3
    assert "price: 12.5" in text_of(part.tree)
    assert "none: null" in text_of(part.tree)
    assert "<script>" not in part.tree
    twice = Part(ODD[5].value).tree
    assert text_of(twice) == "a: 12345678901234567890.10a: 1e400", "no digit is rounded, and no member left out"
    assert Part(b" [1, 2]").forms[0] == "tree"
    assert [Part(data).forms[0] for data in (b"17", b'"x"', b"{", b"[" * 100_000)] == ["text"] * 4


def test_large_and_deep_trees_are_bounded() -> None:
    wide, deep = Part(json.dumps(list(range(50_000))).encode()), Part(b"[" * 500 + b"]" * 500)
    assert wide.tree.count("<li>") == MOST_NODES + 1
    assert len(deep.tree) < 5000


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"", ""),
        (b"\x00AB\xff", "000000  00 41 42 ff              .AB."),
        (b"01234567\n", "000000  30 31 32 33 34 35 36 37  01234567\n000008  0a                       ."),
    ],
)
def test_bytes_are_shown_in_rows(data: bytes, rows: str) -> None:
    assert Part(data).hex == rows


def test_a_megabyte_is_shown_in_part_and_kept_in_full() -> None:
    part = Part(MEGABYTE)
    assert len(part.text) == MOST_CHARACTERS + 1
    assert part.hex.count("\n") == MOST_HEX_BYTES // 8 - 1
    assert part.document.text == MEGABYTE.decode()


@given(values())
@hypothesis_settings(deadline=None)
def test_whatever_a_value_is_each_form_can_be_shown(data: bytes | None) -> None:
    part = Part(data)
    for form in part.forms:
        shown = str(getattr(part, form))
        assert all(letter.isprintable() or letter == "\n" for letter in shown)
        shown.encode()
    part.document.model_dump_json()


@pytest.fixture(scope="module")
def console() -> Iterator[Running]:
    """Two regions, of which Europe has the odd records."""
    with running(settings("europe", "north-america")) as found:
        for offset, record in enumerate(ODD):
            record.offset, record.timestamp = offset, BEGAN + offset
        for offset, record in enumerate(INTERNAL):
            record.offset, record.timestamp = offset, BEGAN + offset
        found.service.regions["europe"].searcher.records = [*ODD, *INTERNAL]
        yield found


def address(offset: int, path: str = "/record", **more: Any) -> str:
    query = {"region": "europe", "topic": "LH.ORDERS", "partition": 0, "offset": offset, **more}
    return f"{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (0, ["Größe-34", '<ul class="tree">', "<dt>source</dt><dd>a: b</dd>", "ff</dd>", "bytes with key"]),
        (1, ["null: a tombstone"]),
        (2, ["none", "empty, 0 bytes", '<span class="muted">null</span>', '<span class="muted">empty</span>']),
        (3, ["ff fe 00 ff fe 00 ff fe", "not valid UTF-8"]),
        (4, ["k" * 10_000, "1,000,009 bytes; not all of them are shown"]),
    ],
)
def test_the_page_shows_all_of_a_record(console: Running, offset: int, said: list[str]) -> None:
    browser = console.browser()
    page, part = browser.get(address(offset)), browser.get(address(offset, alone="true"))
    assert page.status_code == part.status_code == 200
    assert part.text.startswith('<div class="record">')
    for text in said:
        assert text in page.text, text
        assert text in part.text, text
    assert "<script>document" not in page.text


def test_the_form_of_key_and_value_can_be_chosen(console: Running) -> None:
    browser = console.browser()
    assert "4b c3" not in browser.get(address(0)).text
    assert "000000  47 72 c3 b6 c3 9f 65 2d  Gr....e-" in browser.get(address(0, key_as="hex")).text
    page = browser.get(address(0, key_as="hex", value_as="text")).text
    assert "000000  47" in page
    assert '<ul class="tree">' not in page
    assert browser.get(address(0, key_as="bogus")).status_code == 422


def test_a_record_can_be_downloaded_as_it_is(console: Running) -> None:
    browser = console.browser()
    value = browser.get(address(4, "/record/download", part="value"))
    assert value.content == MEGABYTE
    assert value.headers["content-disposition"] == 'attachment; filename="LH.ORDERS-0-4.value"'
    assert value.headers["content-type"] == "application/octet-stream"
    assert browser.get(address(3, "/record/download", part="key")).content == b"\x80"
    assert browser.get(address(1, "/record/download", part="value")).content == b""
    whole = json.loads(browser.get(address(0, "/record/download")).content)
    assert whole == browser.get(address(0, "/api/record")).json()
    assert whole["key"] == {"text": "Größe-34", "base64": None, "bytes": 10, "null": False}
    assert json.loads(whole["value"]["text"]) == NESTED
    assert whole["headers"][1] == {"name": "bad", "value": {"text": None, "base64": "/w==", "bytes": 1, "null": False}}
    assert browser.get(address(1, "/api/record")).json()["value"]["null"] is True
    assert whole["decoded"] is None


def test_a_record_of_an_internal_topic_is_decoded(console: Running) -> None:
    browser = console.browser()
    page = browser.get(address(0, topic=SYNCS, value_as="hex")).text
    assert "<h3>Decoded</h3>" in page
    assert "downstreamOffset: 22" in text_of(page)
    assert "00 00 00 00 00 00 00 11" in page, "the bytes stay"
    assert browser.get(address(0, "/api/record", topic=SYNCS)).json()["decoded"]["downstreamOffset"] == 22
    wrong = browser.get(address(1, topic=SYNCS, value_as="hex")).text
    assert "the value ends after 1 bytes, within upstream offset" in wrong
    assert "000000  11" in wrong


def test_the_records_before_and_after_one_can_be_reached(console: Running) -> None:
    browser = console.browser()
    assert "LH.ORDERS 0/1</h2>" in browser.get(address(2, step="older")).text
    assert "LH.ORDERS 0/3</h2>" in browser.get(address(2, step="newer")).text
    first, last = browser.get(address(0, step="older")), browser.get(address(len(ODD) - 1, step="newer"))
    assert (first.status_code, last.status_code) == (404, 404)
    assert "This is the oldest record" in first.text
    assert "This is the newest record" in last.text


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"offset": 99}, 404, "No record has this offset"),
        ({"partition": 7}, 404, "LH.ORDERS has no partition 7 in europe; it has 0 to 0"),
        (
            {"topic": "LH.ORDER"},
            404,
            "topic &#39;LH.ORDER&#39; does not exist in europe; did you mean &#39;LH.ORDERS&#39;?",
        ),
        ({"region": "nowhere"}, 404, "this console has no region"),
        ({"offset": "x"}, 422, "offset"),
        ({"offset": 2**63}, 422, "offset"),
        ({"topic": "../x"}, 422, "topic"),
    ],
)
def test_a_record_that_does_not_exist_is_explained(
    console: Running, changed: dict[str, Any], status: int, said: str
) -> None:
    answer = console.browser().get(address(**{"offset": 0, **changed}))
    assert answer.status_code == status
    assert said in answer.text
    assert console.browser(signed_in=False).get(address(0)).status_code == 303


def test_a_topic_or_a_partition_that_does_not_exist_is_named(console: Running) -> None:
    browser = console.browser()
    answer = browser.get("/api/search?topic=LH.ORDER")
    assert answer.status_code == 404
    assert "does not exist in europe; did you mean 'LH.ORDERS'?" in answer.json()["detail"]
    assert "topic &#39;LH.ORDER&#39; does not exist" in browser.get("/search?topic=LH.ORDER").text
    assert browser.get("/api/search?topic=LH.ORDERS&partition=9&region=europe").status_code == 404
    found = browser.get("/api/search?topic=LH.ORDERS").json()
    assert found["notes"] == ["topic 'LH.ORDERS' does not exist in north-america"]
    assert len(found["messages"]) == len(ODD)


def test_a_search_runs_both_ways_and_keeps_its_filters_in_the_address(console: Running) -> None:
    browser = console.browser()
    rows = re.compile(r'<td class="number">0/(\d)</td>')
    assert rows.findall(browser.get("/search?topic=LH.ORDERS").text) == list("543210")
    assert rows.findall(browser.get("/search?topic=LH.ORDERS&order=oldest").text) == list("012345")
    page = browser.get("/search?region=europe&topic=LH.ORDERS&partition=0&offset=2&key=").text
    assert 'href="/search?region=europe&amp;topic=LH.ORDERS&amp;partition=0&amp;order=newest&amp;at=europe.0-2"' in page
    assert 'href="/search?region=europe&amp;topic=LH.ORDERS&amp;partition=0&amp;order=oldest&amp;at=europe.0-3"' in page
    older = browser.get("/search?region=europe&topic=LH.ORDERS&partition=0&order=newest&at=europe.0-2").text
    assert rows.findall(older) == list("10")
    assert 'name="topic" list="topic-names" value="LH.ORDERS"' in older
    newer = browser.get("/search?region=europe&topic=LH.ORDERS&partition=0&order=oldest&at=europe.0-3").text
    assert rows.findall(newer) == list("345")
    assert browser.get("/search?topic=LH.ORDERS&at=x").status_code == 400
    assert browser.get("/search?at=europe.0-2").status_code == 400


def find(searcher: MadeUpSearcher, **asked: Any) -> SearchResult:
    return asyncio.run(searcher.find(SearchRequest(RecordFilter("LH.ORDERS"), **asked)))


def many(seed: int) -> list[Record]:
    """Records of three partitions, some with holes between their offsets, times that jump, and many at one time."""
    dice, found = random.Random(seed), list[Record]()  # noqa: S311 - a test's
    for partition in range(3):
        offset, at = dice.randrange(50), BEGAN
        for _ in range(dice.randrange(1, 120)):
            offset += dice.choice((1, 1, 1, 2, 30))
            at += dice.choice((0, 0, 5, 1000, -700))
            found.append(Record(partition=partition, offset=offset, timestamp=at, key=str(dice.randrange(3)).encode()))
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("newest", [True, False], ids=["newest", "oldest"])
@pytest.mark.parametrize("most_read", [50_000, 17], ids=["at-once", "bounded"])
def test_page_follows_page_without_loss_or_repetition(
    monkeypatch: pytest.MonkeyPatch, seed: int, newest: bool, most_read: int
) -> None:
    monkeypatch.setattr(search_module, "MOST_READ", most_read)
    monkeypatch.setattr(search_module, "_BATCH", 4)
    records = many(seed)
    searcher, at, seen = searcher_of(records), "", list[tuple[int, int]]()
    wanted = RecordFilter("LH.ORDERS", key="1")
    for _ in range(len(records) + 10):
        result = asyncio.run(searcher.find(SearchRequest(wanted, most=7, newest=newest, at=read_position(at))))
        assert len(result.records) <= 7
        seen += [(one.record.partition, one.record.offset) for one in result.records]
        at = positions(result.spans)[0 if newest else 1]
        if not at:
            break
    assert sorted(seen) == sorted((one.partition, one.offset) for one in records if one.key == b"1")
    for partition in range(3):
        offsets = [offset for number, offset in seen if number == partition]
        assert offsets == sorted(offsets, reverse=newest)
    searcher.close()


def test_the_newest_come_first_and_a_time_can_be_jumped_to() -> None:
    searcher = searcher_of([Record(partition=n % 2, offset=n // 2, timestamp=BEGAN + n, key=b"") for n in range(500)])
    newest = find(searcher, newest=True, most=10)
    assert [one.record.timestamp - BEGAN for one in newest.records] == list(range(499, 489, -1))
    assert newest.read <= 40, "it reads back no further than it must"
    back = find(searcher, newest=True, most=3, until_ms=BEGAN + 100)
    assert [one.record.timestamp - BEGAN for one in back.records] == [100, 99, 98]
    on = find(searcher, most=3, since_ms=BEGAN + 100)
    assert [one.record.timestamp - BEGAN for one in on.records] == [100, 101, 102]
    assert find(searcher, newest=True, partition=1, most=2, at={"europe": {1: 5}}).records[0].record.offset == 4
    assert find(searcher, partition=1, most=2, at={"europe": {1: 5}}).records[0].record.offset == 5
    searcher.close()


def test_a_position_is_read_as_it_was_written() -> None:
    position = {"north-america": {0: 17, 12: 0}, "europe": {3: 2**63 - 1}}
    assert read_position(write_position(position)) == position
    assert write_position({"europe": dict.fromkeys(range(1000), 2**62)}) == "", "too long for an address"
    for wrong in ("x", "europe", "europe.", "europe.0", "europe.0-", "EU.0-1", "a.1-2" * LONGEST_POSITION, "a.0-1;b"):
        with pytest.raises(WrongUseError, match="not a position"):
            read_position(wrong)
    with pytest.raises(WrongUseError, match="needs its topic"):
        search_request(RecordFilter(), at="europe.0-1")
