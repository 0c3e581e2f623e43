"""The lag of mirrors at one source, and the records that it may delete first, read in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loosehanger.console.cluster import prepare_clients
from loosehanger.errors import LabError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.stalled import Stands

if TYPE_CHECKING:
    from loosehanger.kafka.retention_risk import PartitionRisk, RetentionReader, TopicRisk

FRESH_S = 5.0
IDLE_S = 60.0
STALE_S = 20.0
"""How long a reading is shown without a newer one."""
Partition = tuple[str, int]


@dataclass(frozen=True)
class MirrorReading:
    """A mirror's positions at one source, with the source's end offsets read just before them."""

    positions: Mapping[Partition, int | None]
    """The last offset that it has copied of each partition; None before the first."""
    ends: Mapping[Partition, int] | None = None
    """None for a mirror whose workers do not answer: it copies nothing, so the present end offsets count."""
    at: float | None = None
    """When, in seconds since the epoch; None for now."""


class LostOffsets:
    """Counts the offsets that a source was seen to delete before its mirrors had copied them.

    A mirror that continues behind them does not undo the loss, so the count never falls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed: dict[tuple[str, str], int] = {}
        self._present: dict[tuple[str, str, int], tuple[int, int]] = {}
        """The losses that a mirror has not passed yet, by partition: the source's first offset, and the count."""

    def read(self, mirror: str, found: Iterable[PartitionRisk]) -> None:
        """Counts a look at the source of a mirror."""
        with self._lock:
            for one in found:
                place = mirror, one.topic, one.partition
                start, gone = self._present.pop(place, (0, 0))
                if gone and one.position is not None and one.position + 1 >= start:
                    topic = mirror, one.topic
                    self._passed[topic] = self._passed.get(topic, 0) + gone
                if one.gone:
                    self._present[place] = one.start, one.gone

    def of(self, mirror: str) -> dict[str, int]:
        """The offsets that were lost to a mirror, by topic; topics without a loss are left out."""
        with self._lock:
            found = {topic: count for (whose, topic), count in self._passed.items() if whose == mirror}
            for (whose, topic, _), (_, gone) in self._present.items():
                if whose == mirror:
                    found[topic] = found.get(topic, 0) + gone
        return found


class Losses:
    """Reads one source in a thread of its own while it is asked for.

    Args:
        connection: the console's connection to it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="losses")
        self.stands = Stands()
        self.lost = LostOffsets()
        self._source: RetentionReader | None = None
        self._known: dict[str, tuple[float, dict[str, TopicRisk]]] = {}
        """Each mirror's last result, and its time on the monotonic clock."""
        self._looks: dict[str, tuple[float, float | None, Future[None]]] = {}
        """Each mirror's last task: when it was submitted, the moment of its reading, and its future."""
        self._asked = 0.0

    def of(self, mirror: str, reading: MirrorReading) -> dict[str, TopicRisk]:
        """The risk of each topic of a mirror, as of some seconds ago; empty before the first result.

        Args:
            mirror: its key among the source's mirrors.
            reading: its positions.
        """
        self._asked = time.monotonic()
        looked, moment, look = self._looks.get(mirror, (0.0, None, None))
        news = reading.at is None or reading.at != moment
        if look is None or (look.done() and news and self._asked - looked > FRESH_S):
            self._looks[mirror] = self._asked, reading.at, self._thread.submit(self._look, mirror, reading)
        at, known = self._known.get(mirror, (0.0, {}))
        return known if self._asked - at < STALE_S else {}

    def aged(self, mirror: str) -> dict[str, TopicRisk]:
        """The risk of each topic at the last result, aged by the time since: for a source that is unreachable."""
        at, known = self._known.get(mirror, (0.0, {}))
        passed = time.monotonic() - at
        return {
            topic: replace(
                danger,
                age_s=danger.age_s + passed if danger.age_s is not None else None,
                loss_in_s=max(danger.loss_in_s - passed, 0.0) if danger.loss_in_s is not None else None,
            )
            for topic, danger in known.items()
            if danger.behind or danger.gone
        }

    def looks(self) -> list[Future[None]]:
        """The tasks that are under way."""
        return [look for _, _, look in self._looks.values() if not look.done()]

    def close_if_idle(self) -> None:
        """Closes the clients when they were not used for a while."""
        if self._source is not None and time.monotonic() - self._asked > IDLE_S:
            self._thread.submit(self._forget)

    def close(self) -> None:
        """Stops the thread and closes its clients."""
        self._thread.submit(self._forget)
        self._thread.shutdown(wait=False)

    def _look(self, mirror: str, reading: MirrorReading) -> None:
        prepare_clients()
        from kafka import TopicPartition

        from loosehanger.kafka.cluster import Cluster
        from loosehanger.kafka.retention_risk import RetentionReader, by_topic

        if self._source is None:
            self._source = RetentionReader(Cluster("the source", self._connection))
        wanted = {TopicPartition(*place): offset for place, offset in reading.positions.items()}
        ends = None if reading.ends is None else {TopicPartition(*place): end for place, end in reading.ends.items()}
        try:
            found = self._source.look(wanted, whose=mirror, now=reading.at, ends=ends)
            self.stands.read(mirror, found, time.monotonic())
            self.lost.read(mirror, found)
            self._known[mirror] = time.monotonic(), by_topic(found)
        except (LabError, KeyError, ValueError):
            self.stands.keep(mirror, reading.positions, time.monotonic())
            # A source that does not answer is reported with its topics.
            self._known.pop(mirror, None)

    def _forget(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
