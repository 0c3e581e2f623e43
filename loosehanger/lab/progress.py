"""Which scenario is set up, and how far it is: the record's ``lab.json``. Python's own library is enough for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from loosehanger.errors import NothingSetUpError, WrongUseError
from loosehanger.files import write_file
from loosehanger.paths import lab_home

VERSION = 2
"""Of the record's form."""
_FILE = Path("access", "lab.json")


@dataclass(frozen=True)
class Progress:
    """Which scenario is set up, and how far it is: the content of ``lab.json``."""

    scenario: str
    platform: str
    inventory: str
    stage: str = ""
    """The last stage that was reached; empty before the first one is."""
    unfinished: str = ""
    """A stage that was begun and not finished; empty for none."""
    lost: tuple[str, ...] = ()
    """The regions that are dead in the stage that was begun or reached last."""
    version: int = VERSION
    claims: Sequence[dict[str, Any]] = ()
    """What ``scenario.yaml`` claims beside what the mirrors promise, as it stood when the stage began."""
    port_base: int = 0
    """The number that the lab's ports on this machine follow; 0 where none has been recorded."""

    @property
    def text(self) -> str:
        """As the record has it."""
        return f"{json.dumps(asdict(self), indent=1)}\n"

    def write(self, home: Path) -> bool:
        """Keeps it in a lab's home; True when that changed anything."""
        return write_file(home / _FILE, self.text)

    def check_version(self) -> None:
        """Checks that this version of the kit has set the lab up.

        Raises:
            WrongUseError: another one has.
        """
        if self.version != VERSION:
            raise WrongUseError(
                "another version of the kit has set this lab up; run ./lab cleanup, then the set-up again"
            )


def read_progress(home: Path | None = None) -> Progress | None:
    """Which scenario is set up, also where another version of the kit has recorded it; None for none.

    Raises:
        WrongUseError: the record cannot be read.
    """
    path = (home or lab_home()) / _FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name: found[field.name] for field in fields(Progress) if field.name in found}
        return Progress(**{"version": 1, **known, "lost": tuple(known.get("lost", ()))})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise unreadable(path, error) from error


def required_progress(home: Path | None = None) -> Progress:
    """Which scenario is set up.

    Raises:
        NothingSetUpError: none is.
        WrongUseError: the record cannot be read.
    """
    progress = read_progress(home)
    if progress is None:
        raise NothingSetUpError("nothing is set up; ./lab scenarios shows what there is")
    return progress


def recorded_regions(home: Path | None = None) -> list[str]:
    """The names of the regions that are set up, in alphabetical order."""
    folder = ((home or lab_home()) / _FILE).parent
    return sorted(path.stem for path in folder.glob("*.json") if path.name != _FILE.name)


def unreadable(path: Path, error: Exception) -> WrongUseError:
    """What is said of a file of the record that cannot be used."""
    reason = getattr(error, "strerror", None) or error
    return WrongUseError(f"{path}: the record of the lab cannot be read ({reason}); run ./lab cleanup")
