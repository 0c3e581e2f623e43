"""A machine without a network: the lab is installed from one exported file, set up, proved and cleaned up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from loosehanger.paths import ROOT
from scripts.sandbox import copy_files, forget_bytecode

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="a network namespace needs util-linux's unshare"),
]

NAMESPACE = ["unshare", "--map-root-user", "--net", "bash", "-euc", "ip link set lo up\n{commands}"]
"""Loopback and nothing else."""
COMMANDS = {
    "installed": './lab prefetch --from "$EXPORTED"',
    "set up": "./lab setup 03-broadcast",
    "proved": "./lab prove",
    "learned": "./lab learn start 03-broadcast/2 && ./lab learn solve && ./lab learn check",
    "cleaned up": "./lab cleanup",
}
_NOT_THERE = re.compile(r"(?i)_proxy$|^PIP_|^LAB_|^PYTHON|^VIRTUAL_ENV$|^UV_")
"""Variables that a machine without a network has no use for, or that name another installation."""


def test_a_machine_without_a_network_gets_a_lab_from_one_file(tmp_path: Path) -> None:
    exported, kit = tmp_path / "workshop.tar", tmp_path / "kit"
    began = time.monotonic()
    done = subprocess.run(["./lab", "export-install", exported], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(f"exported in {time.monotonic() - began:.0f} s, {exported.stat().st_size / 1e6:.0f} MB")
    copy_files(kit)
    environment = {name: value for name, value in os.environ.items() if not _NOT_THERE.search(name)}
    # No answer within a second is a network that is there.
    lines = ["! timeout 1 bash -c '</dev/tcp/192.0.2.1/80' 2>/dev/null"]
    lines += [f'SECONDS=0; {command}; echo "{what} in $SECONDS s" >>times' for what, command in COMMANDS.items()]
    try:
        done = subprocess.run(
            [*NAMESPACE[:-1], NAMESPACE[-1].format(commands="\n".join(lines))],
            cwd=kit,
            env={**environment, "EXPORTED": str(exported)},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        print((kit / "times").read_text(encoding="utf-8") if (kit / "times").exists() else "nothing was done")
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        # What is left of it, if a command failed.
        subprocess.run(["./lab", "cleanup"], cwd=kit, env=environment, capture_output=True, check=False)
        forget_bytecode(tmp_path, kit / ".lab")
