"""What the watch serves to Prometheus: real answers over HTTP, from documents of the watch."""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from loosehanger.audit.balance import KINDS
from loosehanger.audit.canary import Arrivals
from loosehanger.audit.metrics import MOST_FLOWS, AuditMetrics, MetricsServer
from loosehanger.audit.verdicts import verdict_of
from loosehanger.errors import WrongUseError
from loosehanger.jobs import watch
from loosehanger.lab import job_options
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.flows import Flow

TOKEN = "a token of the tests"
AT = 1_800_000_000.0
LABELS = {"source": "europe", "target": "na", "mirror": "mm2-na", "topic": "LH.ORDERS"}


def flow(**changes: Any) -> dict[str, Any]:
    """A flow of a document, in which everything has arrived."""
    numbers = dict.fromkeys(("in_flight", "late", *KINDS, "equal_buckets", "open_buckets"), 0)
    return {**LABELS, "target_topic": LABELS["topic"], "records": 7, "copies": 7, "older": 0, **numbers} | changes


def canary(**changes: Any) -> dict[str, Any]:
    """A canary's standing: it was sent 30 s before the round, and its copy was read 1.5 s later."""
    known = {"newest": "2027-01-15T07:59:30.000+00:00", "latency_s": 1.5, "late": 0, "missing": 0}
    return {**LABELS, "topic": "LH.CANARY", "sent": 1, "verdict": "arriving", **known} | changes


def document(*flows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A document of the watch."""
    lists: dict[str, Any] = {name: [] for name in ("problems", "canaries", "findings", "notes", "not_judged")}
    totals = {"late": sum(one["late"] for one in flows)}
    times = {"at": AT * 1000, "read_at": AT * 1000 - 5_000, "since": AT * 1000 - 60_000}
    return {**times, "flows": list(flows), "totals": totals, **lists} | changes


def metrics(found: dict[str, Any] | None, canary_s: float | None = None) -> AuditMetrics:
    """The metrics after this round, read 10 s later."""
    made = AuditMetrics(5, canary_s, lambda: AT + 10)
    assert list(made.following([found] if found else [])) == ([found] if found else [])
    return made


def samples(made: AuditMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of a scrape, by its name after the prefix."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(made)
    return {
        (one.name.removeprefix("loosehanger_audit_"), frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for one in family.samples
    }


def of(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float | None:
    """The sample of this name and these labels; None where there is none."""
    return found.get((name, frozenset(labels.items())))


def test_before_the_first_round_nothing_is_known() -> None:
    found = samples(metrics(None, canary_s=120))
    assert {name for name, _ in found} == {"started_timestamp_seconds"}


def test_a_round_shows_what_was_checked_and_what_differs() -> None:
    differs = flow(records=9, copies=8, missing=1, duplicates=2, late=3, in_flight=4)
    found = samples(metrics(document(differs, findings=[{}], notes=[{}, {}], problems=["europe does not answer"])))
    assert of(found, "source_records_total", **LABELS) == 9
    assert of(found, "target_records_total", **LABELS) == 8
    assert of(found, "judged", **LABELS) == 1
    assert of(found, "differences", **LABELS, kind="missing") == 1
    assert of(found, "differences", **LABELS, kind="duplicates") == 2
    assert of(found, "differences", **LABELS, kind="altered") == 0
    assert of(found, "late_records", **LABELS) == 3
    assert of(found, "in_flight_records", **LABELS) == 4
    assert of(found, "round_timestamp_seconds") == AT
    assert of(found, "read_timestamp_seconds") == AT - 5
    assert [of(found, "round_verdict", verdict=one) for one in ("proved", "disproved", "inconclusive")] == [0, 1, 0]
    assert [of(found, "alarms", kind=kind) for kind in ("problems", "findings", "notes")] == [1, 1, 2]
    assert "canary_age_seconds" not in {name for name, _ in found}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({}, "proved"), ({"problems": ["x"]}, "inconclusive"), ({"findings": [{}], "problems": ["x"]}, "disproved")],
)
def test_the_verdict_of_a_round(changes: dict[str, Any], verdict: str) -> None:
    assert verdict_of(document(flow(), **changes)) == verdict
    assert verdict_of(document(flow(late=1))) == "inconclusive"


def test_a_topic_that_is_not_judged_has_no_differences() -> None:
    found = samples(metrics(document(not_judged=[{**LABELS, "why": "LH.ORDERS in na is compacted"}])))
    assert of(found, "judged", **LABELS) == 0
    assert not {"differences", "late_records", "source_records_total"} & {name for name, _ in found}


def test_differences_of_a_topic_with_several_sources_count_once() -> None:
    flows = [flow(source=source, mirror=f"mm2-{source}", missing=2, target_topic="ALL") for source in ("a", "b")]
    found = samples(metrics(document(*flows)))
    missing = {labels: value for (name, labels), value in found.items() if name == "differences" and value}
    joined = {"source": "a+b", "target": "na", "mirror": "mm2-a+mm2-b", "topic": "LH.ORDERS", "kind": "missing"}
    assert missing == {frozenset(joined.items()): 2}
    assert sum(value for (name, _), value in found.items() if name == "source_records_total") == 14


def test_a_canary_has_an_age_once_it_has_arrived() -> None:
    of_canary = LABELS | {"topic": "LH.CANARY"}
    found = samples(metrics(document(canaries=[canary(late=1)]), canary_s=120))
    assert of(found, "canary_age_seconds", **of_canary) == 40
    assert of(found, "canary_latency_seconds", **of_canary) == 1.5
    assert of(found, "canary_interval_seconds") == 120
    assert of(found, "round_interval_seconds") == 5
    assert of(found, "alarms", kind="canaries") == 1
    found = samples(metrics(document(canaries=[canary(newest=None, latency_s=None)]), canary_s=120))
    assert of(found, "canary_age_seconds", **of_canary) is None
    assert of(found, "alarms", kind="canaries") == 0


def test_the_newest_canary_that_arrived_is_found_among_those_that_were_sent() -> None:
    mirror = Mirror("m", "europe", "na", "europe", "na", "identity", ".", "LH.*", "", "c")
    canaries, one = Arrivals(), Flow(mirror, "LH.CANARY", "LH.CANARY")
    canaries.take(one, 0, 1, 500)
    assert canaries.newest == {}  # It was sent by an earlier run.
    for at_ms in (20_000, 23_000, 31_000):
        canaries.note_sent("europe", at_ms)
    canaries.take(one, 2, 1, 20_700)
    assert (canaries.newest[one.id].sent_ms, canaries.newest[one.id].latency_s) == (20_000, 0.7)
    canaries.take(one, 2, 1, 24_500)
    assert (canaries.newest[one.id].sent_ms, canaries.newest[one.id].latency_s) == (23_000, 1.5)
    canaries.take(one, 3, 1, 31_250)
    assert canaries.newest[one.id].latency_s == 0.25
    canaries.take(one, 2, 1, 40_000)  # A copy that was made twice says nothing new.
    assert canaries.newest[one.id].sent_ms == 31_000


def test_the_number_of_series_is_bounded() -> None:
    found = samples(metrics(document(*(flow(topic=f"T{n}", target_topic=f"T{n}") for n in range(MOST_FLOWS + 20)))))
    assert sum(name == "source_records_total" for name, _ in found) == MOST_FLOWS
    assert sum(name == "differences" for name, _ in found) == MOST_FLOWS * len(KINDS)
    assert of(found, "copies_left_out") == 20


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a server with one round."""
    with MetricsServer(metrics(document(flow())), ("127.0.0.1", 0), TOKEN) as server:
        yield f"http://127.0.0.1:{server.port}"


def ask(url: str, **headers: str) -> tuple[int, str, str]:
    """Status, media type and text of an answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with closing(opener.open(urllib.request.Request(url, headers=headers), timeout=10)) as answer:  # noqa: S310
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code, error.headers["content-type"], error.read().decode()


def test_nothing_is_served_without_the_token(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    wrongs = (
        {},
        *({"Authorization": text} for text in ("Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer é")),
    )
    for wrong in wrongs:
        for path in ("/metrics", "/", "/favicon.ico"):
            status, _, text = ask(address + path, **wrong)
            assert status == 401, wrong
            assert "loosehanger_audit" not in text
            assert TOKEN not in text
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(f"{address}/other", **right)[0] == 404
    status, kind, text = ask(f"{address}/metrics", **right)
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "loosehanger_audit_source_records_total{" in text
    status, kind, text = ask(f"{address}/metrics", Accept="application/openmetrics-text; version=1.0.0", **right)
    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
    assert "loosehanger_audit_differences" in {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert capfd.readouterr() == ("", "")


def test_an_address_in_use_is_wrong_use(address: str) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(WrongUseError, match=f"--metrics: cannot listen on 127.0.0.1:{port} .*; name another port"):
        MetricsServer(metrics(None), ("127.0.0.1", port), TOKEN)


def options(*words: str) -> argparse.Namespace:
    """The watch's options."""
    return job_options.parser("watch").parse_args(words)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9095", ("127.0.0.1", 9095)),
        ("localhost:9095", ("127.0.0.1", 9095)),
        ("127.0.0.2:1", ("127.0.0.2", 1)),
    ],
)
def test_addresses_that_may_be_listened_on(text: str, address: tuple[str, int]) -> None:
    assert options("--metrics", text).metrics == address


@pytest.mark.parametrize(
    "text", ["x", "0", "65536", "127.0.0.1", "0.0.0.0:9095", "10.0.0.1:9095", "host:9095", ":", ""]
)
def test_other_addresses_are_wrong_use(text: str) -> None:
    with pytest.raises(WrongUseError, match="address") as caught:
        options("--metrics", text)
    assert "\n" not in str(caught.value)


def test_the_tokens_file_must_have_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(WrongUseError, match="cannot be read"):
        job_options.check_watch(options("--metrics", "9095", "--metrics-token-file", str(path)))
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(WrongUseError, match="is empty"):
        job_options.check_watch(options("--metrics", "9095", "--metrics-token-file", str(path)))
    path.write_text(f"{TOKEN}\n", encoding="utf-8")
    job_options.check_watch(options("--metrics", "9095", "--metrics-token-file", str(path)))
    assert job_options.metrics_token(path) == TOKEN
    with pytest.raises(WrongUseError, match="needs --metrics"):
        job_options.check_watch(options("--metrics-token-file", str(path)))


def test_the_labs_prometheus_finds_a_watch_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "lab_home", lambda: tmp_path)
    watch._announce("127.0.0.1", 9095, "03-broadcast")
    (found,) = (tmp_path / "monitoring").glob("targets/*.json")
    assert json.loads(found.read_text(encoding="utf-8")) == [
        {"targets": ["127.0.0.1:9095"], "labels": {"scenario": "03-broadcast"}}
    ]
    for _ in range(2):
        watch._withdraw()
        assert not found.exists()
