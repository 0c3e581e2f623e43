"""Numbers as the pages show them: one unit for one quantity everywhere."""

from __future__ import annotations

from loosehanger import times


def thousands(number: float | None) -> str:
    """A number with thousands separators; a dash where it is not known."""
    return "–" if number is None else f"{number:,.0f}"


def size(number: float | None) -> str:
    """Bytes in a unit that fits."""
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"


def rate(number: float | None) -> str:
    """A number per second; an ellipsis where it is not known yet."""
    return "…" if number is None else f"{number:,.1f}" if number < 100 else f"{number:,.0f}"


def duration(milliseconds: float | None) -> str:
    """A time in a unit that fits."""
    if milliseconds is None:
        return "–"
    return f"{milliseconds:,.0f} ms" if abs(milliseconds) < 1000 else f"{milliseconds / 1000:,.1f} s"


def span(seconds: float | None) -> str:
    """A span of time, as the kit's other programs show it."""
    return "–" if seconds is None else times.span(seconds)
