"""What the scenarios apply on each platform: recorded from a run of their own playbooks and roles."""

from __future__ import annotations

import json
from pathlib import Path

from loosehanger.lab.manifests.documents import Document, read_documents
from loosehanger.lab.scenario import read_scenario
from loosehanger.paths import ROOT

from .playbooks import run_playbook

RECORDER = Path(__file__).with_name("recorder")


def described(name: str, inventory: Path, folder: Path) -> list[Document]:
    """Runs a scenario's set-up with a platform role that only keeps what the other roles describe.

    Args:
        name: the scenario.
        inventory: the platform's.
        folder: an empty folder to work in.
    """
    (folder / "recorded").mkdir()
    variables = {"platform_role": str(RECORDER), "platform_operator_role": "", "recorder_folder": f"{folder}/recorded"}
    playbook = str(ROOT / "playbooks" / name / "setup.yaml")
    done = run_playbook(folder, playbook, "-i", str(inventory), "-e", json.dumps(variables), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    manifests = read_scenario(name).manifests("setup")
    recorded = json.loads((folder / "recorded" / "described.json").read_text(encoding="utf-8"))
    return [
        document
        for region, entries in sorted(recorded.items())
        for entry in entries
        for document in (
            read_documents(entry["source"], entry["content"])
            if "content" in entry
            else [m for m in manifests if (m.kind, m.namespace) == (entry["kind"], region)]
        )
    ]
