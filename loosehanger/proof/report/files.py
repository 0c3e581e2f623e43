"""Output files of a job, written atomically."""

from __future__ import annotations

import secrets
from pathlib import Path

from loosehanger.errors import LabError


def write(path: Path, content: str | bytes) -> None:
    """Writes bytes, or a text as UTF-8, atomically: a reader sees the old file or the new one, never half of it.

    Raises:
        LabError: the folder does not exist or cannot be written to.
    """
    # Beside it, since a rename is atomic only within one file system.
    # Its name cannot be guessed, so no other user can put a link there that leads elsewhere.
    temporary = path.with_name(f".{secrets.token_hex(16)}")
    try:
        try:
            with temporary.open("xb") as file:
                file.write(content.encode("utf-8", "replace") if isinstance(content, str) else content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LabError(f"{path}: cannot be written: {reason}; name a file in a folder that you may write to") from error
