"""Files that a job leaves for people and other programs: whole, or not there."""

from __future__ import annotations

import os
from pathlib import Path

from loosehanger.errors import LabError


def write(path: Path, text: str) -> None:
    """Writes the text as UTF-8, in one step: a reader sees the old file or the new one, never half of it.

    Raises:
        LabError: the folder is not there or cannot be written to.
    """
    # Beside it, since only within one file system is renaming one step.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            temporary.write_text(text, encoding="utf-8", errors="replace", newline="\n")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LabError(f"{path}: cannot be written: {reason}; name a file in a folder that you may write to") from error
