"""The folder of a search: what was done, so that the next run continues, and what was found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.faults.fault import Fault
from loosehanger.files import write_file

_HEAD, _DONE = "search.json", "done.jsonl"


class Results:
    """The results of one search, in a folder.

    Args:
        folder: the folder; created if it does not exist.
        settings: what the schedules are derived from: seed, scenarios, block and catalogue.

    Raises:
        WrongUseError: the folder belongs to a search with other settings.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        head = folder / _HEAD
        if not head.exists():
            head.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        known = _read(head)
        differing = sorted(name for name in {*known, *settings} if known.get(name) != settings.get(name))
        if differing:
            raise WrongUseError(
                f"{folder}: belongs to a search with other settings ({', '.join(differing)}); "
                "choose another folder with --out"
            )

    @property
    def done(self) -> list[dict[str, Any]]:
        """What is known of each schedule that was run; an incomplete last line is left out."""
        path = self.folder / _DONE
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def next_number(self) -> int:
        """The number of the first schedule that was not run."""
        return max((int(found["number"]) + 1 for found in self.done), default=0)

    def add(self, outcome: Mapping[str, Any]) -> None:
        """Records a schedule that was run, in place of a line that an interrupted run left incomplete."""
        lines = "".join(f"{json.dumps(one)}\n" for one in (*self.done, outcome))
        write_file(self.folder / _DONE, lines)

    def keep(self, name: str, finding: Mapping[str, Any]) -> Path:
        """Writes a finding; returns its file."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(finding, indent=1) + "\n", encoding="utf-8")
        return path


def digest(faults: Iterable[Fault]) -> str:
    """Returns a digest of what schedules take from the catalogue."""
    text = json.dumps([(fault.name, fault.needs.model_dump(mode="json")) for fault in faults])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WrongUseError(f"{path}: cannot be read: {error}") from error
    return found
