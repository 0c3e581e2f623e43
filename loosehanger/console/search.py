"""Searches existing records: by key, header, words and time, or one record by its offset.

A search reads a region's topics forward from a time or an offset, or backward from one, and is bounded in records and
seconds. Its result says which offsets it covers, so that the next search can continue exactly there; a search of all
topics continues from a time.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from loosehanger.console.cluster import prepare_clients
from loosehanger.console.live import RecordFilter
from loosehanger.console.records import MOST_HEADER_BYTES, MOST_VALUE_BYTES, Arrived
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.suggestions import did_you_mean
from loosehanger.times import moment

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

MOST_READ = 50_000
MOST_S = 8.0
MOST_FOUND = 200
MOST_WAITING = 3
"""Searches that may wait in a region while another one runs, each at most ``MOST_S`` long."""
MOST_SKIPPED = 3
"""Skipped batches that a message names."""
MOST_SINGLE = 20
"""Single records that may wait in a region to be read, which takes a moment each."""
IDLE_S = 60.0
"""How long a client is kept after its last search."""
TOPICS_S = 5.0
"""How long the topics of a region count as known."""
LONGEST_POSITION = 4000
"""Characters of a position, which becomes a part of an address."""
_POLL_MS = 200
_BATCH = 500
_LARGEST_CHUNK = 5000
_REGION_POSITION = re.compile(r"([a-z0-9-]{1,63})\.(\d{1,9}-\d{1,19}(?:_\d{1,9}-\d{1,19})*)")
Position = Mapping[str, Mapping[int, int]]
"""An offset for each region and partition of one topic."""


@dataclass(frozen=True)
class SearchRequest:
    """A search; an empty field matches everything."""

    wanted: RecordFilter
    since_ms: int | None = None
    until_ms: int | None = None
    """For a search backward, also where it begins: at the first later record."""
    partition: int | None = None
    offset: int | None = None
    """With a partition: this record alone."""
    most: int = 100
    newest: bool = False
    """Whether it reads backward, and the newest record comes first."""
    at: Position = field(default_factory=dict)
    """Of one topic: where to begin; backward, the first offset that is not read any more."""
    whole: bool = False
    """Whether keys, values and headers are read in full."""


def search_request(
    wanted: RecordFilter,
    since: str = "",
    until: str = "",
    partition: str = "",
    offset: str = "",
    most: int = 100,
    *,
    newest: bool = False,
    at: str = "",
) -> SearchRequest:
    """Reads a search from its text fields.

    Args:
        wanted: topic, key, header and words.
        since: a time, or how long ago; empty for the beginning.
        until: the same; empty for now.
        partition: a number; empty for all partitions.
        offset: of a single record; empty for all records.
        most: how many records to return.
        newest: whether the newest record comes first.
        at: a position that an earlier search returned; empty for none.

    Raises:
        WrongUseError: a time or a number is invalid, or an offset lacks its topic or partition.
    """
    numbers: dict[str, int | None] = {}
    for name, text in (("partition", partition.strip()), ("offset", offset.strip())):
        if text and not (text.isascii() and text.isdecimal() and int(text) < 2**63):
            raise WrongUseError(f"{name}: '{text}' is not a number, for example 17")
        numbers[name] = int(text) if text else None
    if numbers["offset"] is not None and (numbers["partition"] is None or not wanted.topic):
        raise WrongUseError("an offset needs a topic and a partition; give all three")
    if at and not wanted.topic:
        raise WrongUseError("at: a position needs its topic; give both")
    return SearchRequest(
        wanted,
        _milliseconds("since", since),
        _milliseconds("until", until),
        numbers["partition"],
        numbers["offset"],
        most,
        newest=newest,
        at=read_position(at),
    )


def read_position(text: str) -> Position:
    """Reads a position from its text, as in ``west.0-17_1-40~east.0-5``.

    Raises:
        WrongUseError: it is not one.
    """
    found = {}
    for part in filter(None, text.split("~")):
        match = _REGION_POSITION.fullmatch(part)
        if not match or len(text) > LONGEST_POSITION:
            raise WrongUseError("at: this is not a position; use one that a search returned")
        pairs = (pair.split("-") for pair in match[2].split("_"))
        found[match[1]] = {int(number): min(int(offset), 2**63 - 1) for number, offset in pairs}
    return found


def write_position(position: Position) -> str:
    """A position as text; empty where it would be too long for an address."""
    text = "~".join(
        f"{region}." + "_".join(f"{number}-{offset}" for number, offset in sorted(offsets.items()))
        for region, offsets in position.items()
        if offsets
    )
    return text if len(text) <= LONGEST_POSITION else ""


def _milliseconds(name: str, text: str) -> int | None:
    if not text.strip():
        return None
    try:
        return round(moment(text.strip(), datetime.now(UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise WrongUseError(f"{name}: '{text}' is not a time, for example 10m (ago) or 2026-01-31T12:00") from error


@dataclass(frozen=True)
class Span:
    """The offsets of a partition that a search covers, and those that there are: from the first to before the last."""

    low: int
    high: int
    first: int
    end: int


Spans = Mapping[tuple[str, int], Span]
"""By region and partition, of one topic."""


@dataclass(frozen=True)
class SearchResult:
    """A search's result in a region, in the order that was asked for."""

    records: list[Arrived]
    read: int
    reached_ms: int | None
    """The record time up to which everything was read, or back to which; None where all was read."""
    skipped: tuple[str, ...] = ()
    """A line for each batch that could not be read."""
    spans: Spans = field(default_factory=dict)
    """What it covers; empty for a search of all topics, or of one record."""
    missing: str = ""
    """Why there is nothing to search: the topic or the partition does not exist."""


def in_order(records: Iterable[Arrived], *, newest: bool) -> list[Arrived]:
    """Records by time, where those of a partition stay in the order of their offsets, whatever their times."""
    sign = -1 if newest else 1
    latest: dict[tuple[str, str, int], int] = {}
    keyed = []
    for one in sorted(records, key=lambda one: sign * one.record.offset):
        place = one.region, one.record.topic, one.record.partition
        latest[place] = max(latest.get(place, sign * one.record.timestamp), sign * one.record.timestamp)
        keyed.append((latest[place], place, one))
    keyed.sort(key=lambda entry: entry[:2])
    return [one for _, _, one in keyed]


def first_page(
    records: Iterable[Arrived], spans: Spans, most: int, *, newest: bool
) -> tuple[list[Arrived], dict[tuple[str, int], Span], int | None]:
    """The first records in order, what is covered without the others, and the time of the first of these.

    Args:
        records: the records that were found.
        spans: what was covered to find them.
        most: how many of them are wanted.
        newest: whether the newest comes first.
    """
    ordered = in_order(records, newest=newest)
    left = {**spans}
    for one in ordered[most:]:
        place, offset = (one.region, one.record.partition), one.record.offset
        if (span := left.get(place)) is not None:
            left[place] = (
                replace(span, low=max(span.low, offset + 1)) if newest else replace(span, high=min(span.high, offset))
            )
    return ordered[:most], left, next((one.record.timestamp for one in ordered[most : most + 1]), None)


def positions(spans: Spans) -> tuple[str, str]:
    """Where the next search begins: back from what was covered, and on from it; empty where nothing is left there."""
    older: dict[str, dict[int, int]] = {}
    newer: dict[str, dict[int, int]] = {}
    for (region, number), span in spans.items():
        older.setdefault(region, {})[number] = span.low
        newer.setdefault(region, {})[number] = span.high
    return (
        write_position(older) if any(span.low > span.first for span in spans.values()) else "",
        write_position(newer) if any(span.high < span.end for span in spans.values()) else "",
    )


class Searcher:
    """Searches one region, one search at a time, and reads single records beside it.

    Args:
        region: its name.
        connection: the console's connection to it.
    """

    def __init__(self, region: str, connection: Connection) -> None:
        self.region = region
        self._connection = connection
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"search-{region}")
        self._single = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"record-{region}")
        self._searches: set[Future[SearchResult]] = set()
        self._singles: set[Future[SearchResult]] = set()
        self._reader, self._single_reader = (_Reader(self._connect) for _ in range(2))

    async def find(self, asked: SearchRequest) -> SearchResult:
        """Searches; stops when it is cancelled.

        Raises:
            UnreachableError: no broker answers, it refuses, or too many searches wait.
        """
        # A viewer who opens a record does not wait for another viewer's search.
        single = asked.whole and asked.most == 1
        thread, searches, most, reader = (
            (self._single, self._singles, MOST_SINGLE, self._single_reader)
            if single
            else (self._thread, self._searches, MOST_WAITING, self._reader)
        )
        if len(searches) > most:
            raise UnreachableError(f"{self.region}: {most} searches wait already; try again in a moment")
        ended = threading.Event()
        search = thread.submit(self._find, reader, asked, ended)
        searches.add(search)
        search.add_done_callback(searches.discard)
        try:
            return await asyncio.wrap_future(search)
        finally:
            ended.set()
            search.cancel()

    def close_if_idle(self) -> None:
        """Closes the clients that were not used for a while."""
        for thread, reader in self._threads():
            if reader.is_idle:
                thread.submit(reader.close)

    def drop(self) -> None:
        """Closes the clients after a closed link has cut their connections."""
        for thread, reader in self._threads():
            if reader.is_open:
                thread.submit(reader.close)

    def close(self) -> None:
        """Stops the threads, each after its search and with its client."""
        for search in (*self._searches, *self._singles):
            search.cancel()
        for thread, reader in self._threads():
            thread.submit(reader.close)
            thread.shutdown(wait=False)

    def _threads(self) -> tuple[tuple[ThreadPoolExecutor, _Reader], ...]:
        return (self._thread, self._reader), (self._single, self._single_reader)

    def _find(self, reader: _Reader, asked: SearchRequest, ended: threading.Event) -> SearchResult:
        prepare_clients()
        from kafka.errors import KafkaError

        while True:
            kept = reader.is_open
            try:
                found = self._read(reader, asked, ended)
            except (KafkaError, OSError, ValueError) as error:
                reader.close()
                if kept and not ended.is_set():
                    continue  # Its connection may be from before a broker's restart; a new client decides.
                raise UnreachableError(
                    f"{self.region}: its records cannot be searched ({type(error).__name__}: {error}); "
                    "run ./lab status to see what is down"
                ) from error
            except BaseException:
                reader.close()
                raise
            return found

    def _read(self, reader: _Reader, asked: SearchRequest, ended: threading.Event) -> SearchResult:
        consumer, skipped = reader.open(whole=asked.whole)
        partitions = consumer.partitions_for_topic(asked.wanted.topic) if reader.knows_topics else None
        if not partitions or (asked.partition is not None and asked.partition not in partitions):
            if missing := _missing(consumer, asked, self.region):
                return SearchResult([], 0, None, missing=missing)
            reader.read_topics()
        found = _Search(consumer, asked, self.region, ended).run()
        more = len(skipped) - MOST_SKIPPED
        lines = [*skipped[:MOST_SKIPPED], *([f"and {more} more batches that cannot be read"] if more > 0 else [])]
        return replace(found, skipped=tuple(f"{self.region}: {line}" for line in lines))

    def _connect(self, skipped: Callable[[str], object], *, whole: bool) -> KafkaConsumer:
        from loosehanger.kafka.clients import HURRIED, connect_consumer
        from loosehanger.kafka.patches import Tolerant

        bounds = (None, None) if whole else (MOST_VALUE_BYTES, MOST_HEADER_BYTES)
        return connect_consumer(
            self._connection,
            HURRIED._replace(answer_s=MOST_S),
            client_id="lab-console",
            value_deserializer=Tolerant(skipped, *bounds),
            max_partition_fetch_bytes=512 * 1024,
            metrics_enabled=False,
        )


class _Reader:
    """The consumer of one of the threads, kept from one search to the next.

    A new one needs a tenth of a second, and several times as long beside busy threads.

    Args:
        connect: opens one; takes a function for a line about each batch that cannot be read, and ``whole``.
    """

    def __init__(self, connect: Callable[..., KafkaConsumer]) -> None:
        self._connect = connect
        self._consumer: KafkaConsumer | None = None
        self._whole = False
        self._skipped: list[str] = []
        self._used = 0.0
        self._topics_at = -TOPICS_S

    @property
    def is_open(self) -> bool:
        """Whether it has a consumer."""
        return self._consumer is not None

    @property
    def knows_topics(self) -> bool:
        """Whether the consumer has asked for all topics a moment ago, which takes long where there are hundreds."""
        return time.monotonic() - self._topics_at < TOPICS_S

    def read_topics(self) -> None:
        """Notes that the consumer has asked for all topics now."""
        self._topics_at = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether its consumer was not used for a while."""
        return self.is_open and time.monotonic() - self._used > IDLE_S

    def open(self, *, whole: bool) -> tuple[KafkaConsumer, list[str]]:
        """The consumer, with nothing assigned, and what it says of batches that it cannot read from now on.

        Args:
            whole: whether values and headers are read in full.
        """
        if self._whole != whole:
            self.close()
        self._used = time.monotonic()
        self._skipped.clear()
        if self._consumer is None:
            self._whole, self._topics_at = whole, -TOPICS_S
            self._consumer = self._connect(self._skipped.append, whole=whole)
        self._consumer.unsubscribe()
        return self._consumer, self._skipped

    def close(self) -> None:
        """Closes the consumer."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(Exception):
                consumer.close(autocommit=False, timeout_ms=2000)


class _Search:
    """One search, with the consumer that it reads from.

    Args:
        consumer: open, and with nothing assigned.
        asked: the search.
        region: its name.
        ended: set when its viewer has left.
    """

    def __init__(self, consumer: KafkaConsumer, asked: SearchRequest, region: str, ended: threading.Event) -> None:
        self._consumer, self._asked, self._region, self._ended = consumer, asked, region, ended
        self._deadline = time.monotonic() + MOST_S
        self._bounds = _bounds(consumer, asked)
        self._ranges = {place: _from_position(asked, region, place, *pair) for place, pair in self._bounds.items()}
        self._found: list[Arrived] = []
        self._read = 0
        self._batch = 1 if asked.whole and asked.most == 1 else _BATCH

    def run(self) -> SearchResult:
        """Reads until everything was read, enough records match, or a bound is reached."""
        left, covered = self._backward() if self._asked.newest else self._forward()
        spans: dict[tuple[str, int], Span] = {}
        if self._asked.wanted.topic and self._asked.offset is None:
            spans = {
                (self._region, place.partition): Span(*covered[place], *self._bounds[place]) for place in self._ranges
            }
        records, spans, next_ms = first_page(self._found, spans, self._asked.most, newest=self._asked.newest)
        more = [*left, *([next_ms] if next_ms is not None else [])] if self._asked.offset is None else []
        reached = (max if self._asked.newest else min)(more, default=None)
        return SearchResult(records, self._read, reached, spans=spans)

    def _goes_on(self) -> bool:
        return self._read < MOST_READ and time.monotonic() < self._deadline and not self._ended.is_set()

    def _forward(self) -> tuple[list[int], dict[TopicPartition, tuple[int, int]]]:
        """Reads on from the start of each range.

        Returns:
            The time up to which each partition was read that was not read to its end, and what was covered of each.
        """
        left = {place: end for place, (start, end) in self._ranges.items() if start < end}
        covered = dict(self._ranges)
        self._begin_at({place: self._ranges[place][0] for place in left})
        reached: dict[TopicPartition, int] = {}
        while left and len(self._found) < self._asked.most and self._goes_on():
            for place, records in self._poll().items():
                self._take(records, self._ranges[place][1])
                reached[place] = records[-1].timestamp
            for place in [place for place, end in left.items() if self._consumer.position(place) >= end]:
                del left[place]
                self._consumer.pause(place)
        covered |= {place: (covered[place][0], min(self._consumer.position(place), end)) for place, end in left.items()}
        # Everything before the slowest partition's last record was read; the next search finds the records left out.
        return [reached.get(place, self._asked.since_ms or 0) for place in left], covered

    def _backward(self) -> tuple[list[int], dict[TopicPartition, tuple[int, int]]]:
        """Reads back from the end of each range, in chunks that grow; returns the same as ``_forward``."""
        lows = {place: end for place, (start, end) in self._ranges.items()}
        left = {place for place, (start, end) in self._ranges.items() if start < end}
        now_ms = time.time_ns() // 1_000_000
        earliest = dict.fromkeys(left, now_ms if self._asked.until_ms is None else self._asked.until_ms)
        size = self._asked.most
        while left and self._goes_on() and self._certain(earliest, left) < self._asked.most:
            size = min(size, max(1, (MOST_READ - self._read) // len(left)))
            chunks = {place: (max(self._ranges[place][0], lows[place] - size), lows[place]) for place in left}
            for place, records in self._chunks(chunks).items():
                lows[place] = chunks[place][0]
                if records:
                    earliest[place] = records[0].timestamp
                if lows[place] <= self._ranges[place][0]:
                    left.discard(place)
            size = min(4 * size, _LARGEST_CHUNK)
        return [earliest[place] for place in left], {
            place: (lows[place], end) for place, (_, end) in self._ranges.items()
        }

    def _certain(self, earliest: Mapping[TopicPartition, int], left: Iterable[TopicPartition]) -> int:
        """How many of the records found are newer than all that was not read yet."""
        bound = max((earliest[place] for place in left), default=-math.inf)
        return sum(one.record.timestamp >= bound for one in self._found)

    def _chunks(self, chunks: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, list[Any]]:
        """Reads ranges of offsets; returns the records of those that were read to their ends."""
        self._begin_at({place: start for place, (start, _) in chunks.items()})
        left, records = dict(chunks), {place: list[Any]() for place in chunks}
        while left and self._goes_on():
            for place, batch in self._poll().items():
                records[place] += [one for one in batch if one.offset < chunks[place][1]]
            for place in [place for place, (_, end) in left.items() if self._consumer.position(place) >= end]:
                del left[place]
                self._consumer.pause(place)
                self._take(records[place], chunks[place][1])
        return {place: found for place, found in records.items() if place not in left}

    def _begin_at(self, starts: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign(list(starts))
        for place, offset in starts.items():
            self._consumer.resume(place)
            self._consumer.seek(place, offset)

    def _poll(self) -> dict[TopicPartition, list[Any]]:
        polled: dict[TopicPartition, list[Any]] = self._consumer.poll(_POLL_MS, max_records=self._batch)
        return polled

    def _take(self, records: Sequence[Any], end: int) -> None:
        """Keeps the records that match; a batch may extend beyond the end offset of the search."""
        now_ms = time.time_ns() // 1_000_000
        arrived = [Arrived(self._region, one, now_ms) for one in records if one.offset < end]
        self._read += len(arrived)
        self._found += [one for one in arrived if _fits(one, self._asked)]


def _fits(arrived: Arrived, asked: SearchRequest) -> bool:
    record = arrived.record
    return (
        (asked.offset is None or record.offset == asked.offset)
        and (asked.since_ms is None or record.timestamp >= asked.since_ms)
        and (asked.until_ms is None or record.timestamp <= asked.until_ms)
        and asked.wanted.fits(arrived)
    )


def _missing(consumer: KafkaConsumer, asked: SearchRequest, region: str) -> str:
    """Why a search has nothing to read; empty where the topic and the partition exist."""
    topic = asked.wanted.topic
    if not topic:
        return ""
    names = consumer.topics()
    if topic not in names:
        known = [name for name in names if not name.startswith("__")]
        return f"topic '{topic}' does not exist in {region}{did_you_mean(topic, known)}"
    partitions = consumer.partitions_for_topic(topic) or set()
    if asked.partition is not None and asked.partition not in partitions:
        return f"{topic} has no partition {asked.partition} in {region}; it has 0 to {max(partitions, default=0)}"
    return ""


def _bounds(consumer: KafkaConsumer, asked: SearchRequest) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets that a search may read of each partition: the first one, and the one after the last."""
    from kafka import TopicPartition

    topic = asked.wanted.topic
    names = [topic] if topic else [name for name in consumer.topics() if not name.startswith("__")]
    places = [
        TopicPartition(name, number)
        for name in names
        for number in sorted(consumer.partitions_for_topic(name) or ())
        if asked.partition is None or number == asked.partition
    ]
    if not places:
        return {}
    firsts, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    if asked.offset is not None:
        return {
            place: (asked.offset, min(asked.offset + 1, ends[place]))
            for place in places
            if firsts[place] <= asked.offset
        }
    starts = _offsets_at(consumer, ends, asked.since_ms) if asked.since_ms is not None else firsts
    if asked.newest and asked.until_ms is not None:
        ends = _offsets_at(consumer, ends, asked.until_ms + 1)
    return {place: (starts[place], max(starts[place], ends[place])) for place in places}


def _offsets_at(
    consumer: KafkaConsumer, ends: Mapping[TopicPartition, int], at_ms: int
) -> Mapping[TopicPartition, int]:
    """The first offset of each partition whose record is not older than a time."""
    found = consumer.offsets_for_times(dict.fromkeys(ends, at_ms))
    return {place: found[place].offset if found.get(place) else end for place, end in ends.items()}


def _from_position(asked: SearchRequest, region: str, place: TopicPartition, start: int, end: int) -> tuple[int, int]:
    """The offsets that are left of a range from a position on, or before it."""
    at = asked.at.get(region, {}).get(place.partition)
    if at is None:
        return start, end
    at = min(max(at, start), end)
    return (start, at) if asked.newest else (at, end)
