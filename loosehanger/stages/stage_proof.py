"""Runs the proof as a step of a stage: the stage is reached only when all its claims are proved."""

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
"""Seconds without progress after which waiting for a mirror gives up; a restored cluster starts empty."""
_SILENT_S = 600
"""Seconds without a line after which the proof is killed."""


def prove(home: Path, stage: str, report: Callable[[str], None]) -> None:
    """Runs the proof, and keeps its result beside the stage's snapshots.

    Args:
        home: the lab's home.
        stage: whose claims are judged.
        report: shows a line: what the proof waits for, and which claims it proved.

    Raises:
        LabError: a claim is disproved or inconclusive; the message names it, with its numbers.
    """
    command = [sys.executable, "-P", "-m", "loosehanger.cli", "prove", "--json"]
    command += ["--timeout", str(STALLED_S), "--while-moving"]
    code, answer = run(command, home, {**os.environ, "LAB_HOME": str(home)}, report)
    try:
        document: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        raise LabError("the proof gave no result; run ./lab prove for details") from error
    keep_proof(home, stage, document)
    if code:
        reasons = "; ".join(document.get("reasons") or [document.get("verdict", "no verdict")])
        raise LabError(
            f"stage '{stage}' was not reached because its proof failed: {reasons}; run ./lab prove for details"
        )
    report(f"proved: {', '.join(claim['id'] for claim in document.get('claims', ()))}")


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], report: Callable[[str], None]
) -> tuple[int, str]:
    """Runs a command until it exits, or kills it when it writes no line for too long.

    Args:
        command: the program and its arguments.
        folder: its working directory.
        environment: its variables.
        report: shows each line of its standard error.

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
