"""The control room's jobs: the kit's own proof and aggregates, as child processes, one at a time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loosehanger.console.models import JobState, PastProof, Step, VerdictOfClaim
from loosehanger.errors import WrongUseError
from loosehanger.files import write_file
from loosehanger.paths import ROOT

MOST_LINES = 30
MOST_PROOFS = 100
"""Past proofs that are kept."""
MOST_REPORTS = 10
"""Past proofs whose report is kept."""
MOST_CLAIMS, MOST_WORDS = 50, 300
"""Claims that are kept of a past proof, and characters of each."""
MOST_BYTES = 32 * 1024 * 1024
BOUND_S = 1800.0
PAST = "proofs.jsonl"
"""The file with the proofs that were run from this console, the latest first."""
VERDICTS = {0: "done", 1: "done", 4: "done"}
"""The proof's exit codes with a verdict."""


class BusyError(WrongUseError):
    """Another job is running."""


class Jobs:
    """The running job, and the last outcome of each.

    Args:
        home: the lab's home; None where it is on another machine.
    """

    def __init__(self, home: Path | None) -> None:
        self.home = home
        self._folder = home / "artifacts" / "console" if home else None
        self._running: tuple[str, float, asyncio.Task[None]] | None = None
        self._progress: deque[str] = deque(maxlen=MOST_LINES)
        self._steps: deque[Step] = deque(maxlen=MOST_LINES)
        self._states: dict[str, JobState] = {}

    def state(self, name: str) -> JobState:
        """A job's state: ``proof`` or ``aggregates``."""
        if self.home is None:
            return _state(
                name, "unavailable", "The lab's home is on another machine: run ./lab prove and ./lab aggregate there"
            )
        if self._running and self._running[0] == name:
            started = self._running[1]
            return _state(
                name, "running", "It is running", started=started, seconds=time.time() - started,
                progress=list(self._progress), steps=list(self._steps),
            )  # fmt: skip
        if name not in self._states:
            self._states[name] = self._recall(name)
        return self._states[name]

    def start(self, name: str) -> None:
        """Starts a job.

        Raises:
            BusyError: one is running.
            WrongUseError: it cannot run here.
        """
        self.require_free()
        self._progress.clear()
        self._steps.clear()
        self.occupy(name, self._run(name))

    def require_free(self) -> None:
        """Checks that a job may start.

        Raises:
            BusyError: one is running.
            WrongUseError: it cannot run here.
        """
        if self.home is None or self._folder is None:
            raise WrongUseError(self.state("proof").explanation)
        if self._running:
            raise BusyError(f"the {self._running[0]} job is running; wait until it is done")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def occupy(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Does some work as the running job, after ``require_free``."""
        task = asyncio.create_task(work)
        self._running = (name, time.time(), task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._running and self._running[2] is task:
            self._running = None

    @property
    def running(self) -> tuple[str, float] | None:
        """The name of the running job, and when it began."""
        return self._running[:2] if self._running else None

    def report(self, which: str = "") -> str | None:
        """A proof's report, if it is still kept.

        Args:
            which: its id; empty for the last one.
        """
        which = which or self.state("proof").report_id
        path = self._page(which) if self._folder and which else None
        return path.read_text(encoding="utf-8") if path and path.exists() else None

    def past(self) -> list[PastProof]:
        """The proofs that were run from here, the latest first."""
        found = [] if self._folder is None else _read_past(self._folder / PAST)
        return [one.model_copy(update={"report": self._page(one.id).exists()}) for one in found]

    def _page(self, which: str) -> Path:
        assert self._folder is not None
        return self._folder / f"proof-{which}.html"

    def _remember(self, which: str, state: JobState) -> None:
        """Adds a proof to the past ones, and deletes the oldest."""
        assert self._folder is not None
        document = state.result or {}
        claims = document.get("claims")
        verdicts = [
            VerdictOfClaim(**{name: str(claim.get(name, ""))[:MOST_WORDS] for name in ("id", "says", "verdict")})
            for claim in (claims if isinstance(claims, list) else [])[:MOST_CLAIMS]
            if isinstance(claim, dict)
        ]
        latest = PastProof(
            id=which,
            started=state.started or 0.0,
            seconds=state.seconds or 0.0,
            verdict=str(document.get("verdict", "failed"))[:MOST_WORDS],
            explanation=state.explanation[:MOST_WORDS],
            claims=verdicts,
            report=state.report,
        )
        past = [latest, *_read_past(self._folder / PAST)][:MOST_PROOFS]
        write_file(self._folder / PAST, "".join(f"{one.model_dump_json()}\n" for one in past))
        kept = {self._page(one.id) for one in past[:MOST_REPORTS]}
        for path in self._folder.glob("proof-*.html"):
            if path not in kept:
                path.unlink(missing_ok=True)

    async def close(self) -> None:
        """Stops the running job, and waits until it has stopped."""
        if self._running:
            task = self._running[2]
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self, name: str) -> None:
        assert self._folder is not None
        started = time.time()
        which = str(round(started * 1000))
        page = self._page(which)
        commands = {"proof": ("prove", "--json", "--report", str(page)), "aggregates": ("aggregate", "--json")}
        try:
            exit_code, output = await self._child(commands[name])
            result = _document(output)
        except (OSError, TimeoutError) as error:
            exit_code, result = None, None
            self._progress.append(f"{type(error).__name__}: {error}")
        finally:
            self._running = None
            self._end_step(time.time() - started)
        ended = exit_code in (VERDICTS if name == "proof" else {0: "done"}) and result is not None
        last = self._progress[-1] if self._progress else "it reported nothing"
        self._states[name] = state = _state(
            name,
            "done" if ended else "failed",
            "" if ended else f"The job failed without a result (exit code {exit_code}): {last}",
            started=started,
            seconds=time.time() - started,
            progress=list(self._progress),
            steps=list(self._steps),
            exit_code=exit_code,
            result=result,
            report=name == "proof" and ended and page.exists(),
            report_id=which if name == "proof" and ended and page.exists() else "",
        )
        write_file(self._folder / f"{name}.json", state.model_dump_json())
        if name == "proof":
            self._remember(which, state)

    async def _child(self, arguments: Sequence[str]) -> tuple[int, bytes]:
        assert self.home is not None
        return await run_kit(self.home, arguments, self._follow)

    async def _follow(self, stream: asyncio.StreamReader) -> None:
        while chunk := await read_line(stream):
            if text := chunk.decode(errors="replace").strip():
                self._progress.append(text[:500])
                self._step(text[:500])

    def _step(self, said: str) -> None:
        """Records a line of progress: as a new step, or as an update of the current one."""
        now = time.time() - (self._running[1] if self._running else time.time())
        last = self._steps[-1] if self._steps else None
        if last and last.said.partition(":")[0] == said.partition(":")[0]:
            self._steps[-1] = last.model_copy(update={"said": said})
        else:
            self._end_step(now)
            self._steps.append(Step(said=said, begun=round(now, 1), seconds=None))

    def _end_step(self, now: float) -> None:
        if self._steps and self._steps[-1].seconds is None:
            last = self._steps[-1]
            self._steps[-1] = last.model_copy(update={"seconds": round(max(0.0, now - last.begun), 1)})

    def _recall(self, name: str) -> JobState:
        path = self._folder / f"{name}.json" if self._folder else None
        if path and path.exists():
            with suppress(ValueError, OSError):
                return JobState.model_validate_json(path.read_text(encoding="utf-8"))
        return _state(name, "never", "It has not run from here yet")


async def run_kit(
    home: Path, arguments: Sequence[str], follow: Callable[[asyncio.StreamReader], Awaitable[None]]
) -> tuple[int, bytes]:
    """Runs a command of ``./lab``; returns its exit code and its standard output.

    Args:
        home: the lab's home.
        arguments: the command.
        follow: reads its standard error to the end.

    Raises:
        OSError: it cannot be run, or prints too much.
        TimeoutError: it did not exit in time, and was stopped.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "loosehanger.cli", *arguments,
        cwd=ROOT,
        env={**os.environ, "LAB_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # It starts Java as a child: a process group stops both together.
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(BOUND_S):
            output, _ = await asyncio.gather(_read(process.stdout), follow(process.stderr))
            return await process.wait(), output
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


def _read_past(path: Path) -> list[PastProof]:
    """The proofs of a file, one a line; a line that cannot be read, such as another version's, is skipped."""
    found = []
    with suppress(OSError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                found.append(PastProof.model_validate_json(line))
    return found


async def read_line(stream: asyncio.StreamReader) -> bytes:
    """Returns the next line, or that it was too long; empty at the end."""
    try:
        return await stream.readline()
    except ValueError:  # A line longer than the stream's limit.
        return b"(a very long line)\n"


async def _read(stream: asyncio.StreamReader) -> bytes:
    parts, size = [], 0
    while chunk := await stream.read(65536):
        size += len(chunk)
        if size > MOST_BYTES:
            raise OSError(f"its answer is longer than {MOST_BYTES} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _document(output: bytes) -> dict[str, object] | None:
    try:
        document = json.loads(output)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _state(name: str, state: str, explanation: str, **more: object) -> JobState:
    fields = {"started": None, "seconds": None, "progress": [], "exit_code": None, "result": None, **more}
    return JobState.model_validate({"name": name, "state": state, "explanation": explanation, **fields})
