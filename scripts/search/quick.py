"""Runs a kit's commands without the time that each takes to start: a search runs hundreds of them.

``status`` and ``fault`` are forked from a process that has imported them, so that none affects another. Proofs share
a process with its Spark session. A proof with an unexpected verdict is repeated by the command itself: see
``running.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from loosehanger.errors import ExitCode, run_command
from scripts.sandbox import Kit

_FORKED, _PROOF = "fork", "prove"
_QUICK = {"status": _FORKED, "fault": _FORKED, "prove": _PROOF}
"""The commands that a server runs."""
_IMPORTED = (
    "loosehanger.cli.__main__", "loosehanger.cli.commands", "loosehanger.cli.faults", "loosehanger.cli.retention_risk",
    "loosehanger.cli.status", "loosehanger.platforms.local.platform", "kafka.admin",
)  # fmt: skip
_OUT, _ERR = "stdout", "stderr"


@dataclass
class QuickKit(Kit):
    """A kit whose commands start without delay; ``end`` stops its servers."""

    _servers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, kit: Kit) -> QuickKit:
        """Returns the same kit, with quick commands."""
        return cls(kit.root, kit.home, kit.port_base, kit.environment)

    @property
    def slow(self) -> Kit:
        """The same kit, whose commands are processes of their own."""
        return Kit(self.root, self.home, self.port_base, self.environment)

    def run(self, command: str, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Runs one of the kit's commands.

        Raises:
            TimeoutExpired: it did not end in time, and was killed.
        """
        if command not in _QUICK:
            return super().run(command, *arguments, timeout=timeout)
        kind = _QUICK[command]
        words = [command, *arguments]
        with tempfile.TemporaryDirectory(prefix="lab-quick-") as name:
            folder = Path(name)
            server = self._server(kind)
            assert server.stdin
            assert server.stdout
            with contextlib.suppress(BrokenPipeError):
                server.stdin.write(json.dumps({"words": words, "folder": name}) + "\n")
                server.stdin.flush()
            if not select.select([server.stdout], [], [], timeout)[0]:
                self._kill(kind)
                raise subprocess.TimeoutExpired(words, timeout)
            answer = server.stdout.readline()
            code = int(answer) if answer else self._kill(kind)
            out, err = (_text(folder / stream) for stream in (_OUT, _ERR))
            return subprocess.CompletedProcess(words, code, out, err)

    def end(self) -> None:
        """Stops the servers that run commands."""
        for kind in [*self._servers]:
            self._kill(kind)

    def _server(self, kind: str) -> subprocess.Popen[str]:
        if kind not in self._servers:
            self._servers[kind] = subprocess.Popen(
                [sys.executable, "-P", "-m", "scripts.search.quick", kind],
                cwd=self.root, env=self.variables(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
        return self._servers[kind]

    def _kill(self, kind: str) -> int:
        """Kills a server with what it runs; returns the exit code of a command that was lost with it."""
        server = self._servers.pop(kind)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        for stream in filter(None, (server.stdin, server.stdout)):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return ExitCode.INCONCLUSIVE if kind == _PROOF else ExitCode.FAILED


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def main(kind: str) -> None:
    """Runs the commands that standard input names, one after the other, and writes their exit codes."""
    requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    run = _forks() if kind == _FORKED else _proofs()
    for line in requests:
        request = json.loads(line)
        print(run(request["words"], Path(request["folder"])), file=answers, flush=True)


Run = Callable[[Sequence[str], Path], int]
"""Runs a command, whose output goes into files of a folder; returns its exit code."""


def _forks() -> Run:
    for module in _IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(module)
    command: Callable[[], int] = import_module("loosehanger.cli.__main__").main

    def run(words: Sequence[str], folder: Path) -> int:
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        code = int(ExitCode.FAILED)
        try:
            with _output(folder):
                code = _run(words, command, ExitCode.FAILED)
        finally:
            os._exit(code)

    return run


def _proofs() -> Run:
    from loosehanger.kafka.links import CLIENT
    from loosehanger.paths import lab_home
    from loosehanger.proof import submit

    defaults = submit.arguments().parse_args([_PROOF])
    os.environ[CLIENT] = _PROOF
    os.environ.update(submit.environment(lab_home(), defaults.master, defaults.driver_memory, defaults.conf))
    os.chdir(lab_home())
    command: Callable[[], int] = import_module("loosehanger.jobs.prove").main

    def run(words: Sequence[str], folder: Path) -> int:
        with _output(folder):
            return _run(words, command, ExitCode.INCONCLUSIVE)

    return run


def _run(words: Sequence[str], command: Callable[[], int], failed: ExitCode) -> int:
    # A job's arguments are its options alone, without a command's name.
    sys.argv = ["lab", *(words[1:] if words[0] == _PROOF else words)]
    try:
        return int(run_command(command, failed))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(failed)


@contextlib.contextmanager
def _output(folder: Path) -> Iterator[None]:
    """Sends standard output and error to files in a folder."""
    before = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
        for descriptor, name in ((1, _OUT), (2, _ERR)):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(file, descriptor)
            os.close(file)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, saved in zip((1, 2), before, strict=True):
            os.dup2(saved, descriptor)
            os.close(saved)


if __name__ == "__main__":
    main(sys.argv[1])
