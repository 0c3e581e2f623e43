"""The scenario that is set up: its files, and the exercises of its lab text."""

from __future__ import annotations

import re
from functools import lru_cache

from loosehanger.console.models import Exercise, Manifest, Scenario
from loosehanger.paths import ROOT

PLAYBOOKS = ROOT / "playbooks"


@lru_cache(maxsize=1)
def read_scenario(name: str) -> Scenario | None:
    """Reads a folder of ``playbooks/``; None when the scenario does not exist."""
    if not re.fullmatch(r"[\w.-]+", name) or not (PLAYBOOKS / name / "setup.yaml").is_file():
        return None
    folder = PLAYBOOKS / name
    files = [*sorted(folder.glob("manifests/**/*.yaml")), *sorted(folder.glob("*.yaml"))]
    manifests = [Manifest(name=str(path.relative_to(folder)), text=path.read_text("utf-8")) for path in files]
    text = (folder / "README.md").read_text("utf-8") if (folder / "README.md").is_file() else ""
    text = re.sub(r"^<!--.*-->\n", "", text, flags=re.MULTILINE)  # notes for the tests only
    exercises = [
        Exercise(number=int(number), title=title.strip(), markdown=body.strip())
        for number, title, body in re.findall(r"^## (\d+)\. (.+)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE)
    ]
    return Scenario(name=name, manifests=manifests, exercises=exercises)
