"""What makes one run of the watch go on where the last one ended: its folder, and one file that is replaced as a whole.

Sums and the offsets up to which they hold good are in one file. It comes to its place in one step, so a round that was
broken off has never been: the next run reads the same offsets again, and counts nothing twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError

VERSION = 2


class Folder:
    """The folder in which the watch keeps what it must not forget.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path / "state.json"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second watch out.

        Raises:
            LabError: there is one.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LabError(f"another watch is running on {self.path}; end it first") from error
            yield

    def table(self, name: str) -> Path:
        """Where a table is."""
        return self.path / name

    def open(self, clusters: Mapping[str, str]) -> tuple[dict[str, Any] | None, str]:
        """What was kept, if it is of the same clusters; else everything there is deleted.

        Args:
            clusters: the id of each region's cluster.

        Returns:
            What ``store`` was given last, None to begin anew; and why what was there had to be given up, if so.
        """
        stored, reason = self._stored()
        if stored is not None:
            before = stored["clusters"]
            changed = sorted(name for name in before.keys() | clusters if before.get(name) != clusters.get(name))
            if not changed:
                return stored, ""
            reason = f"the cluster of {changed[0]} is another one than before, or not there"
        for child in self.path.iterdir() if self.path.exists() else ():
            if child.is_dir():
                shutil.rmtree(child)
        return None, reason

    def store(self, state: Mapping[str, Any]) -> None:
        """Keeps the state, with ``clusters`` in it, in place of what was kept before."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({"version": VERSION, **state}, separators=(",", ":")), encoding="utf-8")
        new.replace(self._file)

    def _stored(self) -> tuple[dict[str, Any] | None, str]:
        try:
            stored: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError) as error:
            return None, f"{self._file} cannot be read: {error}"
        if stored.get("version") != VERSION:
            return None, f"{self._file} is of another version of the kit"
        return stored, ""
