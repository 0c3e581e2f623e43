"""One shell, in which the control room runs commands of the lab's text one after the other, as in a terminal.

Variables and programs in the background stay from command to command. Commands have no standard input.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from loosehanger.paths import ROOT

BOUND_S = 1800.0
"""How long a command may take."""
GRACE_S = 10.0
"""How long what is stopped may take to exit."""
MOST_PENDING = 8192
"""Bytes of a line that are kept."""


class KitShell:
    """A bash in the kit's checkout, which starts with the first command.

    Args:
        home: the lab's home.
        folder: where it begins.
        functions: the definitions of functions that its commands use, asked for at its start.
    """

    def __init__(self, home: Path, folder: Path = ROOT, functions: Callable[[], Iterable[str]] = tuple) -> None:
        self._home, self._folder, self._functions = home, folder, functions
        self._bash: asyncio.subprocess.Process | None = None
        self._code = 0
        self._mark = ""

    async def run(self, command: str, said: Callable[[str], object]) -> int | None:
        """Runs a command; returns its exit code, or None if the shell exited with it.

        Args:
            command: a line of the lab's text, or several.
            said: takes each line of its output.

        Raises:
            OSError: there is no bash.
            TimeoutError: it did not exit in time, and was stopped with the shell.
        """
        bash = await self._started()
        assert bash.stdin is not None
        # The exit code of the command before is in $? of this one.
        bash.stdin.write(
            f"{{ __ended {self._code}; eval {shlex.quote(command)}; }} </dev/null; "
            f"printf '\\n%s %d\\n' {self._mark} $?\n".encode()
        )
        try:
            async with asyncio.timeout(BOUND_S):
                await bash.stdin.drain()
                code = await self._read(bash, said)
        except (asyncio.CancelledError, TimeoutError, ConnectionError):
            await self.close()
            raise
        if code is None:
            await self.close()
        self._code = code or 0
        return code

    async def close(self) -> None:
        """Stops the shell, and every program that it left running."""
        bash, self._bash = self._bash, None
        if bash is None:
            return
        self._signal(bash, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(bash.wait(), GRACE_S)
        self._signal(bash, signal.SIGKILL)
        await bash.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._bash is None or self._bash.returncode is not None:
            self._code, self._mark = 0, secrets.token_hex(16)
            self._bash = await asyncio.create_subprocess_exec(
                "bash", "--noprofile", "--norc",
                cwd=self._folder,
                env={**os.environ, "LAB_HOME": str(self._home), "NO_COLOR": "1", "TERM": "dumb"},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                # A process group, so that what it started stops with it.
                start_new_session=True,
            )  # fmt: skip
            assert self._bash.stdin is not None
            # Only commands are stopped by a signal of the group; the shell waits for them.
            definitions = ["__ended() { return $1; }", *self._functions()]
            self._bash.stdin.write("".join(f"{one}\n" for one in definitions).encode())
        return self._bash

    async def _read(self, bash: asyncio.subprocess.Process, said: Callable[[str], object]) -> int | None:
        """Passes lines on until the command's exit code; None if there is none."""
        assert bash.stdout is not None
        pending, mark = b"", self._mark.encode()
        while chunk := await bash.stdout.read(65536):
            *lines, pending = (pending + chunk).split(b"\n")
            pending = pending[-MOST_PENDING:]
            for line in lines:
                before, found, code = line.partition(mark + b" ")
                if text := before.decode(errors="replace").rstrip():
                    said(text[-MOST_PENDING:])
                if found:
                    return int(code)
        return None

    @staticmethod
    def _signal(bash: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(bash.pid, number)
