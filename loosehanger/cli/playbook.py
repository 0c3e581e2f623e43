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
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from loosehanger.cli.port_base import with_port_base
from loosehanger.errors import LabError, WrongUseError
from loosehanger.paths import ROOT, lab_home
from loosehanger.process_lifetime import end_with_parent
from loosehanger.waiting import wait_for

_DEFECT = 250
"""ansible-core's exit code for what it did not expect."""
_GIVEN_UP_S = 10
"""How long an interrupted Ansible may take to end. One that has ended a worker while that held a lock never does."""
_END_SECONDS = 3
"""How long what was killed may take to end, and to give up the lab's lock."""


def run_playbook(
    playbook: str, arguments: Sequence[str], *, quiet: bool = False, paths: Mapping[str, Path] | None = None
) -> None:
    """Runs a playbook of the kit; returns when it succeeded.

    Args:
        playbook: its path from the checkout.
        arguments: further arguments for ``ansible-playbook``.
        quiet: show nothing but errors.
        paths: variables that are paths. Ansible would run a template in them, and take what follows a blank for others.

    Raises:
        WrongUseError: the input cannot be used; nothing was changed.
        LabError: the work failed.
        KeyboardInterrupt: it was interrupted.
    """
    home = lab_home()
    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder) / "outcome"
        environment = {
            **with_port_base(os.environ, home),
            "LAB_HOME": str(home),
            "LAB_OUTCOME": str(outcome),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(home / "ansible"),
            # Ansible refuses to start where the locale is not UTF-8.
            "LC_ALL": "C.UTF-8",
            # Its workers leave the keys that they sign in to a Kubernetes cluster with, and what they know of it.
            "TMPDIR": folder,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        }
        command = [sys.executable, "-P", "-m", "ansible", "playbook", str(ROOT / playbook), *arguments]
        if paths:
            file = Path(folder) / "paths.yaml"
            file.write_text("".join(f"{name}: !unsafe {json.dumps(str(path))}\n" for name, path in paths.items()))
            command += ["-e", f"@{file}"]
        with _only_one(home) as lock, _passing_signals_on() as running:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=subprocess.PIPE,
                text=True,
                # Whatever of it outlives this process keeps the lock.
                pass_fds=[lock],
                # A terminal's Ctrl-C would reach it twice, from there and from here; the second one ends it at once.
                process_group=0,
                # Python may lose any other signal, if it comes while it imports.
                preexec_fn=partial(end_with_parent, signal.SIGKILL),
            )
            running.process = process
            if running.interrupted:
                running.tell(signal.SIGINT)
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line.rstrip())
                # What an interrupted Ansible has to say is about itself.
                if not quiet and not running.interrupted:
                    sys.stderr.write(line)
            process.wait()
        failures = [json.loads(line) for line in outcome.read_text().splitlines()] if outcome.exists() else []
    if process.returncode == 0:
        return
    if running.interrupted or process.returncode in (99, 130, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    if not failures:
        errors = [line for line in said if re.match(r"\[?(ERROR|ansible-playbook: error)", line)] or said
        reason = re.sub(r"^\[?(ERROR|ansible-playbook: error)\]?:? *", "", errors[-1]) if errors else "no reason given"
        if process.returncode < 0:
            raise LabError(f"Ansible was ended by signal {-process.returncode} while it ran {playbook}; run it again")
        if process.returncode == _DEFECT:
            raise LabError(f"Ansible failed at {playbook}: {reason}")
        raise WrongUseError(f"Ansible refuses to run {playbook}: {reason}")
    messages = "; ".join(dict.fromkeys(failure["message"] for failure in failures))
    if all(failure["wrong_use"] for failure in failures):
        raise WrongUseError(messages)
    raise LabError(messages)


@contextlib.contextmanager
def _only_one(home: Path) -> Iterator[int]:
    """The lab's lock, as a file descriptor."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / "playbook.lock").open("w") as lock:

        def taken() -> str | None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                return str(error)
            return None

        try:
            wait_for(taken, _END_SECONDS, "the lab's lock")
        except LabError as error:
            raise LabError("another set-up or clean-up of this lab is running; wait for it to end") from error
        yield lock.fileno()


@dataclass
class _Running:
    """A playbook that runs, and whether it was told to end."""

    process: subprocess.Popen[str] | None = None
    interrupted: bool = False

    def tell(self, number: int) -> None:
        """Tells it to end, and ends it if it does not."""
        self.interrupted = True
        if self.process:
            self.process.send_signal(number)
            giving_up = threading.Timer(_GIVEN_UP_S, self.process.kill)
            giving_up.daemon = True
            giving_up.start()


@contextlib.contextmanager
def _passing_signals_on() -> Iterator[_Running]:
    """Lets the playbook end itself when this process is told to end."""
    running = _Running()

    def pass_on(number: int, _: FrameType | None) -> None:
        running.tell(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # Some terminals stop what writes to them from a process group in the background.
    before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield running
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
