"""One run of a schedule: what it does with a lab that is made up, and what it finds."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import LabError
from loosehanger.faults.fault import read_fault
from loosehanger.faults.names import fault_names
from loosehanger.lab.record import Lab
from scripts import search_faults
from scripts.search import controls, running
from scripts.search.accounts import CopyCount
from scripts.search.quick import QuickKit
from scripts.search.running import NO_SABOTAGE, Sabotage, ScheduleOutcome, ScheduleRun, tails
from scripts.search.schedules import Placed, Schedule, described

SCENARIO = "03-broadcast"
CATALOGUE = {name: read_fault(name) for name in fault_names()}
WHERE = "north-america, KafkaMirrorMaker2/mm2-na"


class MadeUpKit:
    """A lab: faults are there from injection to healing; ``status`` and ``prove`` show what the catalogue says."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.there: list[str] = []
        self.commands: list[str] = []
        self.answers: dict[str, tuple[int, str]] = {}
        """Answers in place of these, by how a command begins."""
        self.verdicts: list[str] = []
        """The proof's, in their order; ``proved`` afterwards."""
        self.shown: list[str] = []
        """Causes that are shown beside those that are there, while any fault is."""

    @property
    def lab(self) -> Lab:
        return described(SCENARIO)

    def run(self, command: str, *arguments: str, **_: float) -> subprocess.CompletedProcess[str]:
        words = " ".join((command, *arguments))
        self.commands.append(words)
        code, out = next(
            (answer for begins, answer in self.answers.items() if words.startswith(begins)), self._answer(words)
        )
        return subprocess.CompletedProcess(words, code, out, "" if code in (0, 4) else f"{words} failed")

    def end(self) -> None:
        pass

    def _answer(self, words: str) -> tuple[int, str]:
        if words.startswith("fault inject"):
            self.there.append(words.split()[2])
        elif words.startswith("fault heal"):
            named = words.split()[2:]
            self.there = [name for name in self.there if named and name not in named]
        elif words == "cleanup":
            self.there = []
        elif words.startswith("status"):
            notices = [CATALOGUE[name].noticed.status for name in self.there]
            causes = [f"x {notice.says}" for notice in notices if notice] + (self.shown if self.there else [])
            shown = json.dumps({"problems": [{"cause": cause, "where": WHERE} for cause in causes]})
            return (1 if causes else 0), shown
        elif words.startswith("prove"):
            verdict = self.verdicts.pop(0) if self.verdicts else "proved"
            return {"proved": 0, "disproved": 1}.get(verdict, 4), json.dumps({"verdict": verdict, "reasons": ["why"]})
        return 0, ""


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpKit:
    monkeypatch.setattr(running, "NOTICED_S", 0)
    return MadeUpKit(tmp_path)


def placed(name: str, region: str = "north-america", mirror: str = "mm2-na") -> Placed:
    return Placed(fault=name, region=region, mirror=mirror, source="europe", target=region)


def run(
    kit: MadeUpKit, *faults: Placed, heal: Any = "all", counts: Any = None, sabotage: Sabotage = NO_SABOTAGE
) -> ScheduleOutcome:
    schedule = Schedule(seed=1, number=0, scenario=SCENARIO, faults=faults, heal=heal)
    return ScheduleRun(kit, schedule, CATALOGUE, counts, sabotage, healthy_s=0.2).run()  # type: ignore[arg-type]


def test_a_schedule_that_goes_as_predicted_finds_nothing(kit: MadeUpKit) -> None:
    kit.verdicts = ["inconclusive"]
    outcome = run(kit, placed("connector-paused"), placed("worker-frozen"))
    assert outcome.findings == []
    assert outcome.verdicts == {"during": "inconclusive", "after": "proved"}
    assert kit.there == []
    assert [event["command"] for event in outcome.events] == kit.commands
    assert "fault heal" in kit.commands


def test_faults_are_healed_one_by_one_the_last_one_first(kit: MadeUpKit) -> None:
    kit.verdicts = ["inconclusive"]
    run(kit, placed("connector-paused"), placed("worker-frozen"), heal="each")
    healed = [command for command in kit.commands if command.startswith("fault heal")]
    assert healed == ["fault heal worker-frozen", "fault heal connector-paused"]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["proved"], "during: inconclusive"),
        (["disproved"], "during: inconclusive"),
        (["inconclusive", "disproved"], "after: proved"),
        (["inconclusive", "inconclusive"], "after: proved"),
    ],
)
def test_a_wrong_verdict_is_found_in_either_direction(kit: MadeUpKit, verdicts: list[str], expected: str) -> None:
    kit.verdicts = list(verdicts)
    (finding,) = run(kit, placed("connector-paused"), placed("wrong-timestamps")).findings
    assert (finding.oracle, finding.expected, finding.seen) == ("proof", expected, f"{verdicts[-1]}: why")


@pytest.mark.parametrize(("again", "oracles"), [("inconclusive", set()), ("disproved", {"proof"})])
def test_only_the_verdict_of_a_proof_of_its_own_is_a_finding(kit: MadeUpKit, again: str, oracles: set[str]) -> None:
    class Quick(QuickKit):
        lab = property(lambda _: kit.lab)
        slow = property(lambda _: kit)

        def run(self, command: str, *arguments: str, timeout: float = 0) -> subprocess.CompletedProcess[str]:
            return kit.run(command, *arguments, timeout=timeout)

    kit.verdicts = ["disproved", again]
    outcome = run(Quick(kit.home, kit.home, 0), placed("connector-paused"), placed("wrong-timestamps"))  # type: ignore[arg-type]
    assert outcome.oracles == oracles
    assert outcome.verdicts["during"] == again
    assert [command.split()[0] for command in kit.commands].count("prove") == 3


def test_a_cause_that_is_not_named_is_found(kit: MadeUpKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.ScheduleRun, "_until", lambda _run, condition, _bound: condition() is None)
    kit.verdicts, kit.answers = ["inconclusive"], {"status": (0, '{"problems": []}')}
    (finding,) = run(kit, placed("connector-paused"), placed("wrong-timestamps")).findings
    assert (finding.oracle, finding.seen) == ("cause", "status has not named 'was paused by hand'")


def test_a_cause_that_is_not_there_is_found(kit: MadeUpKit) -> None:
    kit.shown = ["connector x was stopped by hand"]
    kit.verdicts = ["inconclusive"]
    (finding,) = run(kit, placed("connector-paused"), placed("wrong-timestamps")).findings
    assert finding.oracle == "cause"
    assert "accuses what is not there: 'connector x was stopped by hand'" in finding.seen


def test_a_lab_that_does_not_become_healthy_is_found(kit: MadeUpKit) -> None:
    kit.verdicts = ["inconclusive"]
    outcome = run(kit, placed("connector-paused"), sabotage=Sabotage(hidden=placed("worker-stopped"), stays=True))
    assert "recovery" in outcome.oracles
    assert kit.there == ["worker-stopped"]


def test_a_fault_that_cannot_be_injected_beside_one_that_hides_it_is_left_out(kit: MadeUpKit) -> None:
    kit.answers = {"fault inject copy-deleted": (2, "")}
    kit.verdicts = ["inconclusive"]
    outcome = run(kit, placed("connector-paused"), placed("copy-deleted"))
    assert (outcome.refused, outcome.findings) == (["copy-deleted"], [])


def test_a_fault_that_cannot_be_injected_beside_one_that_hides_nothing_is_found(kit: MadeUpKit) -> None:
    kit.answers = {"fault inject copy-deleted": (1, "")}
    outcome = run(kit, placed("wrong-timestamps"), placed("copy-deleted"))
    assert outcome.oracles == {"command"}


def test_acknowledged_records_that_a_copy_lacks_are_found_whatever_the_proof_says(kit: MadeUpKit) -> None:
    class Counts:
        def acknowledged(self) -> dict[Any, Any]:
            return {}

        def counts(self, _wanted: Any) -> list[CopyCount]:
            return [CopyCount("here", 10, 0, 0, 0), CopyCount("there", 10, 1, 0, 0)]

    outcome = run(kit, placed("wrong-timestamps"), placed("unreadable-compression"), counts=Counts())
    (finding,) = outcome.findings
    assert (finding.oracle, finding.expected) == (
        "records",
        "every acknowledged record is copied once, as the proof reports",
    )
    assert outcome.records == 20


def test_a_command_that_does_not_end_is_found(kit: MadeUpKit, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("prove", 300)

    monkeypatch.setattr(ScheduleRun, "_prove", hang)
    assert run(kit, placed("wrong-timestamps")).oracles == {"command"}
    assert kit.there == []


def test_a_lab_that_is_not_healthy_before_is_found(kit: MadeUpKit) -> None:
    kit.answers = {"status": (1, '{"problems": [{"cause": "odd", "where": "here"}]}')}
    (finding,) = run(kit, placed("wrong-timestamps")).findings
    assert "odd (here)" in finding.seen
    assert not any(command.startswith("fault inject") for command in kit.commands)


def test_the_end_of_each_log_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "regions" / "europe" / "logs"
    folder.mkdir(parents=True)
    (folder / "x.log").write_text("".join(f"{number}\n" for number in range(100)))
    assert tails(tmp_path) == {"regions/europe/logs/x.log": [str(number) for number in range(60, 100)]}


def test_a_mistake_of_the_lab_is_a_finding_and_no_traceback(kit: MadeUpKit, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise LabError("the cluster does not answer")

    monkeypatch.setattr(ScheduleRun, "_prove", fail)
    (finding,) = run(kit, placed("wrong-timestamps")).findings
    assert finding.seen == "LabError: the cluster does not answer"


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpKit:
    """A search's kit, whose set-up and clean-up do nothing; no ledger is read."""
    kit = MadeUpKit(tmp_path)

    @contextlib.contextmanager
    def made_up() -> Iterator[MadeUpKit]:
        yield kit

    class NoRecords:
        def __init__(self, _lab: Lab) -> None:
            pass

        def acknowledged(self) -> dict[str, str]:
            return {}

        def counts(self, _wanted: Any) -> list[CopyCount]:
            return []

    monkeypatch.setattr(running, "NOTICED_S", 0)
    monkeypatch.setattr(running, "HEALTHY_S", 0.2)
    monkeypatch.setattr(running.ScheduleRun, "_until", lambda _run, condition, _bound: condition() is None)
    monkeypatch.setattr(search_faults, "HEALTHY_S", 0.2)
    monkeypatch.setattr(search_faults, "Accountant", NoRecords)
    monkeypatch.setattr(search_faults, "sandbox", made_up)
    monkeypatch.setattr(QuickKit, "of", lambda kit: kit)
    monkeypatch.setattr(controls, "double", lambda *_: None)
    monkeypatch.setattr(search_faults, "_CONTROL_S", 0.2)
    return kit


def search(folder: Path, *more: str) -> int:
    """Searches a folder."""
    return search_faults.main(["--out", str(folder / "search"), "--scenarios", SCENARIO, "--seed", "4", *more])


def test_a_search_continues_where_it_ended_and_keeps_what_it_found(searched: MadeUpKit, tmp_path: Path) -> None:
    # Of a lab that always proves, each schedule with a fault that must be seen is a finding.
    assert search(tmp_path, "--schedules", "2") == 1
    done = [json.loads(line) for line in (tmp_path / "search" / "done.jsonl").read_text().splitlines()]
    assert [one["number"] for one in done] == [0, 1]
    assert search(tmp_path, "--schedules", "3") == 1
    done = [json.loads(line) for line in (tmp_path / "search" / "done.jsonl").read_text().splitlines()]
    assert [one["number"] for one in done] == [0, 1, 2]
    found = next(one["number"] for one in done if one["findings"])
    kept = json.loads((tmp_path / "search" / f"finding-{found}.json").read_text())
    assert kept["replays"] <= 10
    assert len(kept["smallest"]["faults"]) <= len(kept["schedule"]["faults"])
    assert kept["schedule"]["seed"] == 4
    assert searched.commands.count("cleanup") >= 1


def test_a_lab_is_used_again_until_something_is_found_in_it(searched: MadeUpKit) -> None:
    labs = search_faults.Labs(searched, 50)  # type: ignore[arg-type]
    schedule = Schedule(seed=1, number=0, scenario=SCENARIO, faults=(placed("wrong-timestamps"),))
    for _ in range(2):
        assert labs.run(schedule).findings == []
    assert [command.split()[0] for command in searched.commands].count("setup") == 1
    searched.verdicts = ["disproved"]
    assert labs.run(schedule).oracles == {"proof"}
    labs.run(schedule)
    assert [command.split()[0] for command in searched.commands].count("setup") == 2


def test_a_lab_in_which_only_a_cause_was_wrong_is_used_again(searched: MadeUpKit) -> None:
    labs = search_faults.Labs(searched, 50)  # type: ignore[arg-type]
    schedule = Schedule(seed=1, number=0, scenario=SCENARIO, faults=(placed("wrong-timestamps"),))
    searched.shown = ["connector x was stopped by hand"]
    assert labs.run(schedule).oracles == {"cause"}
    assert "cleanup" not in searched.commands


@pytest.mark.parametrize(("healthy", "adopted"), [(0, True), (1, False)])
def test_a_lab_that_was_kept_is_healed_and_used_again_if_it_is_healthy(
    searched: MadeUpKit, healthy: int, adopted: bool
) -> None:
    searched.there, searched.answers = ["connector-paused"], {"status": (healthy, '{"problems": []}')}
    labs = search_faults.Labs(searched, 50)  # type: ignore[arg-type]
    labs.adopt()
    assert searched.commands[0] == "fault heal"
    assert searched.there == []
    searched.answers = {}
    labs.run(Schedule(seed=1, number=0, scenario=SCENARIO, faults=(placed("wrong-timestamps"),)))
    setups = [command for command in searched.commands if command.startswith("setup")]
    assert (len(setups), searched.commands.count("cleanup")) == ((0, 0) if adopted else (1, 1))


def test_the_controls_end_with_1_if_an_oracle_is_blind(searched: MadeUpKit, capsys: pytest.CaptureFixture[str]) -> None:
    # The made-up proof always proves, and no record is doubled.
    assert search_faults.main(["--control", "--scenarios", SCENARIO]) == 1
    assert "blind: proof, records" in capsys.readouterr().out
    assert searched.there == []
    # What was injected without being declared is healed, so that one lab is enough.
    assert [command.split()[0] for command in searched.commands].count("setup") == 1


class Damaged(MadeUpKit):
    """A lab whose proof and whose copies show what was done to it."""

    doubled = False

    def _answer(self, words: str) -> tuple[int, str]:
        if words.startswith("prove"):
            worst = {proof.verdict for name in self.there if (proof := CATALOGUE[name].noticed.proof)}
            if self.doubled:
                worst.add("disproved")
            verdict = next((one for one in ("disproved", "inconclusive") if one in worst), "proved")
            return {"proved": 0, "disproved": 1}.get(verdict, 4), json.dumps({"verdict": verdict, "reasons": ["why"]})
        return super()._answer(words)


@pytest.mark.parametrize("oracle", controls.ORACLES)
def test_each_oracle_finds_the_damage_that_was_not_declared(
    searched: MadeUpKit, oracle: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kit = Damaged(searched.home)

    @contextlib.contextmanager
    def damaged() -> Iterator[Damaged]:
        yield kit

    class Copies:
        def __init__(self, _lab: Lab) -> None:
            pass

        def acknowledged(self) -> dict[str, str]:
            return {}

        def counts(self, _wanted: Any) -> list[CopyCount]:
            return [CopyCount("north-america", 10, 0, int(kit.doubled), 0)]

    monkeypatch.setattr(search_faults, "sandbox", damaged)
    monkeypatch.setattr(search_faults, "Accountant", Copies)
    monkeypatch.setattr(controls, "double", lambda *_: setattr(kit, "doubled", True))
    assert search_faults.main(["--control", oracle, "--scenarios", SCENARIO]) == 0
    out = capsys.readouterr().out
    assert f"{oracle}: found;" in out
    assert out.endswith(f"found what was damaged: {oracle}\n")


def test_an_oracle_that_no_control_is_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        search_faults.main(["--control", "weather"])
    assert stopped.value.code == 2
    assert "invalid choice: 'weather'" in capsys.readouterr().err
