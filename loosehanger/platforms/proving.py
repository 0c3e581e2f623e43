"""Running the proof as a part of a stage: it is reached only when everything that is claimed in it is proved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError
from loosehanger.model.marks import keep_proof

_BOUND = 600
"""Seconds."""


def prove(home: Path, stage: str, report: Callable[[str], None]) -> None:
    """Runs the proof, and keeps what it found beside the stage's marks.

    Args:
        home: the lab's home.
        stage: which was begun: its claims are judged.
        report: takes a line that says what was proved.

    Raises:
        LabError: something is disproved, or cannot be told; the message has which claims, and the numbers.
    """
    command = [sys.executable, "-P", "-m", "loosehanger.cli", "prove", "--json"]
    environment = {**os.environ, "LAB_HOME": str(home)}
    try:
        done = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=_BOUND, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise LabError(f"the proof did not end with an answer ({type(error).__name__}); see ./lab prove") from error
    keep_proof(home, stage, found)
    if done.returncode:
        reasons = "; ".join(found.get("reasons") or [found.get("verdict", "no verdict")])
        raise LabError(f"the stage '{stage}' is not reached, for it is not proved: {reasons}; ./lab prove tells more")
    report(f"proved: {', '.join(claim['id'] for claim in found.get('claims', ()))}")
