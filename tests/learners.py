"""Exercises of the labs, for tests that do them."""

from __future__ import annotations

from loosehanger.learn.exercise import LabExercise, lab_names, read_exercises
from loosehanger.learn.playbooks import solution

EXERCISES = [exercise for lab in lab_names() for exercise in read_exercises(lab)]


def looks(exercise: LabExercise) -> bool:
    """Whether an exercise only looks at what a set-up has made, so that it is done once the lab is set up."""
    return solution(exercise.folder / "solve.yaml")[0].what.startswith("./lab setup ")


def begins_at(exercise: LabExercise) -> str:
    """The stage at which an exercise begins."""
    stages = [one.what.split()[2] for one in solution(exercise.folder / "setup.yaml") if "./lab stage " in one.what]
    return stages[-1] if stages else "setup"


def begins_anew(exercise: LabExercise) -> bool:
    """Whether a reset may have to clean up or to run a stage, which takes longer than a set-up that changes little."""
    tasks = solution(exercise.folder / "setup.yaml")
    return any(one.what.startswith(("./lab cleanup", "./lab stage")) for one in tasks)
