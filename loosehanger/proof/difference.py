"""The kinds of difference between records: their names in documents, tables and sentences."""

from __future__ import annotations

from enum import Enum
from typing import Self

_LONGEST_KEY = 64


class Difference(Enum):
    """A kind of difference, in the order of a table's columns. Its value is its key in documents."""

    _value_: str
    label: str
    meaning: str
    column: str
    """The head of its column in a narrow table."""
    phrase: str
    """After a number of records."""
    single: str
    """After the number 1, and for an example."""
    is_fault: bool
    """Whether it disproves an exact copy."""
    is_rare: bool
    """Whether it has a column only where it occurs."""

    def __new__(
        cls,
        key: str,
        meaning: str,
        label: str = "",
        column: str = "",
        phrase: str = "",
        single: str = "",
        is_fault: bool = True,
        is_rare: bool = False,
    ) -> Self:
        """Fills in what follows from the key."""
        kind = object.__new__(cls)
        kind._value_ = key
        kind.meaning = meaning
        kind.label = label or key
        kind.column = column or kind.label
        kind.phrase = phrase or key
        kind.single = single or phrase or key
        kind.is_fault = is_fault
        kind.is_rare = is_rare
        return kind

    MISSING = ("missing", "at the source, not at the target")
    DUPLICATES = ("duplicates", "more copies at the target than the source has", "", "dupl.", "", "duplicate")
    ALTERED = ("altered", "at both, but key, value, timestamp or headers are not the same")
    UNEXPECTED = ("unexpected", "at the target, and never at the source", "", "unexp.")
    REORDERED = ("reordered", "at the target before a record that it comes after at the source", "", "reord.")
    MOVED = (
        "moved", "unchanged, but in another partition of the target", "", "", "moved to another partition", "",
        True, True,
    )  # fmt: skip
    NEVER_MIRRORED = (
        "never_mirrored", "gone from the source before the mirror had copied it, by sequence numbers or offsets",
        "never mirrored", "", "deleted at the source before they were mirrored", "", True, True,
    )  # fmt: skip
    AFTER_CUT = ("after_cut", "at the target, newer than the cut: not judged", "after the cut", "", "", "", False)
    EXPIRED = ("expired", "removed by retention on one side", "", "", "", "", False)
    SOURCE_GAPS = (
        "source_gaps", "sequence numbers that no source record has: the producer's matter, or retention's",
        "gaps at the source", "", "", "", False,
    )  # fmt: skip


FAULTS = tuple(kind for kind in Difference if kind.is_fault)
NO_FAULTS = tuple(kind for kind in Difference if not kind.is_fault)


def keys(*kinds: Difference) -> tuple[str, ...]:
    """The keys of these kinds in documents."""
    return tuple(kind.value for kind in kinds)


def printable(text: str) -> str:
    """The text with U+FFFD in place of each character that XML does not allow or a reader cannot see."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def readable_key(key: bytes | bytearray | None) -> str | None:
    """A record's key for people: as text where it is text, else in hexadecimal digits; cut where it is long."""
    if key is None:
        return None
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    shown = text if text.isprintable() and (text or not key) else f"0x{key.hex()}"
    return shown if len(shown) <= _LONGEST_KEY else f"{shown[:_LONGEST_KEY]}…"
