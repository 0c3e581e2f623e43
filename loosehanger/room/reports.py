"""The learners of a room: the last report of each, in memory, and who seems to be stuck."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from loosehanger.errors import WrongUseError
from loosehanger.learn.reporting import MOST_NAME, MOST_SAID

MOST_LEARNERS = 200
SHORTEST_S = 0.5
"""Seconds between two reports of a learner."""
STUCK_CHECKS, STUCK_MINUTES = 3, 10
"""Checks of an exercise, or minutes with it, after which a learner who is not done seems to be stuck."""

ExerciseId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,60}/\d{1,2}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReportedExercise(_Strict):
    """An exercise that a learner has begun."""

    id: ExerciseId
    state: Literal["open", "begun", "done", "solved"]
    checks: Annotated[int, Field(ge=0, le=9999)]
    hints: Annotated[int, Field(ge=0, le=99)]
    minutes: Annotated[int, Field(ge=0, le=10**7)] | None
    said: Annotated[str, StringConstraints(max_length=MOST_SAID)] = ""


class LearnerReport(_Strict):
    """The report that a learner's machine sends."""

    learner: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    name: Annotated[str, StringConstraints(max_length=MOST_NAME)] = ""
    current: ExerciseId | Literal[""] = ""
    exercises: Annotated[list[ReportedExercise], Field(max_length=200)]


class FullError(WrongUseError):
    """The room takes no more learners."""


class TooSoonError(WrongUseError):
    """A learner reports too often."""


@dataclass(frozen=True)
class Seat:
    """A learner of the room."""

    number: int
    """Their place in the order of joining, shown for a learner without a name."""
    report: LearnerReport
    at: float

    @property
    def name(self) -> str:
        """The name that they gave, or their number."""
        return self.report.name or f"learner {self.number}"

    @property
    def current(self) -> ReportedExercise | None:
        """Their current exercise."""
        return next((one for one in self.report.exercises if one.id == self.report.current), None)

    @property
    def done(self) -> int:
        """How many exercises they have done, or had solved."""
        return sum(one.state in ("done", "solved") for one in self.report.exercises)

    def stuck(self, now: float) -> bool:
        """Whether they seem to need help."""
        one = self.current
        if one is None or one.state in ("done", "solved"):
            return False
        minutes = (one.minutes or 0) + (now - self.at) / 60
        return one.checks >= STUCK_CHECKS or minutes >= STUCK_MINUTES


class Room:
    """The learners of a room.

    Args:
        clock: returns seconds, and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seats: dict[str, Seat] = {}

    def take(self, report: LearnerReport) -> None:
        """Takes a learner's report in place of their last one.

        Raises:
            TooSoonError: they have just sent one.
            FullError: there are too many learners; those who have joined stay.
        """
        now, before = self._clock(), self._seats.get(report.learner)
        if before is None and len(self._seats) >= MOST_LEARNERS:
            raise FullError(f"the room has {MOST_LEARNERS} learners, and takes no more")
        if before is not None and now - before.at < SHORTEST_S:
            raise TooSoonError("one report in half a second is enough")
        number = before.number if before else len(self._seats) + 1
        self._seats[report.learner] = Seat(number, report, now)

    def seats(self) -> list[tuple[Seat, bool, int]]:
        """Returns each learner, whether they seem stuck, and minutes since their last report; stuck ones first."""
        now = self._clock()
        found = [(seat, seat.stuck(now), round((now - seat.at) / 60)) for seat in self._seats.values()]
        return sorted(found, key=lambda one: (not one[1], one[0].done, one[0].number))

    def exercises(self) -> list[tuple[str, int]]:
        """Returns every exercise that a learner has begun, and how many learners have done it."""
        counts: dict[str, int] = {}
        for seat in self._seats.values():
            for one in seat.report.exercises:
                counts[one.id] = counts.get(one.id, 0) + (one.state in ("done", "solved"))
        return sorted(counts.items(), key=lambda one: (one[0].partition("/")[0], int(one[0].partition("/")[2])))
