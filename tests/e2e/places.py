"""Where the documents' commands run: a clone of a newcomer, or a copy of the kit with what is installed here."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from loosehanger.paths import ROOT
from scripts.sandbox import copy_kit

from .terminal import Terminal

README = ROOT / "README.md"
LABS = sorted(ROOT.glob("playbooks/*/README.md"))
DOCUMENTS = [README, *LABS]
PORTS = 500
"""How many ports belong to a document's lab."""


@pytest.fixture(scope="module")
def terminal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """The terminal of a document; when its last command has run, nothing of its lab is left."""
    folder = tmp_path_factory.mktemp("document")
    ports = 10000 + PORTS * DOCUMENTS.index(request.path)
    place = _newcomer(folder, ports) if request.path == README else _copy(folder, ports)
    (folder / "outputs").mkdir()
    with place as (root, environment):
        terminal = Terminal(root, environment, folder / "outputs")
        try:
            yield terminal
        finally:
            terminal.end()


@contextmanager
def _newcomer(folder: Path, ports: int) -> Iterator[tuple[Path, dict[str, str]]]:
    """A fresh clone with nothing installed and the system's own tools; afterwards it is that again."""
    clone = folder / "a newcomer's clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LAB_", "ANSIBLE_", "MOLECULE_", "PYTHON", "PYTEST", "VIRTUAL_ENV"))
    }
    path = os.pathsep.join(part for part in environment["PATH"].split(os.pathsep) if "/venv/" not in part)
    environment |= {"PATH": path, "LAB_PORT_BASE": str(ports)}
    try:
        yield clone, environment
    finally:
        _clean_up(clone, environment, "--all")
    _nothing_is_left(clone, ports)
    assert not (clone / ".lab").exists()
    command = ["git", "status", "--porcelain", "--ignored"]
    assert subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout == ""


@contextmanager
def _copy(folder: Path, ports: int) -> Iterator[tuple[Path, dict[str, str]]]:
    kit = copy_kit(folder, ports)
    try:
        yield kit.root, kit.variables()
    finally:
        _clean_up(kit.root, kit.variables())
    _nothing_is_left(kit.root, ports)


def _clean_up(root: Path, environment: dict[str, str], *arguments: str) -> None:
    command = ["./lab", "cleanup", *arguments]
    done = subprocess.run(
        command, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _nothing_is_left(root: Path, ports: int) -> None:
    running = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("LAB_REGION_FOLDER", "").startswith(str(root)):
                running.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    assert running == []
    for port in range(ports, ports + PORTS):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is still open"
