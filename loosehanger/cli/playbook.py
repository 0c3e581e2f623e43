"""Running a playbook: with the lab's Ansible, one at a time, and with exit codes that say what happened."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from loosehanger.errors import LabError, WrongUseError
from loosehanger.paths import ROOT, lab_home


def run_playbook(playbook: str, arguments: Sequence[str], *, quiet: bool = False) -> None:
    """Runs a playbook of the kit; returns when it succeeded.

    Args:
        playbook: its path from the checkout.
        arguments: further arguments for ``ansible-playbook``.
        quiet: show nothing but errors.

    Raises:
        WrongUseError: the input cannot be used; nothing was changed.
        LabError: the work failed.
        KeyboardInterrupt: it was interrupted.
    """
    home = lab_home()
    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder) / "outcome"
        environment = {
            **os.environ,
            "LAB_HOME": str(home),
            "LAB_OUTCOME": str(outcome),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(home / "ansible"),
            # Ansible refuses to start where the locale is not UTF-8.
            "LC_ALL": "C.UTF-8",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        }
        command = [sys.executable, "-P", "-m", "ansible", "playbook", str(ROOT / playbook), *arguments]
        with _only_one(home), _passing_signals_on() as started:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(process)
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line.rstrip())
                if not quiet:
                    sys.stderr.write(line)
            process.wait()
        failures = [json.loads(line) for line in outcome.read_text().splitlines()] if outcome.exists() else []
    if process.returncode == 0:
        return
    if process.returncode in (99, 130, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    if not failures:
        errors = [line for line in said if re.match(r"\[?(ERROR|ansible-playbook: error)", line)] or said
        reason = re.sub(r"^\[?(ERROR|ansible-playbook: error)\]?:? *", "", errors[-1]) if errors else "no reason given"
        raise WrongUseError(f"Ansible refuses to run {playbook}: {reason}")
    messages = "; ".join(dict.fromkeys(failure["message"] for failure in failures))
    if all(failure["wrong_use"] for failure in failures):
        raise WrongUseError(messages)
    raise LabError(messages)


@contextlib.contextmanager
def _only_one(home: Path) -> Iterator[None]:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / "playbook.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LabError("another set-up or clean-up of this lab is running; wait for it to end") from error
        yield


@contextlib.contextmanager
def _passing_signals_on() -> Iterator[list[subprocess.Popen[str]]]:
    """Lets the playbook end itself when this process is told to end."""
    started: list[subprocess.Popen[str]] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        for process in started:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
