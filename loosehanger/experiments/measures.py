"""The arithmetic of experiments: the spread of repeated runs, and a link's counters."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """The spread of repeated runs."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of these values, of which there is at least one."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])

    def text(self, shown: Callable[[float], str]) -> str:
        """The spread as ``median (least to most)``, or the median alone where all look the same."""
        middle, least, most = shown(self.median), shown(self.least), shown(self.most)
        return middle if least == middle == most else f"{middle} ({least} to {most})"


def carried(link: Mapping[str, Any], client: str) -> int:
    """The bytes that a link has carried for a client, in both directions.

    Args:
        link: the state of its relay.
        client: the client's name.
    """
    return sum(
        int(entry["bytes"]) for way in link["directions"] for entry in way["clients"] if entry["client"] == client
    )


def times(ratio: float) -> str:
    """A ratio in words."""
    return f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def milliseconds(value: float) -> str:
    """A time as text, in milliseconds or, if longer, in seconds."""
    return f"{value / 1000:.1f} s" if value >= 1000 else f"{value:.0f} ms"
