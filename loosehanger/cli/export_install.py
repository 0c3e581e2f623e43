"""``./lab export-install FILE``: the installation in one file, for machines without a network."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from loosehanger.cli.exported import LOCKS, PLATFORMS, pack, this_platform, this_python
from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.lab.job_options import check_writable
from loosehanger.lab.link_settings import size_text
from loosehanger.paths import ROOT, caller_path, lab_home


def run(options: argparse.Namespace) -> int:
    """Downloads the wheels of the locks for a platform and Python, and packs them with the jars.

    Raises:
        WrongUseError: the platform is unknown, or the file cannot be written.
        LabError: a package cannot be fetched.
    """
    target = caller_path(options.file)
    check_writable(target)
    wanted = options.platform or this_platform()
    if wanted not in PLATFORMS:
        raise WrongUseError(f"there are no wheels for '{wanted}'; the platforms are: {', '.join(PLATFORMS)}")
    python = options.python or this_python()
    home = lab_home()
    with tempfile.TemporaryDirectory(dir=home, prefix="export-") as name:
        folder = Path(name)
        print(f"Fetching the packages for {wanted} and Python {python} (560 MB)", file=sys.stderr, flush=True)
        for lock in LOCKS[:2]:
            _download(home, ROOT / lock, folder / "wheels", wanted, python)
        _copy_jars(home / "jars", folder / "jars")
        size = pack(target, folder, wanted, python)
    print(f"{target}: {size_text(size)}, for {wanted} and Python {python}.")
    print(f"On the other machine, in a clone of the same version: ./lab prefetch --from {target.name}")
    return ExitCode.DONE


def _copy_jars(installed: Path, folder: Path) -> None:
    """Copies the jars of the lock, after what is missing or damaged of them was fetched again."""
    words = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.jars", str(ROOT / LOCKS[2]), str(installed)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise LabError(done.stderr.strip().splitlines()[-1].removeprefix("error: "))
    for path in installed.glob("*/*.jar"):
        there = folder / path.relative_to(installed)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)


def _download(home: Path, lock: Path, folder: Path, wanted: str, python: str) -> None:
    """Downloads what a lock lists, checked by its hashes, and builds nothing."""
    pip = home / "uv" / "bin" / "python"
    if not pip.exists():
        raise WrongUseError(f"{home} shares the installation of another checkout; export it there")
    command: list[str | Path] = [
        pip,
        "-P",
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    command += ["--require-hashes", "--requirement", lock, "--dest", folder]
    if (wanted, python) != (this_platform(), this_python()):
        command += ["--implementation", "cp", "--python-version", python]
        command += [word for tag in PLATFORMS[wanted] for word in ("--platform", tag)]
    # In a folder of its own: pip reads no settings there, and leaves nothing.
    done = subprocess.run(
        command, cwd=home, env=dict(os.environ), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or done.stderr.splitlines()
        reason = errors[-1].removeprefix("ERROR: ") if errors else "no reason given"
        raise LabError(f"the packages of {lock.name} cannot be fetched for {wanted} and Python {python}: {reason}")
