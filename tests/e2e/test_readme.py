"""The README's commands, in the README's order, in a fresh clone in which nothing is installed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from lab.access import ROOT

pytestmark = pytest.mark.e2e

PORT_BASE = 26000
SECONDS = 900


def commands(text: str) -> list[tuple[str, str]]:
    """The commands in a text's console blocks, each with the output that it promises."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command.split("  #")[0].strip(), output))
    return found


def promised(output: str) -> re.Pattern[str]:
    """What a command's output must match: three dots stand for anything, and any blank for any blanks."""
    words = [r".*" if word == "..." else re.escape(word).replace(r"\.\.\.", ".*") for word in output.split()]
    return re.compile(r"\s+".join(words).replace(r".*\s+", r".*\s*").replace(r"\s+.*", r"\s*.*"), re.DOTALL)


def run(clone: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a newcomer: in the clone, with nothing but the system's own tools."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LAB_", "ANSIBLE_", "MOLECULE_", "PYTHON", "PYTEST", "VIRTUAL_ENV"))
    }
    path = os.pathsep.join(part for part in environment["PATH"].split(os.pathsep) if "/venv/" not in part)
    return subprocess.run(
        ["bash", "-c", command],
        cwd=clone,
        env={**environment, "PATH": path, "LAB_PORT_BASE": str(PORT_BASE)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def processes_of(clone: Path) -> list[str]:
    """The command lines of what runs for the clone's lab."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("LAB_REGION_FOLDER", "").startswith(str(clone)):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def test_the_readmes_commands_do_what_it_says_and_leave_nothing(tmp_path: Path) -> None:
    clone = tmp_path / "a newcomer's clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    listed = commands((clone / "README.md").read_text(encoding="utf-8"))
    assert listed[0][0] == "./setup-03-broadcast.sh"
    assert listed[-1][0] == "./cleanup.sh"
    try:
        for command, output in listed:
            done = run(clone, command)
            assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            assert promised(output).search(done.stdout), f"{command}\npromised: {output}\nsaid: {done.stdout[-3000:]}"
    finally:
        last = run(clone, "./cleanup.sh --all")
    assert last.returncode == 0, last.stderr
    assert processes_of(clone) == []
    for port in range(PORT_BASE, PORT_BASE + 400):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is still open"
    assert not (clone / ".lab").exists()
    ignored = subprocess.run(
        ["git", "status", "--porcelain", "--ignored"], cwd=clone, capture_output=True, text=True, check=True
    )
    assert ignored.stdout == ""
