"""Parsing of command lines: one-line errors, and types for numbers and times.

It needs the standard library only, so that wrong use is reported before anything is installed or loaded.
"""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from loosehanger.errors import WrongUseError
from loosehanger.ports import LOOPBACK
from loosehanger.times import moment

MOST_COLUMNS = 100
"""The widest that a help is, also where it is not shown on a terminal."""


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # A minus followed by a digit, as in -80ms, is a value and not an option.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Raises an error that names the problem and the help."""
        raise WrongUseError(f"{message}; ./{self.prog} --help explains")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps each line of a text by itself: lists and examples keep their lines, and their columns."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width = min(shutil.get_terminal_size((MOST_COLUMNS + 2, 24)).columns - 2, MOST_COLUMNS)
        return "\n".join(indent + _wrapped(line, width) for line in text.splitlines())


def _wrapped(line: str, width: int) -> str:
    """A line that is too long, continued below its last column; a command to copy stays whole."""
    column = re.match(r"\s+\S.*?\s{2,}|\s+(?!\s|\./)|(?=\S)", line)
    if len(line) <= width or column is None:
        return line
    return textwrap.fill(line, width, subsequent_indent=" " * len(column[0]), break_on_hyphens=False)


def number(least: float, most: float, what: str, *, above: bool = False) -> Callable[[str], float]:
    """Returns a type for numbers within bounds.

    Args:
        least: the minimum.
        most: the exclusive maximum.
        what: the noun for the message.
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
    """Returns a type for whole numbers within inclusive bounds."""

    def read(text: str) -> int:
        found = int(text) if re.fullmatch(r"\d{1,18}", text) else -1
        if found < least or (most is not None and found > most):
            bounds = f"from {least} on" if most is None else f"from {least} to {most:,}"
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number {bounds}")
        return found

    return read


def address(text: str) -> tuple[str, int]:
    """Parses a port of this machine's loopback address, or host and port."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"\d{1,5}", port, re.ASCII) or not 1 <= int(port) <= 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not an address such as {LOOPBACK}:9095")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


def since(text: str) -> datetime:
    """Parses an ISO 8601 time, or an age such as ``30m``."""
    try:
        return moment(text, datetime.now().astimezone())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither an ISO 8601 time, as in 2026-11-21T08:00, nor how long ago, as in 30m, 12h or 7d"
        ) from None
