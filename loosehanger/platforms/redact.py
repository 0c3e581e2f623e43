"""Taking secrets out of what is going to be shown to somebody else."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path

from loosehanger.files import write_file

SHORTEST = 8
"""What is shorter would also stand in ordinary words."""
MASK = b"***"
_KEY = re.compile(rb"-----BEGIN ((?:[A-Z0-9]+ )*PRIVATE KEY)-----(?:[A-Za-z0-9+/=:,>|#\s-]|\\[nr])*?-----END \1-----")
"""A private key, whatever stands before its lines or between them: blanks, or line breaks as JSON has them."""
UNREAD = "unread-secrets.txt"
"""In a region's part of a bundle: why its secrets could not be taken out."""


def scrub(folder: Path, secrets: Iterable[bytes]) -> None:
    """Replaces every secret in every file of a folder, whether it stands there as it is or in base64."""
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
    """Leaves word that secrets could not be read, for whoever packs the bundle: nothing that may hold them goes in."""
    write_file(folder / UNREAD, f"{reason}\n")
