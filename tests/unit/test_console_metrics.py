"""What a console serves to Prometheus."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from loosehanger.cli.playbook import only_one
from loosehanger.console import metrics
from loosehanger.console.context import Context
from loosehanger.console.flow_reader import FlowNow
from loosehanger.console.metrics import MOST_COPIES, Scrape
from loosehanger.console.models import Connector, Flow, Link, LinkDirection, PastProof, VerdictOfClaim
from loosehanger.console.retention_risk import LostOffsets
from loosehanger.console.sign_in import Attempts
from loosehanger.console.totals import MOST_TOPICS, Totals
from loosehanger.kafka.retention_risk import PartitionRisk, TopicRisk
from loosehanger.waiting import wait_for

from ..consoles import MadeUpMirror, Record, running, settings
from .test_console_routes import REGIONS

TOKEN = "a token of the tests"
BEARER = {"authorization": f"Bearer {TOKEN}"}
FLOW = {"source": "europe", "target": "north-america", "mirror": "mm2", "topic": "LH.ORDERS"}


@pytest.fixture(autouse=True)
def read_for_each_scrape(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Has each scrape wait for a reading of its own, unless a test is about readings that are kept."""
    if request.function not in (test_a_scrape_waits_for_no_cluster, test_an_old_reading_is_not_served):
        monkeypatch.setattr(metrics, "KEPT_S", 0.0)


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of an answer."""
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def of(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float | None:
    """The sample of this name and these labels; None where there is none."""
    return found.get((f"loosehanger_{name}", frozenset(labels.items())))


def test_a_stage_that_runs_is_known_and_one_that_was_interrupted_runs_no_more(tmp_path: Path) -> None:
    with running(settings(metrics_token=TOKEN, lab_home=tmp_path)) as found:

        def value() -> float | None:
            return of(samples(found.browser().get("/metrics", headers=BEARER).text), "stage_running")

        assert value() == 0  # before the first one, there is no lock
        with only_one(tmp_path):
            assert value() == 1
        assert value() == 0
        with only_one(tmp_path, shared=True):
            assert value() == 0  # it only reads
    with running(settings(metrics_token=TOKEN)) as found:
        assert value() is None


def test_metrics_need_their_own_token(monkeypatch: pytest.MonkeyPatch) -> None:
    delayed: list[float] = []

    def failed(_: Attempts) -> float:
        delayed.append(0.0)
        return 0.0

    monkeypatch.setattr(Attempts, "failed", failed)
    with running(settings(metrics_token=TOKEN)) as found:
        anybody, signed_in = found.browser(signed_in=False), found.browser()
        assert anybody.get("/metrics").status_code == 401
        assert signed_in.get("/metrics").status_code == 401  # a session is no token
        wrongs = ("Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \xff")
        for wrong in wrongs:
            answer = anybody.get("/metrics", headers={"authorization": wrong.encode("latin-1")})
            assert answer.status_code == 401, wrong
            assert TOKEN not in answer.text
        # Each of them counts, so that guessing gets slower; the right one does not.
        assert len(delayed) == 2 + len(wrongs)
        assert anybody.get("/metrics", headers=BEARER).status_code == 200
        assert len(delayed) == 2 + len(wrongs)
        # Nothing else is open to the scraper.
        assert anybody.get("/api/topics", headers=BEARER).status_code == 401


def test_a_console_without_a_token_has_no_metrics() -> None:
    with running(settings()) as found:
        answer = found.browser(signed_in=False).get("/metrics", headers={"authorization": "Bearer "})
        assert answer.status_code == 404
        assert "CONSOLE_METRICS_TOKEN_FILE" in answer.text


def risk(**changes: object) -> TopicRisk:
    """A copy that is three records behind."""
    given = TopicRisk(
        "LH.ORDERS", behind=3, age_s=4.5, loss_in_s=60.0, by="age", partition=0, pace=None, endangered=False, gone=0,
        made_again=False,
    )  # fmt: skip
    return replace(given, **changes)  # type: ignore[arg-type]


def test_a_flow_is_measured_topic_by_topic() -> None:
    with running(settings(*REGIONS, metrics_token=TOKEN)) as found:
        browser = found.browser(signed_in=False)
        found.service.regions["europe"].losses.dangers = {"LH.ORDERS": risk()}
        target = found.service.regions["north-america"].live
        now = time.time_ns() // 1_000_000
        target.feed(*(Record(timestamp=now - 300, offset=n, key=b"key", value=b"value") for n in range(5)))
        first = samples(browser.get("/metrics", headers=BEARER).text)
        assert of(first, "mirror_lag_records", **FLOW) == 3
        assert of(first, "mirror_lag_seconds", **FLOW) == 4.5
        assert of(first, "mirror_time_to_loss_seconds", **FLOW) == 60
        assert of(first, "mirror_loss_near", **FLOW) == 0
        assert of(first, "mirror_copied_records_total", **FLOW) == 5
        assert of(first, "mirror_copied_bytes_total", **FLOW) == 5 * len(b"keyvalue")
        assert of(first, "mirror_end_to_end_latency_seconds_bucket", **FLOW, le="0.25") == 0
        assert of(first, "mirror_end_to_end_latency_seconds_bucket", **FLOW, le="+Inf") == 5
        assert of(first, "mirror_end_to_end_latency_seconds_count", **FLOW) == 5
        assert (of(first, "mirror_end_to_end_latency_seconds_sum", **FLOW) or 0) >= 5 * 0.3
        # The other mirror of this topic has copied nothing that the console has read: absent, not 0.
        assert of(first, "mirror_copied_records_total", **{**FLOW, "target": "south-america"}) is None
        # Nothing waits: a lag of 0, and no time to loss.
        found.service.regions["europe"].losses.dangers = {
            "LH.ORDERS": risk(behind=0, age_s=None, loss_in_s=None, gone=7, endangered=True)
        }
        later = samples(browser.get("/metrics", headers=BEARER).text)
        assert of(later, "mirror_lag_seconds", **FLOW) == 0
        assert of(later, "mirror_time_to_loss_seconds", **FLOW) is None
        assert of(later, "mirror_deleted_offsets", **FLOW) == 7
        assert of(later, "mirror_loss_near", **FLOW) == 1
        assert of(later, "mirror_copied_records_total", **FLOW) == 5


def test_a_loss_is_counted_after_the_mirror_has_passed_it() -> None:
    lost = LostOffsets()

    def look(position: int | None, start: int, gone: int, partition: int = 0) -> None:
        lost.read("na", [PartitionRisk("LH.ORDERS", partition, position, start, 100, behind=0, gone=gone)])

    look(9, 10, 0)
    assert lost.of("na") == {}
    look(9, 15, 5)
    look(9, 17, 7)  # the same loss, grown
    assert lost.of("na") == {"LH.ORDERS": 7}
    assert lost.of("sa") == {}
    look(40, 17, 0)
    assert lost.of("na") == {"LH.ORDERS": 7}
    look(40, 43, 2)
    look(3, 5, 1, partition=1)
    assert lost.of("na") == {"LH.ORDERS": 10}
    look(41, 43, 1)  # what it had fetched before arrives late
    assert lost.of("na") == {"LH.ORDERS": 9}
    with running(settings(*REGIONS, metrics_token=TOKEN)) as found:
        europe = found.service.regions["europe"].losses
        europe.dangers = {"LH.ORDERS": risk()}
        key = "north-america/europe->here.MirrorSourceConnector"
        europe.lost.read(key, [PartitionRisk("LH.ORDERS", 0, 9, 15, 100, behind=0, gone=5)])
        europe.lost.read(key, [PartitionRisk("LH.ORDERS", 0, 90, 15, 100, behind=0)])
        seen = samples(found.browser(signed_in=False).get("/metrics", headers=BEARER).text)
        assert of(seen, "mirror_deleted_offsets", **FLOW) == 5
        assert of(seen, "mirror_deleted_offsets", **{**FLOW, "target": "south-america"}) == 0


def test_states_of_mirrors_and_regions() -> None:
    with running(settings(*REGIONS, metrics_token=TOKEN)) as found:
        browser = found.browser(signed_in=False)
        mirror = found.service.regions["north-america"].mirrors["mm2"]
        assert isinstance(mirror, MadeUpMirror)
        mirror.connector_state = "PAUSED"
        found.service.regions["south-america"].cluster.down = True
        seen = samples(browser.get("/metrics", headers=BEARER).text)
        connector = {"region": "north-america", "mirror": "mm2", "connector": "europe->here.MirrorSourceConnector"}
        assert of(seen, "connector_state", **connector, state="paused") == 1
        assert of(seen, "connector_state", **connector, state="running") == 0
        assert of(seen, "connector_desired_state", **connector, state="running") == 1
        assert of(seen, "task_state", **connector, task="0", state="paused") == 1
        assert of(seen, "mirror_up", region="north-america", mirror="mm2") == 1
        assert of(seen, "region_up", region="south-america") == 0
        assert of(seen, "region_up", region="europe") == 1
        assert of(seen, "proof_ended_timestamp_seconds") is None  # none was run


def test_links_and_the_last_proof() -> None:
    way = LinkDirection(
        source="europe", target="asia", delay_ms=80, jitter_ms=0, bytes_per_s=None, silent=False, carried=12,
        on_the_way=0, clients=[],
    )  # fmt: skip
    back = way.model_copy(update={"source": "asia", "target": "europe", "silent": True, "bytes_per_s": 1e6})
    link = Link(
        between=("europe", "asia"), state="silent to europe", health="warning", explanation="", since=None,
        directions=[way, back],
    )  # fmt: skip
    claims = [VerdictOfClaim(id=str(n), says="", verdict=verdict) for n, verdict in enumerate(["proved", "disproved"])]
    proof = PastProof(
        id="1", started=1000.0, seconds=5.0, verdict="disproved", explanation="", claims=claims, report=False
    )
    reading = Scrape(flows=[], regions={"europe": None}, mirrors=[], totals={}, links=[link], proof=proof)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(reading)
    seen = samples(generate_latest(registry).decode())
    assert of(seen, "link_open", source="europe", target="asia") == 1
    assert of(seen, "link_open", source="asia", target="europe") == 0
    assert of(seen, "link_delay_seconds", source="europe", target="asia") == 0.08
    assert of(seen, "link_rate_limit_bytes_per_second", source="europe", target="asia") is None
    assert of(seen, "link_carried_bytes_total", source="europe", target="asia") == 12
    assert of(seen, "proof_verdict", verdict="disproved") == 1
    assert of(seen, "proof_verdict", verdict="proved") == 0
    assert of(seen, "proof_ended_timestamp_seconds") == 1005
    assert of(seen, "proof_claims", verdict="proved") == 1
    assert of(seen, "region_up", region="europe") is None  # behind a closed link


def test_both_formats_are_valid() -> None:
    with running(settings(*REGIONS, metrics_token=TOKEN)) as found:
        browser = found.browser(signed_in=False)
        found.service.regions["north-america"].live.feed(Record())
        plain = browser.get("/metrics", headers=BEARER)
        assert plain.headers["content-type"].startswith("text/plain")
        wanted = {**BEARER, "accept": "application/openmetrics-text; version=1.0.0"}
        modern = browser.get("/metrics", headers=wanted)
        assert modern.headers["content-type"].startswith("application/openmetrics-text")
        families = parse_openmetrics(modern.text)  # type: ignore[no-untyped-call]
        assert "loosehanger_mirror_copied_records" in {family.name for family in families}
        if promtool := shutil.which("promtool"):
            checked = subprocess.run(
                [promtool, "check", "metrics"], input=plain.content, capture_output=True, timeout=30
            )
            assert checked.returncode == 0, checked.stdout + checked.stderr


def flow_now(mirror: str, copies: dict[str, str], wanted: str | None = "RUNNING", state: str = "RUNNING") -> FlowNow:
    """A flow whose copies lag by one record; without a connector where nothing is wanted of it."""
    connector = Connector(
        name="c", kind="MirrorSourceConnector", state=state, wanted=wanted or "", worker="", tasks=[], source="a",
        target="b", topics=".*", policy="identity", positions=[], records_per_s=None, lags=dict.fromkeys(copies, 1),
    )  # fmt: skip
    flow = Flow(
        source="a", target="b", mirror=mirror, records_per_s=None, bytes_per_s=None, lag=None, latency_ms_p50=None,
        latency_ms_p99=None, health="good", explanation="",
    )  # fmt: skip
    return FlowNow(flow, None if wanted is None else connector, copies, {}, 0.0)


def test_a_mirror_that_its_manifest_has_stopped_is_not_to_copy() -> None:
    flows = [
        flow_now("runs", {}),
        flow_now("paused-by-hand", {}, state="PAUSED"),
        flow_now("stopped", {}, wanted="STOPPED", state="STOPPED"),
        flow_now("paused", {}, wanted="PAUSED", state="PAUSED"),
        flow_now("not-known", {}, wanted=""),
        flow_now("silent", {}, wanted=None),
    ]
    (found,) = (
        family for family in Scrape(flows, {}, [], {}, [], None).collect() if family.name.endswith("desired_running")
    )
    assert {one.labels["mirror"]: one.value for one in found.samples} == {
        "runs": 1, "paused-by-hand": 1, "stopped": 0, "paused": 0, "not-known": 1,
    }  # fmt: skip


def test_the_number_of_series_is_bounded() -> None:
    totals = Totals()
    totals.add({f"topic-{n}": (1, 1) for n in range(MOST_TOPICS + 5)}, [("topic-1", 20), ("unknown", 20)])
    assert len(totals.of(f"topic-{n}" for n in range(MOST_TOPICS + 5))) == MOST_TOPICS
    reading = Scrape([flow_now("m", {f"LH.{n}": f"LH.{n}" for n in range(MOST_COPIES + 3)})], {}, [], {}, [], None)
    found = {family.name: family for family in reading.collect()}
    assert len(found["loosehanger_mirror_lag_records"].samples) == MOST_COPIES
    assert found["loosehanger_copies_left_out"].samples[0].value == 3


def test_a_scrape_waits_for_the_first_reading_of_a_source_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(settings(*REGIONS, metrics_token=TOKEN)) as found:
        losses = found.service.regions["europe"].losses
        look = Future[None]()
        monkeypatch.setattr(losses, "looks", lambda: [] if look.done() else [look])
        losses.dangers = {"LH.ORDERS": risk()}
        browser = found.browser(signed_in=False)
        seen = samples(browser.get("/metrics", headers=BEARER).text)
        assert of(seen, "mirror_lag_records", **FLOW) == 3
        losses.dangers = {}
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(browser.get, "/metrics", headers=BEARER)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            losses.dangers = {"LH.ORDERS": risk(behind=9)}
            look.set_result(None)
            seen = samples(waiting.result(timeout=60).text)
        assert of(seen, "mirror_lag_records", **FLOW) == 9


def stopping(monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], asyncio.Event]:
    """Counts the readings, of which all but the first wait until the event is set."""
    readings: list[float] = []
    open_ = asyncio.Event()
    real = metrics.read

    async def read(context: Context) -> Scrape:
        readings.append(time.monotonic())
        if len(readings) > 1:
            await open_.wait()
        return await real(context)

    monkeypatch.setattr(metrics, "read", read)
    return readings, open_


def test_a_scrape_waits_for_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, _ = stopping(monkeypatch)
    monkeypatch.setattr(metrics, "EVERY_S", 0.01)
    with running(settings(*REGIONS, metrics_token=TOKEN)) as found:
        browser = found.browser(signed_in=False)
        first = browser.get("/metrics", headers=BEARER)
        # From now on no reading comes to an end, and the last one is served.
        wait_for(lambda: None if len(readings) > 1 else "the next reading", 30, "the console")
        second = browser.get("/metrics", headers=BEARER)
        assert second.text == first.text
        read_at = of(samples(second.text), "metrics_read_timestamp_seconds")
        assert read_at == pytest.approx(time.time(), abs=60)
        assert len(readings) == 2


def test_an_old_reading_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, open_ = stopping(monkeypatch)
    open_.set()
    monkeypatch.setattr(metrics, "EVERY_S", 3600.0)
    with running(settings(*REGIONS, metrics_token=TOKEN)) as found:
        browser = found.browser(signed_in=False)
        for _ in range(3):
            assert browser.get("/metrics", headers=BEARER).status_code == 200
        assert len(readings) == 1
        # Another format of the same reading is not at hand.
        accept = {"accept": "application/openmetrics-text; version=1.0.0"}
        assert "openmetrics" in browser.get("/metrics", headers=BEARER | accept).headers["content-type"]
        assert len(readings) == 2
        monkeypatch.setattr(metrics, "KEPT_S", 0.0)
        browser.get("/metrics", headers=BEARER)
        assert len(readings) == 3
