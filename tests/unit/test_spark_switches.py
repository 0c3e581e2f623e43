"""Ranges of sequence numbers from a cluster's records: what lies where, what is missing, what is there twice."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from loosehanger.proof.compare.switches import AFTER, BEFORE, BETWEEN, Key, SequenceRange, sequence_ranges
from loosehanger.proof.read.records import RECORD_SCHEMA

from .test_ledger import FOREIGN

pytestmark = pytest.mark.spark
KEY = Key("run", "LH.T", 0)


def test_records_become_ranges_with_their_places(spark: SparkSession) -> None:
    # Sequence numbers 0 to 9 at offsets 0, 2, 4 …: a marker follows each. 3 is missing, 5 is there again at the end.
    offsets = [(number, 2 * number) for number in range(10) if number != 3] + [(5, 40)]
    rows: list[tuple[object, ...]] = [
        (None, b"v", "LH.T", 0, offset, None, [("lh-run", b"run"), ("lh-seq", str(number).encode())])
        for number, offset in offsets
    ]
    rows += [(None, b"somebody else's", "LH.T", 0, 100 + n, None, headers) for n, headers in enumerate(FOREIGN)]
    records = spark.createDataFrame(rows, RECORD_SCHEMA)
    found = sequence_ranges(records, {"LH.T": {0: 4}}, {"LH.T": {0: 15}})
    assert sorted(found, key=lambda span: (span.place, span.first)) == [
        SequenceRange(KEY, 8, 9, AFTER),
        SequenceRange(KEY, 0, 1, BEFORE),
        SequenceRange(KEY, 2, 2, BETWEEN),
        SequenceRange(KEY, 4, 7, BETWEEN, twice=1),
    ]


def test_without_a_fence_everything_is_one(spark: SparkSession) -> None:
    rows: list[tuple[object, ...]] = [
        (None, b"v", "LH.T", number % 2, number, None, [("lh-run", b"run"), ("lh-seq", str(number // 2).encode())])
        for number in range(20)
    ]
    found = sequence_ranges(spark.createDataFrame(rows, RECORD_SCHEMA))
    assert sorted(found, key=lambda span: span.key) == [
        SequenceRange(Key("run", "LH.T", partition), 0, 9) for partition in (0, 1)
    ]
