"""The making of class data archives, ``scripts.class_archives``, in the background of a lab that has just been set up.

It takes as much processor time as half of a set-up, and gains a tenth of that at each one. So a first set-up does
without, and the programs that make the archives run afterwards, with what the lab leaves them of the processors.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from loosehanger.paths import ROOT, lab_home

NAMES = ("kafka", "connect", "spark")
"""The archives: of Kafka's nodes, Connect's workers and Spark's jobs."""
FOLDER = "training-"
"""How the name of the folder begins that the programs run in, beside the jars."""
_LOCK, _LOG = Path("jars", "training.lock"), Path("jars", "training.log")
BACKGROUND = "--background"
"""The option of ``scripts.class_archives`` for a process that nothing waits for."""
_NICE = 19


def is_made(archive: Path) -> bool:
    """Whether an archive is a program's own: until then it is a link to that of Java's own classes."""
    return archive.exists() and not archive.is_symlink()


def start() -> None:
    """Starts the making of archives that are not made, unless the installation belongs to another checkout."""
    home = lab_home()
    if (home / "jars").is_symlink() or all(is_made(home / f"jars/{name}.jsa") for name in NAMES):
        return
    with contextlib.suppress(OSError), (home / _LOG).open("wb") as log:
        subprocess.run(
            # The shell exits at once, so that nothing waits for the program.
            ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-P", "-m", "scripts.class_archives", BACKGROUND],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def step_back() -> None:
    """Makes this process one of the background: in a session of its own, and after all others on the processors."""
    os.setsid()
    os.nice(_NICE)


@contextlib.contextmanager
def only_one(home: Path) -> Iterator[bool]:
    """Whether no other process makes archives now; within, no other one does."""
    with (home / _LOCK).open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield True


def stop(home: Path) -> None:
    """Stops the making of archives, if any is under way, and deletes what it was made in."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), (home / _LOCK).open(encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = int(lock.read())
            # In the background it leads a group of its own, with the programs that it runs.
            (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
            fcntl.flock(lock, fcntl.LOCK_SH)  # It is released as soon as the process is gone.
    for left in (home / "jars").glob(f"{FOLDER}*"):
        shutil.rmtree(left, ignore_errors=True)
