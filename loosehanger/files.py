"""Files and folders that only their owner can read."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_file(path: Path, content: str | bytes, mode: int = 0o600) -> bool:
    """Writes a file atomically; True when it is new or its content differs.

    Missing folders are created for the owner only.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return False
    make_folder(path.parent)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    Path(temporary).chmod(mode)
    Path(temporary).replace(path)
    return True


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, readable by the owner only."""
    if not path.exists():
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def remove_folder(path: Path) -> None:
    """Deletes a folder and everything in it, if it exists."""
    if path.exists():
        shutil.rmtree(path)


@contextlib.contextmanager
def short_path(folder: Path, name: str) -> Iterator[str]:
    """A path of a file by way of its open folder: a socket's may have 107 bytes, and a folder's may have more.

    Unlike another working directory, it is for this thread only.

    Raises:
        OSError: the folder cannot be opened.
    """
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)
