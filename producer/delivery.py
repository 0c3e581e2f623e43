"""Delivers events to Kafka without loss, duplicates or reordering, and records them in a ledger.

kafka-python's idempotent producer keeps one batch of a partition in flight and retries it until it is acknowledged, so
a broker may restart meanwhile. This module adds what the library lacks: a bound on memory, the outcome of every record,
and a stop that reports the records that were not acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.partitioner.default import murmur2
from kafka.producer.future import FutureRecordMetadata

from loosehanger.errors import LabError
from loosehanger.headers import ORIGIN, RUN, SEQ, TIME
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import ClientLog, cluster_id
from loosehanger.ledger import Ledger, Pending, keep_pending, read_pending
from producer.shop import Event

IN_FLIGHT_MOST = 10_000
"""Most records that may be unacknowledged before sending waits. kafka-python itself has no such bound."""
DELIVERY_TIMEOUT_S = 600
"""Seconds before a record is given up: a longer outage of a broker fails the run."""
SLICE_S = 0.5
"""Seconds of a wait between two checks for a stop."""
ANSWER_S = 5.0
"""Seconds a broker may take to describe a topic; a busy one takes longer than a slice."""
RETRY_S = 1.0
"""Seconds between two checks for a missing cluster or topic."""
SENT_AHEAD = 1000
"""Records of a partition that the ledger calls sent in advance, so that it has one line for all of them."""


class _InFlight(NamedTuple):
    """A record without an acknowledgement so far."""

    outcome: FutureRecordMetadata
    run: str
    sequence: int
    record: Pending


class _Producer(KafkaProducer):  # type: ignore[misc]
    def __del__(self) -> None:
        """Does nothing: the inherited one flushes for a second or more and then raises where no caller can catch it."""


class Delivery:
    """Sends events in order, with the headers that the proof reads.

    Args:
        connection: the connection to the cluster.
        prefix: the prefix of topic names.
        run: identifies this run of the producer.
        origin: the region the events come from.
        client_log: the client's log.
        stop: set to stop the run.
        ledger: records what was sent and acknowledged; None for no ledger.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        prefix: str,
        run: str,
        origin: str,
        client_log: ClientLog,
        stop: threading.Event,
        ledger: Ledger | None = None,
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        self._run = run
        self._ledger = ledger
        self._headers = [(RUN, run.encode()), (ORIGIN, origin.encode())]
        self._client_log = client_log
        self._stop = stop
        self._producer: KafkaProducer | None = None
        self._sequences: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._sent_until: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._in_flight: defaultdict[tuple[str, int], deque[_InFlight]] = defaultdict(deque)
        """By partition, because acknowledgements are in order only within one, and leaders are independent."""
        self._waiting = 0
        self.sent = 0
        """Records handed to the client."""
        self.again = 0
        """Those of them that the previous run had sent without an acknowledgement."""
        self.bytes = 0
        """Bytes of keys and values."""

    @property
    def acknowledged(self) -> int:
        """Records that all in-sync replicas have written."""
        return self.sent - self._waiting

    def open(self, topics: Sequence[str], wait_s: float, report: Callable[[str], object]) -> None:
        """Connects, and waits until the topics exist: the producer may be started before the cluster and its topics.

        Args:
            topics: short names of the topics that must exist.
            wait_s: how long to wait, in seconds.
            report: takes a line about what is missing, each once.

        Raises:
            LabError: the cluster refuses this user, or the cluster or a topic is missing for too long.
        """
        deadline = time.monotonic() + wait_s
        shown = ""
        while not self._stop.is_set():
            missing = self._missing(topics)
            if not missing:
                self._begin_account()
                return
            if time.monotonic() >= deadline:
                raise LabError(f"{missing}; gave up after {wait_s:g} s")
            if missing != shown:
                report(f"waiting, {wait_s:g} s at most: {missing}")
                shown = missing
            self._stop.wait(min(RETRY_S, deadline - time.monotonic()))

    def _begin_account(self) -> None:
        if self._ledger is None:
            return
        self._ledger.cluster = cluster_id(self._producer)
        for record in read_pending(self._ledger.folder):
            headers = dict(record.headers)
            self._hand_over(headers[RUN].decode(), int(headers[SEQ]), record)
            self.again += 1

    def _missing(self, topics: Sequence[str]) -> str:
        servers = ",".join(self._connection.bootstrap_servers)
        self._client_log.first = ""
        try:
            if self._producer is None:
                self._producer = self._connect()
        except KafkaError as error:
            self._check_refusal(error)
            return f"no cluster answers at {servers} ({self._client_log.first})"
        for topic in topics:
            name = self._prefix + topic
            if unseen := self._unseen(name):
                # A user without rights is refused a producer id, and this client never requests it again.
                self._producer.close()
                self._producer = None
                return f"{servers} {unseen}"
        return ""

    def _unseen(self, topic: str) -> str:
        """Returns why the cluster does not show a topic; empty if it does."""
        assert self._producer is not None
        user = self._connection.username or "anonymous"
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                self._producer.partitions_for(topic)
            except KafkaTimeoutError:
                if self._stop.is_set() or time.monotonic() >= deadline:
                    return f"has not shown user '{user}' a topic {topic} within {ANSWER_S:g} s"
            except KafkaError as error:
                return f"shows user '{user}' no topic {topic} ({type(error).__name__})"
            else:
                return ""

    def _connect(self) -> KafkaProducer:
        return _Producer(
            **self._connection.kafka_python(),
            client_id="loosehanger",
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=DELIVERY_TIMEOUT_S * 1000,
            request_timeout_ms=15_000,
            # Reconnects to a restarted broker within a second; the default is up to 30.
            reconnect_backoff_max_ms=1000,
            bootstrap_timeout_ms=5000,
            max_block_ms=SLICE_S * 1000,
            metadata_max_age_ms=30_000,
            linger_ms=5,
            batch_size=64 * 1024,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )

    def send(self, event: Event) -> None:
        """Sends one record. Call ``room()`` first.

        Raises:
            LabError: the topic is missing for too long.
        """
        assert self._producer is not None, "open() comes first"
        topic, key = self._prefix + event.topic, event.key.encode()
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        while True:
            now_ms = time.time_ns() // 1_000_000
            try:
                # The header needs the partition's count, so the partition is chosen here, as Java's clients do.
                partition = (murmur2(key) & 0x7FFFFFFF) % len(self._producer.partitions_for(topic))
                sequence = self._sequences[topic, partition]
                headers = (*self._headers, (SEQ, b"%d" % sequence), (TIME, b"%d" % now_ms))
                self._hand_over(self._run, sequence, Pending(topic, partition, key, event.value, headers, now_ms))
                break
            except (KafkaTimeoutError, ValueError) as error:
                # A restarting broker may not know its own topics for a moment.
                self._check_refusal()
                if self._stop.is_set():
                    return
                if time.monotonic() >= deadline:
                    raise LabError(f"{topic}: has been missing for {DELIVERY_TIMEOUT_S} s") from error
        self._sequences[topic, partition] = sequence + 1

    def _hand_over(self, run: str, sequence: int, record: Pending) -> None:
        assert self._producer is not None, "open() comes first"
        topic, partition, key, value, headers, timestamp_ms = record
        if self._ledger is not None and run == self._run and sequence >= self._sent_until[topic, partition]:
            self._sent_until[topic, partition] = until = sequence + SENT_AHEAD
            self._ledger.write("sent", run, topic, partition, sequence, until - 1, timestamp_ms)
        future = self._producer.send(
            topic, key=key, value=value, headers=list(headers), partition=partition, timestamp_ms=timestamp_ms
        )
        self._in_flight[topic, partition].append(_InFlight(future, run, sequence, record))
        self._waiting += 1
        self.sent += 1
        self.bytes += len(key) + len(value)

    def room(self) -> bool:
        """Whether another record may be sent, after a short wait at most.

        Raises:
            LabError: a record was not written, or the cluster refuses this user.
        """
        if self._waiting >= IN_FLIGHT_MOST:
            firsts = (queue[0] for queue in self._in_flight.values() if queue)
            with suppress(KafkaError):
                min(firsts, key=lambda sent: sent.record.timestamp_ms).outcome.get(timeout=SLICE_S)
        self.settle()
        return self._waiting < IN_FLIGHT_MOST

    def settle(self) -> None:
        """Removes the records with a known outcome from the list.

        Raises:
            LabError: a record was not written, or the cluster refuses this user.
        """
        now_ms = time.time_ns() // 1_000_000
        for queue in self._in_flight.values():
            while queue and queue[0].outcome.is_done:
                error = queue[0].outcome.exception
                if error is not None:
                    raise LabError(f"a record was not written: {type(error).__name__}: {error}")
                self._note("acked", queue.popleft(), now_ms)
                self._waiting -= 1
        if self._ledger is not None:
            self._ledger.flush_now_and_then()
        self._check_refusal()

    def _note(self, kind: Literal["acked", "unknown"], sent: _InFlight, now_ms: int) -> None:
        if self._ledger is not None:
            self._ledger.add(kind, sent.run, sent.record.topic, sent.record.partition, sent.sequence, now_ms)

    def _check_refusal(self, error: Exception | None = None) -> None:
        servers = ",".join(self._connection.bootstrap_servers)
        self._client_log.check_refusal(servers, self._connection.username, error)

    def close(self, bound_s: float) -> int:
        """Flushes the remaining records and closes the client.

        Args:
            bound_s: how long that may take, in seconds.

        Returns:
            How many records were not acknowledged.
        """
        deadline = time.monotonic() + (bound_s if self._client_log.refused is None else 0)
        unsettled = [sent for queue in self._in_flight.values() for sent in queue]
        for sent in unsettled:
            with suppress(KafkaError):
                sent.outcome.get(timeout=max(0.0, deadline - time.monotonic()))
        lost = sum(not sent.outcome.succeeded() for sent in unsettled)
        self._end_account(unsettled)
        if self._producer is not None:
            with suppress(KafkaTimeoutError):
                self._producer.close(timeout=0 if lost else 1)
        return lost

    def _end_account(self, unsettled: Iterable[_InFlight]) -> None:
        if self._ledger is None:
            return
        if not self._ledger.cluster:
            # Nothing was sent: the pending records of the previous run are the next run's.
            self._ledger.close()
            return
        now_ms = time.time_ns() // 1_000_000
        unanswered = []
        for sent in unsettled:
            answered = sent.outcome.succeeded()
            self._note("acked" if answered else "unknown", sent, now_ms)
            unanswered += [] if answered else [sent.record]
        self._ledger.close()
        keep_pending(self._ledger.folder, unanswered)
