"""A record's time as text. Elsewhere it is a number, since Kafka's timestamps exceed the range of Python's dates."""

from __future__ import annotations

from datetime import UTC, datetime

# The calendar repeats itself every 400 years.
_CYCLE_YEARS, _CYCLE_MS = 400, 146_097 * 86_400_000
_LAST_YEAR = 9999


def iso(time_ms: int) -> str:
    """A time in ISO 8601, UTC, to the millisecond.

    Args:
        time_ms: milliseconds since 1970.

    Returns:
        For example ``2026-01-31T12:00:00.000+00:00``; years after 9999 in the expanded form, as Java prints them:
        ``+12026-01-31T12:00:00.000+00:00``. Years before 1 likewise, with a minus.
    """
    cycles, rest_ms = divmod(time_ms, _CYCLE_MS)
    seconds, milliseconds = divmod(rest_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=milliseconds * 1000)
    year = moment.year + cycles * _CYCLE_YEARS
    shown = f"{year:04}" if 0 < year <= _LAST_YEAR else f"{year:+05}"
    return shown + moment.isoformat(timespec="milliseconds")[4:]


def plain(text: str, *, milliseconds: bool = False) -> str:
    """A time for people, in UTC, without its zone: ``2026-01-31 12:00:00``.

    Args:
        text: ISO 8601, also as from ``iso``.
        milliseconds: whether to show them.

    Raises:
        ValueError: the text is not a time.
    """
    if text[:1] in ("+", "-"):
        date, _, time = text.partition("T")
        return f"{date} {time[: 12 if milliseconds else 8]}"
    shown = datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
    return shown.isoformat(" ", timespec="milliseconds" if milliseconds else "seconds")
