"""A copy of the kit with a lab of its own, beside any lab that is running: for tests and benchmarks.

They edit the copy's manifests as a learner would. What is installed is shared with the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import IO

from loosehanger.lab.record import Lab, load_lab
from loosehanger.paths import ROOT, lab_home

INSTALLED = ("venv", "jars", "java", "java-spark", "cache")


@dataclass
class Kit:
    """A copy of the checkout with a lab of its own."""

    root: Path
    home: Path
    port_base: int
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, command: str, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Runs one of the kit's commands, as ``./lab`` does once everything is installed."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "loosehanger.cli", command, *arguments],
            cwd=self.root,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def start(self, output: IO[str], command: str, *arguments: str, errors: IO[str] | None = None) -> Popen[bytes]:
        """Starts one of the kit's commands in a session of its own.

        Args:
            output: where it writes.
            command: its name.
            arguments: of the command.
            errors: where it writes its errors; None for ``output``.
        """
        return Popen(
            [sys.executable, "-P", "-m", "loosehanger.cli", command, *arguments],
            cwd=self.root,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors or subprocess.STDOUT,
            start_new_session=True,
        )

    def setup(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Sets up the broadcast."""
        return self.run("setup", "03-broadcast", *arguments)

    def variables(self) -> dict[str, str]:
        """Returns the environment of the kit's commands."""
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited,
            "PYTHONPYCACHEPREFIX": str(lab_home() / "cache"),
            "LAB_HOME": str(self.home),
            "LAB_PORT_BASE": str(self.port_base),
            "PYTHONPATH": str(self.root),
            "NO_COLOR": "1",
            **self.environment,
        }

    @property
    def lab(self) -> Lab:
        """The lab that is set up."""
        return load_lab(self.home)

    def manifest(self, name: str) -> Path:
        """Returns the path of a manifest of the broadcast."""
        return self.root / "playbooks" / "03-broadcast" / "manifests" / name


def copy_kit(folder: Path, port_base: int, checkout: Path = ROOT) -> Kit:
    """Copies a checkout's files, and links its installation, which for another checkout is in its ``.lab``."""
    root, home = folder / "kit", folder / "kit" / ".lab"
    copy_files(root, checkout)
    home.mkdir(mode=0o700)
    installed = lab_home() if checkout == ROOT else checkout / ".lab"
    (installed / "cache").mkdir(exist_ok=True)
    for name in INSTALLED:
        (home / name).symlink_to(installed / name)
    return Kit(root, home, port_base)


def copy_files(root: Path, checkout: Path = ROOT) -> None:
    """Copies a checkout's files into a folder, over those that are there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (checkout / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, root / name)


def forget_bytecode(folder: Path, home: Path | None = None) -> None:
    """Deletes the bytecode of a folder's kits from the cache of this installation, or from that of another home."""
    cache = ((home or lab_home()) / "cache").resolve()
    shutil.rmtree(cache / folder.resolve().relative_to("/"), ignore_errors=True)
