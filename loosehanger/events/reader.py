"""Reads records, as a member of a consumer group, or alone without committing offsets."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from heapq import merge
from typing import Any

from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import AuthorizationError, GroupAuthorizationFailedError, KafkaError

from loosehanger.errors import LabError, WrongUseError
from loosehanger.events.open_transactions import OpenTransactions
from loosehanger.events.options import Start as Start
from loosehanger.kafka.clients import PATIENT, connect_consumer
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import ClientLog, Tolerant, UnreadableError, cluster_id
from loosehanger.ledger import Ledger, number_of
from loosehanger.suggestions import did_you_mean

POLL_MS = 500
LOOK_FOR_TOPICS_S = 5.0
"""Seconds between two searches for new topics and partitions that match."""
BATCH_MOST = 500
SILENT_S = 60.0
"""Seconds without a record after which a reader that does not follow gives up before the end."""
COMMIT_S, COMMIT_MS = 1.0, 2000
"""Seconds between two commits of a group's offsets, and the bound of a commit."""


@dataclass(frozen=True)
class Selection:
    """The topics to read: those given by name or by regular expression for the whole name, else those of a pattern."""

    topics: tuple[str, ...]
    pattern: re.Pattern[str]

    def choose(self, existing: set[str]) -> set[str]:
        """Returns the selected topics among the existing ones."""
        if not self.topics:
            return {name for name in existing if self.pattern.match(name)}
        return set().union(*(self._named(topic, existing) for topic in self.topics))

    def unknown(self, existing: set[str]) -> list[str]:
        """Returns given names that do not exist."""
        return [topic for topic in self.topics if not self._named(topic, existing)]

    def regex(self) -> str:
        """Returns one regular expression for the whole selection."""
        if not self.topics:
            return self.pattern.pattern
        # A name is its own expression except for its dots, which would match other names too.
        return "^(?:" + "|".join(t if _is_expression(t) else re.escape(t) for t in self.topics) + ")$"

    @staticmethod
    def _named(topic: str, existing: set[str]) -> set[str]:
        if topic in existing:
            return {topic}
        return {name for name in existing if re.fullmatch(topic, name)} if _is_expression(topic) else set()


def _is_expression(topic: str) -> bool:
    return re.fullmatch(r"[\w.-]+", topic) is None


class UnknownTopicError(WrongUseError):
    """The user sees no topic of this name."""


class Reader:
    """Reads committed records.

    Args:
        connection: the connection to the cluster.
        selection: the topics.
        group: the consumer group; without one, nothing is committed and only Read on topics is needed.
        start: the start position; in a group, only for partitions without a committed offset.
        follow: continue until interrupted, instead of stopping after the records that existed at the start.
        client_log: the client's log.
        report: takes a line about what the reader waits for, or has skipped as unreadable.
        value_bytes: how much of each key and value to keep; None for all of it.
        ledger: records what was shown, before it is committed; None for no ledger.
        only: the partitions to read; none for all. It excludes a group.
    """

    def __init__(
        self,
        connection: Connection,
        selection: Selection,
        *,
        group: str | None,
        start: Start,
        follow: bool,
        client_log: ClientLog,
        report: Callable[[str], object],
        value_bytes: int | None = None,
        ledger: Ledger | None = None,
        only: Collection[int] = (),
    ) -> None:
        self._ledger = ledger
        self._only = frozenset(only)
        self._selection = selection
        self._group = group
        self._start = start
        self._follow = follow
        self._client_log = client_log
        self._report = report
        self._partitions: set[TopicPartition] = set()
        self._unshown: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._open = OpenTransactions(connection, report)
        self._servers = ",".join(connection.bootstrap_servers)
        self._user = connection.username or "anonymous"
        with self._explained():
            self._consumer = connect_consumer(
                connection,
                PATIENT,
                client_id="lab-consumer",
                group_id=group,
                value_deserializer=Tolerant(report, value_bytes),
                # After a crash the next member takes over in 10 s instead of 45.
                session_timeout_ms=10_000,
                auto_offset_reset=start.end or "earliest",
                metadata_max_age_ms=LOOK_FOR_TOPICS_S * 1000,
                # For a fast first line: this library needs seconds to parse the default of 50 MB.
                fetch_max_bytes=2 * 1024 * 1024,
                max_partition_fetch_bytes=256 * 1024,
                reconnect_backoff_max_ms=1000,
                metrics_enabled=False,
            )

    def batches(self, most: int | None, stopping: Callable[[], bool]) -> Iterator[list[ConsumerRecord]]:
        """Yields the records in batches as they arrive, and empty batches, so that the caller can check other things.

        A request for the next batch means that the previous one was shown, and only then is it committed.

        Args:
            most: stop after this many records.
            stopping: called between batches.

        Raises:
            WrongUseError: a topic that was named does not exist.
            LabError: the cluster refuses this user, or cannot be reached.
        """
        with self._explained():
            if self._group is not None:
                self._consumer.subscribe(pattern=self._selection.regex())
            else:
                self._find_partitions(first=True)
            looked, left = time.monotonic(), most
            committed = moved = watched = looked
            reached: dict[TopicPartition, int] = {}
            while not stopping() and left != 0 and (self._follow or not self._done()):
                polled = self._consumer.poll(POLL_MS, max_records=min(BATCH_MOST, left or BATCH_MOST))
                # Markers and aborted records are skipped silently.
                before, reached = reached, {} if self._follow else {place: self._at(place) for place in self._ends}
                if self._follow or polled or reached != before:
                    moved = time.monotonic()
                elif time.monotonic() >= moved + SILENT_S:
                    raise LabError(f"{self._servers}: {self._where_it_waits(reached)}")
                # Merges partitions by time, as far as the order within each allows.
                batch = list(merge(*polled.values(), key=lambda record: record.timestamp))
                if self._ends:
                    batch = [record for record in batch if record.offset < self._ends[_partition(record)]]
                left = left if left is None else left - len(batch)
                self._unshown = {partition: records[0].offset for partition, records in polled.items()}
                yield batch
                self._unshown = {}
                self._account(batch)
                if time.monotonic() - committed >= COMMIT_S:
                    self._commit()
                    committed = time.monotonic()
                if self._group is None and time.monotonic() - looked >= LOOK_FOR_TOPICS_S:
                    self._find_partitions(first=False)
                    looked = time.monotonic()
                if self._follow and time.monotonic() - watched >= LOOK_FOR_TOPICS_S:
                    watched = time.monotonic()
                    self._open.follow(self._waiting(), watched)
                self._check_refusal()
            if not self._follow and left != 0 and not stopping():
                self._report_open_transactions()

    def _waiting(self) -> dict[TopicPartition, int]:
        """Returns the reader's position in the partitions that have more records."""
        found = {}
        for partition in self._consumer.assignment():
            end = self._consumer.highwater(partition)
            position = None if end is None else self._consumer.position(partition, timeout_ms=POLL_MS)
            if end is not None and position is not None and position < end:
                found[partition] = position
        return found

    def _report_open_transactions(self) -> None:
        """Names the open transactions that hold back records."""
        ends = {partition: self._consumer.highwater(partition) for partition in self._ends}
        doubtful = [place for place, end in ends.items() if end is None or end > self._ends[place]]
        if not doubtful:
            return
        # With read_committed these are the last stable offsets; records before them were committed in the meantime.
        stable = self._consumer.end_offsets(doubtful)
        self._open.at_the_end([place for place in doubtful if (ends[place] or stable[place] + 1) > stable[place]])

    def _account(self, batch: Sequence[ConsumerRecord]) -> None:
        if self._ledger is None or not batch:
            return
        self._ledger.cluster = cluster_id(self._consumer)
        now_ms = time.time_ns() // 1_000_000
        for record in batch:
            if number := number_of(record.headers):
                run, sequence = number
                self._ledger.add("processed", run, record.topic, record.partition, sequence, now_ms, record.offset)
        self._ledger.flush_now_and_then()

    def close(self) -> None:
        """Commits the group's offsets up to the shown records, and closes the consumer."""
        # A cluster that does not answer cannot process the departure from the group.
        self._consumer.close(timeout_ms=5000 if self._commit() else 500)

    def _commit(self) -> bool:
        """Commits the group's offsets. A failed commit is repeated later; at worst, records are read again."""
        if self._group is None:
            return True
        if self._ledger is not None:
            self._ledger.flush()
        with suppress(KafkaError):
            for partition, offset in self._unshown.items():
                if partition in self._consumer.assignment():
                    self._consumer.seek(partition, offset)
            self._consumer.commit(timeout_ms=COMMIT_MS)
            return True
        return False

    def _find_partitions(self, *, first: bool) -> None:
        try:
            existing = self._consumer.topics()
        except KafkaError:
            if first:
                raise
            return  # The broker is unavailable for a moment; the next search tries again.
        if first and (unknown := self._selection.unknown(existing)):
            hint = did_you_mean(unknown[0], existing)
            topics = ", ".join(sorted(existing)) or "none"
            raise UnknownTopicError(
                f"{self._servers} has no topic '{unknown[0]}' that user '{self._user}' may read"
                f"{hint or f'; the topics are: {topics}'}"
            )
        chosen = self._selection.choose(existing)
        every = {t: self._consumer.partitions_for_topic(t) for t in chosen}
        if first and self._only and (absent := self._only - set().union(*every.values())):
            raise WrongUseError(
                f"{', '.join(sorted(chosen)) or self._selection.regex()}: there is no partition {min(absent)}"
            )
        partitions = {TopicPartition(t, p) for t in chosen for p in every[t] if not self._only or p in self._only}
        new = partitions - self._partitions
        if new:
            # Known partitions stay assigned even if a restarting broker does not list them for a moment.
            self._partitions |= new
            self._consumer.assign(sorted(self._partitions))
            self._position(sorted(new), self._start if first else Start(end="earliest"))
        if first:
            if not self._follow:
                # With read_committed this is the last stable offset.
                self._ends = self._consumer.end_offsets(sorted(self._partitions)) if self._partitions else {}
            elif not self._partitions:
                self._report(f"no topic matches {self._selection.regex()} as yet; waiting for one")

    def _position(self, partitions: Sequence[TopicPartition], start: Start) -> None:
        consumer = self._consumer
        if start.end == "earliest":
            consumer.seek_to_beginning(*partitions)
        elif start.end == "latest":
            consumer.seek_to_end(*partitions)
        elif start.offset is not None:
            for partition in partitions:
                consumer.seek(partition, start.offset)
        else:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, start.time_ms))
            for partition in partitions:
                if found.get(partition) is None:
                    consumer.seek_to_end(partition)
                else:
                    consumer.seek(partition, found[partition].offset)

    def _done(self) -> bool:
        return all(self._at(partition) >= end for partition, end in self._ends.items())

    def _where_it_waits(self, reached: Mapping[TopicPartition, int]) -> str:
        place, at = next((place, at) for place, at in reached.items() if at < self._ends[place])
        return (
            f"no record of {place.topic}-{place.partition} received for {SILENT_S:.0f} s from offset {at}; "
            "see ./lab status"
        )

    def _at(self, partition: TopicPartition) -> int:
        return self._consumer.position(partition, timeout_ms=POLL_MS) or 0

    def _check_refusal(self, error: Exception | None = None) -> None:
        self._client_log.check_refusal(self._servers, self._user, error)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns the client's errors into one line that names cluster and user."""
        self._client_log.first = ""
        try:
            yield
        except GroupAuthorizationFailedError as error:
            raise LabError(f"{self._servers}: user '{self._user}' may not use group '{self._group}'") from error
        except AuthorizationError as error:
            raise LabError(f"{self._servers}: user '{self._user}' may not do this: {error}") from error
        except UnreadableError as error:
            raise LabError(f"{self._servers}: {error}") from error
        except KafkaError as error:
            self._check_refusal(error)
            reason = self._client_log.first or f"{type(error).__name__}: {error}"
            raise LabError(f"no cluster answers at {self._servers} ({reason})") from error


def _partition(record: ConsumerRecord) -> Any:
    return TopicPartition(record.topic, record.partition)
