"""Text within the width of the terminal; where there is none, each line is whole."""

from __future__ import annotations

import shutil
import textwrap

UNBROKEN = 200
"""The width of what is not shown on a terminal."""


def terminal_columns() -> int:
    """The width of the terminal."""
    return shutil.get_terminal_size((UNBROKEN, 24)).columns


def beside(start: str, text: str) -> str:
    """The start of a line and a text beside it, which continues below itself."""
    if (columns := terminal_columns()) >= UNBROKEN:
        return start + text
    return textwrap.fill(
        text, columns, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    )
