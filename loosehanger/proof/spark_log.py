"""The reason for a job's end in Spark's own log: when a cluster ends a job, the error in Python does not contain it."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOST = 512 * 1024
"""The number of bytes to read from the log's end."""
_KILLED = re.compile(r"Application has been killed\. Reason: (.*)")
_EXECUTOR = re.compile(r"Executor updated: \S+ is now (?:FAILED|EXITED|LOST|KILLED)(?: \((.*)\))?")
_CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)
_ERROR = re.compile(r"^\S+ ERROR [^:]+: (.*)", re.MULTILINE)


class SparkLog:
    """The part of the log that is written from now on.

    Args:
        path: the file; None if the job was submitted without one.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._begin = self._size()

    @classmethod
    def of_this_job(cls) -> SparkLog:
        """Where ``loosehanger.proof.submit`` has Spark write."""
        path = os.environ.get("LAB_SPARK_LOG")
        return cls(Path(path) if path else None)

    def ended(self) -> str:
        """Why the cluster ended the application, or what the last error was; empty if the log has neither."""
        text = self._text()
        if killed := _KILLED.findall(text):
            details = [found for found in _EXECUTOR.findall(text) if found] or _CAUSE.findall(text)
            return f"{killed[-1].strip()} ({details[-1].strip()})" if details else f"{killed[-1].strip()}"
        return next((f"{error.strip()}" for error in reversed(_ERROR.findall(text))), "")

    def place(self) -> str:
        """Where to read on."""
        here = str(self._path) if self._path else "the driver's log"
        return f"see {here}; a cluster keeps its executors' own logs on its workers"

    def _size(self) -> int:
        try:
            return self._path.stat().st_size if self._path else 0
        except OSError:
            return 0

    def _text(self) -> str:
        if not self._path:
            return ""
        size = self._size()
        # A full log is moved away, and begun again.
        begin = max(self._begin if self._begin <= size else 0, size - _MOST)
        try:
            with self._path.open("rb") as log:
                log.seek(begin)
                return log.read(_MOST).decode(errors="replace")
        except OSError:
            return ""
