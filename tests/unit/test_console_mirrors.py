"""What the consoles say of mirrors, and what they do when a job cannot run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from console.jobs import BusyError, Jobs
from console.mirrors import explain
from console.models import Connector, Task
from console.scenario import read_scenario
from console.views import arc, charts, places_of
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
        ([connector("RUNNING", "FAILED")], "bad", "has failed: it left no reason"),
        ([connector("STOPPED")], "warning", "europe's mirror is stopped: a->b.MirrorSourceConnector is stopped. Start"),
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


def test_every_region_has_a_place_on_the_map_and_every_flow_a_line() -> None:
    names = ["europe", "north-america", "asia", "africa", "oceania"]
    places = places_of(names)
    assert len({(round(x), round(y)) for x, y in places.values()}) == len(names)
    assert all(30 < x < 770 and 30 < y < 490 for x, y in places.values())
    there, back = arc(places, "europe", "asia"), arc(places, "asia", "europe")
    assert there
    assert back
    assert (there["x"], there["y"]) != (back["x"], back["y"])
    assert arc(places, "europe", "nowhere") is None


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
        assert "run the set-up" in state.explanation
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
    assert {"mm2-na.yaml", "setup.yaml"} <= {manifest.name for manifest in scenario.manifests}
    assert [exercise.number for exercise in scenario.exercises] == [1, 2, 3, 4, 5, 6]
    assert scenario.exercises[1].title == "Change a topic in Europe"
    assert "topic.sh unset" in scenario.exercises[1].markdown


@pytest.mark.parametrize("name", ["", "..", "../..", "no-such", "/etc"])
def test_there_is_no_other_scenario(name: str) -> None:
    assert read_scenario(name) is None
