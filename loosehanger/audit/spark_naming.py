"""Locates the records in which a bucket differs: reads the bucket again, and compares it as the proof does.

The account of a bucket has the offsets of its records since it was opened. A bucket that was equal once, and that late
records opened again, has older records too. These decide whether a copy without a record is unexpected or the second
copy of a record. So if such a copy turns up, the bucket is read again by its timestamps. That result counts if it has
the same difference with no more records: records that one side has deleted since must not add any. If the records do
not explain the counted difference (``explanation``), only the count is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.audit.balance import AuditBalance, Bucket, OpenBucket
from loosehanger.audit.explanation import Explanation, RereadRecords, explanation
from loosehanger.kafka.cluster import Cluster
from loosehanger.proof.compare import differences
from loosehanger.proof.compare.comparison import example
from loosehanger.proof.read import records
from loosehanger.proof.read.batches import Ranges, no_records, read_records
from loosehanger.proof.read.buckets import BUCKET_MS
from loosehanger.proof.read.records import FLOW_PARTITION, PLACE
from loosehanger.proof.session import fit, small_frame

_MOST_OFFSETS = 1_000_000
"""The most offsets to read for the buckets of one round; of the other buckets only counts are reported."""
_FAR = 2**62
_FINDING = (*FLOW_PARTITION, "bucket", "kind")
_Span = tuple[str, str, int, int, int, int, int]
_SPAN = "region string, topic string, flow int, partition int, bucket long, first long, last long"


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


@dataclass
class _NamedRecords:
    """The records in which a bucket differs."""

    kinds: dict[str, int] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    sources: int = 0
    """The records that were read at the sources, and at the target."""
    copies: int = 0
    arrived: int = 0
    """Copies of records that moved here from another partition, where they are counted."""

    @property
    def net(self) -> int:
        """The number of records that the sources have more."""
        gone = self.kinds.get("missing", 0) + self.kinds.get("moved", 0)
        return gone - self.kinds.get("unexpected", 0) - self.kinds.get("duplicates", 0) - self.arrived

    def explanation(self, account: OpenBucket) -> Explanation | None:
        """How they explain the difference of their bucket, if they do."""
        return explanation(account, RereadRecords(self.kinds, self.sources, self.copies, self.arrived))


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
    first = _named(spark, reader, balance, chosen, count)
    doubtful = {}
    for key, account in chosen.items():
        explained = first[key].explanation(account)
        if explained is None or (account.by_time and _size(account.kinds) <= _size(explained.kinds)):
            continue
        if explained.kinds.get("unexpected") and not account.by_time:
            doubtful[key] = _widened(reader, balance, key, account)
        _note(account, first[key], explained)
    again = _named(spark, reader, balance, _within_bounds(chosen | doubtful), count) if doubtful else {}
    for key in doubtful.keys() & again.keys():
        account, names = chosen[key], again[key]
        account.by_time = True
        is_same = names.net == first[key].net and _size(names.kinds) <= _size(first[key].kinds)
        # The account counts the records that were read first.
        names = replace(names, sources=first[key].sources, copies=first[key].copies)
        if is_same and (explained := names.explanation(account)):
            _note(account, names, explained)


def _note(account: OpenBucket, names: _NamedRecords, explained: Explanation) -> None:
    account.kinds, account.verdict = explained.kinds, explained.verdict
    account.examples = [one for one in names.examples if one["kind"] in explained.known]


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
    here, there = (_read(spark, reader, spans) for spans in _sides(balance, chosen, number))
    until = small_frame(
        spark,
        sorted({(number[key[:2]], key.partition, _FAR) for key in chosen}),
        "flow int, partition int, until long",
    )
    marked = differences.match_copies(here, there, until).withColumn("reordered", F.lit(False)).persist()
    named = differences.name_differences(marked).persist()
    names = {key: _NamedRecords() for key in chosen}
    time = F.coalesce("source_record.timestamp", "target_record.timestamp")
    of_bucket = F.floor(time / BUCKET_MS).alias("bucket")

    def at(row: Any) -> _NamedRecords:
        region, topic = topics[row.flow]
        return names.setdefault(Bucket(region, topic, row.partition, row.bucket), _NamedRecords())

    read = marked.groupBy(*FLOW_PARTITION, of_bucket)
    for row in read.agg(F.count("source_record").alias("sources"), F.count("target_record").alias("copies")).collect():
        at(row).sources, at(row).copies = row.sources, row.copies
    for row in named.groupBy(*FLOW_PARTITION, of_bucket, "kind").count().collect():
        at(row).kinds[row.kind] = row["count"]
    moved = named.where("kind = 'moved'").groupBy("flow", "target_record.partition", of_bucket)
    for row in moved.count().collect():
        at(row).arrived = row["count"]
    # Where sources have deleted records, which copies are unexpected is not known.
    unknown = [
        (number[key[:2]], key.partition, key.bucket, "unexpected")
        for key, account in chosen.items()
        if names[key].sources < account.records and names[key].kinds.get("unexpected")
    ]
    shown = named.withColumn("bucket", of_bucket)
    if unknown:
        schema = "flow int, partition int, bucket long, kind string"
        shown = shown.join(F.broadcast(small_frame(spark, unknown, schema)), list(_FINDING), "left_anti")
    for row in differences.examples(shown, count).collect():
        at(row).examples.append(example(row))
    named.unpersist()
    marked.unpersist()
    return {key: names[key] for key in chosen}


def _sides(
    balance: AuditBalance, chosen: Mapping[Bucket, OpenBucket], number: Mapping[tuple[str, str], int]
) -> tuple[list[_Span], list[_Span]]:
    """The offsets of the accounts at the sources, and at the targets."""
    here: list[_Span] = []
    there: list[_Span] = []
    for key, account in chosen.items():
        place = number[key[:2]], key.partition, key.bucket
        if account.target:
            there.append((key.region, key.topic, *place, account.target[0], account.target[1]))
        for flow in balance.sources(key[:2]):
            if offsets := account.sources.get(f"{flow.source} {flow.topic}"):
                here.append((flow.source, flow.topic, *place, offsets[0], offsets[1]))
    return here, there


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


def _read(spark: SparkSession, reader: Rereader, spans: Sequence[_Span]) -> DataFrame:
    """The records of one side of the buckets."""
    ranges: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
    for region, topic, _, partition, _, first, last in spans:
        place, of_region = TopicPartition(topic, partition), ranges.setdefault(region, {})
        start, end = of_region.get(place, (first, last + 1))
        of_region[place] = min(start, first), max(end, last + 1)
    frames = [reader.read(region, found).withColumn("region", F.lit(region)) for region, found in ranges.items()]
    nothing = no_records(spark).withColumn("region", F.lit(""))
    found = records.contents(reduce(DataFrame.unionByName, frames or [nothing]))
    # Without the records of a bucket that only the offsets of another one lead to.
    wanted = F.broadcast(small_frame(spark, spans, _SPAN))
    within = F.col("record.offset").between(F.col("first"), F.col("last"))
    return found.join(wanted, [*PLACE, "bucket"]).where(within)


def _size(kinds: Mapping[str, int]) -> int:
    return sum(kinds.values())
