"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 3
"""Most suggestions of names that contain the typed one."""
_LIKENESS = 0.7
"""The least ratio of equal characters of similar names: ``statsu`` and ``status`` have 0.83."""
_SLIP = 0.9
"""The least ratio where only a slip explains a name: ``fetch.min.byte`` and ``fetch.min.bytes`` have 0.97."""


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Returns a question to append to a message, such as ``; did you mean 'status'?``; empty if no name is similar.

    Args:
        word: the typed word.
        names: the names that exist.
    """
    lowered = {name.lower(): name for name in names}
    typed = word.lower()
    close = get_close_matches(typed, lowered, 1, _LIKENESS)
    # A part of a name is a hint too, such as a scenario's without its number.
    close = close or [name for name in lowered if len(typed) > 2 and typed in name][:_MOST]
    found = [f"'{lowered[name]}'" for name in close]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def is_slip(word: str, names: Iterable[str]) -> bool:
    """Whether a word is almost one of the names, so that nothing else can have been meant."""
    return bool(get_close_matches(word, names, 1, _SLIP))


def instead(word: str, names: Iterable[str], what: str) -> str:
    """Returns a suggestion to append to a message, or the names that exist, such as ``; the topics are: A, B``.

    Args:
        word: the typed word.
        names: the names that exist.
        what: introduces the names, such as ``the topics are``.
    """
    known = list(names)
    return did_you_mean(word, known) or f"; {what}: {', '.join(known) or 'none'}"
