"""What is on its way to a viewer: filtered, bounded, counted."""

from __future__ import annotations

import asyncio
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import ConsumerRecord

from loosehanger.console.channels import Channels
from loosehanger.console.live import MOST_RECENT, MOST_SAMPLES, Feed, Live, Newest, Rates, RecordFilter, Viewer
from loosehanger.console.records import MOST_CHARACTERS, MOST_HEADER_BYTES, MOST_RAW_BYTES, MOST_VALUE_BYTES, Arrived
from loosehanger.kafka.patches import Tolerant
from tests.batches import Sent, batch, consume, fetched
from tests.consoles import HOSTILE, NOWHERE, FedLive, Record
from tests.odd_records import records


def arrived(**fields: object) -> Arrived:
    """A record that was read just now."""
    record = Record(**fields)  # type: ignore[arg-type]
    return Arrived("europe", record, record.timestamp + 7)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (RecordFilter(), True),
        (RecordFilter(topic="LH.ORDERS"), True),
        (RecordFilter(topic="LH.ORDER"), False),
        (RecordFilter(text="JEANS"), True),
        (RecordFilter(text="shoes"), False),
        (RecordFilter(key="mer-7"), True),
        (RecordFilter(key="mer-8"), False),
        (RecordFilter(topic="LH.ORDERS", text="jeans", key="customer"), True),
        (RecordFilter(topic="LH.STOCK", text="jeans"), False),
    ],
)
def test_a_viewer_gets_what_fits(wanted: RecordFilter, fits: bool) -> None:
    viewer = Viewer(feed := Feed(wanted))
    feed.offer([arrived(value=b'{"description": "Blue Jeans"}', key=b"customer-7")])
    assert len(viewer.take()[0]) == int(fits)


def test_a_slow_viewer_loses_the_oldest_and_is_told_how_many() -> None:
    feed = Feed(RecordFilter(), most=10)
    quick, slow = Viewer(feed), Viewer(feed)
    for start in range(0, 1000, 50):
        feed.offer([arrived(offset=offset) for offset in range(start, start + 50)])
        taken, dropped = quick.take()
        assert [one.record.offset for one in taken] == list(range(start + 40, start + 50))
        assert dropped == 40
    taken, dropped = slow.take()
    assert [one.record.offset for one in taken] == list(range(990, 1000))
    assert dropped == 990
    assert slow.take() == quick.take() == ([], 0)
    feed.offer([arrived(offset=offset) for offset in range(1000, 1003)])
    assert [one.record.offset for one in slow.take()[0]] == [1000, 1001, 1002]
    assert Viewer(feed).take()[1] == 0


def test_what_does_not_fit_is_not_counted_as_dropped() -> None:
    viewer = Viewer(feed := Feed(RecordFilter(topic="LH.STOCK"), most=2))
    feed.offer([arrived() for _ in range(100)])
    assert viewer.take() == ([], 0)


def test_a_new_viewer_gets_what_came_a_moment_ago_and_no_count_of_it() -> None:
    live = FedLive("europe", NOWHERE)
    live.feed(*(Record(offset=offset) for offset in range(MOST_RECENT + 50)))
    taken, dropped = live.watch(RecordFilter()).take()
    assert taken[-1].record.offset == MOST_RECENT + 49
    assert dropped == 0
    assert len(live._recent) == MOST_RECENT


def test_who_has_left_gets_nothing_more() -> None:
    live = FedLive("europe", NOWHERE)
    viewer = live.watch(RecordFilter())
    live.leave(viewer)
    live.feed(Record())
    assert viewer.take() == ([], 0)
    assert live._viewers == []


def test_rates_are_those_of_the_last_whole_seconds() -> None:
    rates = Rates(since=100.0)
    assert rates.of(101.0) is None
    for second in range(101, 111):
        rates.add(second + 0.5, {"LH.ORDERS": (10, 1000), "LH.STOCK": (5, 50)})
    assert rates.of(111.2) == (15, 1050)
    assert rates.of(111.2, ["LH.ORDERS"]) == (10, 1000)
    assert rates.of(130.0) == (0, 0)
    assert len(rates.seconds) <= 7


def test_percentiles_are_by_nearest_rank_and_of_the_last_seconds() -> None:
    rates = Rates(since=0.0)
    rates.latencies.extend((100.0, "LH.ORDERS", ms) for ms in range(1, 101))
    rates.latencies.append((50.0, "LH.ORDERS", 99_999))
    rates.latencies.append((100.0, "LH.STOCK", 88_888))
    assert rates.percentiles(101.0, ["LH.ORDERS"]) == (50, 99)
    assert rates.percentiles(101.0, ["LH.STOCK"]) == (88_888, 88_888)
    assert rates.percentiles(200.0) == (None, None)


def test_memory_of_latencies_is_bounded() -> None:
    live = FedLive("europe", NOWHERE)
    for _ in range(300):
        live.feed(*(Record() for _ in range(50)))
    assert len(live._rates.latencies) <= MOST_SAMPLES


def test_latency_is_from_the_producers_header_where_there_is_one() -> None:
    assert arrived(timestamp=1000).latency_ms == 7
    assert arrived(timestamp=1000, headers=[("lh-time", b"900")]).latency_ms == 107
    assert arrived(timestamp=1000, headers=[("lh-time", b"no time")]).latency_ms == 7
    assert arrived(timestamp=-1).latency_ms is None


def test_hostile_content_stays_text_and_short() -> None:
    message = json.loads(
        arrived(
            value=HOSTILE.encode() + b"\xff\xfe" + b"x" * 100_000,
            key=b"\x00\x1b[2J",
            headers=[(HOSTILE, b"\xff")] + [("many", None)] * 500,
        ).json
    )
    assert message["key"] == r"\x00\x1b[2J"
    assert message["value"].isprintable()
    assert "�" in message["value"]
    assert len(message["value"]) < MOST_CHARACTERS + 50
    assert len(message["raw"]) < MOST_RAW_BYTES * 3
    assert len(message["headers"]) == 50
    assert "\n" not in arrived(value=b"a\r\nb").json


@given(st.lists(records(), min_size=1, max_size=5), st.text(), st.sampled_from(["", "lh", "\ufffd"]))
@settings(deadline=None)
def test_whatever_records_hold_every_viewer_gets_them(ones: list[ConsumerRecord], text: str, key: str) -> None:
    tolerant = Tolerant(print, MOST_VALUE_BYTES, MOST_HEADER_BYTES)
    live = FedLive("europe", NOWHERE)
    viewers = [live.watch(RecordFilter()), live.watch(RecordFilter(text=text, key=key))]
    live.feed(*map(tolerant.cut, ones))
    for viewer in viewers:
        for one in viewer.take()[0]:
            assert len(one.json) < 200_000
            message = json.loads(one.json)
            shown = [message["key"], message["value"], message["summary"]]
            shown += [part for header in message["headers"] for part in header.values()]
            assert all(line.isprintable() for text in shown for line in text.split("\n"))
            assert message["bytes"] == one.size
    live.rates()
    live.percentiles()


MIB = 1 << 20


@pytest.mark.parametrize("codec", [0, 1], ids=["uncompressed", "gzip"])
def test_many_records_of_a_megabyte_take_little_memory(codec: int) -> None:
    live = FedLive("europe", NOWHERE)
    viewers = [live.watch(RecordFilter(text=text)) for text in ("", "abc")]
    tolerant = Tolerant(print, MOST_VALUE_BYTES, MOST_HEADER_BYTES)
    content = b"\x00abc\xf0\x9f\x91\x96" * (MIB // 8)
    sent: list[Sent] = [(content, b"", []), (b"key", content, [("a", content), ("b", b"")])]
    data = [batch(0, [one], codec) for one in sent]
    tracemalloc.start()
    try:
        for number in range(120):
            for found, _ in fetched(data[number % 2], tolerant):
                live.feed(*found)
        shown = [len(one.json) for viewer in viewers for one in viewer.take()[0]]
        shown += [len(one.json) for one in live.recent(RecordFilter(), 1000)]
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(shown) > 50
    assert held < 30 * MIB, held / MIB
    assert peak < 100 * MIB, peak / MIB
    assert all(one.size >= MIB for one in live.recent(RecordFilter(), 1000)), "sizes are those of what was sent"


def test_bytes_are_bounded_as_well_as_records() -> None:
    newest = Newest(10, most_bytes=1000)
    newest.extend([arrived(value=bytes(100), key=None) for _ in range(12)])
    assert len(newest) == 10
    newest.extend([arrived(value=bytes(500), key=None)])
    assert [one.held for one in newest] == [100] * 5 + [500]
    newest.extend([arrived(value=bytes(5000), key=None)])
    assert len(newest) == 0
    newest.extend([arrived()])
    newest.clear()
    newest.extend([arrived(value=bytes(100), key=None) for _ in range(10)])
    assert len(newest) == 10


def test_all_who_want_the_same_share_what_waits() -> None:
    live = FedLive("europe", NOWHERE)
    live.feed(Record(offset=0))
    first, other = live.watch(RecordFilter()), live.watch(RecordFilter(topic="LH.STOCK"))
    live.feed(*(Record(offset=offset) for offset in range(1, 4)))
    assert [one.record.offset for one in first.take()[0]] == [0, 1, 2, 3]
    second = live.watch(RecordFilter())
    assert second.feed is first.feed is not other.feed
    live.feed(*(Record(offset=offset) for offset in range(4, 6)))
    assert [one.record.offset for one in second.take()[0]] == [0, 1, 2, 3, 4, 5]
    assert [one.record.offset for one in first.take()[0]] == [4, 5]
    assert other.take() == ([], 0)


def test_what_cannot_be_read_is_told_to_whoever_looks() -> None:
    live = FedLive("europe", NOWHERE)
    tolerant = Tolerant(live._skipped, MOST_VALUE_BYTES, MOST_HEADER_BYTES)
    whole = batch(0, [(None, b"1", [])] * 3)
    consume(whole[:-3] + b"xyz", tolerant)
    assert live.problem.startswith("europe: LH.ORDERS/1: skipped 3 records at offsets 0 to 2, which cannot be read (")


def test_a_record_without_key_and_value_can_be_shown() -> None:
    message = arrived(value=None, key=None).message
    assert (message.key, message.value, message.summary) == ("", "", "(no value)")


def test_nobody_looks_and_nothing_is_read() -> None:
    assert Live("europe", NOWHERE)._thread is None


def test_all_who_look_at_the_same_share_one_rendering_and_a_slow_one_skips() -> None:
    rendered = 0

    async def render() -> str:
        nonlocal rendered
        rendered += 1
        return f"content {rendered}"

    async def run() -> tuple[list[str], list[list[str]]]:
        channels = Channels()
        alive = True
        seen: list[list[str]] = [[], [], []]

        async def look(number: int) -> None:
            async for content in channels.follow(("map", ""), render, lambda: alive):
                seen[number].append(content)
                if number == 2:
                    await asyncio.sleep(2.2)  # It cannot take more at a time.

        tasks = [asyncio.create_task(look(number)) for number in range(3)]
        await asyncio.sleep(3.3)  # Long enough for three renderings.
        alive = False
        await asyncio.gather(*tasks)
        assert len(channels) == 0
        return seen[2], seen[:2]

    slow, quick = asyncio.run(run())
    assert quick[0] == quick[1]
    assert 3 <= len(quick[0]) <= rendered <= 5
    assert len(slow) < len(quick[0])
    assert slow[0] == quick[0][0]


def test_a_view_that_breaks_says_so_and_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["good", None, "good again"])

    async def render() -> str:
        answer = next(answers, "good again")
        if answer is None:
            raise ZeroDivisionError
        return answer

    async def run() -> list[str]:
        seen: list[str] = []
        async for content in Channels().follow(("map", ""), render, lambda: len(seen) < 3):
            seen.append(content)
        return seen

    seen = asyncio.run(run())
    assert seen[0] == "good"
    assert "see the console" in seen[1]
    assert seen[2] == "good again"
    assert "ZeroDivisionError" in capsys.readouterr().err
