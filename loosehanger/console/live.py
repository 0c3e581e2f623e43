"""The records that arrive in a region now: one reader for each region, shared by all viewers.

The reader runs while it has viewers, and a while longer. A slow viewer loses the oldest records in their queue, and
learns how many. Every queue is bounded, and viewers with the same filter share the work.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loosehanger.console.cluster import prepare_clients
from loosehanger.console.records import MOST_HEADER_BYTES, MOST_VALUE_BYTES, Arrived, folded
from loosehanger.console.totals import Totals
from loosehanger.kafka.connection import Connection
from loosehanger.quantiles import quantile

if TYPE_CHECKING:
    from kafka import KafkaConsumer

POLL_MS = 100
LOOK_FOR_TOPICS_S = 5.0
ENDS_S = 1.0
RETRY_S = 2.0
LINGER_S = 20.0
"""How long the reader continues after its last viewer left."""
WINDOW_S = 5
"""Whole seconds over which rates are computed."""
LATENCY_S = 15.0
MOST_SAMPLES = 2000
SAMPLES_A_BATCH = 20
MOST_WAITING = 100
"""Records queued for viewers with the same filter."""
MOST_RECENT = 300
MOST_HELD_BYTES = 2 * 1024 * 1024
"""Of queued and of recent records. A record's rendering for its viewers may take ten times its bytes."""
MOST_POLLED = 500
FIRST_LOOK = 20
"""Existing records of each partition that are read when the reader starts."""
MOST_BEHIND = 20_000
"""A reader that lags further behind than this would show the past, so it skips to the end."""

_log = logging.getLogger("kafka.skipped")
"""Goes where the client's logs go, with the same rate limit."""


@dataclass(frozen=True)
class RecordFilter:
    """The records that a viewer wants; an empty field matches everything."""

    topic: str = ""
    text: str = ""
    key: str = ""
    header: str = ""
    """A part of ``name: value``."""

    def fits(self, arrived: Arrived) -> bool:
        """Whether a record matches."""
        return (
            (not self.topic or arrived.record.topic == self.topic)
            and (not self.key or self.key in arrived.key)
            and (not self.text or folded(self.text) in arrived.words)
            and (not self.header or any(folded(self.header) in line for line in arrived.header_lines))
        )


class Newest:
    """The newest records, the latest last, bounded in number and bytes.

    Args:
        most: how many records.
        most_bytes: how many bytes of keys, values and headers.
    """

    def __init__(self, most: int, most_bytes: int = MOST_HELD_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._records: deque[Arrived] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Arrived]:
        return iter(self._records)

    def extend(self, batch: Sequence[Arrived]) -> None:
        """Adds a batch; the oldest records that no longer fit are dropped."""
        for arrived in batch[-self._most :]:
            self._records.append(arrived)
            self._bytes += arrived.held
            while len(self._records) > self._most or self._bytes > self._most_bytes:
                self._bytes -= self._records.popleft().held

    def clear(self) -> None:
        """Removes all records."""
        self._records.clear()
        self._bytes = 0


class Feed:
    """The queue that all viewers with the same filter share: a record costs the same for one viewer and for many.

    Args:
        wanted: the viewers' filter.
        recent: earlier records, oldest first.
        most: how many records are kept.
    """

    def __init__(self, wanted: RecordFilter, recent: Iterable[Arrived] = (), most: int = MOST_WAITING) -> None:
        self.wanted = wanted
        self._newest = Newest(most)
        self._came = 0
        self._lock = threading.Lock()
        self.offer(list(recent))

    def offer(self, batch: Sequence[Arrived]) -> None:
        """Adds a batch's matching records; the oldest that no longer fit are dropped."""
        fitting = (
            batch if self.wanted == RecordFilter() else [arrived for arrived in batch if self.wanted.fits(arrived)]
        )
        with self._lock:
            self._came += len(fitting)
            self._newest.extend(fitting)

    def begin(self) -> int:
        """The place of a new viewer, for whom records that are no longer kept do not count as dropped."""
        with self._lock:
            return self._came - len(self._newest)

    def after(self, place: int) -> tuple[list[Arrived], int, int]:
        """The records after a place, oldest first; how many of them were dropped; and the place after the last."""
        with self._lock:
            came = self._came - place
            waiting = min(came, len(self._newest))
            return list(self._newest)[len(self._newest) - waiting :], came - waiting, self._came


class Viewer:
    """A viewer of a feed, with a place of their own."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._place = feed.begin()

    def take(self) -> tuple[list[Arrived], int]:
        """The queued records, oldest first, and how many were dropped since the last call."""
        taken, dropped, self._place = self.feed.after(self._place)
        return taken, dropped


@dataclass
class Rates:
    """Records, bytes and latencies by topic, of the last seconds only."""

    seconds: deque[tuple[int, dict[str, tuple[int, int]]]] = field(default_factory=lambda: deque(maxlen=WINDOW_S + 2))
    latencies: deque[tuple[float, str, int]] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    since: float | None = None

    def add(self, now: float, counts: dict[str, tuple[int, int]]) -> None:
        """Counts records and bytes of topics."""
        second = int(now)
        if not self.seconds or self.seconds[-1][0] != second:
            self.seconds.append((second, {}))
        latest = self.seconds[-1][1]
        for topic, (records, size) in counts.items():
            before = latest.get(topic, (0, 0))
            latest[topic] = (before[0] + records, before[1] + size)

    def by_topic(self, now: float) -> dict[str, tuple[float, float]] | None:
        """Records and bytes a second of each topic that has any; None in the first two seconds."""
        if self.since is None or now - self.since < 2:
            return None
        last = int(now)
        window = min(WINDOW_S, max(1, last - int(self.since) - 1))
        found: dict[str, tuple[float, float]] = {}
        for second, counts in self.seconds:
            if last - window <= second < last:
                for topic, (count, bytes_) in counts.items():
                    records, size = found.get(topic, (0.0, 0.0))
                    found[topic] = records + count / window, size + bytes_ / window
        return found

    def of(self, now: float, topics: Iterable[str] | None = None) -> tuple[float, float] | None:
        """Records and bytes a second, of some topics or of all; None in the first two seconds."""
        found = self.by_topic(now)
        if found is None:
            return None
        chosen = found.values() if topics is None else [found[topic] for topic in set(topics) if topic in found]
        return sum(records for records, _ in chosen), sum(size for _, size in chosen)

    def percentiles(self, now: float, topics: Iterable[str] | None = None) -> tuple[int | None, int | None]:
        """Median and 99th percentile of the latencies of the last seconds, in ms, by nearest rank."""
        chosen = None if topics is None else set(topics)
        sample = sorted(ms for at, topic, ms in self.latencies
                        if now - at <= LATENCY_S and (chosen is None or topic in chosen))  # fmt: skip
        return (int(quantile(sample, 0.5)), int(quantile(sample, 0.99))) if sample else (None, None)


class Live:
    """A region's reader.

    Args:
        region: its name.
        connection: the console's connection to it.
        closed: why the region cannot be reached from here; empty while it can.
    """

    def __init__(self, region: str, connection: Connection, closed: Callable[[], str] = str) -> None:
        self.region = region
        self._closed = closed
        self._connection = connection
        self._lock = threading.Lock()
        self._viewers: list[Viewer] = []
        self._recent = Newest(MOST_RECENT)
        self._rates = Rates()
        self.totals = Totals()
        """What it has read since the console started."""
        self._firsts: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._wanted_until = 0.0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.problem = ""
        """Why it cannot read, or what it had to skip; empty while it is healthy."""

    def keep_going(self, seconds: float = LINGER_S) -> None:
        """Starts the reader, or keeps it running.

        Args:
            seconds: for how long at least.
        """
        with self._lock:
            self._wanted_until = max(self._wanted_until, time.monotonic() + seconds)
            if closed := self._closed():
                self.problem = closed
            elif self._thread is None and not self._closing.is_set():
                self.problem = ""
                self._thread = threading.Thread(target=self._run, name=f"live-{self.region}", daemon=True)
                self._thread.start()

    @property
    def watched(self) -> bool:
        """Whether a viewer follows its records."""
        return bool(self._viewers)

    def watch(self, wanted: RecordFilter) -> Viewer:
        """Adds a viewer, whose queue begins with the recent records."""
        with self._lock:
            feeds = (viewer.feed for viewer in self._viewers if viewer.feed.wanted == wanted)
            viewer = Viewer(next(feeds, None) or Feed(wanted, self._recent))
            self._viewers.append(viewer)
        self.keep_going()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Removes a viewer."""
        with self._lock:
            if viewer in self._viewers:
                self._viewers.remove(viewer)

    def recent(self, wanted: RecordFilter, most: int) -> list[Arrived]:
        """The latest matching records, oldest first."""
        with self._lock:
            recent = list(self._recent)
        return [arrived for arrived in recent if wanted.fits(arrived)][-most:]

    def rates(self, topics: Iterable[str] | None = None) -> tuple[float, float] | None:
        """Records and bytes a second that arrive in the region; None in the first two seconds."""
        with self._lock:
            return self._rates.of(time.monotonic(), topics)

    def rates_by_topic(self) -> dict[str, tuple[float, float]] | None:
        """The same of each topic that has any."""
        with self._lock:
            return self._rates.by_topic(time.monotonic())

    def percentiles(self, topics: Iterable[str] | None = None) -> tuple[int | None, int | None]:
        """p50 and p99, in ms, from production to here."""
        with self._lock:
            return self._rates.percentiles(time.monotonic(), topics)

    def offsets(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Each partition's first offset when its reading began, and its end offset as of a second ago; empty while the
        reader does not run."""
        with self._lock:
            return {place: (self._firsts.get(place, end), end) for place, end in self._ends.items()}

    def close(self) -> None:
        """Stops the thread."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    def _wanted(self) -> bool:
        with self._lock:
            if self._viewers:
                self._wanted_until = time.monotonic() + LINGER_S
            closed = self._closed()
            if closed or self._closing.is_set() or time.monotonic() > self._wanted_until:
                self.problem = closed or self.problem
                self._thread, self._rates, self._firsts, self._ends = None, Rates(), {}, {}
                self._recent.clear()
                return False
            return True

    def _run(self) -> None:
        while self._wanted():
            consumer = None
            try:
                consumer = self._connect()
                self._read(consumer)
            except Exception as error:  # Whatever happened to the client, the next attempt uses a new one.
                self.problem = f"{self.region}: messages cannot be read ({type(error).__name__}: {error}); trying again"
                with self._lock:
                    self._rates, self._ends = Rates(), {}
                self._closing.wait(RETRY_S)  # Between two attempts; a reader without viewers stops above.
            finally:
                if consumer is not None:
                    with suppress(Exception):
                        consumer.close(autocommit=False, timeout_ms=2000)

    def _connect(self) -> KafkaConsumer:
        prepare_clients()
        from loosehanger.kafka.clients import HURRIED, PATIENT, connect_consumer
        from loosehanger.kafka.patches import Tolerant

        return connect_consumer(
            self._connection,
            HURRIED._replace(answer_s=PATIENT.answer_s),
            client_id="lab-console",
            auto_offset_reset="latest",
            value_deserializer=Tolerant(self._skipped, MOST_VALUE_BYTES, MOST_HEADER_BYTES),
            fetch_max_bytes=4 * 1024 * 1024,
            max_partition_fetch_bytes=512 * 1024,
            reconnect_backoff_max_ms=1000,
            metrics_enabled=False,
        )

    def _skipped(self, line: str) -> None:
        self.problem = f"{self.region}: {line}"
        _log.warning("%s: %s", self.region, line)

    def _read(self, consumer: KafkaConsumer) -> None:
        started = self._assign(consumer, {}, first=True)
        self.problem = ""
        with self._lock:
            self._rates.since = time.monotonic()
        looked = asked = time.monotonic()
        while self._wanted():
            self._take(consumer, consumer.poll(POLL_MS, max_records=MOST_POLLED), started)
            now = time.monotonic()
            if now - asked >= ENDS_S and consumer.assignment():
                asked = now
                ends = consumer.end_offsets(list(consumer.assignment()))
                with self._lock:
                    self._ends = {(part.topic, part.partition): end for part, end in ends.items()}
            if now - looked >= LOOK_FOR_TOPICS_S:
                looked = now
                started = self._assign(consumer, started, first=False)

    def _assign(self, consumer: KafkaConsumer, known: dict[Any, int], *, first: bool) -> dict[Any, int]:
        """Assigns every partition; returns the end offset of each when its reading began."""
        from kafka import TopicPartition

        names = [name for name in consumer.topics() if not name.startswith("__")]
        partitions = {TopicPartition(name, p) for name in names for p in consumer.partitions_for_topic(name) or ()}
        new = sorted(partitions - known.keys())
        if not new:
            return known
        consumer.assign(sorted(partitions | known.keys()))
        ends = consumer.end_offsets(new)
        beginnings = consumer.beginning_offsets(new)
        with self._lock:
            self._firsts |= {(part.topic, part.partition): first for part, first in beginnings.items()}
        for partition in new:
            # All records of a topic that is created while the reader runs are new.
            start = max(beginnings[partition], ends[partition] - FIRST_LOOK) if first else beginnings[partition]
            consumer.seek(partition, start)
        return known | {partition: ends[partition] if first else -1 for partition in new}

    def _take(self, consumer: KafkaConsumer, polled: dict[Any, list[Any]], started: dict[Any, int]) -> None:
        if not polled:
            return
        now, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        batch: list[Arrived] = []
        counts: dict[str, tuple[int, int]] = {}
        samples: list[tuple[float, str, int]] = []
        for partition, records in polled.items():
            arrived = [Arrived(self.region, record, now_ms) for record in records]
            batch += arrived
            fresh = [one for one in arrived if one.record.offset >= started.get(partition, -1)]
            if fresh:
                count, size = counts.get(partition.topic, (0, 0))
                counts[partition.topic] = (count + len(fresh), size + sum(one.size for one in fresh))
                chosen = random.sample(fresh, SAMPLES_A_BATCH) if len(fresh) > SAMPLES_A_BATCH else fresh
                samples += [(now, partition.topic, ms) for one in chosen if (ms := one.latency_ms) is not None]
            if (consumer.highwater(partition) or 0) - records[-1].offset > MOST_BEHIND:
                consumer.seek_to_end(partition)
        batch.sort(key=lambda one: one.record.timestamp)
        self.totals.add(counts, [(topic, ms) for _, topic, ms in samples])
        with self._lock:
            self._rates.add(now, counts)
            self._rates.latencies.extend(samples)
            self._recent.extend(batch)
            feeds = {viewer.feed for viewer in self._viewers}
        for feed in feeds:
            feed.offer(batch)
