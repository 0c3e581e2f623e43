"""Wrong sign-ins, as kafka-python meets them: real TLS, and a broker that is made up where it has to answer."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from kafka.errors import KafkaError, SaslAuthenticationFailedError
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from loosehanger.console.cluster import ClusterView
from loosehanger.errors import LabError, UnreachableError
from loosehanger.events.options import Start
from loosehanger.events.reader import Reader, Selection
from loosehanger.files import write_file
from loosehanger.kafka import patches
from loosehanger.kafka.clients import Bounds
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ClientCredentials
from producer.delivery import Delivery
from tests.certificates import AUTHORITY, certificate_pem, key_pem

BOUNDS = Bounds(connect_s=20, answer_s=5)
SOON_S = patches.REFUSED_S * 3
API_VERSIONS, HANDSHAKE = 18, 17
Answer = Callable[[socket.socket], None]


@contextmanager
def listening(answer: Answer) -> Iterator[int]:
    """Accepts connections, and answers each in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = server.accept()
                    threading.Thread(target=one, args=(accepted,), daemon=True).start()

        def one(accepted: socket.socket) -> None:
            with suppress(OSError), accepted:
                answer(accepted)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def refused(connection: Connection) -> tuple[str, float]:
    """Why a cluster cannot be used, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(UnreachableError) as raised, Cluster("old", connection, BOUNDS) as cluster:
        cluster.connect()
    assert isinstance(raised.value.__cause__, KafkaError)
    return str(raised.value), time.monotonic() - began


def with_certificate(folder: Path, *, expired: bool = False) -> Answer:
    """A TLS server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    write_file(folder / "server.pem", certificate_pem("broker", expired=expired) + key_pem())
    context.load_cert_chain(folder / "server.pem")

    def answer(accepted: socket.socket) -> None:
        with context.wrap_socket(accepted, server_side=True) as secured:
            secured.recv(1)

    return answer


@pytest.mark.parametrize(
    ("host", "authority", "expired", "said"),
    [
        ("127.0.0.1", "other", False, r"of an authority that is not trusted here \(.*\); give the brokers' authority"),
        ("127.0.0.1", AUTHORITY, True, "has expired; renew it at the brokers"),
        ("localhost", AUTHORITY, False, "is not for this name; use a name that is in it"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_named_within_seconds(
    host: str, authority: str, expired: bool, said: str, tmp_path: Path
) -> None:
    with listening(with_certificate(tmp_path, expired=expired)) as port:
        connection = Connection((f"{host}:{port}",), "SSL", ca_certificates=certificate_pem(authority, authority))
        text, took = refused(connection)
    assert re.fullmatch(rf"old: the cluster shows a certificate at {host}:{port} that (is )?{said}.*", text), text
    assert took < SOON_S


def test_tls_on_one_side_only_is_named_within_seconds() -> None:
    def with_tls(accepted: socket.socket) -> None:
        """What Java's brokers answer to a request that is no TLS: a fatal alert, for Python's reset the connection."""
        accepted.recv(4096)
        accepted.sendall(b"\x15\x03\x03\0\2\2\x50")

    with listening(with_tls) as port:
        text, took = refused(Connection((f"127.0.0.1:{port}",)))
        assert text == f"old: the cluster speaks TLS at 127.0.0.1:{port}; set security.protocol to SSL or SASL_SSL"
        assert took < SOON_S

    def without_tls(accepted: socket.socket) -> None:
        accepted.recv(4)
        accepted.sendall(b"\0\0\0\1")

    with listening(without_tls) as port:
        authority = certificate_pem(AUTHORITY)
        text, took = refused(Connection((f"127.0.0.1:{port}",), "SSL", ca_certificates=authority))
    assert text.startswith(f"old: the cluster does not speak TLS at 127.0.0.1:{port}; check security.protocol")
    assert took < SOON_S


def with_one_mechanism(accepted: socket.socket) -> None:
    """A broker that offers PLAIN only: Kafka's answers to ApiVersions (v0) and SaslHandshake (v0 and v1)."""
    while size := accepted.recv(4):
        request = accepted.recv(struct.unpack(">i", size)[0])
        key, version, correlation = struct.unpack(">hhi", request[:8])
        if key == API_VERSIONS and version:
            body = struct.pack(">hi", 35, 1) + struct.pack(">hhh", API_VERSIONS, 0, 0)
        elif key == API_VERSIONS:
            keys = [(API_VERSIONS, 0, 0), (HANDSHAKE, 0, 1), (36, 0, 1), (3, 0, 8)]
            body = struct.pack(">hi", 0, len(keys)) + b"".join(struct.pack(">hhh", *one) for one in keys)
        else:
            body = struct.pack(">hi", 33, 1) + struct.pack(">h5s", 5, b"PLAIN")
        accepted.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are() -> None:
    with listening(with_one_mechanism) as port:
        address = (f"127.0.0.1:{port}",)
        text, took = refused(Connection(address, "SASL_PLAINTEXT", "SCRAM-SHA-512", "ann", "x"))
        assert text == (
            "old: the cluster does not offer the mechanism SCRAM-SHA-512 (it offers PLAIN); "
            "set sasl.mechanism to one that it offers"
        )
        assert took < SOON_S


def test_programs_end_with_what_waiting_does_not_mend() -> None:
    log = patches.prepare(lambda _: None)

    def produce(connection: Connection) -> None:
        delivery = Delivery(connection, prefix="", run="r", origin="here", client_log=log, stop=threading.Event())
        delivery.open(["ORDERS"], 60, lambda _: None)

    def consume(connection: Connection) -> None:
        selection = Selection(("ORDERS",), re.compile(""))
        Reader(
            connection,
            selection,
            group=None,
            start=Start(end="earliest"),
            follow=False,
            client_log=log,
            report=lambda _: None,
        )

    with listening(with_one_mechanism) as port:
        connection = Connection((f"127.0.0.1:{port}",), "SASL_PLAINTEXT", "SCRAM-SHA-512", "ann", "x")
        for program in (produce, consume):
            began = time.monotonic()
            with pytest.raises(LabError, match=rf"^127\.0\.0\.1:{port} does not offer the mechanism SCRAM-SHA-512"):
                program(connection)
            assert time.monotonic() - began < SOON_S, program


def test_a_console_names_a_sign_in_that_the_cluster_does_not_offer() -> None:
    with listening(with_one_mechanism) as port:
        connection = Connection((f"127.0.0.1:{port}",), "SASL_PLAINTEXT", "SCRAM-SHA-512", "ann", "x")
        with closing(ClusterView("old", connection)) as view, pytest.raises(UnreachableError) as raised:
            asyncio.run(view.topics())
    assert str(raised.value).startswith("old: Kafka does not offer the mechanism SCRAM-SHA-512 (it offers PLAIN)")


def test_a_token_that_cannot_be_had_is_named() -> None:
    def with_tokens(accepted: socket.socket) -> None:
        while size := accepted.recv(4):
            request = accepted.recv(struct.unpack(">i", size)[0])
            key, version, correlation = struct.unpack(">hhi", request[:8])
            if key == API_VERSIONS:
                keys = [(API_VERSIONS, 0, 0), (HANDSHAKE, 0, 1), (36, 0, 1), (3, 0, 8)]
                error = 35 if version else 0
                body = struct.pack(">hi", error, len(keys)) + b"".join(struct.pack(">hhh", *one) for one in keys)
            else:
                body = struct.pack(">hi", 0, 1) + struct.pack(">h11s", 11, b"OAUTHBEARER")
            accepted.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)

    with listening(with_tokens) as port:
        credentials = ClientCredentials("https://127.0.0.1:1/token", "ann", "s3cret")
        connection = Connection((f"127.0.0.1:{port}",), "SASL_PLAINTEXT", "OAUTHBEARER", "ann", credentials=credentials)
        text, took = refused(connection)
    assert text == (
        "old: the cluster cannot be signed in to: the token endpoint 127.0.0.1:1 cannot be reached: Connection refused"
    )
    assert took < SOON_S


@pytest.mark.parametrize(
    "said", ["Authentication failed with SASL mechanism OAUTHBEARER", '{"status":"invalid_token"}']
)
def test_a_token_that_is_refused_is_named(said: str) -> None:
    error = SaslAuthenticationFailedError(f"x: {said}")
    assert patches.explain(error, "ann").startswith("refuses the token of client 'ann'; check the client's scope")


def test_a_right_sign_in_is_left_alone() -> None:
    """The bootstrap of a client whose broker accepts everything: what listens to its answers must not hold them up."""

    def without_users(accepted: socket.socket) -> None:
        port = accepted.getsockname()[1]
        while size := accepted.recv(4):
            request = accepted.recv(struct.unpack(">i", size)[0])
            key, version, correlation = struct.unpack(">hhi", request[:8])
            if key == API_VERSIONS:
                error = 35 if version else 0
                body = struct.pack(">hi", error, 2) + struct.pack(">6h", API_VERSIONS, 0, 0, 3, 0, 1)
            else:
                assert (key, version) == (3, 1)
                broker = struct.pack(">iih9sih", 1, 1, 9, b"127.0.0.1", port, -1)
                body = broker + struct.pack(">ii", 1, 0)
            accepted.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)

    patches.repair()
    with listening(without_users) as port:
        network = NetworkSelector()
        manager = KafkaConnectionManager(network, bootstrap_servers=[f"127.0.0.1:{port}"])
        assert network.run(manager.bootstrap_async, 5000) is True
        assert [broker.port for broker in manager.cluster.brokers()] == [port]
        manager.close()
