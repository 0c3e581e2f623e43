"""What only a watch of the lab keeps: tables of verdicts and of the shop's activity, written by Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from loosehanger.audit.activity import Activity
from loosehanger.audit.balance import bucket_of
from loosehanger.audit.region_reader import Reading
from loosehanger.audit.state import Folder
from loosehanger.audit.table import AuditTable
from loosehanger.audit.verdicts import VerdictRow
from loosehanger.proof.session import ERRORS, SparkEndedError, cause, ended, is_alive


class LabResults:
    """The tables.

    Args:
        spark: the session.
        folder: holds the tables.
        regions: whose activity is shown.
        products: how many products to show.
        minutes: how many minutes to show.
        lateness_s: the most seconds by which an event may be late for its minute.
        kept_s: seconds for which results are kept.
        report: takes a line of progress.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Folder,
        regions: Iterable[str],
        *,
        products: int,
        minutes: int,
        lateness_s: float,
        kept_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._regions = list(regions)
        self._products = products
        self._report = report
        self._activity = Activity(spark, folder.table("activity"), minutes, lateness_s, kept_s)
        self._audit = AuditTable(spark, folder.table("audit"), kept_s)

    def take(self, region: str, reading: Reading, since_ms: int, now_ms: int) -> None:
        """Adds the events of a reading whose buckets begin at ``since_ms`` or later."""
        first = bucket_of(since_ms)
        self._activity.take(region, (row for row in reading.events if row.bucket >= first), now_ms)

    def add(self, rows: Iterable[VerdictRow]) -> None:
        """Adds the verdicts of a round."""
        self._audit.take(rows)

    def write(self, *, everything: bool = False) -> None:
        """Writes the minutes that are over, or all of them.

        Raises:
            SparkEndedError: Spark has ended.
        """
        try:
            self._activity.write(everything=everything)
            self._audit.write(round(time.time() * 1000), everything=everything)
        except ERRORS as error:
            if not is_alive(self._spark):
                raise SparkEndedError(ended(error)) from error
            self._report(f"the tables could not be written: {cause(error)}")

    def close(self) -> None:
        """Stops Spark's work, and writes everything."""
        if is_alive(self._spark):
            # The next watch names these records again.
            self._spark.sparkContext.cancelAllJobs()
            self.write(everything=True)

    def document(self) -> dict[str, Any]:
        """The activity of each region."""
        return self._activity.document(self._regions, self._products)

    def dump(self) -> dict[str, Any]:
        """What is not written yet, as JSON types."""
        return {"activity": self._activity.dump(), "audit": self._audit.dump()}

    def load(self, stored: Mapping[str, Any]) -> None:
        """Restores what ``dump`` returned."""
        self._activity.load(stored["activity"])
        self._audit.load(stored["audit"])
