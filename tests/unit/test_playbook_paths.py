"""Paths that are handed to a playbook: real Ansible, and folders whose names mean something to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from loosehanger.paths import ROOT

PLAYBOOK = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        dest: "{{ status_file }}"
        content: "{{ {'is': 'there'} | to_json }}"
        mode: "0600"
    # As the Kubernetes client does in Ansible's workers, which end without tidying up.
    - ansible.builtin.set_fact:
        left: "{{ lookup('pipe', 'mktemp') }}"
"""
TEMPORARY = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        dest: "{{ status_file }}"
        content: "{{ lookup('env', 'TMPDIR') }}"
        mode: "0600"
"""
PROGRAM = """\
import sys
from pathlib import Path
from loosehanger.cli.playbook import run_playbook
playbook, inventory, file = sys.argv[1:]
run_playbook(playbook, ["-i", inventory], quiet=True, paths={"status_file": Path(file)})
"""


def run(play: str, place: Path, temporary: Path, file: Path) -> subprocess.CompletedProcess[str]:
    """Runs a play, with a folder for temporary files and a path that is handed to it."""
    (place / "play.yaml").write_text(play, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(place / "play.yaml"), str(ROOT / "inventories/local"), str(file)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LAB_HOME": str(place / "home"), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["plain", "with a blank", "{{ lookup('pipe', 'touch ran') }}", 'it\'s "quoted"'])
def test_a_path_is_a_path_whatever_is_in_it(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    file = folder / "status.json"
    done = run(PLAYBOOK, tmp_path, folder, file)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text(encoding="utf-8")) == {"is": "there"}
    assert [path.name for path in folder.iterdir()] == ["status.json"], "temporary files go with the playbook"
    assert not list(tmp_path.rglob("ran"))
    assert not (ROOT / "ran").exists()


@pytest.mark.parametrize("length", [59, 60])
def test_a_socket_fits_into_the_folder_for_temporary_files(length: int, tmp_path: Path) -> None:
    """The path of a UNIX socket has 103 characters at most on macOS, four more on Linux."""
    with TemporaryDirectory(dir="/tmp") as short:
        temporary = Path(short) / ("x" * (length - len(short) - 1))
        temporary.mkdir()
        done = run(TEMPORARY, tmp_path, temporary, tmp_path / "file")
        assert done.returncode == 0, done.stderr
        found = Path((tmp_path / "file").read_text(encoding="utf-8"))
        assert len(str(found / "pymp-01234567/listener-01234567")) <= 103
        assert found.is_relative_to(temporary) == (length < 60)
    assert not found.exists()
