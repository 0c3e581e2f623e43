"""The catalogue of faults: its files, the journal, and what ``./lab fault`` does with a change that is made up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from loosehanger.cli import faults, status
from loosehanger.cli.cleaning import MADE
from loosehanger.cli.command_line import COMMANDS
from loosehanger.cli.playbook import only_one
from loosehanger.errors import LabError, UnreachableError, WrongUseError
from loosehanger.faults import injecting
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.choosing import WantedSite, fitting_mirrors
from loosehanger.faults.exercises import FoundExercise
from loosehanger.faults.fault import CHANGES, Fault, read_fault
from loosehanger.faults.journal import FOLDER, Injection, Journal, Made
from loosehanger.faults.names import CATALOGUE, fault_names, fault_titles
from loosehanger.faults.site import FaultSite
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.progress import Progress
from loosehanger.lab.record import Lab, Region
from loosehanger.platforms import registry

MIRROR = Mirror(
    "mm2", "a", "b", "asia", "africa", "identity", ".", "X.*", "", "a->b.MirrorSourceConnector", region="africa"
)
TEXT = """\
name: odd-thing
title: Something odd
level: 2
field: It happens.
changes:
  - note: {what: one}
  - note: {what: two}
noticed:
  nothing: Nothing looks.
plain: {resource: Ready, connect: RUNNING, metrics: none}
mirror_does: Nothing.
remedy: Undo it.
"""


HEALTHY = """\
03-broadcast on local, stage: setup
europe
  Running   Kafka/europe                  1 node, 11 topics, 22 partitions
  Running   Deployment/loosehanger-producer 1 running for 60 s
  Running   Link/europe-north-america     10 MB to europe, 12 MB to north-america
north-america
  Running   KafkaMirrorMaker2/mm2-na      from europe: 1 connector, 1 task on 1 worker; 0 records behind
  Running   Deployment/loosehanger-consumer 1 running for 60 s, reads 12 partitions
"""


class Note(Change):
    """Notes what is done, and fails where it is asked to."""

    what: str
    done: ClassVar[list[str]] = []
    failing: ClassVar[set[str]] = set()

    def prepare(self, site: FaultSite) -> Undo:
        self._do("prepare")
        return {"topic": site.topic}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        assert site.copy == site.topic
        self._do(f"inject {undo['topic']}")

    def heal(self, site: FaultSite, undo: Undo) -> None:
        assert site.copy == site.topic
        self._do(f"heal {undo['topic']}")

    def _do(self, action: str) -> None:
        text = f"{action} {self.what}"
        self.done.append(text)
        if text in self.failing:
            raise (WrongUseError if action == "prepare" else LabError)(f"{text} failed")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with one mirror, and a catalogue with one fault."""
    catalogue, home = tmp_path / "catalogue", tmp_path / "lab"
    catalogue.mkdir()
    (catalogue / "odd-thing.yaml").write_text(TEXT, encoding="utf-8")
    monkeypatch.setitem(CHANGES, "note", Note)
    monkeypatch.setattr(faults, "load_lab", lab)
    monkeypatch.setattr(faults, "lab_home", lambda: home)
    monkeypatch.setattr(status, "lab_home", lambda: home)
    monkeypatch.setenv("LAB_HOME", str(home))
    monkeypatch.setattr(faults, "read_fault", lambda name: read_fault(name, catalogue))
    monkeypatch.setattr(faults, "fault_names", lambda: fault_names(catalogue))
    monkeypatch.setattr(faults, "fault_titles", lambda: fault_titles(catalogue))
    monkeypatch.setattr(injecting, "choose_site", lambda lab, home, *_: FaultSite(lab, home, MIRROR, "X.1", registry))
    Note.done.clear()
    Note.failing.clear()
    return home


def lab(**more: object) -> Lab:
    """The lab that is set up."""
    regions = {
        name: Region(name, name, {}, {}, (MIRROR,) if name == MIRROR.region else ()) for name in ("asia", "africa")
    }
    return Lab("03-broadcast", "local", "inventories/local", regions, **more)  # type: ignore[arg-type]


def run(*words: str) -> int:
    """Runs ``./lab fault``."""
    return faults.run(COMMANDS["fault"].parse(words))


# The catalogue.


@pytest.mark.parametrize("name", fault_names())
def test_a_fault_of_the_catalogue_can_be_read(name: str) -> None:
    fault = read_fault(name)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert fault.changes
    assert fault_titles()[name] == fault.title
    noticed = fault.noticed
    assert any((noticed.status, noticed.watch, noticed.alert, noticed.proof, noticed.nothing))
    assert fault.reports
    for report in fault.reports:
        assert report.url.startswith("https://")


def test_what_status_says_of_a_fault_is_not_what_it_says_of_a_healthy_lab() -> None:
    said = {name: fault.noticed.status.says for name in fault_names() if (fault := read_fault(name)).noticed.status}
    assert {name: says for name, says in said.items() if says.lower() in HEALTHY.lower()} == {}


def test_an_alert_that_a_fault_names_exists() -> None:
    rules = "".join(
        path.read_text(encoding="utf-8") for path in (CATALOGUE.parents[2] / "monitoring/rules").glob("*.yaml")
    )
    named = {fault.noticed.alert.says for fault in map(read_fault, fault_names()) if fault.noticed.alert}
    assert {name for name in named if f"alert: {name}\n" not in rules} == set()


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (("level: 2", "level: 4"), "odd-thing.yaml:3: level: input should be less than or equal to 3 (it is '4')"),
        (("remedy: ", "remdy: "), "odd-thing.yaml:12: remdy: unknown field"),
        (("note: {what: one}", "nott: {}"), "odd-thing.yaml:6: changes[0]: there is no change 'nott'; did you mean"),
        (("name: odd-thing", "name: odd"), "odd-thing.yaml: name: 'odd' must be 'odd-thing', as the file"),
        (("title: Something odd", "title: ["), "odd-thing.yaml:4: not YAML"),
        (("remedy: Undo it.", "remedy: Undo it.\n---\nname: x"), "odd-thing.yaml:14: one fault in each file"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(home: Path, wrong: tuple[str, str], expected: str) -> None:
    catalogue = home.parent / "catalogue"
    (catalogue / "odd-thing.yaml").write_text(TEXT.replace(*wrong), encoding="utf-8")
    with pytest.raises(WrongUseError) as error:
        read_fault("odd-thing", catalogue)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_fault_gets_a_suggestion() -> None:
    with pytest.raises(WrongUseError, match="did you mean 'connector-paused'"):
        read_fault("connector-pause")


# Injecting and healing.


def test_a_fault_is_written_down_before_it_is_made_and_undone_in_reverse(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("inject", "odd-thing") == 0
    assert Note.done == ["prepare one", "prepare two", "inject X.1 one", "inject X.1 two"]
    out = capsys.readouterr().out
    assert "odd-thing is injected: the mirror africa/mm2 from asia to africa, topic X.1" in out
    (file,) = (home / FOLDER).glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(
        WrongUseError, match=re.escape("odd-thing is injected already; ./lab fault heal odd-thing undoes it")
    ):
        run("inject", "odd-thing")
    assert run("status") == 0
    out = capsys.readouterr().out
    assert re.search(r"odd-thing has been there for \d+ s: the mirror africa/mm2", out), out
    Note.done.clear()
    assert run("heal") == 0
    assert Note.done == ["heal X.1 two", "heal X.1 one"]
    out = capsys.readouterr().out
    assert re.search(r"odd-thing \(Something odd\): healed in \d+\.\d s, after \d+ s", out), out
    assert Journal(home).read() == []
    assert run("heal") == 0
    assert capsys.readouterr().out == "No fault is injected.\n"


@pytest.mark.usefixtures("home")
def test_an_injection_that_was_interrupted_is_healed(capsys: pytest.CaptureFixture[str]) -> None:
    Note.failing.add("inject X.1 two")
    with pytest.raises(LabError, match=re.escape("inject X.1 two failed")):
        run("inject", "odd-thing")
    assert "odd-thing may be injected in part; ./lab fault heal odd-thing undoes it" in capsys.readouterr().err
    run("status")
    assert "and was interrupted" in capsys.readouterr().out
    run("heal", "odd-thing")
    assert Note.done[-2:] == ["heal X.1 two", "heal X.1 one"]


def test_what_cannot_be_prepared_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Note.failing.add("prepare two")
    with pytest.raises(WrongUseError, match="prepare two failed"):
        run("inject", "odd-thing")
    assert Note.done == ["prepare one", "prepare two"]
    assert Journal(home).read() == []
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("home")
def test_a_change_that_cannot_be_undone_stays_in_the_journal() -> None:
    run("inject", "odd-thing")
    Note.failing.add("heal X.1 two")
    with pytest.raises(
        LabError, match=re.escape("odd-thing is not healed: heal X.1 two failed; run ./lab fault heal again, or")
    ):
        run("heal")
    Note.done.clear()
    Note.failing.clear()
    run("heal")
    assert Note.done == ["heal X.1 two"]


@pytest.mark.usefixtures("home")
def test_a_fault_whose_mirror_is_gone_has_nothing_left_to_undo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("inject", "odd-thing")
    regions = {"asia": Region("asia", "asia", {}, {}, ())}
    monkeypatch.setattr(faults, "load_lab", lambda: Lab("01", "local", "", regions))
    assert run("heal") == 0
    assert "its mirror is not in the lab any more; nothing is left to undo" in capsys.readouterr().out
    assert "heal X.1 one" not in Note.done


@pytest.mark.usefixtures("home")
def test_a_stage_that_was_not_finished_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "load_lab", lambda: lab(unfinished="failover"))
    with pytest.raises(WrongUseError, match="the stage 'failover' was begun and not finished; run it again first"):
        run("inject", "odd-thing")


def test_two_injections_at_a_time_are_refused(home: Path) -> None:
    with Journal(home).locked(), pytest.raises(LabError, match="another fault is being injected or healed"):
        run("inject", "odd-thing")


def test_a_set_up_that_is_running_comes_first(home: Path) -> None:
    with only_one(home), pytest.raises(LabError, match="another set-up or clean-up of this lab is running; wait for"):
        run("inject", "odd-thing")
    assert Journal(home).read() == []


def test_a_change_of_another_version_is_named(home: Path) -> None:
    Journal(home).write(Injection("odd-thing", MIRROR.id, "X.1", 1.0, (Made({"gone": {}}, {}),), complete=True))
    with pytest.raises(LabError, match=r"another version of the kit made the change 'gone'; run \./lab fault heal"):
        run("heal")


def test_a_lab_that_does_not_answer_gets_no_surprise(
    surprised: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> FaultSite:
        raise UnreachableError("asia: the cluster does not answer")

    run("heal")
    surprised()

    monkeypatch.setattr(injecting, "choose_site", silent)
    with pytest.raises(LabError, match=r"do not answer; ./lab status shows why") as error:
        run("inject", "--surprise")
    assert "odd" not in str(error.value)


def test_a_fault_that_cannot_be_healed_beside_another_is_healed_after_it(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace("name: odd-thing", "name: even-thing").replace("what: two", "what: four")
    (home.parent / "catalogue" / "even-thing.yaml").write_text(text, encoding="utf-8")
    run("inject", "odd-thing")
    run("inject", "even-thing")
    original = Note.heal

    def heal(self: Note, site: FaultSite, undo: Undo) -> None:
        if self.what == "four" and (home / FOLDER / "odd-thing.json").exists():
            raise LabError("the other one is there")
        original(self, site, undo)

    monkeypatch.setattr(Note, "heal", heal)
    assert run("heal") == 0
    shown = capsys.readouterr().out
    assert shown.index("odd-thing (Something odd): healed") < shown.index("even-thing (Something odd): healed")
    assert Journal(home).read() == []


def test_faults_that_cannot_be_healed_keep_none_of_the_others_from_it(home: Path) -> None:
    text = TEXT.replace("name: odd-thing", "name: even-thing").replace("what: two", "what: four")
    (home.parent / "catalogue" / "even-thing.yaml").write_text(text, encoding="utf-8")
    run("inject", "odd-thing")
    run("inject", "even-thing")
    Note.failing.add("heal X.1 four")
    with pytest.raises(LabError, match=re.escape("even-thing is not healed: heal X.1 four failed")):
        run("heal")
    assert [injection.fault for injection in Journal(home).read()] == ["even-thing"]


@pytest.mark.usefixtures("home")
def test_what_is_not_injected_cannot_be_healed() -> None:
    run("inject", "odd-thing")
    with pytest.raises(WrongUseError, match="'odd-thin' is not injected; did you mean 'odd-thing'"):
        run("heal", "odd-thin")


def test_a_record_that_cannot_be_read_is_named(home: Path) -> None:
    (home / FOLDER).mkdir(parents=True)
    (home / FOLDER / "x.json").write_text("{", encoding="utf-8")
    with pytest.raises(WrongUseError, match=r"x\.json: the record of an injected fault cannot be read .*; run ./lab c"):
        run("status")


def test_a_clean_up_forgets_what_was_injected() -> None:
    assert FOLDER in MADE


# Where a fault can be injected.


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("level: 2", "level: 2\nneeds: {mirrors: 2}"), "odd-thing needs 2 mirrors, and 03-broadcast has 1"),
        (("level: 2", "level: 2\nneeds: {exactly_once: true}"), "needs a running mirror with exactly-once delivery"),
        (("level: 2", "level: 2\nneeds: {checkpoints: true}"), "needs a running mirror that translates consumer"),
        (("level: 2", "level: 2\nneeds: {sources: 2}"), "odd-thing needs a running mirror of 2 sources"),
    ],
)
def test_what_a_lab_cannot_have_is_refused_in_one_line(home: Path, change: tuple[str, str], expected: str) -> None:
    with pytest.raises(WrongUseError) as error:
        fitting_mirrors(lab(), odd(home, TEXT.replace(*change)))
    assert expected in str(error.value)


def test_a_fault_that_kubernetes_cannot_have_is_refused_in_one_line(home: Path) -> None:
    on_kubernetes = replace(lab(), platform="kubernetes")
    with pytest.raises(WrongUseError, match="odd-thing cannot be injected on kubernetes; it needs the local platform"):
        fitting_mirrors(on_kubernetes, odd(home, TEXT))


def test_a_fault_that_kubernetes_can_have_fits_there(home: Path) -> None:
    able = odd(home, TEXT.replace("noticed:", "on_kubernetes:\n  - note: {what: three}\nnoticed:"))
    assert fitting_mirrors(replace(lab(), platform="kubernetes"), able) == [MIRROR]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (WantedSite(mirror="africa/mm3"), "there is no mirror 'africa/mm3'; did you mean 'africa/mm2'?"),
        (WantedSite(source="africa"), "no mirror goes that way; the mirrors are: africa/mm2 from asia to africa"),
        (WantedSite(source="asai"), "unknown region 'asai'; did you mean 'asia'?"),
    ],
)
def test_a_place_that_does_not_exist_is_named(home: Path, wanted: WantedSite, expected: str) -> None:
    with pytest.raises(WrongUseError) as error:
        fitting_mirrors(lab(), odd(home), wanted)
    assert str(error.value) == expected


def odd(home: Path, text: str = TEXT) -> Fault:
    """The fault of a catalogue of its own."""
    catalogue = home.parent / "other"
    catalogue.mkdir()
    (catalogue / "odd-thing.yaml").write_text(text, encoding="utf-8")
    return read_fault("odd-thing", catalogue)


@pytest.mark.usefixtures("home")
def test_the_list_marks_what_the_lab_cannot_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list") == 0
    assert "  odd-thing  Something odd\n\n" in capsys.readouterr().out
    monkeypatch.setattr(faults, "load_lab", lambda: Lab("03-broadcast", "local", "", {}))
    run("list")
    assert "(not here: odd-thing needs 1 mirrors, and 03-broadcast has 0)" in capsys.readouterr().out


# Surprises.


@pytest.fixture
def surprised(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """A lab with a surprise; what the command has shown since."""
    catalogue = home.parent / "catalogue"
    text = TEXT.replace("  nothing: Nothing looks.", "  status: {says: odd, within: 5}")
    (catalogue / "odd-thing.yaml").write_text(text, encoding="utf-8")
    assert run("inject", "--surprise", "2") == 0

    def shown() -> str:
        found = capsys.readouterr()
        return found.out + found.err

    return shown


def test_a_surprise_is_not_named_anywhere(home: Path, surprised: Callable[[], str]) -> None:
    run("status")
    run("status", "--json")
    run("list")
    text = surprised()
    assert text.startswith("Something was broken.")
    assert "A surprise has been there for 0 s; wrong guesses: 0." in text
    for file in (home / FOLDER).iterdir():
        text += file.name + file.read_text(encoding="utf-8")
    before, _, after = text.partition("Level 1")
    _, _, after = after.partition("docs/faults.md")
    for word in ("odd-thing", "note", "X.1", "africa"):
        assert word not in before + after


def test_a_surprise_is_found_by_its_name(home: Path, surprised: Callable[[], str]) -> None:
    with pytest.raises(WrongUseError, match="there is no fault 'odd-thin'"):
        run("guess", "odd-thin")
    (home.parent / "catalogue/other-thing.yaml").write_text(TEXT.replace("odd-thing", "other-thing"), encoding="utf-8")
    with pytest.raises(WrongUseError, match="a surprise was injected and not found yet"):
        run("inject", "other-thing")
    with pytest.raises(WrongUseError, match="'odd-thing' is not injected"):
        run("heal", "odd-thing")
    assert run("guess", "other-thing") == 1
    assert "other-thing was not it. Wrong guesses: 1." in surprised()
    Progress("03-broadcast", "local", "").write(home)
    status.show(lab(), {"asia": []})
    assert "odd" not in surprised()
    assert run("guess", "odd-thing") == 0
    text = surprised()
    assert text.startswith("Right: Something odd. It was there for 0 s: the mirror africa/mm2")
    assert "./lab status: 'odd' within 5 s" in text
    assert "./lab fault heal odd-thing mends it." in text
    run("status")
    assert surprised().startswith("odd-thing has been there")
    status.show(lab(), {"asia": []})
    assert "odd-thing was injected and found; ./lab fault heal odd-thing mends it" in surprised()
    with pytest.raises(WrongUseError, match="there is no surprise to find"):
        run("guess", "odd-thing")
    run("heal")
    assert "heal X.1 one" in Note.done


def test_a_surprise_is_named_when_it_is_healed(surprised: Callable[[], str]) -> None:
    surprised()
    run("heal")
    assert surprised().startswith("The surprise was odd-thing (Something odd): healed")


def test_a_surprise_that_cannot_be_made_is_undone_and_not_named(home: Path, surprised: Callable[[], str]) -> None:
    run("heal")
    surprised()
    Note.failing.add("inject X.1 two")
    Note.done.clear()
    with pytest.raises(WrongUseError) as error:
        run("inject", "--surprise")
    assert str(error.value) == "03-broadcast can have no further fault now; ./lab fault list shows why"
    assert Note.done[-2:] == ["heal X.1 two", "heal X.1 one"]
    assert Journal(home).read() == []


@pytest.fixture
def exercised(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab whose scenario has three exercises, all with the one fault."""
    catalogue = home.parent / "catalogue"
    found = FoundExercise(2, 3, read_fault("odd-thing", catalogue), WantedSite("africa/mm2"))
    monkeypatch.setattr(faults, "find_exercise", lambda _, number: replace(found, number=number))
    return home


def test_an_exercise_is_a_surprise(exercised: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inject", "--exercise", "2") == 0
    run("status")
    text = capsys.readouterr().out
    assert text.startswith("Exercise 2 of 3: something was broken. Find it with ./lab status")
    assert "odd-thing" not in text
    assert [injection.hidden for injection in Journal(exercised).read()] == [True]
    with pytest.raises(WrongUseError, match="a surprise was injected and not found yet"):
        run("inject", "--exercise", "3")
    assert run("guess", "odd-thing") == 0


@pytest.mark.parametrize(("action", "kind"), [("prepare two", WrongUseError), ("inject X.1 two", LabError)])
def test_an_exercise_that_cannot_be_made_is_undone_and_not_named(
    exercised: Path, action: str, kind: type[LabError]
) -> None:
    Note.failing.add(action)
    with pytest.raises(LabError, match=r"exercise 2 cannot be injected now; heal what \./lab fault status") as error:
        run("inject", "--exercise", "2")
    assert type(error.value) is kind
    assert "odd" not in str(error.value)
    assert Journal(exercised).read() == []


@pytest.mark.usefixtures("home")
def test_what_nothing_notices_is_no_surprise() -> None:
    with pytest.raises(WrongUseError, match="can have no further fault of level 2 now"):
        run("inject", "--surprise", "2")


def test_an_interrupted_guess_leaves_one_fault(home: Path) -> None:
    journal = Journal(home)
    hidden = Injection("odd-thing", MIRROR.id, "X.1", 1.0, (Made({"note": {"what": "one"}}, {}),), surprise=True)
    journal.write(Injection(**{**hidden.__dict__, "found": True}))
    journal.write(hidden)
    assert [injection.found for injection in journal.read()] == [True]


@pytest.mark.usefixtures("home")
def test_the_document_of_an_injection(capsys: pytest.CaptureFixture[str]) -> None:
    run("inject", "odd-thing", "--json")
    document = json.loads(capsys.readouterr().out)
    assert {**document, "age_seconds": 0, "seconds": 0} == {
        "fault": "odd-thing", "surprise": False, "guesses": 0, "complete": True, "age_seconds": 0,
        "mirror": "africa/mm2", "source": "asia", "target": "africa", "topic": "X.1", "seconds": 0,
    }  # fmt: skip
    run("heal", "--json")
    assert json.loads(capsys.readouterr().out)["healed"][0]["fault"] == "odd-thing"
    run("list", "--json")
    assert json.loads(capsys.readouterr().out)["faults"][0]["refused"] is None
