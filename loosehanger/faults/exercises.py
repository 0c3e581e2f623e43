"""The exercises of a scenario: faults that its ``scenario.yaml`` lists and that a learner must find."""

from __future__ import annotations

from dataclasses import dataclass

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.topics import OwnTopic
from loosehanger.faults.choosing import WantedSite
from loosehanger.faults.fault import Fault, read_fault
from loosehanger.lab.scenario import Scenario


@dataclass(frozen=True)
class FoundExercise:
    """One exercise."""

    number: int
    """From 1."""
    count: int
    """How many the scenario has."""
    fault: Fault
    wanted: WantedSite
    """Where it must be injected."""


def find_exercise(scenario: Scenario, number: int) -> FoundExercise:
    """Returns an exercise of a scenario by its number.

    Raises:
        WrongUseError: the scenario has no such exercise, or its fault is not in the catalogue.
    """
    count = len(scenario.exercises)
    if not 0 < number <= count:
        there = f"it has 1 to {count}" if count else "it has none; use --surprise"
        raise WrongUseError(f"{scenario.name} has no exercise {number}; {there}")
    exercise = scenario.exercises[number - 1]
    fault, topic = read_fault(exercise.fault), exercise.topic
    if topic and any(isinstance(change, OwnTopic) for change in fault.changes):
        fault, topic = _with_topic(fault, topic), ""
    return FoundExercise(number, count, fault, WantedSite(mirror=exercise.mirror, topic=topic))


def _with_topic(fault: Fault, topic: str) -> Fault:
    """Returns a fault with another name for the topic that it creates: the catalogue's says what is wrong."""
    (own,) = (change for change in fault.changes if isinstance(change, OwnTopic))
    changes = (
        change.model_copy(update={"topic": topic}) if getattr(change, "topic", None) == own.topic else change
        for change in fault.changes
    )
    return fault.model_copy(update={"changes": tuple(changes)})
