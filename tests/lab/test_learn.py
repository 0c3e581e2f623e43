"""Each exercise on a real lab: a check fails before, and succeeds after the text's own commands and after ``solve``.

A whole scenario at a time: ``./test.sh tests/lab/test_learn.py -k 03-broadcast``; ``-k "03-broadcast and solution"``
leaves out the commands of the text. ``-s`` shows what each check and reset took. ``LH_WRITE_STATES=FOLDER`` keeps the
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
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import ExitCode
from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.learn.exercise import LabExercise
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
FIRST = {exercise.lab: exercise for exercise in reversed(EXERCISES) if not looks(exercise)}
"""The first exercise of each lab in which there is something to do."""
_FUNCTION = re.compile(r"^\$ \w+\(\) \{.*\n(?:> .*\n)*", re.MULTILINE)
_BLOCK = re.compile(r"^```(console|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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


def begin(kit: Kit, exercise: LabExercise) -> None:
    """Brings the lab to the beginning of an exercise, whatever was set up before, and sees that it is not done."""
    progress = kit.home / "access" / "lab.json"
    if progress.exists() and json.loads(progress.read_text(encoding="utf-8"))["scenario"] != exercise.lab:
        assert kit.run("cleanup").returncode == 0
    if looks(exercise):
        assert kit.run("cleanup").returncode == 0
        assert kit.run("learn", "check", exercise.id).returncode == ExitCode.NOTHING_SET_UP
        done = kit.run("learn", "start", exercise.id)
        assert done.returncode == 0, done.stdout + done.stderr
        return
    was_there = progress.exists()
    began = time.monotonic()
    done = kit.run("learn", "reset", exercise.id)
    seconds = time.monotonic() - began
    print(f"{exercise.id}: reset in {seconds:.1f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    if was_there and not begins_anew(exercise):
        assert seconds < RESET_SECONDS
    code, document = check(kit, exercise)
    assert code == 1, document["conditions"]


def check(kit: Kit, exercise: LabExercise) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of a check."""
    began = time.monotonic()
    done = kit.run("learn", "check", exercise.id, "--json")
    print(f"{exercise.id}: checked in {time.monotonic() - began:.1f} s, exit code {done.returncode}")
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
    """Does what a section's text says, and checks after each block; returns the document of the last check."""
    document: dict[str, Any] = {}
    for kind, text in blocks(exercise):
        if kind == "diff":
            assert edit(kit.root, text) is None
        else:
            for command in read_commands(text, 1):
                terminal.run(command.text, BLOCK_SECONDS)
        document = check(kit, exercise)[1]
    return document or check(kit, exercise)[1]


def solve(exercise: LabExercise, kit: Kit) -> dict[str, Any]:
    """Has an exercise solved; returns the document of a check."""
    began = time.monotonic()
    done = kit.run("learn", "solve", exercise.id)
    print(f"{exercise.id}: solved in {time.monotonic() - began:.1f} s")
    assert done.returncode == 0, done.stdout + done.stderr
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
    """Makes two usual mistakes, which a check names, and puts them right."""
    manifest = next((kit.root / "playbooks" / exercise.lab / "manifests").glob("mm2*.yaml"))
    as_it_comes = manifest.read_text(encoding="utf-8")
    manifest.write_text(as_it_comes.replace("tasksMax:", "taskMax:"), encoding="utf-8")
    said = sentence(kit, exercise)
    assert said.startswith("A manifest has a mistake"), said
    assert manifest.name in said
    assert "taskMax" in said
    manifest.write_text(as_it_comes, encoding="utf-8")
    interrupt(kit, exercise.lab)
    assert sentence(kit, exercise).startswith("The stage 'setup' was begun and has not finished, as after Ctrl-C")
    done = kit.run("setup", exercise.lab)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("exercise", "way"),
    [(exercise, way) for exercise in EXERCISES for way in ("text", "solution")],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_an_exercise_is_done(exercise: LabExercise, way: str, kit: Kit, terminal: Terminal) -> None:
    begin(kit, exercise)
    if way == "solution" and exercise is FIRST[exercise.lab]:
        make_mistakes(kit, exercise)
    document = follow(exercise, kit, terminal) if way == "text" else solve(exercise, kit)
    assert document["holds"], document["conditions"]
    assert document["state"] == ("done" if way == "text" else "solved")
