"""Settings of one direction of a link between two regions: delay, jitter, rate, cut and firewall, and their text forms.

Uses the standard library only: one relay process runs for every pair of regions, and must stay small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from loosehanger.errors import WrongUseError

MAX_DELAY = 10.0
MIN_RATE, MAX_RATE = 10e3, 10e9
MAX_HELD = 256 * 2**20
"""Most bytes that may be in flight in one direction."""
UNLIMITED = "unlimited"
_TIMES = {"ms": 1e-3, "s": 1.0}
_RATES = {"kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "kbit/s": 125.0, "Mbit/s": 125e3, "Gbit/s": 125e6}
_WRITTEN = re.compile(r"(-?\d+(?:\.\d+)?)\s*([^\d\s]*)")


@dataclass(frozen=True)
class OneWay:
    """One direction of a link."""

    delay: float = 0.0
    """Seconds added to every byte's way."""
    jitter: float = 0.0
    """Seconds by which the delay varies, up and down."""
    rate: float = 0.0
    """Bytes per second for all connections together; 0 for unlimited."""
    silent: bool = False
    """Whether the link is cut: it accepts bytes and forwards none."""
    refuses: bool = False
    """Whether a firewall where this direction leads to refuses the connections that clients open this way."""

    def with_(self, **changes: float | bool | None) -> OneWay:
        """Returns a copy with changes; None leaves a value as it is.

        Raises:
            WrongUseError: the values contradict each other.
        """
        changed = replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]
        if changed.jitter > changed.delay:
            raise WrongUseError(
                f"the jitter of {time_text(changed.jitter)} is more than the delay of {time_text(changed.delay)}; "
                "bytes cannot arrive before they were sent"
            )
        if changed.in_flight > MAX_HELD:
            raise WrongUseError(
                f"{rate_text(changed.rate)} for {time_text(changed.delay + changed.jitter)} is "
                f"{changed.in_flight / 2**20:,.0f} MiB on the way; a link holds {MAX_HELD // 2**20} MiB at most: "
                "lower the rate or the delay"
            )
        return changed

    def changed(self, values: Mapping[str, float], action: str | None) -> OneWay:
        """Returns a copy with new values, and silent or not as an action on the link leaves it.

        Raises:
            WrongUseError: the values contradict each other.
        """
        return self.with_(**values, silent={"silent": True, "heal": False, "forget": False}.get(action or ""))

    @property
    def is_plain(self) -> bool:
        """Whether bytes pass as they come."""
        return not (self.delay or self.jitter or self.rate or self.silent)

    @property
    def in_flight(self) -> float:
        """Bytes in flight at the full rate."""
        return self.rate * (self.delay + self.jitter)

    def as_json(self) -> dict[str, Any]:
        """Returns the settings for files and other programs, in seconds and bytes per second."""
        return asdict(self)


def parse_time(text: str) -> float:
    """Parses a text such as ``80ms`` or ``0.5s`` into seconds.

    Raises:
        WrongUseError: the text is not such a time, or out of bounds.
    """
    seconds = _parse(text, _TIMES, "a time", "80ms or 0.5s")
    if seconds > MAX_DELAY:
        raise WrongUseError(f"'{text}' is more than {time_text(MAX_DELAY)}, the most that a link can delay")
    return seconds


def parse_rate(text: str) -> float:
    """Parses a text such as ``20MB/s`` or ``100Mbit/s`` into bytes per second; ``unlimited`` is 0.

    Raises:
        WrongUseError: the text is not such a rate, or out of bounds.
    """
    if text.strip() == UNLIMITED:
        return 0.0
    rate = _parse(text, _RATES, "a rate", f"20MB/s, 100Mbit/s or {UNLIMITED}")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise WrongUseError(
            f"'{text}' is not between {rate_text(MIN_RATE)} and {rate_text(MAX_RATE)}; to stop everything, cut the link"
        )
    return rate


def _parse(text: str, units: dict[str, float], what: str, such_as: str) -> float:
    found = _WRITTEN.fullmatch(text.strip())
    if found and not found[2]:
        raise WrongUseError(f"'{text}' has no unit; write {what} as in {such_as}")
    if not found or found[2] not in units:
        raise WrongUseError(f"'{text}' is not {what}; write it as in {such_as} (units: {', '.join(units)})")
    if found[1].startswith("-"):
        raise WrongUseError(f"'{text}' is negative; write {what} as in {such_as}")
    return float(found[1]) * units[found[2]]


def time_text(seconds: float) -> str:
    """Formats seconds for people."""
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"


def rate_text(rate: float) -> str:
    """Formats bytes per second for people."""
    if not rate:
        return UNLIMITED
    unit = "GB/s" if rate >= 1e9 else "MB/s" if rate >= 1e6 else "kB/s"
    return f"{rate / _RATES[unit]:g} {unit}"


def size_text(size: float) -> str:
    """Formats a number of bytes for people."""
    unit, factor = (
        ("GB", 1e9) if size >= 1e9 else ("MB", 1e6) if size >= 1e6 else ("kB", 1e3) if size >= 1e3 else ("B", 1)
    )
    return f"{size / factor:.{0 if factor == 1 else 1}f} {unit}"
