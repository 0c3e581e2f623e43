"""Output files of a job, written atomically."""

from __future__ import annotations

import secrets
from pathlib import Path

from loosehanger.errors import LabError


def write(path: Path, text: str) -> None:
    """Writes the text as UTF-8, atomically: a reader sees the old file or the new one, never half of it.

    Raises:
        LabError: the folder does not exist or cannot be written to.
    """
    # Beside it, since a rename is atomic only within one file system.
    # Its name cannot be guessed, so no other user can put a link there that leads elsewhere.
    temporary = path.with_name(f".{secrets.token_hex(16)}")
    try:
        try:
            with temporary.open("x", encoding="utf-8", errors="replace", newline="\n") as file:
                file.write(text)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LabError(f"{path}: cannot be written: {reason}; name a file in a folder that you may write to") from error
