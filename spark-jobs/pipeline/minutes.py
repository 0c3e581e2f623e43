"""A small table on disk that a stream keeps up to date: one Parquet file for each minute, each replaced as a whole.

Spark's own file sink writes a batch once and never again, but a minute that is still going on changes with each
batch. Here every row knows the batch that wrote it last, so one that Spark repeats after a crash changes nothing twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

MINUTE_MS = 60_000
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """What a table's rows are made of. Times are epoch milliseconds in a row, timestamps in a file."""

    columns: Mapping[str, str]
    """Names and Spark's types, times as ``long``; ``minute`` and ``batch`` are among them."""
    times: tuple[str, ...]
    keys: tuple[str, ...]
    """What tells a row of a minute from the others."""
    merge: Callable[[Row, Row], Row]
    """Old row and news of the same key to the new row."""

    def timed(self, frame: DataFrame) -> DataFrame:
        """The frame with timestamps in place of milliseconds."""
        return frame.withColumns({name: F.timestamp_millis(name) for name in self.times})

    def untimed(self, frame: DataFrame) -> DataFrame:
        """The frame with milliseconds in place of timestamps."""
        return frame.withColumns({name: F.unix_millis(name) for name in self.times})


class MinuteTable:
    """A table in a folder.

    Args:
        spark: the session.
        folder: where its files are.
        layout: its rows.
    """

    def __init__(self, spark: SparkSession, folder: Path, layout: Layout) -> None:
        self._spark = spark
        self._folder = folder
        self._layout = layout
        self._open: dict[int, dict[tuple[Any, ...], Row]] = {}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def upsert(self, news: Iterable[Row], batch: int) -> None:
        """Takes a batch's news in, and writes the minutes that they change.

        Args:
            news: rows without ``batch``, at most one for each key.
            batch: its number; news of a batch that a row has already taken in are left out.
        """
        changed: set[int] = set()
        for row in news:
            minute = self._minute(row["minute"])
            key = tuple(row[name] for name in self._layout.keys)
            old = minute.get(key)
            if old is None or old["batch"] < batch:
                minute[key] = {**(row if old is None else self._layout.merge(old, row)), "batch": batch}
                changed.add(row["minute"])
        if changed:
            self._write(sorted(changed))

    def load(self, since_ms: int) -> None:
        """Takes the minutes on disk from this one on into memory."""
        for minute in self.on_disk():
            if minute >= since_ms:
                self._minute(minute)

    def rows(self, since_ms: int = 0) -> list[Row]:
        """The rows in memory, of minutes from this one on."""
        return [row for minute, rows in self._open.items() if minute >= since_ms for row in rows.values()]

    def open_minutes(self) -> list[int]:
        """The minutes in memory, the oldest first."""
        return sorted(self._open)

    def close(self, before_ms: int) -> None:
        """Forgets older minutes; they stay on disk."""
        self._open = {minute: rows for minute, rows in self._open.items() if minute >= before_ms}

    def delete(self, before_ms: int) -> None:
        """Deletes older minutes."""
        self.close(before_ms)
        for minute in self.on_disk():
            if minute < before_ms:
                self._file(minute).unlink(missing_ok=True)

    def on_disk(self) -> list[int]:
        """The minutes that have a file, the oldest first."""
        return sorted(_minute_of(path) for path in self._folder.glob("*.parquet"))

    def read(self) -> DataFrame:
        """Everything on disk; there must be something."""
        return self._layout.untimed(self._spark.read.parquet(f"{self._folder}/*.parquet"))

    def _minute(self, minute: int) -> dict[tuple[Any, ...], Row]:
        if minute not in self._open:
            rows: list[Row] = []
            if self._file(minute).exists():
                frame = self._layout.untimed(self._spark.read.parquet(str(self._file(minute))))
                rows = [row.asDict() for row in frame.collect()]
            self._open[minute] = {tuple(row[name] for name in self._layout.keys): row for row in rows}
        return self._open[minute]

    def _write(self, minutes: list[int]) -> None:
        # Readers overlook what begins with an underscore. A file comes to its place in one step, or not at all.
        staging = self._folder / "_staging"
        columns = self._layout.columns
        rows = [tuple(row[name] for name in columns) for minute in minutes for row in self._open[minute].values()]
        frame = self._spark.createDataFrame(rows, ", ".join(map(" ".join, columns.items()))).withColumn(
            "file", F.col("minute")
        )
        self._layout.timed(frame).coalesce(1).write.mode("overwrite").partitionBy("file").parquet(str(staging))
        for minute in minutes:
            (part,) = (staging / f"file={minute}").glob("*.parquet")
            part.replace(self._file(minute))
        shutil.rmtree(staging)

    def _file(self, minute: int) -> Path:
        return self._folder / f"{datetime.fromtimestamp(minute / 1000, UTC):%Y-%m-%dT%H-%MZ}.parquet"


def _minute_of(path: Path) -> int:
    return int(datetime.strptime(path.stem, "%Y-%m-%dT%H-%MZ").replace(tzinfo=UTC).timestamp()) * 1000
