"""Paths that are handed to a playbook: real Ansible, and folders whose names mean something to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
PROGRAM = """\
import sys
from pathlib import Path
from loosehanger.cli.playbook import run_playbook
playbook, inventory, file = sys.argv[1:]
run_playbook(playbook, ["-i", inventory], quiet=True, paths={"status_file": Path(file)})
"""


@pytest.mark.parametrize("name", ["plain", "with a blank", "{{ lookup('pipe', 'touch ran') }}", 'it\'s "quoted"'])
def test_a_path_is_a_path_whatever_is_in_it(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "play.yaml").write_text(PLAYBOOK, encoding="utf-8")
    file = folder / "status.json"
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(tmp_path / "play.yaml"), str(ROOT / "inventories/local"), str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LAB_HOME": str(tmp_path / "home"), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text(encoding="utf-8")) == {"is": "there"}
    assert [path.name for path in folder.iterdir()] == ["status.json"], "temporary files go with the playbook"
    assert not list(tmp_path.rglob("ran"))
    assert not (ROOT / "ran").exists()
