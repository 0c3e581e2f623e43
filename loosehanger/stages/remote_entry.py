"""``python -m loosehanger.stages.remote_entry``: runs a step of a switch in a pod.

The step is mounted beside the lab's record and the snapshots kept so far. Its answer or error, and the files that it
wrote, return to the caller as one document.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import write_file
from loosehanger.lab.record import load_lab
from loosehanger.lab.snapshots import snapshot_files
from loosehanger.paths import lab_home
from loosehanger.platforms.pod_files import ANSWER, FILES, STEP_FILE
from loosehanger.stages.steps import STEPS, take

_RESCUED = "rescued"


def main() -> int:
    """Runs the step; returns 0 if there is an answer, even if the step failed."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        answer = _taken(home, lab_home() / "access")
    write_file(FILES / ANSWER, json.dumps(answer))
    return 0


def _taken(home: Path, record: Path) -> dict[str, Any]:
    """The answer: ``value`` or ``error``, and ``files``, what was written below ``home``."""
    # The record is read-only, and names the clients' files by its own location.
    before = snapshot_files(record.parent)
    described = {path.name: path.read_text(encoding="utf-8") for path in record.glob("*.json")}
    for name, text in {**described, **before}.items():
        write_file(home / "access" / name, text)
    step = STEPS.validate_json((record / STEP_FILE).read_text(encoding="utf-8"))
    answer: dict[str, Any] = {"home": str(home)}
    try:
        answer["value"] = take(step, load_lab(home), home)
    except LabError as error:
        answer |= {"error": str(error), "wrong_use": isinstance(error, WrongUseError)}
    files = {f"access/{name}": text for name, text in snapshot_files(home).items() if before.get(name) != text}
    rescued = {str(path.relative_to(home)): path.read_text(encoding="utf-8") for path in home.glob(f"{_RESCUED}/*")}
    return {**answer, "files": {**rescued, **files}}


if __name__ == "__main__":
    sys.exit(main())
