"""Command lines of the kit: one-line errors, and the numbers and times that options take.

Python's own library is enough for it, so that mistakes are found before anything is installed or loaded.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from loosehanger.errors import WrongUseError
from loosehanger.times import moment


class Parser(argparse.ArgumentParser):
    """Says in one line what cannot be used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # A value that begins with a minus and a digit, such as -80ms, is a value and no option.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Ends with what is wrong, and where help is."""
        raise WrongUseError(f"{message}; ./{self.prog} --help explains")


def number(least: float, most: float, what: str, *, above: bool = False) -> Callable[[str], float]:
    """Reads a number within bounds.

    Args:
        least: the smallest one.
        most: every number is below it.
        what: what the number is, for the message.
        above: whether ``least`` itself is too small.
    """

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not (least <= found < most) or (above and found == least):
            bounds = f"{'above' if above else 'from'} {least:g}{'' if above else ' on'}"
            limit = f" and below {most:,.0f}" if most < float("inf") else ""
            raise argparse.ArgumentTypeError(f"'{text}' is not {what} {bounds}{limit}")
        return found

    return read


def count(least: int, most: int | None = None) -> Callable[[str], int]:
    """Reads a whole number within bounds, both of which may be reached."""

    def read(text: str) -> int:
        found = int(text) if re.fullmatch(r"\d{1,18}", text) else -1
        if found < least or (most is not None and found > most):
            bounds = f"from {least} on" if most is None else f"from {least} to {most:,}"
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number {bounds}")
        return found

    return read


def since(text: str) -> datetime:
    """Reads an ISO 8601 time, or how long ago something was."""
    try:
        return moment(text, datetime.now().astimezone())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither an ISO 8601 time, as in 2026-11-21T08:00, nor how long ago, as in 30m, 12h or 7d"
        ) from None
