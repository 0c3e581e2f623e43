"""What the scenarios apply on each platform: recorded from a run of their own playbooks and roles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.access import ROOT

from .playbooks import run_playbook

RECORDER = Path(__file__).with_name("recorder")


@dataclass(frozen=True, order=True)
class File:
    """A manifest file, as a platform role gets it."""

    region: str
    source: str
    content: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The resources in it."""
        return [document for document in yaml.safe_load_all(self.content) if document]


def record(scenario: str, inventory: Path, folder: Path) -> list[File]:
    """Runs a scenario's set-up with a platform role that only keeps what it is asked to apply.

    Args:
        scenario: such as ``03-broadcast``.
        inventory: the platform's.
        folder: an empty folder to work in.
    """
    (folder / "recorded").mkdir()
    variables = {"platform_role": str(RECORDER), "platform_operator_role": "", "recorder_folder": f"{folder}/recorded"}
    playbook = str(ROOT / "playbooks" / scenario / "setup.yaml")
    done = run_playbook(folder, playbook, "-i", str(inventory), "-e", json.dumps(variables), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(
        File(path.stem, entry["source"], entry["content"])
        for path in (folder / "recorded").glob("*.json")
        for entry in json.loads(path.read_text(encoding="utf-8"))
    )
