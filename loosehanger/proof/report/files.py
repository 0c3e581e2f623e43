"""Output files of a job, written atomically."""

from __future__ import annotations

from pathlib import Path

from loosehanger.errors import LabError
from loosehanger.files import replacing


def write(path: Path, content: str | bytes) -> None:
    """Writes bytes, or a text as UTF-8, atomically: a reader sees the old file or the new one, never half of it.

    Raises:
        LabError: the folder does not exist or cannot be written to.
    """
    try:
        with replacing(path, None) as file:
            file.write(content.encode("utf-8", "replace") if isinstance(content, str) else content)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LabError(f"{path}: cannot be written: {reason}; name a file in a folder that you may write to") from error
