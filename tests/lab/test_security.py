"""No client gets in without credentials, and none can do more than its manifest says."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import shutil
import socket
import ssl
import tarfile
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
import requests
from cryptography import x509
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.platforms.local import certificates
from loosehanger.platforms.local.region import LocalRegion
from scripts.sandbox import Kit

pytestmark = pytest.mark.lab


def can_read(connection: Connection, **overrides: object) -> bool:
    """Whether a client with this connection gets to see the orders."""
    arguments = {**connection.kafka_python(), "bootstrap_timeout_ms": 4000, **overrides}
    try:
        with KafkaConsumer(**arguments) as consumer:
            return bool(consumer.end_offsets([TopicPartition("LH.ORDERS", 0)]))
    except (KafkaError, OSError):
        return False


def can_write(connection: Connection, topic: str = "LH.ORDERS") -> bool:
    """Whether a client with this connection may write; a refusal for any other reason is an error."""
    # An idempotent producer without any right to write is refused sooner, and for another reason.
    producer = KafkaProducer(**connection.kafka_python(), max_block_ms=10000, enable_idempotence=False)
    try:
        producer.send(topic, b"{}", partition=0).get(timeout=120)
    except TopicAuthorizationFailedError:
        return False
    else:
        return True
    finally:
        producer.close(timeout=5)


def test_a_client_with_its_own_credentials_is_let_in(kit: Kit) -> None:
    for region in kit.lab.regions.values():
        user = next(user for user in region.clients if user.startswith("consumer-"))
        assert can_read(connection_for(region, user))


def test_a_client_without_credentials_is_refused(kit: Kit) -> None:
    for region in kit.lab.regions.values():
        connection = connection_for(region, "prover")
        assert not can_read(connection, security_protocol="SSL")
        assert not can_read(connection, security_protocol="PLAINTEXT")
        assert not can_read(connection, security_protocol="SASL_PLAINTEXT")


def test_a_wrong_password_is_refused(kit: Kit) -> None:
    connection = dataclasses.replace(connection_for(kit.lab.region("europe"), "prover"), password="wrong")
    assert not can_read(connection)


def test_another_regions_password_is_refused(kit: Kit) -> None:
    europe, america = (connection_for(kit.lab.region(name), "prover") for name in ("europe", "north-america"))
    assert can_read(america)
    assert not can_read(dataclasses.replace(europe, password=america.password))


def test_a_foreign_certificate_authority_is_refused(kit: Kit) -> None:
    europe, america = (connection_for(kit.lab.region(name), "prover") for name in ("europe", "north-america"))
    assert not can_read(dataclasses.replace(europe, ca_file=america.ca_file))


@pytest.mark.parametrize("listener", [0, 1], ids=["control plane", "replication"])
def test_the_nodes_own_listeners_refuse_certificates_of_another_cluster(kit: Kit, listener: int) -> None:
    secrets = {region: kit.home / "regions" / region / "secrets" for region in ("europe", "north-america")}
    port = kit.port_base + 100 + listener

    def accepts(region: str) -> bool:
        certificate = secrets[region] / f"{region}-cluster-operator-certs"
        context = ssl.create_default_context(cafile=str(secrets["europe"] / "europe-cluster-ca-cert" / "ca.crt"))
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as connection,
            ):
                # With TLS 1.3 a refusal shows at the first answer. This asks which versions of the protocol it speaks.
                connection.sendall(bytes.fromhex("0000000d 0012 0000 00000001 0003 612e62"))
                return bool(connection.recv(4))
        except OSError:
            return False

    assert accepts("europe")
    assert not accepts("north-america")


def test_a_consumer_cannot_write(kit: Kit) -> None:
    america = kit.lab.region("north-america")
    assert not can_write(connection_for(america, "consumer-northamerica"))


def test_a_consumer_cannot_read_other_topics(kit: Kit) -> None:
    america = kit.lab.region("north-america")
    with KafkaConsumer(**connection_for(america, "consumer-northamerica").kafka_python()) as consumer:
        assert consumer.topics() == {topic for topic in consumer.topics() if topic.startswith("LH.")}


def test_a_mirror_can_change_nothing_in_europe(kit: Kit) -> None:
    europe = kit.lab.region("europe")
    connection = connection_for(europe, "mm2-europe")
    assert can_read(connection)
    assert not can_write(connection)
    admin = KafkaAdminClient(**connection.kafka_python())
    try:
        with pytest.raises(KafkaError):
            admin.create_topics({"LH.NEW": {"num_partitions": 1, "replication_factor": 1}})
        resource = ConfigResource(ConfigResourceType.TOPIC, "LH.ORDERS", {"retention.ms": "1"})
        answer = admin.alter_configs([resource], raise_on_unknown=False)
        assert "Authorization" in answer["topic"]["LH.ORDERS"]
    finally:
        admin.close()


def test_the_producer_can_write_and_cannot_read(kit: Kit) -> None:
    europe = connection_for(kit.lab.region("europe"), "producer")
    assert not can_write(europe, "OTHER.TOPIC")
    with KafkaConsumer(**europe.kafka_python()) as consumer:
        consumer.assign([TopicPartition("LH.ORDERS", 0)])
        consumer.seek_to_beginning()
        with pytest.raises(TopicAuthorizationFailedError):
            consumer.poll(timeout_ms=10000)


@pytest.mark.parametrize("credentials", [None, ("operator", "wrong"), ("", "")], ids=["none", "wrong", "empty"])
def test_connect_answers_nobody_without_its_credentials(kit: Kit, credentials: tuple[str, str] | None) -> None:
    for mirror in kit.lab.mirrors:
        access = mirror.connect
        right = (access["username"], Path(access["password_file"]).read_text())
        for path in ("/", "/connectors", f"/connectors/{mirror.connector.replace('>', '%3E')}/config"):
            url = access["url"] + path
            assert requests.get(url, auth=right, verify=access["ca_file"], timeout=60).ok
            assert requests.get(url, auth=credentials, verify=access["ca_file"], timeout=60).status_code == 401
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(access["url"], auth=right, timeout=60)


def test_connect_reads_nothing_but_its_own_passwords(kit: Kit) -> None:
    """A client with the REST interface's password may ask it what a setting becomes, references to secrets included."""
    for mirror in kit.lab.mirrors:
        access = mirror.connect
        secrets = kit.home / "regions" / mirror.target / "secrets"
        name = "org.apache.kafka.connect.mirror.MirrorSourceConnector"

        def becomes(folder: Path, key: str, access: Mapping[str, str] = access, name: str = name) -> str:
            answer = requests.put(
                f"{access['url']}/connector-plugins/{name}/config/validate",
                json={"connector.class": name, "name": "x", "topics": f"${{secrets:{folder}:{key}}}"},
                auth=(access["username"], Path(access["password_file"]).read_text()),
                verify=access["ca_file"],
                timeout=30,
            )
            return answer.text

        own = secrets / f"mm2-{mirror.target_alias}"
        assert (own / "password").read_text() in becomes(own, "password")
        for foreign, key in (
            (secrets / f"{mirror.target}-cluster-ca", "ca.key"),
            (secrets / f"{mirror.name}-connect-certs", "tls.key"),
            (secrets / "admin", "password"),
            (own / ".." / "admin", "password"),
        ):
            secret = (foreign / key).read_text().splitlines()
            assert not any(line in becomes(foreign, key) for line in secret), foreign


def test_certificates_near_their_end_are_renewed_and_clients_keep_trusting(kit: Kit, tmp_path: Path) -> None:
    europe, america = (LocalRegion(kit.home, kit.root, name, 0) for name in ("europe", "north-america"))
    broker = int(connection_for(kit.lab.region("europe"), "prover").bootstrap_servers[0].rpartition(":")[2])
    rest = int(kit.lab.mirrors[0].connect["url"].rpartition(":")[2])
    assert kit.lab.mirrors[0].target == "north-america"
    served = {
        broker: (europe, "europe", "europe-kafka-0", "europe-kafka"),
        rest: (america, "mm2-na-connect", "mm2-na-connect-certs", "mm2-na-connect"),
    }
    old = {}
    for port, (region, cluster, secret, common_name) in served.items():
        old[port] = tmp_path / f"{port}.crt"
        shutil.copy(region.secrets / f"{cluster}-cluster-ca-cert" / "ca.crt", old[port])
        certificates.issue_authority(region, cluster, certificates.authority_key(region, cluster), 20)
        shutil.rmtree(region.secrets / secret)
        certificates.ensure_certificate(region, cluster, secret, common_name, [], 20)
    done = kit.setup()
    assert done.returncode == 0, done.stdout + done.stderr

    for port, (region, cluster, *_) in served.items():
        for authority in (old[port], region.secrets / f"{cluster}-cluster-ca-cert" / "ca.crt"):
            context = ssl.create_default_context(cafile=authority)
            with (
                socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as connection,
            ):
                certificate = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
            left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
            assert left > datetime.timedelta(days=360)
    assert can_read(dataclasses.replace(connection_for(kit.lab.region("europe"), "prover"), ca_file=old[broker]))
    status = kit.run("status")
    assert status.returncode == 0, status.stdout


def test_everything_listens_on_the_loopback_address_only(kit: Kit) -> None:
    ours = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr
        if kit.port_base <= connection.laddr.port < kit.port_base + 1000
    }
    assert ours == {"127.0.0.1"}


def test_no_password_is_in_a_log_a_process_list_or_a_connectors_configuration(kit: Kit) -> None:
    verbose = kit.setup("-vvv")
    assert verbose.returncode == 0
    regions = kit.home / "regions"
    secrets = {
        file.read_text()
        for pattern in ("*/secrets/*/password", "*/secrets/*/store.password")
        for file in regions.glob(pattern)
    }
    assert len(secrets) >= 12
    places = {"ansible -vvv": verbose.stdout + verbose.stderr}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            places[f"process {process.pid}"] = "\0".join(words)
    for file in [*regions.glob("*/logs/*"), *regions.glob("*/kafka/*/*/server.properties"),
                 *regions.glob("*/connect/*/*"), *regions.glob("*/programs/*"), *regions.glob("*/supervisor.conf"),
                 *regions.glob("*/resources/*/*"), *(kit.home / "access").glob("*.json")]:  # fmt: skip
        if file.is_file():
            places[str(file.relative_to(kit.home))] = file.read_text(errors="replace")
    for mirror in kit.lab.mirrors:
        access = mirror.connect
        answer = requests.get(
            f"{access['url']}/connectors?expand=info",
            auth=(access["username"], Path(access["password_file"]).read_text()),
            verify=access["ca_file"],
            timeout=60,
        )
        places[f"{mirror.name}: connector configurations"] = answer.text
    # Passwords may stand in an URL or in JSON: characters are letters, digits, - and _, which nothing escapes.
    leaks = [place for place, text in places.items() if any(secret in text for secret in secrets)]
    assert leaks == []


def test_secrets_are_readable_by_their_owner_only(kit: Kit) -> None:
    for file in [*kit.home.glob("regions/*/secrets/**/*"), *kit.home.glob("access/**/*")]:
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_bundle_for_a_maintainer_has_what_helps_and_no_secret(kit: Kit, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    done = kit.run("status", "--bundle", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(file) as archive:
        texts = {m.name: stream.read() for m in archive.getmembers() if (stream := archive.extractfile(m))}
    assert b"kind: KafkaMirrorMaker2" in texts["bundle/regions/north-america/KafkaMirrorMaker2-mm2-na.yaml"]
    assert "bundle/regions/europe/logs/producer.log" in texts
    assert b'"healthy": true' in texts["bundle/status.json"]
    secrets = {path.read_bytes().strip() for path in kit.home.glob("regions/*/secrets/*/password")}
    assert secrets
    assert not any(secret in text for secret in secrets for text in texts.values())
