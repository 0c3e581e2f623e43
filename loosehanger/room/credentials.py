"""What a room's collector keeps in the lab's home: its certificate and key, its secret, and the page's password."""

from __future__ import annotations

import ipaddress
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from loosehanger.files import remove_folder, write_file
from loosehanger.learn.invitation import SECRET_BYTES, Invitation

FOLDER = "room"
VALID_DAYS = 30


@dataclass(frozen=True)
class RoomCredentials:
    """The credentials of a room. Its secrets are not in ``repr``."""

    certificate: Path
    key: Path
    password: str = field(repr=False)
    """The password of the page."""
    password_file: Path
    invitation: Invitation


def room_credentials(home: Path, host: str, *, new: bool = False) -> RoomCredentials:
    """Reads the credentials of the last room, whose learners need not join again, or makes new ones.

    Args:
        home: the lab's home.
        host: the address in the certificate.
        new: makes new ones in any case, so that the join code of the last room is not valid any more.
    """
    folder = home / FOLDER
    names = [folder / name for name in ("certificate.pem", "key.pem", "secret", "password")]
    if new or not all(path.exists() for path in names) or _expires(names[0]):
        remove_folder(folder)
        certificate, key = _make(host)
        secret, password = secrets.token_hex(SECRET_BYTES).encode(), secrets.token_urlsafe(12).encode()
        for path, content in zip(names, (certificate, key, secret, password), strict=True):
            write_file(path, content)
    der = x509.load_pem_x509_certificate(names[0].read_bytes()).public_bytes(Encoding.DER)
    invitation = Invitation.of(der, bytes.fromhex(names[2].read_text(encoding="ascii")))
    return RoomCredentials(names[0], names[1], names[3].read_text(encoding="ascii"), names[3], invitation)


def _expires(certificate: Path) -> bool:
    """Whether a certificate expires within a day, or cannot be read."""
    with suppress(ValueError):
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        return found.not_valid_after_utc < datetime.now(UTC) + timedelta(days=1)
    return True


def _make(host: str) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Loosehanger room")])
    alternative: x509.GeneralName = x509.DNSName(host)
    with suppress(ValueError):
        alternative = x509.IPAddress(ipaddress.ip_address(host))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), encoded
