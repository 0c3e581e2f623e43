"""Records that have what they must not have: found by Spark, and reported by topic."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from loosehanger.lab.claims.claims import Forbidden
from loosehanger.proof.compare.isolation import scan
from loosehanger.proof.read.records import RECORD_SCHEMA

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves it to the garbage collector to close the sockets that results come through.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
FORBIDDEN = Forbidden(topics=("LH.CUSTOMERS",), headers=("name",), fields=("customer",), groups=("buyers",))
SYNCS = "mm2-offset-syncs.regiona.internal"
CHECKPOINTS = "regiona.checkpoints.internal"


def note(*names: str) -> bytes:
    """The key of a mirror's note: names, and a partition."""
    encoded = [name.encode() for name in names]
    return b"".join(len(name).to_bytes(2, "big") + name for name in encoded) + (1).to_bytes(4, "big")


def found(spark: SparkSession, *records: tuple[str, int, bytes | None, bytes | None, Any]) -> set[tuple[Any, ...]]:
    """What is found in records: topic, offset, key, value, headers."""
    rows = [(key, value, topic, 0, offset, None, headers) for topic, offset, key, value, headers in records]
    return {tuple(row) for row in scan(spark.createDataFrame(rows, RECORD_SCHEMA), FORBIDDEN).collect()}


def test_a_field_a_header_and_a_name_are_found(spark: SparkSession) -> None:
    assert found(
        spark,
        ("ORDERS", 3, None, b'{"id": 1, "customer" : "A"}', []),
        ("ORDERS", 4, None, b'{"order": {"customer":"A"}}', [("name", b"A"), ("other", None)]),
        ("ORDERS", 5, None, b'{"text": "{\\"customer\\": 1}"}', []),
        (SYNCS, 9, note("LH.CUSTOMERS"), b"\x00", None),
        (CHECKPOINTS, 4, note("buyers", "regiona.LH.CUSTOMERS"), b"\x00", None),
        (CHECKPOINTS, 5, note("others", "LH.CUSTOMERS"), b"\x00", None),
    ) == {
        ("field", "customer", "ORDERS", 3, 0, 3),
        ("header", "name", "ORDERS", 1, 0, 4),
        ("name", "LH.CUSTOMERS", SYNCS, 1, 0, 9),
        ("name", "LH.CUSTOMERS", CHECKPOINTS, 2, 0, 4),
        ("group", "buyers", CHECKPOINTS, 1, 0, 4),
    }


def test_what_only_looks_like_it_is_not(spark: SparkSession) -> None:
    assert (
        found(
            spark,
            ("ORDERS", 0, b"customer", b'{"note": "customer", "customers": 3}', [("lh-name", b"name")]),
            ("ORDERS", 1, None, None, None),
            ("ORDERS", 2, b"LH.CUSTOMERS", b"\xff\xfe", []),
            (SYNCS, 3, note("LH.STOCK"), b'"customer": 1', []),
            # What may leave in its place has its name within its own.
            (SYNCS, 4, note("LH.CUSTOMERS.CLEARED"), b"", []),
            (SYNCS, 5, b"\x7f", None, []),
            (SYNCS, 6, None, None, []),
            (CHECKPOINTS, 7, note("buyers-not", "LH.STOCK"), b"", []),
            (CHECKPOINTS, 8, note("LH.CUSTOMERS", "buyers"), b"", []),
        )
        == set()
    )
