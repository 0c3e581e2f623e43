"""One bash, in which the commands of a document run one after the other, as in a reader's terminal."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

GRACE_SECONDS = 10.0
"""How long a command that is stopped may take to clean up."""
LOOK_SECONDS = 1.0


class TerminalError(Exception):
    """A command did not exit, or ended the shell."""


class Terminal:
    """A bash without a screen: variables and the folder stay from command to command.

    Args:
        folder: where it begins.
        environment: all of its variables.
        outputs: a folder of its own for what the commands say.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], outputs: Path) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self._outputs = outputs
        self._commands = 0
        self._code = 0
        self._codes, codes = os.pipe()
        self._descriptor = codes
        # A session of its own: what hangs is ended as a group.
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[codes],
        )
        os.close(codes)
        self._write("__ended() { return $1; }")

    def run(self, command: str, seconds: float) -> tuple[int, str]:
        """Runs a command; returns its exit code, and its standard output and error as they came.

        Programs that it leaves running may keep their output: it is a file, whose end is not waited for.

        Raises:
            TerminalError: it took longer, and was ended with all that it had started; or the shell ended with it.
        """
        self._commands += 1
        output = self._outputs / f"{self._commands}.txt"
        # What came before is in $? for the command; the descriptor of the exit codes is not for it to see.
        self._write(
            f"{{ __ended {self._code}; eval {shlex.quote(command)}; }} </dev/null >>{shlex.quote(str(output))} 2>&1 "
            f"{self._descriptor}>&-; echo $? >&{self._descriptor}"
        )
        code = self._next_code(time.monotonic() + seconds)
        said = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
        if code is None:
            alive = self._bash.poll() is None
            self.end()
            why = f"did not end within {seconds:.0f} s, and was ended" if alive else "ended the shell"
            raise TerminalError(f"{why}; it had said:\n{said}")
        self._code = code
        return code, said

    def end(self) -> None:
        """Stops the shell, and every command that it left running."""
        # Some of Ansible's processes leave the group.
        with contextlib.suppress(psutil.NoSuchProcess):
            group = psutil.Process(self._bash.pid).children(recursive=True)
            self._signal(signal.SIGTERM)
            for process in group:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            _, left = psutil.wait_procs(group, timeout=GRACE_SECONDS)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._signal(signal.SIGKILL)
        self._bash.wait()
        if self._bash.stdin and not self._bash.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._bash.stdin.close()
            os.close(self._codes)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, number)

    def _write(self, line: str) -> None:
        assert self._bash.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended, which is seen when its answer is waited for
            self._bash.stdin.write(f"{line}\n".encode())
            self._bash.stdin.flush()

    def _next_code(self, deadline: float) -> int | None:
        """Returns the command's exit code; None if it does not exit in time, or the shell has exited."""
        answer = b""
        while not answer.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if select.select([self._codes], [], [], min(left, LOOK_SECONDS))[0]:
                read = os.read(self._codes, 100)
                if not read:
                    self._bash.wait()
                    return None
                answer += read
            elif self._bash.poll() is not None:
                return None
        return int(answer)
