"""Every exercise can be done, and each part of a condition can be true and false, in states that a learner may reach.

For 03 the states were recorded on real labs (``exercise_states``); for the others see ``test_exercise_mistakes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.learn.exercise import LabExercise
from loosehanger.learn.judging import Templates

from ..learners import EXERCISES, begins_at
from .test_exercise_mistakes import (
    A_RIGHT,
    BEGINNINGS,
    BEHIND,
    CLEARED,
    CUSTOMERS_TOO,
    EVERYTHING,
    HOUR,
    ILL,
    KEEPS_NAMES,
    MISTAKES,
    NOT_EXACT,
    REACHED,
    STARTED,
    STATES,
    Edit,
    Made,
    at_stage,
    broken,
    by_hand,
    claims,
    documents,
    found_in,
    judged,
    kept_copies,
    one_hop,
    started,
)
from .test_exercises import SENTENCES, state

LEFT = ("europe.LH.CUSTOMERS", "europe.LH.DOORS", "europe.LH.ORDERS")
CHECKPOINTS = Edit(
    "mm2-na.yaml", "      sourceConnector:", "      checkpointConnector: {tasksMax: 1}\n      sourceConnector:"
)
WITHOUT = [
    Edit("mm2-na.yaml", "      exactly.once.source.support: enabled\n", ""),
    Edit("mm2-na.yaml", "offset.flush.interval.ms: 5000", "offset.flush.interval.ms: 3600000"),
]
KILLED = {region: dict.fromkeys(of_region, 90) for region, of_region in STARTED.items()}


def absent(kind: str, *topics: str) -> dict[str, Any]:
    """An isolation claim that something has got out of."""
    findings = [{"kind": kind, "details": {"topic": topic}} for topic in topics]
    return {"absent": {"verdict": "disproved", "reasons": [f"north-america has {topics}"], "findings": findings}}


def doubled_in(north_america: int, south_america: int) -> dict[str, Any]:
    """A proof that counts duplicates in two copies."""
    counts = {"north-america": north_america, "south-america": south_america}
    flows = [{"target": one, "topic": "LH.ORDERS", "duplicates": count} for one, count in counts.items()]
    totals = {"missing": 0, "duplicates": north_america + south_america, "unexpected": 0}
    return {"verdict": "disproved", "flows": flows, "totals": totals}


A_GROUP = absent("group_present", "europe.checkpoints.internal")
BETWEEN = ("europe", "north-america")
IN_EUROPE: dict[str, dict[str, dict[str, str]]] = {
    "europe": {name: {} for name in ("LH.ORDERS", "northamerica.LH.ORDERS", "southamerica.LH.ORDERS")}
}
EACH: dict[str, dict[str, dict[str, str]]] = {
    **IN_EUROPE,
    "north-america": {name: {} for name in ("LH.ORDERS", "europe.LH.ORDERS", "southamerica.LH.ORDERS")},
    "south-america": {name: {} for name in ("LH.ORDERS", "europe.LH.ORDERS", "northamerica.LH.ORDERS")},
}
FAULTS = (
    "connector-paused worker-stopped copy-write-denied checkpoints-paused pattern-mistyped config-sync-disabled "
    "partition-only-at-source writer-in-copy copy-truncated retention-outruns-mirror"
).split()
LACKING = Made(proof={"totals": {"missing": 1, "duplicates": 0, "unexpected": 0}, "flows": []})
DONE: dict[str, list[Made]] = {
    "01-aggregate-central/1": [Made(topics=IN_EUROPE)],
    "02-aggregate-distributed/1": [Made()],
    "03-broadcast/4": [Made(mirrors="Stopped"), Made()],
    "03-broadcast/5": [Made(status={"started": KILLED})],
    "03-broadcast/6": [
        Made(crossing={"delay": 0.12}),
        Made(links={BETWEEN: ("silent", (True, True))}, crossing={"delay": 0.12}),
        Made(),
    ],
    "03-broadcast/7": [Made(proof=by_hand("north-america", "LH.ORDERS", 1))],
    "03-broadcast/8": [Made(WITHOUT), Made(proof=doubled_in(10_000, 0))],
    "04-shared-aggregate/1": [Made(topics=EACH)],
    **{exercise: [made, Made()] for exercise, made in STATES},
    **{f"{lab}/{number}": [at_stage(stage)] for lab, found in REACHED.items() for number, stage in found.items()},
    "08-active-active/2": [Made(saved=KEEPS_NAMES), Made()],
    "08-active-active/3": [Made(proof=by_hand("europe", "LH.ORDERS", 1))],
    "08-active-active/6": [at_stage("rebuild"), at_stage("return")],
    "09-data-isolation/1": [kept_copies()],
    "09-data-isolation/2": [Made([EVERYTHING], claims={"copy": {"verdict": "disproved"}})],
    "09-data-isolation/3": [Made(claims={"absent": A_RIGHT}, topics=kept_copies().topics)],
    "09-data-isolation/4": [
        replace(kept_copies(*LEFT), applied=[EVERYTHING]),
        replace(kept_copies(*LEFT), claims=absent("topic_present", *LEFT)),
    ],
    "09-data-isolation/5": [Made(claims={"absent": found_in(CLEARED, "header", "field")})],
    "09-data-isolation/6": [Made([CHECKPOINTS], claims=A_GROUP), Made(claims=A_GROUP)],
    "10-forwarding/1": [Made(saved=[one_hop("mm2-sa.yaml")]), Made()],
    **{f"11-silent-faults/{number}": [broken(fault), Made()] for number, fault in enumerate(FAULTS, start=1)},
    "12-hybrid/1": [Made(inwards={"refuses": True, "turned_away": 1, "connections": 1})],
    "12-hybrid/7": [
        Made(
            [CUSTOMERS_TOO],
            status={"stage": "retire-key"},
            topics={"north-america": {"tenant7.LH.CUSTOMERS": {}}},
            claims=absent("topic_present", "tenant7.LH.CUSTOMERS"),
        )
    ],
    "13-rolling/1": [started(60, 0)],
    "13-rolling/2": [at_stage("upgrade"), at_stage("downgrade")],
    "13-rolling/4": [Made([NOT_EXACT], status={"stage": "downgrade"}, proof=doubled_in(9, 0))],
}
"""The states in which checks find an exercise done, in their order."""
MORE: dict[str, list[Made]] = {
    "01-aggregate-central/3": [Made(topics={"europe": {"southamerica.LH.ORDERS": HOUR}})],
    "09-data-isolation/4": [Made(claims={"absent": A_RIGHT})],
    "09-data-isolation/5": [Made([EVERYTHING])],
    "03-broadcast/7": [Made(proof=doubled_in(7, 0)), LACKING],
    "08-active-active/3": [Made(proof=doubled_in(7, 0)), LACKING],
    "13-rolling/4": [LACKING],
    "03-broadcast/8": [Made(WITHOUT[:1]), Made(proof=doubled_in(10_000, 4))],
    "04-shared-aggregate/1": [Made()],
    "09-data-isolation/3": [kept_copies(*LEFT), Made(claims={"copy": {"verdict": "disproved"}})],
    "13-rolling/2": [at_stage("upgrade", healthy=False)],
}
"""States that no usual mistake leads to."""


def beginning(exercise: LabExercise) -> Made:
    """The state in which an exercise begins."""
    return BEGINNINGS.get(exercise.id) or at_stage(begins_at(exercise), started=STARTED)


def states(exercise: LabExercise, place: Path) -> Iterator[dict[str, Any]]:
    """The documents of states in which a learner may check an exercise."""
    for name, expected in SENTENCES.get(exercise.lab, {}).items():
        if expected["exercise"] == exercise.number:
            start = {"before": state(exercise.lab, expected["before"])} if "before" in expected else {}
            yield state(exercise.lab, name) | start
    start_ = beginning(exercise)
    stage = str(start_.status.get("stage", "setup"))
    mirror = next((exercise.folder.parents[1] / "manifests").glob("mm2*.yaml")).name
    typo = Made(status={"stage": stage}, saved=[Edit(mirror, "tasksMax:", "taskMax:")])
    reached = [str(made.status.get("stage", "setup")) for made in DONE.get(exercise.id, [])]
    undecided = [
        Made(status={"stage": one}, claims={claim["kind"]: BEHIND for claim in claims(exercise.lab, one, Made())})
        for one in dict.fromkeys((stage, *reached))
    ]
    mistakes = [made for name, made, _ in MISTAKES if name == exercise.id]
    done, more = DONE.get(exercise.id, []), MORE.get(exercise.id, [])
    # What is likely to show most comes first: the test ends when it has seen enough.
    for number, made in enumerate((start_, *done, ILL, typo, Made(mirrors="Failed"), *more, *undecided, *mistakes)):
        there = place / str(number)
        yield documents(exercise.lab, made, there) | {"before": documents(exercise.lab, start_, there / "before")}


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_each_part_of_a_condition_can_be_true_and_false(exercise: LabExercise, tmp_path: Path) -> None:
    parts = [text for condition in exercise.content.conditions for text in condition.that]
    seen: dict[str, set[bool]] = {text: set() for text in parts}
    for there in states(exercise, tmp_path):
        templates = Templates(there, exercise.variables)
        for text in [one for one in parts if len(seen[one]) < 2 and set(exercise.commands([one])) <= there.keys()]:
            seen[text].add(templates.hold([text]))
        if all(len(found) == 2 for found in seen.values()):
            return
    assert {text: found for text, found in seen.items() if len(found) < 2} == {}


@pytest.mark.parametrize("exercise", [one for one in EXERCISES if one.id in DONE], ids=lambda exercise: exercise.id)
def test_an_exercise_can_be_done(exercise: LabExercise, tmp_path: Path) -> None:
    met: list[str] = []
    for number, made in enumerate(DONE[exercise.id]):
        found = judged(exercise.id, made, tmp_path / str(number), met, before=beginning(exercise))
        met = [one.condition.description for one in found if one.holds and one.condition.once]
    assert [one.condition.description for one in found if not one.holds] == []
