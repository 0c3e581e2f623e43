"""The names and titles of the catalogue's faults, for lists and completion. It needs the standard library only."""

from __future__ import annotations

import re
from pathlib import Path

CATALOGUE = Path(__file__).parent / "catalogue"
_TITLE = re.compile(r"^title: *(.+)$", re.MULTILINE)


def fault_names(catalogue: Path = CATALOGUE) -> list[str]:
    """Returns the names of all faults, in alphabetical order."""
    return sorted(path.stem for path in catalogue.glob("*.yaml"))


def fault_titles(catalogue: Path = CATALOGUE) -> dict[str, str]:
    """Returns the title of each fault; empty where its file has none on one line."""
    found = {}
    for name in fault_names(catalogue):
        match = _TITLE.search((catalogue / f"{name}.yaml").read_text(encoding="utf-8"))
        found[name] = match[1].strip("'\"") if match else ""
    return found
