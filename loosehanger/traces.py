"""What Java's stack traces say, in one line."""

from __future__ import annotations

_CAUSE = "Caused by: "


def innermost_cause(trace: str | None) -> str:
    """The reason at the bottom of a stack trace: what is above it only tells what became impossible through it.

    Args:
        trace: as Connect has it of a connector or task; None or empty for none.

    Returns:
        One line; empty for no trace.
    """
    lines = [line.strip() for line in (trace or "").splitlines() if line.strip()]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    return (causes[-1:] or lines[:1] or [""])[0]
