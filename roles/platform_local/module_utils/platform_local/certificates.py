"""A certificate authority for each cluster, and what it signs. Names and keys are those of the operators' secrets."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .region import LOOPBACK, Region
from .secret_store import read_secret, write_secret

ORGANISATION = "io.strimzi"
DAY = datetime.timedelta(days=1)


def ensure_authority(region: Region, cluster: str, validity_days: int) -> bool:
    """Makes the cluster's certificate authority unless it has one; True when it was made."""
    if (region.secrets / f"{cluster}-cluster-ca").is_dir():
        return False
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"cluster-ca v0 of {cluster}")
    certificate = (
        _builder(name, name, key.public_key(), validity_days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_secret(region, f"{cluster}-cluster-ca-cert", {"ca.crt": _pem(certificate)})
    write_secret(region, f"{cluster}-cluster-ca", {"ca.key": _private_pem(key)})
    return True


def ensure_certificate(
    region: Region, cluster: str, secret: str, common_name: str, dns_names: Sequence[str], validity_days: int
) -> bool:
    """Makes a certificate for server and client use, signed by the cluster's authority, unless the secret has one.

    The secret gets ``tls.crt``, ``tls.key`` and ``keystore.pem`` (key and chain in one, as Kafka reads it), and for
    programs that know no PEM ``keystore.p12`` and ``truststore.p12``, with the password in ``store.password``.
    ``localhost`` and the loopback address are always among the certificate's names.

    Returns:
        True when it was made: because it was missing, for other names, or signed by another authority.
    """
    authority = x509.load_pem_x509_certificate(read_secret(region, f"{cluster}-cluster-ca-cert")["ca.crt"])
    alternatives = x509.SubjectAlternativeName(
        [
            *(x509.DNSName(name) for name in dict.fromkeys([*dns_names, "localhost"])),
            x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
        ]
    )
    if (region.secrets / secret).is_dir():
        present = x509.load_pem_x509_certificate(read_secret(region, secret)["tls.crt"])
        names = present.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if names == alternatives and _signed_by(present, authority):
            return False
    authority_key = serialization.load_pem_private_key(
        read_secret(region, f"{cluster}-cluster-ca")["ca.key"], password=None
    )
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(common_name), authority.subject, key.public_key(), validity_days)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    password = secrets.token_urlsafe(24).encode()
    encryption = serialization.BestAvailableEncryption(password)
    trusted = [pkcs12.PKCS12Certificate(authority, b"ca")]
    return write_secret(
        region,
        secret,
        {
            "tls.crt": _pem(certificate),
            "tls.key": _private_pem(key),
            "keystore.pem": _private_pem(key) + _pem(certificate) + _pem(authority),
            "keystore.p12": pkcs12.serialize_key_and_certificates(b"tls", key, certificate, [authority], encryption),
            "truststore.p12": pkcs12.serialize_java_truststore(trusted, encryption),
            "store.password": password,
        },
    )


def principal(common_name: str) -> str:
    """The Kafka principal of a certificate made here."""
    return f"User:CN={common_name},O={ORGANISATION}"


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # the library raises ValueError, TypeError or InvalidSignature: all mean no
        return False
    return True


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity_days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + validity_days * DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
