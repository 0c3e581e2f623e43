"""``./lab learn``: begins exercises, judges them, helps, and records the learner's progress."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loosehanger.cli import learn, status, topics
from loosehanger.cli.command_line import COMMANDS
from loosehanger.cli.documents import document_of
from loosehanger.errors import LabError, NothingSetUpError, WrongUseError
from loosehanger.lab import manifest_diff, record
from loosehanger.lab.progress import Progress
from loosehanger.learn.exercise import LabExercise, find_exercise

LAB = "03-broadcast"
SET_UP = record.Lab(LAB, "local", "inventories/local", {}, "setup")
RESOURCE = {"name": "mm2-na", "kind": "KafkaMirrorMaker2", "state": "Running"}


class Lab:
    """A lab whose documents are made up, and whose playbooks only say that they ran."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.retention = {"europe": "", "north-america": "", "south-america": ""}
        self.healthy = True
        self.ran: list[str] = []

    def ask(self, _: LabExercise, names: Sequence[str]) -> dict[str, Any]:
        """The documents of these names."""
        topics = {
            region: {"LH.ORDERS": {"partitions": 3, **({"retention.ms": value} if value else {})}}
            for region, value in self.retention.items()
        }
        documents = {
            "status": {"healthy": self.healthy, "unfinished": "", "problems": []},
            "diff": {"errors": [], "resources": []},
            "topics": {"regions": topics},
        }
        return {name: documents[name] for name in names}

    def run(self, exercise: LabExercise, name: str) -> None:
        """Notes the playbook."""
        self.ran.append(f"{exercise.number}/{name}")

    @property
    def kept(self) -> dict[str, Any]:
        """The learner's file."""
        found: dict[str, Any] = json.loads((self.home / "learn.json").read_text(encoding="utf-8"))
        return found


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The broadcast, which is set up."""
    found = Lab(tmp_path)
    monkeypatch.setattr(learn, "lab_home", lambda: tmp_path)
    monkeypatch.setattr(learn, "read_progress", lambda: Progress(LAB, "local", "inventories/local", "setup"))
    monkeypatch.setattr(learn, "_ask", found.ask)
    monkeypatch.setattr(learn, "_run", found.run)
    return found


def run(*words: str) -> int:
    """Runs the command."""
    return learn.run(COMMANDS["learn"].parse(words))


def test_a_learner_goes_from_exercise_to_exercise(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("start", f"{LAB}/2") == 0
    assert lab.ran == []  # the lab is at its beginning
    assert run("check") == 1
    said = capsys.readouterr().out
    assert "not yet  LH.ORDERS keeps its records for an hour in Europe" in said
    assert "In europe, retention.ms of LH.ORDERS is unset" in said
    assert said.endswith("0 of 2. ./lab learn hint shows where to look, ./lab learn solve does it for you.\n")
    lab.retention = dict.fromkeys(lab.retention, "3600000")
    assert run("check") == 0
    assert capsys.readouterr().out.endswith("Done. ./lab learn next continues.\n")
    assert lab.kept["steps"][f"{LAB}/2"]["checks"] == 2
    lab.healthy = False
    assert run("next") == 0
    assert lab.ran == ["3/setup.yaml"]
    assert lab.kept["current"] == f"{LAB}/3"
    assert stat.S_IMODE((lab.home / "learn.json").stat().st_mode) == 0o600
    assert run("list") == 0
    said = capsys.readouterr().out
    assert f"{LAB}: 1 of 8" in said
    assert "✓  2  Change a topic in Europe\n" in said
    assert "…  3  Change the mirror   <- here" in said


def test_an_exercise_begins_where_its_playbook_brings_the_lab(lab: Lab) -> None:
    lab.retention["europe"] = "3600000"
    assert run("start", f"{LAB}/2") == 0
    assert lab.ran == ["2/setup.yaml"]


def test_a_start_without_a_set_up_only_records_the_beginning(lab: Lab) -> None:
    assert run("start", f"{LAB}/2", "--no-setup") == 0
    started = lab.kept["steps"][f"{LAB}/2"]
    assert started["started"] > 0
    assert started["before"]["status"]["healthy"] is True
    lab.healthy = False
    with pytest.raises(WrongUseError, match="not at the beginning of 03-broadcast/2; in a terminal"):
        run("start", f"{LAB}/2", "--no-setup")
    assert lab.ran == []
    assert lab.kept["steps"][f"{LAB}/2"] == started


def test_hints_go_on_and_the_last_one_stays(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run("start", f"{LAB}/2")
    capsys.readouterr()
    said = []
    for _ in range(3):
        assert run("hint") == 0
        said.append(capsys.readouterr().out)
    assert said[0].endswith("1 of 2 hints.\n")
    assert said[1] == said[2]
    assert lab.kept["steps"][f"{LAB}/2"]["hints"] == 2


def test_a_solution_says_what_it_does_and_why(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("solve", f"{LAB}/2") == 0
    said = capsys.readouterr().out
    assert "1. Settings follow from the source to its copies, so it is changed in Europe\n" in said
    assert "   ./lab topic set europe LH.ORDERS retention.ms=3600000\n" in said
    assert lab.ran == ["2/solve.yaml"]
    lab.retention = dict.fromkeys(lab.retention, "3600000")
    assert run("check", "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "solved"
    assert run("reset") == 0
    assert lab.kept["steps"][f"{LAB}/2"]["done"] == 0


def test_the_document_has_what_it_was_judged_by(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.retention["north-america"] = "7200000"
    assert run("check", "2", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] is False
    copy = document["documents"]["topics"]["regions"]["north-america"]["LH.ORDERS"]
    assert copy == {"partitions": 3, "retention.ms": "7200000"}
    assert [one["holds"] for one in document["conditions"]] == [False, False]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "9"], rf"{LAB} has no exercise '9'; its exercises are: 1, 2"),
        (["start", "03-broadcats"], r"has no exercise '03-broadcats'|there is no lab '03-broadcats'.*did you mean"),
        (["next", "2"], r"unrecognized arguments: 2"),
    ],
)
def test_what_does_not_exist_is_named(lab: Lab, words: list[str], message: str) -> None:
    assert lab.ran == []
    with pytest.raises(WrongUseError, match=message):
        run(*words)


def test_without_a_lab_one_is_said_how_to_get_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn, "read_progress", lambda: None)
    with pytest.raises(NothingSetUpError, match=rf"nothing is set up; ./lab learn start {LAB}/2 sets"):
        run("check", f"{LAB}/2")
    assert lab.ran == []
    with pytest.raises(WrongUseError, match=r"name an exercise, for example ./lab learn start LAB/1"):
        run("check")
    monkeypatch.setattr(learn, "read_progress", lambda: Progress("05-active-passive", "local", "x", "setup"))
    with pytest.raises(WrongUseError, match=r"05-active-passive is set up, and 03-broadcast/2 needs 03-broadcast"):
        run("start", f"{LAB}/2")


def test_a_file_that_cannot_be_read_is_named(lab: Lab) -> None:
    (lab.home / "learn.json").write_text("{", encoding="utf-8")
    with pytest.raises(WrongUseError, match=r"learn.json: .* cannot be read .*; delete the file to begin again"):
        run("list")


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabExercise:
    """An exercise of a lab that can be reached from here, on a machine where no further process can be started."""
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    monkeypatch.setattr(learn, "load_lab", lambda: SET_UP)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refused)
    return find_exercise(LAB, "2")


def test_a_check_computes_its_documents_in_its_own_process(look: LabExercise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "document", lambda _: {"healthy": True, "claims": ("copy",)})
    # It has no cluster.
    monkeypatch.setattr(manifest_diff, "check_together", lambda *_: None)
    monkeypatch.setattr(topics, "document", lambda _, name: {"regions": {}, "topic": name})
    found = learn._ask(look, ["status", "diff", "topics"])
    # As another program reads them, without tuples.
    assert found["status"] == {"healthy": True, "claims": ["copy"]}
    assert found["topics"] == {"regions": {}, "topic": None}
    assert (found["diff"]["scenario"], found["diff"]["errors"]) == (LAB, [])
    assert document_of("fault status", SET_UP) == {"faults": []}
    with pytest.raises(LabError, match=r"./lab link: 03-broadcast has no link between"):
        document_of("link", SET_UP)


def test_a_document_that_cannot_be_had_is_named(look: LabExercise, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise LabError("europe does not answer")

    monkeypatch.setattr(topics, "document", refused)
    with pytest.raises(LabError, match=r"^./lab topic show: europe does not answer$"):
        learn._ask(look, ["topics"])


def test_a_command_of_a_pod_that_says_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    with pytest.raises(LabError, match=r"./lab topic show: nothing is set up"):
        learn._printed("topic show")
