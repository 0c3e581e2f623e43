"""Processes under supervisor, with one supervisord for each region.

A digest of the files that a process reads is part of its definition, so that supervisor sees changes and restarts only
the changed processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import psutil
from supervisor.xmlrpc import SupervisorTransport

from loosehanger.errors import ExitCode, LabError
from loosehanger.files import make_folder, short_path, write_file
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.stack_traces import innermost_cause
from loosehanger.waiting import wait_for

MARK = "LAB_REGION_FOLDER"
"""The environment variable that identifies a region's processes, however they were started."""

RELAY, ZOOKEEPER, BROKER, WORKER, OPERATOR, PROGRAM = 50, 90, 100, 200, 300, 400
"""Start order; processes stop in reverse."""
RELAY_MODULE = "loosehanger.platforms.local.relay"
"""The module that a link's relay runs."""

_MANAGER_LOG = "supervisor.log"
_SOCKET = "supervisor.sock"
_SOCKET_OF_THE_MANAGER = f"/proc/self/cwd/{_SOCKET}"
"""supervisord requires an absolute path, and a socket's path may have 107 bytes: so the path leads through its working
directory, the region's folder. A symbolic link in the temporary folder would be short too, but supervisord deletes its
socket when it stops, and by then another user may have recreated the link."""
_ENDED_STATES = ("STOPPED", "EXITED", "FATAL")
_STOP_SECONDS = 330
"""Seconds that processes may take to stop, more than a manifest may give one before it is killed."""
_LOOK_SECONDS = 0.05
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "PYTHONPYCACHEPREFIX", "TZ", "USER")
"""Variables that programs inherit from the set-up's environment; the others may hold secrets."""
_CONFIGURATION = f"""\
[unix_http_server]
file={_SOCKET_OF_THE_MANAGER}
chmod=0600
[supervisord]
logfile=logs/{_MANAGER_LOG}
logfile_maxbytes=5MB
logfile_backups=1
pidfile=supervisor.pid
nocleanup=true
umask=077
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[include]
files=programs/*.conf
"""


@dataclass(frozen=True)
class Process:
    """One program with one or more replicas."""

    name: str
    command: Sequence[str]
    priority: int
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    """The digest of everything the program reads at its start."""
    copies: int = 1
    stop_seconds: int = 15
    """Seconds it may take to stop before it is killed."""
    tools: Path | None = None
    """A folder of commands that come before those of the process manager's PATH."""

    def script(self, region: LocalRegion) -> str:
        """Returns the shell script that becomes the program.

        Words of a command and of its environment may have any character: supervisor's configuration has no line
        breaks, and takes what follows a blank and a semicolon or number sign for a comment. The environment is on no
        command line, which every user of the machine could read.
        """
        environment = {**self.environment, "TMPDIR": str(region.temporary)}
        return "\n".join(
            [
                *([f'export PATH={shlex.quote(str(self.tools))}:"$PATH"'] if self.tools else []),
                *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
                f"cd {shlex.quote(str(self.directory))} && exec {shlex.join(self.command)}",
                "",
            ]
        )

    def render(self, region: LocalRegion) -> str:
        """Returns its section of supervisor's configuration; the mark is in supervisor's own environment."""
        several = self.copies > 1
        copy = ',LAB_COPY="%(process_num)d"' if several else ""
        return "\n".join(
            [
                f"[program:{self.name}]",
                f"command=/bin/sh programs/{self.name}.sh",
                f'environment=LAB_DIGEST="{digest(self.digest, self.script(region))}"{copy}',
                f"priority={self.priority}",
                f"numprocs={self.copies}",
                *(["process_name=%(program_name)s-%(process_num)d"] if several else []),
                "autostart=true",
                "autorestart=true",
                "startsecs=1",
                "startretries=1000000",
                f"stopwaitsecs={self.stop_seconds}",
                "stopsignal=TERM",
                "stopasgroup=true",
                "killasgroup=true",
                "redirect_stderr=true",
                f"stdout_logfile=logs/{self.name}{'-%(process_num)d' if several else ''}.log",
                "stdout_logfile_maxbytes=10MB",
                "stdout_logfile_backups=2",
                "",
            ]
        )


def digest(*contents: str | bytes) -> str:
    """Returns a short digest of the files that a program reads."""
    together = hashlib.sha256()
    for content in contents:
        together.update(content.encode() if isinstance(content, str) else content)
        together.update(b"\0")
    return together.hexdigest()[:16]


def run(region: LocalRegion, process: Process, *, when: bool = True) -> bool:
    """Defines and starts a process; True when that changed anything.

    Args:
        region: the region.
        process: the process.
        when: False to remove it instead.
    """
    return bool(run_together(region, [process if when else replace(process, copies=0)]))


def run_together(region: LocalRegion, wanted: Sequence[Process]) -> set[str]:
    """Defines and starts processes, and removes those without a copy; those that end or restart stop all at once.

    Returns:
        The names of the processes that were changed.
    """
    kept = [process for process in wanted if process.copies]
    changed = remove(region, [process.name for process in wanted if not process.copies])
    if not kept:
        return changed
    make_folder(region.temporary)
    for process in kept:
        write_file(_program_file(region, process.name, ".sh"), process.script(region))
        if write_file(_program_file(region, process.name), process.render(region)):
            changed.add(process.name)
    if _ensure_supervisor(region):
        changed |= {process.name for process in kept}
    with _supervisor(region) as supervisor:
        changed |= _update(region, supervisor)
        names = {process.name for process in kept}
        for info in supervisor.getAllProcessInfo():
            if info["group"] in names and info["statename"] in _ENDED_STATES:
                _ignoring_faults(supervisor.startProcess, f"{info['group']}:{info['name']}", False)
                changed.add(info["group"])
    return changed


def restarts(region: LocalRegion, process: Process) -> bool:
    """Whether ``run`` would restart the process, because it is defined in another way."""
    path = _program_file(region, process.name)
    return path.exists() and path.read_text(encoding="utf-8") != process.render(region)


def remove(region: LocalRegion, names: Iterable[str]) -> set[str]:
    """Stops processes, all at once, and removes their definitions; returns the names of those that were there."""
    wanted = set(names)
    found = {name for name in wanted if _program_file(region, name).exists()}
    for name in found:
        _program_file(region, name).unlink()
        _program_file(region, name, ".sh").unlink(missing_ok=True)
    if wanted and is_supervised(region):
        with _supervisor(region) as supervisor:
            # An interrupt here leaves a deleted file, and no more.
            known = {info["group"] for info in supervisor.getAllProcessInfo()} & wanted
            if known:
                _stop(region, supervisor, known)
                _update(region, supervisor)
            found |= known
    return found


@dataclass(frozen=True)
class ProcessState:
    """supervisor's status of one process."""

    group: str
    name: str
    state: str
    """RUNNING, STARTING, BACKOFF, STOPPED, EXITED, FATAL …"""
    pid: int
    seconds: int
    """Seconds it has been running."""
    log: Path
    ended: int = 0
    """When it last ended, in seconds since the epoch; 0 while it runs, or if it never ended."""

    @property
    def frozen(self) -> bool:
        """Whether a signal such as SIGSTOP holds it, so that it runs and does nothing."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in ("T", "t")


def states(region: LocalRegion) -> list[ProcessState]:
    """Returns every process of the region; empty when its supervisor is not running."""
    if not is_supervised(region):
        return []
    with _supervisor(region) as supervisor:
        return [
            ProcessState(
                info["group"],
                info["name"],
                info["statename"],
                info["pid"],
                max(0, info["now"] - info["start"]) if info["pid"] else 0,
                region.folder / info["stdout_logfile"],
                0 if info["pid"] else info["stop"],
            )
            for info in supervisor.getAllProcessInfo()
        ]


def stop_everything(region: LocalRegion, bound: float) -> bool:
    """Stops every process of the region, supervised or left behind; True when there was one.

    Processes stop in order, each within its own bound; those left after ``bound`` seconds are killed.

    Raises:
        LabError: a process survived that too.
    """
    ours = marked_processes(region)
    if not ours:
        return False
    if is_supervised(region):
        with contextlib.suppress(OSError, Fault, LabError), _supervisor(region) as supervisor:
            supervisor.shutdown()
    else:
        for process in ours:
            _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + bound
    _left_after(ours, bound)
    # Processes started in the meantime carry the mark too.
    while left := [*marked_processes(region)]:
        for process in left:
            _signal(process, signal.SIGKILL)
        _left_after(left, 5)
        if time.monotonic() > deadline + 15:
            pids = ", ".join(str(process.pid) for process in left)
            raise LabError(f"{region.name}: processes {pids} do not stop; kill them and run this again")
    return True


@dataclass(frozen=True)
class Killed:
    """The killing of a region's processes."""

    at_ms: int
    """When the first process was killed, in milliseconds since the epoch."""
    processes: int


def kill_everything(region: LocalRegion) -> Killed | None:
    """Kills every process of the region at once, like a power cut; None when there was none.

    The process manager is killed first, because it would restart the others. The relays survive, because other regions
    use them.

    Raises:
        LabError: a process does not stop.
    """
    ours = [process for process in marked_processes(region) if not _is_relay(process)]
    if not ours:
        return None
    # The process manager is the one whose parent is not among the others.
    pids = {process.pid for process in ours}
    ours.sort(key=lambda process: process.ppid() in pids)
    at_ms = time.time_ns() // 1_000_000
    for process in ours:
        _signal(process, signal.SIGKILL)
    if left := _left_after(ours, 10):
        alive = ", ".join(str(process.pid) for process in left)
        raise LabError(f"{region.name}: processes {alive} do not stop; kill them and run this again")
    return Killed(at_ms, len(ours))


def send_signal(region: LocalRegion, program: str, number: int) -> int:
    """Sends a signal to a program of the region, and to no process without the region's mark.

    Returns:
        The number of its processes that got it.
    """
    pids = {state.pid for state in states(region) if state.group == program and state.pid}
    ours = [process for process in marked_processes(region) if process.pid in pids]
    for process in ours:
        _signal(process, number)
    return len(ours)


def halt(region: LocalRegion, program: str) -> None:
    """Stops a program, and keeps its definition; it stays stopped until ``resume`` or until it is applied again.

    Raises:
        LabError: it does not stop in time.
    """
    if not is_supervised(region):
        return
    with _supervisor(region) as supervisor:
        _stop(region, supervisor, [program], bound=60)


def resume(region: LocalRegion, program: str) -> None:
    """Starts a program that was halted; a program that runs or is not defined stays as it is.

    Raises:
        LabError: the region has no process manager.
    """
    if not is_supervised(region):
        raise LabError(f"{region.name}: nothing is running; run the set-up again")
    with _supervisor(region) as supervisor:
        _ignoring_faults(supervisor.startProcessGroup, program, False)


def _left_after(ours: Sequence[psutil.Process], bound: float) -> list[psutil.Process]:
    """Waits until processes have ended; returns those that have not after ``bound`` seconds."""
    deadline, left = time.monotonic() + bound, list(ours)
    while left and time.monotonic() < deadline:
        _, running = psutil.wait_procs(left, timeout=_LOOK_SECONDS)
        left = [process for process in running if not _has_ended(process)]
    return left


def _has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended; its parent need not have noticed, as a container's first process may never do."""
    try:
        # Other threads of one whose first thread has ended still hold its ports and files.
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() == 1
    except psutil.NoSuchProcess:
        return True


def _is_relay(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return RELAY_MODULE in process.cmdline()
    return False


def marked_processes(*regions: LocalRegion) -> list[psutil.Process]:
    """Returns this user's processes that carry the mark of one of the regions, except this one and its ancestors."""
    marks = {str(region.folder) for region in regions}
    own = {process.pid for process in [psutil.Process(), *psutil.Process().parents()]}
    found = []
    for process in psutil.process_iter():
        if process.pid in own:
            continue
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) in marks and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Exits:
    """Detects the programs of a region that refuse their settings from now on.

    The process manager restarts them so quickly that only its log has their exit codes.
    """

    def __init__(self, region: LocalRegion) -> None:
        self._log = region.logs / _MANAGER_LOG
        self._begin = self._log.stat().st_size if self._log.exists() else 0

    def refusing(self) -> set[str]:
        """Returns the names of the processes that exited with the code for wrong use."""
        text = self._log.read_bytes() if self._log.exists() else b""
        new = text[self._begin if len(text) >= self._begin else 0 :].decode(errors="replace")
        return set(re.findall(rf" exited: (\S+) \(exit status {ExitCode.WRONG_USE:d};", new))


def connections(pid: int) -> list[Any]:
    """Returns the TCP connections and listening sockets of a process and its children."""
    found: list[Any] = []
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                found += one.net_connections(kind="tcp")
    return found


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


_TAIL_BYTES = 65536
_LOG_ENTRY = re.compile(r"\d{4}-\d\d-\d\d \S+ (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_IN_THREAD = re.compile(r'Exception in thread "[^"]*" ')
_EXCEPTION = re.compile(r"(Caused by: )?[a-z]\w*(\.\w+)*\.[A-Z][\w$]*(: |$)")
_ERROR_LINE = re.compile(r'error: |\d{4}-\d\d-\d\d \S+ (ERROR|FATAL) |Exception in thread "')
_ENDED = re.compile(r" (?P<what>exited|stopped): (?P<name>\S+) \((?:terminated by (?P<signal>\w+))?")
"""How supervisor logs the end of a process."""
_JVM_REFUSES = re.compile(r"Error: Could not create the Java Virtual Machine")


def tail(path: Path) -> str:
    """Returns a program's last error, or its last line if there was none, with the path of its log.

    Of an error with a stack trace it is the exception at the bottom. Log4j's line above the trace only names the
    consequence, such as "Stopping due to error".
    """
    lines = _last_lines(path)
    return f"{_last_error(lines) or ''.join(lines[-1:]).strip() or 'nothing yet'} ({path})"


def ending(process: ProcessState) -> str:
    """Returns why a process ended: the signal that killed it, or its last error with the path of its log.

    What a program logged before it was stopped or killed is not the reason. Empty where nothing is known.
    """
    endings = [
        found
        for line in _last_lines(process.log.parent / _MANAGER_LOG)
        if (found := _ENDED.search(line)) and found["name"] == process.name
    ]
    if endings and endings[-1]["what"] == "stopped":
        return "it was stopped"
    if endings and (signal_name := endings[-1]["signal"]):
        return f"it was killed by {signal_name}"
    error = _last_error(_last_lines(process.log))
    return f"{error} ({process.log})" if error else ""


def _last_lines(path: Path) -> list[str]:
    """The lines at the end of a log that are not blank; none where it cannot be read."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []


def _last_error(lines: list[str]) -> str:
    for place in reversed(range(len(lines))):
        if _JVM_REFUSES.match(lines[place]):
            return lines[max(0, place - 1)].strip()
        if not _ERROR_LINE.match(lines[place]):
            continue
        if lines[place].startswith("error: "):
            return lines[place].strip()
        trace = list(takewhile(lambda line: not _LOG_ENTRY.match(line), lines[place + 1 :]))
        exceptions = [line for line in trace if _EXCEPTION.match(line)]
        if not _LOG_ENTRY.match(lines[place]):
            exceptions.insert(0, _IN_THREAD.sub("", lines[place]))
        return (innermost_cause("\n".join(exceptions)) or lines[place]).strip()
    return ""


def _program_file(region: LocalRegion, name: str, suffix: str = ".conf") -> Path:
    return region.folder / "programs" / f"{name}{suffix}"


@contextlib.contextmanager
def _supervisor(region: LocalRegion) -> Iterator[Any]:
    with short_path(region.folder, _SOCKET) as path:
        transport = SupervisorTransport(None, None, serverurl=f"unix://{path}")
        try:
            with ServerProxy("http://127.0.0.1", transport=transport) as proxy:
                yield proxy.supervisor
        finally:
            transport.close()


def is_supervised(region: LocalRegion) -> bool:
    """Whether the region's process manager is running."""
    try:
        with short_path(region.folder, _SOCKET) as path, socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
    except OSError:
        return False
    return True


def _ensure_supervisor(region: LocalRegion) -> bool:
    if is_supervised(region):
        return False
    # Processes whose supervisor was killed would hold ports and files.
    stop_everything(region, bound=10)
    make_folder(region.logs)
    (region.folder / _SOCKET).unlink(missing_ok=True)
    write_file(region.folder / "supervisor.conf", _CONFIGURATION)
    subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-m", "supervisor.supervisord", "-c", "supervisor.conf"],
        cwd=region.folder,
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {MARK: str(region.folder)},
        umask=0o077,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        start_new_session=True,
    )
    log = region.logs / _MANAGER_LOG
    wait_for(lambda: None if is_supervised(region) else tail(log), 20, f"{region.name}: process manager")
    return True


def _stop(region: LocalRegion, supervisor: Any, groups: Collection[str], bound: float = _STOP_SECONDS) -> None:
    """Stops groups of processes, all at once, within ``bound`` seconds."""

    def stopping() -> str | None:
        names = [
            info["name"]
            for info in supervisor.getAllProcessInfo()
            if info["group"] in groups and info["statename"] not in _ENDED_STATES
        ]
        return ", ".join(names) or None

    for name in groups:
        _ignoring_faults(supervisor.stopProcessGroup, name, False)
    # supervisor kills each process that does not stop within its own bound.
    wait_for(stopping, bound, f"{region.name}: stopping processes")


def _update(region: LocalRegion, supervisor: Any) -> set[str]:
    """Makes supervisor reload its configuration and apply the changes; returns the names of what differed."""
    added, changed, removed = supervisor.reloadConfig()[0]
    _stop(region, supervisor, [*removed, *changed])
    for name in [*removed, *changed]:
        _ignoring_faults(supervisor.removeProcessGroup, name)
    for name in [*changed, *added]:
        _ignoring_faults(supervisor.addProcessGroup, name)
    return {*added, *changed, *removed}


def _ignoring_faults(method: Callable[..., Any], *arguments: Any) -> None:
    # A fault here means that the process already is in the desired state.
    with contextlib.suppress(Fault):
        method(*arguments)
