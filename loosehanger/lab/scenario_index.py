"""What can be told of scenarios before anything is installed: Python's own library is enough for it.

It has no YAML, so the two lines that the list of scenarios shows are read as lines; ``read_scenario`` refuses a
``scenario.yaml`` in which they mean anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from loosehanger.errors import WrongUseError
from loosehanger.paths import ROOT
from loosehanger.suggestions import did_you_mean

PLAYBOOKS = ROOT / "playbooks"
FILE = "scenario.yaml"
SETUP = "setup"
"""The stage that every scenario begins with."""


@dataclass(frozen=True)
class Outline:
    """A scenario, as the list of scenarios shows it."""

    name: str
    title: str
    """Empty where it is not written in one line."""
    teaches: str
    """One sentence; empty where it is not written in one line."""
    playbooks: tuple[str, ...]
    """The names of its playbooks: its stages, the set-up first."""


def scenario_names(playbooks: Path = PLAYBOOKS) -> list[str]:
    """Every scenario there is, in alphabetical order."""
    return sorted(path.parent.name for path in playbooks.glob(f"*/{FILE}"))


def scenario_file(name: str, playbooks: Path = PLAYBOOKS) -> Path:
    """A scenario's ``scenario.yaml``.

    Raises:
        WrongUseError: there is no such scenario.
    """
    names = scenario_names(playbooks)
    if name in names:
        return playbooks / name / FILE
    hint = did_you_mean(name, names) or f"; there are: {', '.join(names) or 'none'}"
    raise WrongUseError(f"there is no scenario '{name}'{hint}")


def read_outline(name: str, playbooks: Path = PLAYBOOKS) -> Outline:
    """What the list of scenarios shows of one.

    Raises:
        WrongUseError: there is no such scenario.
    """
    path = scenario_file(name, playbooks)
    text = path.read_text(encoding="utf-8", errors="replace")
    stages = sorted(file.stem for file in path.parent.glob("*.yaml") if file.name != FILE)
    return Outline(
        name,
        one_line(text, "title"),
        one_line(text, "teaches"),
        tuple(sorted(stages, key=lambda stage: stage != SETUP)),
    )


def one_line(text: str, key: str) -> str:
    """The value of a key of a YAML mapping that stands in one line; empty where it does not."""
    if not (found := re.search(rf"^{key}:[ \t]+(\S.*)$", text, re.MULTILINE)):
        return ""
    for pattern in (r'"([^"\\]*)"', r"'((?:[^']|'')*)'", r"([^\s\"'|>&*!%@`\[{#].*?)"):
        if value := re.fullmatch(rf"{pattern}(?:\s+#.*)?\s*", found[1]):
            return value[1].replace("''", "'") if pattern.startswith("'") else value[1]
    return ""
