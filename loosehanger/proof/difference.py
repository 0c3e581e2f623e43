"""The kinds of difference between records in plain words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of difference."""

    name: str
    """As in the document."""
    label: str
    meaning: str
    always: bool = True
    """Whether it has a column of its own even where there is none of it."""


FAULTS = (
    Kind("missing", "missing", "at the source, not at the target"),
    Kind("duplicates", "duplicates", "more copies at the target than the source has"),
    Kind("altered", "altered", "at both, but key, value, timestamp or headers are not the same"),
    Kind("unexpected", "unexpected", "at the target, and never at the source"),
    Kind("reordered", "reordered", "at the target before a record that it comes after at the source"),
    Kind("moved", "moved", "unchanged, but in another partition of the target", always=False),
    Kind(
        "never_mirrored",
        "never mirrored",
        "gone from the source before the mirror had copied it, by sequence numbers or offsets",
        always=False,
    ),
)
"""Every kind that disproves, in the order of a table's columns."""
NO_FAULTS = (
    Kind("after_cut", "after the cut", "at the target, newer than the cut: not judged"),
    Kind("expired", "expired", "removed by retention on one side"),
    Kind(
        "source_gaps",
        "gaps at the source",
        "sequence numbers that no source record has: the producer's matter, or retention's",
    ),
)


def printable(text: str) -> str:
    """The text without what XML cannot hold and a reader cannot see: each such character becomes one that says so."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
