"""The join code of a room: 24 characters to type, which identify the room's certificate and let a learner report.

Sixteen characters are the beginning of the certificate's SHA-256 (80 bits), so that a learner's machine recognises the
collector without a certificate authority. Eight are the room's secret (40 bits), which is sent to that collector only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from loosehanger.errors import WrongUseError

FINGERPRINT_BYTES, SECRET_BYTES = 10, 5
_LENGTH = (FINGERPRINT_BYTES + SECRET_BYTES) * 8 // 5
_MISREAD = str.maketrans("018", "OIB")
"""Digits that a code never has, and the letters that were misread as them."""


@dataclass(frozen=True)
class Invitation:
    """The content of a join code. ``secret`` is not in ``repr``."""

    fingerprint: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, certificate: bytes, secret: bytes) -> Invitation:
        """Makes the invitation of a room.

        Args:
            certificate: in DER.
            secret: of ``SECRET_BYTES``.
        """
        return cls(hashlib.sha256(certificate).digest()[:FINGERPRINT_BYTES], secret)

    @property
    def code(self) -> str:
        """The join code, in groups of four."""
        text = base64.b32encode(self.fingerprint + self.secret).decode()
        return "-".join(text[at : at + 4] for at in range(0, len(text), 4))

    def recognises(self, certificate: bytes | None) -> bool:
        """Whether a server's certificate, in DER, is the room's."""
        return certificate is not None and hmac.compare_digest(
            self.fingerprint, hashlib.sha256(certificate).digest()[:FINGERPRINT_BYTES]
        )


def read_code(text: str) -> Invitation:
    """Reads a join code, in any case and with or without its hyphens.

    Raises:
        WrongUseError: it is not one.
    """
    letters = re.sub(r"[\s-]", "", text).upper().translate(_MISREAD)
    if len(letters) != _LENGTH or not re.fullmatch(r"[A-Z2-7]+", letters):
        raise WrongUseError(f"'{text[:60]}' is not a join code; it has {_LENGTH} letters and digits, in groups of four")
    raw = base64.b32decode(letters)
    return Invitation(raw[:FINGERPRINT_BYTES], raw[FINGERPRINT_BYTES:])


@dataclass(frozen=True)
class RoomAddress:
    """Where a room's collector listens, and its invitation."""

    host: str
    port: int
    invitation: Invitation


def read_room_url(url: str) -> RoomAddress:
    """Reads ``https://HOST:PORT/CODE``.

    Raises:
        WrongUseError: it is not such an address.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme != "https" or not host or port is None or parts.query or parts.username:
        raise WrongUseError(
            f"--report-to: '{url[:100]}' is not the address of a room, https://HOST:PORT/CODE; "
            "./lab learn --collect prints it"
        )
    return RoomAddress(host, port, read_code(parts.path.strip("/")))
