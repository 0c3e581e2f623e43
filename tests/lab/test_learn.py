"""Each exercise on a real lab: a check fails before, and succeeds after the text's own commands and after ``solve``.

A lab at a time, as a learner takes it: its exercises one after the other by the text, begun with ``./lab learn start``,
which leaves a lab alone that is at the beginning of an exercise; then, after a reset, usual mistakes; then each
exercise by ``solve``, after a reset. ``./test.sh tests/lab/test_learn.py -k 03-broadcast``; ``-k "03-broadcast and
text"`` for one way (text, mistakes, solution). ``-s`` shows what each step took. ``LH_WRITE_STATES=FOLDER`` keeps the
documents of every check, from which ``tests/unit/exercise_states`` was made.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import ExitCode
from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.learn.exercise import LabExercise, find_exercise, lab_names, read_exercises
from loosehanger.learn.lab_text import SECTION, read_commands
from loosehanger.waiting import wait_for
from scripts.sandbox import Kit, copy_kit
from tests.e2e.documents import edit
from tests.e2e.terminal import Terminal
from tests.learners import EXERCISES, begins_anew, looks

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1500)]

PORTS = 24000
BLOCK_SECONDS = 600.0
RESET_SECONDS = 30.0
"""How long a reset may take that only applies what has changed."""
BEGUN_SECONDS = 60.0
TRIES = 3
FIRST = {exercise.lab: exercise for exercise in reversed(EXERCISES) if not looks(exercise)}
"""The first exercise of each lab in which there is something to do."""
_TASKS = re.compile(r"tasksMax: \d+")
_FUNCTION = re.compile(r"^\$ \w+\(\) \{.*\n(?:> .*\n)*", re.MULTILINE)
_BLOCK = re.compile(r"^```(console|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class WrongRegion:
    """What a learner does in the wrong region."""

    exercise: LabExercise
    command: str
    undo: str
    said: str
    """Of what a check says."""


def set_at_a_copy(lab: str, number: int, copy: str, said: str) -> WrongRegion:
    """A setting that is changed at a copy, named as ``REGION TOPIC``."""
    setting = "retention.ms"
    exercise = find_exercise(lab, str(number))
    return WrongRegion(exercise, f"topic set {copy} {setting}=3600000", f"topic unset {copy} {setting}", said)


WRONG_REGIONS = {
    mistake.exercise.lab: mistake
    for mistake in (
        set_at_a_copy("01-aggregate-central", 3, "europe northamerica.LH.ORDERS", "set at the copy, in the wrong"),
        set_at_a_copy("02-aggregate-distributed", 2, "europe southamerica.LH.STOCK", "set at the copy, in the wrong"),
        set_at_a_copy("03-broadcast", 2, "north-america LH.ORDERS", "set at a copy, in the wrong region"),
        set_at_a_copy("04-shared-aggregate", 2, "north-america europe.LH.ORDERS", "set at a copy, in the wrong region"),
        WrongRegion(
            find_exercise("10-forwarding", "3"),
            "link europe north-america --silent",
            "link europe north-america --heal",
            "between europe and north-america is silent, the wrong one",
        ),
    )
}
"""By lab, where it costs seconds."""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A copy of the kit; what is set up in it, the exercises say themselves."""
    kit = copy_kit(tmp_path_factory.mktemp("learner"), PORTS)
    yield kit
    done = kit.run("cleanup")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def terminal(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """The learner's terminal."""
    terminal = Terminal(kit.root, kit.variables(), tmp_path_factory.mktemp("outputs"))
    yield terminal
    terminal.end()


def begin(kit: Kit, exercise: LabExercise, command: str) -> float:
    """Brings the lab to the beginning of an exercise, whatever was set up before, and sees that it is not done.

    Args:
        kit: the kit.
        exercise: the exercise.
        command: ``start`` or ``reset``.

    Returns:
        How long it took, in seconds; 0 if more had to be done than to apply what has changed.
    """
    set_up = kit.lab.scenario if (kit.home / "access" / "lab.json").exists() else ""
    if set_up and (set_up != exercise.lab or looks(exercise)):
        assert kit.run("cleanup").returncode == 0
        set_up = ""
    if looks(exercise):
        assert kit.run("learn", "check", exercise.id).returncode == ExitCode.NOTHING_SET_UP
    seconds = timed(kit, exercise, command)
    if not looks(exercise):
        code, document = check(kit, exercise)
        assert code == 1, document["conditions"]
    return seconds if set_up and not begins_anew(exercise) else 0.0


def timed(kit: Kit, exercise: LabExercise, command: str) -> float:
    """Runs ``./lab learn COMMAND`` for an exercise; returns how long it took, in seconds."""
    began = time.monotonic()
    done = kit.run("learn", command, exercise.id)
    seconds = time.monotonic() - began
    print(f"{exercise.id}: {command} {seconds:.1f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    return seconds


def check(kit: Kit, exercise: LabExercise) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of a check."""
    began = time.monotonic()
    done = kit.run("learn", "check", exercise.id, "--json")
    print(f"{exercise.id}: check {time.monotonic() - began:.1f} s, exit code {done.returncode}")
    assert done.returncode in (0, 1), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    if states := os.environ.get("LH_WRITE_STATES"):
        file = Path(states) / f"{exercise.id.replace('/', '-')}-{document['checks']}.json"
        file.write_text(json.dumps(document["documents"]), encoding="utf-8")
    return done.returncode, document


def blocks(exercise: LabExercise) -> list[tuple[str, str]]:
    """The commands and edits of an exercise's section, after the shell's functions that the text defines before it."""
    text = (PLAYBOOKS / exercise.lab / "README.md").read_text(encoding="utf-8")
    section = next(found for found in SECTION.finditer(text) if int(found[1]) == exercise.number)
    functions = [("console", found[0]) for found in _FUNCTION.finditer(text[: section.start()])]
    return [*functions, *((found[1], found[2]) for found in _BLOCK.finditer(section[0]))]


def follow(exercise: LabExercise, kit: Kit, terminal: Terminal) -> dict[str, Any]:
    """Does what a section's text says; returns the document of the last check.

    It checks after each block where a state on the way counts, and else at the end.
    """
    on_the_way = any(condition.once for condition in exercise.content.conditions)
    document: dict[str, Any] = {}
    began = time.monotonic()
    for kind, text in blocks(exercise):
        if kind == "diff":
            assert edit(kit.root, text) is None
        else:
            for command in read_commands(text, 1):
                terminal.run(command.text, BLOCK_SECONDS)
        if on_the_way:
            document = check(kit, exercise)[1]
    print(f"{exercise.id}: by the text {time.monotonic() - began:.1f} s")
    return document or check(kit, exercise)[1]


def solve(exercise: LabExercise, kit: Kit) -> dict[str, Any]:
    """Has an exercise solved; returns the document of a check."""
    timed(kit, exercise, "solve")
    return check(kit, exercise)[1]


def sentence(kit: Kit, exercise: LabExercise) -> str:
    """What a check says of an exercise that is not done."""
    return next(str(one["message"]) for one in check(kit, exercise)[1]["conditions"] if one["message"])


def interrupt(kit: Kit, lab: str) -> None:
    """Begins a set-up, and ends it as Ctrl-C does."""
    # Where tests are started in the background, Ctrl-C is ignored, and that is inherited.
    command = ["env", "--default-signal=INT", sys.executable, "-P", "-m", "loosehanger.cli", "setup", lab]
    with subprocess.Popen(
        command, cwd=kit.root, env=kit.variables(), stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        wait_for(lambda: None if kit.lab.unfinished else "not begun", BEGUN_SECONDS, "the set-up")
        os.killpg(process.pid, signal.SIGINT)
    assert process.returncode != 0


def make_mistakes(kit: Kit, exercise: LabExercise) -> None:
    """Makes usual mistakes, each of which a check names, and puts them right."""
    if found := WRONG_REGIONS.get(exercise.lab):
        act_in_the_wrong_region(kit, found)
    for file in mirrors(kit, exercise)[:1]:
        edit_wrongly(kit, exercise, file)
    interrupt(kit, exercise.lab)
    assert sentence(kit, exercise).startswith("The stage 'setup' was begun and has not finished, as after Ctrl-C")
    done = kit.run("setup", exercise.lab)
    assert done.returncode == 0, done.stdout + done.stderr


def mirrors(kit: Kit, exercise: LabExercise) -> list[Path]:
    """The manifests of the mirrors that are set up; none in a lab that begins without one."""
    resources = check(kit, exercise)[1]["documents"]["diff"]["resources"]
    return [kit.root / one["file"] for one in resources if one["kind"] == "KafkaMirrorMaker2"]


def edit_wrongly(kit: Kit, exercise: LabExercise, manifest: Path) -> None:
    """Mistypes a setting, and leaves a step out: nothing applies an edit; brings the manifest back."""
    as_it_comes = manifest.read_text(encoding="utf-8")
    manifest.write_text(as_it_comes.replace("tasksMax:", "taskMax:"), encoding="utf-8")
    said = sentence(kit, exercise)
    assert said.startswith("A manifest has a mistake"), said
    assert manifest.name in said
    assert "taskMax" in said
    manifest.write_text(_TASKS.sub("tasksMax: 7", as_it_comes), encoding="utf-8")
    assert f"{manifest.name} was saved, and the lab does not have the change yet" in sentence(kit, exercise)
    manifest.write_text(as_it_comes, encoding="utf-8")


def act_in_the_wrong_region(kit: Kit, mistake: WrongRegion) -> None:
    """Makes a mistake, which a check names, and undoes it."""
    for _ in range(TRIES):
        assert kit.run(*mistake.command.split()).returncode == 0
        said = sentence(kit, mistake.exercise)
        if "wrong" in said:
            break
        # A mirror has put the setting back before the check has seen it.
    assert kit.run(*mistake.undo.split()).returncode == 0
    assert mistake.said in said


@pytest.mark.parametrize(
    ("exercise", "way"),
    [
        pair
        for lab in lab_names()
        for pair in (
            *((exercise, "text") for exercise in read_exercises(lab)),
            (FIRST[lab], "mistakes"),
            *((exercise, "solution") for exercise in read_exercises(lab)),
        )
    ],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_an_exercise_is_done(exercise: LabExercise, way: str, kit: Kit, terminal: Terminal) -> None:
    seconds = begin(kit, exercise, "start" if way == "text" else "reset")
    if way == "mistakes":
        make_mistakes(kit, exercise)
        return
    document = follow(exercise, kit, terminal) if way == "text" else solve(exercise, kit)
    assert document["holds"], document["conditions"]
    assert document["state"] == ("done" if way == "text" else "solved")
    assert seconds < RESET_SECONDS
