"""Client configurations are read as Kafka's own tools read them, and passwords stay out of sight."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loosehanger.clients.connection import Connection, format_properties, parse_properties
from loosehanger.errors import WrongUseError

PROPERTIES = """\
# A client of Europe.
bootstrap.servers=127.0.0.1:9092, 127.0.0.1:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="me" password="s\\\\"ecret=1";
ssl.truststore.type=PEM
ssl.truststore.location=/somewhere/ca.crt
"""


def test_a_properties_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(PROPERTIES)
    connection = Connection.from_properties(path)
    assert connection.bootstrap_servers == ("127.0.0.1:9092", "127.0.0.1:9093")
    assert (connection.username, connection.password) == ("me", 's"ecret=1')
    assert connection.ca_file == Path("/somewhere/ca.crt")


def test_a_password_never_shows(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(PROPERTIES)
    assert "ecret" not in repr(Connection.from_properties(path)) + str(Connection.from_properties(path))


def test_what_java_gets_is_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(PROPERTIES)
    connection = Connection.from_properties(path)
    again = tmp_path / "again.properties"
    again.write_text(format_properties(connection.java()))
    assert Connection.from_properties(again) == connection


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bootstrap.servers=", "bootstrap.servers is missing"),
        ("security.protocol=TLS", "'TLS' is not one that Kafka knows"),
        ("ssl.truststore.type=JKS", "only PEM can be read"),
        ("sasl.jaas.config=nonsense", "sasl.jaas.config: expected"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(PROPERTIES + line + "\n")
    with pytest.raises(WrongUseError, match=message) as error:
        Connection.from_properties(path)
    assert str(path) in str(error.value)


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


@pytest.mark.parametrize("text", ["a=b", "a = b", "a:b", "a b", "  a=b  ", "! no\na=b", "a=\\\n  b"])
def test_javas_ways_to_write_a_property(text: str) -> None:
    assert parse_properties(text) == {"a": "b"}


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z.]{0,9}", fullmatch=True), st.from_regex(r"([!-~]([ -~]*[!-~])?)?", fullmatch=True)
    )
)
def test_properties_survive_writing_and_reading(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties
