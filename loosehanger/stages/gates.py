"""Running the proof as a part of a stage: it is reached only when everything that is claimed in it is proved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError
from loosehanger.lab.snapshots import keep_proof

STALLED_S = 120
"""So long a mirror may come no closer; as long as it does, it is waited for: a restored cluster begins with nothing."""
_SILENT_S = 600
"""A proof that has said nothing for so long is ended."""


def prove(home: Path, stage: str, report: Callable[[str], None]) -> None:
    """Runs the proof, and keeps what it found beside the stage's marks.

    Args:
        home: the lab's home.
        stage: which was begun: its claims are judged.
        report: takes a line that says what is waited for, and what was proved.

    Raises:
        LabError: something is disproved, or cannot be told; the message has which claims, and the numbers.
    """
    command = [sys.executable, "-P", "-m", "loosehanger.cli", "prove", "--json"]
    command += ["--timeout", str(STALLED_S), "--while-moving"]
    code, answer = run(command, home, {**os.environ, "LAB_HOME": str(home)}, report)
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        raise LabError("the proof did not end with an answer; see ./lab prove") from error
    keep_proof(home, stage, found)
    if code:
        reasons = "; ".join(found.get("reasons") or [found.get("verdict", "no verdict")])
        raise LabError(f"the stage '{stage}' is not reached, for it is not proved: {reasons}; ./lab prove tells more")
    report(f"proved: {', '.join(claim['id'] for claim in found.get('claims', ()))}")


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], report: Callable[[str], None]
) -> tuple[int, str]:
    """Runs a command to its end, or until it is killed for its silence.

    Args:
        command: the program and its arguments.
        folder: where it is run.
        environment: its variables.
        report: takes each line of its standard error, as it comes.

    Returns:
        Its exit status, and its standard output.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answer:
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=answer, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            try:
                while True:
                    bound = threading.Timer(_SILENT_S, process.kill)
                    bound.start()
                    try:
                        line = process.stderr.readline() if process.stderr else ""
                    finally:
                        bound.cancel()
                    if not line:
                        break
                    report(line.rstrip())
            except BaseException:
                process.kill()
                raise
        answer.seek(0)
        return process.returncode, answer.read()
