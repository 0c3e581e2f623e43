"""Client configurations are read as Kafka's own tools read them, and passwords stay out of sight."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.properties import (
    LoginModule,
    format_jaas,
    format_properties,
    parse_jaas,
    parse_properties,
    read_properties,
)
from loosehanger.paths import ROOT
from loosehanger.platforms.local.certificates import ensure_authority
from loosehanger.platforms.local.region import LocalRegion

PROPERTIES = """\
# A client of Europe.
bootstrap.servers=127.0.0.1:9092, 127.0.0.1:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="me" password="s\\\\"ecret=1";
ssl.truststore.type=PEM
ssl.truststore.location=FOLDER/ca.crt
"""


@cache
def certificate() -> str:
    """A certificate authority's."""
    with TemporaryDirectory() as folder:
        region = LocalRegion(Path(folder), ROOT, "europe", 0)
        ensure_authority(region, "clients", 1)
        return (region.secrets / "clients-cluster-ca-cert" / "ca.crt").read_text()


def client(folder: Path, *lines: str) -> Path:
    """A client's properties, with a trust store; later lines replace earlier ones."""
    (folder / "ca.crt").write_text(certificate())
    path = folder / "client.properties"
    path.write_text("\n".join((PROPERTIES.replace("FOLDER", str(folder)), *lines, "")), encoding="utf-8")
    return path


def test_a_properties_file_is_read(tmp_path: Path) -> None:
    path = client(tmp_path)
    connection = Connection.from_properties(path)
    assert connection.bootstrap_servers == ("127.0.0.1:9092", "127.0.0.1:9093")
    assert (connection.username, connection.password) == ("me", 's"ecret=1')
    assert connection.ca_file == tmp_path / "ca.crt"


def test_a_password_never_shows(tmp_path: Path) -> None:
    path = client(tmp_path)
    assert "ecret" not in repr(Connection.from_properties(path)) + str(Connection.from_properties(path))


def test_what_java_gets_is_what_was_read(tmp_path: Path) -> None:
    path = client(tmp_path)
    connection = Connection.from_properties(path)
    again = tmp_path / "again.properties"
    again.write_text(format_properties(connection.java()))
    assert Connection.from_properties(again) == connection


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bootstrap.servers=", "bootstrap.servers is missing"),
        ("security.protocol=TLS", "'TLS' is not one that Kafka knows"),
        ("ssl.truststore.type=BKS", "ssl.truststore.type: 'BKS' cannot be read; PEM, PKCS12 and JKS can"),
        ("ssl.truststore.location=/none/ca.crt", "/none/ca.crt cannot be read"),
        ("ssl.truststore.certificates=x", "exclude each other"),
        ("ssl.truststore.location=\nssl.truststore.certificates=x", "has no certificate in PEM"),
        ("ssl.keystore.location=/my/keystore.p12", "ssl.keystore.location: /my/keystore.p12 cannot be read"),
        ("ssl.keystore.key=-----BEGIN", "ssl.keystore.certificate.chain is missing"),
        ("bootstrap.servers=kafka.example.com", "'kafka.example.com' is not HOST:PORT"),
        ("sasl.mechanism=", "sasl.mechanism is missing, which means GSSAPI"),
        ("sasl.mechanism=GSSAPI", "Kerberos.* not supported yet"),
        ("sasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url: is missing"),
        ("sasl.mechanism=AWS_MSK_IAM", "IAM of Amazon MSK.* not supported yet"),
        (
            "sasl.mechanism=OAUTHBEARER\n"
            "sasl.login.callback.handler.class=software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
            "IAM of Amazon MSK.* not supported yet",
        ),
        ("sasl.mechanism=scram-sha-512", "'scram-sha-512' is unknown; use a user with SCRAM-SHA-512"),
        ("sasl.jaas.config=", "sasl.jaas.config is missing"),
        ("sasl.jaas.config=nonsense", "sasl.jaas.config: expected"),
        ('sasl.jaas.config=a.B required username="me";', "password missing"),
        ('sasl.jaas.config=a.B required username="me" password="ecret"', "the ';' at its end is missing"),
        ("sasl.jaas.config=a.B required username=me password=p@ecret;", "must be in quotes"),
        ("sasl.jaas.config=a.B required username=me password=;", "option 2 is not"),
        ("sasl.jaas.config=a.B required username=me tokenauth=true password=ecret;", "delegation tokens"),
        ("client.id=\\u00e", "line [0-9]+: '.u' is not followed by four hexadecimal digits"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = client(tmp_path, line)
    with pytest.raises(WrongUseError, match=message) as error:
        Connection.from_properties(path, {})
    assert str(path) in str(error.value)
    assert "ecret" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongUseError, match=r"none\.properties: cannot be read"):
        Connection.from_properties(tmp_path / "none.properties")


def test_the_environment_is_read(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": "a:1,b:2",
        "KAFKA_USERNAME": "me",
        "KAFKA_PASSWORD_FILE": str(tmp_path / "password"),
        "KAFKA_CA_FILE": "/ca.crt",
    }
    connection = Connection.from_environment(environment)
    assert connection.password == "secret"
    assert connection.bootstrap_servers == ("a:1", "b:2")
    for name in environment:
        with pytest.raises(WrongUseError, match=name):
            Connection.from_environment({**environment, name: ""})


@pytest.mark.parametrize("text", ["a=b", "a = b", "a:b", "a b", "  a=b", "! no\na=b", "a=\\\n  b"])
def test_javas_ways_to_write_a_property(text: str) -> None:
    assert parse_properties(text) == {"a": "b"}


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z.]{0,9}", fullmatch=True), st.from_regex(r"([!-~]([ -~]*[!-~])?)?", fullmatch=True)
    )
)
def test_properties_survive_writing_and_reading(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


def test_blanks_at_the_end_of_a_value_and_of_comments_are_as_in_java() -> None:
    text = "a=b  \n# c \\\nd=e\x85f\rg=\\ud83d\\ude00"
    assert parse_properties(text) == {"a": "b  ", "d": "e\x85f", "g": "😀"}


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")), max_size=3
    )
)
def test_a_value_never_becomes_a_property_of_its_own(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties
    assert format_properties(properties).isascii()


@pytest.mark.parametrize(
    "data",
    [
        "client.id=é".encode(),
        "client.id=é".encode("iso-8859-1"),
        "client.id=é".encode("utf-8-sig"),
        b"client.id=\\u00e9",
    ],
)
def test_every_encoding_of_javas_is_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(data)
    assert read_properties(path) == {"client.id": "é"}


def test_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes("client.id=x".encode("utf-16"))
    with pytest.raises(WrongUseError, match="is UTF-16; save it as UTF-8"):
        read_properties(path)


@pytest.mark.parametrize(
    "options",
    [
        'username="me" password="ecret"',
        "username='me' password='ecret'",
        "username=me password=ecret",
        'password="ecret" username="me"',
        'debug="true" user_alice="x" username = "me" /* the user */ password="ecret" serviceName=kafka',
        r'username="m\145" password="e\cret"',
    ],
)
def test_every_form_of_a_jaas_entry_is_read(tmp_path: Path, options: str) -> None:
    # Properties have escapes of their own.
    line = f"sasl.jaas.config=org.apache.kafka.x.ScramLoginModule Required {options} ; // end"
    found = Connection.from_properties(client(tmp_path, line.replace("\\", "\\\\")))
    assert (found.username, found.password) == ("me", "ecret")


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.from_regex(r"[ -~]{0,9}", fullmatch=True)))
def test_a_jaas_entry_survives_writing_and_reading(options: dict[str, str]) -> None:
    module = LoginModule("a.B", options)
    assert parse_jaas(format_jaas(module), "here") == module


def test_java_gets_the_login_module_of_the_mechanism(tmp_path: Path) -> None:
    found = Connection.from_properties(client(tmp_path, "sasl.mechanism=PLAIN")).java()
    assert found["sasl.mechanism"] == "PLAIN"
    assert found["sasl.jaas.config"].startswith("org.apache.kafka.common.security.plain.PlainLoginModule required ")


@pytest.mark.parametrize("form", ["\\\n", "\\n", " "], ids=["continued", "escaped", "one line"])
def test_an_inline_pem_is_read(tmp_path: Path, form: str) -> None:
    lines = certificate().strip().splitlines()
    inline = " ".join(lines) if form == " " else form.join(lines)
    path = client(tmp_path, "ssl.truststore.location=", f"ssl.truststore.certificates={inline}")
    connection = Connection.from_properties(path)
    assert connection.ca_certificates == certificate()
    context = connection.kafka_python()["ssl_context"]
    assert context.cert_store_stats()["x509_ca"] == 1
    again = tmp_path / "again.properties"
    again.write_text(format_properties(connection.java()))
    assert Connection.from_properties(again) == connection


def test_what_is_no_certificate_is_named(tmp_path: Path) -> None:
    path = client(tmp_path)
    (tmp_path / "ca.crt").write_text("nothing")
    with pytest.raises(WrongUseError, match="has no certificate in PEM"):
        Connection.from_properties(path, {})


def test_the_name_of_a_broker_need_not_be_verified(tmp_path: Path) -> None:
    connection = Connection.from_properties(client(tmp_path, "ssl.endpoint.identification.algorithm="))
    assert connection.kafka_python()["ssl_context"].check_hostname is False
    assert connection.java()["ssl.endpoint.identification.algorithm"] == ""
    assert Connection.from_properties(client(tmp_path)).kafka_python()["ssl_context"].check_hostname is True


def test_placeholders_are_environment_variables(tmp_path: Path) -> None:
    jaas = 'sasl.jaas.config=a.B required username="${KAFKA_USER}" password="${env:KAFKA_PASSWORD}";'
    path = client(tmp_path, jaas, "client.id=${other:x}-${lower}")
    environment = {"KAFKA_USER": "me", "KAFKA_PASSWORD": "ecret"}
    found = Connection.from_properties(path, environment)
    assert (found.username, found.password) == ("me", "ecret")
    with pytest.raises(WrongUseError, match=r"sasl\.jaas\.config: the environment variable KAFKA_PASSWORD is not set"):
        Connection.from_properties(path, {"KAFKA_USER": "me"})
    path = client(tmp_path, "config.providers=other", "client.id=${other:x}", jaas)
    with pytest.raises(WrongUseError, match=r"client\.id: the configuration provider 'other' is not supported"):
        Connection.from_properties(path, environment)
    # A file of the kit's has none, whatever a password looks like.
    assert Connection.from_properties(path).password == "${env:KAFKA_PASSWORD}"


def test_properties_without_effect_are_warned_of(tmp_path: Path) -> None:
    warnings: list[str] = []
    lines = (
        "enable.ssl.certificate.verification=false",
        "client.idd=x",
        "schema.registry.url=x",
        "sasl.oauthbearer.scope=x",
        "acks=all",
    )
    Connection.from_properties(client(tmp_path, *lines), {}, warnings.append)
    assert [line.split("client.properties: ")[1] for line in warnings] == [
        "'client.idd' is unknown and has no effect; did you mean 'client.id'?",
        "'enable.ssl.certificate.verification' is librdkafka's and has no effect here; no property of Kafka's "
        "turns it off",
        "'schema.registry.url' is unknown and has no effect",
    ]
    warnings.clear()
    Connection.from_properties(client(tmp_path, "security.protocol=", "ssl.keystore.location=x"), {}, warnings.append)
    assert [line.split("client.properties: ")[1] for line in warnings] == [
        f"{name} has no effect, as security.protocol is PLAINTEXT, Kafka's default"
        for name in ("sasl.jaas.config", "ssl.truststore.location", "ssl.keystore.location")
    ]
