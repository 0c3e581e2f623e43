"""Makes a schedule that found something smaller, with few replays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scripts.search.schedules import Schedule

REPLAYS = 10
"""How many replays one finding may take."""


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yields schedules with one fault fewer, then the same schedule without pauses."""
    if len(schedule.faults) > 1:
        for place in range(len(schedule.faults)):
            left = (*schedule.faults[:place], *schedule.faults[place + 1 :])
            yield schedule.model_copy(update={"faults": left})
    if any(placed.pause for placed in schedule.faults):
        at_once = tuple(placed.model_copy(update={"pause": 0.0}) for placed in schedule.faults)
        yield schedule.model_copy(update={"faults": at_once})


def shrink(schedule: Schedule, finds: Callable[[Schedule], bool], most: int = REPLAYS) -> tuple[Schedule, int]:
    """Returns the smallest schedule that still finds the same, and how many replays that took.

    Args:
        schedule: one that has found something.
        finds: replays a schedule; whether it finds the same.
        most: replays at most.
    """
    replays, best = 0, schedule
    tried = {schedule}
    while True:
        for candidate in smaller(best):
            if candidate in tried:
                continue
            if replays == most:
                return best, replays
            tried.add(candidate)
            replays += 1
            if finds(candidate):
                best = candidate
                break
        else:
            return best, replays
