"""Runs playbooks: with the lab's Ansible, one at a time, and with the kit's errors and exit codes."""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from loosehanger.cli.port_base import with_port_base
from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.progress import LOCK, VARIABLES
from loosehanger.paths import ROOT, lab_home
from loosehanger.process_lifetime import end_with_parent
from loosehanger.waiting import wait_for

NARRATE = "LAB_NARRATE"
"""The environment variable by which the callback plugin names each task as it begins."""
_DEFECT = 250
"""ansible-core's exit code for an unexpected error."""
_GIVEN_UP_S = 10
"""How long an interrupted Ansible may take to exit. It hangs if it has killed a worker that held a lock."""
_SHORT_TEMPORARY = "/tmp"  # noqa: S108 - a folder in it is the user's alone
_LONGEST_TEMPORARY = 59
"""Characters of a folder with room for /tmpXXXXXXXX/pymp-XXXXXXXX/listener-XXXXXXXX; macOS takes 103 for a socket."""
_END_SECONDS = 3
"""How long a killed Ansible may take to exit and to release the lab's lock."""


def run_playbook(
    playbook: str,
    arguments: Sequence[str],
    *,
    quiet: bool = False,
    narrate: bool = False,
    paths: Mapping[str, Path] | None = None,
    variables: Sequence[str] | None = None,
    pass_signal: Callable[[int, int], object] | None = None,
) -> None:
    """Runs a playbook of the kit, and returns when it has succeeded.

    Args:
        playbook: its path in the checkout.
        arguments: further arguments for ``ansible-playbook``.
        quiet: show only errors.
        narrate: show, on standard error, the name of each task as it begins.
        paths: variables that are paths. With -e, Ansible would render templates in them, and split them at blanks.
        variables: the variables to record for later stages; None for those of the record.
        pass_signal: passes a signal on to the commands of ``./lab`` that its tasks run, given the id of Ansible's
            process and the signal, for Ansible gives tasks a session. Such commands take the lab's lock themselves.

    Raises:
        WrongUseError: the input is invalid; nothing was changed.
        LabError: the work failed.
        KeyboardInterrupt: it was interrupted.
    """
    home = lab_home()
    with tempfile.TemporaryDirectory(dir=_temporary()) as folder:
        outcome = Path(folder) / "outcome"
        environment = _environment(home, folder, outcome)
        if variables is not None:
            environment[VARIABLES] = json.dumps(list(variables))
        if narrate:
            environment[NARRATE] = "1"
        command = [sys.executable, "-P", "-m", "ansible", "playbook", str(ROOT / playbook), *arguments]
        if paths:
            file = Path(folder) / "paths.yaml"
            file.write_text("".join(f"{name}: !unsafe {json.dumps(str(path))}\n" for name, path in paths.items()))
            command += ["-e", f"@{file}"]
        with contextlib.nullcontext() if pass_signal else only_one(home) as lock, _passing_signals_on() as running:
            running.pass_signal = pass_signal
            code, output = _run(command, environment, lock, running, quiet=quiet, narrate=narrate)
        failures = [json.loads(line) for line in outcome.read_text().splitlines()] if outcome.exists() else []
    if code == 0:
        return
    if running.interrupted or code in (99, 130, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    if not failures:
        raise _refused(playbook, code, output)
    messages = "; ".join(dict.fromkeys(failure["message"] for failure in failures))
    if all(failure["wrong_use"] for failure in failures):
        raise WrongUseError(messages)
    raise LabError(messages)


def _temporary() -> str:
    """The folder for temporary files, or a shorter one: since 2.21 Ansible has a UNIX socket in a folder of its own."""
    given = tempfile.gettempdir()
    usable = len(given) <= _LONGEST_TEMPORARY or not os.access(_SHORT_TEMPORARY, os.W_OK | os.X_OK)
    return given if usable else _SHORT_TEMPORARY


def _environment(home: Path, folder: str, outcome: Path) -> dict[str, str]:
    """The environment for Ansible.

    Args:
        home: the lab's home.
        folder: for temporary files.
        outcome: the file in which the callback plugin lists failures.
    """
    return {
        **with_port_base(os.environ, home),
        "LAB_HOME": str(home),
        "LAB_OUTCOME": str(outcome),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_HOME": str(home / "ansible"),
        # Ansible refuses to start where the locale is not UTF-8.
        "LC_ALL": "C.UTF-8",
        # Its workers leave keys for a Kubernetes cluster, and facts about it, in temporary files.
        "TMPDIR": folder,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    lock: int | None,
    running: _Running,
    *,
    quiet: bool,
    narrate: bool = False,
) -> tuple[int, list[str]]:
    """Runs Ansible; returns its exit code, negative for a signal, and the lines of its standard error."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if narrate else subprocess.DEVNULL if quiet else None,
        stderr=subprocess.PIPE,
        text=True,
        # A child that outlives this process keeps the lock.
        pass_fds=[] if lock is None else [lock],
        # A terminal's Ctrl-C would reach it twice, directly and from here, and the second one kills it.
        process_group=0,
        # While it imports modules, Python may lose any other signal.
        preexec_fn=partial(end_with_parent, signal.SIGKILL),
    )
    running.process = process
    if running.interrupted:
        running.stop(signal.SIGINT)
    assert process.stderr is not None
    output = []
    for line in process.stderr:
        output.append(line.rstrip())
        # The errors of an interrupted Ansible are about itself.
        if not quiet and not running.interrupted:
            sys.stderr.write(line)
    return process.wait(), output


def _refused(playbook: str, code: int, output: Sequence[str]) -> LabError:
    """The error for a run of Ansible that failed without a failed task."""
    errors = [line for line in output if re.match(r"\[?(ERROR|ansible-playbook: error)", line)] or output
    reason = re.sub(r"^\[?(ERROR|ansible-playbook: error)\]?:? *", "", errors[-1]) if errors else "no reason given"
    if code < 0:
        return LabError(f"Ansible was killed by signal {-code} while it ran {playbook}; run it again")
    if code == _DEFECT:
        return LabError(f"Ansible failed at {playbook}: {reason}")
    return WrongUseError(f"Ansible refuses to run {playbook}: {reason}")


@contextlib.contextmanager
def only_one(home: Path, *, shared: bool = False) -> Iterator[int]:
    """The lab's lock, as a file descriptor.

    Args:
        home: the lab's home.
        shared: for reading, beside other readers.

    Raises:
        LabError: a set-up or clean-up is running.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / LOCK).open("w") as lock:

        def taken() -> str | None:
            try:
                fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
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
    """A running playbook, and whether it was interrupted."""

    process: subprocess.Popen[str] | None = None
    interrupted: bool = False
    pass_signal: Callable[[int, int], object] | None = None
    """Passes a signal on to the commands of its tasks."""

    def stop(self, number: int) -> None:
        """Sends it a signal, and kills it if it does not exit."""
        self.interrupted = True
        if self.process:
            if self.pass_signal:
                self.pass_signal(self.process.pid, number)
            self.process.send_signal(number)
            giving_up = threading.Timer(_GIVEN_UP_S, self.process.kill)
            giving_up.daemon = True
            giving_up.start()


@contextlib.contextmanager
def _passing_signals_on() -> Iterator[_Running]:
    """Passes signals of this process on to the playbook, which then stops cleanly."""
    running = _Running()

    def pass_on(number: int, _: FrameType | None) -> None:
        running.stop(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # Some terminals stop a background process group that writes to them.
    before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield running
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
