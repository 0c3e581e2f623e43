"""What happens in a region right now: one reader for each region, shared by all who look.

It runs while somebody looks, and a while longer. A viewer who is slow loses the oldest of what waits for him, and is
told how much; nothing is kept for him without bound, and nothing is done for him that another has had done already.
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
from loosehanger.kafka.connection import Connection

if TYPE_CHECKING:
    from kafka import KafkaConsumer

POLL_MS = 100
LOOK_FOR_TOPICS_S = 5.0
ENDS_S = 1.0
RETRY_S = 2.0
LINGER_S = 20.0
"""How long it reads on after the last one looked away."""
WINDOW_S = 5
"""Rates are those of so many whole seconds."""
LATENCY_S = 15.0
MOST_SAMPLES = 2000
SAMPLES_A_BATCH = 20
MOST_WAITING = 100
"""Records that wait for those who want the same."""
MOST_RECENT = 300
MOST_HELD_BYTES = 2 * 1024 * 1024
"""Of those that wait, and of the recent ones. What is made of a record for its viewers may take ten times its bytes."""
MOST_POLLED = 500
FIRST_LOOK = 20
"""Records of each partition that are there already when reading begins."""
MOST_BEHIND = 20_000
"""Further behind than this it would show the past: it goes on at the end."""

_log = logging.getLogger("kafka.skipped")
"""Goes where the client's complaints go, in the same doses."""


@dataclass(frozen=True)
class Wanted:
    """What a viewer wants to see; empty fields want everything."""

    topic: str = ""
    text: str = ""
    key: str = ""
    header: str = ""
    """A part of ``name: value``."""

    def fits(self, arrived: Arrived) -> bool:
        """Whether a record is wanted."""
        return (
            (not self.topic or arrived.record.topic == self.topic)
            and (not self.key or self.key in arrived.key)
            and (not self.text or folded(self.text) in arrived.words)
            and (not self.header or any(folded(self.header) in line for line in arrived.header_lines))
        )


class Newest:
    """Records, the newest last: so many, and so many bytes of them, at most.

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
        """Takes a batch in; the oldest that have no room are dropped."""
        for arrived in batch[-self._most :]:
            self._records.append(arrived)
            self._bytes += arrived.held
            while len(self._records) > self._most or self._bytes > self._most_bytes:
                self._bytes -= self._records.popleft().held

    def clear(self) -> None:
        """Lets go of them all."""
        self._records.clear()
        self._bytes = 0


class Feed:
    """What waits for all who want the same: a record costs as much for one of them as for many.

    Args:
        wanted: what they want.
        recent: what came before, oldest first.
        most: how many records are kept for them.
    """

    def __init__(self, wanted: Wanted, recent: Iterable[Arrived] = (), most: int = MOST_WAITING) -> None:
        self.wanted = wanted
        self._newest = Newest(most)
        self._came = 0
        self._lock = threading.Lock()
        self.offer(list(recent))

    def offer(self, batch: Sequence[Arrived]) -> None:
        """Takes in what is wanted of a batch; the oldest that has no room is dropped."""
        fitting = batch if self.wanted == Wanted() else [arrived for arrived in batch if self.wanted.fits(arrived)]
        with self._lock:
            self._came += len(fitting)
            self._newest.extend(fitting)

    def begin(self) -> int:
        """The place of somebody who has seen nothing so far: that there was more than what is kept is no news."""
        with self._lock:
            return self._came - len(self._newest)

    def after(self, place: int) -> tuple[list[Arrived], int, int]:
        """What came behind a place, oldest first; how many of it had no room; and the place behind all of it."""
        with self._lock:
            came = self._came - place
            waiting = min(came, len(self._newest))
            return list(self._newest)[len(self._newest) - waiting :], came - waiting, self._came


class Viewer:
    """Somebody who follows a feed, at a place of his own."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._place = feed.begin()

    def take(self) -> tuple[list[Arrived], int]:
        """What waits, oldest first, and how many were dropped since the last time."""
        taken, dropped, self._place = self.feed.after(self._place)
        return taken, dropped


@dataclass
class Rates:
    """Records, bytes and latencies by topic: of the last seconds only."""

    seconds: deque[tuple[int, dict[str, tuple[int, int]]]] = field(default_factory=lambda: deque(maxlen=WINDOW_S + 2))
    latencies: deque[tuple[float, str, int]] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    since: float | None = None

    def add(self, now: float, counts: dict[str, tuple[int, int]]) -> None:
        """Counts records and bytes of topics."""
        second = int(now)
        if not self.seconds or self.seconds[-1][0] != second:
            self.seconds.append((second, {}))
        there = self.seconds[-1][1]
        for topic, (records, size) in counts.items():
            before = there.get(topic, (0, 0))
            there[topic] = (before[0] + records, before[1] + size)

    def of(self, now: float, topics: Iterable[str] | None = None) -> tuple[float, float] | None:
        """Records and bytes a second, of some topics or of all; None while too little was seen to tell."""
        if self.since is None or now - self.since < 2:
            return None
        last = int(now)
        window = min(WINDOW_S, max(1, last - int(self.since) - 1))
        chosen = None if topics is None else set(topics)
        records = size = 0
        for second, counts in self.seconds:
            if last - window <= second < last:
                for topic, (count, bytes_) in counts.items():
                    if chosen is None or topic in chosen:
                        records, size = records + count, size + bytes_
        return records / window, size / window

    def percentiles(self, now: float, topics: Iterable[str] | None = None) -> tuple[int | None, int | None]:
        """Median and 99th percentile of the latencies of the last seconds, in ms, by nearest rank."""
        chosen = None if topics is None else set(topics)
        found = sorted(ms for at, topic, ms in self.latencies
                       if now - at <= LATENCY_S and (chosen is None or topic in chosen))  # fmt: skip
        if not found:
            return None, None
        return found[(len(found) * 50 + 99) // 100 - 1], found[(len(found) * 99 + 99) // 100 - 1]


class Live:
    """A region's reader.

    Args:
        region: its name.
        connection: the console's way in.
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
        self._firsts: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._wanted_until = 0.0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.problem = ""
        """Why it cannot read, or what it had to skip; empty while all is well."""

    def keep_going(self, seconds: float = LINGER_S) -> None:
        """Somebody looks: reads, or reads on.

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
        """Whether somebody follows its records."""
        return bool(self._viewers)

    def watch(self, wanted: Wanted) -> Viewer:
        """A new viewer; what was read a moment ago waits for him already."""
        with self._lock:
            feeds = (viewer.feed for viewer in self._viewers if viewer.feed.wanted == wanted)
            viewer = Viewer(next(feeds, None) or Feed(wanted, self._recent))
            self._viewers.append(viewer)
        self.keep_going()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """The viewer has gone."""
        with self._lock:
            if viewer in self._viewers:
                self._viewers.remove(viewer)

    def recent(self, wanted: Wanted, most: int) -> list[Arrived]:
        """The latest records that are wanted, oldest first."""
        with self._lock:
            recent = list(self._recent)
        return [arrived for arrived in recent if wanted.fits(arrived)][-most:]

    def rates(self, topics: Iterable[str] | None = None) -> tuple[float, float] | None:
        """Records and bytes a second that arrive in the region; None while too little was seen to tell."""
        with self._lock:
            return self._rates.of(time.monotonic(), topics)

    def percentiles(self, topics: Iterable[str] | None = None) -> tuple[int | None, int | None]:
        """p50 and p99, in ms, from production to here."""
        with self._lock:
            return self._rates.percentiles(time.monotonic(), topics)

    def offsets(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Each partition's first offset when its reading began, and its end as of a second ago; empty while nothing is
        read."""
        with self._lock:
            return {place: (self._firsts.get(place, end), end) for place, end in self._ends.items()}

    def close(self) -> None:
        """Ends the thread."""
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
            except Exception as error:  # Whatever became of the client, there is a next attempt.
                self.problem = f"{self.region}: messages cannot be read ({type(error).__name__}: {error}); trying again"
                with self._lock:
                    self._rates, self._ends = Rates(), {}
                self._closing.wait(RETRY_S)  # Between two attempts; a reader that is no longer wanted ends above.
            finally:
                if consumer is not None:
                    with suppress(Exception):
                        consumer.close(autocommit=False, timeout_ms=2000)

    def _connect(self) -> KafkaConsumer:
        prepare_clients()
        from kafka import KafkaConsumer

        from loosehanger.kafka.patches import Tolerant

        return KafkaConsumer(
            **self._connection.kafka_python(),
            client_id="lab-console",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            value_deserializer=Tolerant(self._skipped, MOST_VALUE_BYTES, MOST_HEADER_BYTES),
            # Mirrors write in transactions: what they took back must not be shown.
            isolation_level="read_committed",
            fetch_max_bytes=4 * 1024 * 1024,
            max_partition_fetch_bytes=512 * 1024,
            reconnect_backoff_max_ms=1000,
            bootstrap_timeout_ms=5000,
            allow_auto_create_topics=False,
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
        """Has every partition read; returns where each one's end was when its reading began."""
        from kafka import TopicPartition

        names = [name for name in consumer.topics() if not name.startswith("__")]
        there = {TopicPartition(name, p) for name in names for p in consumer.partitions_for_topic(name) or ()}
        new = sorted(there - known.keys())
        if not new:
            return known
        consumer.assign(sorted(there | known.keys()))
        ends = consumer.end_offsets(new)
        beginnings = consumer.beginning_offsets(new)
        with self._lock:
            self._firsts |= {(part.topic, part.partition): first for part, first in beginnings.items()}
        for partition in new:
            # A topic that is made while we look is new from its first record on.
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
        with self._lock:
            self._rates.add(now, counts)
            self._rates.latencies.extend(samples)
            self._recent.extend(batch)
            feeds = {viewer.feed for viewer in self._viewers}
        for feed in feeds:
            feed.offer(batch)
