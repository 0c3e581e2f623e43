"""What the watch knows: the events of the last minutes, and how many records of each flow are where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from pipeline.continuity import Clock
from pipeline.minutes import MINUTE_MS, Layout, MinuteTable, Row
from pipeline.streams import COPIED, COPY, RECORD

_COUNTS = {"ORDERS": "orders", "CANCELLATIONS": "cancellations", "CUSTOMERS": "customers", "DOORS": "doors"}

ACTIVITY = Layout(
    columns={
        "minute": "long",
        "region": "string",
        "event": "string",
        "name": "string",
        "events": "long",
        "unreadable": "long",
        "units": "long",
        "revenue": "decimal(38,2)",
        "temperature": "double",
        "humidity": "double",
        "batch": "long",
    },
    times=("minute",),
    keys=("region", "event", "name"),
    merge=lambda _, new: new,
)
FLOWS = Layout(
    columns={
        "minute": "long",
        "seen": "long",
        "source": "string",
        "target": "string",
        "topic": "string",
        "records": "long",
        "copied": "long",
        "late": "long",
        "copies": "long",
        "batch": "long",
    },
    times=("minute", "seen"),
    keys=("seen", "source", "target", "topic"),
    merge=lambda old, new: {**old, **{name: old[name] + new[name] for name in ("records", "copied", "late", "copies")}},
)

FlowKey = tuple[str, str, str]
"""Source, target, topic."""


@dataclass
class Standing:
    """Where the records of a flow are."""

    records: int = 0
    """Seen at the source."""
    copied: int = 0
    late: int = 0
    """Of the copied ones, those whose copy came after more than the bound."""
    in_flight: int = 0
    """Not copied yet, and younger than the bound."""
    overdue: int = 0
    """Not copied yet, and older."""
    missing: int = 0
    """Not copied when the time for that was over."""
    unmatched: int = 0
    """Copies beyond one for each copied record: repeated, foreign, or of records already given up as missing."""

    def __add__(self, other: Standing) -> Standing:
        return Standing(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True)
class Bounds:
    """Times in seconds."""

    late_after_s: float
    """A copy that takes longer is late."""
    missing_after_s: float
    """A record without a copy for longer is missing."""
    kept_s: float
    """A minute stays on disk, and counts, for as long."""


class ActivityLedger:
    """The events of the last minutes.

    Args:
        spark: the session.
        folder: where the table is.
        shown: how many minutes to show.
        kept_s: how long a minute stays on disk, in seconds.
    """

    def __init__(self, spark: SparkSession, folder: Path, shown: int, kept_s: float) -> None:
        self._table = MinuteTable(spark, folder, ACTIVITY)
        self._shown = shown
        self._kept_ms = round(kept_s * 1000)
        if stored := self._table.on_disk():
            self._table.load(stored[-1] - (shown - 1) * MINUTE_MS)

    def take(self, rows: Iterable[SparkRow], batch: int) -> None:
        """Takes a batch in: rows of ``streams.activity`` with ``minute`` in epoch milliseconds."""
        self._table.upsert((row.asDict() for row in rows), batch)
        newest = self._table.open_minutes()[-1:]
        for minute in newest:
            self._table.close(minute - (self._shown - 1) * MINUTE_MS)
            self._table.delete(minute - self._kept_ms)

    def document(self, regions: Iterable[str], products: int) -> dict[str, Any]:
        """The last minutes of each region: ``minutes`` (the newest first), ``by_product``, ``by_warehouse``."""
        newest = max(self._table.open_minutes(), default=0)
        rows = self._table.rows(newest - (self._shown - 1) * MINUTE_MS)
        return {region: _region([row for row in rows if row["region"] == region], products) for region in regions}


class FlowLedger:
    """How many records of each flow are where.

    Args:
        spark: the session.
        folder: where the table is.
        bounds: when a copy is late, a record missing, a minute forgotten.
        clock: the watch's time, which ``seen`` is in; minutes are the wall clock's.
    """

    def __init__(self, spark: SparkSession, folder: Path, bounds: Bounds, clock: Clock) -> None:
        self._table = MinuteTable(spark, folder, FLOWS)
        self._late_ms, self._missing_ms, self._kept_ms = (
            round(seconds * 1000) for seconds in (bounds.late_after_s, bounds.missing_after_s, bounds.kept_s)
        )
        self._clock = clock
        self._closed: dict[int, dict[FlowKey, Standing]] = {}
        self._now = clock.started_ms()
        if self._table.on_disk():
            self._table.load(clock.wall(self._now - self._missing_ms) - MINUTE_MS)
            self._closed = self._stored(set(self._table.open_minutes()))
            self._now = max([self._now, *(row["seen"] for row in self._table.rows())])

    def take(self, rows: Iterable[SparkRow], batch: int) -> None:
        """Takes a batch in: rows of ``streams.tally`` with ``seen`` in epoch milliseconds."""
        rows = list(rows)
        now = self._now = max((row.seen for row in rows), default=self._now)
        news: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            if row.kind not in (RECORD, COPIED, COPY):
                continue
            place = {"seen": row.seen, "source": row.source, "target": row.target, "topic": row.topic}
            empty = {
                "minute": self._clock.wall(row.seen) // MINUTE_MS * MINUTE_MS,
                **place,
                **dict.fromkeys(_COUNTED, 0),
            }
            entry = news.setdefault(tuple(place.values()), empty)
            entry[_COUNTED_AS[row.kind]] += row["count"]
            # A record that is let through now has had its copy seen now, or earlier than itself.
            if row.kind == COPIED and now - row.seen > self._late_ms:
                entry["late"] += row["count"]
        self._table.upsert(news.values(), batch)
        self._close()

    def standings(self) -> dict[FlowKey, Standing]:
        """Where the records of each flow are, of those that have been seen."""
        open_minutes = set(self._table.open_minutes())
        parts = [part for minute, sums in self._closed.items() if minute not in open_minutes for part in sums.items()]
        sums = _sums([*parts, *(self._standing(row) for row in self._table.rows())])
        for standing in sums.values():
            standing.unmatched = max(standing.unmatched, 0)
        return sums

    def now_ms(self) -> int:
        """When the last batch was run, by the wall clock."""
        return self._clock.wall(self._now)

    def since_ms(self) -> int | None:
        """The first minute that counts, None if there is none."""
        return min([*self._closed, *self._table.open_minutes()], default=None)

    def _close(self) -> None:
        wall = self._clock.wall(self._now)
        for minute in self._table.open_minutes():
            rows = [row for row in self._table.rows() if row["minute"] == minute]
            # After a pause, records of an old minute may still be young.
            if minute + MINUTE_MS > wall or any(self._now - row["seen"] <= self._missing_ms for row in rows):
                self._table.close(minute)
                break
            self._closed[minute] = _sums(self._standing(row) for row in rows)
        oldest = wall - self._kept_ms
        self._table.delete(oldest)
        self._closed = {minute: sums for minute, sums in self._closed.items() if minute >= oldest}

    def _standing(self, row: Row) -> tuple[FlowKey, Standing]:
        age, alone = self._now - row["seen"], row["records"] - row["copied"]
        state = "missing" if age > self._missing_ms else "overdue" if age > self._late_ms else "in_flight"
        # A copy and its record may be seen in different minutes: only the sum over all of them means something.
        counts = {"unmatched": row["copies"] - row["copied"], state: alone}
        standing = Standing(row["records"], row["copied"], row["late"], **counts)
        return (row["source"], row["target"], row["topic"]), standing

    def _stored(self, but: set[int]) -> dict[int, dict[FlowKey, Standing]]:
        found: dict[int, dict[FlowKey, Standing]] = defaultdict(dict)
        summed = self._table.read().groupBy("minute", "source", "target", "topic")
        for row in summed.agg(*(F.sum(name).alias(name) for name in _COUNTED)).collect():
            if row.minute not in but:
                found[row.minute][row.source, row.target, row.topic] = Standing(
                    row.records,
                    row.copied,
                    row.late,
                    missing=row.records - row.copied,
                    unmatched=row.copies - row.copied,
                )
        return dict(found)


_COUNTED = ("records", "copied", "late", "copies")
_COUNTED_AS = {RECORD: "records", COPIED: "copied", COPY: "copies"}


def _sums(parts: Iterable[tuple[FlowKey, Standing]]) -> dict[FlowKey, Standing]:
    sums: dict[FlowKey, Standing] = defaultdict(Standing)
    for key, standing in parts:
        sums[key] += standing
    return dict(sums)


def _region(rows: list[Row], products: int) -> dict[str, Any]:
    minutes = sorted({row["minute"] for row in rows}, reverse=True)
    return {
        "minutes": [_minute(minute, [row for row in rows if row["minute"] == minute]) for minute in minutes],
        "by_product": _by_name(rows, "ORDERS", "revenue")[:products],
        "by_warehouse": _by_name(rows, "STOCK", "units"),
    }


def _minute(minute: int, rows: list[Row]) -> dict[str, Any]:
    def of(event: str) -> list[Row]:
        return [row for row in rows if row["event"] == event]

    readings = [row for row in of("SENSORS") if row["temperature"] is not None]
    return {
        "minute": minute,
        **{name: sum(row["events"] for row in of(event)) for event, name in _COUNTS.items()},
        "units": sum(row["units"] for row in of("ORDERS")),
        "revenue": sum((row["revenue"] for row in of("ORDERS")), Decimal("0.00")),
        "movements": sum(row["events"] for row in of("STOCK")),
        "stock_units": sum(row["units"] for row in of("STOCK")),
        "readings": sum(row["events"] for row in of("SENSORS")),
        # One row at most: events that have no name of their own are one group.
        "temperature": _rounded(readings, "temperature"),
        "humidity": _rounded(readings, "humidity"),
        "unreadable": sum(row["unreadable"] for row in rows),
    }


def _rounded(readings: list[Row], name: str) -> float | None:
    return round(readings[0][name], 2) if readings else None


def _by_name(rows: list[Row], event: str, most: str) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["event"] == event and row["name"]:
            entry = found.setdefault(row["name"], {"name": row["name"], "events": 0, "units": 0, "revenue": Decimal(0)})
            for name in ("events", "units", "revenue"):
                entry[name] += row[name]
    ordered = sorted(found.values(), key=lambda entry: (-entry[most], entry["name"]))
    return ordered if event == "ORDERS" else [{k: v for k, v in entry.items() if k != "revenue"} for entry in ordered]
