"""The audit's results as data: a row for each verdict on a bucket of a target's partition."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from loosehanger.audit.balance import KINDS
from loosehanger.audit.minutes import Layout, MinuteTable
from loosehanger.audit.verdicts import VerdictRow
from loosehanger.times import minute_of

LAYOUT = Layout(
    {
        "minute": "timestamp",
        "judged": "timestamp",
        "sources": "string",
        "target": "string",
        "topic": "string",
        "partition": "int",
        "bucket": "timestamp",
        "verdict": "string",
        "records": "long",
        "copies": "long",
        **dict.fromkeys(KINDS, "long"),
    }
)


class AuditTable:
    """The verdicts, by the minute in which they were reached.

    Args:
        spark: the session.
        folder: where the table is.
        kept_s: how long a minute stays on disk, in seconds.
    """

    def __init__(self, spark: SparkSession, folder: Path, kept_s: float) -> None:
        self._table = MinuteTable(spark, folder, LAYOUT)
        self._kept_ms = round(kept_s * 1000)
        self._minutes: dict[int, list[VerdictRow]] = {}

    def take(self, rows: Iterable[VerdictRow]) -> None:
        """Adds the verdicts of a round."""
        for row in rows:
            self._minutes.setdefault(row["minute"], []).append(row)

    def write(self, now_ms: int, *, everything: bool = False) -> None:
        """Writes the minutes that are over, and drops them; with ``everything``, writes the current one as well."""
        over = {minute for minute in self._minutes if minute < minute_of(now_ms)}
        self._table.write({minute: rows for minute, rows in self._minutes.items() if everything or minute in over})
        for minute in over:
            del self._minutes[minute]
        if over:
            self._table.delete(now_ms - self._kept_ms)

    def dump(self) -> list[list[Any]]:
        """The rows that are not written yet, as JSON types."""
        return [[minute, rows] for minute, rows in self._minutes.items()]

    def load(self, stored: Iterable[Any]) -> None:
        """Restores what ``dump`` returned."""
        self._minutes = dict(stored)
