"""What the playbooks of exercises change in the labs' files: the same as the text's own edits, and back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.learn.exercise import FOLDER, find_exercise
from loosehanger.learn.lab_text import read_sections

from ..e2e.documents import edit

REPLACE = "ansible.builtin.replace"
_DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BEFORE = {"09-data-isolation/4": [3]}
"""The sections whose edits are still there when an exercise begins."""
WAY_BACK = "put its manifest back"
"""The sentence of a text after which its edits undo those before."""


def tasks(playbook: Path) -> Iterator[dict[str, Any]]:
    """The tasks of a playbook's own plays, in their order."""
    for play in yaml.safe_load(playbook.read_text(encoding="utf-8")):
        yield from play.get("tasks", ())


def copy_lab(lab: str, folder: Path) -> Path:
    """A copy of a lab, below a folder of playbooks as in the kit."""
    shutil.copytree(PLAYBOOKS / lab, folder / "playbooks" / lab)
    return folder


def carry_out(folder: Path, task: dict[str, Any]) -> int:
    """Does what a task that replaces text does; returns how often it did."""
    arguments = task[REPLACE]
    file = Path(arguments["path"])
    named = [path for path in folder.rglob(file.name) if FOLDER not in path.parts]
    # A stage may have a file of the same name, in a folder below.
    path = next((path for path in named if path.parts[-3:] == file.parts[-3:]), None) or min(named)
    changed, count = re.subn(arguments["regexp"], arguments["replace"], path.read_text("utf-8"), flags=re.MULTILINE)
    path.write_text(changed, encoding="utf-8")
    return count


def content(folder: Path) -> dict[str, Any]:
    """What the lab's own files say, without comments."""
    files = [path for path in folder.rglob("*.yaml") if FOLDER not in path.parts]
    return {str(path.relative_to(folder)): [*yaml.load_all(path.read_text("utf-8"), yaml.BaseLoader)] for path in files}


@pytest.mark.parametrize(
    "exercise",
    [
        "03-broadcast/8",
        "05-active-passive/4",
        *(f"09-data-isolation/{n}" for n in (2, 3, 4, 5, 6)),
        "12-hybrid/7",
        "13-rolling/4",
    ],
)
def test_a_solution_edits_what_the_text_edits(exercise: str, tmp_path: Path) -> None:
    lab, _, number = exercise.partition("/")
    by_text, by_solution = copy_lab(lab, tmp_path / "text"), copy_lab(lab, tmp_path / "solution")
    numbers = [*BEFORE.get(exercise, []), int(number)]
    text = "\n".join(one.markdown for one in read_sections(lab) if one.number in numbers)
    for difference in _DIFF.findall(text.partition(WAY_BACK)[0]):
        assert edit(by_text, difference) is None
    steps = dropwhile(lambda task: REPLACE not in task, tasks(find_exercise(lab, number).folder / "solve.yaml"))
    edits = [*takewhile(lambda task: REPLACE in task, steps)]
    assert [carry_out(by_solution, task) for task in edits] == [1] * len(edits)
    assert content(by_solution) == content(by_text)
    assert content(by_solution) != content(copy_lab(lab, tmp_path / "before"))


@pytest.mark.parametrize("exercise", ["03-broadcast/3", "08-active-active/2", "10-forwarding/1"])
def test_a_solution_brings_its_manifests_back(exercise: str, tmp_path: Path) -> None:
    lab, _, number = exercise.partition("/")
    folder = copy_lab(lab, tmp_path)
    as_it_comes = content(folder)
    edits = [task for task in tasks(find_exercise(lab, number).folder / "solve.yaml") if REPLACE in task]
    for task in edits[:-1]:
        assert carry_out(folder, task)
        assert content(folder) != as_it_comes
    assert carry_out(folder, edits[-1])
    assert content(folder) == as_it_comes


@pytest.mark.parametrize(
    ("exercise", "playbook"), [("03-broadcast/8", "exactly-once.yaml"), ("05-active-passive/4", "beginning.yaml")]
)
def test_a_reset_takes_back_an_edit_that_a_set_up_has_recorded(exercise: str, playbook: str, tmp_path: Path) -> None:
    """As these two begin afresh with their edit, ``./lab exercise undo`` takes it for the beginning."""
    lab, _, number = exercise.partition("/")
    folder = copy_lab(lab, tmp_path / "edited")
    as_it_comes = content(folder)
    back = [task for task in tasks(PLAYBOOKS / lab / FOLDER / playbook) if REPLACE in task]
    assert [carry_out(folder, task) for task in back] == [0] * len(back)
    for task in takewhile(lambda task: REPLACE in task, tasks(find_exercise(lab, number).folder / "solve.yaml")):
        carry_out(folder, task)
    assert content(folder) != as_it_comes
    for task in back:
        assert carry_out(folder, task)
    assert content(folder) == as_it_comes
