"""A lab of real brokers, mirrors, producer and consumers for the tests, set up once, beside any lab that is running.

The tests work in a copy of the checkout, so that they can edit its manifests as a learner would. What is installed is
shared with the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab.access import ROOT, Lab, lab_home, load_lab

PORT_BASE = 27000
INSTALLED = ("venv", "jars", "java", "java-spark")


@dataclass
class Kit:
    """A copy of the checkout with a lab of its own."""

    root: Path
    home: Path
    port_base: int = PORT_BASE
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, command: str, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        """Runs one of the kit's commands, as its wrapper would."""
        return subprocess.run(
            [sys.executable, "-m", "lab", command, *arguments],
            cwd=self.root,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def setup(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Sets the broadcast up."""
        return self.run("setup", "03-broadcast", *arguments)

    def variables(self) -> dict[str, str]:
        """The environment of its commands."""
        paths = [self.root, self.root / "scripts", self.root / "spark-jobs"]
        return {
            **os.environ,
            "LAB_HOME": str(self.home),
            "LAB_PORT_BASE": str(self.port_base),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "NO_COLOR": "1",
            **self.environment,
        }

    @property
    def lab(self) -> Lab:
        """What is set up."""
        return load_lab(self.home)

    def manifest(self, name: str) -> Path:
        """A file of the scenario."""
        return self.root / "playbooks" / "03-broadcast" / name


def copy_kit(folder: Path, port_base: int = PORT_BASE) -> Kit:
    """Copies the checkout's files, and links what is installed."""
    root, home = folder / "kit", folder / "kit" / ".lab"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    home.mkdir(mode=0o700)
    for name in INSTALLED:
        (home / name).symlink_to(lab_home() / name)
    return Kit(root, home, port_base)


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The lab, set up; cleaned up when all tests are done."""
    kit = copy_kit(tmp_path_factory.mktemp("lab"))
    try:
        done = kit.setup()
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
    finally:
        done = kit.run("cleanup")
        assert done.returncode == 0, done.stdout + done.stderr


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Waits until a condition holds; fails the test when it does not within the bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)
