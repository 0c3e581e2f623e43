"""The change log: what was changed through a console, by whom and when, and whether it succeeded."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from pydantic import ValidationError

from loosehanger.console.models import Change
from loosehanger.errors import LabError
from loosehanger.events.render import safe

MOST_BYTES = 1024 * 1024
"""The size at which the file becomes the older one, of which there is one: both together hold some 5,000 changes."""
MOST_SHOWN = 500
MOST_TEXT = 1000
"""Characters that are kept of a sentence, and of each name."""


class ChangeLog:
    """An append-only file of JSON lines, which only its owner can read.

    Args:
        path: the file; None to keep the latest changes in memory, and to write each to standard output.
        clock: seconds since the epoch.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: deque[Change] = deque(self._read(), maxlen=MOST_SHOWN)

    async def record(self, user: str, region: str, action: str, subject: str, work: Awaitable[str]) -> str:
        """Makes a change, and adds it to the log with its outcome; returns the outcome as a sentence.

        Args:
            user: who is signed in.
            region: where; empty for a change of no region.
            action: what, such as ``create topic``.
            subject: its name.
            work: the change.

        Raises:
            LabError: the change failed; so the log says.
        """
        said, done = "interrupted: its outcome is not known", False
        try:
            said = await work
            done = True
        except LabError as error:
            said = str(error)
            raise
        finally:
            self.add(user, region, action, subject, done=done, said=said)
        return said

    def add(self, user: str, region: str, action: str, subject: str, *, done: bool, said: str) -> None:
        """Adds a change."""
        words = [safe(text)[:MOST_TEXT] for text in (user, region, action, subject, said)]
        change = Change(
            at=self._clock(), user=words[0], region=words[1], action=words[2], subject=words[3], done=done,
            said=words[4],
        )  # fmt: skip
        with self._lock:
            self._recent.append(change)
            self._append(change.model_dump_json() + "\n")

    def latest(self) -> list[Change]:
        """The latest changes, the last one first."""
        return list(reversed(self._recent))

    def _append(self, line: str) -> None:
        if self._path is None:
            print(line, end="", flush=True)
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size + len(line.encode()) > MOST_BYTES:
                self._path.replace(_older(self._path))
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.write(handle, line.encode())
            finally:
                os.close(handle)
        except OSError as error:
            # The change was made: its log must not turn it into a failure.
            print(f"the change log {self._path} cannot be written ({error.strerror}): {line}", end="", flush=True)

    def _read(self) -> list[Change]:
        found = []
        for path in (_older(self._path), self._path) if self._path else ():
            try:
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            for line in lines[-MOST_SHOWN:]:
                try:
                    found.append(Change.model_validate_json(line))
                except ValidationError:
                    continue  # A line that was written in part.
        return found


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
