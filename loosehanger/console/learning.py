"""The exercises of the lab that is set up, in the control room: what ``./lab learn`` does, with its output as it comes.

``./lab learn`` itself judges, helps and keeps the learner's progress, as a child process. Beside it, the commands of
the lab's text run in one shell.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from loosehanger.console.change_log import ChangeLog
from loosehanger.console.jobs import Jobs, read_line, run_kit
from loosehanger.console.kit_shell import KitShell
from loosehanger.console.operations import Operations
from loosehanger.console.region_views import UnknownError
from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.learn.exercise import FOLDER, LabExercise, lab_names, read_exercises
from loosehanger.learn.lab_text import BlockCommand, Section, read_sections, shell_functions
from loosehanger.learn.playbooks import needs_terminal
from loosehanger.learn.progress import Learner, read_learner

LearnAction = Literal["start", "check", "hint", "solve", "reset"]
ACTIONS: tuple[LearnAction, ...] = get_args(LearnAction)
CHANGING = ("start", "solve", "reset", "run")
"""Those that change the lab, and not only the learner's progress."""
PLAYBOOK = {"start": "setup.yaml", "reset": "setup.yaml", "solve": "solve.yaml"}
MOST_LINES = 300
MOST_TEXT = 1000
"""Characters of a line of output."""
_WATCH = {
    "status": ("/", "the map"),
    "topic show": ("/topics", "the topics"),
    "link": ("/", "the map"),
    "prove": ("/proof", "the proof"),
    "fault status": ("/charts", "the last hour"),
}
"""Where one can watch what a document is about: the page's path and name."""


@dataclass
class LearnOutcome:
    """What an action on an exercise came to, as its page shows it."""

    action: str
    subject: str
    """The command that was run, or the exercise."""
    began: float
    """Seconds since the epoch."""
    seconds: float | None = None
    """How long it took; None while it runs."""
    failure: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The JSON document of ``./lab learn``."""
    exit_code: int | None = None
    """Of a command of the text."""
    output: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_LINES))

    def said(self, text: str) -> None:
        """Takes a line of output."""
        self.output.append(text[:MOST_TEXT])

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Takes a stream's lines, to its end."""
        while chunk := await read_line(stream):
            if text := chunk.decode(errors="replace").rstrip():
                self.said(text)


@lru_cache(maxsize=1)
def _exercises(lab: str, _stamps: tuple[int, ...]) -> list[LabExercise]:
    """Reads a lab's exercises again only where one of their files has changed."""
    return read_exercises(lab)


@lru_cache(maxsize=64)
def _needs_terminal(path: Path, _stamp: int) -> bool:
    return needs_terminal(path)


class Learning:
    """The exercises of one lab, and what was last done with each.

    Args:
        scenario: the lab; empty for none.
        jobs: runs one thing at a time.
        operations: counts changes.
        changes: where each change is listed with its outcome.
    """

    def __init__(self, scenario: str, jobs: Jobs, operations: Operations, changes: ChangeLog) -> None:
        self._lab, self._jobs, self._operations, self._changes = scenario, jobs, operations, changes
        self._shell = KitShell(jobs.home, functions=lambda: shell_functions(self.sections())) if jobs.home else None
        self._outcomes: dict[int, LearnOutcome] = {}

    @property
    def why_not(self) -> str:
        """Why nothing can be done from here; empty if it can."""
        if self._jobs.home is None:
            return "The lab's home is on another machine: run ./lab learn there"
        return ""

    def exercises(self) -> list[LabExercise]:
        """The lab's exercises; none if it has none."""
        files = sorted((PLAYBOOKS / self._lab / FOLDER).rglob("*.yaml")) if self._lab in lab_names() else []
        return _exercises(self._lab, tuple(path.stat().st_mtime_ns for path in files)) if files else []

    def exercise(self, number: int) -> LabExercise:
        """An exercise.

        Raises:
            UnknownError: there is none.
        """
        for one in self.exercises():
            if one.number == number:
                return one
        raise UnknownError(f"{self._lab or 'this console'} has no exercise {number}")

    def learner(self) -> Learner:
        """How far the learner has come.

        Raises:
            WrongUseError: the file cannot be read.
        """
        return read_learner(self._jobs.home) if self._jobs.home else Learner()

    def outcome(self, number: int) -> LearnOutcome | None:
        """What the last action on an exercise, or on its section's commands, came to."""
        return self._outcomes.get(number)

    def sections(self) -> list[Section]:
        """The lab's text."""
        return read_sections(self._lab)

    def needs_terminal(self, number: int, action: str) -> bool:
        """Whether this console may not survive an action."""
        # Where the lab may be at the beginning already, a start only records that, or fails.
        only_records = action == "start" and bool(self.exercise(number).content.begins_when)
        return not only_records and self._ends_consoles(number, action)

    def _ends_consoles(self, number: int, action: str) -> bool:
        """Whether an action's playbook may end or restart this console."""
        if (name := PLAYBOOK.get(action)) is None:
            return False
        path = self.exercise(number).folder / name
        return _needs_terminal(path, path.stat().st_mtime_ns)

    def watch(self, exercise: LabExercise) -> dict[str, str]:
        """The pages of this console where the exercise can be watched, by their paths."""
        if exercise.content.watch:
            return exercise.content.watch
        return dict(_WATCH[one] for one in exercise.content.documents.values() if one in _WATCH)

    def act(self, user: str, number: int, action: LearnAction) -> None:
        """Starts an action on an exercise.

        Raises:
            LabError: it cannot start.
        """
        exercise = self.exercise(number)
        if self.needs_terminal(number, action):
            raise WrongUseError(
                f"this console may not survive it; run it in a terminal: ./lab learn {action} {exercise.id}"
            )
        outcome = LearnOutcome(action, exercise.id, time.time())
        options = ("--no-setup",) if action == "start" and self._ends_consoles(number, action) else ()
        self._begin(number, outcome, self._learn(outcome, options), user)

    def run(self, user: str, number: int, digest: str) -> None:
        """Starts a command of a section's text.

        Raises:
            LabError: it cannot start, or the text has no such command.
        """
        command = self._command(number, digest)
        if command.for_terminals:
            raise WrongUseError(f"this console may not survive this command; run it in a terminal: {command.text}")
        outcome = LearnOutcome("run", command.text, time.time())
        self._begin(number, outcome, self._run(outcome), user)

    @property
    def running(self) -> bool:
        """Whether something of the lab runs."""
        return bool((running := self._jobs.running) and running[0] == "lab")

    @property
    def busy(self) -> bool:
        """Whether anything runs, also a proof from its page."""
        return self._jobs.running is not None

    async def stop(self) -> None:
        """Stops what is running of the lab."""
        if self.running:
            await self._jobs.close()

    async def close(self) -> None:
        """Stops the shell."""
        if self._shell:
            await self._shell.close()

    def _command(self, number: int, digest: str) -> BlockCommand:
        for section in self.sections():
            for command in section.commands if section.number == number else ():
                if command.digest == digest:
                    return command
        raise UnknownError("the text has no such command any more; load the page again")

    def _begin(self, number: int, outcome: LearnOutcome, work: Coroutine[Any, Any, str], user: str) -> None:
        try:
            self._jobs.require_free()
            self._operations.count_change()
        except LabError:
            work.close()
            raise
        self._outcomes[number] = outcome
        self._jobs.occupy("lab", self._logged(outcome, work, user))

    async def _logged(self, outcome: LearnOutcome, work: Coroutine[Any, Any, str], user: str) -> None:
        """Does it, and adds it to the change log if it changes the lab."""
        try:
            if outcome.action in CHANGING:
                await self._changes.record(user, "", f"{outcome.action}: the lab's text", outcome.subject, work)
            else:
                await work
        except LabError as error:
            outcome.failure = str(error)
        except (OSError, TimeoutError) as error:
            outcome.failure = f"it was stopped: {type(error).__name__} {error}".rstrip()
        except asyncio.CancelledError:
            outcome.failure = "it was stopped"
            raise
        finally:
            outcome.seconds = time.time() - outcome.began

    async def _learn(self, outcome: LearnOutcome, options: tuple[str, ...]) -> str:
        assert self._jobs.home
        words = ("learn", outcome.action, outcome.subject, *options, "--json")
        code, output = await self._kit(words, outcome)
        try:
            document = json.loads(output)
        except ValueError:
            document = None
        if code not in (ExitCode.DONE, ExitCode.FAILED) or not isinstance(document, dict):
            last = outcome.output[-1] if outcome.output else "it reported nothing"
            raise LabError(last.removeprefix("error: "))
        document.pop("documents", None)
        outcome.document = document
        return "done"

    async def _kit(self, words: tuple[str, ...], outcome: LearnOutcome) -> tuple[int, bytes]:
        assert self._jobs.home
        return await run_kit(self._jobs.home, words, outcome.follow)

    async def _run(self, outcome: LearnOutcome) -> str:
        assert self._shell
        outcome.exit_code = await self._shell.run(outcome.subject, outcome.said)
        if outcome.exit_code is None:
            raise LabError("the shell ended with it")
        return f"exit code {outcome.exit_code}"


def progress_of(learning: Learning, number: int) -> dict[str, Any]:
    """What the page of an exercise shows beside its text.

    Args:
        learning: the lab's exercises.
        number: the exercise; 0 for a section without one.
    """
    exercises = learning.exercises()
    chosen = next((one for one in exercises if one.number == number), None)
    problem = ""
    try:
        learner = learning.learner()
    except WrongUseError as error:
        learner, problem = Learner(), str(error)
    steps = {one.number: learner.step(one.id) for one in exercises}
    step = steps.get(number)
    outcome = learning.outcome(number)
    return {
        "exercises": [(one.number, one.content.title, steps[one.number].state) for one in exercises],
        "done": sum(one.done > 0 for one in steps.values()),
        "exercise": chosen,
        "step": step,
        "hints": chosen.content.hints[: step.hints] if chosen and step else (),
        "watch": learning.watch(chosen) if chosen else {},
        "in_terminal": [action for action in ACTIONS if chosen and learning.needs_terminal(number, action)],
        "outcome": outcome,
        "seconds": round(time.time() - outcome.began) if outcome and outcome.seconds is None else 0,
        "running": learning.running,
        "busy": learning.busy,
        "problem": problem or learning.why_not,
    }
