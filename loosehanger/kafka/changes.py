"""The parts of changes of topics and groups, without kafka-python, which programs load late."""

from __future__ import annotations

from typing import Literal, NamedTuple

from loosehanger.errors import WrongUseError


class NotAllowedError(WrongUseError):
    """Kafka refuses this user the change."""


class MovedError(WrongUseError):
    """The group has committed other offsets since the plan was made."""


class Target(NamedTuple):
    """Where a group should continue."""

    kind: Literal["earliest", "latest", "time", "offset"]
    value: int = 0
    """Milliseconds since the epoch, or the offset."""


class Move(NamedTuple):
    """A group's offset in a partition, and the one that takes its place."""

    topic: str
    partition: int
    committed: int | None
    """None where the group has committed nothing."""
    to: int


class PlannedMove(NamedTuple):
    """A move, with the partition's ends."""

    move: Move
    first: int
    end: int
    """The last stable offset: consumers of committed records read up to it."""

    @property
    def again(self) -> range:
        """The offsets that the group reads once more."""
        committed = self.move.committed
        return range(0) if committed is None else range(max(self.move.to, self.first), min(committed, self.end))

    @property
    def skipped(self) -> range:
        """The offsets that the group will not read."""
        committed = self.move.committed
        return range(0) if committed is None else range(max(committed, self.first), self.move.to)


class Counted(NamedTuple):
    """Records that a move makes a group read again, and skip."""

    again: int
    skipped: int
