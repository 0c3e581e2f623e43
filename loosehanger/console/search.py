"""Searches existing records: by key, header, words and time, or one record by its offset.

A search reads a region's topics from a time on, and is bounded in records and seconds. Its result says which time it
has reached, so that the next search can continue from there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from loosehanger.console.cluster import prepare_clients
from loosehanger.console.live import RecordFilter
from loosehanger.console.records import MOST_HEADER_BYTES, MOST_VALUE_BYTES, Arrived
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka.connection import Connection
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
_POLL_MS = 200
_BATCH = 500


@dataclass(frozen=True)
class SearchRequest:
    """A search; an empty field matches everything."""

    wanted: RecordFilter
    since_ms: int | None = None
    until_ms: int | None = None
    partition: int | None = None
    offset: int | None = None
    """With a partition: this record alone."""
    most: int = 100


def search_request(
    wanted: RecordFilter, since: str = "", until: str = "", partition: str = "", offset: str = "", most: int = 100
) -> SearchRequest:
    """Reads a search from its text fields.

    Args:
        wanted: topic, key, header and words.
        since: a time, or how long ago; empty for the beginning.
        until: the same; empty for now.
        partition: a number; empty for all partitions.
        offset: of a single record; empty for all records.
        most: how many records to return.

    Raises:
        WrongUseError: a time or a number is invalid, or an offset lacks its topic or partition.
    """
    numbers = {}
    for name, text in (("partition", partition.strip()), ("offset", offset.strip())):
        if text and not (text.isascii() and text.isdecimal() and int(text) < 2**63):
            raise WrongUseError(f"{name}: '{text}' is not a number, for example 17")
        numbers[name] = int(text) if text else None
    if numbers["offset"] is not None and (numbers["partition"] is None or not wanted.topic):
        raise WrongUseError("an offset needs a topic and a partition; give all three")
    return SearchRequest(wanted, _milliseconds("since", since), _milliseconds("until", until), **numbers, most=most)


def _milliseconds(name: str, text: str) -> int | None:
    if not text.strip():
        return None
    try:
        return round(moment(text.strip(), datetime.now(UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise WrongUseError(f"{name}: '{text}' is not a time, for example 10m (ago) or 2026-01-31T12:00") from error


@dataclass(frozen=True)
class SearchResult:
    """A search's result in a region, the oldest record first."""

    records: list[Arrived]
    read: int
    reached_ms: int | None
    """The record time up to which everything was read; None where all was read."""
    skipped: tuple[str, ...] = ()
    """A line for each batch that could not be read."""


class Searcher:
    """Searches one region, one search at a time.

    Args:
        region: its name.
        connection: the console's connection to it.
    """

    def __init__(self, region: str, connection: Connection) -> None:
        self.region = region
        self._connection = connection
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"search-{region}")
        self._searches: set[Future[SearchResult]] = set()

    async def find(self, asked: SearchRequest) -> SearchResult:
        """Searches; stops when it is cancelled.

        Raises:
            UnreachableError: no broker answers, it refuses, or too many searches wait.
        """
        if len(self._searches) > MOST_WAITING:
            raise UnreachableError(f"{self.region}: {MOST_WAITING} searches wait already; try again in a moment")
        ended = threading.Event()
        search = self._thread.submit(self._find, asked, ended)
        self._searches.add(search)
        search.add_done_callback(self._searches.discard)
        try:
            return await asyncio.wrap_future(search)
        finally:
            ended.set()
            search.cancel()

    def close(self) -> None:
        """Stops the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _find(self, asked: SearchRequest, ended: threading.Event) -> SearchResult:
        prepare_clients()
        from kafka.errors import KafkaError

        consumer, skipped = None, list[str]()
        try:
            consumer = self._connect(skipped.append)
            ranges = _ranges(consumer, asked)
            found = self._read(consumer, asked, ranges, ended)
            more = len(skipped) - MOST_SKIPPED
            lines = [*skipped[:MOST_SKIPPED], *([f"and {more} more batches that cannot be read"] if more > 0 else [])]
            return replace(found, skipped=tuple(f"{self.region}: {line}" for line in lines))
        except (KafkaError, OSError, ValueError) as error:
            raise UnreachableError(
                f"{self.region}: its records cannot be searched ({type(error).__name__}: {error}); "
                "run ./lab status to see what is down"
            ) from error
        finally:
            if consumer is not None:
                with suppress(Exception):
                    consumer.close(autocommit=False, timeout_ms=2000)

    def _connect(self, skipped: Callable[[str], object]) -> KafkaConsumer:
        from loosehanger.kafka.clients import HURRIED, connect_consumer
        from loosehanger.kafka.patches import Tolerant

        return connect_consumer(
            self._connection,
            HURRIED._replace(answer_s=MOST_S),
            client_id="lab-console",
            value_deserializer=Tolerant(skipped, MOST_VALUE_BYTES, MOST_HEADER_BYTES),
            max_partition_fetch_bytes=512 * 1024,
            metrics_enabled=False,
        )

    def _read(
        self,
        consumer: KafkaConsumer,
        asked: SearchRequest,
        ranges: dict[TopicPartition, tuple[int, int]],
        ended: threading.Event,
    ) -> SearchResult:
        """Reads until everything was read, enough records match, or a bound is reached."""
        left = {place: end for place, (start, end) in ranges.items() if start < end}
        consumer.assign(list(left))
        for place in left:
            consumer.seek(place, ranges[place][0])
        found: list[Arrived] = []
        reached: dict[TopicPartition, int] = {}
        read, deadline = 0, time.monotonic() + MOST_S
        while left and read < MOST_READ and len(found) < asked.most and time.monotonic() < deadline:
            if ended.is_set():
                break  # Its viewer has left.
            for place, records in consumer.poll(_POLL_MS, max_records=_BATCH).items():
                now_ms = time.time_ns() // 1_000_000
                # A batch may extend beyond the end offset of the search.
                arrived = [Arrived(self.region, one, now_ms) for one in records if one.offset < ranges[place][1]]
                found += [one for one in arrived if _fits(one, asked)]
                read += len(arrived)
                reached[place] = records[-1].timestamp
            for place in [place for place, end in left.items() if consumer.position(place) >= end]:
                del left[place]
                consumer.pause(place)
        found.sort(key=lambda one: one.record.timestamp)
        # Everything before the slowest partition's last record was read; the next search finds the records left out.
        more = [reached.get(place, asked.since_ms or 0) for place in left] if asked.offset is None else []
        more += [one.record.timestamp for one in found[asked.most : asked.most + 1]]
        return SearchResult(found[: asked.most], read, min(more, default=None))


def _fits(arrived: Arrived, asked: SearchRequest) -> bool:
    record = arrived.record
    return (
        (asked.offset is None or record.offset == asked.offset)
        and (asked.since_ms is None or record.timestamp >= asked.since_ms)
        and (asked.until_ms is None or record.timestamp <= asked.until_ms)
        and asked.wanted.fits(arrived)
    )


def _ranges(consumer: KafkaConsumer, asked: SearchRequest) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets to read of each partition: the first one, and the one after the last."""
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
    starts = consumer.offsets_for_times(dict.fromkeys(places, asked.since_ms)) if asked.since_ms is not None else {}
    ranges = {}
    for place in places:
        start = firsts[place]
        if asked.since_ms is not None:
            later = starts.get(place)
            start = later.offset if later else ends[place]
        ranges[place] = (start, ends[place])
    return ranges
