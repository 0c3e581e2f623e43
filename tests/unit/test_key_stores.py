"""Trust stores and key stores as people have them: PEM, PKCS#12 and JKS, made by Java's own tool."""

from __future__ import annotations

import datetime
import ssl
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.key_stores import trusting_context
from loosehanger.kafka.properties import format_properties
from loosehanger.paths import lab_home

PASSWORD, KEY_PASSWORD = "store-secret", "key-secret"
_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)


def _certificate(
    name: str, key: Any, issuer: str, issuer_key: Any, begins: datetime.datetime, ends: datetime.datetime
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
    )
    return builder.sign(issuer_key, hashes.SHA256())


@cache
def _key(kind: str) -> Any:
    return rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())


@cache
def _made(kind: str = "rsa", begins: int = -1, ends: int = 1) -> tuple[Any, x509.Certificate, x509.Certificate]:
    """A key, its certificate, valid for so many days from now, and that of its authority."""
    authority = _certificate("authority", _key("ec"), "authority", _key("ec"), _NOW - _DAY, _NOW + _DAY)
    own = _certificate("me", _key(kind), "authority", _key("ec"), _NOW + begins * _DAY, _NOW + ends * _DAY)
    return _key(kind), own, authority


def _pem(one: x509.Certificate) -> str:
    return one.public_bytes(Encoding.PEM).decode()


def _key_pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8, password: str = "") -> str:
    hidden = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return str(key.private_bytes(Encoding.PEM, form, hidden).decode())


def _keytool(*arguments: str) -> None:
    tool = lab_home() / "java" / "bin" / "keytool"
    subprocess.run([str(tool), *arguments], check=True, capture_output=True)


def _store(folder: Path, kind: str, key_password: str = PASSWORD) -> Path:
    """A key store of this format, with the chain of two certificates."""
    key, own, authority = _made()
    path = folder / f"keystore.{kind}"
    made = pkcs12.serialize_key_and_certificates(
        b"me", key, own, [authority], BestAvailableEncryption(PASSWORD.encode())
    )
    if kind == "p12":
        path.write_bytes(made)
        return path
    (folder / "source.p12").write_bytes(made)
    _keytool(
        *("-importkeystore", "-noprompt", "-srckeystore", str(folder / "source.p12"), "-srcstorepass", PASSWORD),
        *("-srcalias", "me", "-destkeystore", str(path), "-deststoretype", "JKS", "-deststorepass", PASSWORD),
        *("-destkeypass", key_password),
    )
    return path


def _client(folder: Path, **settings: str) -> Path:
    path = folder / "client.properties"
    given = {name.replace("_", "."): value for name, value in settings.items()}
    path.write_text(
        format_properties({"bootstrap.servers": "a:1", "security.protocol": "SSL", **given}), encoding="utf-8"
    )
    return path


def _read(folder: Path, **settings: str) -> Connection:
    return Connection.from_properties(_client(folder, **settings), {})


def _shows_it(connection: Connection) -> None:
    """Both clients get the whole chain and a key that is not encrypted, and repr shows none of it."""
    key, own, authority = _made()
    assert connection.certificate is not None
    java = connection.java()
    assert x509.load_pem_x509_certificates(java["ssl.keystore.certificate.chain"].encode()) == [own, authority]
    read = load_pem_private_key(java["ssl.keystore.key"].encode(), None)
    assert read.private_numbers() == key.private_numbers()  # type: ignore[union-attr]
    assert java["ssl.keystore.type"] == "PEM"
    assert "PRIVATE KEY" not in repr(connection) + repr(connection.certificate)
    assert isinstance(connection.trust(), ssl.SSLContext)


@pytest.mark.parametrize("kind", ["p12", "jks"])
@pytest.mark.parametrize("named", ["", "JKS", "PKCS12"])
def test_a_key_store_of_javas_is_read(tmp_path: Path, kind: str, named: str) -> None:
    found = _read(
        tmp_path,
        ssl_keystore_location=str(_store(tmp_path, kind)),
        ssl_keystore_password=PASSWORD,
        **({"ssl_keystore_type": named} if named else {}),
    )
    _shows_it(found)


def test_a_key_with_a_password_of_its_own_is_read(tmp_path: Path) -> None:
    store = _store(tmp_path, "jks", KEY_PASSWORD)
    settings = {"ssl_keystore_location": str(store), "ssl_keystore_password": PASSWORD}
    _shows_it(_read(tmp_path, **settings, ssl_key_password=KEY_PASSWORD))
    with pytest.raises(WrongUseError, match=r"ssl\.key\.password: does not open"):
        _read(tmp_path, **settings, ssl_key_password="other-secret")


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", ["", KEY_PASSWORD])
def test_pem_is_read_as_a_file_inline_and_in_one_line(tmp_path: Path, form: PrivateFormat, password: str) -> None:
    key, own, authority = _made()
    chain, private = _pem(own) + _pem(authority), _key_pem(key, form, password)
    (tmp_path / "store.pem").write_text(f"0 s:CN = me\n{private}{chain}")  # as openssl s_client begins
    secret = {"ssl_key_password": password} if password else {}
    _shows_it(_read(tmp_path, ssl_keystore_type="PEM", ssl_keystore_location=str(tmp_path / "store.pem"), **secret))
    inline = {"ssl_keystore_type": "PEM", "ssl_keystore_certificate_chain": chain, "ssl_keystore_key": private}
    _shows_it(_read(tmp_path, **inline, **secret))
    if "Proc-Type" not in private:  # whose headers need lines
        _shows_it(_read(tmp_path, **{name: value.replace("\n", " ") for name, value in inline.items()}, **secret))


def test_librdkafkas_files_are_read(tmp_path: Path) -> None:
    key, own, authority = _made()
    (tmp_path / "me.crt").write_text(_pem(own) + _pem(authority))
    (tmp_path / "me.key").write_text(_key_pem(key, password=KEY_PASSWORD))
    (tmp_path / "ca.crt").write_text(_pem(authority))
    found = _read(
        tmp_path,
        ssl_certificate_location=str(tmp_path / "me.crt"),
        ssl_key_location=str(tmp_path / "me.key"),
        ssl_key_password=KEY_PASSWORD,
        ssl_ca_location=str(tmp_path / "ca.crt"),
    )
    _shows_it(found)
    assert found.ca_file == tmp_path / "ca.crt"


def test_librdkafkas_user_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    lines = (
        "metadata.broker.list=a:1,b:2\nsecurity.protocol=sasl_ssl\nsasl.mechanisms=PLAIN\n"
        'sasl.username=me\nsasl.password=s"ecret\\\\\nssl.endpoint.identification.algorithm=none\n'
    )
    path.write_text(lines, encoding="utf-8")
    warnings: list[str] = []
    found = Connection.from_properties(path, {}, warnings.append)
    assert found.bootstrap_servers == ("a:1", "b:2")
    assert (found.sasl_mechanism, found.username, found.password) == ("PLAIN", "me", 's"ecret\\')
    assert not found.check_host
    assert warnings == []


def test_javas_spelling_comes_before_librdkafkas(tmp_path: Path) -> None:
    assert _read(tmp_path, metadata_broker_list="b:2").bootstrap_servers == ("a:1",)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_trust_store_of_javas_is_read(tmp_path: Path, kind: str) -> None:
    _, _, authority = _made()
    for number, name in enumerate(("one", "two")):
        pem = tmp_path / f"{name}.crt"
        other = _certificate(name, _key("ec"), name, _key("ec"), _NOW - _DAY, _NOW + _DAY)
        pem.write_text(_pem(authority if number else other))
        _keytool(
            *("-importcert", "-noprompt", "-alias", name, "-file", str(pem), "-keystore", str(tmp_path / "trust")),
            *("-storetype", kind, "-storepass", PASSWORD),
        )
    store = {"ssl_truststore_location": str(tmp_path / "trust")}
    found = _read(tmp_path, **store, ssl_truststore_password=PASSWORD)
    assert len(x509.load_pem_x509_certificates((found.ca_certificates or "").encode())) == 2
    assert found.java()["ssl.truststore.type"] == "PEM"
    with pytest.raises(WrongUseError, match=r"ssl\.truststore\.password: does not open") as error:
        _read(tmp_path, **store, ssl_truststore_password="another-secret")
    assert "another-secret" not in str(error.value)


def test_of_a_key_in_a_trust_store_only_its_own_certificate_is_trusted(tmp_path: Path) -> None:
    _, own, _ = _made()
    found = _read(tmp_path, ssl_truststore_location=str(_store(tmp_path, "jks")), ssl_truststore_password=PASSWORD)
    assert x509.load_pem_x509_certificates((found.ca_certificates or "").encode()) == [own]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl_keystore_location": "p12"}, r"ssl\.keystore\.password is missing"),
        ({"ssl_keystore_location": "p12", "ssl_keystore_password": "wrong-one"}, r"keystore\.password: does not open"),
        ({"ssl_keystore_location": "jks", "ssl_keystore_password": "wrong-one"}, r"keystore\.password: does not open"),
        ({"ssl_keystore_location": "p12", "ssl_keystore_key": "x"}, r"location excludes"),
        ({"ssl_keystore_location": "p12", "ssl_keystore_type": "BKS"}, r"'BKS' cannot be read"),
    ],
)
def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    kind = settings["ssl_keystore_location"]
    with pytest.raises(WrongUseError, match=message) as error:
        _read(tmp_path, **settings | {"ssl_keystore_location": str(_store(tmp_path, kind))})
    assert "wrong-one" not in str(error.value)


@pytest.mark.parametrize(
    ("begins", "ends", "message"),
    [(-3, -1, "certificate of CN=me expired on"), (1, 3, "certificate of CN=me is valid from")],
)
def test_a_certificate_that_is_not_valid_now_is_named(tmp_path: Path, begins: int, ends: int, message: str) -> None:
    key, own, _ = _made("rsa", begins, ends)
    with pytest.raises(WrongUseError, match=message):
        _read(tmp_path, ssl_keystore_certificate_chain=_pem(own), ssl_keystore_key=_key_pem(key))


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    _, own, _ = _made()
    with pytest.raises(WrongUseError, match="does not belong to the first certificate"):
        _read(tmp_path, ssl_keystore_certificate_chain=_pem(own), ssl_keystore_key=_key_pem(_key("ec")))


def test_a_key_that_is_encrypted_needs_its_password(tmp_path: Path) -> None:
    key, own, _ = _made()
    inline = {"ssl_keystore_certificate_chain": _pem(own), "ssl_keystore_key": _key_pem(key, password=KEY_PASSWORD)}
    with pytest.raises(WrongUseError, match=r"ssl\.key\.password is missing"):
        _read(tmp_path, **inline)
    with pytest.raises(WrongUseError, match=r"ssl\.key\.password: does not decrypt"):
        _read(tmp_path, **inline, ssl_key_password="wrong-one")


def test_no_file_with_the_key_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store(tmp_path, "jks")
    with TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", None)
        _read(tmp_path, ssl_keystore_location=str(store), ssl_keystore_password=PASSWORD).trust()
        assert list(Path(folder).iterdir()) == []


def test_a_file_of_authorities_in_pem_is_not_read_before_it_is_needed(tmp_path: Path) -> None:
    path = _client(tmp_path, ssl_truststore_type="PEM", ssl_truststore_location="/in/a/pod/ca.crt")
    assert Connection.from_properties(path).ca_file == Path("/in/a/pod/ca.crt")


def test_a_certificate_without_key_identifiers_is_trusted_by_every_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 makes contexts that refuse one; Java's clients do not."""
    strict = ssl.create_default_context()
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: strict)
    context = trusting_context(None, None)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
