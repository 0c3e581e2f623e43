"""Names the open transactions that hold back records from a ``read_committed`` reader that makes no progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing

from kafka import TopicPartition
from kafka.errors import KafkaError

from loosehanger.kafka.clients import HURRIED, connect_admin
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.transactions import WARN_S, Held, held_back

AGAIN_S = 5.0
"""Seconds to observe a transaction of unknown age at the end of a reading: most are short."""
_LOOK_S = 0.5


class OpenTransactions:
    """Names the transactions that hold back records from a reader, each once.

    Args:
        connection: the reader's connection to the cluster.
        report: takes a line.
    """

    def __init__(self, connection: Connection, report: Callable[[str], object]) -> None:
        self._connection = connection
        self._report = report
        self._told: set[tuple[str, int, int]] = set()
        self._waiting: dict[TopicPartition, tuple[int, float]] = {}

    def follow(self, waiting: Mapping[TopicPartition, int], now: float) -> None:
        """Checks partitions with more records than a reader gets, and names those without progress for too long.

        Args:
            waiting: the reader's position in each.
            now: the time of the monotonic clock.
        """
        before = self._waiting
        self._waiting = {
            place: (position, before[place][1] if before.get(place, (-1, 0.0))[0] == position else now)
            for place, position in waiting.items()
        }
        late = [
            place
            for place, (position, since) in self._waiting.items()
            if now - since >= WARN_S and (*place, position) not in self._told
        ]
        if not late:
            return
        for place in late:
            # A partition that is not held back is checked again after the same time.
            self._waiting[place] = self._waiting[place][0], now
        for held in self._look(late) or ():
            self._say(held)
            self._told.add((held.topic, held.partition, waiting[TopicPartition(held.topic, held.partition)]))

    def at_the_end(self, partitions: Collection[TopicPartition]) -> None:
        """Names the transactions that hold back records of these partitions."""
        deadline, seen = time.monotonic() + AGAIN_S, None
        while held := self._look(partitions):
            stable = {(one.topic, one.partition, one.stable) for one in held}
            seen = stable if seen is None else seen & stable
            late = time.monotonic() >= deadline
            for one in held:
                if one.overdue or (late and (one.topic, one.partition, one.stable) in seen):
                    self._say(one)
            if late or all(one.overdue for one in held):
                return
            partitions = [TopicPartition(one.topic, one.partition) for one in held if not one.overdue]
            time.sleep(_LOOK_S)

    def _say(self, held: Held) -> None:
        self._report(f"{held}; they are not shown while it is open")

    def _look(self, partitions: Collection[TopicPartition]) -> list[Held]:
        """Returns what is held back; nothing if the cluster does not answer, which the reader itself reports."""
        try:
            with closing(connect_admin(self._connection, HURRIED)) as client:
                return held_back(client, partitions, self._connection.username)
        except (KafkaError, OSError):
            return []
