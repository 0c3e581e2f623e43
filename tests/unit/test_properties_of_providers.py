"""Client properties in the form in which providers show them to their users."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.properties import parse_jaas
from tests.certificates import AUTHORITY, KEY, certificate, certificate_pem, key_pem

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

CONFLUENT_CLOUD = f"""\
# Required connection configs for a Kafka client
bootstrap.servers=pkc-abcde.eu-central-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config={PLAIN} required username='ann' password='s3cr/+t=';
sasl.mechanism=PLAIN
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
client.id=ccloud-java-client-1
"""
CONFLUENT_LIBRDKAFKA = """\
bootstrap.servers=pkc-abcde.eu-central-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.mechanisms=PLAIN
sasl.username=ann
sasl.password=s3cr/+t=
session.timeout.ms=45000
"""
EVENT_STREAMS = f"""\
bootstrap.servers=es-kafka-bootstrap.apps.example.com:443
security.protocol=SASL_SSL
ssl.protocol=TLSv1.3
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={SCRAM} required \\
    username="ann" \\
    password="s3cr/+t=";
"""
MSK_SCRAM = f"""\
bootstrap.servers = b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com:9096,\\
    b-2.shop.abc123.c2.kafka.eu-west-1.amazonaws.com:9096
sasl.mechanism = SCRAM-SHA-512
security.protocol = SASL_SSL
sasl.jaas.config = {SCRAM} required username=ann password="s3cr/+t=" ;
"""
AIVEN_SASL = f"""\
bootstrap.servers=kafka-shop.aivencloud.com:13041
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config={SCRAM} required username="ann" password="s3cr/+t=";
"""
REDPANDA = f"""\
bootstrap.servers=seed-1.abcdef.fmc.prd.cloud.redpanda.com:9092
security.protocol=sasl_ssl
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config={SCRAM} required username="ann" password="s3cr/+t=";
"""


@pytest.mark.parametrize(
    ("text", "mechanism"),
    [
        pytest.param(CONFLUENT_CLOUD, "PLAIN", id="Confluent Cloud"),
        pytest.param(CONFLUENT_LIBRDKAFKA, "PLAIN", id="Confluent Cloud, librdkafka"),
        pytest.param(EVENT_STREAMS, "SCRAM-SHA-512", id="Event Streams"),
        pytest.param(MSK_SCRAM, "SCRAM-SHA-512", id="MSK, SCRAM"),
        pytest.param(AIVEN_SASL, "SCRAM-SHA-256", id="Aiven, SASL"),
        pytest.param(REDPANDA, "SCRAM-SHA-256", id="Redpanda"),
    ],
)
def test_what_a_provider_shows_reaches_both_clients(text: str, mechanism: str, tmp_path: Path) -> None:
    path, warned = tmp_path / "client.properties", list[str]()
    path.write_text(text, encoding="utf-8")
    found = Connection.from_properties(path, {}, warned.append)
    assert warned == []
    python, java = found.kafka_python(), found.java()
    assert (python["security_protocol"], python["sasl_mechanism"]) == ("SASL_SSL", mechanism)
    assert (python["sasl_plain_username"], python["sasl_plain_password"]) == ("ann", "s3cr/+t=")
    assert (java["security.protocol"], java["sasl.mechanism"]) == ("SASL_SSL", mechanism)
    entry = parse_jaas(java["sasl.jaas.config"], "java")
    assert entry.name == (PLAIN if mechanism == "PLAIN" else SCRAM)
    assert entry.options == {"username": "ann", "password": "s3cr/+t="}


STORE = "s3cret-of-the-store"
AIVEN_CERTIFICATE = f"""\
bootstrap.servers=kafka-shop.aivencloud.com:13030
security.protocol=SSL
ssl.protocol=TLS
ssl.key.password={STORE}
ssl.keystore.location=client.keystore.p12
ssl.keystore.password={STORE}
ssl.keystore.type=PKCS12
ssl.truststore.location=client.truststore.p12
ssl.truststore.password={STORE}
ssl.truststore.type=PKCS12
"""
EVENT_STREAMS_CERTIFICATE = f"""\
bootstrap.servers=es-kafka-bootstrap.apps.example.com:443
security.protocol=SSL
ssl.protocol=TLSv1.3
ssl.truststore.location=client.truststore.p12
ssl.truststore.password={STORE}
ssl.keystore.location=client.keystore.p12
ssl.keystore.password={STORE}
"""
REDPANDA_CERTIFICATE = """\
bootstrap.servers=seed-1.abcdef.fmc.prd.cloud.redpanda.com:9092
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location=authority.pem
ssl.keystore.type=PEM
ssl.keystore.location=client.pem
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(AIVEN_CERTIFICATE, id="Aiven"),
        pytest.param(EVENT_STREAMS_CERTIFICATE, id="Event Streams"),
        pytest.param(REDPANDA_CERTIFICATE, id="Redpanda"),
    ],
)
def test_stores_of_a_provider_reach_both_clients(text: str, tmp_path: Path) -> None:
    own, authority = certificate("ann"), certificate(AUTHORITY)
    hidden = BestAvailableEncryption(STORE.encode())
    store = pkcs12.serialize_key_and_certificates(b"ann", KEY, own, [authority], hidden)
    (tmp_path / "client.keystore.p12").write_bytes(store)
    trusted = pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority, b"ca")], hidden)
    (tmp_path / "client.truststore.p12").write_bytes(trusted)
    (tmp_path / "authority.pem").write_text(certificate_pem(AUTHORITY), encoding="utf-8")
    (tmp_path / "client.pem").write_text(key_pem() + certificate_pem("ann"), encoding="utf-8")
    path, warned = tmp_path / "client.properties", list[str]()
    path.write_text(text.replace("location=", f"location={tmp_path}/"), encoding="utf-8")
    found = Connection.from_properties(path, {}, warned.append)
    assert warned == []
    assert found.kafka_python()["security_protocol"] == "SSL"
    context = found.trust()
    assert context is not None
    assert [one["subject"] for one in context.get_ca_certs()] == [((("commonName", AUTHORITY),),)]
    java = found.java()
    assert (java["ssl.keystore.type"], java["ssl.truststore.type"]) == ("PEM", "PEM")
    chain = x509.load_pem_x509_certificates(java["ssl.keystore.certificate.chain"].encode())
    assert chain[0].subject == own.subject


def test_iam_of_msk_is_not_possible_and_what_is(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=b-1.shop.amazonaws.com:9098\nsecurity.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"
        "sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;\n"
        "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler\n",
        encoding="utf-8",
    )
    with pytest.raises(WrongUseError, match=r"sasl.mechanism: AWS_MSK_IAM .* not supported yet; use a user with SCRAM"):
        Connection.from_properties(path, {})


def test_a_key_of_no_client_is_warned_of_with_the_nearest(tmp_path: Path) -> None:
    path, warned = tmp_path / "client.properties", list[str]()
    path.write_text(CONFLUENT_CLOUD + "sasl.mechanims=PLAIN\n", encoding="utf-8")
    Connection.from_properties(path, {}, warned.append)
    assert [line.partition(": ")[2].partition(": ")[2] for line in warned] == [
        "'sasl.mechanims' is unknown and has no effect; did you mean 'sasl.mechanism'?"
    ]
