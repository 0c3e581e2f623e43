"""The watch at work: two streaming queries over all regions, and the two tables that they keep up to date."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql.streaming.query import StreamingQuery

from lab.access import Lab
from lab.connection import Connection
from lab.errors import LabError
from pipeline import aggregates, streams
from pipeline.clusters import Cluster, UnreachableError
from pipeline.continuity import Clock, Folder, Identity
from pipeline.ledger import ActivityLedger, Bounds, FlowLedger, Standing
from pipeline.mirrors import selected_topics, target_topic
from pipeline.reading import TUNING
from pipeline.session import ERRORS, cause
from pipeline.streams import Flow

Report = Callable[[str], None]
_READING = TUNING | {
    # A broker's restart takes seconds; a region that is away for longer is to be named, not waited for.
    "kafka.request.timeout.ms": "10000",
    "kafka.default.api.timeout.ms": "20000",
    "fetchOffset.numRetries": "1",
    # Retention may overtake a watch that was not running; that is no reason to stop.
    "failOnDataLoss": "false",
}
_STOP_S = 20.0
_POLL_S = 0.25


@dataclass(frozen=True)
class Options:
    """How to watch."""

    bounds: Bounds
    lateness_s: float
    """How late an event may be for its minute, in seconds."""
    every_s: float
    minutes: int
    """How many minutes to show."""
    products: int


@dataclass(frozen=True)
class Scope:
    """What there is to watch."""

    flows: tuple[Flow, ...]
    topics: Mapping[str, tuple[str, ...]]
    """Of each region: what to read."""
    identity: Identity


def survey(lab: Lab, options: Options) -> Scope:
    """Finds out what there is to watch.

    Raises:
        LabError: a region does not answer, or there is nothing to watch.
    """
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for name, region in lab.regions.items():
        cluster = Cluster.of(region)
        try:
            found[name] = cluster.identity()
        except UnreachableError as error:
            raise LabError(str(error)) from error
        finally:
            cluster.close()
    flows = tuple(
        Flow(mirror.source, mirror.target, topic, target_topic(mirror, topic))
        for mirror in lab.mirrors
        for topic in selected_topics(mirror, found[mirror.source][1])
    )
    sides = {(flow.source, flow.topic) for flow in flows} | {(flow.target, flow.target_topic) for flow in flows}
    topics = {
        name: tuple(topic for topic in sorted(there) if (name, topic) in sides or re.match(aggregates.TOPIC, topic))
        for name, (_, there) in found.items()
    }
    topics = {name: names for name, names in topics.items() if names}
    if not topics:
        raise LabError("there is nothing to watch: no region has a topic that is mirrored or has events")
    identity: Identity = {
        "cluster": {name: found[name][0] for name in topics},
        "topic": {f"{topic} in {name}": found[name][1][topic] for name, names in topics.items() for topic in names},
        "flow": {f"{flow.topic} from {flow.source} to {flow.target}": flow.target_topic for flow in flows},
        "option": {"--missing-after": options.bounds.missing_after_s, "--lateness": options.lateness_s},
    }
    return Scope(flows, topics, identity)


class Watch:
    """The running watch.

    Args:
        spark: the session.
        lab: what is set up.
        scope: what there is to watch.
        options: how to watch.
        folder: what the watch keeps.
        report: takes a line that says what is being done.
    """

    def __init__(
        self, spark: SparkSession, lab: Lab, scope: Scope, options: Options, folder: Folder, report: Report
    ) -> None:
        self._spark = spark
        self._lab = lab
        self._scope = scope
        self._options = options
        self._folder = folder
        now_ms = round(time.time() * 1000)
        kept, clock, reason = folder.open(scope.identity, now_ms, now_ms)
        if reason:
            report(f"starting anew: {reason}; what was kept of it is deleted")
        self._clock: Clock = clock
        self._started_ms: int = kept["started_ms"]
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._activity = ActivityLedger(spark, folder.table("activity"), options.minutes, options.bounds.kept_s)
        self._flows = FlowLedger(spark, folder.table("flows"), options.bounds, clock)

    @contextmanager
    def running(self) -> Iterator[list[StreamingQuery]]:
        """Runs the queries; ends them between two batches.

        Raises:
            LabError: a region does not answer.
        """
        queries: list[StreamingQuery] = []
        try:
            records = self._records().withColumn("seen", F.current_timestamp())
            activity = streams.activity(records, self._options.lateness_s)
            queries.append(self._start("activity", activity, "update", self._take_activity))
            if self._scope.flows:
                queries.append(self._start("flows", self._news(records), "append", self._take_flows))
            yield queries
        except ERRORS as error:
            raise self._explained(error) from error
        finally:
            _stop(queries)

    def updates(self, queries: list[StreamingQuery], ended: threading.Event) -> Iterator[dict[str, Any]]:
        """The document after each batch, until ``ended`` is set.

        Raises:
            PySparkException: a query failed.
        """
        while not ended.is_set():
            for query in queries:
                if not query.isActive and (error := query.exception()):
                    raise error
            if self._changed.wait(_POLL_S):
                self._changed.clear()
                yield self.document()

    def document(self) -> dict[str, Any]:
        """What is known now."""
        with self._lock:
            standings = self._flows.standings()
            since = self._flows.since_ms()
            regions = self._activity.document(self._lab.regions, self._options.products)
            now_ms = self._flows.now_ms() or round(time.time() * 1000)
        flows = [
            {
                "source": flow.source,
                "target": flow.target,
                "topic": flow.topic,
                **asdict(standings.get(key, Standing())),
            }
            for flow in self._scope.flows
            for key in [(flow.source, flow.target, flow.topic)]
        ]
        return {
            "scenario": self._lab.scenario,
            "at": now_ms,
            "since": since or self._started_ms,
            "regions": regions,
            "flows": flows,
            "totals": asdict(sum(standings.values(), Standing())),
        }

    def _records(self) -> DataFrame:
        sources = {flow.source for flow in self._scope.flows}
        frames = [
            _read(
                self._spark, self._lab.region(region).connection("prover"), self._scope.topics[region], self._started_ms
            ).withColumn("region", F.lit(region))
            # Spark asks the regions where they end in this order: no copy is to be ahead of its record.
            for region in sorted(self._scope.topics, key=lambda region: region in sources)
        ]
        return reduce(DataFrame.unionByName, frames)

    def _news(self, records: DataFrame) -> DataFrame:
        ticks = (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", "1")
            .option("numPartitions", "1")
            .load()
            .withColumn("seen", self._clock.watch_time(F.current_timestamp()))
        )
        seen = records.withColumn("seen", self._clock.watch_time(F.col("seen")))
        return streams.track(seen, ticks, self._scope.flows, self._options.bounds.missing_after_s)

    def _start(self, name: str, frame: DataFrame, mode: str, take: Callable[[DataFrame, int], None]) -> StreamingQuery:
        return (
            frame.writeStream.queryName(name)
            .outputMode(mode)
            .option("checkpointLocation", str(self._folder.checkpoint(name)))
            .trigger(processingTime=f"{round(self._options.every_s * 1000)} milliseconds")
            .foreachBatch(take)
            .start()
        )

    def _take_activity(self, frame: DataFrame, batch: int) -> None:
        rows = frame.withColumn("minute", F.unix_millis("minute")).collect()
        with self._lock:
            self._activity.take(rows, batch)
        self._changed.set()

    def _take_flows(self, frame: DataFrame, batch: int) -> None:
        rows = streams.tally(frame).withColumn("seen", F.unix_millis("seen")).collect()
        with self._lock:
            self._flows.take(rows, batch)
        self._changed.set()

    def _explained(self, error: Exception) -> LabError:
        for name in self._scope.topics:
            cluster = Cluster.of(self._lab.region(name))
            try:
                cluster.topics()
            except UnreachableError as unreachable:
                return LabError(str(unreachable))
            finally:
                cluster.close()
        return LabError(f"the records could not be read: {cause(error)}")


def _read(spark: SparkSession, connection: Connection, topics: tuple[str, ...], started_ms: int) -> DataFrame:
    """The committed records of the topics from a time on, as they come. No group, nothing committed."""
    return (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in connection.java().items()})
        .options(**_READING)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(topics))
        # By time, so that a record and its copy are both before the start, or neither; what was on its way at the start
        # is told by its own time.
        .option("startingTimestamp", str(started_ms))
        .option("startingOffsetsByTimestampStrategy", "latest")
        .option("includeHeaders", "true")
        .load()
        .select("key", "value", "topic", "partition", "offset", "timestamp", "headers")
        .where(F.col("timestamp") >= F.timestamp_millis(F.lit(started_ms)))
        # A task for each of many small partitions costs more than the reading.
        .coalesce(1)
    )


def _stop(queries: list[StreamingQuery]) -> None:
    # A batch that is broken off is run again by the next start; waiting only makes that start quicker.
    deadline = time.monotonic() + _STOP_S
    for query in queries:
        try:
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                time.sleep(0.05)
            query.stop()
        except ERRORS:
            continue
