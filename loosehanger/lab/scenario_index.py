"""The list of scenarios, readable before anything is installed: it needs the standard library only.

Without a YAML parser it reads title and summary as plain lines; ``read_scenario`` refuses a ``scenario.yaml`` in which
YAML would read them differently.
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
    """A scenario in the list of scenarios."""

    name: str
    title: str
    """Empty where it is not written in one line."""
    teaches: str
    """One sentence; empty where it is not written in one line."""
    playbooks: tuple[str, ...]
    """The names of its playbooks, which are its stages, the set-up first."""


def scenario_names(playbooks: Path = PLAYBOOKS) -> list[str]:
    """Returns the names of all scenarios, in alphabetical order."""
    return sorted(path.parent.name for path in playbooks.glob(f"*/{FILE}"))


def exercise_names(playbooks: Path = PLAYBOOKS) -> list[str]:
    """Returns the exercises of all scenarios that have some, as ``SCENARIO/2``, in their order."""
    found = sorted(path.parent for path in playbooks.glob("*/exercises/*/exercise.yaml"))
    return [f"{path.parents[1].name}/{int(path.name[:2])}" for path in found if path.name[:2].isdecimal()]


def scenario_file(name: str, playbooks: Path = PLAYBOOKS) -> Path:
    """Returns the path of a scenario's ``scenario.yaml``.

    Raises:
        WrongUseError: the scenario does not exist.
    """
    names = scenario_names(playbooks)
    if name in names:
        return playbooks / name / FILE
    hint = did_you_mean(name, names) or f"; there are: {', '.join(names) or 'none'}"
    raise WrongUseError(f"there is no scenario '{name}'{hint}")


def read_outline(name: str, playbooks: Path = PLAYBOOKS) -> Outline:
    """Reads what the list of scenarios shows of one.

    Raises:
        WrongUseError: the scenario does not exist.
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
    """Returns the value of a YAML key that is written in one line; empty otherwise."""
    if not (found := re.search(rf"^{key}:[ \t]+(\S.*)$", text, re.MULTILINE)):
        return ""
    for pattern in (r'"([^"\\]*)"', r"'((?:[^']|'')*)'", r"([^\s\"'|>&*!%@`\[{#].*?)"):
        if value := re.fullmatch(rf"{pattern}(?:\s+#.*)?\s*", found[1]):
            return value[1].replace("''", "'") if pattern.startswith("'") else value[1]
    return ""
