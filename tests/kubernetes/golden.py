"""What the broadcast applies on one machine, and in how many tasks: kept in ``golden.json``, so that changes are seen.

    .lab/venv/bin/python -P -m tests.kubernetes.golden

makes the file again, once a change of it is meant.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loosehanger.lab.manifests.documents import Document
from loosehanger.paths import ROOT

from .manifests import described
from .playbooks import run_playbook

FILE = Path(__file__).with_name("golden.json")
SCENARIO = "03-broadcast"
INVENTORY = ROOT / "inventories" / "local"


def golden(documents: Sequence[Document], folder: Path) -> dict[str, Any]:
    """What is kept.

    Args:
        documents: what the roles describe.
        folder: an empty folder to work in.
    """
    kept: dict[str, dict[str, Any]] = {}
    for document in documents:
        # The lab's home is another one for each run.
        content = re.sub(r'"[^"]+/lab"', '"the lab\'s home"', json.dumps(document.content))
        kept.setdefault(document.namespace, {})[document.reference] = json.loads(content)
    return {"tasks": _tasks(folder), "documents": kept}


def text(content: dict[str, Any]) -> str:
    """The file's text: a line for each resource."""
    lines = [f'{{"tasks": {content["tasks"]}, "documents": {{']
    for number, (region, kept) in enumerate(content["documents"].items()):
        lines.append(f"{',' if number else ''}{json.dumps(region)}: {{")
        resources = [f"{json.dumps(name)}: {json.dumps(document, sort_keys=True)}" for name, document in kept.items()]
        lines += [*(f"{resource}," for resource in resources[:-1]), *resources[-1:], "}"]
    return "\n".join([*lines, "}}", ""])


def _tasks(folder: Path) -> int:
    playbook = str(ROOT / "playbooks" / SCENARIO / "setup.yaml")
    done = run_playbook(folder, playbook, "-i", str(INVENTORY), "--list-tasks", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return sum("TAGS: [" in line and not line.lstrip().startswith("play #") for line in done.stdout.splitlines())


def main() -> None:
    """Makes the file again."""
    os.environ.pop("LAB_PORT_BASE", None)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        content = golden(described(SCENARIO, INVENTORY, work), work)
    FILE.write_text(text(content), encoding="utf-8")


if __name__ == "__main__":
    main()
