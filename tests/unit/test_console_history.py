"""The last hour: bounded, of what grew and of what was measured, and taken whether a page is open or not."""

from __future__ import annotations

import asyncio
import os
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.console import history
from loosehanger.console.charting import ChartSelection, scale_end
from loosehanger.console.flow_reader import FlowNow, Now
from loosehanger.console.history import KEPT_S, MEASURES, MOST_SUBJECTS, POINTS, LastHour, Measuring, Sampler, Subject
from loosehanger.console.live import LINGER_S
from loosehanger.console.marks import Mark, Marks, stage_mark
from loosehanger.console.models import Change, Connector, Flow, Partition, Position, Series, Topic
from loosehanger.kafka.retention_risk import TopicRisk
from loosehanger.lab.progress import Progress
from tests.consoles import MadeUpService, Record, running, settings

REGIONS = ("europe", "north-america", "south-america")
NOW = 1_700_000_000.0
FULL = dict.fromkeys(MEASURES, 1.0)
ORDERS, COPY = Subject("europe", "LH.ORDERS"), Subject("north-america", "LH.ORDERS")
FLOW = Subject("north-america", source="europe", mirror="mm2")


def everything(_: Subject) -> bool:
    """Wants all."""
    return True


def test_a_ring_keeps_the_last_hour_and_the_newest_at_the_end() -> None:
    kept = LastHour(points=5)
    for number in range(8):
        kept.add(NOW + number, {ORDERS: {"lag": float(number)}})
    past = kept.past(everything, NOW + 8)
    assert past.times == [NOW + number for number in range(3, 8)]
    assert past.series[0].lag == [3, 4, 5, 6, 7]
    assert past.series[0].lag_s == [None] * 5
    assert kept.past(everything, NOW + 4 + KEPT_S).times == [NOW + number for number in range(4, 8)]


def test_what_was_not_there_for_a_sample_has_no_value_in_it() -> None:
    kept = LastHour(points=4)
    kept.add(NOW, {ORDERS: {"lag": 1.0}})
    kept.add(NOW + 1, {COPY: {"lag": 2.0}})
    kept.add(NOW + 2, {ORDERS: {"lag": None}, COPY: {"lag": 3.0}})
    for number in range(3, 6):
        kept.add(NOW + number, {COPY: {"lag": 4.0}})
    series = {one.region: one.lag for one in kept.past(everything, NOW + 6).series}
    assert series == {"europe": [None] * 4, "north-america": [3, 4, 4, 4]}


def test_memory_is_bounded_in_samples_and_in_subjects_and_what_has_no_room_is_counted() -> None:
    tracemalloc.start()
    try:
        kept = LastHour()
        for number in range(2 * POINTS):
            kept.add(NOW + number, {Subject("europe", f"LH.{topic}"): FULL for topic in range(2 * MOST_SUBJECTS)})
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    rings = 8 * POINTS * (1 + MOST_SUBJECTS * len(MEASURES))
    assert rings < 3.5e6
    assert rings < held < 1.2 * rings
    past = kept.past(everything, NOW + 2 * POINTS)
    assert (len(past.times), len(past.series), past.left_out) == (POINTS, MOST_SUBJECTS, MOST_SUBJECTS)


def test_what_has_gone_for_an_hour_makes_room() -> None:
    kept = LastHour(points=3, most=1)
    kept.add(NOW, {ORDERS: FULL})
    kept.add(NOW + 1, {COPY: FULL})
    assert kept.left_out == 1
    kept.add(NOW + KEPT_S + 2, {COPY: FULL})
    assert kept.left_out == 0
    assert [one.region for one in kept.past(everything, NOW + KEPT_S + 3).series] == ["north-america"]


def topic(region: str, *ends: int | None, first: int = 0, stored: int = 0, replicas: int = 1) -> Topic:
    """A topic of so many partitions."""
    nodes = list(range(replicas))
    return Topic(
        region=region, name="LH.ORDERS", bytes=stored, records_per_s=None, bytes_per_s=None, mirror=None, settings=[],
        health="good", partitions=[
            Partition(number=number, leader=0, replicas=nodes, in_sync=nodes, first_offset=first, end_offset=end,
                      bytes=stored // len(ends))
            for number, end in enumerate(ends)
        ],
    )  # fmt: skip


def flow(at: float, *offsets: int, **changes: Any) -> FlowNow:
    """A flow that has copied up to these offsets."""
    connector = Connector(
        name="c", kind="MirrorSourceConnector", state="RUNNING", worker="w", tasks=[], source="europe", target="na",
        topics=".*", policy="identity", records_per_s=None, lag=7, lags={"LH.ORDERS": 7},
        positions=[Position(topic="LH.ORDERS", partition=n, offset=offset) for n, offset in enumerate(offsets)],
    )  # fmt: skip
    reported = Flow(
        source="europe", target="north-america", mirror="mm2", records_per_s=99.0, bytes_per_s=99.0, lag=7,
        latency_ms_p50=10, latency_ms_p99=20, health="good", explanation="",
    )  # fmt: skip
    found = FlowNow(reported, connector, {"LH.ORDERS": "LH.ORDERS"}, {}, at)
    return replace(found, **changes)


def now(at: float, topics: list[Topic], *flows: FlowNow) -> Now:
    """What is shown at a time."""
    latencies = {(one.region, one.name): (3, 4) for one in topics}
    return Now(list(flows), topics, dict.fromkeys(REGIONS, at), latencies)


def test_rates_are_what_came_between_two_samples_and_a_copys_are_without_its_markers() -> None:
    measuring = Measuring()
    topics = [topic("europe", 50, 50, stored=1000), topic("north-america", 60, 60, stored=1500)]
    began = measuring.values(now(100, topics, flow(100, 49, 49)))
    assert began[ORDERS]["records_per_s"] is None
    topics = [topic("europe", 150, 50, stored=4000, replicas=2), topic("north-america", 180, 60, stored=3500)]
    values = measuring.values(now(110, topics, flow(110, 149, 49)))
    assert next(iter(values)) == FLOW
    assert values[FLOW] == {"records_per_s": 10, "bytes_per_s": 200, "lag": 7, "lag_s": None, "latency_ms_p50": 10,
                            "latency_ms_p99": 20}  # fmt: skip
    assert values[ORDERS] == {"records_per_s": 10, "bytes_per_s": 100, "lag": None, "lag_s": None, "latency_ms_p50": 3,
                              "latency_ms_p99": 4}  # fmt: skip
    assert values[COPY]["records_per_s"] == 10
    assert (values[COPY]["bytes_per_s"], values[COPY]["lag"]) == (200, 7)


def test_lag_in_time_is_that_of_the_oldest_and_nothing_where_nothing_waits() -> None:
    waiting = TopicRisk("LH.ORDERS", 7, 12.5, 900.0, "time", 0, 0.0, endangered=False, gone=0, made_again=False)
    one = flow(100, 49, dangers={"LH.ORDERS": waiting})
    one = replace(one, flow=one.flow.model_copy(update={"lag_s": 12.5}))
    values = Measuring().values(now(100, [topic("north-america", 60)], one))
    assert (values[FLOW]["lag_s"], values[COPY]["lag_s"]) == (12.5, 12.5)
    rested = flow(100, 49, dangers={"LH.ORDERS": replace(waiting, behind=0, age_s=None)})
    values = Measuring().values(now(100, [topic("north-america", 60)], rested))
    assert (values[FLOW]["lag_s"], values[COPY]["lag_s"]) == (0, 0)


@pytest.mark.parametrize(
    ("before", "after", "records", "stored"),
    [
        (topic("europe", 50), topic("europe", 50, 30), 3, 0),  # a partition more, all of which is new
        (topic("europe", 50, stored=900), topic("europe", 60, first=20, stored=100), 1, None),  # retention deleted
        (topic("europe", 50), topic("europe", 5), None, 0),  # made again
        (topic("europe", 50), topic("europe", 60, None), None, None),  # a partition without a leader
    ],
)
def test_what_cannot_be_told_is_not_made_up(
    before: Topic, after: Topic, records: float | None, stored: float | None
) -> None:
    measuring = Measuring()
    measuring.values(now(100, [before]))
    values = measuring.values(now(110, [after]))[ORDERS]
    assert (values["records_per_s"], values["bytes_per_s"]) == (records, stored)


def test_neither_the_same_answer_again_nor_one_of_long_ago_makes_a_rate() -> None:
    measuring = Measuring()
    measuring.values(now(100, [topic("europe", 50)]))
    assert measuring.values(now(100.5, [topic("europe", 60)]))[ORDERS]["records_per_s"] is None
    assert measuring.values(now(110, [topic("europe", 60)]))[ORDERS]["records_per_s"] == 1
    assert measuring.values(now(110 + 3600, [topic("europe", 90)]))[ORDERS]["records_per_s"] is None
    assert len(measuring._before) == 1


def test_a_mirror_that_does_not_answer_leaves_a_flow_without_rates() -> None:
    lost = replace(flow(100), connector=None, copies={})
    values = Measuring().values(now(100, [topic("north-america", 60)], lost))
    assert values[FLOW]["records_per_s"] is None


def test_a_sample_that_nobody_looks_at_has_the_regions_read_and_is_no_look_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "GLANCE_S", 0.01)
    service, kept = MadeUpService(settings(*REGIONS)), LastHour()
    read: dict[str, float] = {}
    for name, region in service.regions.items():
        monkeypatch.setattr(region.live, "keep_going", lambda seconds=LINGER_S, name=name: read.update({name: seconds}))
    service.regions["europe"].live.feed(*(Record() for _ in range(9)))
    asyncio.run(Sampler(service, kept).sample(glance=True))
    assert set(read) == set(REGIONS)
    assert all(seconds < LINGER_S for seconds in read.values())
    assert not service.looked_at
    found = {(one.kind, one.region): one for one in kept.past(everything, time.time()).series}
    assert set(found) == {("flow", "north-america"), ("flow", "south-america"), *(("topic", name) for name in REGIONS)}
    assert found["topic", "europe"].latency_ms_p50[0] is not None
    read.clear()
    asyncio.run(Sampler(service, kept).sample(glance=False))
    assert read == {}
    asyncio.run(service.all_flows())
    assert service.looked_at
    assert read["europe"] == LINGER_S


@pytest.mark.parametrize(("looked_at", "most"), [(True, 12), (False, 2)])
def test_samples_are_seldom_while_nobody_looks(monkeypatch: pytest.MonkeyPatch, looked_at: bool, most: int) -> None:
    clock = 1000.0
    taken: list[float] = []

    async def passed(seconds: float) -> None:
        nonlocal clock
        clock += seconds
        if clock > 1000 + 125:
            raise asyncio.CancelledError

    async def sample(*, glance: bool) -> None:
        assert glance is not looked_at
        taken.append(clock)
        raise ZeroDivisionError  # and one that fails does not end it

    service = MadeUpService(settings())
    sampler = Sampler(service, LastHour())
    monkeypatch.setattr(MadeUpService, "looked_at", looked_at)
    monkeypatch.setattr(sampler, "sample", sample)
    monkeypatch.setattr(asyncio, "sleep", passed)
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sampler.run())
    assert len(taken) == most


def test_the_api_has_the_last_hour_of_what_is_asked_for() -> None:
    with running(settings(*REGIONS)) as found:
        kept = found.app.state.context.last_hour
        kept.add(time.time() - 20, {FLOW: FULL, ORDERS: FULL, COPY: FULL})
        kept.add(time.time() - 10, {FLOW: {"lag": 3.0}, ORDERS: FULL, COPY: FULL})
        browser = found.browser()
        past = browser.get("/api/history").json()
        assert len(past["times"]) == 2
        assert {one["kind"] for one in past["series"]} == {"flow", "topic"}
        (only,) = browser.get("/api/history?kind=flow").json()["series"]
        assert (only["source"], only["mirror"], only["topic"]) == ("europe", "mm2", "")
        assert (only["lag"], only["records_per_s"]) == ([1, 3], [1, None])
        (only,) = browser.get("/api/history?kind=topic&region=europe&topic=LH.ORDERS").json()["series"]
        assert Series.model_validate(only).region == "europe"
        assert browser.get("/api/history?topic=LH.NONE").json()["series"] == []


def test_the_page_has_the_numbers_of_each_chart_as_a_table_too() -> None:
    with running(settings(*REGIONS)) as found:
        browser = found.browser()
        assert "No sample was taken yet" in browser.get("/charts").text
        kept = found.app.state.context.last_hour
        for step, lag in enumerate((4000.0, 12.0, 250.0)):
            kept.add(time.time() - 30 + 10 * step, {FLOW: {**FULL, "lag": lag}, ORDERS: FULL, COPY: FULL})
        page = browser.get("/charts").text
        assert "europe → north-america, mm2</th>" in page
        assert '<td class="number">250</td><td class="number">12</td><td class="number">4,000</td>' in page
        assert 'data-points="[[' in page
        topics = browser.get("/charts?of=europe").text
        assert "europe: LH.ORDERS</th>" in topics
        assert "Lag in records" in topics
        one = browser.get("/charts?of=LH.ORDERS").text
        assert "europe: LH.ORDERS</th>" in one
        assert "north-america: LH.ORDERS</th>" in one
        assert "Nothing was measured" in browser.get("/charts?of=LH.NONE").text


def test_a_region_in_which_no_mirror_runs_opens_on_its_topics() -> None:
    with running(settings("europe")) as found:
        found.app.state.context.last_hour.add(time.time(), {ORDERS: FULL})
        assert "LH.ORDERS</th>" in found.browser().get("/charts").text


def test_no_more_lines_are_drawn_than_there_are_colours_and_the_busiest_are() -> None:
    with running(settings(*REGIONS)) as found:
        kept = found.app.state.context.last_hour
        kept.add(time.time(), {Subject("europe", f"LH.{n:02}"): {**FULL, "records_per_s": n} for n in range(30)})
        page = found.browser().get("/charts?of=europe").text
        assert "LH.29</th>" in page
        assert "LH.21</th>" not in page
        assert "The charts show the 8 busiest;" in page
        assert "has 22 more" in page


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        ([[10.0] * 99 + [5000.0]], 15.0),
        ([[10.0] * 90 + [5000.0] * 10], None),
        ([[0.0] * 99 + [5000.0]], None),
        ([[10.0] * 100, [5000.0] * 100], None),
        ([[10.0, 5000.0, None]], None),
        ([[None] * 30], None),
    ],
    ids=["one outlier", "often", "else nothing", "two sizes", "too few to judge", "no values"],
)
def test_a_scale_is_cut_for_few_high_values_only(lines: list[list[float | None]], end: float | None) -> None:
    assert scale_end(lines) == end


def test_changes_of_mirrors_links_and_stages_are_marked_once() -> None:
    marks = Marks()
    marks.observe(1, {"mm2": "running"})
    marks.observe(2, {"mm2": "paused", "link a – b": "open"})
    marks.observe(3, {"mm2": "paused", "link a – b": "cut"})
    for _ in range(2):
        marks.add(Mark(2.5, "stage cutover reached"))
    change = Change(at=4, user="u", region="a", action="create topic", subject="T", done=True, said="")
    others = [change.model_copy(update=one) for one in ({"done": False}, {"action": "change link"}, {"at": 0.5})]
    found = marks.latest(1.5, [change, *others], [])
    assert [one.text for one in found] == [
        "mm2: paused", "stage cutover reached", "link a – b: cut", "create topic T in a",
    ]  # fmt: skip


def test_the_stage_that_was_reached_last_is_marked_with_its_time(tmp_path: Path) -> None:
    assert stage_mark(tmp_path) is None
    progress = Progress("03-broadcast", "local", "i", stage="setup")
    progress.write(tmp_path)
    os.utime(tmp_path / "access" / "lab.json", (100, 100))
    assert stage_mark(tmp_path) == Mark(100, "set-up of 03-broadcast reached")
    replace(progress, unfinished="cutover").write(tmp_path)
    assert stage_mark(tmp_path)[1:] == ("stage cutover begun",)  # type: ignore[index]


@pytest.mark.parametrize(
    "wanted", [ChartSelection(""), ChartSelection("LH.ORDERS", "15m"), ChartSelection("", "all", whole=True)]
)
def test_what_a_page_shows_its_stream_can_ask_for(wanted: ChartSelection) -> None:
    assert ChartSelection.parse(wanted.text) == wanted
