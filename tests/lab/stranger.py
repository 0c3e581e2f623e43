"""``mirrorproof`` as a stranger has it: its wheel in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from loosehanger.paths import ROOT, lab_home

PROGRAM = "LAB_MIRRORPROOF"
"""The variable that names a program that is installed already."""


def installed(folder: Path, *extras: str) -> Path:
    """Builds the wheel, installs it into an environment of its own, and returns the command.

    Args:
        folder: an empty one, for the wheel and the environment.
        extras: of the wheel.
    """
    if given := os.environ.get(PROGRAM):
        return Path(given)
    return environment(folder / "venv", f"{built(folder)}[{','.join(extras)}]").with_name("mirrorproof")


def built(folder: Path) -> Path:
    """Builds the wheel."""
    build = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([_uv("python"), "-P", "-c", build], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, *packages: str) -> Path:
    """Makes an environment with these packages, and returns its Python."""
    python = folder / "bin" / "python"
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(folder)],
        ["pip", "install", "--quiet", "--python", str(python), *packages],
    ):
        subprocess.run([_uv("uv"), *command], check=True, cwd=folder.parent)
    return python


def _uv(name: str) -> Path:
    return lab_home().resolve() / "uv" / "bin" / name


def bare(folder: Path) -> dict[str, str]:
    """Variables with a cache of its own, and nothing of this environment."""
    own = ("LAB_", "PYTHON", "SPARK", "JAVA_HOME", "VIRTUAL_ENV", "PYSPARK")
    found = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return found | {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": os.defpath}


def run(program: Path, folder: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a bare environment.

    Args:
        program: the command.
        folder: where it runs.
        arguments: its own.
        variables: beside those of ``bare``.
    """
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=bare(folder) | variables, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done
