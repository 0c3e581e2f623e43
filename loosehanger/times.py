"""Parses points in time, and formats spans of time, for users."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

MINUTE_MS = 60_000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def moment(text: str, now: datetime) -> datetime:
    """Parses an ISO 8601 time (local without a zone), or an age: ``30s``, ``10m``, ``12h``, ``7d``.

    A minus before an age is ignored.

    Args:
        text: the user's text.
        now: the current time, with its zone.

    Returns:
        The time, with its zone.

    Raises:
        ValueError: the text is neither, or before the year 1.
    """
    try:
        if match := re.fullmatch(r"-?(\d{1,9})([smhd])", text):
            return now - timedelta(seconds=int(match[1]) * _UNITS[match[2]])
        return datetime.fromisoformat(text).astimezone()
    except OverflowError as error:
        raise ValueError(str(error)) from error


def span(seconds: float | None) -> str:
    """Formats a span of time for people, such as ``3 min``."""
    if seconds is None:
        return "-"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def minute_of(time_ms: int) -> int:
    """The beginning of the minute that a time lies in; both in epoch milliseconds."""
    return time_ms // MINUTE_MS * MINUTE_MS
