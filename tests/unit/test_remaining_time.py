"""How much longer something takes: by its pace, by Spark's tasks, and by the last time."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loosehanger.cli import commands
from loosehanger.cli.durations import Durations
from loosehanger.lab.progress import Progress
from loosehanger.lab.scenario import read_scenario
from loosehanger.proof import spark_progress
from loosehanger.proof.pace import Pace


def test_the_pace_until_now_gives_the_rest() -> None:
    pace = Pace()
    assert pace.remaining(1000, 10) == ""
    assert pace.remaining(1000, 15) == "", "nothing became less"
    assert pace.remaining(750, 20) == ", about 30 s left"
    assert pace.remaining(1200, 30) == "", "there is more than at first: the pace is of no use"
    assert pace.remaining(600, 90) == ", about 1.0 min left"


class Spark:
    """A session with one stage, of which more is done whenever it is asked."""

    def __init__(self) -> None:
        self.done = 0
        self.sparkContext = SimpleNamespace(statusTracker=lambda: self)

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        return [7]

    def getStageInfo(self, _: int) -> Any:  # noqa: N802 - Spark's name
        self.done += 1
        return SimpleNamespace(numTasks=1000, numCompletedTasks=self.done)


def test_what_spark_does_is_reported_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_progress, "_REPORT_S", 0.05)
    lines: list[str] = []
    enough = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            enough.set()

    session: Any = Spark()
    with spark_progress.reported(session, "reading 9 records", report):
        assert enough.wait(60)
    assert lines[0] == "reading 9 records: 1 of 1000 tasks of this step done"
    assert lines[2].startswith("reading 9 records: 3 of 1000 tasks of this step done, about ")
    assert lines[2].endswith(" left")


def test_a_set_up_names_what_it_took_the_last_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "venv").mkdir()
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    # Of another platform than the local one, whose first set-up starts what makes archives of classes.
    elsewhere = SimpleNamespace(platform="kubernetes")
    for name, nothing in (
        ("load_lab", elsewhere),
        ("next_steps", ""),
        ("_web_consoles", set()),
        ("_show_rescues", None),
    ):
        monkeypatch.setattr(commands, name, lambda *_, nothing=nothing: nothing)
    monkeypatch.setattr(commands, "_checked", lambda arguments, *_: arguments)
    monkeypatch.setattr(commands, "run_playbook", lambda *_, **__: None)
    scenario = read_scenario("03-broadcast")

    def set_up(*arguments: str, progress: Progress | None = None) -> str:
        commands._run_stage(scenario, "setup", arguments, progress)
        return capsys.readouterr().err

    assert set_up("--check") == ""
    assert set_up() == "", "the first time nothing is known"
    (key,) = Durations(tmp_path)._read()
    Durations(tmp_path).keep(key, 26.4)
    assert set_up("--check") == ""
    assert set_up() == "The last time this took 26 s.\n"
    assert set_up("-i", str(tmp_path)) == "", "elsewhere it takes as long as it takes there"
    # Where it is set up already, there is nothing to do that would take as long, or that would be worth keeping.
    before = Durations(tmp_path).last(key)
    assert set_up(progress=Progress("03-broadcast", "local", "inventories/local", "setup")) == ""
    assert Durations(tmp_path).last(key) == before


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "b"}', '{"a": -1}', '{"a": 0.1}'])
def test_durations_that_cannot_be_read_are_not_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "durations.json").write_text(text, encoding="utf-8")
    assert Durations(tmp_path).last("a") is None


def test_a_duration_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "venv").touch()
    Durations(tmp_path).keep("a", 5.0)
    assert Durations(tmp_path).last("a") is None
