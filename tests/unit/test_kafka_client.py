"""What stands beside kafka-python: its log, and the repairs of its reading and connecting."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest
from kafka.admin import KafkaAdminClient
from kafka.errors import Cancelled, KafkaConnectionError, KafkaTimeoutError, SaslAuthenticationFailedError
from kafka.net.transport import KafkaTCPTransport

from lab import kafka_client
from lab.connection import Connection
from lab.kafka_client import ClientLog, prepare


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("kafka.test")
    yield logger
    logger.handlers.clear()


def test_a_flood_becomes_one_line(logger: logging.Logger) -> None:
    lines: list[str] = []
    logger.addHandler(ClientLog(lines.append))
    for number in range(50):
        logger.error("%s: Connection lost: %s", "<KafkaConnection node_id=1>", number)
        logger.warning("something else")
    assert lines == ["kafka client: Connection lost: 0"]


def test_a_complaint_comes_again_with_what_was_left_out(logger: logging.Logger) -> None:
    lines: list[str] = []
    logger.addHandler(ClientLog(lines.append, apart_s=0, repeat_s=60))
    for _ in range(3):
        logger.warning("first\n  kind")
    logger.warning("second kind")
    assert lines == ["kafka client: first kind", "kafka client: second kind (and 2 more before)"]


def test_a_traceback_becomes_a_part_of_the_line(logger: logging.Logger) -> None:
    lines: list[str] = []
    logger.addHandler(ClientLog(lines.append))
    error = ValueError("odd\nanswer")
    logger.error("Uncaught error", exc_info=(ValueError, error, None))
    assert lines == ["kafka client: Uncaught error: ValueError: odd answer"]


def test_what_the_client_breaks_off_itself_is_no_complaint(logger: logging.Logger) -> None:
    lines: list[str] = []
    logger.addHandler(ClientLog(lines.append))
    logger.error("Metadata refresh: failed %s", Cancelled())
    assert lines == []


def test_a_refusal_is_noticed(logger: logging.Logger) -> None:
    client_log = ClientLog(lambda _: None)
    logger.addHandler(client_log)
    logger.error("Connection lost: %s", KafkaConnectionError("gone"))
    assert client_log.refused is None
    refusal = SaslAuthenticationFailedError("invalid credentials")
    logger.error("%s: Connection lost: %s", "<KafkaConnection>", refusal)
    assert client_log.refused is refusal


def test_what_comes_with_the_end_of_a_connection_is_read() -> None:
    prepare(lambda _: None)
    here, there = socket.socketpair()
    here.setblocking(False)
    with here:
        there.sendall(b"wrong password")
        there.close()
        transport = KafkaTCPTransport(None, here)
        assert transport._sock_recv() == (b"wrong password", None)
        data, error = transport._sock_recv()
        assert data == b""
        assert isinstance(error, KafkaConnectionError)


def test_a_broker_that_never_shakes_hands_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "HANDSHAKE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = Connection((f"127.0.0.1:{silent.getsockname()[1]}",), "SSL")
        with pytest.raises(KafkaTimeoutError):
            KafkaAdminClient(**connection.kafka_python(), bootstrap_timeout_ms=1000)
