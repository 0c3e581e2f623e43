"""Rate-limited logs and patches for kafka-python.

A client whose broker is down logs several warnings a second, some with tracebacks.
"""

from __future__ import annotations

import ctypes
import gzip
import io
import logging
import re
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeGuard

from kafka import KafkaConsumer, TopicPartition, codec
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.consumer.fetcher import ConsumerRecord, Fetcher
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import (
    Cancelled,
    CorruptRecordError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    for_code,
)
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecord
from kafka.serializer import Deserializer

from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.key_stores import SHOWS_CERTIFICATE
from loosehanger.suggestions import did_you_mean

LONGEST = 300
HANDSHAKE_S = 10.0
"""How long a broker may take for its part of a TLS handshake: Kafka's own bound for setting a connection up."""
REFUSED_S = 2.5
"""How long a client that is refused tries on: what waiting does not mend must be named within seconds."""
_APART_S = 0.2
"""How long after a question about the controller the next one is asked."""
_TLS_ALERT, _TLS_ALERT_BYTES = b"\x15\x03", 7
"""The beginning and the size of a TLS record with an alert."""
_EXPIRED, _NOT_YET_VALID, _OTHER_NAME = 10, 9, (62, 64)
"""OpenSSL's codes of a certificate that is not accepted (X509_V_ERR_…)."""
NOT_WORTH_A_LINE = ("kafka.net.selector", "kafka.net.sasl.scram")
"""The library's event loop measures itself, and calls itself blocked whenever a busy machine runs something else. Its
SCRAM warns that credentials travel in the clear, which SCRAM avoids: no password is sent."""
MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes of a batch after decompression, for a consumer that is ``Tolerant``: gzip makes a gigabyte of a megabyte."""
NO_TIME = -1
"""The time of a record that has none."""
POLL_S = 60.0
"""Seconds that a ``poll`` may take beyond its own timeout before it is abandoned."""
_SPEAKER = re.compile(r"^<[^>]*>:? ")
"""The object that speaks, as Python shows it."""


class UnreadableError(KafkaError):  # type: ignore[misc]
    """A consumer cannot decode what the cluster sent. Pause the partition, or seek beyond the offset, to continue."""

    def __init__(self, place: TopicPartition, offset: int, reason: Exception) -> None:
        text = " ".join(str(reason).split())[:LONGEST]
        name = type(reason).__name__
        text = text if text.startswith(name) else f"{name}: {text}".rstrip(": ")
        super().__init__(
            f"topic {place.topic}, partition {place.partition}, offset {offset}: the record cannot be read ({text})"
        )
        self.place = place
        self.offset = offset

    def __str__(self) -> str:
        return str(self.args[0])


def prepare(write: Callable[[str], Any]) -> ClientLog:
    """Makes kafka-python fit for a program that runs for long; comes before its first client.

    Args:
        write: takes the lines that the library's complaints become.

    Returns:
        Where the complaints arrive.
    """
    repair()
    client_log = ClientLog(write)
    logger = logging.getLogger("kafka")
    logger.handlers = [client_log]
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    return client_log


def repairs() -> tuple[tuple[Any, str, Callable[..., Any]], ...]:
    """The methods of kafka-python that are patched: their class, their name, and what wraps them.

    ``tests/unit/test_kafka_python_defects.py`` has a reproduction of each defect, against the library as installed.
    """
    return (
        (KafkaTCPTransport, "_sock_recv", _with_last_words),
        (KafkaSSLTransport, "_sock_recv", _with_last_words),
        (KafkaTCPTransport, "_read_from_sock", _while_it_is_open),
        (KafkaSSLTransport, "handshake", _with_a_bound),
        (DefaultRecordBatch, "_read_msg", _with_any_header_name),
        (Fetcher.PartitionRecords, "_unpack_records", _with_tolerance),
        (Fetcher.PartitionRecords, "take", _failing_again),
        (Fetcher, "fetched_records", _resuming),
        (KafkaConnectionManager, "_do_bootstrap", _with_the_reason),
        (KafkaConnectionManager, "_build_transport", _with_the_address),
        (KafkaConsumer, "__init__", _leaving_nothing),
        (KafkaAdminClient, "__init__", _leaving_nothing),
        (KafkaConsumer, "close", _to_the_end),
        (KafkaConsumer, "poll", _with_an_end),
        (KafkaConsumer, "position", _of_one_partition),
        (KafkaConsumer, "_fetch_all_topic_metadata", _within_a_request),
        (ConsumerCoordinator, "need_rejoin", _until_it_has_joined),
        (KafkaAdminClient, "_describe_cluster", _of_any_release),
        (KafkaAdminClient, "_refresh_controller_id", _with_its_address),
        (LegacyRecord, "__init__", _with_a_time),
    )


def repair() -> None:
    """Patches kafka-python; a second call changes nothing."""
    for owner, name, repaired in repairs():
        method = getattr(owner, name)
        if not hasattr(method, "repairs"):
            setattr(owner, name, repaired(method))


class AdvertisedAddressError(KafkaConnectionError):  # type: ignore[misc]
    """A broker that cannot be reached at the address that it advertises."""


class NoTokenError(SaslAuthenticationFailedError):  # type: ignore[misc]
    """The identity provider gave no token."""


class MechanismError(UnsupportedSaslMechanismError):  # type: ignore[misc]
    """A broker that does not offer the client's SASL mechanism; the message follows the cluster's name."""


class UntrustedError(KafkaConnectionError):  # type: ignore[misc]
    """A TLS handshake that failed; the message follows the cluster's name."""


_REFUSALS = (SaslAuthenticationFailedError, UnsupportedSaslMechanismError, UntrustedError)


def is_refusal(error: BaseException | None) -> TypeGuard[Exception]:
    """Whether it refuses a sign-in, a certificate or a protocol, which waiting does not mend."""
    return isinstance(error, _REFUSALS)


def cluster_id(client: Any) -> str:
    """The id of the cluster that a producer or a consumer is connected to; empty where it does not know it yet."""
    metadata = getattr(client, "_metadata", None) or getattr(client, "_cluster", None)
    return str(getattr(metadata, "cluster_id", None) or "")


def explain(error: Exception, user: str | None) -> str:
    """Describes what a cluster does to a client, to follow the cluster's name: ``refuses user 'x': …``.

    Args:
        error: what the client raised.
        user: the client's user; None for an anonymous one.
    """
    if isinstance(error, NoTokenError):
        return f"cannot be signed in to: {error.args[0]}"
    if isinstance(error, (MechanismError, UntrustedError)):
        return str(error.args[0])
    # Brokers answer to a bad token with the status of RFC 7628, and some without a word.
    if isinstance(error, SaslAuthenticationFailedError) and re.search(r'OAUTHBEARER|"status" *: *"', str(error)):
        return (
            f"refuses the token of client '{user}'; check the client's scope at the identity provider, and the issuer, "
            "the audience and the keys (JWKS) that the brokers expect"
        )
    if isinstance(error, SaslAuthenticationFailedError):
        # The broker's own words, without the names that kafka-python puts before them.
        return f"refuses user '{user or 'anonymous'}': {str(error).rsplit(': ', 1)[-1]}"
    if isinstance(error, UnreadableError):
        return f"has a record that cannot be read: {error}"
    if isinstance(error, AdvertisedAddressError):
        return f"answers, but {error.args[0]}"
    lines = str(error).strip().splitlines()
    return f"does not answer ({lines[0] if lines else type(error).__name__})"


class Tolerant(Deserializer):  # type: ignore[misc]
    """Lets a consumer skip records that it cannot read; pass it as ``value_deserializer``.

    kafka-python 3.0.12 raises at a batch that it cannot decode, and its position stays there. With this, the rest of
    the batch is skipped. Use it where records are shown. A proof must not skip any.

    Args:
        report: takes a line about each batch that was skipped.
        value_bytes: how much of a key and of a value is kept; None for all of it. The sizes in the record stay those of
            the whole.
        header_bytes: how much of a record's headers is kept, names included; those that have no room are left out.
    """

    def __init__(
        self, report: Callable[[str], object], value_bytes: int | None = None, header_bytes: int | None = None
    ) -> None:
        self._report = report
        self._value_bytes = value_bytes
        self._header_bytes = header_bytes
        self.skipped = 0
        """Records, as their batches counted them."""

    def deserialize(self, topic: str, headers: Any, data: bytes | None) -> bytes | None:  # noqa: ARG002
        """Leaves the value as it is."""
        return data

    def skip(self, place: str, first: int, last: int, count: int, reason: Exception) -> None:
        """Counts and reports records that cannot be read."""
        self.skipped += count
        said = " ".join(str(reason).split())[:LONGEST] or type(reason).__name__
        records = "1 record" if count == 1 else f"{count} records"
        self._report(
            f"{place}: skipped {records} at offsets {first} to {last}, which cannot be read ({said}); "
            f"{self.skipped} so far"
        )

    def cut(self, record: ConsumerRecord) -> ConsumerRecord:
        """The record, cut to the parts that are kept."""
        longest = max(record.serialized_key_size, record.serialized_value_size)
        if self._value_bytes is not None and longest > self._value_bytes:
            record = record._replace(key=_first(record.key, self._value_bytes),
                                     value=_first(record.value, self._value_bytes))  # fmt: skip
        if self._header_bytes is not None and record.serialized_header_size > self._header_bytes:
            room, kept = self._header_bytes, []
            for name, value in record.headers:
                if len(name) > room:
                    break
                room -= len(name)
                kept.append((name, _first(value, room)))
                room -= len(kept[-1][1] or b"")
            record = record._replace(headers=kept)
        return record


def _first(data: bytes | None, size: int) -> bytes | None:
    return data if data is None or len(data) <= size else data[:size]


class _Batches:
    """The batches of a fetch, each unpacked within bounds. It knows which one is being read."""

    def __init__(self, records: Any) -> None:
        self._records = records
        self.current: Any = None

    def next_batch(self) -> Any:
        self.current = None
        self.current = self._records.next_batch()
        if type(self.current) is DefaultRecordBatch:
            self.current.__class__ = _BoundedBatch
        return self.current


class _BoundedBatch(DefaultRecordBatch):  # type: ignore[misc]
    """A batch that is not unpacked beyond a bound."""

    __slots__ = ()

    def _maybe_uncompress(self: Any) -> None:
        if not self._decompressed and self.compression_type in _UNPACK:
            self._assert_has_codec(self.compression_type)
            unpacked = _UNPACK[self.compression_type](bytes(memoryview(self._buffer)[self._pos :]), MOST_UNPACKED + 1)
            if len(unpacked) > MOST_UNPACKED:
                raise CorruptRecordError(f"the batch has more than {MOST_UNPACKED >> 20} MiB when it is decompressed")
            self._buffer, self._pos, self._decompressed = bytearray(unpacked), 0, True
        DefaultRecordBatch._maybe_uncompress(self)


def _gunzipped(data: bytes, most: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        return stream.read(most)


def _of_zstd(data: bytes, most: int) -> bytes:
    with codec.zstd.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as stream:
        return bytes(stream.read(most))


def _of_lz4(data: bytes, most: int) -> bytes:
    stream = codec.lz4.LZ4FrameDecompressor()
    unpacked = bytes(stream.decompress(data, max_length=most))
    if len(unpacked) < most and not stream.eof:
        raise CorruptRecordError("the compressed batch is truncated")
    return unpacked


def _of_snappy(data: bytes, most: int) -> bytes:
    """Snappy says before each block how much it becomes: the size is known before anything is unpacked."""
    blocks, size = [data], 0
    if codec._detect_xerial_stream(data):
        blocks, at = [], 16
        while at < len(data):
            length = max(0, int.from_bytes(data[at : at + 4], "big", signed=True))
            blocks.append(data[at + 4 : at + 4 + length])
            at += 4 + length
    for block in blocks:
        size += _snappy_length(block)
    return bytes(most) if size >= most else bytes(codec.snappy_decode(data))


def _snappy_length(block: bytes) -> int:
    """The number at the beginning of a block of Snappy: seven bits a byte, the lowest first."""
    number = 0
    for place, byte in enumerate(block[:5]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return number


_UNPACK: dict[int, Callable[[bytes, int], bytes]] = {
    DefaultRecordBatch.CODEC_GZIP: _gunzipped,
    DefaultRecordBatch.CODEC_SNAPPY: _of_snappy,
    DefaultRecordBatch.CODEC_LZ4: _of_lz4,
    DefaultRecordBatch.CODEC_ZSTD: _of_zstd,
}
"""Each decompresses so many bytes at most."""


def _with_tolerance(unpack: Callable[..., Iterator[ConsumerRecord]]) -> Callable[..., Iterator[ConsumerRecord]]:
    """Lets a consumer that is ``Tolerant`` skip what it cannot read."""

    def unpack_records(self: Any, partition: Any, records: Any, key: Any, value: Any) -> Iterator[ConsumerRecord]:
        if not isinstance(value, Tolerant):
            yield from unpack(self, partition, records, key, value)
            return
        batches, done = _Batches(records), False
        while not done:
            try:
                for record in unpack(self, partition, batches, key, value):
                    yield value.cut(record)
                done = True
            except Exception as error:
                batch = batches.current
                if batch is None or batch.magic < 2:  # Where the next one begins is unknown.
                    raise
                first = max(self.next_fetch_offset, batch.base_offset)
                unread = max(1, batch.records_count - batch._next_record_index)
                value.skip(f"{partition.topic}/{partition.partition}", first, batch.last_offset, unread, error)
                self.next_fetch_offset = batch.next_offset

    unpack_records.repairs = unpack  # type: ignore[attr-defined]
    return unpack_records


def _with_any_header_name(read: Callable[..., Any]) -> Callable[..., Any]:
    """Reads records whose headers have names that are not UTF-8, which kafka-python 3.0.12 takes for corrupt.

    Kafka allows such a name: brokers store its bytes, and Java's clients replace what they cannot decode with U+FFFD.
    """

    def read_record(self: Any) -> Any:
        try:
            return read(self)
        except UnicodeDecodeError:
            # The rest of the batch is read so, too: its next records probably have the same names.
            self._buffer = _AnyText(self._buffer)
            return read(self)

    read_record.repairs = read  # type: ignore[attr-defined]
    return read_record


class _AnyText(bytearray):
    """Bytes of which every part decodes."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return found if isinstance(found, int) else _AnyText(found)

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        """As the parent's method, but never raises."""
        return super().decode(encoding, errors)


def _with_last_words(receive: Callable[[Any], tuple[bytes, Any]]) -> Callable[[Any], tuple[bytes, Any]]:
    """Hands over data that arrives together with the end of a connection, which kafka-python 3.0.12 throws away.

    A broker that refuses a password sends an error and closes the connection. The client saw only a lost connection
    and retried forever. The next read still finds the end.

    A TLS listener answers a client without TLS with an alert, which the client would take for the size of a response.
    With TLS 1.3 a broker refuses a client's certificate after the client's part of the handshake, so the first read
    finds that alert.
    """

    def sock_recv(self: Any) -> tuple[bytes, Any]:
        data, error = receive(self)
        why = error.args[0] if isinstance(error, KafkaConnectionError) and error.args else None
        if not data and isinstance(why, ssl.SSLError) and (refused := _refused_certificate(self, why)):
            return b"", UntrustedError(refused)
        if data.startswith(_TLS_ALERT) and len(data) == _TLS_ALERT_BYTES and not isinstance(self, KafkaSSLTransport):
            host, port = self._sock.getpeername()[:2]
            address = f"{self.host or host}:{port}"
            return b"", UntrustedError(f"speaks TLS at {address}; set security.protocol to SSL or SASL_SSL")
        return data, None if data else error

    sock_recv.repairs = receive  # type: ignore[attr-defined]
    return sock_recv


def _while_it_is_open(read: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Ends a connection's reading when the caller closes it, where kafka-python 3.0.12 sometimes logs a defect.

    What has just arrived is handed to a protocol that another thread has taken away.
    """

    async def read_from_sock(self: Any) -> None:
        try:
            await read(self)
        except AttributeError:
            if not self.is_closing():
                raise

    read_from_sock.repairs = read  # type: ignore[attr-defined]
    return read_from_sock


def _with_the_reason(bootstrap: Callable[..., Awaitable[bool]]) -> Callable[..., Awaitable[bool]]:
    """Names why a client found no cluster: kafka-python 3.0.12 reports only that its time is up.

    The client still retries for a while, because its user may have been created a moment ago. A wrong password then
    ends as ``SaslAuthenticationFailedError``, and a certificate that is not trusted as ``UntrustedError``.
    """

    async def do_bootstrap(self: Any, deadline: float | None) -> bool:
        failures: list[Exception] = []
        refused_at: list[float] = []
        offered: set[str] = set()
        get_connection = self.get_connection

        def note(failure: Exception) -> None:
            failures.append(failure)
            if isinstance(failure, _REFUSALS):
                refused_at.append(time.monotonic())

        def refusal() -> Exception | None:
            found = [failure for failure in failures if isinstance(failure, _REFUSALS)]
            if found and type(found[-1]) is UnsupportedSaslMechanismError:
                wanted = self.config["sasl_mechanism"]
                return MechanismError(
                    f"does not offer the mechanism {wanted} (it offers {', '.join(sorted(offered)) or 'none'}); "
                    "set sasl.mechanism to one that it offers"
                )
            return found[-1] if found else None

        def noting(*arguments: Any, **options: Any) -> Any:
            # The pauses between attempts double: one that would end too late is not waited for.
            if refused_at and (reason := refusal()):
                next_attempt = time.monotonic() + self.connection_delay(arguments[0])
                if next_attempt > refused_at[0] + REFUSED_S:
                    raise reason
            connection = get_connection(*arguments, **options)
            connection.init_future.add_errback(note)
            connection._send_request = _noting_mechanisms(connection._send_request, offered)
            return connection

        self.get_connection = noting
        try:
            return await bootstrap(self, deadline)
        except KafkaTimeoutError as error:
            if reason := refusal():
                raise reason from error
            if failures:
                raise KafkaTimeoutError(f"{error.args[0]}: {failures[-1]}") from error
            raise
        finally:
            del self.get_connection

    do_bootstrap.repairs = bootstrap  # type: ignore[attr-defined]
    return do_bootstrap


def _noting_mechanisms(send: Callable[..., Any], offered: set[str]) -> Callable[..., Any]:
    """Keeps the mechanisms that a broker offers, which kafka-python 3.0.12 drops with its answer."""

    def send_request(*arguments: Any, **options: Any) -> Any:
        future = send(*arguments, **options)
        future.add_callback(lambda response: offered.update(getattr(response, "mechanisms", None) or ()))
        return future

    return send_request


def cause_of(error: Exception, client: Any) -> Exception:
    """Returns what keeps a client from the cluster: between two attempts, it reports only that no broker is ready."""
    unreached: Exception | None = getattr(getattr(client, "_manager", None), "unreached", None)
    return unreached if unreached and isinstance(error, (NodeNotReadyError, KafkaTimeoutError)) else error


def _with_the_address(build: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Names the broker that cannot be reached, which kafka-python 3.0.12 does not.

    The client bootstraps at the address that the user gave, and then connects to the addresses that the brokers
    advertise. An advertised address that is valid only inside the cluster's network is the most frequent mistake.
    """

    async def build_transport(self: Any, node: Any, *arguments: Any, **options: Any) -> Any:
        try:
            built = await build(self, node, *arguments, **options)
        except KafkaError as error:
            why = error.__context__
            if isinstance(why, (ssl.SSLError, ConnectionResetError, BrokenPipeError)):
                self.unreached = UntrustedError(_untrusted(why, f"{node.host}:{node.port}"))
                raise self.unreached from error
            given = {(broker.host, broker.port) for broker in self.cluster.bootstrap_brokers()}
            if (node.host, node.port) in given:
                raise
            reason = str(error.args[0]) if error.args else type(error).__name__
            self.unreached = AdvertisedAddressError(
                f"broker {node.node_id} advertises the address {node.host}:{node.port} (advertised.listeners), "
                f"which cannot be reached from here: {reason}"
            )
            raise self.unreached from error
        self.unreached = None
        return built

    build_transport.repairs = build  # type: ignore[attr-defined]
    return build_transport


def _untrusted(error: OSError, address: str) -> str:
    """Says why a TLS handshake failed, and what to do."""
    reason = getattr(error, "reason", None)
    # A broker without TLS takes the handshake for a request that is too large, and closes the connection.
    is_closed = isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError)
    if is_closed or reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return f"does not speak TLS at {address}; check security.protocol and the port"
    if not isinstance(error, ssl.SSLCertVerificationError):
        return f"ends the TLS handshake at {address} ({reason or error}); check security.protocol and ssl.keystore"
    shows = f"shows a certificate at {address} that"
    if error.verify_code == _EXPIRED:
        return f"{shows} has expired; renew it at the brokers"
    if error.verify_code == _NOT_YET_VALID:
        return f"{shows} is not valid yet; check the clocks"
    if error.verify_code in _OTHER_NAME:
        return f"{shows} is not for this name; use a name that is in it, or renew it at the brokers"
    return (
        f"{shows} is of an authority that is not trusted here ({error.verify_message}); "
        "give the brokers' authority as ssl.truststore.location"
    )


def _refused_certificate(transport: Any, error: ssl.SSLError) -> str:
    """Says why a broker refuses a client for its certificate, and what to do; empty for any other error."""
    if not re.search(r"ALERT_.*(CERTIFICATE|UNKNOWN_CA)", str(error.reason)):
        return ""
    address = ""
    with suppress(OSError):
        host, port = transport._sock.getpeername()[:2]
        address = f" at {transport.host or host}:{port}"
    if not getattr(transport._ssl_context, SHOWS_CERTIFICATE, False):
        return f"asks for a client certificate{address}; give one as ssl.keystore.location"
    return (
        f"refuses the client certificate{address} ({error.reason}); "
        "use one of the authority that the brokers trust for clients, and that has not expired"
    )


def _leaving_nothing(init: Callable[..., None]) -> Callable[..., None]:
    """Closes a client that finds no cluster: kafka-python 3.0.12 leaves its thread and sockets behind.

    The constructor raises, so the caller has no client to close. A program that retries while a region is down leaks.
    """

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            init(self, *arguments, **options)
        except BaseException:
            if hasattr(self, "_client"):
                self._client.close()
            raise

    begin.repairs = init  # type: ignore[attr-defined]
    return begin


def _failing_again(take: Callable[..., list[ConsumerRecord]]) -> Callable[..., list[ConsumerRecord]]:
    """Fails each ``poll`` at a batch that cannot be decoded, where kafka-python 3.0.12 spins forever.

    It raises once. The batch then has no records and is never drained, and the loop around it has no bound. As in
    Java's client, each further ``poll`` fails again until the consumer seeks or pauses the partition.
    """

    def take_records(self: Any, n: int | None = None) -> list[ConsumerRecord]:
        failure: UnreadableError | None = getattr(self, "failure", None)
        if failure is not None:
            raise failure.with_traceback(None)
        try:
            return take(self, n)
        except Exception as error:
            self.failure = UnreadableError(self.topic_partition, self.next_fetch_offset, error)
            raise self.failure from error

    take_records.repairs = take  # type: ignore[attr-defined]
    return take_records


def _resuming(fetched_records: Callable[..., Any]) -> Callable[..., Any]:
    """Reads on where a partition was paused with records left, which kafka-python 3.0.12 often never does.

    It sets them aside, and takes them back only while it holds no other answer. Answers that are used up count as held,
    and a partition with records set aside is not fetched, wherever the consumer seeks.
    """

    def fetched(self: Any, *arguments: Any, **options: Any) -> Any:
        if not self._next_partition_records:
            self._next_partition_records = None
        return fetched_records(self, *arguments, **options)

    fetched.repairs = fetched_records  # type: ignore[attr-defined]
    return fetched


class _Poller:
    """A thread that runs a consumer's ``poll``, so that the caller can abandon it."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread = threading.Thread(target=_poll_on, args=(self._calls, self._answers), daemon=True)
        self._thread.name = "poll"
        self.abandoned = False

    def run(self, call: Callable[[], Any], bound_s: float, put_back: Callable[[Any], None]) -> Any:
        """Runs a call, and returns or raises what it does.

        Args:
            call: the call.
            bound_s: seconds after which it is abandoned.
            put_back: takes the answer that an interrupted caller does not see.

        Raises:
            KafkaTimeoutError: the call has not returned, or an earlier one has not.
        """
        if self.abandoned:
            raise KafkaTimeoutError("an earlier poll of this consumer has not returned; close it")
        if not self._thread.ident:
            self._thread.start()
        self._calls.put(call)
        deadline = time.monotonic() + bound_s
        try:
            answer, error = self._answers.get(timeout=bound_s)
        except Empty:
            self.abandon()
            raise KafkaTimeoutError(f"the consumer's poll has not returned within {bound_s:.0f} s") from None
        except BaseException:
            # A signal's handler raises here. The consumer is not for two threads, and must not skip what was read.
            self.abandoned = True
            with suppress(Empty):
                answer, _ = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
                put_back(answer)
                self.abandoned = False
            raise
        if error is not None:
            raise error
        return answer

    def abandon(self) -> None:
        """Abandons the thread. It stops if it spins in Python; if it waits, it stays until the process exits."""
        self.abandoned = True
        self.end()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
        )

    def end(self) -> None:
        """Stops the thread after its call."""
        self._calls.put(None)


def _poll_on(
    calls: SimpleQueue[Callable[[], Any] | None], answers: SimpleQueue[tuple[Any, BaseException | None]]
) -> None:
    while call := calls.get():
        try:
            answers.put((call(), None))
        except BaseException as error:
            answers.put((None, error))
        # The consumer must be collectable while nothing is asked of it.
        del call


def _with_an_end(poll: Callable[..., Any]) -> Callable[..., Any]:
    """Bounds ``poll`` from outside: kafka-python waits without a bound for its own thread, whatever that is busy with.

    Whatever keeps it from returning is a defect, and loops around ``poll`` must end in spite of it.
    """

    def bounded(self: Any, timeout_ms: float = 0, *arguments: Any, **options: Any) -> Any:
        poller = self.__dict__.get("poller")
        if poller is None:
            poller = self.poller = _Poller()
            weakref.finalize(self, poller.end).atexit = False

        def put_back(answer: Any) -> None:
            for place, records in (answer or {}).items():
                with suppress(Exception):  # Another member of the group may own the partition by now.
                    self.seek(place, records[0].offset)

        return poller.run(lambda: poll(self, timeout_ms, *arguments, **options), timeout_ms / 1000 + POLL_S, put_back)

    bounded.repairs = poll  # type: ignore[attr-defined]
    return bounded


def _of_one_partition(position: Callable[..., int | None]) -> Callable[..., int | None]:
    """Returns a known position at once: kafka-python 3.0.12 checks every assigned partition to answer for one.

    Asking for each of 700 takes a minute, and ``poll`` checks them anyway. A position that does not become known is an
    error, unless the caller gave a timeout.
    """

    def position_of(self: Any, partition: Any, timeout_ms: float | None = None) -> int | None:
        state = self._subscription.assignment.get(partition)
        known = None if state is None or state.awaiting_validation else state.position
        if known is not None:
            return int(known.offset)
        # Without a timeout, the library waits for an answer that may never come.
        bound = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        found = position(self, partition, bound)
        if found is None and timeout_ms is None:
            raise KafkaTimeoutError(f"the position in {partition.topic}-{partition.partition} did not become known")
        return found

    position_of.repairs = position  # type: ignore[attr-defined]
    return position_of


def _within_a_request(fetch: Callable[[Any], None]) -> Callable[[Any], None]:
    """Bounds ``topics()``, which waits for a broker's answer without a time-out in kafka-python 3.0.12."""

    def fetch_all(self: Any) -> None:
        wait_for, bound = self._manager.wait_for, self.config["request_timeout_ms"]
        self._manager.wait_for = lambda future, timeout_ms: wait_for(future, timeout_ms or bound)
        try:
            fetch(self)
        finally:
            del self._manager.wait_for

    fetch_all.repairs = fetch  # type: ignore[attr-defined]
    return fetch_all


def _to_the_end(close: Callable[..., None]) -> Callable[..., None]:
    """Closes a consumer that cannot leave its group: kafka-python 3.0.12 keeps its thread and sockets."""

    def closing(self: Any, *arguments: Any, **options: Any) -> None:
        poller = self.__dict__.get("poller")
        if poller is not None:
            poller.end()
            if poller.abandoned:
                # It waits for the thread that does not answer. Nothing is committed: the position is unknown.
                if not self._closed:
                    self._closed = True
                    threading.Thread(target=self._client.close, name="close", daemon=True).start()
                return
        try:
            close(self, *arguments, **options)
        finally:
            self._client.close()

    closing.repairs = close  # type: ignore[attr-defined]
    return closing


def _with_a_bound(handshake: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Bounds a TLS handshake: kafka-python 3.0.12 waits forever for a broker that accepts connections and is silent.

    Its time-outs begin after the handshake, so none of them applies to a broker process that hangs.
    """

    async def bounded(self: Any) -> None:
        late = False

        def give_up() -> None:
            nonlocal late
            late = True
            with suppress(OSError):
                # There is no TLS session to close; this wakes the coroutine that waits for the socket.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

        timer = self._net.call_later(HANDSHAKE_S, give_up)
        try:
            await handshake(self)
        except OSError as error:
            raise TimeoutError(f"no answer within {HANDSHAKE_S:.0f} s") if late else error from None
        finally:
            self._net.cancel(timer)

    bounded.repairs = handshake  # type: ignore[attr-defined]
    return bounded


def _until_it_has_joined(need_rejoin: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Keeps a consumer joining until it is a member, where kafka-python 3.0.12 forgets that it has to.

    It joins again when the topics that match differ from those that it joined with, but it notes the new ones when it
    sends its request. The answer may outlast one ``poll`` because other members have not joined yet, the broker is busy
    or the request must be repeated. Then nothing differs any more: the answer is lost, no heartbeat follows, the group
    coordinator drops the member after its session timeout, and ``poll`` spins. Java's client remembers the need until
    it has joined, as this does.
    """

    def need(self: Any) -> bool:
        needed = need_rejoin(self)
        if needed:
            self.request_rejoin()
        return needed

    need.repairs = need_rejoin  # type: ignore[attr-defined]
    return need


def _with_a_time(init: Callable[..., None]) -> Callable[..., None]:
    """Gives records of clients before Kafka 0.10 the time -1, as Java's clients do; kafka-python 3.0.12 has None there.

    Everything that compares, sorts or shows times counts with a number.
    """

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        if self._timestamp is None:
            self._timestamp = NO_TIME

    begin.repairs = init  # type: ignore[attr-defined]
    return begin


def _of_any_release(describe: Callable[[Any], Awaitable[dict[str, Any]]]) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    """Describes clusters of Kafka 2.8 to 3.6, in whose answers kafka-python 3.0.12 misses a field that came with 3.7.

    The cluster's metadata say the same, which the library asks for of releases before 2.8.
    """

    async def described(self: Any) -> dict[str, Any]:
        try:
            return await describe(self)
        except KeyError:
            found: dict[str, Any] = await self._get_cluster_metadata([])
            brokers = [{**broker, "broker_id": broker["node_id"]} for broker in found["brokers"]]
            return {key: found[key] for key in ("cluster_id", "controller_id")} | {"brokers": brokers}

    described.repairs = describe  # type: ignore[attr-defined]
    return described


def _with_its_address(refresh: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    """Waits until the client knows the address of the controller that it was referred to.

    kafka-python reads the number of the controller in an answer, and drops the addresses beside it. While nodes of a
    cluster start, the one that became the controller may be younger than what the client knows of the cluster: the
    request then fails with ``UnknownBrokerIdError``.
    """

    async def refreshed(self: Any, timeout_ms: float = 30000) -> int:
        until = time.monotonic() + timeout_ms / 1000
        controller = await refresh(self, timeout_ms)
        cluster = self._manager.cluster
        while cluster.broker_metadata(controller) is None:
            await cluster.refresh_metadata()
            if cluster.broker_metadata(controller) is None:
                if time.monotonic() > until:
                    raise NodeNotReadyError(f"the controller, node {controller}")
                # Nodes do not hear of each other at the same moment, and may choose another controller meanwhile.
                await self._net.sleep(_APART_S)
                controller = await refresh(self, timeout_ms)
        return controller

    refreshed.repairs = refresh  # type: ignore[attr-defined]
    return refreshed


def topic_configs(
    client: Any, topics: Collection[str], which: str = "all"
) -> tuple[dict[str, dict[str, dict[str, Any]]], dict[str, KafkaError]]:
    """Describes the configurations of topics, and returns Kafka's error for each of the others.

    kafka-python 3.0.12 drops each topic's error: a topic that the user may not describe looks as if nothing were set.

    Args:
        client: a KafkaAdminClient.
        topics: their names.
        which: ``all``, ``dynamic`` or ``modified``, as in ``describe_configs``.

    Returns:
        For each topic its entries by name, as ``describe_configs`` gives them; for each of the others, the error.
    """
    if not topics:
        return {}, {}
    request = client._describe_configs_request([ConfigResource(ConfigResourceType.TOPIC, name) for name in topics])

    async def ask() -> Any:
        return await client._manager.send(request)

    response = client._manager.run(ask)
    errors = {
        result.resource_name: for_code(result.error_code)(result.error_message)
        for result in response.results
        if result.error_code
    }
    found = client._describe_configs_process_responses([response], which).get("topic", {})
    return {topic: entries for topic, entries in found.items() if topic not in errors}, errors


def check_settings(client: Any, topic: str, names: Collection[str], where: str) -> None:
    """Checks that a topic can have settings of these names: Kafka ignores the removal of any other silently.

    Args:
        client: a KafkaAdminClient.
        topic: its name.
        names: the settings' names.
        where: what a refusal is about, for its message.

    Raises:
        WrongUseError: a topic has no such setting.
        KafkaError: the cluster does not answer.
    """
    found, _ = topic_configs(client, [topic]) if names else ({}, {})
    known = found.get(topic, {})
    for name in names:
        # A user without Describe on the topic must not learn which partitions it has.
        if known and name not in known:
            raise WrongUseError(f"{where}: '{name}' is not a setting of a topic{did_you_mean(name, known)}")


def alter_topic(client: Any, topic: str, changes: Mapping[str, str | None], where: str) -> None:
    """Changes settings of a topic, and leaves its others as they are.

    Args:
        client: a KafkaAdminClient.
        topic: its name.
        changes: the new value of each setting; None removes it, so that the cluster's own applies.
        where: what a refusal is about, for its message.

    Raises:
        WrongUseError: Kafka refuses it.
        KafkaError: the cluster does not answer.
    """
    wanted = {
        name: (AlterConfigOp.DELETE, None) if value is None else (AlterConfigOp.SET, value)
        for name, value in changes.items()
    }
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, wanted)
    result = client.alter_configs([resource], raise_on_unknown=False)["topic"][topic]
    if result != "OK":
        raise WrongUseError(f"{where}: Kafka refuses the change: {result}")


class ClientLog(logging.Handler):
    """Passes the library's warnings on, one line each.

    Args:
        write: takes a finished line.
        apart_s: seconds between two lines; one lost connection gives a dozen complaints.
        repeat_s: seconds until a complaint of the same kind is passed on again.
    """

    def __init__(self, write: Callable[[str], Any], apart_s: float = 10, repeat_s: float = 60) -> None:
        super().__init__(logging.WARNING)
        self.addFilter(lambda record: record.name not in NOT_WORTH_A_LINE or record.exc_info is not None)
        self._write = write
        self._apart_s = apart_s
        self._repeat_s = repeat_s
        self._written_at: dict[str, float] = {}
        self._hidden = 0
        self.first = ""
        """The first complaint since this was last emptied: of a chain of complaints, the one with the reason."""
        self.refused: Exception | None = None
        """The cluster's refusal of user and password: the client only logs it, and retries forever."""

    def check_refusal(self, servers: str, user: str | None, error: Exception | None = None) -> None:
        """Checks that the cluster accepts the client: what waiting does not mend ends a program.

        Args:
            servers: the cluster's addresses, for the message.
            user: the client's user; None for an anonymous one.
            error: what the client raised, if it did.

        Raises:
            LabError: the cluster refuses the sign-in, or its own certificate or protocol is not accepted.
        """
        refused = error if is_refusal(error) else self.refused
        if refused is not None:
            raise LabError(f"{servers} {explain(refused, user)}") from error

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the complaint, unless one of its kind was written a short time ago."""
        cause = record.exc_info[1] if record.exc_info else None
        if isinstance(cause, AttributeError) and (cause.name, cause.obj) == ("recv", None):
            return  # Something arrived while the client was closed, and kafka-python 3.0.12 reads on from no socket.
        for part in (cause, *(record.args if isinstance(record.args, tuple) else ())):
            if isinstance(part, SaslAuthenticationFailedError):
                self.refused = part
            if isinstance(part, Cancelled):
                return  # What the client itself broke off, because it was closed.
        text = _SPEAKER.sub("", record.getMessage())
        if cause is not None:
            text += f": {type(cause).__name__}: {cause}"
        text = " ".join(text.split())
        text = text if len(text) <= LONGEST else text[:LONGEST] + "…"
        self.first = self.first or text
        kind, now, never = str(record.msg), time.monotonic(), float("-inf")
        latest = max(self._written_at.values(), default=never)
        if now - latest < self._apart_s or now - self._written_at.get(kind, never) < self._repeat_s:
            self._hidden += 1
            return
        self._write(f"kafka client: {text}" + (f" (and {self._hidden} more before)" if self._hidden else ""))
        self._written_at[kind] = now
        self._hidden = 0
