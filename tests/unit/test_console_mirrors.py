"""What the consoles say of mirrors, and what they do when a job cannot run."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from kafka import TopicPartition

from loosehanger.acls import AclRule
from loosehanger.console import rights
from loosehanger.console.geography import Coordinates
from loosehanger.console.jobs import BusyError, Jobs
from loosehanger.console.manifests import MirrorManifests, MirrorState
from loosehanger.console.mirrors import SOURCE_CONNECTOR, MirrorMakerView, explain, judged
from loosehanger.console.models import Connector, Flow, Mirror, Task
from loosehanger.console.retention_risk import Losses, MirrorReading
from loosehanger.console.scenario import read_scenario
from loosehanger.console.settings import ConnectAccess
from loosehanger.console.views import LABEL, LABEL_LINE, arc, charts, label, lines, places_of
from loosehanger.kafka import retention_risk
from loosehanger.kafka.connect import ConnectClient, ConnectError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.retention_risk import PartitionRisk
from loosehanger.lab.mirrors.replication import IDENTITY_POLICY
from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes import console_facts
from tests.samples import aggregates


def connector(state: str, *tasks: str, trace: str = "") -> Connector:
    """A connector with tasks in these states."""
    return Connector(
        name="a->b.MirrorSourceConnector", kind="MirrorSourceConnector", state=state, worker="w", trace=trace,
        tasks=[Task(number=number, state=task, worker="w", trace=trace) for number, task in enumerate(tasks)],
        source="a", target="b", topics=".*", policy="identity", positions=[], records_per_s=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("connectors", "health", "said"),
    [
        ([connector("RUNNING", "RUNNING", "RUNNING")], "good", ""),
        ([], "bad", "europe's mirror mm2 has no connector; run the set-up again"),
        ([connector("RUNNING", "RUNNING", "FAILED", trace="java.Oops: no\n\tat x")], "bad",
         "task 1 of a->b.MirrorSourceConnector has failed: java.Oops: no."),
        ([connector("RUNNING", "FAILED")], "bad", "has failed: no reason given"),
        ([connector("RUNNING", "FAILED", trace="a.B: no\n\tat x\nCaused by: c.TooLarge: 10 MB\n\tat y")], "bad",
         "has failed: c.TooLarge: 10 MB."),
        ([connector("RUNNING", "RESTARTING")], "warning", "is restarting: this takes a few seconds"),
        ([connector("RUNNING", "RESTARTING", trace="c.TooLarge: 10 MB")], "bad",
         "task 0 of a->b.MirrorSourceConnector is restarting after a failure: c.TooLarge: 10 MB."),
        ([connector("STOPPED")], "warning", "europe's mirror mm2: a->b.MirrorSourceConnector is stopped. Start"),
        ([connector("PAUSED", "PAUSED")], "warning", "is paused. Start it with Resume"),
        ([connector("RUNNING")], "warning", "has no task yet"),
        ([connector("UNASSIGNED", "UNASSIGNED")], "warning", "is unassigned"),
        ([connector("RUNNING", "RUNNING"), connector("PAUSED", "PAUSED")], "warning", "is paused"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_mirror_and_what_to_do(connectors: list[Connector], health: str, said: str) -> None:
    found, explanation = explain("europe", "mm2", connectors)
    assert found == health
    assert said in explanation
    assert "\n" not in explanation


@pytest.mark.parametrize(
    ("wanted", "state", "health", "said"),
    [
        ("STOPPED", "STOPPED", "good", ""),
        ("PAUSED", "PAUSED", "good", ""),
        ("RUNNING", "STOPPED", "warning",
         "europe's mirror mm2: a->b.MirrorSourceConnector is stopped, and must be running. Start it with Resume"),
        ("STOPPED", "RUNNING", "warning", "is running, and its manifest says stopped: the next set-up applies that"),
        ("STOPPED", "FAILED", "bad", "has failed"),
    ],
)  # fmt: skip
def test_a_mirror_is_judged_by_what_its_manifest_wants(wanted: str, state: str, health: str, said: str) -> None:
    tasks = () if state == "STOPPED" else (state,)
    one = connector(state, *tasks).model_copy(update={"wanted": wanted})
    found, explanation = explain("europe", "mm2", [one])
    assert found == health
    assert said in explanation
    assert "`" not in explain("europe", "mm2", [connector("STOPPED")])[1]
    assert judged([one]).healthy == (health == "good")


def test_what_a_manifest_wants_is_in_the_record(tmp_path: Path) -> None:
    record = tmp_path / "access" / "europe.json"
    record.parent.mkdir()
    spec: dict[str, Any] = {"target": {"alias": "na"}, "mirrors": [
        {"source": {"alias": "eu"}, "sourceConnector": {"state": "stopped"}, "checkpointConnector": {}}]}  # fmt: skip
    content = {"kind": "KafkaMirrorMaker2", "metadata": {"name": "mm2", "namespace": "europe"}, "spec": spec}
    manifests = MirrorManifests(tmp_path, "europe")
    assert manifests.wanted("mm2") == MirrorState(), "nothing is set up"
    record.write_text(json.dumps({"documents": [{"source": "x.yaml", "line": 1, "content": content}]}))
    states = {"eu->na.MirrorSourceConnector": "STOPPED", "eu->na.MirrorCheckpointConnector": "RUNNING"}
    assert manifests.wanted("mm2") == MirrorState(1, states)
    assert manifests.wanted("other") == MirrorState()
    spec["replicas"] = 0
    record.write_text(json.dumps({"documents": [{"source": "x.yaml", "line": 1, "content": content}]}))
    os.utime(record, (1, 1))
    assert manifests.wanted("mm2").replicas == 0
    record.write_text("{")
    os.utime(record, (2, 2))
    assert manifests.wanted("mm2") == MirrorState()
    assert MirrorManifests(None, "europe").wanted("mm2") == MirrorState()


def test_on_kubernetes_a_mirror_is_judged_by_what_the_record_here_wants(tmp_path: Path) -> None:
    (tmp_path / "access").mkdir()
    spec = {
        "target": {"alias": "na"},
        "mirrors": [{"source": {"alias": "eu"}, "sourceConnector": {"state": "stopped"}}],
    }
    content = {"kind": "KafkaMirrorMaker2", "metadata": {"name": "mm2", "namespace": "europe"}, "spec": spec}
    document = {"source": "x.yaml", "line": 1, "content": content}
    (tmp_path / "access" / "europe.json").write_text(json.dumps({"documents": [document]}))
    facts = console_facts.wanted(tmp_path, ["europe", "asia"])
    assert facts["asia"] == {}
    manifests = MirrorManifests(None, "europe", tmp_path)
    assert manifests.wanted("mm2") == MirrorState(), "the volume is not there yet"
    for number, is_open in enumerate((False, True)):
        facts["europe"]["mm2"]["open"] = is_open
        (tmp_path / "europe.json").write_text(json.dumps(facts["europe"]))
        os.utime(tmp_path / "europe.json", (number + 1, number + 1))
        wanted = manifests.wanted("mm2")
        assert replace(wanted, open=False) == MirrorManifests(tmp_path, "europe").wanted("mm2")
        assert wanted.open == is_open
    view = MirrorMakerView(
        "europe", ConnectAccess(mirror="mm2", urls=("http://a",)), wanted=lambda: manifests.wanted("mm2")
    )
    worker = Worker()
    worker.connector, worker.state = "eu->na.MirrorSourceConnector", "STOPPED"
    view._rest = worker  # type: ignore[assignment]
    found = asyncio.run(view.state())
    assert (found.health, found.state, found.explanation, found.open_to_pods) == ("good", "Stopped", "", True)
    (tmp_path / "europe.json").write_text("[]")
    assert manifests.wanted("mm2") == MirrorState(), "another version of the kit has written it"


def test_a_mirror_without_workers_by_its_manifest_is_as_it_should_be() -> None:
    access = ConnectAccess(mirror="mm2", urls=("https://a",), username="", password="", ca_file=None)
    mirror = MirrorMakerView("europe", access, wanted=lambda: MirrorState(replicas=0))
    worker = Worker()
    worker.away = True
    mirror._rest = worker  # type: ignore[assignment]
    found = asyncio.run(mirror.state())
    assert (found.answers, found.health, found.state, found.explanation) == (False, "good", "Stopped", "")


class Worker:
    """A Connect worker that has copied two records of the first partition of LH.A, and nothing else."""

    away = False
    connector = "eu->na.source"
    state = "RUNNING"

    def connectors(self) -> dict[str, Any]:
        """One, that takes the topics of the shop."""
        if self.away:
            raise ConnectError("no Connect worker answers")
        config = {"connector.class": f"org.apache.kafka.connect.mirror.{SOURCE_CONNECTOR}", "topics": "LH.*",
                  "source.cluster.alias": "eu", "target.cluster.alias": "na",
                  "replication.policy.class": IDENTITY_POLICY}  # fmt: skip
        tasks = [{"id": 0, "state": "RUNNING"}] if self.state == "RUNNING" else []
        status = {"connector": {"state": self.state}, "tasks": tasks}
        return {self.connector: {"info": {"config": config}, "status": status}}

    def positions(self, *_: str) -> dict[tuple[str, int], int]:
        """The last offset that it has copied."""
        return {("LH.A", 0): 1}


def test_lag_is_a_number_at_all_times_of_what_is_not_begun_and_of_a_mirror_that_has_gone() -> None:
    offsets = {("LH.A", 0): (0, 10), ("LH.A", 1): (5, 7), ("LH.B", 0): (0, 0), ("other", 0): (0, 99)}
    access = ConnectAccess(mirror="mm2", urls=("https://a",), username="", password="", ca_file=None)
    mirror = MirrorMakerView("north-america", access, lambda _: offsets)
    worker = Worker()
    mirror._rest = worker  # type: ignore[assignment]
    found = asyncio.run(mirror.state()).connectors[0]
    assert (found.lag, found.lags) == (10, {"LH.A": 10, "LH.B": 0})
    offsets = {place: (first, first) for place, (first, _) in offsets.items()} | {("LH.A", 0): (0, 2)}
    assert [one.lag for one in mirror.last()] == [0]
    worker.away, mirror._look = True, None
    mirror._known = None
    assert asyncio.run(mirror.state()).connectors == []
    offsets[("LH.A", 0)] = (0, 500)
    assert [(one.lag, one.records_per_s) for one in mirror.last()] == [(498, None)]


def test_a_reading_has_the_ends_from_before_the_positions_and_all_that_the_mirror_copies() -> None:
    offsets = {("LH.A", 0): (0, 10), ("LH.A", 1): (5, 7), ("other", 0): (0, 99)}
    access = ConnectAccess(mirror="mm2", urls=("https://a",), username="", password="", ca_file=None)
    mirror = MirrorMakerView("north-america", access, lambda _: offsets)

    class Busy(Worker):
        def positions(self, *_: str) -> dict[tuple[str, int], int]:
            nonlocal offsets
            offsets = {place: (first, end + 5) for place, (first, end) in offsets.items()}
            return {("LH.A", 0): 12}

    worker = Busy()
    mirror._rest = worker  # type: ignore[assignment]
    (found,) = asyncio.run(mirror.state()).connectors
    reading = mirror.reading(found, answers=True)
    assert reading
    assert reading.positions == {("LH.A", 0): 12, ("LH.A", 1): None}
    assert (reading.ends or {})["LH.A", 0] == 10
    assert reading.at
    assert found.lags == {"LH.A": 2}, "what came after the ends does not wait"
    gone = mirror.reading(found, answers=False)
    assert gone == MirrorReading({("LH.A", 0): 12, ("LH.A", 1): None}), "all that is there now waits for it"
    offsets = {}
    assert mirror.reading(found, answers=False) is None


def test_a_look_at_losses_takes_one_reading_and_grows_old_where_nothing_can_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[tuple[object, ...]] = []

    class Source:
        def __init__(self, _: object) -> None:
            """It needs no connection."""

        def look(self, positions: object, *, whose: str, now: float | None, ends: object) -> list[PartitionRisk]:
            looks.append((positions, whose, now, ends))
            return [PartitionRisk("A", 0, 4, 0, 10, behind=5, age_s=20.0, loss_in_s=3.0)]

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(retention_risk, "RetentionReader", Source)
    losses = Losses(Connection(("x:1",)))
    reading = MirrorReading({("A", 0): 4}, {("A", 0): 10}, 1000.0)
    try:
        losses.of("m", reading)
        for look in losses.looks():
            look.result(60)
        assert losses.of("m", reading)["A"].age_s == 20
        place = TopicPartition("A", 0)
        assert looks == [({place: 4}, "m", 1000.0, {place: 10})]
        at, known = losses._known["m"]
        losses._known["m"] = at - 100, known
        assert losses.of("m", reading) == {}, "it is no news any more"
        aged = losses.aged("m")["A"]
        assert aged.age_s
        assert aged.age_s >= 120
        assert (aged.behind, aged.loss_in_s) == (5, 0)
    finally:
        losses.close()


def test_a_worker_that_is_slow_is_busy_and_one_that_refuses_is_down() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{server.getsockname()[1]}"
    access = ConnectAccess(mirror="mm2", urls=(url,), username="", password="", ca_file=None)
    mirror = MirrorMakerView("europe", access)
    mirror._rest = ConnectClient((url,), timeout_s=0.5, rebalance_s=0)
    with server:
        found = asyncio.run(mirror.state())
        assert (found.answers, found.health) == (False, "warning")
        assert "it is busy" in found.explanation
    mirror.forget()
    found = asyncio.run(mirror.state())
    assert (found.answers, found.health) == (False, "bad")
    assert "its worker is down or still starting" in found.explanation


@pytest.mark.parametrize(
    ("log", "trace", "said"),
    [
        (None, "a.B: Unrecoverable exception from producer send callback\nCaused by: c.TooLarge: 10 MB", True),
        (None, "a.B: no", False),
        (ROOT, "a.B: Unrecoverable exception from producer send callback\nCaused by: c.TooLarge: 10 MB", False),
    ],
)
def test_where_a_console_has_no_log_it_says_which_command_names_the_topic(
    log: Path | None, trace: str, said: bool
) -> None:
    class Failing(Worker):
        def connectors(self) -> dict[str, Any]:
            found = super().connectors()
            found[self.connector]["status"]["tasks"] = [{"id": 0, "state": "FAILED", "trace": trace}]
            return found

    access = ConnectAccess(mirror="mm2", urls=("https://a",), username="", password="", ca_file=None)
    mirror = MirrorMakerView("north-america", access, home=log)
    mirror._rest = Failing()  # type: ignore[assignment]
    found = asyncio.run(mirror.state())
    assert found.health == "bad"
    assert found.explanation.endswith("./lab status names the topic") is said


def test_an_answer_that_comes_too_late_is_not_kept() -> None:
    access = ConnectAccess(mirror="mm2", urls=("https://a",), username="", password="", ca_file=None)
    mirror = MirrorMakerView("north-america", access)
    worker = Worker()
    worker.away = True
    mirror._rest = worker  # type: ignore[assignment]

    async def run() -> bool:
        looking = asyncio.ensure_future(mirror.state())
        await asyncio.sleep(0)
        mirror.forget()  # the link was cut meanwhile
        await looking
        worker.away = False
        return (await mirror.state()).answers

    assert asyncio.run(run())


@pytest.mark.parametrize(
    ("changes", "note", "said"),
    [
        ({}, "", [("0 behind, p99 20 ms", False)]),
        ({"lag": 12345, "lag_s": 3.0}, "", [("12,345 behind, p99 20 ms", False)]),
        ({"lag": 7, "lag_s": 90.0}, "80 ms", [("7 behind, p99 20 ms", False), ("the oldest is 1.5 min old", False),
                                              ("link: 80 ms", False)]),
        ({"lag": 7, "lag_s": 90.0, "loss_in_s": 45.0}, "", [("7 behind, p99 20 ms", False),
                                                            ("the oldest is 1.5 min old", False)]),
        ({"lag": 7, "lag_s": 90.0, "loss_in_s": 45.0, "endangered": True}, "", [("7 behind, p99 20 ms", False),
                                                                               ("time to loss: 45 s", True)]),
        ({"lag": 7, "gone": 1500, "endangered": True}, "", [("7 behind, p99 20 ms", False), ("1,500 lost", True)]),
        ({"lag": None}, "", [("measuring the lag …, p99 20 ms", False)]),
        ({"lag": None, "explanation": "Connect does not answer"}, "", [("lag not known, p99 20 ms", False)]),
    ],
)  # fmt: skip
def test_what_the_map_says_of_a_flow(changes: dict[str, Any], note: str, said: list[tuple[str, bool]]) -> None:
    flow = Flow(
        source="europe", target="north-america", mirror="mm2", records_per_s=9.0, bytes_per_s=9.0, lag=0,
        latency_ms_p50=10, latency_ms_p99=20, health="good", explanation="",
    )  # fmt: skip
    assert label(flow.model_copy(update=changes), note) == said


def test_a_failure_is_told_until_the_task_has_been_running_for_a_while() -> None:
    access = ConnectAccess(mirror="mm2", urls=("https://a",), username="", password="", ca_file=None)
    mirror = MirrorMakerView("europe", access)
    one, other = ("a->b.MirrorSourceConnector", 0), ("a->b.MirrorSourceConnector", 1)
    failed = {"state": "FAILED", "trace": "c.TooLarge: 10 MB"}
    assert mirror._trace(one, {"state": "RUNNING"}, 0) == ""
    assert mirror._trace(one, failed, 100) == "c.TooLarge: 10 MB"
    assert mirror._trace(other, {"state": "RESTARTING"}, 100) == ""
    # For minutes, if it hangs.
    for now in (101, 150, 300):
        assert mirror._trace(one, {"state": "RESTARTING", "trace": None}, now) == "c.TooLarge: 10 MB"
    assert mirror._trace(one, {"state": "RUNNING"}, 310) == "c.TooLarge: 10 MB"
    assert mirror._trace(one, {"state": "RUNNING"}, 331) == ""
    assert mirror._trace(one, {"state": "RESTARTING"}, 332) == ""
    mirror.close()


def test_every_region_has_a_place_on_the_map_and_every_flow_a_line() -> None:
    names = ["europe", "north-america", "asia", "africa", "oceania"]
    reported = {"europe": Coordinates(50.1, 8.7), "north-america": Coordinates(39.0, -77.5)}
    land, places = places_of(dict.fromkeys(names) | reported)
    assert land.startswith("translate(")
    (east, north), (west, south) = places["europe"], places["north-america"]
    assert east > west
    assert north < south
    assert len({(round(x), round(y)) for x, y in places.values()}) == len(names)
    assert all(30 < x < 1090 and 30 < y < 530 for x, y in places.values())
    assert places_of(dict.fromkeys(names))[0] == "", "without a place there is no land to stand on"
    there, back = arc(places, "europe", "asia"), arc(places, "asia", "europe")
    assert there
    assert back
    assert (there["x"], there["y"]) != (back["x"], back["y"])
    assert arc(places, "europe", "nowhere") is None


@pytest.mark.parametrize("shape", ["each to each of three", "a circle of four"])
def test_the_labels_of_all_flows_can_be_read(shape: str) -> None:
    regions = yaml.safe_load((ROOT / "inventories" / "regions.yaml").read_text(encoding="utf-8"))["regions"]["hosts"]
    names = [*regions][:3] if shape == "each to each of three" else [*regions]
    _, places = places_of({name: Coordinates(*regions[name]["region_place"]) for name in names})
    circle = [*pairwise(names), (names[-1], names[0])]
    flows = list(permutations(names, 2)) if len(names) == 3 else circle
    found = [line for line in lines(places, flows) if line]
    assert len(found) == len(flows)
    assert all(line["both"] for line in found) == (len(names) == 3)
    for one, other in combinations(found, 2):
        assert abs(one["x"] - other["x"]) >= LABEL[0] or abs(one["y"] - other["y"]) >= LABEL[1]
    for line, (x, y) in product(found, places.values()):
        assert abs(line["x"] - x) > LABEL[0] / 2 + 30 or abs(line["y"] - y) > LABEL[1] / 2 + 30
    # A warning, or what a link is set to, takes a line more each, and then so much more room.
    more = [number % 3 for number in range(len(flows))]
    higher = [line for line in lines(places, flows, more) if line]
    for (one, here), (other, there) in combinations(zip(higher, more, strict=True), 2):
        above, below = sorted(((one["y"], here), (other["y"], there)))
        assert abs(one["x"] - other["x"]) >= LABEL[0] or below[0] - above[0] >= LABEL[1] + above[1] * LABEL_LINE, (
            "one label lies on another"
        )
    (alone,) = lines(places, flows[:1])
    assert alone
    assert not alone["both"]


def test_a_job_that_fails_says_why_and_lets_the_next_one_run(tmp_path: Path) -> None:
    async def run() -> None:
        jobs = Jobs(tmp_path)
        assert jobs.state("proof").state == "never"
        jobs.start("proof")
        assert jobs.state("proof").state == "running"
        with pytest.raises(BusyError, match="the proof job is running"):
            jobs.start("aggregates")
        async with asyncio.timeout(60):
            while jobs.state("proof").state == "running":
                await asyncio.sleep(0.05)
        state = jobs.state("proof")
        assert state.state == "failed"
        assert "nothing is set up" in state.explanation
        assert jobs.report() is None
        # Another console, or the same one after a restart, still knows.
        assert Jobs(tmp_path).state("proof") == state
        assert (tmp_path / "artifacts" / "console" / "proof.json").stat().st_mode & 0o077 == 0

    asyncio.run(run())


def test_a_job_ends_with_its_console(tmp_path: Path) -> None:
    async def run() -> None:
        jobs = Jobs(tmp_path)
        jobs.start("aggregates")
        await asyncio.sleep(0.3)  # so that its process is there
        await asyncio.wait_for(jobs.close(), 10)

    asyncio.run(run())


def test_the_aggregates_charts_have_a_bar_for_each_region() -> None:
    state = Jobs(None).state("aggregates").model_copy(update={"result": aggregates()})
    found = charts(state)
    assert [chart["title"] for chart in found] == ["Revenue by product", "Orders by where they came from"]
    for chart in found:
        shares = [share for _, bars in chart["groups"] for _, share in bars]
        assert max(shares) == 1
        assert min(shares) >= 0
        assert all(len(bars) == len(chart["regions"]) for _, bars in chart["groups"])
    assert charts(state.model_copy(update={"result": None})) == []


def test_a_scenario_has_its_manifests_and_its_exercises_in_order() -> None:
    scenario = read_scenario("03-broadcast")
    assert scenario
    assert {"manifests/mm2-na.yaml", "setup.yaml", "scenario.yaml"} <= {
        manifest.name for manifest in scenario.manifests
    }
    assert [exercise.number for exercise in scenario.exercises] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert scenario.exercises[1].title == "Change a topic in Europe"
    assert "./lab topic set" in scenario.exercises[1].markdown


@pytest.mark.parametrize("name", ["", "..", "../..", "no-such", "/etc"])
def test_there_is_no_other_scenario(name: str) -> None:
    assert read_scenario(name) is None


@pytest.mark.parametrize(("tasks", "later"), [((), True), (("UNASSIGNED",), True), (("FAILED",), False)])
def test_a_right_that_a_mirror_lacks_is_named_where_it_does_not_work(
    tasks: tuple[str, ...], later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [AclRule("User:reads", "TOPIC", "LH.", prefix=True, operation="READ", allows=True)]

    class Cluster:
        async def rules(self) -> list[AclRule]:
            return given

    now = [100.0]
    monkeypatch.setattr(rights, "time", SimpleNamespace(monotonic=lambda: now[0]))
    judge = rights.Rights(lambda name: Cluster() if name == "europe" else None)  # type: ignore[arg-type, return-value]
    one = connector("RUNNING", *tasks).model_copy(
        update={"reads": "europe", "writes": "asia", "reads_as": "reads", "writes_as": "writes", "lags": {"LH.A": 3}}
    )

    def said() -> str:
        health, explanation = explain("asia", "mm2", [one])
        mirror = Mirror(region="asia", name="mm2", answers=True, connectors=[one], latency_ms_p50=None,
                        latency_ms_p99=None, health=health, explanation=explanation)  # fmt: skip
        found = asyncio.run(judge.judged(mirror))
        return found.explanation if found.health == "bad" else ""

    said()
    now[0] += 40
    assert "lacks" not in said(), "it may read what it must copy"
    given.clear()
    assert "does not work: user reads lacks in europe: Read on topic LH.A" in said()
    assert "takes a few seconds after a start" not in said()
    judge = rights.Rights(lambda _: Cluster())  # type: ignore[arg-type, return-value]
    assert ("lacks" in said()) != later, "a connector that has only just started has no task yet"
    now[0] += 40
    assert "user writes lacks in asia: Write on topic LH.A" in said()
