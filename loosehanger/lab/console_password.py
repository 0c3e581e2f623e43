"""The password of all consoles that a user chose at set-up, instead of a generated one for each."""

from __future__ import annotations

from pathlib import Path

from loosehanger.errors import WrongUseError
from loosehanger.files import write_file

ENVIRONMENT = "LAB_PASSWORD"
SIGNS_IN = "loosehanger-lab/signs-in"
"""The label of the users whose password opens a console."""
LEAST, MOST = 12, 128
"""Characters of a password."""
_REFUSED = " \"'`\\$"
"""What shells and properties files read in their own way."""
CHOSEN_PASSWORD = Path("access", "console.password")
"""The file with a chosen password, in the lab's home."""


def check_password(text: str) -> None:
    """Checks a password that a user chose. No message contains it.

    Raises:
        WrongUseError: it is too short or too long, or has other characters.
    """
    if not LEAST <= len(text) <= MOST:
        raise WrongUseError(f"{ENVIRONMENT}: a password needs {LEAST} to {MOST} characters; this one has {len(text)}")
    if not text.isascii() or not text.isprintable() or set(text) & set(_REFUSED):
        raise WrongUseError(
            f"{ENVIRONMENT}: a password has ASCII letters, digits and punctuation, without blanks, quotes, backslashes "
            "and dollar signs"
        )
    if len(set(text)) < LEAST // 2:
        raise WrongUseError(f"{ENVIRONMENT}: a password needs {LEAST // 2} different characters at least")


def keep_password(home: Path, text: str) -> None:
    """Keeps a password for the set-ups and stages of this lab, in a file that only its owner can read.

    Raises:
        WrongUseError: it cannot be used.
    """
    check_password(text)
    if console_password(home) != text:
        write_file(home / CHOSEN_PASSWORD, text)


def chosen_at(home: Path) -> int:
    """When the password was chosen, in nanoseconds since the epoch; the same password again is not a new choice."""
    return (home / CHOSEN_PASSWORD).stat().st_mtime_ns


def console_password(home: Path) -> str | None:
    """The password that was chosen; None for generated ones."""
    path = home / CHOSEN_PASSWORD
    return path.read_text(encoding="utf-8") if path.is_file() else None
