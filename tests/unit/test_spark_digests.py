"""The digests of evidence: Spark's are those of the definition, however it shares the records among its tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from kafka import TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.proof.compare.chunks import partition_digest, record_bytes
from loosehanger.proof.compare.digests import Digests, chunk_digests, chunk_size, digests_of
from loosehanger.proof.compare.fingerprints import tally
from loosehanger.proof.read.records import RECORD_SCHEMA

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Headers = Sequence[tuple[str, bytes | None]]
Content = tuple[bytes | None, bytes | None, Headers]
PLACE = TopicPartition("t", 0)
CONTENTS: list[Content] = [
    (b"k", b"v", ()),
    (b"k", None, ()),
    (b"k", b"", ()),
    (None, b"v", ()),
    (b"", b"v", ()),
    (None, None, ()),
    (b"k", b"v", [("a", None)]),
    (b"k", b"v", [("a", b"")]),
    (b"k", b"v", [("a", b"1"), ("a", b"2")]),
    (b"k", b"v", [("a", b"2"), ("a", b"1")]),
    (b"1:k", b"-", [("Grüße", b"\x00\xff")]),
    (b"1:k-", b"", [("Gr", b"\xc3\xbc")]),
]
OFFSETS = [0, 1, 2, 3, 5, 6, 7, 11, 12, 13, 14, 20]
"""Transactions leave gaps."""


def expected(size: int, contents: Sequence[Content] = CONTENTS) -> list[tuple[int, int, str]]:
    chunks: dict[int, list[str]] = {}
    for offset, (key, value, headers) in zip(OFFSETS, contents, strict=True):
        digest = hashlib.sha256(record_bytes(offset, -1 + offset, key, value, headers)).hexdigest()
        chunks.setdefault(offset // size, []).append(digest)
    return [(number, len(own), hashlib.sha256("".join(own).encode()).hexdigest()) for number, own in chunks.items()]


def frame(spark: SparkSession, tasks: int):  # type: ignore[no-untyped-def]
    rows = [
        (key, value, "t", 0, offset, -1 + offset, list(headers) or None)
        for offset, (key, value, headers) in zip(OFFSETS, CONTENTS, strict=True)
    ]
    read = spark.createDataFrame(rows, RECORD_SCHEMA.replace("timestamp timestamp", "timestamp long"))
    times = read.withColumn("timestamp", F.timestamp_millis("timestamp")).withColumn("region", F.lit("here"))
    return times.repartitionByRange(tasks, "offset").sortWithinPartitions("offset")


@pytest.mark.parametrize("size", [1, 4])
def test_the_digests_are_those_of_the_definition(spark: SparkSession, size: int) -> None:
    for tasks in (1, 3):
        records = frame(spark, tasks)
        ways = [digests_of(records, size), chunk_digests(tally(records, chunk=size))]
        for way in ways:
            found = Digests(size)
            found.take(way, {"here": {PLACE: (0, 21), TopicPartition("t", 1): (4, 4)}})
            digest = found.partitions["here", PLACE]
            assert list(digest.chunks) == expected(size)
            assert (digest.records, digest.sha256) == (len(OFFSETS), partition_digest(expected(size)))
            assert found.partitions["here", TopicPartition("t", 1)].records == 0
    assert len({digest for _, _, digest in expected(1)}) == len(CONTENTS)


def test_records_that_are_no_ones_part_are_framed() -> None:
    """Nothing of one part can pass for another part."""
    contents = {record_bytes(0, 0, key, value, headers) for key, value, headers in CONTENTS}
    assert len(contents) == len(CONTENTS)
    assert record_bytes(1, 5, b"k", None, [("h", b"")]) == b"1:11:51:k-1:h0:"


@pytest.mark.parametrize(("offsets", "size"), [(0, 1), (16_384, 1), (16_385, 2), (20_000_000, 2048)])
def test_few_records_have_a_digest_each(offsets: int, size: int) -> None:
    assert chunk_size(offsets) == size
    sizes = Digests()
    sizes.fit(offsets)
    sizes.fit(1)
    assert sizes.size == size
