"""The state that lets one run of the watch continue where the last one stopped: a folder with one atomic file.

The file has the sums together with the offsets up to which they are complete. Its replacement is atomic, so an
interrupted round leaves no trace: the next run reads the same offsets again, and counts no record twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import write_file

VERSION = 2
TABLES = ("activity", "audit")
"""The tables that a watch of the lab has there."""
_LOCK = "lock"


class Folder:
    """The folder in which the watch keeps its state.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path / "state.json"

    def check(self) -> None:
        """Checks that the folder is one of a watch, or can become one.

        Raises:
            WrongUseError: it holds something else, or cannot be written to.
        """
        where = f"--state: {self.path}"
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = {path.name for path in self.path.iterdir()}
        except OSError as error:
            raise WrongUseError(f"{where} cannot be used ({error.strerror}); name a folder") from error
        if names and not names & {_LOCK, self._file.name}:
            raise WrongUseError(f"{where} is not empty and has no state of a watch; name another folder")
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise WrongUseError(f"{where} cannot be written to; name another folder")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder against a second watch.

        Raises:
            LabError: another watch has locked it.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LabError(f"another watch is running on {self.path}; stop it first") from error
            yield

    def table(self, name: str) -> Path:
        """The path of a table."""
        return self.path / name

    def open(self, clusters: Mapping[str, str]) -> tuple[dict[str, Any] | None, str]:
        """Loads the stored state if it is of the same clusters; deletes everything otherwise.

        Args:
            clusters: the id of each region's cluster.

        Returns:
            The state that was stored last, None to start from scratch; and why an earlier state was deleted, if so.
        """
        stored, reason = self._stored()
        if stored is not None:
            before = stored["clusters"]
            changed = sorted(name for name in before.keys() | clusters if before.get(name) != clusters.get(name))
            if not changed:
                return stored, ""
            reason = f"the cluster of {changed[0]} has changed or is missing"
        for name in TABLES:
            shutil.rmtree(self.table(name), ignore_errors=True)
        return None, reason

    def store(self, state: Mapping[str, Any]) -> None:
        """Stores the state, which includes ``clusters``, in place of the earlier one."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Examples have keys of records.
        write_file(self._file, json.dumps({"version": VERSION, **state}, separators=(",", ":")))

    def _stored(self) -> tuple[dict[str, Any] | None, str]:
        try:
            stored: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError) as error:
            return None, f"{self._file} cannot be read: {error}"
        if stored.get("version") != VERSION:
            return None, f"{self._file} was written by another version of the kit"
        return stored, ""
