"""``lab.json`` of the record: the scenario that is set up and its stage. Needs the standard library only."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from loosehanger.errors import NothingSetUpError, WrongUseError
from loosehanger.files import write_file
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.paths import lab_home

VERSION = 2
"""The version of the record's format."""
VARIABLES = "LAB_VARIABLES"
"""The environment variable with the variables to record, as a JSON list."""
LOCAL = "local"
"""The platform whose clusters are processes of this machine."""
LOCK = "playbook.lock"
"""The file in the lab's home that a running playbook has locked."""
_FILE = Path("access", "lab.json")


@dataclass(frozen=True)
class Progress:
    """The scenario that is set up, and the stages that were reached and begun: the content of ``lab.json``."""

    scenario: str
    platform: str
    inventory: str
    stage: str = ""
    """The last stage that was reached; empty before the first."""
    unfinished: str = ""
    """The stage that was begun and not finished; empty for none."""
    lost: tuple[str, ...] = ()
    """The regions killed by the stage that was begun or reached last."""
    version: int = VERSION
    claims: Sequence[dict[str, Any]] = ()
    """The claims of ``scenario.yaml`` as they were when the stage began."""
    port_base: int = 0
    """The first of the lab's ports on this machine; 0 if none is recorded."""
    variables: tuple[str, ...] = ()
    """The variables that the lab was given with ``-e``, one in each text, without secrets."""

    @property
    def text(self) -> str:
        """Returns the text of ``lab.json``."""
        return f"{json.dumps(asdict(self), indent=1)}\n"

    def write(self, home: Path) -> bool:
        """Writes the record into a lab's home; True when it changed."""
        return write_file(home / _FILE, self.text)

    def check_version(self) -> None:
        """Checks that this version of the kit set the lab up.

        Raises:
            WrongUseError: another version did.
        """
        if self.version != VERSION:
            raise WrongUseError(
                "another version of the kit has set this lab up; run ./lab cleanup, then the set-up again"
            )


def read_progress(home: Path | None = None) -> Progress | None:
    """Reads which scenario is set up, by any version of the kit; None for none.

    Raises:
        WrongUseError: the record cannot be read.
    """
    path = (home or lab_home()) / _FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name: found[field.name] for field in fields(Progress) if field.name in found}
        lists = {name: tuple(known.get(name, ())) for name in ("lost", "variables")}
        return Progress(**{"version": 1, **known, **lists})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise unreadable(path, error) from error


def progress_time(home: Path | None = None) -> float:
    """Returns when the record of the scenario and its stage was last written, in seconds since the epoch.

    Raises:
        OSError: there is no such record.
    """
    return ((home or lab_home()) / _FILE).stat().st_mtime


def playbook_runs(home: Path | None = None) -> bool:
    """Whether a set-up, a stage or a clean-up of the lab is running: its lock is held."""
    try:
        with ((home or lab_home()) / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # A lock that cannot be read must suppress no alert.
        return False
    return False


def required_progress(home: Path | None = None) -> Progress:
    """Reads which scenario is set up.

    Raises:
        NothingSetUpError: nothing is set up.
        WrongUseError: the record cannot be read.
    """
    progress = read_progress(home)
    if progress is None:
        raise NothingSetUpError("nothing is set up; ./lab scenarios shows what there is")
    return progress


def recorded_regions(home: Path | None = None) -> list[str]:
    """Returns the names of the regions that are set up, in alphabetical order."""
    folder = ((home or lab_home()) / _FILE).parent
    return sorted(path.stem for path in folder.glob("*.json") if path.name != _FILE.name)


def recorded_consoles(home: Path | None = None) -> dict[str, str]:
    """Returns the address of each web console of the record; none where it cannot be read."""
    folder = ((home or lab_home()) / _FILE).parent
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            found |= {console["name"]: console["url"] for console in record.get("consoles", ())}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # It is being deleted, or another version of the kit has written it.
    return found


def recorded_names(what: str, region: str, home: Path | None = None) -> list[str]:
    """Returns names from a region's record, in alphabetical order: the record is read as plain JSON.

    Args:
        what: ``topic`` for the topics of its manifests, ``user`` for users with a client configuration, ``mirror`` for
            mirrors, ``log`` for programs and mirrors, each of which has a log.
        region: the region's name.
        home: the lab's home; None for the usual one.

    Raises:
        WrongUseError: the record cannot be read.
    """
    path = (home or lab_home()) / _FILE.parent / f"{region}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        resources = [document["content"] for document in found["documents"]]
        named = {
            kind: {r["spec"].get("topicName") or r["metadata"]["name"] for r in resources if r["kind"] == kind}
            for kind in ("KafkaTopic", MIRROR)
        }
        kinds = {"topic": named["KafkaTopic"], "user": found["clients"], "mirror": named[MIRROR]}
        names = kinds.get(what)
        return sorted(named[MIRROR] | set(found["logs"]) if names is None else names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> WrongUseError:
    """Returns the error for a file of the record that cannot be used."""
    reason = getattr(error, "strerror", None) or error
    return WrongUseError(f"{path}: the record of the lab cannot be read ({reason}); run ./lab cleanup")
