"""The defects of kafka-python that ``loosehanger.kafka.patches`` mends, each shown on the library as it is installed.

Each test runs without the patches and asserts the defect. One that fails says that the installed version has mended
it: remove the patch with its test. The body and docstring of a test are a report for the library's maintainers: they
use kafka-python, and nothing of the kit but record batches as a broker sends them.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.consumer.fetcher import Fetcher
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import (
    CorruptRecordError,
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
)
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.metadata import MetadataResponse
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecord
from kafka.record.memory_records import MemoryRecords

from loosehanger.kafka import patches
from tests.batches import TOPIC, Odd, Sent, arrives, batch
from tests.closing_transport import closed_while_it_reads
from tests.starting_cluster import Starting

SHOWN: set[tuple[Any, str]] = set()
"""The methods whose defect a test shows."""
NO_CLUSTER: dict[str, Any] = {"bootstrap_servers": ["127.0.0.1:1"], "bootstrap_timeout_ms": 100}
"""An address where no broker listens."""
BLOCKED_S = 1.0
"""How long a call that should have returned after a fraction of it is watched."""


def shows(owner: Any, name: str) -> Callable[[Any], Any]:
    """Marks the test that shows the defect of a method."""
    SHOWN.add((owner, name))
    return lambda test: test


@pytest.fixture(autouse=True)
def unpatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the patches away: an earlier test of this process may have made them."""
    for owner, name, _ in patches.repairs():
        method = getattr(owner, name)
        monkeypatch.setattr(owner, name, getattr(method, "repairs", method))


@pytest.fixture
def consumer() -> Iterator[Any]:
    """A consumer without a broker: with a version of the protocol it does not look for a cluster to begin with."""
    found = KafkaConsumer(
        bootstrap_servers=NO_CLUSTER["bootstrap_servers"], api_version=(4, 0), client_id="unpatched", group_id="readers"
    )
    yield found
    found._client.close()


def threads_of(client_id: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.endswith(client_id)]


def returns_in_time(call: Callable[[], object], release: Callable[[], object]) -> bool:
    """Whether a call returns, or raises, within ``BLOCKED_S``; ``release`` then has it return in any case."""
    done = threading.Event()

    def run() -> None:
        with suppress(Exception):
            call()
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    in_time = done.wait(BLOCKED_S)
    release()
    thread.join(30)
    assert not thread.is_alive()
    return in_time


def test_each_patch_has_its_defect_shown() -> None:
    assert {(owner, name) for owner, name, _ in patches.repairs()} == SHOWN


@shows(KafkaTCPTransport, "_sock_recv")
@shows(KafkaSSLTransport, "_sock_recv")
@pytest.mark.parametrize("transport_class", [KafkaTCPTransport, KafkaSSLTransport])
def test_data_that_arrives_with_the_end_of_a_connection_is_thrown_away(
    transport_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers a wrong password with an error and closes the connection.

    ``_sock_recv`` reads both in one loop and returns ``data, error``; ``_read_from_sock`` looks at the error first and
    aborts without handing the data over. The client takes a refused password for a lost connection and retries.
    Expected: the data reaches the protocol before the connection is aborted.
    """
    arrived: list[bytes] = []
    answers = iter([b"wrong password", b"", b""])

    async def wait_read(_: object) -> None: ...

    transport = transport_class.__new__(transport_class)
    transport._read, transport._closed = True, False
    transport._net = SimpleNamespace(wait_read=wait_read)
    transport._sock = SimpleNamespace(recv=lambda _: next(answers))
    transport._protocol = SimpleNamespace(_sensors=None, data_received=arrived.append)
    aborted: list[Exception] = []
    monkeypatch.setattr(transport_class, "abort", lambda _, error: aborted.append(error))
    monkeypatch.setattr(transport_class, "__str__", lambda _: "transport")
    with pytest.raises(StopIteration):
        transport._read_from_sock().send(None)
    assert isinstance(aborted[0], KafkaConnectionError)
    assert arrived == []


@shows(KafkaTCPTransport, "_read_from_sock")
def test_what_arrives_while_a_client_is_closed_is_logged_as_a_defect() -> None:
    """A client's ``close`` clears ``_protocol`` in the caller's thread, between two lines of ``_read_from_sock``.

    The event loop logs "Unhandled exception in task", though nothing is wrong. Expected: reading ends.
    """
    transport = closed_while_it_reads()
    with pytest.raises(AttributeError, match="data_received"):
        asyncio.run(transport._read_from_sock())


@shows(KafkaSSLTransport, "handshake")
def test_a_broker_that_accepts_and_is_silent_holds_a_client_for_ever() -> None:
    """A TLS handshake has no time-out, so neither ``bootstrap_timeout_ms`` nor ``request_timeout_ms`` holds.

    A process that hangs accepts connections and never answers. Expected: ``KafkaTimeoutError`` after the bootstrap
    time-out.
    """
    clients: list[Any] = []

    class Kept(KafkaAdminClient):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            clients.append(self)
            super().__init__(**options)

    silent = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    in_time = returns_in_time(
        lambda: Kept(bootstrap_servers=[address], security_protocol="SSL", bootstrap_timeout_ms=100), silent.close
    )
    clients[0]._client.close()
    assert not in_time


@shows(DefaultRecordBatch, "_read_msg")
def test_a_header_name_that_is_not_utf8_makes_a_record_unreadable() -> None:
    """A broker keeps any bytes as a header's name, and Java's client replaces what it cannot decode by U+FFFD.

    ``DefaultRecordBatch._read_msg`` decodes strictly, so the batch counts as corrupt.
    Expected: the record, with a replaced name.
    """
    records = MemoryRecords(batch(0, [(b"key", b"value", [(Odd("n\xff"), b"")])]))
    with pytest.raises(CorruptRecordError, match="UnicodeDecodeError"):
        list(records.next_batch())


def damaged(data: bytes) -> bytes:
    """The batch with one of its bytes flipped."""
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@shows(Fetcher.PartitionRecords, "_unpack_records")
def test_no_setting_has_a_consumer_skip_a_batch_that_cannot_be_read() -> None:
    """A viewer wants the records behind a damaged batch. The position stays before it, whatever the caller does.

    Expected: a way to skip the batch and count it. A batch is decompressed without a bound, too: a few kilobytes of
    gzip become any number of megabytes in memory.
    """
    good: list[Sent] = [(b"key", b"value", [])]
    records = MemoryRecords(damaged(batch(0, good)) + batch(1, good))
    partition = Fetcher.PartitionRecords(0, TOPIC, records)
    with pytest.raises(CorruptRecordError):
        partition.take(10)
    assert partition.next_fetch_offset == 0
    assert partition.take(10) == []
    packed = batch(0, [(b"key", bytes(1 << 20), [])], 1)
    assert len(packed) < 4096
    assert len(Fetcher.PartitionRecords(0, TOPIC, MemoryRecords(packed)).take(1)[0].value) == 1 << 20


@shows(Fetcher.PartitionRecords, "take")
def test_a_batch_that_cannot_be_read_fails_once_and_then_never_ends() -> None:
    """``take`` raises once; then the partition has no records, and is not drained either.

    ``Fetcher`` keeps such a partition as the one to read next, and its loop around ``take`` spins: ``poll`` does not
    return. Expected: each ``take`` raises, as Java's client does, until the consumer seeks beyond the batch.
    """
    partition = Fetcher.PartitionRecords(0, TOPIC, MemoryRecords(damaged(batch(0, [(b"key", b"value", [])]))))
    with pytest.raises(CorruptRecordError):
        partition.take(1)
    assert [partition.take(1) for _ in range(3)] == [[], [], []]
    assert partition, "it still counts as one to read from"


@shows(KafkaConnectionManager, "_do_bootstrap")
def test_a_client_that_finds_no_cluster_does_not_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password, or a certificate that is not trusted, ends as "Unable to bootstrap" when the time is up.

    Expected: the failure of the last attempt, as the error itself or as its cause.
    """

    async def refused(self: Any, timeout_at: float | None = None) -> None:
        del timeout_at
        self.close(SaslAuthenticationFailedError("invalid credentials"))

    monkeypatch.setattr(KafkaConnection, "initialize", refused)
    with socket.create_server(("127.0.0.1", 0)) as server:
        network = NetworkSelector()
        manager = KafkaConnectionManager(network, bootstrap_servers=[f"127.0.0.1:{server.getsockname()[1]}"])
        with pytest.raises(KafkaTimeoutError) as raised:
            network.run(manager.bootstrap_async, 100)
    assert "credentials" not in str(raised.value)
    assert raised.value.__cause__ is None


@shows(KafkaConnectionManager, "_build_transport")
def test_the_address_that_cannot_be_reached_is_not_named() -> None:
    """A client bootstraps at one address and then connects to those that the brokers advertise.

    An advertised address that is right only within the cluster's network is a frequent mistake. Expected: the error
    names the broker and its address.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    network = NetworkSelector()
    manager = KafkaConnectionManager(network, bootstrap_servers=["127.0.0.1:1"])
    node = MetadataResponse.MetadataResponseBroker(7, "127.0.0.1", closed, None)
    with pytest.raises(KafkaConnectionError) as raised:
        network.run(manager._build_transport, node)
    assert str(closed) not in str(raised.value)


@shows(KafkaConsumer, "__init__")
@shows(KafkaAdminClient, "__init__")
@pytest.mark.parametrize("client_class", [KafkaConsumer, KafkaAdminClient])
def test_a_client_that_finds_no_cluster_leaves_its_thread_behind(client_class: Any) -> None:
    """The constructor raises without closing what it opened, and the caller has no object to close.

    A program that tries again while a cluster is down leaks a thread and sockets each time. Expected: the constructor
    closes its network client before it raises, as ``KafkaProducer`` does.
    """
    clients: list[Any] = []

    class Kept(client_class):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            clients.append(self)
            super().__init__(**options)

    with pytest.raises(KafkaTimeoutError):
        Kept(**NO_CLUSTER, client_id="leaking")
    left = threads_of("leaking")
    clients[0]._client.close()
    assert left


@shows(KafkaConsumer, "close")
def test_a_consumer_that_cannot_leave_its_group_stays_open(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``close`` closes the coordinator first; when that raises, the network client is never closed.

    Expected: thread and sockets are closed in any case.
    """

    def refuse(**_: Any) -> None:
        raise KafkaTimeoutError("no leave")

    monkeypatch.setattr(consumer._coordinator, "close", refuse)
    with pytest.raises(KafkaTimeoutError, match="no leave"):
        consumer.close()
    assert threads_of("unpatched")


@shows(KafkaConsumer, "poll")
def test_poll_waits_for_its_network_thread_without_a_bound(consumer: Any) -> None:
    """``poll(timeout_ms)`` runs coroutines on the network thread and waits for it, however long it is busy.

    Expected: ``poll`` returns, or raises, when its time-out has passed.
    """
    consumer.subscribe(["topic"])
    released = threading.Event()
    consumer._net.call_soon(released.wait)
    assert not returns_in_time(lambda: consumer.poll(50), released.set)


@shows(KafkaConsumer, "position")
def test_the_position_of_one_partition_costs_a_look_at_all(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``position`` validates every assigned partition before it answers for one, even if its position is known.

    A program that asks for each of 700 partitions waits for a minute. Expected: a known position is returned at once.
    """
    places = [TopicPartition("topic", number) for number in range(700)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, place.partition)
    looks: list[None] = []
    monkeypatch.setattr(consumer._fetcher, "maybe_validate_positions", lambda: looks.append(None))
    assert consumer.position(places[5]) == 5
    assert looks


@shows(Fetcher, "fetched_records")
def test_a_partition_that_was_paused_with_records_left_is_never_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """``pause`` sets a partition's unread records aside, and ``resume`` does not bring them back.

    They are taken back while ``_next_partition_records`` is None, which it is not after another partition was read to
    its end: it is what is left of that answer, and false. A partition with records set aside is not fetched either, so
    that not even ``seek`` helps. Expected: the records, at the first ``poll`` after ``resume``.
    """
    consumer = KafkaConsumer(bootstrap_servers=NO_CLUSTER["bootstrap_servers"], api_version=(4, 0), max_poll_records=1)
    monkeypatch.setattr(consumer._fetcher, "send_fetches", list)
    paused, other = TopicPartition("topic", 0), TopicPartition("topic", 1)
    consumer.assign([paused, other])
    for place, values in ((paused, [b"1", b"2"]), (other, [b"1"])):
        consumer.seek(place, 0)
        arrives(consumer, place, batch(0, [(None, value, []) for value in values]))
    assert list(consumer.poll(0)) == [paused]
    consumer.pause(paused)
    assert list(consumer.poll(0)) == [other]
    consumer.resume(paused)
    assert consumer.poll(0) == {}
    consumer.seek(paused, 0)
    assert consumer.poll(0) == {}
    assert paused not in consumer._fetcher._fetchable_partitions()
    consumer._client.close()


@shows(KafkaConsumer, "_fetch_all_topic_metadata")
def test_topics_waits_for_a_broker_without_a_bound(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``topics()`` waits for the metadata with no time-out. Expected: ``request_timeout_ms`` bounds it."""
    bounds: list[float | None] = []

    async def wait_for(_: object, timeout_ms: float | None) -> None:
        bounds.append(timeout_ms)

    monkeypatch.setattr(consumer._manager, "wait_for", wait_for)
    consumer._fetch_all_topic_metadata()
    assert None in bounds


@shows(ConsumerCoordinator, "need_rejoin")
def test_a_member_forgets_that_it_has_to_join_again_when_it_asks_to() -> None:
    """``group_protocols`` notes the new subscription when the request is sent, not when the member has joined.

    If that request outlasts one ``poll``, or has to be sent again, ``need_rejoin`` is false: no heartbeat follows, and
    the coordinator drops the member after its session time-out. Expected: true until the member has joined.
    """
    subscription = SubscriptionState()
    subscription.subscribe(pattern="^topic")
    coordinator = ConsumerCoordinator.__new__(ConsumerCoordinator)
    coordinator.config = {"api_version": (4, 0), "group_id": "readers"}
    coordinator._subscription = subscription
    coordinator._assignors = {}
    coordinator._assignment_snapshot = coordinator._metadata_snapshot = None
    coordinator._joined_subscription, coordinator.rejoin_needed = set(), False
    subscription.change_subscription(["topic"])
    assert coordinator.need_rejoin()
    coordinator.group_protocols()
    assert not coordinator.need_rejoin()


@shows(KafkaAdminClient, "_describe_cluster")
def test_describe_cluster_misses_a_field_that_brokers_before_3_7_do_not_send() -> None:
    """``describe_cluster`` raises ``KeyError: 'endpoint_type'`` for version 0 of the answer, of Kafka 2.8 to 3.6.

    Expected: the cluster, as from newer brokers.
    """

    class Manager:
        async def send(self, _: Any) -> Any:
            answer: dict[str, Any] = {
                "error_code": 0,
                "error_message": None,
                "throttle_time_ms": 0,
                "cluster_id": "c",
                "brokers": [],
            }
            return SimpleNamespace(error_code=0, error_message=None, to_dict=lambda: answer)

    client = KafkaAdminClient.__new__(KafkaAdminClient)
    client._manager = Manager()
    with pytest.raises(KeyError, match="endpoint_type"):
        asyncio.run(client._describe_cluster())


@shows(KafkaAdminClient, "_refresh_controller_id")
def test_the_address_of_a_controller_that_has_just_started_is_dropped() -> None:
    """A request to the controller fails with ``UnknownBrokerIdError``, though the answer that names it has its address.

    It happens while nodes start: the client's metadata are older than the controller.

    Expected: the client uses the brokers of the answer, or refreshes its metadata.
    """
    client, manager = KafkaAdminClient.__new__(KafkaAdminClient), Starting()
    client._manager = manager
    controller = asyncio.run(client._refresh_controller_id())
    assert controller == 2
    assert manager.cluster.broker_metadata(controller) is None


@shows(LegacyRecord, "__init__")
def test_a_record_of_the_first_format_has_none_where_others_have_a_number() -> None:
    """``timestamp`` of a record of clients before Kafka 0.10 is ``None``; sorting records by it raises ``TypeError``.

    Expected: -1, which Java's clients and the protocol have for a record without a time.
    """
    assert LegacyRecord(0, 7, None, None, b"key", b"value", 0, None).timestamp is None


def test_describe_configs_throws_the_error_of_a_topic_away() -> None:
    """``topic_configs`` asks by itself: a topic that the user may not describe looks as if nothing were set on it.

    Expected: ``describe_configs`` raises, or returns, each resource's error.
    """
    refused = SimpleNamespace(
        resource_type=2,
        resource_name="topic",
        error_code=TopicAuthorizationFailedError.errno,
        error_message="not authorized",
        configs=[],
    )
    answer = KafkaAdminClient._describe_configs_process_responses([SimpleNamespace(results=[refused])])
    assert answer == {"topic": {"topic": {}}}
