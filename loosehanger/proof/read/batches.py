"""Where records come into Spark: batches of given offsets, committed records only."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ALLOWED_URLS
from loosehanger.proof.read.fetching import fetch_few, frame_of, takes_files
from loosehanger.proof.read.records import RECORD_SCHEMA
from loosehanger.proof.read.small_partitions import SmallPartitions
from loosehanger.proof.session import SILENT_S

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""First offset and end (exclusive) of each partition."""

# A task reads at most about as many records, so that a large partition is shared among the workers.
_RECORDS_A_TASK = 1_000_000
TUNING = {
    # Spark asks for the ends of a partition after each fetch, on a connection where the next fetch already waits for
    # new records: with the default, each read of a partition would take half a second.
    "kafka.fetch.max.wait.ms": "1",
    # Larger than the consumer's defaults (1 MiB a partition): fewer round trips for a reader of whole partitions.
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(64 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
    "kafka.max.poll.records": "5000",
    # A broker that does not answer must not hold a job for the default two minutes.
    "kafkaConsumer.pollTimeoutMs": "30000",
}
"""How Spark's connector reads."""
_LONGEST_S, _SHORTEST_S = 30.0, 10.0
"""A healthy broker on a busy machine may take some seconds to answer."""


def _bounds(spark: SparkSession) -> dict[str, str]:
    """Bounds the wait for a broker that falls silent; none where the session has no bound.

    A consumer waits for records first, and then for the partition's offsets: each may take half of the bound. Each
    fetch that arrives starts both waits again, so a large topic on a healthy broker is read for as long as it takes.
    """
    bound_s = spark.conf.get(SILENT_S, None)
    if bound_s is None:
        return {}
    wait_s = min(max(float(bound_s) / 2, _SHORTEST_S), _LONGEST_S)
    patience_ms = str(round(wait_s * 1000))
    # A fetch must arrive within the wait. A slow link carries less in a shorter one.
    fetch = int(TUNING["kafka.max.partition.fetch.bytes"]) * wait_s / _LONGEST_S
    return {
        "kafkaConsumer.pollTimeoutMs": patience_ms,
        "kafka.default.api.timeout.ms": patience_ms,
        # Kafka's admin client refuses a request timeout above the one for a whole call.
        "kafka.request.timeout.ms": patience_ms,
        "kafka.max.partition.fetch.bytes": str(round(fetch)),
    }


def read_records(
    spark: SparkSession, connection: Connection, ranges: Ranges, consumers: str = "", **options: str
) -> DataFrame:
    """The committed records of these offsets.

    The consumers are assigned their partitions: no group, nothing committed, so Read and Describe on the topics are
    all the rights it takes.

    Args:
        spark: the session.
        connection: the way into the cluster.
        ranges: what to read.
        consumers: a name for the executors' consumers. A caller that reads the same partitions repeatedly reuses them
            by it; otherwise each reading makes its own, with connection, handshake and authentication.
        options: of the consumers, besides ``TUNING``.

    Returns:
        A frame of ``RECORD_SCHEMA``; reading it fails if the log has lost one of the offsets. Few records have been
        read already, and stay as they were.
    """
    wanted = {partition: (start, end) for partition, (start, end) in ranges.items() if start < end}
    if not wanted:
        return no_records(spark)
    # A caller that reads repeatedly has authenticated consumers already.
    if consumers or not takes_files(spark):
        return _by_consumers(spark, connection, wanted, consumers, **options)
    few = fetch_few(connection, wanted)
    if few is not None:
        return frame_of(spark, few)
    return read_beside(spark, connection, wanted, SmallPartitions.read(connection, wanted), **options)


def read_beside(
    spark: SparkSession, connection: Connection, ranges: Ranges, small: SmallPartitions, **options: str
) -> DataFrame:
    """The records of these offsets, of which some are in a file already; others are read by consumers of Spark's."""
    there = {place: offsets for place, offsets in ranges.items() if small.covers(place, offsets)}
    rest = {place: offsets for place, offsets in ranges.items() if place not in there and offsets[0] < offsets[1]}
    frames = [small.frame(spark, there)] if there else []
    frames += [_by_consumers(spark, connection, rest, "", **options)] if rest else []
    return reduce(DataFrame.unionByName, frames or [no_records(spark)])


def _by_consumers(
    spark: SparkSession, connection: Connection, wanted: Ranges, consumers: str, **options: str
) -> DataFrame:
    allow_token_endpoint(spark, connection)
    tasks = sum(1 + (end - start) // _RECORDS_A_TASK for start, end in wanted.values())
    return (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in connection.java().items()})
        .options(**TUNING | _bounds(spark) | options | ({"kafka.group.id": consumers} if consumers else {}))
        .option("kafka.isolation.level", "read_committed")
        .option("assign", _by_topic({partition: partition.partition for partition in wanted}))
        .option("startingOffsets", _by_partition({partition: start for partition, (start, _) in wanted.items()}))
        .option("endingOffsets", _by_partition({partition: end for partition, (_, end) in wanted.items()}))
        .option("minPartitions", str(tasks))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .load()
        .select("key", "value", "topic", "partition", "offset", "timestamp", "headers")
    )


def allow_token_endpoint(spark: SparkSession, connection: Connection) -> None:
    """Lets the consumers of this Java machine ask the connection's token endpoint; executors elsewhere have their own.

    Kafka's clients of 3.9.1 and later refuse every address that this property lacks, and read it at each request.
    """
    if connection.credentials is None:
        return
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    allowed = [part for part in (system.getProperty(ALLOWED_URLS) or "").split(",") if part]
    if connection.credentials.endpoint not in allowed:
        system.setProperty(ALLOWED_URLS, ",".join([*allowed, connection.credentials.endpoint]))


def read_regions(read: Callable[[str, Ranges], DataFrame], ranges: Mapping[str, Ranges], name: str) -> list[DataFrame]:
    """The records of several regions, which are read side by side, each with its region's name in a column."""
    with ThreadPoolExecutor(max_workers=max(len(ranges), 1)) as threads:
        frames = threads.map(lambda item: read(*item).withColumn(name, F.lit(item[0])), ranges.items())
        return list(frames)


def no_records(spark: SparkSession) -> DataFrame:
    """A frame of the same columns without rows."""
    return spark.range(0).select(F.from_json(F.lit("{}"), RECORD_SCHEMA).alias("record")).select("record.*")


def _by_topic(partitions: Mapping[TopicPartition, int]) -> str:
    topics: dict[str, list[int]] = {}
    for partition, number in partitions.items():
        topics.setdefault(partition.topic, []).append(number)
    return json.dumps(topics)


def _by_partition(offsets: Mapping[TopicPartition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in offsets.items():
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(topics)
