"""The progress of an experiment: its step, and the time that is left."""

from __future__ import annotations

import sys
import time

from loosehanger.times import span


class SweepProgress:
    """Counts the steps of an experiment, and reports each on standard error.

    Args:
        name: the experiment's name.
        steps: the number of steps.
        step_s: the estimated seconds of a step.
        before_s: the estimated seconds before the first step.
    """

    def __init__(self, name: str, steps: int, step_s: float, before_s: float) -> None:
        self._steps, self._step_s = steps, step_s
        self._begun = 0
        self._began: float | None = None
        _say(f"{name}: {steps} steps, about {span(before_s + steps * step_s)}; Ctrl-C stops it and cleans up")

    def step(self, what: str) -> None:
        """Reports the step that begins now."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        _say(f"{self._begun + 1:>4} of {self._steps}   {what:<52} {span(self.left(now - self._began))} left")
        self._begun += 1

    def left(self, gone: float) -> float:
        """The seconds that are left, by the duration of the steps so far.

        Args:
            gone: seconds since the first step began.
        """
        each = gone / self._begun if self._begun else self._step_s
        return (self._steps - self._begun) * each


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
