"""A certificate authority for each cluster and its certificates, in secrets with the operators' names and keys."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from loosehanger.errors import LabError
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import read_secret, write_secret
from loosehanger.ports import LOOPBACK

ORGANISATION = "io.strimzi"
DAY = datetime.timedelta(days=1)
Owner = Literal["cluster", "clients"]
"""Whose certificates an authority issues: the nodes' of a cluster, or those of its users."""
NEXT = "next-ca"
"""The end of the name of the secret with an authority that is announced, and signs nothing yet."""
RENEWAL_DAYS = 30
"""Days before expiry at which a certificate is renewed by default, as in Strimzi."""


def ensure_authority(
    region: LocalRegion,
    cluster: str,
    validity_days: int,
    renewal_days: int = RENEWAL_DAYS,
    *,
    generate: bool = True,
    of: Owner = "cluster",
) -> bool:
    """Creates a certificate authority of the cluster if it is missing, and renews its certificate before it expires.

    A renewed authority keeps its key and its name. So a client that trusts either certificate trusts what both sign,
    and clients need not be updated at the same moment.

    Args:
        region: the region.
        cluster: the cluster of the authority.
        validity_days: how long its certificate is valid.
        renewal_days: how long before expiry it is renewed; at most half of its validity.
        generate: whether the kit creates and renews it. Otherwise it must exist.
        of: whose certificates it issues: the nodes', or those of users.

    Returns:
        True when it was created or renewed.

    Raises:
        LabError: it does not exist, and the manifest does not let the kit create it.
    """
    secrets_ = [f"{cluster}-{of}-ca", f"{cluster}-{of}-ca-cert"]
    if missing := [name for name in secrets_ if not (region.secrets / name).is_dir()]:
        if not generate:
            raise LabError(
                f"{region.name}: Kafka/{cluster}: spec.{of}Ca.generateCertificateAuthority is false, and there is "
                f"no secret '{missing[0]}' with an authority to use"
            )
        issue_authority(region, cluster, ec.generate_private_key(ec.SECP256R1()), validity_days, of)
        return True
    if not generate or not _ends_soon(_authority(region, cluster, of), validity_days, renewal_days):
        return False
    issue_authority(region, cluster, authority_key(region, cluster, of), validity_days, of)
    return True


def issue_authority(
    region: LocalRegion, cluster: str, key: ec.EllipticCurvePrivateKey, validity_days: int, of: Owner = "cluster"
) -> None:
    """Issues the authority's certificate for this key, valid from now on."""
    certificate = _self_signed(f"{of}-ca v0 of {cluster}", key, validity_days)
    write_secret(region, f"{cluster}-{of}-ca-cert", {"ca.crt": _pem(certificate)})
    write_secret(region, f"{cluster}-{of}-ca", {"ca.key": _private_pem(key)})


def announce_authority(region: LocalRegion, cluster: str, validity_days: int = 365) -> x509.Certificate:
    """Creates the authority that will follow a cluster's own, unless there is one, and has clients trust both.

    Its key and certificate are in the secret ``<cluster>-next-ca``. Its certificate also follows the present one in the
    secret that clients are given, so those that are updated before the change do not notice it. It has the name of the
    present authority, as a renewed one has in Strimzi, and another key.

    Raises:
        LabError: the cluster has no authority.
    """
    secret, trusted = f"{cluster}-{NEXT}", f"{cluster}-cluster-ca-cert"
    present = read_secret(region, trusted)
    if not (region.secrets / secret).is_dir():
        key = ec.generate_private_key(ec.SECP256R1())
        made = _self_signed(f"cluster-ca v0 of {cluster}", key, validity_days)
        write_secret(region, secret, {"ca.key": _private_pem(key), "ca.crt": _pem(made)})
    announced = read_secret(region, secret)["ca.crt"]
    if announced not in present["ca.crt"]:
        write_secret(region, trusted, {**present, "ca.crt": present["ca.crt"] + announced})
    return x509.load_pem_x509_certificate(announced)


def _self_signed(common_name: str, key: ec.EllipticCurvePrivateKey, validity_days: int) -> x509.Certificate:
    name = _name(common_name)
    return (
        begin_certificate(name, name, key.public_key(), validity_days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def authority_key(region: LocalRegion, cluster: str, of: Owner = "cluster") -> ec.EllipticCurvePrivateKey:
    """Returns the key of an authority of the cluster."""
    key = serialization.load_pem_private_key(read_secret(region, f"{cluster}-{of}-ca")["ca.key"], password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def ensure_certificate(
    region: LocalRegion,
    cluster: str,
    secret: str,
    common_name: str,
    dns_names: Sequence[str],
    validity_days: int,
    renewal_days: int = RENEWAL_DAYS,
) -> bool:
    """Issues a certificate for server and client use, signed by the cluster's authority, unless the secret has one.

    The secret gets ``tls.crt``, ``tls.key`` and ``keystore.pem`` (key and chain in one, as Kafka reads it), and for
    programs without PEM support ``keystore.p12`` and ``truststore.p12``, with the password in ``store.password``.
    ``localhost`` and the loopback address are always among the certificate's names.

    Returns:
        True when it was issued: because it was missing, about to expire, for other names, or not signed by the current
        authority.
    """
    authority = _authority(region, cluster)
    alternatives = x509.SubjectAlternativeName(
        [
            *(x509.DNSName(name) for name in dict.fromkeys([*dns_names, "localhost"])),
            x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
        ]
    )
    soon = partial(_ends_soon, validity_days=validity_days, renewal_days=renewal_days)
    if (region.secrets / secret).is_dir() and _is_current(read_secret(region, secret), authority, alternatives, soon):
        return False
    signer = authority_key(region, cluster)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        begin_certificate(_name(common_name), authority.subject, key.public_key(), validity_days)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return write_secret(region, secret, _stores(key, certificate, authority))


def ensure_user_certificate(
    region: LocalRegion, cluster: str, user: str, validity_days: int, renewal_days: int = RENEWAL_DAYS
) -> bool:
    """Issues a user's certificate, signed by the authority of the cluster's clients, unless its secret has one.

    The secret has the keys that Strimzi's User Operator gives it: ``ca.crt``, ``user.crt`` and ``user.key`` in PEM, and
    ``user.p12`` with the password in ``user.password``.

    Returns:
        True when it was issued: because it was missing, about to expire, or not signed by the current authority.
    """
    authority = _authority(region, cluster, "clients")
    present = read_secret(region, user) if (region.secrets / user).is_dir() else {}
    if {"ca.crt", "user.crt"} <= present.keys() and present["ca.crt"] == _pem(authority):
        certificate = x509.load_pem_x509_certificate(present["user.crt"])
        if _signed_by(certificate, authority) and not _ends_soon(certificate, validity_days, renewal_days):
            return False
    signer = authority_key(region, cluster, "clients")
    key = ec.generate_private_key(ec.SECP256R1())
    # As the operator's, without an organisation: ACLs are for the whole name.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
    certificate = (
        begin_certificate(subject, authority.subject, key.public_key(), validity_days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    password = secrets.token_urlsafe(24).encode()
    encryption = serialization.BestAvailableEncryption(password)
    store = pkcs12.serialize_key_and_certificates(user.encode(), key, certificate, [authority], encryption)
    content = {"ca.crt": _pem(authority), "user.crt": _pem(certificate), "user.key": _private_pem(key)}
    return write_secret(region, user, {**content, "user.p12": store, "user.password": password})


def _is_current(
    data: Mapping[str, bytes],
    authority: x509.Certificate,
    names: x509.SubjectAlternativeName,
    ends_soon: Callable[[x509.Certificate], bool],
) -> bool:
    """Whether a secret has a certificate for these names, of this authority, that does not expire soon."""
    certificate = x509.load_pem_x509_certificate(data["tls.crt"])
    return (
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value == names
        and _signed_by(certificate, authority)
        and data["keystore.pem"].endswith(_pem(authority))
        and not ends_soon(certificate)
    )


def _stores(
    key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, authority: x509.Certificate
) -> dict[str, bytes]:
    """The content of a certificate's secret."""
    password = secrets.token_urlsafe(24).encode()
    encryption = serialization.BestAvailableEncryption(password)
    trusted = [pkcs12.PKCS12Certificate(authority, b"ca")]
    return {
        "tls.crt": _pem(certificate),
        "tls.key": _private_pem(key),
        "keystore.pem": _private_pem(key) + _pem(certificate) + _pem(authority),
        "keystore.p12": pkcs12.serialize_key_and_certificates(b"tls", key, certificate, [authority], encryption),
        "truststore.p12": pkcs12.serialize_java_truststore(trusted, encryption),
        "store.password": password,
    }


def principal(common_name: str) -> str:
    """Returns the Kafka principal of a certificate that this module issues."""
    return f"User:CN={common_name},O={ORGANISATION}"


def _authority(region: LocalRegion, cluster: str, of: Owner = "cluster") -> x509.Certificate:
    return x509.load_pem_x509_certificate(read_secret(region, f"{cluster}-{of}-ca-cert")["ca.crt"])


def _ends_soon(certificate: x509.Certificate, validity_days: int, renewal_days: int) -> bool:
    # Otherwise a certificate valid for less than twice the renewal time would be renewed every time.
    days = min(renewal_days, validity_days // 2)
    return certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC) + days * DAY


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


def begin_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity_days: int
) -> x509.CertificateBuilder:
    """Returns a certificate builder without extensions, valid since yesterday."""
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


def key_usage(*, authority: bool) -> x509.KeyUsage:
    """Returns the key usage of an authority, or of a server and client."""
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
