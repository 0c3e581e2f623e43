"""``./lab learn``: lists exercises, starts, checks and solves them, and records the learner's progress."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from loosehanger.cli.columns import beside
from loosehanger.cli.documents import document_of
from loosehanger.cli.playbook import run_playbook
from loosehanger.cli.remembered import carry_over
from loosehanger.errors import ExitCode, LabError, NothingSetUpError, WrongUseError
from loosehanger.lab.progress import read_progress
from loosehanger.lab.record import Lab, load_lab
from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.learn.exercise import (
    SLOW,
    LabExercise,
    find_exercise,
    lab_names,
    read_exercises,
    read_front_matter,
    usual_mistakes,
)
from loosehanger.learn.judging import ConditionResult, Documents, begun, judge
from loosehanger.learn.playbooks import Task, solution
from loosehanger.learn.progress import Attempt, Learner, read_learner
from loosehanger.learn.reporting import join, leave, read_joined, send
from loosehanger.paths import ROOT, lab_home
from loosehanger.suggestions import instead
from loosehanger.times import span

LOOK_SECONDS = 60
"""How long a command that only looks may take in a pod, on a machine that is busy with something else."""
SLOW_SECONDS = 180
"""How long a proof may take."""


@dataclass(frozen=True)
class ChosenExercise:
    """An exercise, and the learner's progress with it."""

    exercise: LabExercise
    learner: Learner

    @property
    def step(self) -> Attempt:
        """The learner's attempt at the exercise."""
        return self.learner.step(self.exercise.id)

    @property
    def text(self) -> str:
        """Where the lab's text has the exercise."""
        return f"playbooks/{self.exercise.lab}/README.md, section {self.exercise.number}"

    def save(self) -> None:
        """Makes it the current exercise, and writes the learner's file."""
        self.learner.current = self.exercise.id
        self.learner.write(lab_home())


def run(options: argparse.Namespace) -> int:
    """Runs the command that the command line names.

    Raises:
        WrongUseError: it is not possible; nothing was changed.
        LabError: it failed.
    """
    if options.collect:
        from loosehanger.room.server import collect  # a server, which no other command needs

        collect(lab_home(), options.collect, partial(print, flush=True), new=options.new_code)
        return ExitCode.DONE
    if options.report_to:
        return _join(options.report_to, options.name)
    if options.command == "list":
        return _list(read_learner(lab_home()), as_json=options.json)
    place = _next_place() if options.command == "next" else _place(options.exercise)
    start = partial(_start, may_set_up=not options.no_setup)
    commands: dict[str, Callable[..., int]] = {
        "start": start, "next": start, "check": _check, "hint": _hint, "solve": _solve, "reset": _reset
    }  # fmt: skip
    code = commands[options.command](place, as_json=options.json)
    _report(place.learner)
    return code


def _join(url: str, name: str) -> int:
    """Joins a room, or leaves it."""
    if url == "off":
        print("Your progress is no longer shared." if leave(lab_home()) else "Your progress is not shared.")
        return ExitCode.DONE
    room = join(lab_home(), url, name, read_learner(lab_home()))
    who = f"as {room.name}" if room.name else "without a name"
    print(f"Your progress is shared with this room, {who}. ./lab learn --report-to off stops sharing it.")
    return ExitCode.DONE


def _report(learner: Learner) -> None:
    """Sends the learner's progress to the room that they have joined, if any; a failure is only reported."""
    try:
        if room := read_joined(lab_home()):
            send(room, learner)
    except LabError as error:
        print(f"note: not shared: {error}", file=sys.stderr)


def _list(learner: Learner, *, as_json: bool) -> int:
    labs = [(name, read_exercises(name)) for name in lab_names()]
    if as_json:
        found = [
            {
                "name": name,
                **read_front_matter(PLAYBOOKS / name / "README.md").model_dump(),
                "exercises": [_as_json(ChosenExercise(exercise, learner)) for exercise in exercises],
            }
            for name, exercises in labs
        ]
        print(json.dumps({"current": learner.current or None, "labs": found}, indent=1, ensure_ascii=False))
        return ExitCode.DONE
    marks = {"done": "✓", "solved": "s", "begun": "…", "open": " "}
    for name, exercises in labs:
        about = read_front_matter(PLAYBOOKS / name / "README.md")
        done = sum(learner.step(exercise.id).done > 0 for exercise in exercises)
        start = f"{name}: {done} of {len(exercises)}   "
        print(beside(start, f"{about.title}, {about.difficulty}, {span(about.timelimit)}"))
        for exercise in exercises:
            here = "   <- here" if exercise.id == learner.current else ""
            mark = marks[learner.step(exercise.id).state]
            print(f"  {mark} {exercise.number:>2}  {exercise.content.title}{here}")
        print()
    legend = "✓ done, s solved for you, … begun. ./lab learn start LAB/NUMBER begins one, ./lab learn check judges it."
    print(beside("", legend))
    return ExitCode.DONE


def _as_json(place: ChosenExercise) -> dict[str, Any]:
    exercise, step = place.exercise, place.step
    return {
        "id": exercise.id,
        "slug": exercise.slug,
        "title": exercise.content.title,
        "teaser": exercise.content.teaser,
        "text": place.text,
        "state": step.state,
        "checks": step.checks,
        "hints": step.hints,
        "seconds": round(step.done - step.started) if step.done and step.started else None,
    }


def _place(name: str | None) -> ChosenExercise:
    """Finds the exercise that is named: ``LAB/NUMBER``, ``LAB``, ``NUMBER``, or nothing for the current one."""
    learner = read_learner(lab_home())
    lab, _, exercise = (name or "").partition("/")
    if lab and not exercise and lab not in lab_names() and (lab.isdecimal() or _current_lab(learner, required=False)):
        lab, exercise = "", lab
    if not lab and not exercise and learner.current:
        lab, _, exercise = learner.current.partition("/")
    lab = lab or _current_lab(learner)
    if lab not in lab_names():
        raise WrongUseError(f"there is no lab '{lab}' with exercises{instead(lab, lab_names(), 'the labs are')}")
    if exercise:
        return ChosenExercise(find_exercise(lab, exercise), learner)
    found = read_exercises(lab)
    return ChosenExercise(next((one for one in found if not learner.step(one.id).done), found[0]), learner)


def _current_lab(learner: Learner, *, required: bool = True) -> str:
    """Returns the lab of the current exercise, or the scenario that is set up."""
    if learner.current:
        return learner.current.partition("/")[0]
    progress = read_progress()
    if progress is None and required:
        raise WrongUseError("name an exercise, for example ./lab learn start LAB/1; ./lab learn list shows them")
    return progress.scenario if progress else ""


def _next_place() -> ChosenExercise:
    place = _place(None)
    if not place.step.started:
        return place
    following = [one for one in read_exercises(place.exercise.lab) if one.number > place.exercise.number]
    if not following:
        raise WrongUseError(f"{place.exercise.id} is the last exercise of its lab; ./lab learn list shows the others")
    return ChosenExercise(following[0], place.learner)


def _start(place: ChosenExercise, *, as_json: bool, may_set_up: bool) -> int:
    exercise = place.exercise
    documents = _look(exercise) if _is_set_up(exercise) else {}
    if not (documents and begun(exercise, documents)):
        if not may_set_up:
            raise WrongUseError(
                f"the lab is not at the beginning of {exercise.id}; in a terminal, ./lab learn start {exercise.id} "
                "brings it there"
            )
        documents = _run_setup(exercise)
    return _begun(place, documents, as_json=as_json)


def _reset(place: ChosenExercise, *, as_json: bool) -> int:
    return _begun(place, _run_setup(place.exercise), as_json=as_json)


def _run_setup(exercise: LabExercise) -> Documents:
    print(f"Bringing the lab to the beginning of {exercise.id}", file=sys.stderr, flush=True)
    _run(exercise, "setup.yaml")
    return _look(exercise)


def _begun(place: ChosenExercise, documents: Documents, *, as_json: bool) -> int:
    exercise = place.exercise
    place.learner.steps[exercise.id] = Attempt(started=time.time(), before=documents)
    place.save()
    if as_json:
        print(json.dumps(_as_json(place), indent=1, ensure_ascii=False))
        return ExitCode.DONE
    print(f"{exercise.id}: {exercise.content.title}\n{exercise.content.teaser}\n")
    print(f"Its text is {place.text}. ./lab learn check judges it, ./lab learn hint helps.")
    return ExitCode.DONE


def _check(place: ChosenExercise, *, as_json: bool) -> int:
    exercise, step = place.exercise, place.step
    _require_lab(exercise)
    findings, documents = judge(
        exercise, lambda names: _ask(exercise, names), usual=usual_mistakes(), before=step.before, met=step.met
    )
    # Conditions marked ``once`` stay met.
    step.met = [one.condition.description for one in findings if one.holds and one.condition.once]
    step.checks += 1
    done = all(finding.holds for finding in findings)
    if done and not step.done:
        step.done = time.time()
    step.said = next((one.message for one in findings if one.message), "")
    place.save()
    if as_json:
        found = [
            {"description": one.condition.description, "holds": one.holds, "message": one.message} for one in findings
        ]
        document = {**_as_json(place), "holds": done, "conditions": found, "documents": documents}
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        _show_findings(place, findings, done=done)
    return ExitCode.DONE if done else ExitCode.FAILED


def _show_findings(place: ChosenExercise, findings: Sequence[ConditionResult], *, done: bool) -> None:
    print(f"{place.exercise.id}: {place.exercise.content.title}")
    shown = False
    for finding in findings:
        print(f"  {'ok     ' if finding.holds else 'not yet'}  {finding.condition.description}")
        # The first message is the one to act on; the others follow from it, or come later.
        if finding.message and not shown:
            print(f"           {finding.message}")
            shown = True
    held = sum(finding.holds for finding in findings)
    if done:
        print("\nDone. ./lab learn next continues.")
    else:
        print(f"\n{held} of {len(findings)}. ./lab learn hint shows where to look, ./lab learn solve does it for you.")


def _hint(place: ChosenExercise, *, as_json: bool) -> int:
    hints, step = place.exercise.content.hints, place.step
    hint = hints[min(step.hints, len(hints) - 1)]
    step.hints = min(step.hints + 1, len(hints))
    place.save()
    if as_json:
        print(json.dumps({"id": place.exercise.id, "hint": hint, "number": step.hints, "of": len(hints)}, indent=1))
    else:
        print(f"{' '.join(hint.split())}\n\n{step.hints} of {len(hints)} hints.")
    return ExitCode.DONE


def _solve(place: ChosenExercise, *, as_json: bool) -> int:
    exercise, step = place.exercise, place.step
    _require_lab(exercise)
    if step.before is None:
        step.before, step.started = _look(exercise), time.time()
    step.solved = True
    place.save()
    steps = [
        Task(one.why, one.what.replace("{{ lab_home }}", str(lab_home())))
        for one in solution(exercise.folder / "solve.yaml")
    ]
    if not as_json:
        print(f"{exercise.id}: {exercise.content.title}, solved for you:")
        for number, one in enumerate(steps, start=1):
            print(f"  {number}. {one.why}\n     {one.what}", flush=True)
    began = time.monotonic()
    _run(exercise, "solve.yaml")
    if as_json:
        did = [{"why": one.why, "what": one.what} for one in steps]
        print(json.dumps({"id": exercise.id, "did": did, "seconds": round(time.monotonic() - began)}, indent=1))
    else:
        print(f"\nDone in {span(time.monotonic() - began)}. ./lab learn check judges it.")
    return ExitCode.DONE


def _is_set_up(exercise: LabExercise) -> bool:
    progress = read_progress()
    if progress is not None and progress.scenario != exercise.lab:
        raise WrongUseError(
            f"{progress.scenario} is set up, and {exercise.id} needs {exercise.lab}; run ./lab cleanup first"
        )
    return progress is not None


def _require_lab(exercise: LabExercise) -> None:
    if not _is_set_up(exercise):
        raise NothingSetUpError(
            f"nothing is set up; ./lab learn start {exercise.id} sets {exercise.lab} up, or ./lab setup {exercise.lab}"
        )


def _run(exercise: LabExercise, name: str) -> None:
    playbook = exercise.folder / name
    carry_over()  # A console that may change the lab still may where an exercise begins with a new one.
    try:
        run_playbook(
            str(playbook.relative_to(ROOT)),
            ["-i", "localhost,"],
            quiet=True,
            narrate=True,
            paths={"lab_checkout": ROOT, "lab_home": lab_home()},
            pass_signal=_pass_signal,
        )
    except WrongUseError as error:
        raise LabError(f"{playbook.relative_to(ROOT)}: {error}") from error


def _pass_signal(pid: int, number: int) -> None:
    """Passes a signal on to the commands of ``./lab`` that a playbook runs."""
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "loosehanger.cli" in process.cmdline():
                process.send_signal(number)


def _look(exercise: LabExercise) -> Documents:
    """Fetches the documents of an exercise, except slow ones."""
    return _ask(exercise, [name for name, command in exercise.content.documents.items() if command not in SLOW])


def _ask(exercise: LabExercise, names: Sequence[str]) -> Documents:
    """Fetches the documents of these names, all at once: in this process, unless a command needs one of its own."""
    lab, commands = load_lab(), [exercise.content.documents[name] for name in names]
    with ThreadPoolExecutor(max_workers=max(len(commands), 1)) as threads:
        return dict(zip(names, threads.map(partial(_document, lab), commands), strict=True))


def _document(lab: Lab, command: str) -> Any:
    # A proof is a job of Spark, and clusters that only a pod reaches are asked there.
    return _printed(command) if command in SLOW or lab.pod else document_of(command, lab)


def _printed(command: str) -> Any:
    bound = SLOW_SECONDS if command in SLOW else LOOK_SECONDS
    words = [sys.executable, "-P", "-m", "loosehanger.cli", *command.split(), "--json"]
    try:
        done = subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=bound, stdin=subprocess.DEVNULL
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"./lab {command} did not answer within {bound} s; ./lab doctor names what is wrong") from error
    except ValueError as error:
        said = done.stderr.strip().splitlines()
        reason = said[-1].removeprefix("error: ") if said else "no output"
        raise LabError(f"./lab {command}: {reason}") from error
