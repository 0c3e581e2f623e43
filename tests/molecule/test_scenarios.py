"""Molecule's scenarios: every role runs for real, twice, is looked at, changed, looked at again and cleaned up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loosehanger.paths import ROOT, lab_home

pytestmark = pytest.mark.molecule

SECONDS = 1200


def molecule(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Molecule with the lab's own tools; what it remembers between runs lies in the lab's home."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAB_", "PYTEST"))}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    environment["ANSIBLE_HOME"] = str(lab_home() / "molecule-ansible")
    return subprocess.run(
        [sys.executable, "-m", "molecule", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.timeout(SECONDS + 60)
def test_every_role_does_what_it_says() -> None:
    # Whatever an interrupted run has left would be taken for this one's.
    molecule("destroy", "--all")
    done = molecule("test", "--all")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert not (ROOT / ".lab" / "molecule" / "regions").exists()
