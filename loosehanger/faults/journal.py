"""The journal of injected faults, in ``.lab/faults/``: what healing needs, written before anything is changed.

Each fault has a file that only its owner can read. The file of a surprise is packed, so that its reader does not see
by accident what it is.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import make_folder, write_file

FOLDER = "faults"
SURPRISE = "surprise"
"""The name of the file of a surprise that was not found yet."""
_LOCK = "lock"


@dataclass(frozen=True)
class Made:
    """A change that was made, or was going to be."""

    change: dict[str, Any]
    """The change, from the catalogue."""
    undo: dict[str, Any]
    """What healing needs."""


@dataclass(frozen=True)
class Injection:
    """A fault that was injected and not healed yet."""

    fault: str
    mirror: str
    """``Mirror.id``."""
    topic: str
    at: float
    """When it began, in seconds since the epoch."""
    changes: tuple[Made, ...]
    """The changes that are not undone yet, in the order in which they were made."""
    complete: bool = False
    """Whether every change was made."""
    surprise: bool = False
    """Whether the user did not choose it."""
    found: bool = False
    """Whether the user has guessed it."""
    guesses: int = 0
    """Wrong guesses."""

    @property
    def hidden(self) -> bool:
        """Whether its name must not be shown."""
        return self.surprise and not self.found


class Journal:
    """The journal of a lab.

    Args:
        home: the lab's home.
    """

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER

    def read(self) -> list[Injection]:
        """Returns the injected faults, the first one first.

        Raises:
            WrongUseError: a file cannot be read.
        """
        found = [self._read(path) for path in sorted(self.folder.glob("*.json"))]
        known = {injection.fault for injection in found if not injection.hidden}
        # An interrupted guess leaves both files.
        left = [injection for injection in found if not injection.hidden or injection.fault not in known]
        return sorted(left, key=lambda injection: injection.at)

    def write(self, injection: Injection) -> None:
        """Keeps an injected fault, in place of what the journal has of it."""
        text = json.dumps(asdict(injection), indent=1)
        if injection.hidden:
            text = json.dumps({"packed": base64.b64encode(zlib.compress(text.encode())).decode()})
        write_file(self._path(injection), f"{text}\n")
        if injection.surprise and injection.found:
            self._path(replace(injection, found=False)).unlink(missing_ok=True)

    def remove(self, injection: Injection) -> None:
        """Removes a fault that was healed."""
        self._path(injection).unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other injections and healings out.

        Raises:
            LabError: one is running.
        """
        make_folder(self.folder)
        with (self.folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LabError("another fault is being injected or healed; wait for it to end") from error
            yield

    def _path(self, injection: Injection) -> Path:
        return self.folder / f"{SURPRISE if injection.hidden else injection.fault}.json"

    def _read(self, path: Path) -> Injection:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if "packed" in found:
                found = json.loads(zlib.decompress(base64.b64decode(found["packed"])))
            changes = tuple(Made(**made) for made in found.pop("changes"))
            return Injection(**found, changes=changes)
        except (OSError, ValueError, TypeError, KeyError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise WrongUseError(
                f"{path}: the record of an injected fault cannot be read ({reason}); run ./lab cleanup"
            ) from error


def found_faults(home: Path) -> list[Injection]:
    """Returns the surprises of a lab that were found and not healed yet; none where the journal cannot be read."""
    with contextlib.suppress(WrongUseError):
        return [injection for injection in Journal(home).read() if injection.found]
    return []


def age(injection: Injection) -> float:
    """Returns the seconds since a fault was injected."""
    return max(0.0, time.time() - injection.at)
