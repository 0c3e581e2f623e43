"""The lab of the silent faults: its exercises can be had there, and its text does not name them before it should."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.topics import OwnTopic
from loosehanger.faults.choosing import fitting_mirrors
from loosehanger.faults.exercises import find_exercise
from loosehanger.faults.fault import read_fault
from loosehanger.faults.names import fault_names
from loosehanger.lab.record import Lab, Region
from loosehanger.lab.scenario import Exercise, read_scenario
from loosehanger.paths import ROOT

from .test_scenario_rights import topology

NAME = "11-silent-faults"
SCENARIO = read_scenario(NAME)
README = (ROOT / "playbooks" / NAME / "README.md").read_text(encoding="utf-8")
NUMBERS = range(1, 11)


def described() -> Lab:
    """The lab as its manifests describe it."""
    found = topology(NAME)
    regions = {
        name: Region(name, name, {}, {}, tuple(mirror for mirror in found.mirrors if mirror.region == name))
        for name in found.regions
    }
    return Lab(NAME, "local", "", regions, topology=found)


def section(number: int) -> str:
    """The text of an exercise."""
    begin = README.index(f"\n## Exercise {number}: ")
    return README[begin : README.index("\n## ", begin + 1)]


def unfolded(text: str) -> str:
    """A text without what is folded: hints and answers."""
    return re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)


def test_there_are_ten_exercises_and_they_get_harder() -> None:
    assert len(SCENARIO.exercises) == len(NUMBERS)
    faults = [find_exercise(SCENARIO, number).fault for number in NUMBERS]
    assert len({fault.name for fault in faults}) == len(faults)
    assert all(before.level <= after.level for before, after in pairwise(faults))


@pytest.mark.parametrize("number", NUMBERS)
def test_the_lab_can_have_the_fault_of_an_exercise(number: int) -> None:
    exercise = find_exercise(SCENARIO, number)
    (mirror,) = fitting_mirrors(described(), exercise.fault, exercise.wanted)
    assert mirror.translates
    assert not exercise.fault.noticed.nothing


@pytest.mark.parametrize("number", NUMBERS)
def test_an_exercise_has_all_its_parts(number: int) -> None:
    fault, text = find_exercise(SCENARIO, number).fault, section(number)
    order = [
        f"(level {fault.level}, ",
        f"$ ./lab fault inject --exercise {number}\n",
        "**The ticket.** ",
        "**The question.** ",
        "<summary>Hint</summary>",
        "<summary>Answer</summary>",
        f"$ ./lab fault guess {fault.name}\nRight: {fault.title}. ...",
        "**Mend it**",
        "$ ./lab fault heal\n",
        "**In production**",
        "</details>",
    ]
    places = [text.index(part) for part in order[:-1]] + [text.rindex(order[-1])]
    assert places == sorted(places)


def test_what_is_not_folded_names_no_fault() -> None:
    shown = unfolded("".join(map(section, NUMBERS)))
    assert [name for name in fault_names() if name in shown] == []
    topics = [exercise.topic for exercise in SCENARIO.exercises if exercise.topic]
    assert [topic for topic in topics if "FAULT" in topic] == []


def test_the_topic_that_a_fault_creates_has_the_name_of_the_exercise() -> None:
    number = next(n for n in NUMBERS if SCENARIO.exercises[n - 1].fault == "writer-in-copy")
    exercise = find_exercise(SCENARIO, number)
    assert exercise.wanted.topic == ""
    assert {change.topic for change in exercise.fault.changes if hasattr(change, "topic")} == {"LH.PAYMENTS"}
    (own,) = (change for change in read_fault("writer-in-copy").changes if isinstance(change, OwnTopic))
    assert own.topic == "LH.FAULT-WRITTEN"


def test_an_exercise_of_one_topic_wants_that_topic() -> None:
    scenario = SCENARIO.model_copy(update={"exercises": (Exercise(fault="copy-write-denied", topic="LH.DOORS"),)})
    assert find_exercise(scenario, 1).wanted.topic == "LH.DOORS"


@pytest.mark.parametrize(
    ("scenario", "number", "message"),
    [
        (NAME, 0, f"{NAME} has no exercise 0; it has 1 to 10"),
        (NAME, 11, f"{NAME} has no exercise 11; it has 1 to 10"),
        ("03-broadcast", 1, "03-broadcast has no exercise 1; it has none; use --surprise"),
    ],
)
def test_an_exercise_that_is_not_there_is_refused(scenario: str, number: int, message: str) -> None:
    with pytest.raises(WrongUseError) as error:
        find_exercise(read_scenario(scenario), number)
    assert str(error.value) == message
