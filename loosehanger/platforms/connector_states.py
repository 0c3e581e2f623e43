"""The states of a mirror's connectors: those that its manifest and its stage want, and those that they are in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from loosehanger.clients.connect import parts

Wanted = Mapping[str, str]
"""The state that each connector shall be in: RUNNING, PAUSED or STOPPED."""


def connector_problems(wanted: Wanted, present: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What is not in the state that it shall be in.

    Args:
        wanted: the state of each connector.
        present: what Connect says of each, with ``connector`` and ``tasks``.

    Yields:
        The state that is wrong, empty for a connector that is not there, and a sentence about it.
    """
    for name, state in wanted.items():
        if name not in present:
            yield "", f"{name} is not there"
            continue
        for part in parts(name, present[name]):
            if part.state != state:
                instead = "" if state == "RUNNING" else f" and should be {state}"
                because = f": {part.cause}" if part.cause else ""
                yield part.state, f"{part.label} is {part.state}{instead}{because}"


def held(wanted: Wanted) -> tuple[str, str] | None:
    """How a mirror is shown that is as it should be, and of which no connector should run; None for any other.

    Returns:
        In a word, and in a sentence.
    """
    if not wanted or "RUNNING" in wanted.values():
        return None
    state = "Paused" if set(wanted.values()) == {"PAUSED"} else "Stopped"
    return state, f"as it should be: {', '.join(f'{name} is {state}' for name, state in wanted.items())}"
