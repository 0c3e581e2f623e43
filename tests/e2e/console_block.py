"""A console block of a document: commands, and the output that each must have."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loosehanger.learn.lab_text import BlockCommand

ANY_LINES = "..."


def asks_for_exit_code(command: BlockCommand) -> bool:
    """Whether it shows the exit code of the command before it."""
    return command.text.strip() == "echo $?"


def first_difference(expected: Sequence[tuple[int, str]], said: str) -> str | None:
    """Names the first difference between a command's output and the expected one; None if there is none.

    Three dots stand for anything in a line, a line of three dots for any lines, a blank for any blanks; empty lines
    count for nothing. The line that is named is the first one that nothing fits, however the dots before it are taken.
    """
    lines = [line for line in said.splitlines() if line.strip()]
    at, position, furthest = 0, 0, (0, 0)
    retry: tuple[int, int] | None = None
    while position < len(lines) or at < len(expected):
        furthest = max(furthest, (at, position))
        if at < len(expected) and expected[at][1].strip() == ANY_LINES:
            at += 1
            retry = (at, position)
        elif at < len(expected) and position < len(lines) and _pattern(expected[at][1]).fullmatch(lines[position]):
            at, position = at + 1, position + 1
        elif retry is not None and retry[1] < len(lines):
            retry = (retry[0], retry[1] + 1)
            at, position = retry
        elif furthest[0] < len(expected):
            number, line = expected[furthest[0]]
            return f"line {number} is not what it said: {line.strip()}"
        else:
            return f"it said more than is expected: {lines[furthest[1]].strip()}"
    return None


def _pattern(line: str) -> re.Pattern[str]:
    words = [re.escape(word).replace(re.escape(ANY_LINES), ".*") for word in line.split()]
    # Three dots between blanks may also stand for nothing at all.
    text = r"\s+".join(words).replace(r"\s+.*", r".*").replace(r".*\s+", r".*")
    return re.compile(rf"\s*{text}\s*")
