"""Files and folders that only their owner can read."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def write_file(path: Path, content: str | bytes, mode: int = 0o600) -> bool:
    """Writes a file atomically; True when it is new or its content differs.

    Missing folders are created for the owner only.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return False
    make_folder(path.parent)
    with replacing(path, mode) as stream:
        stream.write(data)
    return True


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = 0o600, *, keep: bool = False) -> Iterator[BinaryIO]:
    """Yields a new file that takes a path's place once it is written: a reader sees the old file or the whole new one.

    After an exception the path is as it was, and no temporary file stays.

    Args:
        path: the file to replace, in a folder that exists.
        mode: the new file's; None for what the process's umask leaves of 0666.
        keep: whether a file that another program has put there meanwhile stays.

    Raises:
        OSError: the file cannot be written.
    """
    # Beside it, because a rename is atomic only within one file system. Its name cannot be guessed, so no other user
    # can put a link there that leads elsewhere.
    temporary = path.with_name(f".{os.urandom(16).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        if mode is not None:
            temporary.chmod(mode)
        if keep:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)  # Unlike a rename, it does not replace a file.
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
