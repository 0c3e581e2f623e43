"""Small file systems in memory, for a disk that is full; only a user who may mount can have one."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

from loosehanger.errors import LabError

SOURCE = "loosehanger-fault"
"""What the list of mounts names as the source of one."""
_COMMAND_S = 60
_ESCAPED = re.compile(r"\\([0-7]{3})")
"""A blank and the like in a path of that list."""


def mount_memory(folder: Path, size: int) -> None:
    """Mounts a file system in memory.

    Args:
        folder: where; it exists and is empty.
        size: how many bytes it holds.

    Raises:
        LabError: this user may not, or this system has no such file system.
    """
    run("mount", "-t", "tmpfs", "-o", f"size={size},mode=700", SOURCE, str(folder))


def unmount(folder: Path) -> None:
    """Unmounts what is mounted in a folder, at once, even if a program uses it.

    Raises:
        LabError: this user may not.
    """
    run("umount", "--lazy", str(folder))


def unmount_all(home: Path) -> None:
    """Unmounts everything that ``mount_memory`` has mounted in a folder or below, as far as this user may."""
    with contextlib.suppress(OSError, LabError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            source, where, *_ = line.split()
            place = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), where))
            if source == SOURCE and place.is_relative_to(home.resolve()):
                unmount(place)


def run(*command: str) -> None:
    """Runs a command of the system.

    Raises:
        LabError: it failed; the message is its last words.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise LabError(done.stderr.strip() or f"{command[0]}: exit code {done.returncode}")
