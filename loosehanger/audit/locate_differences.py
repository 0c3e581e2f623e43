"""Names the records of buckets that do not balance: reads them once more, and compares them as the proof does.

The account of a bucket knows where its records lie since it was opened. One that was found equal before, and opened
again by what came later, has older records too: they decide whether a copy without a record is one that nobody sent or
the second of one that was sent. And where buckets lie between each other, some of them are read on one side only. So
where such a copy is found, or not the difference that was counted, the bucket is read once more as its time says. What
tells the difference that was counted, with the fewest records, holds: what is deleted on one side by now makes no new
ones. If nothing tells it, the number stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, Protocol

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.audit.balance import NEVER_MIRRORED, Books, Bucket, OpenBucket
from loosehanger.proof.compare import differences
from loosehanger.proof.compare.comparison import example
from loosehanger.proof.read import records
from loosehanger.proof.read.batches import Ranges, no_records, read_records
from loosehanger.proof.read.clusters import Cluster
from loosehanger.proof.read.records import BUCKET_MS, FLOW_PARTITION
from loosehanger.proof.session import fit, small_frame

_MOST_OFFSETS = 1_000_000
"""So much is read at most for the buckets of one round; of the others only numbers are told."""
_FAR = 2**62
_BUCKET = (*FLOW_PARTITION, "bucket")
Spans = dict[str, dict[TopicPartition, tuple[int, int]]]


class Rereader(Protocol):
    """Where records are read once more."""

    def read(self, region: str, ranges: Ranges) -> DataFrame:
        """Reads these offsets, as far as the log still has them: a frame of ``records.RECORD_SCHEMA``."""

    def within(self, region: str, places: Collection[TopicPartition], bucket: int) -> Ranges:
        """Where the records of a bucket lie by their time, as far as the books have taken them in.

        Records that came much later than their time says may be missing.
        """


@dataclass(frozen=True)
class RegionClusters:
    """The regions' clusters, as far as the books know them.

    Args:
        spark: reads them.
        of: the cluster of each region.
        until: up to which offset each of its partitions is in the books.
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
        """As ``Rereader`` says: a bucket's length longer than the bucket, since times do not only rise.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        until = {place: self.until[region][place] for place in places if place in self.until[region]}
        first = self.of[region].offsets_from(until, bucket * BUCKET_MS)
        end = self.of[region].offsets_from(until, (bucket + 2) * BUCKET_MS)
        return {place: (first[place], min(end[place], until[place])) for place in until if first[place] < until[place]}


class _NamedRecords(NamedTuple):
    """What a bucket's difference is."""

    kinds: dict[str, int]
    examples: list[dict[str, Any]]

    @property
    def net(self) -> int:
        """How many records more the sources have."""
        return self.kinds.get("missing", 0) - self.kinds.get("unexpected", 0) - self.kinds.get("duplicates", 0)


def name_records(
    spark: SparkSession, reader: Rereader, books: Books, found: Mapping[Bucket, OpenBucket], count: int
) -> None:
    """Finds out which records make the difference, and notes their kinds and examples in the accounts.

    Args:
        spark: a session that nobody else uses meanwhile; it is fitted to the work.
        reader: reads them once more.
        books: whose accounts they are.
        found: those that were judged and do not balance.
        count: how many examples of each kind and topic to keep.

    Raises:
        UnreachableError: a cluster does not answer.
        PySparkException: the records cannot be read.
    """
    chosen = _within_bounds(found)
    names = _named(spark, reader, books, chosen, count)
    doubtful = [key for key in chosen if names[key].kinds.get("unexpected") or not _tells(chosen[key], names[key])]
    for key in doubtful:
        if chosen[key].by_time:
            names[key] = _better(chosen[key], names[key], _NamedRecords(chosen[key].kinds, chosen[key].examples))
    if new := [key for key in doubtful if not chosen[key].by_time]:
        whole = _within_bounds(chosen | {key: _widened(reader, books, key, chosen[key]) for key in new})
        for key, told in _named(spark, reader, books, whole, count).items():
            names[key] = _better(chosen[key], names[key], told)
            chosen[key].by_time = chosen[key].by_time or key in new
    for key, account in chosen.items():
        if _tells(account, names[key]):
            account.kinds, account.examples = _kinds(account, names[key]), names[key].examples


def _tells(account: OpenBucket, names: _NamedRecords) -> bool:
    """Whether they are the difference that was counted; of what a source has deleted, nobody can name all."""
    return account.verdict == NEVER_MIRRORED or names.net == account.records - account.copies


def _better(account: OpenBucket, names: _NamedRecords, others: _NamedRecords) -> _NamedRecords:
    """The others, if they are of the same difference and make no more of it."""
    if not _tells(account, names):
        return others
    is_same = others.net == names.net and sum(others.kinds.values()) <= sum(names.kinds.values())
    return others if is_same else names


def _widened(reader: Rereader, books: Books, key: Bucket, account: OpenBucket) -> OpenBucket:
    """The account with the offsets that its time says as well."""

    def span(region: str, topic: str, known: Sequence[int]) -> list[int]:
        place = TopicPartition(topic, key.partition)
        first, end = reader.within(region, [place], key.bucket).get(place, (0, 0))
        spans = [*known, first, end - 1] if first < end else known
        return [min(spans), max(spans)] if spans else []

    sources = {
        f"{flow.source} {flow.topic}": span(
            flow.source, flow.topic, account.sources.get(f"{flow.source} {flow.topic}", ())
        )
        for flow in books.sources(key[:2])
    }
    return replace(account, sources=sources, target=span(key.region, key.topic, account.target))


def _named(
    spark: SparkSession, reader: Rereader, books: Books, chosen: Mapping[Bucket, OpenBucket], count: int
) -> dict[Bucket, _NamedRecords]:
    """What the difference of each bucket is, as far as these offsets tell."""
    fit(spark, sum(map(_offsets, chosen.values())))
    topics = sorted({key[:2] for key in chosen})
    number = {topic: index for index, topic in enumerate(topics)}
    wanted = small_frame(spark, [(number[key[:2]], key.partition, key.bucket) for key in chosen], _schema(_BUCKET))
    sides: list[tuple[Spans, list[tuple[str, str, int]]]] = [({}, []), ({}, [])]
    for key, account in chosen.items():
        spans, places = sides[1]
        _add(spans, places, key.region, key.topic, key.partition, account.target, number[key[:2]])
        spans, places = sides[0]
        for flow in books.sources(key[:2]):
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
    for row in differences.examples(named, count).collect():
        record = row.source_record or row.target_record
        key = _key(topics[row.flow], row.partition, record.timestamp // BUCKET_MS)
        names.setdefault(key, _NamedRecords({}, [])).examples.append(example(row))
    named.unpersist()
    return {key: names[key] for key in chosen}


def _kinds(account: OpenBucket, named: _NamedRecords) -> dict[str, int]:
    """What was named, and what cannot be, since the source has deleted it."""
    if account.verdict != NEVER_MIRRORED:
        return named.kinds
    gone = max(account.records - account.copies - named.net, 0)
    return named.kinds | ({"never_mirrored": gone} if gone else {})


def _within_bounds(found: Mapping[Bucket, OpenBucket]) -> dict[Bucket, OpenBucket]:
    """What is read of them."""
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
