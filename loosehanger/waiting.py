"""Waiting for a condition, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable

from loosehanger.errors import LabError


def wait_for(condition: Callable[[], str | None], bound: float, what: str) -> None:
    """Waits until a condition holds.

    Args:
        condition: returns None when it holds, else what is missing.
        bound: seconds to wait at most.
        what: what is waited for, for the message.

    Raises:
        LabError: the bound passed.
    """
    deadline = time.monotonic() + bound
    pause = 0.05
    while (missing := condition()) is not None:
        if time.monotonic() >= deadline:
            raise LabError(f"{what}: not within {bound:.0f} seconds: {missing}")
        time.sleep(pause)  # Between two attempts; the condition decides when to stop.
        pause = min(pause * 1.3, 0.25)
