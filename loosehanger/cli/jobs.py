"""Starts the Spark jobs of ``./lab``. Imports hardly anything: a job's own imports take long enough."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loosehanger.kafka.links import CLIENT
from loosehanger.lab.progress import LOCAL, read_progress
from loosehanger.paths import lab_home
from loosehanger.proof import submit

NAMES = ("prove", "aggregate", "watch")
"""The commands that are a job and nothing else, where its clusters can be reached from here."""


def can_run_here() -> bool:
    """Whether the lab's clusters can certainly be reached from here, which only the local platform's can.

    Raises:
        WrongUseError: the lab's record cannot be read.
    """
    progress = read_progress()
    return progress is None or progress.platform == LOCAL


def run(job: str, arguments: Sequence[str]) -> int:
    """Becomes a job. Spark creates a folder in its working directory, so jobs run in the lab's home."""
    os.environ[CLIENT] = job
    enter(lab_home())
    return submit.main([job, *arguments])


def enter(folder: Path) -> None:
    """Changes into a folder, for a program that must know its user's folder."""
    sys.stdout.flush()
    os.environ["LAB_CALLED_FROM"] = str(Path.cwd())
    os.chdir(folder)
