"""What an experiment tells while it runs: where it is, and how long it will take."""

from __future__ import annotations

import sys
import time

from loosehanger.times import span


class SweepProgress:
    """Counts the steps of an experiment, and tells of each on standard error.

    Args:
        name: the experiment's.
        steps: how many there will be.
        step_s: how many seconds one takes, as far as that is known before the first.
        before_s: how many seconds pass before the first.
    """

    def __init__(self, name: str, steps: int, step_s: float, before_s: float) -> None:
        self._steps, self._step_s = steps, step_s
        self._begun = 0
        self._began: float | None = None
        _say(f"{name}: {steps} steps, about {span(before_s + steps * step_s)}; Ctrl-C ends it, and tidies up")

    def step(self, what: str) -> None:
        """Tells what begins now."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        _say(f"{self._begun + 1:>4} of {self._steps}   {what:<52} {span(self.left(now - self._began))} left")
        self._begun += 1

    def left(self, gone: float) -> float:
        """The seconds that are left, as far as the steps so far tell.

        Args:
            gone: seconds since the first step began.
        """
        each = gone / self._begun if self._begun else self._step_s
        return (self._steps - self._begun) * each


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
