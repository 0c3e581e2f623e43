"""Certificates for the brokers and clients of tests, all of one key."""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

KEY = ec.generate_private_key(ec.SECP256R1())
AUTHORITY = "authority"
_LIFE = datetime.timedelta(days=1)


def certificate(name: str, issuer: str = AUTHORITY, *, expired: bool = False) -> x509.Certificate:
    """A certificate for 127.0.0.1, which an authority of this name has issued; that of the authority itself, too."""
    now = datetime.datetime.now(datetime.UTC) - (2 * _LIFE if expired else datetime.timedelta(hours=1))
    address = x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(KEY, hashes.SHA256())
    )


def certificate_pem(name: str, issuer: str = AUTHORITY, *, expired: bool = False) -> str:
    """A certificate in PEM."""
    return certificate(name, issuer, expired=expired).public_bytes(Encoding.PEM).decode()


def key_pem() -> str:
    """The private key of all of them in PEM."""
    return KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
