"""Running playbooks through Ansible itself, as ./lab does, in a folder of the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from loosehanger.paths import ROOT, lab_home


def run_playbook(
    folder: Path, *arguments: str, cwd: Path, timeout: float = 300, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``ansible-playbook`` with the kit's configuration.

    Args:
        folder: where Ansible and the lab keep what they write.
        arguments: the playbook, and all else.
        cwd: where it runs.
        timeout: how long it may take, in seconds.
        kubeconfig: in place of the environment's.
    """
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", *arguments],
        cwd=cwd,
        env={
            **os.environ,
            **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(folder / "ansible"),
            "LAB_HOME": str(folder / "lab"),
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(folder),
            "PATH": f"{lab_home()}/venv/bin{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )
