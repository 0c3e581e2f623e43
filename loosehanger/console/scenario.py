"""The scenario that is set up: its files, and the exercises of its lab text."""

from __future__ import annotations

import re

from loosehanger.console.models import Exercise, Manifest, Scenario
from loosehanger.learn.lab_text import read_sections
from loosehanger.paths import ROOT

PLAYBOOKS = ROOT / "playbooks"


def read_scenario(name: str) -> Scenario | None:
    """Reads a folder of ``playbooks/`` as it is now; None when the scenario does not exist."""
    if not re.fullmatch(r"[\w.-]+", name) or not (PLAYBOOKS / name / "setup.yaml").is_file():
        return None
    folder = PLAYBOOKS / name
    files = [*sorted(folder.glob("manifests/**/*.yaml")), *sorted(folder.glob("*.yaml"))]
    manifests = [Manifest(name=str(path.relative_to(folder)), text=path.read_text("utf-8")) for path in files]
    sections = read_sections(name) if (folder / "README.md").is_file() else []
    exercises = [Exercise(number=one.number, title=one.title, markdown=one.markdown) for one in sections if one.number]
    return Scenario(name=name, manifests=manifests, exercises=exercises)
