"""What plain tools show of a fault: read from an exporter and from Connect, kept as data, and shown on the page."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.measured import MEASURED, METRICS, Pair, PlainFacts, read_measured
from loosehanger.faults.names import fault_names
from loosehanger.kafka.connect import ConnectClient
from loosehanger.lab.mirrors.mirror import Mirror
from scripts import plain_tools
from scripts.fault_page import HEALTHY, _differing
from scripts.plain_tools import plain_looks, write_facts

CONNECTOR = "europe->northamerica.MirrorSourceConnector"
MIRROR = Mirror(
    "mm2-na", "europe", "northamerica", "europe", "north-america", "identity", ".", ".*", "", CONNECTOR,
    connect={"url": "http://localhost:1"}, region="north-america",
)  # fmt: skip
SAMPLES = """\
# HELP x y
kafka_connect_mirror_mirrorsourceconnector_record_count{{partition="0",source="europe",target="northamerica",topic="A"}} {count}
kafka_connect_mirror_mirrorsourceconnector_record_count{{partition="0",source="asia",target="northamerica",topic="A"}} 5000.0
kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms{{source="europe",target="northamerica",topic="A"}} NaN
kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms{{source="europe",target="northamerica",topic="B"}} 40.0
kafka_connect_worker_connector_failed_task_count{{connector="\\"europe->northamerica.MirrorSourceConnector\\""}} {failed}
kafka_connect_worker_connector_failed_task_count{{connector="\\"asia->northamerica.MirrorSourceConnector\\""}} 7.0
kafka_consumer_fetch_manager_records_lag{{clientid="\\"e|europe->northamerica.MirrorSourceConnector-0|replication-consumer\\"",topic="A"}} 12.0
kafka_consumer_fetch_manager_records_lag{{clientid="mm2-na-offsets",topic="x"}} 99.0
"""  # noqa: E501


class Clock:
    """Time that passes only in a sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the exporter and Connect answer, one look after the other; the last forever."""
    clock = Clock()
    found: dict[str, list[Any]] = {"metrics": [], "states": []}

    def next_of(what: str) -> Any:
        kept = found[what]
        answer = kept.pop(0) if len(kept) > 1 else kept[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def get(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(text=next_of("metrics"), raise_for_status=lambda: None)

    def statuses(_: ConnectClient) -> dict[str, Any]:
        task = {"id": 0, "state": next_of("states")}
        return {CONNECTOR: {"connector": {"state": "RUNNING"}, "tasks": [task]}}

    monkeypatch.setattr(plain_tools, "time", clock)
    monkeypatch.setattr("requests.get", get)
    monkeypatch.setattr(ConnectClient, "statuses", statuses)
    return found


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    """A lab with one exporter of a worker and one of a node."""
    (tmp_path / "password").write_text("x", encoding="utf-8")
    ways = {"address": "127.0.0.1:1", "username": "u", "password_file": str(tmp_path / "password")}
    exporters = [SimpleNamespace(kind="KafkaMirrorMaker2", cluster="mm2-na", **ways)]
    return cast("Any", SimpleNamespace(region=lambda _: SimpleNamespace(exporters=exporters), scenario="03-broadcast"))


def test_a_look_counts_what_was_copied_and_keeps_each_state_once(answers: dict[str, list[Any]], lab: Any) -> None:
    answers["metrics"] = [SAMPLES.format(count=1000.0, failed=0.0), SAMPLES.format(count=1120.0, failed=1.0)]
    answers["states"] = ["RUNNING", "FAILED", "FAILED", "RUNNING"]
    states, metrics = plain_looks(lab, MIRROR)
    assert states == {
        "MirrorSourceConnector": "RUNNING, tasks: RUNNING, then RUNNING, tasks: FAILED, then RUNNING, tasks: RUNNING"
    }
    assert metrics == {
        "records_copied": 120.0, "failed_tasks": 1.0, "series": 1.0, "consumer_lag": 12.0, "latency_ms": 40.0
    }  # fmt: skip


def test_a_worker_that_does_not_answer_has_no_metrics(answers: dict[str, list[Any]], lab: Any) -> None:
    answers["metrics"] = [requests.ConnectionError("no")]
    answers["states"] = [LabError("no")]
    states, metrics = plain_looks(lab, MIRROR)
    assert (states, metrics) == ({"": "no answer"}, dict.fromkeys(METRICS))


def facts(**changes: Any) -> PlainFacts:
    """Those of a fault that nothing shows."""
    same = {name: Pair(before=100.0, during=100.0) for name in METRICS}
    given = {"fault": "link-slow", "scenario": "s", "kafka": "4", "seconds": 1.0, "connect": {"C": HEALTHY}}
    return PlainFacts(**{**given, "metrics": same, **changes})


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({}, "nothing"),
        ({"connect": {"C": f"{HEALTHY}, then RUNNING, tasks: FAILED"}}, "Connect"),
        ({"records_copied": Pair(before=100.0, during=0.0)}, "no record is copied"),
        ({"series": Pair(before=14.0, during=None)}, "series of MirrorSourceConnector"),
        ({"consumer_lag": Pair(before=30.0, during=99.0)}, "nothing"),
        ({"latency_ms": Pair(before=30.0, during=2000.0)}, "highest replication-latency-ms"),
    ],
)
def test_what_differs_is_named(changes: dict[str, Any], differs: str) -> None:
    whole = {name: changes.pop(name) for name in ("connect",) if name in changes}
    same = facts().metrics
    assert _differing(facts(**whole, metrics={**same, **changes})) == differs


def test_facts_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_measured("link-slow", tmp_path) is None
    write_facts(facts(), tmp_path)
    assert read_measured("link-slow", tmp_path) == facts()
    (tmp_path / "link-slow.yaml").write_text("fault: link-slow\nodd: 1\n", encoding="utf-8")
    with pytest.raises(WrongUseError, match=r"link-slow\.yaml"):
        read_measured("link-slow", tmp_path)


def test_what_was_measured_is_of_the_catalogue() -> None:
    measured = [found for name in fault_names() if (found := read_measured(name))]
    assert {one.stem for one in MEASURED.glob("*.yaml")} == {one.fault for one in measured}
    assert all(one.metrics.keys() == METRICS.keys() for one in measured)
