"""``python -m loosehanger.events.follow LOGFILE``: shows the end of a log and follows it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

from loosehanger.errors import WrongUseError, run_command
from loosehanger.events.render import Line, colours_wanted, safe

LOOK_S = 0.2
"""Seconds between two polls of a file that has nothing new."""
MOST_LINE = 64 * 1024
"""Most characters of a line; the rest is left out."""
MOST_LINES = 100_000


def follow(path: Path, last: int, idle_s: float = LOOK_S) -> Iterator[str | None]:
    """Follows a log file from its last lines on, across rotation and truncation.

    Args:
        path: the file.
        last: how many of the existing lines to show.
        idle_s: the pause after a poll without new lines, in seconds.

    Yields:
        A line without its line break, or ``None`` whenever there is nothing new.

    Raises:
        WrongUseError: the file does not exist.
    """
    try:
        stream = _open(path)
    except OSError as error:
        raise WrongUseError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        kept, line = deque[str](maxlen=last), ""
        while part := stream.readline(MOST_LINE):
            line = _joined(line, part)
            if part.endswith("\n"):
                kept.append(line.rstrip("\r\n"))
                line = ""
        yield from kept
        while True:
            # Checked before reading, so that the old file's last lines are not missed.
            replaced = _replaced(stream, path)
            while part := stream.readline(MOST_LINE):
                line = _joined(line, part)
                if part.endswith("\n"):
                    yield line.rstrip("\r\n")
                    line = ""
            if replaced:
                with suppress(OSError):  # It may be gone again; the next poll tries again.
                    successor = _open(path)
                    stream.close()
                    stream, line = successor, ""
                    continue
            yield None
            time.sleep(idle_s)
    finally:
        stream.close()


def _joined(line: str, part: str) -> str:
    return (line + part)[:MOST_LINE]


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace", newline="\n")


def _replaced(stream: TextIO, path: Path) -> bool:
    """Whether the path now names another file, or the same one was truncated."""
    try:
        there = path.stat()
    except OSError:
        return False  # In the middle of a rotation.
    here = os.fstat(stream.fileno())
    return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) or here.st_size < stream.buffer.tell()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUseError(f"{message}; python -m loosehanger.events.follow --help explains")


def main(arguments: Sequence[str] | None = None) -> int:
    """Shows a log file and follows it until Ctrl-C.

    Raises:
        WrongUseError: the file does not exist.
    """
    command = _Parser(
        prog="python -m loosehanger.events.follow", description="Shows the end of a log file and follows it."
    )
    command.add_argument("logfile", type=Path, metavar="LOGFILE")
    command.add_argument("--lines", type=int, default=20, metavar="N", help="how many of the last lines (20)")
    options = command.parse_args(arguments)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    coloured = colours_wanted(sys.stdout)
    try:
        for text in follow(options.logfile, min(max(0, options.lines), MOST_LINES)):
            if text is None:
                sys.stdout.flush()
                continue
            text = safe(text)
            line = Line.parse(text) if coloured else None
            sys.stdout.write((line.coloured() if line else text) + "\n")
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
