"""A broker that wants certificates of its clients (mutual TLS): Python's and Java's sign in by the same file."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    pkcs12,
)
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from loosehanger.files import write_file
from loosehanger.kafka.clients import HURRIED, connect_admin
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.properties import format_properties
from tests.certificates import KEY, certificate, certificate_pem, key_pem

from .broker import java, running

pytestmark = pytest.mark.lab

PASSWORD = "store-of-a-test"


def test_both_clients_sign_in_by_a_certificate(tmp_path: Path) -> None:
    key = key_pem()
    authority = certificate_pem("authority")
    (tmp_path / "ca.crt").write_text(authority)
    write_file(
        tmp_path / "me.p12",
        pkcs12.serialize_key_and_certificates(
            b"me", KEY, certificate("me"), None, BestAvailableEncryption(PASSWORD.encode())
        ),
    )
    listener = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:{broker},SSL://127.0.0.1:{second},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": "SASL_PLAINTEXT://127.0.0.1:{broker},SSL://127.0.0.1:{second}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.certificate.chain": certificate_pem("broker"),
        "listener.name.ssl.ssl.keystore.key": key,
        "listener.name.ssl.ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.certificates": authority,
        "super.users": "User:admin;User:ANONYMOUS;User:CN=me",
    }
    with running(tmp_path, further=listener) as broker:
        client = tmp_path / "client.properties"
        settings = {
            "bootstrap.servers": f"127.0.0.1:{broker.second}",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.crt"),
        }
        shown = {"ssl.keystore.location": str(tmp_path / "me.p12"), "ssl.keystore.password": PASSWORD}
        write_file(client, format_properties(settings | shown))
        connection = Connection.from_properties(client, {})
        admin = connect_admin(connection)
        admin.create_topics([NewTopic("of.me", 1, 1)])
        admin.close()
        write_file(tmp_path / "java.properties", format_properties(connection.java()))
        listed = tmp_path / "listed.log"
        java(
            *("org.apache.kafka.tools.TopicCommand", "--list", "--bootstrap-server", f"127.0.0.1:{broker.second}"),
            *("--command-config", str(tmp_path / "java.properties")),
            log=listed,
        ).wait(60)
        assert "of.me" in listed.read_text().split()
        write_file(client, format_properties(settings))
        with pytest.raises(KafkaError):
            connect_admin(Connection.from_properties(client, {}), HURRIED)
