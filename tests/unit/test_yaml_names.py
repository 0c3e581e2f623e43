"""The two endings of YAML files, each where its readers expect it."""

from __future__ import annotations

import re
import subprocess

from loosehanger.paths import ROOT

YML = re.compile(
    r"roles/[^/]+/(defaults|handlers|meta|tasks|vars)/"  # as Ansible's documentation names them
    r"|molecule/[^/]+/(?!.*/)|\.config/molecule/"  # the steps that Molecule runs
    r"|tests/kubernetes/recorder/"  # a role
    r"|monitoring/(prometheus|alertmanager)\.yml$"  # the defaults of these two programs
)
"""Where a file ends in ``.yml``; all others end in ``.yaml``, as Kubernetes has it."""


def test_each_yaml_file_has_the_ending_of_its_place() -> None:
    command = ["git", "ls-files", "*.yml", "*.yaml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [path for path in listed if path.endswith(".yml") != bool(YML.match(path))] == []
