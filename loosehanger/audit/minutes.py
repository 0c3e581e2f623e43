"""Tables on disk that the watch keeps current: one Parquet file for each minute, each replaced atomically."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.proof.session import small_frame

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """The columns of a table. Times are epoch milliseconds in a row, and timestamps in a file."""

    columns: Mapping[str, str]
    """Names and Spark's types."""


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

    def write(self, minutes: Mapping[int, Iterable[Row]]) -> None:
        """Writes these minutes, and replaces their earlier files."""
        rows = [
            (minute, *(_plain(row[name]) for name in self._layout.columns))
            for minute, found in minutes.items()
            for row in found
        ]
        if not rows:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Readers skip names that begin with an underscore. The rename is atomic.
        staging = self._folder / "_staging"
        types = {"timestamp": "long", "decimal(38,2)": "string"}
        columns = {"file": "long"} | {name: types.get(type_, type_) for name, type_ in self._layout.columns.items()}
        frame = small_frame(self._spark, rows, ", ".join(map(" ".join, columns.items()))).withColumns(
            {
                name: F.timestamp_millis(name) if type_ == "timestamp" else F.col(name).cast(type_)
                for name, type_ in self._layout.columns.items()
            }
        )
        frame.coalesce(1).write.mode("overwrite").partitionBy("file").parquet(str(staging))
        for minute in {row[0] for row in rows}:
            (part,) = (staging / f"file={minute}").glob("*.parquet")
            part.replace(self._file(minute))
        shutil.rmtree(staging)

    def delete(self, before_ms: int) -> None:
        """Deletes older minutes."""
        for minute in self.on_disk():
            if minute < before_ms:
                self._file(minute).unlink(missing_ok=True)

    def on_disk(self) -> list[int]:
        """The minutes that have a file, the oldest first."""
        return sorted(_minute_of(path) for path in self._folder.glob("*.parquet"))

    def _file(self, minute: int) -> Path:
        return self._folder / f"{datetime.fromtimestamp(minute / 1000, UTC):%Y-%m-%dT%H-%MZ}.parquet"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def _minute_of(path: Path) -> int:
    return int(datetime.strptime(path.stem, "%Y-%m-%dT%H-%MZ").replace(tzinfo=UTC).timestamp()) * 1000
