"""Names the records of buckets that do not balance: reads them once more, and compares them as the proof does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from pipeline import differences, records
from pipeline.balance import NEVER_MIRRORED, Books, Bucket, OpenBucket
from pipeline.comparison import Read, example
from pipeline.reading import no_records
from pipeline.records import BUCKET_MS, FLOW_PARTITION
from pipeline.session import fit, small_frame

_MOST_OFFSETS = 1_000_000
"""So much is read at most for the buckets of one round; of the others only numbers are told."""
_FAR = 2**62
_BUCKET = (*FLOW_PARTITION, "bucket")
Spans = dict[str, dict[TopicPartition, tuple[int, int]]]


def name_records(spark: SparkSession, read: Read, books: Books, found: Mapping[Bucket, OpenBucket], count: int) -> None:
    """Finds out which records make the difference, and notes their kinds and examples in the accounts.

    Args:
        spark: a session that nobody else uses meanwhile; it is fitted to the work.
        read: reads these offsets in a region, as far as its log still has them.
        books: whose accounts they are.
        found: those that were judged and do not balance.
        count: how many examples of each kind and topic to keep.

    Raises:
        PySparkException: the records cannot be read.
    """
    chosen, total = _within_bounds(found)
    fit(spark, total)
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
    here, there = (_read(spark, read, spans, places, wanted) for spans, places in sides)
    until = small_frame(
        spark,
        sorted({(number[key[:2]], key.partition, _FAR) for key in chosen}),
        "flow int, partition int, until long",
    )
    marked = differences.match_copies(here, there, until).withColumn("reordered", F.lit(False))
    named = differences.name_differences(marked).persist()
    time = F.coalesce("source_record.timestamp", "target_record.timestamp")
    counted = named.groupBy(*FLOW_PARTITION, F.floor(time / BUCKET_MS).alias("bucket"), "kind").count()
    kinds: dict[Bucket, dict[str, int]] = {key: {} for key in chosen}
    for row in counted.collect():
        kinds.setdefault(_key(topics[row.flow], row.partition, row.bucket), {})[row.kind] = row["count"]
    examples: dict[Bucket, list[dict[str, Any]]] = {}
    for row in differences.examples(named, count).collect():
        record = row.source_record or row.target_record
        key = _key(topics[row.flow], row.partition, record.timestamp // BUCKET_MS)
        examples.setdefault(key, []).append(example(row))
    named.unpersist()
    for key, account in chosen.items():
        account.kinds = _kinds(account, kinds[key])
        account.examples = examples.get(key, [])


def _kinds(account: OpenBucket, named: Mapping[str, int]) -> dict[str, int]:
    """What was named, and what cannot be, since the source has deleted it."""
    if account.verdict != NEVER_MIRRORED:
        return dict(named)
    net = named.get("missing", 0) - named.get("unexpected", 0) - named.get("duplicates", 0)
    gone = max(account.records - account.copies - net, 0)
    return dict(named) | ({"never_mirrored": gone} if gone else {})


def _within_bounds(found: Mapping[Bucket, OpenBucket]) -> tuple[dict[Bucket, OpenBucket], int]:
    """What is read, and how many offsets that is."""
    chosen, offsets = {}, 0
    for key, account in found.items():
        spans = [span for span in (*account.sources.values(), account.target) if span]
        more = sum(last - first + 1 for first, last in spans)
        if offsets + more <= _MOST_OFFSETS:
            chosen[key] = account
            offsets += more
    return chosen, offsets


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
    read: Read,
    spans: Spans,
    places: Sequence[tuple[str, str, int]],
    wanted: DataFrame,
) -> DataFrame:
    """The records of the wanted buckets."""
    frames = [read(region, ranges).withColumn("region", F.lit(region)) for region, ranges in spans.items()]
    nothing = no_records(spark).withColumn("region", F.lit(""))
    found = records.contents(reduce(DataFrame.unionByName, frames or [nothing]))
    numbers = small_frame(spark, sorted(set(places)), "region string, topic string, flow int")
    return found.join(F.broadcast(numbers), ["region", "topic"]).join(F.broadcast(wanted), [*_BUCKET], "left_semi")


def _key(topic: tuple[str, str], partition: int, bucket: int) -> Bucket:
    return Bucket(topic[0], topic[1], partition, bucket)


def _schema(names: Sequence[str]) -> str:
    return ", ".join(f"{name} {'long' if name == 'bucket' else 'int'}" for name in names)
