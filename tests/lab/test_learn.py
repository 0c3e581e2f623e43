"""Each exercise on a real lab: a check fails before, and succeeds after the text's own commands and after ``solve``.

``LH_WRITE_STATES=FOLDER`` keeps the documents of every check, from which ``tests/unit/exercise_states`` was made.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.learn.exercise import LabExercise, lab_names, read_exercises
from loosehanger.learn.lab_text import SECTION, read_commands
from scripts.sandbox import Kit, copy_kit
from tests.e2e.documents import edit
from tests.e2e.terminal import Terminal

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1500)]

PORTS = 31000
BLOCK_SECONDS = 600.0
EXERCISES = [exercise for lab in lab_names() for exercise in read_exercises(lab)]
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


def begin(kit: Kit, command: str, exercise: LabExercise) -> None:
    """Brings the lab to the beginning of an exercise, whatever was set up before."""
    progress = kit.home / "access" / "lab.json"
    if progress.exists() and json.loads(progress.read_text(encoding="utf-8"))["scenario"] != exercise.lab:
        assert kit.run("cleanup").returncode == 0
    done = kit.run("learn", command, exercise.id)
    assert done.returncode == 0, done.stdout + done.stderr


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


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_the_texts_own_commands_do_an_exercise(exercise: LabExercise, kit: Kit, terminal: Terminal) -> None:
    begin(kit, "start" if exercise.number == 1 else "reset", exercise)
    # The first section of a lab only looks at what is set up.
    code, document = check(kit, exercise)
    assert code == (0 if exercise.number == 1 else 1), document["conditions"]
    for kind, text in blocks(exercise):
        if kind == "diff":
            assert edit(kit.root, text) is None
        else:
            for command in read_commands(text, 1):
                terminal.run(command.text, BLOCK_SECONDS)
        code, document = check(kit, exercise)
    assert code == 0, document["conditions"]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_its_solution_does_an_exercise(exercise: LabExercise, kit: Kit) -> None:
    begin(kit, "reset", exercise)
    done = kit.run("learn", "solve", exercise.id)
    assert done.returncode == 0, done.stdout + done.stderr
    code, document = check(kit, exercise)
    assert (code, document["state"]) == (0, "solved"), document["conditions"]
