"""Writes single records that a user typed, and waits for their acknowledgement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafka.errors import AuthorizationError, KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, RetriableError

from loosehanger.errors import InconclusiveError, LabError, UnreachableError, WrongUseError
from loosehanger.kafka.clients import HURRIED, connect_producer
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import explain

if TYPE_CHECKING:
    from kafka import KafkaProducer

DELIVERY_S = 10
"""Seconds until a record without an acknowledgement is given up."""
CLOSE_S = 2
MOST_BYTES = 32 * 1024 * 1024
"""The client's own limit; a cluster's (``message.max.bytes``) is usually 1 MiB."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class NewRecord(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    """None for a tombstone, which needs a key."""
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    """None: chosen by the key, as Java's clients do; without a key, any."""


class Written(NamedTuple):
    """Where an acknowledged record is."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """In milliseconds since the epoch, as the broker keeps it."""


def new_record(
    topic: str, key: str | None, value: str | None, headers: Iterable[str] = (), partition: int | None = None
) -> NewRecord:
    """Encodes a record that a user typed, in UTF-8.

    Args:
        topic: its topic.
        key: None for no key, which differs from an empty one.
        value: None for a tombstone.
        headers: each as ``name: value``.
        partition: None to leave the choice to the client.

    Raises:
        WrongUseError: a part cannot be used.
    """
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise WrongUseError(f"'{topic}' is not a topic's name; use letters, digits, '.', '_' and '-', at most 249")
    if key is None and value is None:
        raise WrongUseError("a record needs a key or a value; give at least one")
    if partition is not None and partition < 0:
        raise WrongUseError(f"partition: {partition} is negative; partitions are counted from 0")
    return NewRecord(topic, _encoded("key", key), _encoded("value", value), tuple(map(_header, headers)), partition)


def _header(text: str) -> tuple[str, bytes]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise WrongUseError(f"header: '{text}' is not a header such as source: test")
    _encoded("header", name)
    return name.strip(), _encoded("header", value.strip()) or b""


def _encoded(part: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError as error:
        raise WrongUseError(f"{part}: character {error.start + 1} is not valid Unicode") from error


class RecordProducer:
    """Writes records that all in-sync replicas must have; a context manager that closes its client.

    Not for use by several threads at once.

    Args:
        connection: the user's way into the cluster.
        where: names the cluster in messages, for example its region.
        client_id: names the client to the cluster.

    Raises:
        UnreachableError: the cluster does not answer, or refuses the user.
    """

    def __init__(self, connection: Connection, where: str, client_id: str = "lab-produce") -> None:
        self._connection, self._where, self._client_id = connection, where, client_id
        self._user = connection.username or "ANONYMOUS"
        self._client: KafkaProducer | None = None
        self._opened()

    def _opened(self) -> KafkaProducer:
        if self._client is None:
            servers = ",".join(self._connection.bootstrap_servers)
            try:
                self._client = connect_producer(
                    self._connection,
                    client_id=self._client_id,
                    bootstrap_timeout_ms=round(HURRIED.connect_s * 1000),
                    request_timeout_ms=round(HURRIED.answer_s * 1000),
                    max_block_ms=round(HURRIED.answer_s * 1000),
                    delivery_timeout_ms=DELIVERY_S * 1000,
                    reconnect_backoff_max_ms=1000,
                    max_request_size=MOST_BYTES,
                    allow_auto_create_topics=False,
                    metrics_enabled=False,
                )
            except (KafkaError, OSError) as error:
                raise UnreachableError(f"{self._where}: Kafka at {servers} {explain(error, self._user)}") from error
        return self._client

    def __enter__(self) -> RecordProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the client, whatever it still waits for."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close(timeout=CLOSE_S)

    def send(self, record: NewRecord) -> Written:
        """Writes a record and waits for its acknowledgement, as ``post`` and a call of its result."""
        return self.post(record)()

    def post(self, record: NewRecord) -> Callable[[], Written]:
        """Hands a record to the client, which writes it in the background.

        Returns:
            Waits for the acknowledgement, and returns the record's place. It raises ``InconclusiveError`` where none
            came in time, so that the record may or may not be there, and ``LabError`` where the broker refused it.

        Raises:
            WrongUseError: the topic or the partition does not exist, or the record is too large; nothing was written.
            LabError: the cluster refuses the user, or does not answer; nothing was written.
        """
        topic, key, value, headers, partition = record
        try:
            client = self._opened()
            known = client.partitions_for(topic)
            if partition is not None and partition not in known:
                raise WrongUseError(
                    f"{self._where}: {topic} has no partition {partition}; it has 0 to {max(known, default=0)}"
                )
            sent = client.send(topic, value, key, list(headers), partition)
        except MessageSizeTooLargeError as error:
            raise WrongUseError(f"{self._where}: the record is larger than {MOST_BYTES:,} bytes") from error
        except KafkaTimeoutError as error:
            raise WrongUseError(
                f"{self._where}: no topic '{topic}' that user '{self._user}' may see; "
                "check its name, and the user's right Describe on it"
            ) from error
        except (KafkaError, ValueError) as error:
            self.close()
            raise self._refusal(topic, error) from error

        def outcome() -> Written:
            try:
                found = sent.get(timeout=DELIVERY_S + HURRIED.answer_s)
            except RetriableError as error:
                self.close()
                raise InconclusiveError(
                    f"{self._where}: no acknowledgement for a record of {topic} within {DELIVERY_S} s "
                    f"({type(error).__name__}): it may have been written or not; read the topic before you try again"
                ) from error
            except KafkaError as error:
                # To an idempotent client of kafka-python, a refusal is fatal: it sends no further record.
                self.close()
                raise self._refusal(topic, error) from error
            return Written(found.topic, found.partition, found.offset, found.timestamp)

        return outcome

    def _refusal(self, topic: str, error: Exception) -> LabError:
        where = f"{self._where}: {topic}"
        # The refusal of a producer id, to a user who may write to no topic, reaches the caller in words only.
        if isinstance(error, AuthorizationError) or "AuthorizationFailed" in str(error):
            return LabError(f"{where}: user '{self._user}' lacks Write; add it to the ACLs of its KafkaUser")
        if isinstance(error, MessageSizeTooLargeError):
            return WrongUseError(f"{where}: the record is larger than the topic's max.message.bytes allows")
        if "InvalidRecord" in type(error).__name__:
            return WrongUseError(f"{where}: Kafka refuses the record; a compacted topic needs a key in each")
        return LabError(f"{where}: the record was not written ({explain(error, self._user)})")
