"""A learner's progress: one file in the lab's home, readable by its owner only. Clean-up keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.files import write_file
from loosehanger.lab.progress import unreadable

FILE = "learn.json"
VERSION = 1


@dataclass
class Attempt:
    """A learner's progress with one exercise. Times are in seconds since the epoch."""

    started: float = 0.0
    """When it was started; 0 if it was not."""
    done: float = 0.0
    """When a check first found it done; 0 before."""
    checks: int = 0
    hints: int = 0
    """How many hints were shown."""
    solved: bool = False
    """Whether ``solve`` did it."""
    met: list[str] = field(default_factory=list)
    """The descriptions of the ``once`` conditions that a check has found met."""
    said: str = ""
    """The message of the last check; empty if it found the exercise done."""
    before: dict[str, Any] | None = None
    """The documents at its start."""

    @property
    def state(self) -> str:
        """``done``, ``solved`` (done by ``solve``), ``begun`` or ``open``."""
        if self.done:
            return "solved" if self.solved else "done"
        return "begun" if self.started else "open"


@dataclass
class Learner:
    """The content of the file."""

    current: str = ""
    """The current exercise, as ``LAB/2``; empty before the first."""
    steps: dict[str, Attempt] = field(default_factory=dict)
    """By exercise."""

    def step(self, exercise: str) -> Attempt:
        """Returns the attempt at an exercise, and creates it if it does not exist."""
        return self.steps.setdefault(exercise, Attempt())

    def write(self, home: Path) -> None:
        """Writes the file."""
        content = {"version": VERSION, **asdict(self)}
        write_file(home / FILE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_learner(home: Path) -> Learner:
    """Reads the file; a learner who has not begun has none.

    Raises:
        WrongUseError: it cannot be read.
    """
    path = home / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise WrongUseError(f"{path}: another version of the kit has written it; delete it to begin again")
        return Learner(found["current"], {name: _step(one) for name, one in found["steps"].items()})
    except FileNotFoundError:
        return Learner()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = str(unreadable(path, error)).partition("; ")[0]
        raise WrongUseError(f"{reason}; delete the file to begin again") from error


def _step(found: Mapping[str, Any]) -> Attempt:
    return Attempt(**found)
