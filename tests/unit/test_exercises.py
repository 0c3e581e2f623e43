"""The exercises of the labs: what their files hold, and what their conditions make of recorded states of a lab."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.errors import WrongUseError
from loosehanger.lab.scenario_index import PLAYBOOKS, exercise_names, scenario_names
from loosehanger.learn.exercise import (
    FILE,
    LabExercise,
    find_exercise,
    lab_names,
    read_exercises,
    read_front_matter,
    usual_mistakes,
    without_front_matter,
)
from loosehanger.learn.judging import NOT_STARTED, ConditionResult, judge
from loosehanger.learn.lab_text import read_sections
from loosehanger.learn.playbooks import solution
from tests.learners import looks

STATES = Path(__file__).parent / "exercise_states"
"""Documents of real labs, one file for each state: what ``./lab learn check --json`` has under ``documents``."""
EXERCISES = [exercise for lab in lab_names() for exercise in read_exercises(lab)]


def state(lab: str, name: str) -> dict[str, Any]:
    """The documents of a recorded state."""
    found: dict[str, Any] = json.loads((STATES / lab / f"{name}.json").read_text(encoding="utf-8"))
    return found


def judged(
    exercise: LabExercise, documents: Mapping[str, Any], before: str = "", met: Sequence[str] = ()
) -> list[ConditionResult]:
    """Judges an exercise by recorded documents; a document that was not asked then is missing."""
    start = state(exercise.lab, before) if before else None
    return judge(
        exercise,
        lambda names: {name: documents[name] for name in names if name in documents},
        usual=usual_mistakes(),
        before=start,
        met=met,
    )[0]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_an_exercise_belongs_to_the_section_of_its_title(exercise: LabExercise) -> None:
    """A section that was put in before it would give it another number, and its learners another text."""
    titles = [section.title for section in read_sections(exercise.lab) if section.number == exercise.number]
    assert [title.partition(" (")[0].casefold() for title in titles] == [exercise.content.title.casefold()]


def numbers(listed: str) -> set[int]:
    """The numbers of a list such as ``1, 3 and 5 to 7``."""
    found = re.findall(r"(\d+)(?: to (\d+))?", listed)
    return {number for first, last in found for number in range(int(first), int(last or first) + 1)}


@pytest.mark.parametrize("lab", lab_names())
def test_a_text_says_where_there_is_something_to_check_and_when(lab: str) -> None:
    sections, exercises = read_sections(lab), read_exercises(lab)
    unnumbered = "\n".join(section.markdown for section in sections if not section.number)
    listed = re.search(
        r"`./lab learn check` says (?:after sections (.*?) whether|after each section|whether the exercise)", unnumbered
    )
    assert listed
    done = {exercise.number for exercise in exercises}
    assert done == (numbers(listed[1]) if listed[1] else {section.number for section in sections if section.number})
    for exercise in exercises:
        if any(condition.once for condition in exercise.content.conditions) and "Check twice: " not in unnumbered:
            section = next(section for section in sections if section.number == exercise.number)
            assert re.search(r"\bCheck (now|here)\b|learn check|moment to check", section.markdown), exercise.id


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_an_exercise_can_be_begun_and_solved_by_playbooks_that_say_why(exercise: LabExercise) -> None:
    for name in ("setup.yaml", "solve.yaml"):
        steps = solution(exercise.folder / name)
        assert steps
        assert all(step.why and step.what for step in steps)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_an_exercise_can_be_begun_in_the_lab_that_is_at_its_beginning(exercise: LabExercise) -> None:
    assert looks(exercise) or exercise.content.begins_when
    for text in exercise.content.begins_when:
        assert exercise.commands([text]), text


def test_a_solution_shows_its_edits_as_they_are_in_the_file() -> None:
    found = find_exercise("09-data-isolation", "4")
    edits = [step.what for step in solution(found.folder / "solve.yaml") if ".yaml: " in step.what]
    assert edits == ["mm2-na.yaml: LH\\..*", "users-europe.yaml: name: LH.\n          patternType: prefix"]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_what_a_condition_uses_is_a_document_or_a_variable(exercise: LabExercise) -> None:
    """A name that does not exist is false in silence, so every condition must use a document."""
    for condition in exercise.content.conditions:
        for text in condition.that:
            assert exercise.commands([text]), text
    # The mistakes of any lab know these two by their names.
    for name in ("status", "diff"):
        assert exercise.content.documents.get(name, name) == name


def test_every_lab_has_front_matter() -> None:
    for name in scenario_names():
        about = read_front_matter(PLAYBOOKS / name / "README.md")
        assert about.slug == name


def test_the_list_that_completion_uses_has_every_exercise() -> None:
    assert exercise_names() == [exercise.id for exercise in EXERCISES]


def test_front_matter_is_no_part_of_the_text() -> None:
    assert without_front_matter("---\nslug: a\n---\n\n# Lab\n---\n") == "\n# Lab\n---\n"


SENTENCES = yaml.safe_load((STATES / "sentences.yaml").read_text(encoding="utf-8"))
"""For each lab and state: the exercise, and what a check of it says, or that it is done."""


@pytest.mark.parametrize(
    ("lab", "name"), [(lab, name) for lab, states in SENTENCES.items() for name in states], ids=str
)
def test_a_recorded_state_is_judged_by_a_sentence_that_names_what_is_missing(lab: str, name: str) -> None:
    expected = SENTENCES[lab][name]
    exercise = find_exercise(lab, str(expected["exercise"]))
    met = [condition.description for condition in exercise.content.conditions if condition.once]
    found = judged(exercise, state(lab, name), expected.get("before", ""), met if expected.get("done") else ())
    messages = [result.message for result in found if result.message]
    if expected.get("done"):
        assert messages == []
        assert all(result.holds for result in found)
    else:
        assert re.search(expected["says"], messages[0]), messages


def test_every_recorded_state_is_judged() -> None:
    recorded = {(path.parent.name, path.stem) for path in STATES.glob("*/*.json")}
    assert recorded == {(lab, name) for lab, states in SENTENCES.items() for name in states}


EXERCISE = """\
title: A topic
teaser: It exists.
documents:
  topics: topic show
  proof: prove
conditions:
  - description: it was there
    that: "'A' in topics.names"
    once: true
    failure_message: "there is {{ topics.names | join(',') }}"
  - description: it has changed
    that: count > before.topics.count
    failure_message: it is {{ count }} as before
  - description: it is proved
    that: [proof.verdict == 'proved']
    failure_message: not proved
mistakes:
  - that: "'B' in topics.names"
    message: B is another topic
hints: [look]
"""


@pytest.fixture
def exercise(tmp_path: Path) -> LabExercise:
    """An exercise of a lab of its own."""
    lab = tmp_path / "99-sea"
    folder = lab / "exercises" / "01-a-topic"
    folder.mkdir(parents=True)
    (lab / "scenario.yaml").write_text("title: Sea\n", encoding="utf-8")
    (lab / "exercises" / "vars.yaml").write_text("count: '{{ topics.count }}'\n", encoding="utf-8")
    (folder / FILE).write_text(EXERCISE, encoding="utf-8")
    return find_exercise("99-sea", "a-topic", tmp_path)


def results(
    exercise: LabExercise, topics: Mapping[str, Any], met: Sequence[str] = (), before: int | None = 1
) -> tuple[list[bool], list[str], list[str]]:
    """Whether each condition holds, the messages, and the documents that were asked for."""
    asked: list[str] = []

    def ask(names: Sequence[str]) -> dict[str, Any]:
        asked.extend(names)
        documents = {"topics": topics, "proof": {"verdict": "proved"}}
        return {name: documents[name] for name in names}

    start = None if before is None else {"topics": {"count": before}}
    found = judge(exercise, ask, before=start, met=met)[0]
    return [one.holds for one in found], [one.message for one in found], asked


def test_a_condition_is_ansibles_and_may_use_the_labs_variables(exercise: LabExercise) -> None:
    assert results(exercise, {"names": ["A"], "count": 2}) == ([True, True, True], ["", "", ""], ["topics", "proof"])


def test_what_does_not_hold_is_said_with_its_values_and_no_proof_is_run(exercise: LabExercise) -> None:
    holds, messages, asked = results(exercise, {"names": ["C"], "count": 1})
    assert holds == [False, False, False]
    assert messages == ["there is C", "it is 1 as before", ""]
    assert asked == ["topics"]


def test_a_usual_mistake_is_named_in_place_of_what_is_missing(exercise: LabExercise) -> None:
    assert results(exercise, {"names": ["B"], "count": 2})[1][0] == "B is another topic"


def test_what_is_enough_once_stays(exercise: LabExercise) -> None:
    assert results(exercise, {"names": [], "count": 2}, met=["it was there"])[0] == [True, True, True]


def test_a_name_that_does_not_exist_is_not_true(exercise: LabExercise) -> None:
    assert results(exercise, {"count": 2})[0] == [False, True, False]


def test_an_exercise_that_compares_with_its_beginning_must_be_started(exercise: LabExercise) -> None:
    assert results(exercise, {"names": ["A"], "count": 2}, before=None)[1][1] == NOT_STARTED


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("topics: topic show", "topics: topic set a b", r"'topic set a b' is not one of the commands that only read"),
        ("topics: topic show", "topics: link --cut", r"'link --cut': leave out --cut"),
        ("hints: [look]", "hint: look", r"hint: unknown field"),
        ("topics: topic show", "before: topic show", r"'before' is the name of the documents at the start"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(
    exercise: LabExercise, old: str, new: str, reason: str
) -> None:
    (exercise.folder / FILE).write_text(EXERCISE.replace(old, new), encoding="utf-8")
    with pytest.raises(WrongUseError, match=rf"{FILE}:\d+: .*{reason}"):
        read_exercises("99-sea", exercise.folder.parents[2])


def test_an_exercise_that_does_not_exist_is_named(exercise: LabExercise) -> None:
    with pytest.raises(WrongUseError, match=r"99-sea has no exercise '2'; its exercises are: 1"):
        find_exercise("99-sea", "2", exercise.folder.parents[2])
