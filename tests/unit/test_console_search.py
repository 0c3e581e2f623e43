"""Records that are there already are found by topic, key, header, words, time and offset, within known bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from fastapi import HTTPException

from loosehanger.console import context
from loosehanger.console import search as search_module
from loosehanger.console.jobs import Jobs
from loosehanger.console.live import RecordFilter
from loosehanger.console.models import JobState
from loosehanger.console.search import MOST_WAITING, SearchRequest, SearchResult, search_request
from loosehanger.console.views import examples
from loosehanger.errors import UnreachableError, WrongUseError
from tests import samples
from tests.consoles import HOSTILE, NOWHERE, MadeUpLog, MadeUpSearcher, Record, Running, running, settings

BEGAN = 1_700_000_000_000
REGIONS = ("europe", "north-america", "south-america")


def records() -> list[Record]:
    """Ten orders in each of two partitions, a second apart, and one of stock; each fifth from Lisbon."""
    found = [
        Record(
            value=f'{{"city": "{"Lisboa" if number % 5 == 0 else "Nîmes"}"}}'.encode(), key=f"order-{number}".encode(),
            partition=number % 2, offset=number // 2, timestamp=BEGAN + 1000 * number,
            headers=[("lh-origin", b"europe" if number < 10 else b"south-america")],
        )
        for number in range(20)
    ]  # fmt: skip
    return [*found, Record(value=HOSTILE.encode(), topic="LH.STOCK", timestamp=BEGAN, key=HOSTILE.encode())]


def find(asked: SearchRequest) -> SearchResult:
    """What is found."""
    searcher = MadeUpSearcher("europe", NOWHERE)
    searcher.records = records()
    return asyncio.run(searcher.find(asked))


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({"key": "order-1"}, ["1", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19"]),
        ({"text": "LISBOA"}, ["0", "5", "10", "15"]),
        ({"text": "lisboa", "key": "order-1"}, ["10", "15"]),
        ({"header": "origin: south"}, [str(number) for number in range(10, 20)]),
        ({"header": "lh-time"}, []),
        ({"topic": "LH.STOCK"}, ["stock"]),
        ({"topic": "LH.NONE"}, []),
        ({"topic": "LH.ORDERS", "since": "2023-11-14T22:13:35.500+00:00"}, ["16", "17", "18", "19"]),
        ({"topic": "LH.ORDERS", "since": "2023-11-14T22:13:25+00:00", "until": "2023-11-14T22:13:27+00:00"},
         ["5", "6", "7"]),
        ({"since": "2030-01-01"}, []),
        ({"topic": "LH.ORDERS", "partition": "1", "offset": "4"}, ["9"]),
        ({"topic": "LH.ORDERS", "partition": "1", "offset": "10"}, []),
        ({"topic": "LH.ORDERS", "partition": "1"}, ["1", "3", "5", "7", "9", "11", "13", "15", "17", "19"]),
    ],
)  # fmt: skip
def test_records_are_found(asked: dict[str, Any], keys: list[str]) -> None:
    words = {name: asked.pop(name, "") for name in ("topic", "text", "key", "header")}
    found = find(search_request(RecordFilter(**words), **asked))
    reported = [one.key.removeprefix("order-") if one.record.topic != "LH.STOCK" else "stock" for one in found.records]
    assert reported == keys
    assert found.reached_ms is None


def test_one_record_is_read_alone() -> None:
    found = find(search_request(RecordFilter("LH.ORDERS"), partition="0", offset="3"))
    assert ([one.key for one in found.records], found.read) == (["order-6"], 1)


@pytest.mark.parametrize("bound", ["MOST_READ", "MOST_S"])
def test_a_search_is_bounded_and_says_from_where_to_go_on(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(search_module, "_BATCH", 3)
    monkeypatch.setattr(search_module, bound, 6 if bound == "MOST_READ" else 0)
    seen: list[str] = []
    asked = search_request(RecordFilter("LH.ORDERS"))
    found = find(asked)
    if bound == "MOST_S":
        assert (found.read, found.reached_ms) == (0, 0)
        return
    assert found.read == 6
    assert found.reached_ms == BEGAN + 4000, "of the partition that was read least far"
    for _ in range(10):
        seen += [one.key for one in found.records]
        if found.reached_ms is None:
            break
        found = find(SearchRequest(asked.wanted, since_ms=found.reached_ms))
    assert found.reached_ms is None
    assert set(seen) == {f"order-{number}" for number in range(20)}


def test_no_more_are_found_than_are_wanted_and_the_next_search_begins_with_what_was_left_out() -> None:
    found = find(search_request(RecordFilter("LH.ORDERS"), most=3))
    assert ([one.key for one in found.records], found.reached_ms) == (["order-0", "order-1", "order-2"], BEGAN + 3000)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"since": "yesterday"}, "since: 'yesterday' is not a time"),
        ({"until": "9" * 30}, "is not a time"),
        ({"partition": "-1"}, "partition: '-1' is not a number"),
        ({"partition": "1", "offset": "9" * 30}, "offset: "),
        ({"offset": "5"}, "an offset needs a topic and a partition"),
    ],
)
def test_what_cannot_be_looked_for_is_explained(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUseError, match=said):
        search_request(RecordFilter("LH.ORDERS"), **asked)


@pytest.fixture(scope="module")
def control_room() -> Iterator[Running]:
    """Three regions, of which Europe has records."""
    with running(settings(*REGIONS)) as found:
        found.service.regions["europe"].searcher.records = records()
        yield found


def test_the_page_and_the_api_find_the_same(control_room: Running) -> None:
    browser = control_room.browser()
    answer = browser.get("/api/search?text=lisboa").json()
    assert [one["key"] for one in answer["messages"]] == [f"order-{number}" for number in (0, 5, 10, 15)]
    assert (answer["read"], answer["reached"], answer["problems"]) == (21, None, [])
    assert {one["latency_ms"] for one in answer["messages"]} == {None}
    page = browser.get("/search?text=lisboa").text
    assert "4 found among 21 records" in page
    assert "order-15" in page
    assert 'aria-current="page">Messages' in page
    assert browser.get("/api/search?region=south-america").json()["messages"] == []
    answer = browser.get("/api/search?topic=LH.ORDERS&limit=3").json()
    assert ([one["key"] for one in answer["messages"]][-1], answer["reached"]) == ("order-2", BEGAN + 3000)
    assert browser.get("/api/search?region=nowhere").status_code == 404
    assert browser.get("/api/search?since=never").status_code == 400
    refused = browser.get("/search?since=never")
    assert refused.status_code == 400
    assert "since: &#39;never&#39; is not a time" in refused.text
    assert "found among" not in browser.get("/search").text


def test_what_records_hold_is_text_in_what_was_found_too(control_room: Running) -> None:
    page = control_room.browser().get("/search?topic=LH.STOCK").text
    assert "1 found among" in page
    assert "<script>document" not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page


def proved_wrong() -> JobState:
    """A proof with examples."""
    return JobState(name="proof", state="done", explanation="", started=1.0, seconds=1.0, progress=[], exit_code=1,
                    result=samples.broken_proof())  # fmt: skip


def test_an_example_leads_to_the_record(control_room: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    missing: dict[str, Any] = samples.example(source_offset=4)
    moved = samples.example("moved", partition=1, source_offset=2, target_offset=7, target_partition=0)
    flow = samples.flow(target_topic="europe.LH.ORDERS", examples=[missing, moved])
    job = proved_wrong().model_copy(update={"result": samples.proof(flow, verdict="disproved")})
    first, second = examples(job)
    assert first["places"][1] is None
    assert second["places"][1]["href"] == "/search?region=north-america&topic=europe.LH.ORDERS&partition=0&offset=7"
    found = control_room.browser().get(first["places"][0]["href"]).text
    assert "order-9" in found
    assert 'tabindex="-1" open>' in found, "the record is open beside the list"
    monkeypatch.setattr(Jobs, "state", lambda *_: job)
    assert 'href="/search?region=europe&amp;topic=LH.ORDERS&amp;partition=1&amp;offset=4"' in (
        control_room.browser().get("/proof").text
    )


def test_odd_examples_end_no_page(control_room: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "state", lambda *_: proved_wrong())
    page = control_room.browser().get("/proof").text
    assert "Examples of differences" in page
    assert "<script>alert" not in page


class HeldLog(MadeUpLog):
    """Records that do not come before the test says so."""

    def __init__(self, going: threading.Event, began: threading.Event, skipped: Callable[[str], object]) -> None:
        super().__init__(records())
        self.going, self.began, self.skipped = going, began, skipped

    def assign(self, places: Sequence[Any]) -> None:
        """Has these read, and skips a batch of each of some others."""
        super().assign(places)
        for number in range(5):
            self.skipped(f"LH.ORDERS-{number}: skipped 1 record")

    def poll(self, milliseconds: int, max_records: int) -> dict[Any, list[Record]]:
        """Nothing until then."""
        self.began.set()
        return super().poll(milliseconds, max_records) if self.going.wait(0.02) else {}


class HeldSearcher(MadeUpSearcher):
    """Searches that go on until the test ends them."""

    def __init__(self) -> None:
        super().__init__("europe", NOWHERE)
        self.going, self.began = threading.Event(), threading.Event()
        self.searches = self.connections = 0

    def _connect(self, skipped: Callable[[str], object], *, whole: bool) -> Any:  # noqa: ARG002 - as the real one
        self.connections += 1
        return HeldLog(self.going, self.began, skipped)

    def _read(self, *given: Any) -> SearchResult:
        self.searches += 1
        return super()._read(*given)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldSearcher:
    monkeypatch.setattr(search_module, "MOST_S", 600)
    return HeldSearcher()


def test_searches_that_wait_are_bounded(held: HeldSearcher) -> None:
    async def run() -> list[SearchResult | BaseException]:
        searches = [asyncio.ensure_future(held.find(search_request(RecordFilter()))) for _ in range(30)]
        refused = searches[MOST_WAITING + 1 :]
        await asyncio.wait(refused, timeout=60)
        assert all("searches wait already" in str(one.exception()) for one in refused)
        held.going.set()
        return await asyncio.gather(*searches[: MOST_WAITING + 1], return_exceptions=True)

    found = asyncio.run(run())
    assert [one.read for one in found if isinstance(one, SearchResult)] == [21] * (MOST_WAITING + 1)
    held.close()


def test_a_search_ends_with_who_asked_for_it(held: HeldSearcher) -> None:
    async def run() -> SearchResult:
        gone = [asyncio.ensure_future(held.find(search_request(RecordFilter()))) for _ in range(2)]
        assert await asyncio.to_thread(held.began.wait, 60)
        for one in gone:
            one.cancel()
        await asyncio.wait(gone)
        held.going.set()
        return await asyncio.wait_for(held.find(search_request(RecordFilter())), 60)

    assert asyncio.run(run()).read == 21
    assert held.searches == 2, "the one that waited was never begun"
    held.close()


def test_a_client_is_kept_until_it_was_idle_and_a_failure_of_it_is_tried_again(
    held: HeldSearcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.going.set()

    def find() -> SearchResult:
        return asyncio.run(held.find(search_request(RecordFilter())))

    assert (find().read, find().read, held.connections) == (21, 21, 1)
    held.close_if_idle()
    assert (find().read, held.connections) == (21, 1), "it was used a moment ago"
    monkeypatch.setattr(search_module, "IDLE_S", 0.0)
    held.close_if_idle()
    assert (find().read, held.connections) == (21, 2)
    failures = [OSError("the broker has restarted")]
    monkeypatch.setattr(HeldLog, "unsubscribe", lambda _: (_ for _ in ()).throw(failures.pop()) if failures else None)
    assert (find().read, held.connections) == (21, 3)
    failures += [OSError("gone"), OSError("gone")]
    with pytest.raises(UnreachableError, match="cannot be searched"):
        find()
    assert held.connections == 4
    held.close()


def test_work_is_cancelled_when_the_client_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "GONE_S", 0.01)
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def answer() -> int:
        return 7

    class Asking:
        async def is_disconnected(self) -> bool:
            return True

    asking: Any = Asking()

    async def run() -> None:
        assert await context.unless_gone(asking, answer()) == 7
        with pytest.raises(HTTPException):
            await context.unless_gone(asking, forever())
        await asyncio.sleep(0)

    asyncio.run(run())
    assert ended == ["cancelled"]


def test_batches_that_a_search_skips_are_told(control_room: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = HeldSearcher()
    searcher.going.set()
    monkeypatch.setattr(control_room.service.regions["europe"], "searcher", searcher)
    browser = control_room.browser()
    answer = browser.get("/api/search?topic=LH.ORDERS").json()
    assert answer["problems"] == [
        *(f"europe: LH.ORDERS-{number}: skipped 1 record" for number in range(3)),
        "europe: and 2 more batches that cannot be read",
    ]
    assert searcher.connections == 1
    assert "LH.ORDERS-0: skipped 1 record" in browser.get("/search?topic=LH.ORDERS").text
    searcher.close()
