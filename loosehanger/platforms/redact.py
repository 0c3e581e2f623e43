"""Redacts secrets from files that leave the machine."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path

from loosehanger.files import write_file

SHORTEST = 8
"""Shorter secrets would match parts of ordinary words."""
MASK = b"***"
_KEY = re.compile(rb"-----BEGIN ((?:[A-Z0-9]+ )*PRIVATE KEY)-----(?:[A-Za-z0-9+/=:,>|#\s-]|\\[nr])*?-----END \1-----")
"""A private key with any prefix or separator of its lines: blanks, or line breaks in JSON's form."""
UNREAD = "unread-secrets.txt"
"""A file in a region's part of a bundle: why its secrets could not be redacted."""


def redact_folder(folder: Path, secrets: Iterable[bytes]) -> None:
    """Replaces every secret in every file of a folder, in plain text and in base64."""
    values = {value.strip() for value in secrets}
    values |= {base64.b64encode(value) for value in values}
    found = sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
    for path in folder.rglob("*"):
        if path.is_file():
            data = before = path.read_bytes()
            for value in found:
                data = data.replace(value, MASK)
            data = _KEY.sub(MASK, data)
            if data != before:
                path.write_bytes(data)


def say_unread(folder: Path, reason: str) -> None:
    """Notes that secrets could not be read, so that the bundle leaves out the files that may hold them."""
    write_file(folder / UNREAD, f"{reason}\n")
