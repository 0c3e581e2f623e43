"""What stands beside kafka-python: its log, and the repairs of its connecting, reading and decoding."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from crc32c import crc32c
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import (
    Cancelled,
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
    UnsupportedCodecError,
)
from kafka.future import Future
from kafka.net.connection import KafkaConnection as KafkaBrokerConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.metadata import MetadataResponse

from loosehanger.kafka import patches
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import ClientLog, Tolerant, UnreadableError, prepare, repair
from tests.batches import TOPIC, Odd, Sent, arrives, batch, consume
from tests.closing_transport import closed_while_it_reads
from tests.consoles import NOWHERE
from tests.starting_cluster import Starting


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


def test_what_arrives_while_a_client_is_closed_is_no_complaint() -> None:
    lines: list[str] = []
    prepare(lines.append)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = KafkaTCPTransport(None, ours)
        transport._sock = None  # As it is when a client is closed.
        _, error = transport._sock_recv()
        assert isinstance(error, KafkaConnectionError)
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


def test_reading_ends_when_the_client_is_closed() -> None:
    prepare(lambda _: None)
    transport = closed_while_it_reads()
    asyncio.run(transport._read_from_sock())
    broken = closed_while_it_reads()
    broken.close = lambda: broken.set_protocol(None)
    with pytest.raises(AttributeError):
        asyncio.run(broken._read_from_sock())


def test_a_broker_that_never_shakes_hands_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "HANDSHAKE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = Connection((f"127.0.0.1:{silent.getsockname()[1]}",), "SSL")
        with pytest.raises(KafkaTimeoutError):
            KafkaAdminClient(**connection.kafka_python(), bootstrap_timeout_ms=1000)


ODD_HEADERS: list[tuple[str, bytes | None]] = [
    ("one", b"1"),
    (Odd("n\xe4me \xff"), b"\xff"),
    ("", None),
    ("n\xe4me", b""),
]


def numbered(first: int, count: int) -> list[Sent]:
    """Plain records."""
    return [(b"k", b"%d" % number, []) for number in range(first, first + count)]


@pytest.mark.parametrize("codec", [0, 1], ids=["uncompressed", "gzip"])
@pytest.mark.parametrize("tolerant", [False, True])
def test_a_header_may_have_any_name(codec: int, tolerant: bool) -> None:
    records: list[Sent] = [(b"a", b"1", []), (b"b", b"2", ODD_HEADERS), (None, None, ODD_HEADERS), (b"c", b"3", [])]
    skipped: list[str] = []
    found, end = consume(batch(7, records, codec), Tolerant(skipped.append) if tolerant else None)
    read = [("one", b"1"), ("n\ufffdme \ufffd", b"\xff"), ("", None), ("n\xe4me", b"")]
    assert [(one.offset, one.key, one.value, one.headers) for one in found] == [
        (7, b"a", b"1", []),
        (8, b"b", b"2", read),
        (9, None, None, read),
        (10, b"c", b"3", []),
    ]
    assert end == 11
    assert skipped == []


def foreign_codec(data: bytes) -> bytes:
    """The batch as if it was compressed with a codec that is not known yet."""
    changed = bytearray(data)
    changed[22] |= 5
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)


def damaged(data: bytes) -> bytes:
    """The batch with one of its bytes flipped."""
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def broken(data: bytes) -> bytes:
    """The batch with a last record that has fewer headers than it says."""
    changed = bytearray(data)
    changed[-1] = 14
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize(
    ("spoil", "unread", "reason"),
    [(foreign_codec, 4, "compression type: 5"), (damaged, 4, "crc"), (broken, 1, "structure")],
)
def test_a_tolerant_consumer_goes_on_behind_what_cannot_be_read_and_counts_it(
    spoil: Callable[[bytes], bytes], unread: int, reason: str
) -> None:
    lines: list[str] = []
    tolerant = Tolerant(lines.append)
    fetched = batch(0, numbered(0, 2)) + spoil(batch(2, numbered(2, 4))) + batch(6, numbered(6, 2))
    found, end = consume(fetched + spoil(batch(8, numbered(8, 4))), tolerant)
    read = [*range(2), *range(2, 6 - unread), 6, 7, *range(8, 12 - unread)]
    assert [int(one.value) for one in found] == read
    assert (end, tolerant.skipped) == (12, 2 * unread)
    assert len(lines) == 2
    assert lines[0].startswith(f"LH.ORDERS/1: skipped {unread} record")
    assert f"at offsets {6 - unread} to 5, which cannot be read (" in lines[0]
    assert reason in lines[0]
    assert lines[1].endswith(f"; {2 * unread} so far")


LONG: list[Sent] = [(b"k", b"a record that is worth compressing, " * 20, [])] * 4


def truncated(data: bytes) -> bytes:
    """A compressed batch of which a part is missing, and whose checksum fits what is left."""
    changed = bytearray(data[:-12])
    changed[8:12] = struct.pack(">i", len(changed) - 12)
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("codec", range(1, 5), ids=["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("tolerant", [False, True])
def test_each_codec_is_read(codec: int, tolerant: bool) -> None:
    records = numbered(0, 5000)
    found, end = consume(batch(0, records, codec), Tolerant(print) if tolerant else None)
    assert [one.value for one in found] == [value for _, value, _ in records]
    assert end == 5000


@pytest.mark.parametrize("codec", range(1, 5), ids=["gzip", "snappy", "lz4", "zstd"])
def test_a_truncated_batch_is_skipped_by_a_tolerant_consumer(codec: int) -> None:
    lines: list[str] = []
    found, end = consume(truncated(batch(0, LONG, codec)) + batch(4, numbered(4, 1)), Tolerant(lines.append))
    assert ([one.offset for one in found], end) == ([4], 5)
    assert "skipped 4 records at offsets 0 to 3" in lines[0]


@pytest.fixture
def consumer() -> Iterator[Any]:
    """A consumer that has no broker: it gets what a test fetches for it."""
    # With a version of the protocol it need not find a cluster to begin with.
    found = KafkaConsumer(**NOWHERE.kafka_python(), api_version=(4, 0))
    found._fetcher.send_fetches = list
    yield found
    found.close(autocommit=False)


OTHER = TopicPartition("LH.RETURNS", 0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (foreign_codec(batch(2, numbered(2, 4))), "UnsupportedCodecError: Unrecognized compression type: 5"),
        (damaged(batch(2, numbered(2, 4))), "CorruptRecordError: .* crc check"),
        (truncated(batch(2, LONG, 1)), "Error"),
        (truncated(batch(2, LONG, 2)), "Error"),
        (truncated(batch(2, LONG, 3)), "Error"),
        (truncated(batch(2, LONG, 4)), "Error"),
    ],
    ids=["codec", "damaged", "gzip", "snappy", "lz4", "zstd"],
)
def test_a_batch_that_cannot_be_decoded_is_named_at_each_poll_and_hides_no_other_partition(
    consumer: Any, data: bytes, reason: str
) -> None:
    consumer.assign([TOPIC, OTHER])
    for place in (TOPIC, OTHER):
        consumer.seek(place, 0)
    arrives(consumer, TOPIC, batch(0, numbered(0, 2)) + data)
    arrives(consumer, OTHER, batch(0, numbered(0, 1)))
    assert [one.offset for one in consumer.poll(100)[TOPIC]] == [0, 1]
    for _ in range(3):
        with pytest.raises(
            UnreadableError, match=rf"^topic LH\.ORDERS, partition 1, offset 2: .*cannot be read \(.*{reason}"
        ) as raised:
            consumer.poll(100)
    assert (raised.value.place, raised.value.offset) == (TOPIC, 2)
    assert consumer.position(TOPIC) == 2
    consumer.pause(TOPIC)
    assert [one.offset for one in consumer.poll(100)[OTHER]] == [0]
    assert consumer.poll(0) == {}
    consumer.resume(TOPIC)
    consumer.seek(TOPIC, 6)
    assert consumer.poll(0) == {}, "a reader that seeks beyond it is not stopped by it"


@pytest.mark.parametrize("seeks", [False, True])
def test_a_partition_that_was_paused_with_records_left_is_read_on(consumer: Any, seeks: bool) -> None:
    consumer.config["max_poll_records"] = 2
    places = [TOPIC, OTHER, TopicPartition("LH.SENSORS", 0)]
    consumer.assign(places)
    for place, count in zip(places, (3, 1, 4), strict=True):
        consumer.seek(place, 0)
        arrives(consumer, place, batch(0, numbered(0, count)))
    assert [one.offset for one in consumer.poll(0)[TOPIC]] == [0, 1]
    consumer.pause(TOPIC)
    read = consumer.poll(0)
    assert {place: [one.offset for one in found] for place, found in read.items()} == {OTHER: [0], places[2]: [0]}
    consumer.pause(places[2])
    assert consumer.poll(0) == {}
    consumer.resume(TOPIC, places[2])
    if seeks:
        for place in (TOPIC, places[2]):
            consumer.seek(place, 0)
            assert consumer.poll(0) == {}, "what was set aside lies elsewhere"
        assert {TOPIC, places[2]} <= {*consumer._fetcher._fetchable_partitions()}
        return
    read = {**consumer.poll(0), **consumer.poll(0)}
    assert {place: [one.offset for one in found] for place, found in read.items()} == {TOPIC: [2], places[2]: [1, 2]}


def test_a_poll_that_does_not_return_is_abandoned(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "POLL_S", 0.2)

    def spin(*_: Any, **__: Any) -> Any:
        while True:
            pass

    monkeypatch.setattr(consumer, "_poll_once", spin)
    with pytest.raises(KafkaTimeoutError, match="poll has not returned"):
        consumer.poll(50)
    with pytest.raises(KafkaTimeoutError, match="close it"):
        consumer.poll(50)
    consumer.close()
    thread = consumer.poller._thread
    thread.join(60)
    assert not thread.is_alive(), "what spins would take the processor from everybody else"


def test_who_is_interrupted_in_a_poll_skips_nothing(consumer: Any) -> None:
    class Interrupted:
        """The answers of the thread; before the first, a signal comes."""

        def __init__(self) -> None:
            self._queue: SimpleQueue[Any] = SimpleQueue()
            self._come = False
            self.put = self._queue.put

        def get(self, timeout: float) -> Any:
            if not self._come:
                self._come = True
                raise KeyboardInterrupt
            return self._queue.get(timeout=timeout)

    consumer.assign([TOPIC])
    consumer.seek(TOPIC, 0)
    arrives(consumer, TOPIC, batch(0, numbered(0, 3)))
    consumer.poller = poller = patches._Poller()
    answers: Any = Interrupted()
    poller._answers = answers
    poller._thread = threading.Thread(target=patches._poll_on, args=(poller._calls, answers), daemon=True)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(100)
    assert consumer.position(TOPIC) == 0
    assert consumer.poll(0) == {}, "it can go on"


def test_a_consumer_that_is_closed_or_forgotten_leaves_no_thread() -> None:
    prepare(lambda _: None)
    threads = []
    for close in (True, False):
        consumer = KafkaConsumer(**NOWHERE.kafka_python(), api_version=(4, 0))
        consumer.poll(0)
        threads.append(consumer.poller._thread)
        if close:
            consumer.close()
        else:
            consumer._client.close()
            del consumer
            gc.collect()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_a_position_costs_the_same_whatever_else_is_assigned(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [TopicPartition("LH.MANY", number) for number in range(2100)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, place.partition)
    surveys: list[None] = []
    monkeypatch.setattr(consumer._fetcher, "maybe_validate_positions", lambda: surveys.append(None))
    assert [consumer.position(place) for place in places] == list(range(2100))
    assert not surveys


def test_a_position_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = KafkaConsumer(
        **NOWHERE.kafka_python(), api_version=(4, 0), request_timeout_ms=200, fetch_max_wait_ms=100, group_id=None
    )
    # Its leader has changed, and the new one does not say whether the position is still valid.
    monkeypatch.setattr(consumer._fetcher, "validate_offsets_if_needed", lambda **_: Future())
    try:
        consumer.assign([TOPIC])
        with pytest.raises(KafkaTimeoutError, match=r"position in LH\.ORDERS-1 did not become known"):
            consumer.position(TOPIC)
    finally:
        consumer.close(autocommit=False)


def test_the_topics_are_not_waited_for_without_end() -> None:
    consumer = KafkaConsumer(
        **NOWHERE.kafka_python(), api_version=(4, 0), request_timeout_ms=200, fetch_max_wait_ms=100
    )
    try:
        with pytest.raises(KafkaTimeoutError):
            consumer.topics()
    finally:
        consumer.close()


def test_any_other_consumer_overlooks_nothing() -> None:
    with pytest.raises(UnreadableError, match="UnsupportedCodecError") as raised:
        consume(foreign_codec(batch(0, numbered(0, 2))), None)
    assert isinstance(raised.value.__cause__, UnsupportedCodecError)


@pytest.mark.parametrize("codec", range(1, 5), ids=["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_unpacks_to_too_much_is_skipped(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "MOST_UNPACKED", 1 << 20)
    lines: list[str] = []
    large: list[Sent] = [(None, bytes(1 << 20), [])]
    fits: list[Sent] = [(None, bytes(1000 << 10), [])]
    fetched = batch(0, large, codec) + batch(1, fits, codec) + batch(2, large)
    found, end = consume(fetched, Tolerant(lines.append))
    assert ([one.offset for one in found], end) == ([1, 2], 3), "what is not compressed has passed the broker's bound"
    (line,) = lines
    assert "skipped 1 record at offsets 0 to 0" in line
    assert "more than 1 MiB when it is decompressed" in line


def test_records_are_cut_before_they_are_kept_and_their_sizes_stay() -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("a", b"1"),
        ("b", None),
        ("c", bytes(500)),
        ("d", b"2"),
        ("e" * 99, b""),
    ]
    records: list[Sent] = [(bytes(300), bytes(2000), headers), (b"k", b"v", headers[:2]), (None, None, [])]
    found, _ = consume(batch(0, records), Tolerant(print, value_bytes=100, header_bytes=50))
    long, short, empty = found
    assert (long.key, long.value) == (bytes(100), bytes(100))
    assert (long.serialized_key_size, long.serialized_value_size, long.serialized_header_size) == (300, 2000, 605)
    assert long.headers == [("a", b"1"), ("b", None), ("c", bytes(46))]
    assert (short.key, short.value, short.headers) == (b"k", b"v", headers[:2])
    assert (empty.key, empty.value, empty.headers) == (None, None, [])


@pytest.mark.parametrize(
    ("failure", "expected", "said"),
    [
        (
            SaslAuthenticationFailedError("SaslAuthenticationFailedError: invalid credentials"),
            SaslAuthenticationFailedError,
            "refuses user 'eve': invalid credentials",
        ),
        (
            KafkaConnectionError("Handshake failed: certificate verify failed"),
            KafkaTimeoutError,
            r"does not answer \(.*Unable to bootstrap from .*Handshake failed: certificate verify failed\)",
        ),
    ],
)
def test_who_finds_no_cluster_is_told_why(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, expected: type[Exception], said: str
) -> None:
    async def refused(self: Any, timeout_at: float | None = None) -> None:
        del timeout_at
        self.close(failure)

    monkeypatch.setattr(KafkaBrokerConnection, "initialize", refused)
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection((f"127.0.0.1:{server.getsockname()[1]}",))
        for client in (KafkaAdminClient, KafkaConsumer):
            with pytest.raises(expected) as raised:
                client(**connection.kafka_python(), bootstrap_timeout_ms=2000)
            assert re.fullmatch(said, patches.explain(raised.value, "eve"))


@pytest.mark.parametrize("bootstrap", [False, True])
def test_an_address_that_a_broker_advertises_is_named(bootstrap: bool) -> None:
    repair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    connection = Connection((f"127.0.0.1:{closed}" if bootstrap else "127.0.0.1:1",))
    network = NetworkSelector()
    manager = KafkaConnectionManager(network, **connection.kafka_python())
    node = MetadataResponse.MetadataResponseBroker(7, "127.0.0.1", closed, None)
    with pytest.raises(KafkaConnectionError) as raised:
        network.run(manager._build_transport, node)
    said = patches.explain(raised.value, "eve")
    named = f"answers, but broker 7 advertises the address 127.0.0.1:{closed} (advertised.listeners)"
    assert said.startswith("does not answer" if bootstrap else named)
    # Until it tries again, the client only says that no broker is ready.
    waiting = NodeNotReadyError("No node_id provided")
    cause = patches.cause_of(waiting, SimpleNamespace(_manager=manager))
    assert cause is (waiting if bootstrap else raised.value)


def threads_of(client_id: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.endswith(client_id)]


@pytest.mark.parametrize("client", [KafkaConsumer, KafkaAdminClient, KafkaProducer])
def test_who_finds_no_cluster_leaves_nothing_behind(client: Callable[..., Any]) -> None:
    prepare(lambda _: None)
    gc.collect()
    before = psutil.Process().num_fds()
    for _ in range(3):
        with pytest.raises(KafkaTimeoutError):
            client(**NOWHERE.kafka_python(), client_id="unanswered", bootstrap_timeout_ms=100)
    assert threads_of("unanswered") == []
    gc.collect()
    assert psutil.Process().num_fds() <= before


def test_who_cannot_take_leave_is_closed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(lambda _: None)
    # With a version of the protocol it need not find a cluster to begin with.
    consumer = KafkaConsumer(**NOWHERE.kafka_python(), client_id="stayer", api_version=(4, 0))
    assert threads_of("stayer")
    monkeypatch.setattr(consumer._coordinator, "close", refuse)
    with pytest.raises(KafkaTimeoutError, match="no leave"):
        consumer.close()
    assert threads_of("stayer") == []


def refuse(**_: Any) -> None:
    raise KafkaTimeoutError("no leave")


def test_what_a_consumer_has_to_join_for_is_not_forgotten_with_its_request() -> None:
    """It notes the topics that it asks to read when it asks; it has to go on asking until it is a member."""
    repair()
    subscription = SubscriptionState()
    subscription.subscribe(pattern="^LH")
    coordinator = ConsumerCoordinator.__new__(ConsumerCoordinator)
    coordinator.config = {"api_version": (4, 0), "group_id": "readers"}
    coordinator._subscription = subscription
    coordinator._assignors = {}
    coordinator._assignment_snapshot = coordinator._metadata_snapshot = None
    coordinator._joined_subscription, coordinator.rejoin_needed = set(), False
    subscription.change_subscription(["LH.ORDERS"])
    assert coordinator.need_rejoin()
    coordinator.group_protocols()
    assert coordinator.need_rejoin()
    coordinator.rejoin_needed = False  # as when it has joined
    assert not coordinator.need_rejoin()


@pytest.mark.parametrize(("mechanism", "warnings"), [("SCRAM-SHA-256", 0), ("PLAIN", 1)])
def test_plain_text_is_warned_of_where_a_password_travels(mechanism: str, warnings: int) -> None:
    said: list[str] = []
    logger = logging.getLogger("kafka.net.sasl")
    logger.addHandler(log := ClientLog(said.append))
    try:
        get_sasl_mechanism(mechanism)(
            sasl_mechanism=mechanism,
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="reader",
            sasl_plain_password="secret",
        )
    finally:
        logger.removeHandler(log)
    assert said == ["kafka client: Sending username and password in the clear"] * warnings


def starting_client(cluster: Starting) -> KafkaAdminClient:
    """A patched client in front of a cluster that starts."""
    repair()
    client = KafkaAdminClient.__new__(KafkaAdminClient)
    client._manager = cluster
    client._net = SimpleNamespace(sleep=asyncio.sleep)
    return client


def test_a_controller_that_has_just_started_is_reached() -> None:
    cluster = Starting()
    # It is named, and the node that is asked for all nodes does not know it yet, twice.
    cluster.answers = [*[cluster.answer(1)] * 4, cluster.answer(1, 2)]
    assert asyncio.run(starting_client(cluster)._refresh_controller_id()) == 2
    assert cluster.cluster.broker_metadata(2) is not None


def test_a_controller_that_no_node_knows_is_named_in_time() -> None:
    cluster = Starting()
    cluster.answers = [cluster.answer(1)]
    with pytest.raises(NodeNotReadyError, match="the controller, node 2"):
        asyncio.run(starting_client(cluster)._refresh_controller_id(300))
