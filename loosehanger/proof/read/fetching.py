"""Few records, read by a single client in this process and handed to Spark in a file of the job's own folder.

Spark's source has a consumer for each partition, each with a connection, a handshake and a sign-in of its own. For few
records that costs more than everything else. What becomes of them is the same: a frame of ``RECORD_SCHEMA``.
"""

from __future__ import annotations

import json
import os
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.errors import LabError
from loosehanger.kafka.clients import connect_consumer
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import UnreadableError
from loosehanger.proof import scratch
from loosehanger.proof.read.records import RECORD_SCHEMA

_PATIENCE_S = 10.0
"""Seconds without progress in any partition after which the reading gives up."""
_MOST_OFFSETS = 25_000
_MOST_BYTES = 16 * 1024 * 1024
"""Beyond either Spark's own consumers, which work side by side and in Java, are quicker."""
_FILE_SCHEMA = RECORD_SCHEMA.replace("timestamp timestamp", "timestamp long")
_SETTINGS: dict[str, Any] = {
    # An offset that the log has lost must not be left out.
    "auto_offset_reset": "none",
    "max_partition_fetch_bytes": 8 * 1024 * 1024,
    "max_poll_records": 5000,
}
_UNDECODED = "\N{REPLACEMENT CHARACTER}"
"""What kafka-python puts in a header's name where it is not UTF-8; not always as many as Java's client puts there."""
_LATEST_MS = 2**53
"""A timestamp below it fits into Spark's, which counts microseconds."""


class DoubtError(LabError):
    """The records may differ from those that Spark would read, or are too many: the caller lets Spark read them."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A record as it is in Kafka."""

    partition: int
    offset: int
    timestamp: int
    """In milliseconds since 1970."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def content(self) -> tuple[object, ...]:
        """What a mirror copies of it."""
        return self.timestamp, self.key, self.value, self.headers


Records = Mapping[TopicPartition, list[Fetched]]
"""By partition, in the order of their offsets."""


def fetch_few(connection: Connection, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Records | None:
    """The committed records of these offsets, if they are few; None if Spark's own consumers must read them.

    Args:
        connection: the way into the cluster.
        ranges: first offset and end (exclusive) of each partition.
    """
    with closing(RecordFetcher(connection)) as fetcher:
        return fetcher.few(ranges, _MOST_OFFSETS)


def takes_files(spark: SparkSession) -> bool:
    """Whether Spark can be handed a file: executors elsewhere do not see this machine's.

    Only a job of the kit's has a folder that goes with it.
    """
    return scratch.VARIABLE in os.environ and (spark.sparkContext.master or "").startswith("local")


def frame_of(spark: SparkSession, found: Records, name: str = "") -> DataFrame:
    """Hands records over to Spark, which ``takes_files``.

    Args:
        spark: the session.
        found: the records.
        name: of the file, which replaces the last one of that name: for callers that hand over repeatedly and no
            longer need the frame before. Without a name each frame has its own file.

    Returns:
        A frame of ``RECORD_SCHEMA``, each partition in the order of its offsets.
    """
    file = new_file(name)
    append(file, found)
    return frame_of_file(spark, file)


def new_file(name: str = "") -> Path:
    """Makes an empty file in the job's folder, in place of the last one of that name; without a name, one more."""
    file = Path(os.environ[scratch.VARIABLE]) / f"{name or uuid4()}.json"
    with open(file, "w", encoding="ascii", opener=_private):
        return file


def append(file: Path, found: Records) -> None:
    """Writes records to the end of a file, each partition in the order of its offsets."""
    with file.open("a", encoding="ascii") as lines:
        lines.writelines(_lines(found))


def frame_of_file(spark: SparkSession, file: Path) -> DataFrame:
    """The records of a file, as for ``frame_of``."""
    read = spark.read.schema(_FILE_SCHEMA).json(str(file), mode="FAILFAST")
    return read.withColumn("timestamp", F.timestamp_millis("timestamp"))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lines(found: Records) -> Iterable[str]:
    """Each record as JSON, as Spark reads it: bytes in base64, and null where there are no headers."""
    for place, records in found.items():
        for record in records:
            headers = [{"key": name, "value": _text(value)} for name, value in record.headers]
            document = {
                "key": _text(record.key),
                "value": _text(record.value),
                **place._asdict(),
                "offset": record.offset,
                "timestamp": record.timestamp,
                "headers": headers or None,
            }
            yield json.dumps(document) + "\n"


def _text(part: bytes | None) -> str | None:
    return None if part is None else b64encode(part).decode("ascii")


class RecordFetcher:
    """A client that reads few records, as often as it is asked to; it connects when it first has to.

    Args:
        connection: the way into the cluster.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._consumer: Any = None

    def few(self, ranges: Mapping[TopicPartition, tuple[int, int]], most: int) -> Records | None:
        """The committed records of these offsets, if they are few; None if Spark's own consumers must read them.

        Args:
            ranges: first offset and end (exclusive) of each partition.
            most: how many offsets count as few.
        """
        if sum(end - start for start, end in ranges.values()) > most:
            return None
        try:
            return self.fetch(ranges, _MOST_BYTES)
        except DoubtError:
            return None

    def fetch(self, ranges: Mapping[TopicPartition, tuple[int, int]], most_bytes: int) -> Records:
        """The committed records of these offsets.

        Args:
            ranges: first offset and end (exclusive) of each partition.
            most_bytes: of keys, values and headers, in all.

        Raises:
            DoubtError: there are more bytes, or anything about them is unusual, or the cluster does not give them.
        """
        return self._fetch(ranges, most_bytes)

    def fetch_undoubted(self, ranges: Mapping[TopicPartition, tuple[int, int]], most_bytes: int) -> Records:
        """As ``fetch``, but leaves out the partitions with anything unusual, and those that exceed the bytes.

        Raises:
            DoubtError: the cluster does not give the records.
        """
        left_out: set[TopicPartition] = set()
        found = self._fetch(ranges, most_bytes, left_out)
        return {place: records for place, records in found.items() if place not in left_out}

    def _fetch(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        most_bytes: int,
        left_out: set[TopicPartition] | None = None,
    ) -> Records:
        wanted = {place: (start, end) for place, (start, end) in ranges.items() if start < end}
        found: dict[TopicPartition, list[Fetched]] = {place: [] for place in ranges}
        if not wanted:
            return found
        try:
            if self._consumer is None:
                self._consumer = connect_consumer(self._connection, **_SETTINGS)
            _read(self._consumer, wanted, found, most_bytes, left_out)
        except Exception as error:
            # The consumer is in an unknown state.
            self.close()
            if isinstance(error, DoubtError):
                raise
            # Spark's client tries next, and its result counts.
            raise DoubtError(f"{type(error).__name__}: {error}") from error
        return found

    def close(self) -> None:
        """Ends the connection; the next reading makes another."""
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            consumer.close(autocommit=False)


def _read(
    consumer: Any,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    found: Mapping[TopicPartition, list[Fetched]],
    most_bytes: int,
    left_out: set[TopicPartition] | None,
) -> None:
    consumer.assign(list(wanted))
    # One that was read before is paused still.
    consumer.resume(*wanted)
    for place, (start, _) in wanted.items():
        consumer.seek(place, start)
    # Where each is: behind a partition's last record there may be markers, which are read and not given.
    positions = {place: start for place, (start, _) in wanted.items()}

    def doubt(places: Iterable[TopicPartition], reason: str) -> None:
        if left_out is None:
            raise DoubtError(reason)
        for place in [*places]:
            left_out.add(place)
            positions.pop(place, None)
            consumer.pause(place)

    size, deadline = 0, time.monotonic() + _PATIENCE_S
    while positions:
        try:
            polled = consumer.poll(timeout_ms=200)
        except UnreadableError as error:
            doubt([error.place], str(error))
            continue
        for place, batch in polled.items():
            if place not in positions:
                continue
            try:
                size += _take(found[place], batch, wanted[place][1], place)
            except DoubtError as error:
                doubt([place], str(error))
        if size > most_bytes:
            doubt(positions, f"more than {most_bytes} bytes")
        for place, before in list(positions.items()):
            position = consumer.position(place)
            if position != before:
                positions[place], deadline = position, time.monotonic() + _PATIENCE_S
            if position >= wanted[place][1]:
                del positions[place]
                consumer.pause(place)
        if time.monotonic() > deadline:
            raise DoubtError(f"nothing more within {_PATIENCE_S:.0f} s")


def _take(found: list[Fetched], batch: Iterable[Any], end: int, place: TopicPartition) -> int:
    """Adds the records of a batch; returns their bytes."""
    records = [_fetched(record) for record in batch if record.offset < end]
    if found and records and records[0].offset <= found[-1].offset:
        raise DoubtError(f"{place.topic}-{place.partition}: offset {records[0].offset} once more")
    found.extend(records)
    return sum(map(_size, records))


def _fetched(record: Any) -> Fetched:
    headers = tuple((name, None if value is None else bytes(value)) for name, value in record.headers or ())
    if any(_UNDECODED in name for name, _ in headers):
        raise DoubtError("a header's name that is not UTF-8")
    if record.timestamp is None or not -1 <= record.timestamp < _LATEST_MS:
        raise DoubtError(f"the timestamp {record.timestamp}")
    key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
    return Fetched(record.partition, record.offset, record.timestamp, key, value, headers)


def _size(record: Fetched) -> int:
    of_headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + of_headers
