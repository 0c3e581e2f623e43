"""Locates the records in which a bucket differs: reads the bucket again, and compares it as the proof does.

The account of a bucket has the offsets of its records since it was opened. A bucket that was equal once, and that late
records opened again, has older records too. These decide whether a copy without a record is unexpected or the second
copy of a record. And where the offsets of buckets interleave, some records are read on one side only. So if such a
copy turns up, or if the records do not explain the counted difference, the bucket is read again by its timestamps. The
result that explains the counted difference with the fewest records is kept: records that one side has deleted since
must not add any. If no result explains it, only the count is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, Protocol

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.audit.balance import NEVER_MIRRORED, AuditBalance, Bucket, OpenBucket
from loosehanger.kafka.cluster import Cluster
from loosehanger.proof.compare import differences
from loosehanger.proof.compare.comparison import example
from loosehanger.proof.read import records
from loosehanger.proof.read.batches import Ranges, no_records, read_records
from loosehanger.proof.read.buckets import BUCKET_MS
from loosehanger.proof.read.records import FLOW_PARTITION
from loosehanger.proof.session import fit, small_frame

_MOST_OFFSETS = 1_000_000
"""The most offsets to read for the buckets of one round; of the other buckets only counts are reported."""
_FAR = 2**62
_BUCKET = (*FLOW_PARTITION, "bucket")
Spans = dict[str, dict[TopicPartition, tuple[int, int]]]


class Rereader(Protocol):
    """Reads records again."""

    def read(self, region: str, ranges: Ranges) -> DataFrame:
        """Reads those of these offsets that the log still has: a frame of ``records.RECORD_SCHEMA``."""

    def within(self, region: str, places: Collection[TopicPartition], bucket: int) -> Ranges:
        """The offsets of a bucket's records by their timestamps, up to what the balance has added.

        Records that arrived much later than their timestamps may be missing.
        """


@dataclass(frozen=True)
class RegionClusters:
    """The regions' clusters, read up to the offsets that are in the balance.

    Args:
        spark: the session that reads them.
        of: the cluster of each region.
        until: the offset up to which each of its partitions is in the balance.
    """

    spark: SparkSession
    of: Mapping[str, Cluster]
    until: Mapping[str, Mapping[TopicPartition, int]]

    def read(self, region: str, ranges: Ranges) -> DataFrame:
        """As ``Rereader`` says.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        cluster = self.of[region]
        starts, ends = cluster.start_offsets(ranges), cluster.end_offsets(ranges)
        left = {place: (max(first, starts[place]), min(end, ends[place])) for place, (first, end) in ranges.items()}
        return read_records(self.spark, cluster.connection, left)

    def within(self, region: str, places: Collection[TopicPartition], bucket: int) -> Ranges:
        """As ``Rereader`` says: one bucket longer than the bucket, since timestamps are not always in order.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        until = {place: self.until[region][place] for place in places if place in self.until[region]}
        first = self.of[region].offsets_from(until, bucket * BUCKET_MS)
        end = self.of[region].offsets_from(until, (bucket + 2) * BUCKET_MS)
        return {place: (first[place], min(end[place], until[place])) for place in until if first[place] < until[place]}


class _NamedRecords(NamedTuple):
    """The records in which a bucket differs."""

    kinds: dict[str, int]
    examples: list[dict[str, Any]]
    arrived: int = 0
    """Copies of records that moved here from another partition, where they are counted."""

    @property
    def net(self) -> int:
        """The number of records that the sources have more."""
        gone = self.kinds.get("missing", 0) + self.kinds.get("moved", 0)
        return gone - self.kinds.get("unexpected", 0) - self.kinds.get("duplicates", 0) - self.arrived


def name_records(
    spark: SparkSession, reader: Rereader, balance: AuditBalance, found: Mapping[Bucket, OpenBucket], count: int
) -> None:
    """Finds the records that make the difference, and notes their kinds and examples in the accounts.

    Args:
        spark: a session of this thread alone; its settings are fitted to the work.
        reader: reads the records again.
        balance: whose accounts they are.
        found: the buckets that were judged and are not even.
        count: how many examples of each kind and topic to keep.

    Raises:
        UnreachableError: a cluster does not answer.
        PySparkException: the records cannot be read.
    """
    chosen = _within_bounds(found)
    names = _named(spark, reader, balance, chosen, count)
    doubtful = [key for key in chosen if names[key].kinds.get("unexpected") or not _explains(chosen[key], names[key])]
    for key in doubtful:
        if chosen[key].by_time:
            names[key] = _better(chosen[key], names[key], _NamedRecords(chosen[key].kinds, chosen[key].examples))
    if new := [key for key in doubtful if not chosen[key].by_time]:
        whole = _within_bounds(chosen | {key: _widened(reader, balance, key, chosen[key]) for key in new})
        for key, renamed in _named(spark, reader, balance, whole, count).items():
            names[key] = _better(chosen[key], names[key], renamed)
            chosen[key].by_time = chosen[key].by_time or key in new
    for key, account in chosen.items():
        if _explains(account, names[key]):
            account.kinds, account.examples = _kinds(account, names[key]), names[key].examples


def _explains(account: OpenBucket, names: _NamedRecords) -> bool:
    """Whether they explain the counted difference; records that a source has deleted cannot all be named."""
    return account.verdict == NEVER_MIRRORED or names.net == account.records - account.copies


def _better(account: OpenBucket, names: _NamedRecords, others: _NamedRecords) -> _NamedRecords:
    """The others, if they explain the same difference with no more records."""
    if not _explains(account, names):
        return others
    is_same = others.net == names.net and sum(others.kinds.values()) <= sum(names.kinds.values())
    return others if is_same else names


def _widened(reader: Rereader, balance: AuditBalance, key: Bucket, account: OpenBucket) -> OpenBucket:
    """The account, with the offsets of its timestamps added."""

    def span(region: str, topic: str, known: Sequence[int]) -> list[int]:
        place = TopicPartition(topic, key.partition)
        first, end = reader.within(region, [place], key.bucket).get(place, (0, 0))
        spans = [*known, first, end - 1] if first < end else known
        return [min(spans), max(spans)] if spans else []

    sources = {
        f"{flow.source} {flow.topic}": span(
            flow.source, flow.topic, account.sources.get(f"{flow.source} {flow.topic}", ())
        )
        for flow in balance.sources(key[:2])
    }
    return replace(account, sources=sources, target=span(key.region, key.topic, account.target))


def _named(
    spark: SparkSession, reader: Rereader, balance: AuditBalance, chosen: Mapping[Bucket, OpenBucket], count: int
) -> dict[Bucket, _NamedRecords]:
    """The difference of each bucket, by the records at these offsets."""
    fit(spark, sum(map(_offsets, chosen.values())))
    topics = sorted({key[:2] for key in chosen})
    number = {topic: index for index, topic in enumerate(topics)}
    wanted = small_frame(spark, [(number[key[:2]], key.partition, key.bucket) for key in chosen], _schema(_BUCKET))
    sides: list[tuple[Spans, list[tuple[str, str, int]]]] = [({}, []), ({}, [])]
    for key, account in chosen.items():
        spans, places = sides[1]
        _add(spans, places, key.region, key.topic, key.partition, account.target, number[key[:2]])
        spans, places = sides[0]
        for flow in balance.sources(key[:2]):
            offsets = account.sources.get(f"{flow.source} {flow.topic}", [])
            _add(spans, places, flow.source, flow.topic, key.partition, offsets, number[key[:2]])
    here, there = (_read(spark, reader, spans, places, wanted) for spans, places in sides)
    until = small_frame(
        spark,
        sorted({(number[key[:2]], key.partition, _FAR) for key in chosen}),
        "flow int, partition int, until long",
    )
    marked = differences.match_copies(here, there, until).withColumn("reordered", F.lit(False))
    named = differences.name_differences(marked).persist()
    time = F.coalesce("source_record.timestamp", "target_record.timestamp")
    counted = named.groupBy(*FLOW_PARTITION, F.floor(time / BUCKET_MS).alias("bucket"), "kind").count()
    names = {key: _NamedRecords({}, []) for key in chosen}
    for row in counted.collect():
        key = _key(topics[row.flow], row.partition, row.bucket)
        names.setdefault(key, _NamedRecords({}, [])).kinds[row.kind] = row["count"]
    arrived = named.where("kind = 'moved'").groupBy(
        "flow", "target_record.partition", F.expr(f"target_record.timestamp div {BUCKET_MS}").alias("bucket")
    )
    for row in arrived.count().collect():
        key = _key(topics[row.flow], row.partition, row.bucket)
        names[key] = names.get(key, _NamedRecords({}, []))._replace(arrived=row["count"])
    for row in differences.examples(named, count).collect():
        record = row.source_record or row.target_record
        key = _key(topics[row.flow], row.partition, record.timestamp // BUCKET_MS)
        names.setdefault(key, _NamedRecords({}, [])).examples.append(example(row))
    named.unpersist()
    return {key: names[key] for key in chosen}


def _kinds(account: OpenBucket, named: _NamedRecords) -> dict[str, int]:
    """The named kinds, and the count of records that the source has deleted and that cannot be named."""
    if account.verdict != NEVER_MIRRORED:
        return named.kinds
    gone = max(account.records - account.copies - named.net, 0)
    return named.kinds | ({"never_mirrored": gone} if gone else {})


def _within_bounds(found: Mapping[Bucket, OpenBucket]) -> dict[Bucket, OpenBucket]:
    """The buckets that are read, up to the most offsets of a round."""
    chosen, offsets = {}, 0
    for key, account in found.items():
        if offsets + _offsets(account) <= _MOST_OFFSETS:
            chosen[key] = account
            offsets += _offsets(account)
    return chosen


def _offsets(account: OpenBucket) -> int:
    return sum(span[1] - span[0] + 1 for span in (*account.sources.values(), account.target) if span)


def _add(
    spans: Spans,
    places: list[tuple[str, str, int]],
    region: str,
    topic: str,
    partition: int,
    offsets: Sequence[int],
    number: int,
) -> None:
    if offsets:
        place, of_region = TopicPartition(topic, partition), spans.setdefault(region, {})
        first, end = of_region.get(place, (offsets[0], offsets[1] + 1))
        of_region[place] = min(first, offsets[0]), max(end, offsets[1] + 1)
        places.append((region, topic, number))


def _read(
    spark: SparkSession,
    reader: Rereader,
    spans: Spans,
    places: Sequence[tuple[str, str, int]],
    wanted: DataFrame,
) -> DataFrame:
    """The records of the wanted buckets."""
    frames = [reader.read(region, ranges).withColumn("region", F.lit(region)) for region, ranges in spans.items()]
    nothing = no_records(spark).withColumn("region", F.lit(""))
    found = records.contents(reduce(DataFrame.unionByName, frames or [nothing]))
    numbers = small_frame(spark, sorted(set(places)), "region string, topic string, flow int")
    return found.join(F.broadcast(numbers), ["region", "topic"]).join(F.broadcast(wanted), [*_BUCKET], "left_semi")


def _key(topic: tuple[str, str], partition: int, bucket: int) -> Bucket:
    return Bucket(topic[0], topic[1], partition, bucket)


def _schema(names: Sequence[str]) -> str:
    return ", ".join(f"{name} {'long' if name == 'bucket' else 'int'}" for name in names)
