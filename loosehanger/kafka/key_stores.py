"""Trust stores and key stores of client properties, read into PEM, which both clients take: Python's and Java's.

The type of a store is seen in the file: Java's own default, ``JKS``, opens PKCS#12 as well. Java's ``keytool`` reads
what no maintained library of Python's does.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from loosehanger.errors import WrongUseError
from loosehanger.kafka.properties import certificates
from loosehanger.paths import caller_path, lab_home

KEY_STORE = ("ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key")
"""The properties that name a client certificate."""
SHOWS_CERTIFICATE = "shows_certificate"
"""The attribute of a context that shows a client certificate: Python's own have no way to ask for it."""
_KEYTOOL_S = 60
_STORE_PASSWORD, _KEY_PASSWORD, _NEW_PASSWORD = "LAB_STORE_PASSWORD", "LAB_KEY_PASSWORD", "LAB_NEW_PASSWORD"
"""Environment variables of ``keytool``: passwords must not show in the process table."""
_ENTRY = re.compile(r"^Alias name: (.*)$", re.MULTILINE)
_PRIVATE_KEY = "Entry type: PrivateKeyEntry"
_PEM_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PEM_KEY = re.compile(r"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.DOTALL)


@dataclass(frozen=True)
class ClientCertificate:
    """What a client shows to a broker that asks for a certificate (mutual TLS)."""

    chain: str
    """Its certificate in PEM, followed by those of its authorities."""
    key: str = field(repr=False)
    """Its private key in PEM: PKCS#8, not encrypted."""

    @property
    def subject(self) -> str:
        """Its subject, as brokers know its user."""
        from cryptography.x509 import load_pem_x509_certificate  # slow to import

        return load_pem_x509_certificate(self.chain.encode()).subject.rfc4514_string()

    def load_into(self, context: ssl.SSLContext) -> None:
        """Makes a context show this certificate.

        Raises:
            OSError: there is no room for a temporary file.
        """
        # Python reads them from a file only; this one is readable by its owner alone, and deleted at once.
        with tempfile.NamedTemporaryFile("w", encoding="ascii", suffix=".pem") as file:
            file.write(f"{self.chain}{self.key}")
            file.flush()
            context.load_cert_chain(file.name)
        setattr(context, SHOWS_CERTIFICATE, True)

    def java(self) -> dict[str, str]:
        """The properties for a Java client."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": self.chain,
            "ssl.keystore.key": self.key,
        }


def trusting_context(ca_file: Path | None, ca_certificates: str | None) -> ssl.SSLContext:
    """A client's TLS context; without authorities of its own it trusts those of the machine.

    Python 3.13 is stricter than Java's clients and than Python before it: it refuses certificates without key
    identifiers, which many companies' authorities issue.

    Args:
        ca_file: the authorities, a file in PEM.
        ca_certificates: the authorities in PEM, in place of a file.

    Raises:
        OSError: the authorities cannot be read; ``ssl.SSLError`` where there is no certificate among them.
    """
    context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None, cadata=ca_certificates)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def read_trust_store(properties: Mapping[str, str], path: str) -> tuple[Path | None, str | None]:
    """Returns the certificate authorities of client properties: a file in PEM, or their PEM; neither for the machine's.

    Args:
        properties: the client properties.
        path: where they stand, for messages.

    Raises:
        WrongUseError: the store cannot be read, or has no certificate.
    """
    location, inline = (properties.get(f"ssl.truststore.{name}", "").strip() for name in ("location", "certificates"))
    if not location and not inline:
        return None, None
    if location and inline:
        raise WrongUseError(f"{path}: ssl.truststore.location and ssl.truststore.certificates exclude each other")
    kind = _kind(properties, "truststore", path)
    if inline:
        if kind not in ("", "PEM"):
            raise WrongUseError(f"{path}: ssl.truststore.certificates needs ssl.truststore.type=PEM")
        return None, certificates(inline, f"{path}: ssl.truststore.certificates")
    file, where = caller_path(location), f"{path}: ssl.truststore.location"
    if kind == "PEM":
        return file, None  # It may be a path in a pod, where alone it can be read.
    if _format(_content(file, where)) == "PEM":
        return file, None
    listed = _entries(file, properties.get("ssl.truststore.password", ""), f"{path}: ssl.truststore.password")
    # As in Java, an entry with a private key is trusted by its own certificate, and not by its chain.
    found = [
        pem
        for entry in listed.values()
        for pem in _PEM_CERTIFICATE.findall(entry)[: 1 if _PRIVATE_KEY in entry else None]
    ]
    if not found:
        raise WrongUseError(f"{where}: {file} has no certificate")
    return None, certificates("\n".join(found), where)


def read_key_store(properties: Mapping[str, str], path: str) -> ClientCertificate | None:
    """Returns the client certificate of client properties; None where they have none.

    Args:
        properties: the client properties.
        path: where they stand, for messages.

    Raises:
        WrongUseError: the store cannot be read, has no key, or its certificate is not valid now.
    """
    location = properties.get("ssl.keystore.location", "").strip()
    chain, key = (properties.get(f"ssl.keystore.{name}", "").strip() for name in ("certificate.chain", "key"))
    if not (location or chain or key):
        return None
    if location and (chain or key):
        raise WrongUseError(f"{path}: ssl.keystore.location excludes ssl.keystore.certificate.chain and .key")
    if bool(chain) != bool(key):
        missing = "key" if chain else "certificate.chain"
        raise WrongUseError(f"{path}: ssl.keystore.{missing} is missing")
    key_password = properties.get("ssl.key.password", "")
    if not location:
        return _of_pem(f"{chain}\n{key}", key_password, f"{path}: ssl.keystore.key", f"{path}: ssl.key.password")
    _kind(properties, "keystore", path)
    file, where = caller_path(location), f"{path}: ssl.keystore.location"
    content = _content(file, where)
    if _format(content) == "PEM":
        return _of_pem(content.decode("ascii", "replace"), key_password, where, f"{path}: ssl.key.password")
    password, where_password = properties.get("ssl.keystore.password", ""), f"{path}: ssl.keystore.password"
    if not password:
        raise WrongUseError(f"{where_password} is missing")
    if _format(content) == "JKS":
        content, password = _as_pkcs12(file, password, key_password, where, where_password)
    return _of_pkcs12(content, password, where, where_password)


def _kind(properties: Mapping[str, str], store: Literal["truststore", "keystore"], path: str) -> str:
    kind = properties.get(f"ssl.{store}.type", "").strip().upper()
    if kind not in ("", "PEM", "JKS", "PKCS12"):
        raise WrongUseError(f"{path}: ssl.{store}.type: '{kind}' cannot be read; PEM, PKCS12 and JKS can")
    return kind


def _format(content: bytes) -> Literal["PEM", "JKS", "PKCS12"]:
    if content[:4] in (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"):
        return "JKS"
    # PKCS#12 begins as the figure 0 does, with which a text before the first certificate may begin, too.
    return "PKCS12" if content[:1] == b"\x30" and b"-----BEGIN" not in content else "PEM"


def _content(file: Path, where: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise WrongUseError(f"{where}: {file} cannot be read ({error.strerror})") from error


def _of_pem(text: str, password: str, where: str, where_password: str) -> ClientCertificate:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # slow to import

    found = _PEM_KEY.search(_lines(text))
    if found is None:
        raise WrongUseError(f"{where}: has no private key in PEM (-----BEGIN PRIVATE KEY-----)")
    is_encrypted = "ENCRYPTED" in found[0]
    if is_encrypted and not password:
        raise WrongUseError(f"{where_password} is missing, and the private key is encrypted")
    try:
        key = load_pem_private_key(found[0].encode(), password.encode() if is_encrypted else None)
    except (ValueError, TypeError) as error:
        reason = f"{where_password}: does not decrypt the private key" if is_encrypted else f"{where}: no private key"
        raise WrongUseError(reason) from error
    return _checked(certificates(text, where), key, where)


def _lines(text: str) -> str:
    """A PEM key that a property has in one line, in lines again."""
    return re.sub(
        r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)([A-Za-z0-9+/=\s]*)(-----END [A-Z ]*PRIVATE KEY-----)",
        lambda found: f"{found[1]}\n{_wrapped(found[2])}\n{found[3]}",
        text,
    )


def _wrapped(body: str) -> str:
    joined = "".join(body.split())
    return "\n".join(joined[start : start + 64] for start in range(0, len(joined), 64))


def _of_pkcs12(content: bytes, password: str, where: str, where_password: str) -> ClientCertificate:
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12  # slow to import

    try:
        key, own, others = pkcs12.load_key_and_certificates(content, password.encode())
    except ValueError as error:
        if "password" in str(error).lower():
            raise WrongUseError(f"{where_password}: does not open the key store") from error
        raise WrongUseError(f"{where}: is not a key store in PKCS#12, JKS or PEM") from error
    if key is None or own is None:
        raise WrongUseError(f"{where}: has no private key with a certificate")
    return _checked("".join(one.public_bytes(Encoding.PEM).decode() for one in (own, *others)), key, where)


def _checked(chain: str, key: object, where: str) -> ClientCertificate:
    """The certificate, if the key belongs to it and it is valid now: brokers say little about either."""
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
    from cryptography.x509 import load_pem_x509_certificate

    private: PrivateKeyTypes = key  # type: ignore[assignment]
    try:
        own = load_pem_x509_certificate(chain.encode())
    except ValueError as error:
        raise WrongUseError(f"{where}: its certificate cannot be read") from error
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if own.public_key().public_bytes(*form) != private.public_key().public_bytes(*form):
        raise WrongUseError(f"{where}: the private key does not belong to the first certificate")
    now, ends = datetime.now(UTC), own.not_valid_after_utc
    if ends < now:
        raise WrongUseError(f"{where}: the certificate of {own.subject.rfc4514_string()} expired on {ends:%Y-%m-%d}")
    if own.not_valid_before_utc > now:
        begins = own.not_valid_before_utc
        raise WrongUseError(
            f"{where}: the certificate of {own.subject.rfc4514_string()} is valid from {begins:%Y-%m-%d} on"
        )
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return ClientCertificate(chain, pem)


def _entries(file: Path, password: str, where_password: str) -> dict[str, str]:
    """What ``keytool`` lists of a store's entries, by their aliases."""
    secret = {_STORE_PASSWORD: password} if password else {}
    given = ["-storepass:env", _STORE_PASSWORD] if password else []
    done = _keytool(["-list", "-rfc", "-keystore", str(file), *given], secret, where_password)
    found = _ENTRY.split(done)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def _as_pkcs12(file: Path, password: str, key_password: str, where: str, where_password: str) -> tuple[bytes, str]:
    """The first private key of a store, as a store in PKCS#12, and its password."""
    alias = next(
        (name for name, entry in _entries(file, password, where_password).items() if _PRIVATE_KEY in entry), ""
    )
    if not alias:
        raise WrongUseError(f"{where}: has no private key with a certificate")
    new = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "store.p12"
        _keytool(
            [
                *("-importkeystore", "-noprompt", "-srckeystore", str(file), "-srcalias", alias),
                *("-srcstorepass:env", _STORE_PASSWORD, "-srckeypass:env", _KEY_PASSWORD),
                *("-destkeystore", str(made), "-deststoretype", "PKCS12"),
                *("-deststorepass:env", _NEW_PASSWORD, "-destkeypass:env", _NEW_PASSWORD),
            ],
            {_STORE_PASSWORD: password, _KEY_PASSWORD: key_password or password, _NEW_PASSWORD: new},
            where_password.replace("keystore.password", "key.password") if key_password else where_password,
        )
        return made.read_bytes(), new


def _keytool(arguments: list[str], secret: Mapping[str, str], where_password: str) -> str:
    """Runs ``keytool``; returns what it prints."""
    homes = (lab_home() / "java", *(Path(home) for home in filter(None, [os.environ.get("JAVA_HOME")])))
    program = next((found for home in homes if (found := home / "bin" / "keytool").exists()), shutil.which("keytool"))
    if program is None:
        raise WrongUseError(
            f"{where_password.rpartition(':')[0]}: reading this store needs Java's keytool; set JAVA_HOME to a Java "
            "runtime, or convert the store to PEM"
        )
    try:
        done = subprocess.run(
            [str(program), "-J-Duser.language=en", "-J-XX:-UsePerfData", *arguments],
            env={name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ} | dict(secret),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_KEYTOOL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WrongUseError(f"{where_password.rpartition(':')[0]}: keytool does not run ({error})") from error
    if done.returncode:
        said = next((line for line in done.stdout.splitlines() if "error" in line.lower()), done.stdout.strip())
        if "password" in said or "UnrecoverableKey" in said:
            raise WrongUseError(f"{where_password}: does not open the store")
        raise WrongUseError(f"{where_password.rpartition(':')[0]}: keytool: {said.removeprefix('keytool error: ')}")
    return done.stdout
