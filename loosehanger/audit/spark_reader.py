"""Reads the lab's regions with Spark: one client here for few records, Spark's consumers for many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession

from loosehanger.audit.region_reader import BucketTotals, Ranges, Reading, RegionReader
from loosehanger.audit.round_totals import tally
from loosehanger.audit.warming import warm_up
from loosehanger.errors import UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.record import Region
from loosehanger.proof.compare.fingerprints import CONTENT
from loosehanger.proof.read.batches import read_records
from loosehanger.proof.read.fetching import RecordFetcher, frame_of, takes_files
from loosehanger.proof.session import ERRORS, SparkEndedError, cause, ended, fit, is_alive, session_beside

_OPTIONS = {
    # A broker's restart takes seconds; a region that is down for longer is reported, not waited for.
    "kafka.request.timeout.ms": "10000",
    "kafka.default.api.timeout.ms": "20000",
    "kafkaConsumer.pollTimeoutMs": "10000",
    "fetchOffset.numRetries": "1",
}
_BY_ONE_CLIENT = 8_000
"""With more records of a region in a round, Spark's authenticated consumers are faster than one client here."""


class SparkReader(RegionReader):
    """Reads one region with Spark, with one set of Spark's consumers for many records.

    Args:
        spark: the session.
        region: the region.
    """

    def __init__(self, spark: SparkSession, region: Region) -> None:
        super().__init__(region.name, Cluster.of(region, PROVER))
        self._fetcher = RecordFetcher(self.cluster.connection)
        self._spark = session_beside(spark)
        self._consumers = f"watch-{region.name}-{uuid4()}"
        self._is_cold = True

    def close_consumer(self) -> None:
        """As ``RegionReader`` says."""
        self._fetcher.close()

    def read_on(self, wanted: Mapping[TopicPartition, int], events: Mapping[str, str]) -> Reading:
        """As ``RegionReader`` says.

        Raises:
            SparkEndedError: Spark has ended.
        """
        try:
            if self._is_cold and takes_files(self._spark):
                warm_up(self._spark, events, self._consumers, self.ended)
            self._is_cold = False
            return super().read_on(wanted, events)
        except ERRORS as error:
            if not is_alive(self._spark):
                raise SparkEndedError(ended(error)) from error
            raise UnreachableError(f"{self.name}: the records could not be read: {cause(error)}") from error

    def totals(self, ranges: Ranges, events: Mapping[str, str]) -> tuple[list[BucketTotals], list[Any]]:
        """As ``RegionReader`` says."""
        fit(self._spark, sum(end - start for start, end in ranges.values()), again=True)
        records = self._records(self._spark, ranges)
        # A task for each of many small partitions costs more than reading them, and a single task needs no shuffle.
        rows = tally(records.coalesce(1), events).collect()
        totals = [
            BucketTotals(
                *(row.topic, row.partition, row.bucket, row.records, tuple(row[name] for name in CONTENT)),
                *(row.first, row.last, row.bytes, row.untimed),
            )
            for row in rows
        ]
        return totals, [row for row in rows if row.event]

    def _records(self, spark: SparkSession, ranges: Ranges) -> DataFrame:
        few = self._fetcher.few(ranges, _BY_ONE_CLIENT) if takes_files(spark) else None
        if few is None:
            return read_records(spark, self.cluster.connection, dict(ranges), self._consumers, **_OPTIONS)
        # The frame before has been summed up, so its file can be replaced.
        return frame_of(spark, few, self._consumers)
