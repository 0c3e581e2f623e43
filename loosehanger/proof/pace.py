"""An estimate of the remaining time, from the pace so far."""

from __future__ import annotations

import time

from loosehanger.times import span


class Pace:
    """The pace at which the rest shrinks."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def remaining(self, left: float, now: float | None = None) -> str:
        """The end of a line, as in ``, about 12 s left``; empty until the rest has shrunk.

        Args:
            left: how much is left.
            now: when that was seen; None for now.
        """
        now = time.monotonic() if now is None else now
        if self._first is None or left > self._first[1]:
            self._first = now, left
        began, first = self._first
        if left >= first or now <= began:
            return ""
        return f", about {span(max(1.0, left * (now - began) / (first - left)))} left"
