"""A problem of a lab, by its cause: what is wrong, where, since when, and what to run next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """What a problem is about: a cause has a lower rank than the problems that follow from it."""

    LAB = 0
    """Nothing of a region or of the lab runs."""
    DISK = 5
    """A disk that is full, which ends the processes that write to it."""
    PROCESS = 10
    LINK = 20
    CLUSTER = 30
    RIGHTS = 40
    CONNECTOR = 50
    TOPIC = 60
    FLOW = 70
    """A mirror that is behind, or delivers nothing."""
    PROGRAM = 80
    OTHER = 90
    """What could not be measured, or what is known in words only."""


@dataclass(frozen=True)
class Problem:
    """One cause."""

    rank: int
    """Its place in the list: see ``Rank``."""
    cause: str
    """What is wrong, in a sentence without a full stop."""
    where: str
    """The region, and the resource, process, link or topic."""
    since: float | None = None
    """When it began, in seconds since the epoch; None where that is not known."""
    next: str = ""
    """The command to run next, or what to do; empty to apply the stage's manifests again."""


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Returns each problem once, causes before what follows from them, and the oldest of a rank first."""
    return sorted(dict.fromkeys(problems), key=lambda one: (one.rank, one.since is None, one.since or 0.0))
