"""The shop's activity by minute and region: sums that each round of the watch adds to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from loosehanger.audit.minutes import Layout, MinuteTable, Row
from loosehanger.proof.read.buckets import BUCKET_MS
from loosehanger.times import MINUTE_MS, minute_of

_COUNTS = {"ORDERS": "orders", "CANCELLATIONS": "cancellations", "CUSTOMERS": "customers", "DOORS": "doors"}
_SUMS = ("events", "unreadable", "units", "cents", "readings", "temperature", "humidity")

LAYOUT = Layout(
    {
        "minute": "timestamp",
        "region": "string",
        "event": "string",
        "name": "string",
        "events": "long",
        "unreadable": "long",
        "units": "long",
        "revenue": "decimal(38,2)",
        "temperature": "double",
        "humidity": "double",
    }
)

EventKey = tuple[str, str, str]
"""Region, kind of event, name."""


class Activity:
    """The events of the last minutes, by their own timestamps.

    Args:
        spark: the session.
        folder: where the table is.
        shown: how many minutes to show.
        lateness_s: how much older than the newest event an event may be to count.
        kept_s: how long a minute stays on disk, in seconds.
    """

    def __init__(self, spark: SparkSession, folder: Path, shown: int, lateness_s: float, kept_s: float) -> None:
        self._table = MinuteTable(spark, folder, LAYOUT)
        self._shown = shown
        self._open_ms = max(round(lateness_s * 1000), (shown - 1) * MINUTE_MS)
        self._kept_ms = round(kept_s * 1000)
        self._minutes: dict[int, dict[EventKey, list[Any]]] = {}
        self._unwritten: set[int] = set()

    def take(self, region: str, rows: Iterable[SparkRow], now_ms: int) -> None:
        """Adds rows of ``round_totals.tally``. A time in the future counts as now."""
        for row in rows:
            if not row.event:
                continue
            minute = minute_of(min(row.bucket * BUCKET_MS, now_ms))
            if minute < self._newest() - self._open_ms:
                continue
            key = (region, row.event, row.name)
            sums = self._minutes.setdefault(minute, {}).setdefault(key, [0] * len(_SUMS))
            news = (row.records, row.unreadable, row.units, int(row.revenue * 100))
            for number, value in enumerate((*news, row.readings, row.temperature, row.humidity)):
                sums[number] += value
            self._unwritten.add(minute)

    def write(self, *, everything: bool = False) -> None:
        """Writes the minutes that are over, or all of them, and drops those that no event can reach any more."""
        newest = self._newest()
        due = {minute for minute in self._unwritten if everything or minute < newest}
        self._table.write({minute: list(self._rows(minute)) for minute in due})
        self._unwritten -= due
        self._minutes = {minute: sums for minute, sums in self._minutes.items() if minute >= newest - self._open_ms}
        if due:
            self._table.delete(newest - self._kept_ms)

    def document(self, regions: Iterable[str], products: int) -> dict[str, Any]:
        """The last minutes of each region: ``minutes`` (the newest first), ``by_product``, ``by_warehouse``."""
        since = self._newest() - (self._shown - 1) * MINUTE_MS
        rows = [row for minute in self._minutes if minute >= since for row in self._rows(minute)]
        return {region: _region([row for row in rows if row["region"] == region], products) for region in regions}

    def dump(self) -> dict[str, Any]:
        """The whole state, as JSON types."""
        return {
            "minutes": [
                [minute, *key, *sums] for minute, by_key in self._minutes.items() for key, sums in by_key.items()
            ],
            "unwritten": sorted(self._unwritten),
        }

    def load(self, stored: Mapping[str, Any]) -> None:
        """Restores what ``dump`` returned."""
        self._minutes = {}
        for minute, region, event, name, *sums in stored["minutes"]:
            self._minutes.setdefault(minute, {})[region, event, name] = sums
        self._unwritten = set(stored["unwritten"])

    def _newest(self) -> int:
        return max(self._minutes, default=0)

    def _rows(self, minute: int) -> Iterable[Row]:
        for (region, event, name), sums in self._minutes[minute].items():
            found = dict(zip(_SUMS, sums, strict=True))
            readings = found["readings"]
            yield {
                "minute": minute,
                "region": region,
                "event": event,
                "name": name,
                **{name: found[name] for name in ("events", "unreadable", "units")},
                "revenue": Decimal(found["cents"]).scaleb(-2),
                **{name: found[name] / readings if readings else None for name in ("temperature", "humidity")},
            }


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
