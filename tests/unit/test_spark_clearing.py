"""Records without what must not leave: cleared by Spark, and what cannot be cleared is withheld."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from loosehanger.proof.read.records import RECORD_SCHEMA
from loosehanger.redaction.fields import DEPTH, cleared

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves it to the garbage collector to close the sockets that results come through.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
FIELDS = ("customer", "customerid")
HEADERS = ("name",)


def clear(spark: SparkSession, *values: bytes | None, fields: tuple[str, ...] = FIELDS) -> list[Row]:
    """What becomes of records with these values."""
    rows = [(b"key", value, "ORDERS", 0, offset, None, None) for offset, value in enumerate(values)]
    return cleared(spark.createDataFrame(rows, RECORD_SCHEMA), fields, HEADERS).orderBy("offset").collect()


def as_json(row: Row) -> Any:
    assert row["withheld"] is None
    return json.loads(bytes(row["value"]))


def nested(depth: int) -> bytes:
    """A value with a forbidden field in as many objects within each other."""
    value: dict[str, Any] = {"customer": 1, "kept": 2}
    for _ in range(depth - 1):
        value = {"inner": value}
    return json.dumps(value).encode()


def test_named_fields_go_wherever_they_are_and_nothing_else_does(spark: SparkSession) -> None:
    before = {
        "id": "a-1",
        "customer": {"first": "A"},
        "price": 29.99,
        "whole": 20.0,
        "large": 12345678901234567890123,
        "none": None,
        "yes": True,
        "text": 'é "quoted" \n',
        "empty": [{}, [], ""],
        "lines": [{"customerid": 1, "kept": 2}, "customer", [{"customer": 1}]],
        "customers": 3,
        "Customer": 4,
    }
    after = {name: value for name, value in before.items() if name != "customer"}
    after["lines"] = [{"kept": 2}, "customer", [{}]]
    found, hidden = clear(spark, json.dumps(before).encode(), b'{"\\u0063ustomer": "A", "kept": 1}')
    assert as_json(found) == after
    # A reader would have read the name without its disguise.
    assert as_json(hidden) == {"kept": 1}
    assert found["key"] == b"key"


def test_a_field_is_found_as_deep_as_promised_and_deeper_ones_are_withheld(spark: SparkSession) -> None:
    *within, beyond = clear(spark, *(nested(depth) for depth in range(1, DEPTH + 2)))
    assert len(within) == DEPTH
    for row in within:
        assert "customer" not in str(as_json(row))
        assert "kept" in str(as_json(row))
    assert beyond["withheld"] == "it has such a field where it cannot be removed"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"customer=A", "its value is not a JSON object"),
        (b"", "its value is not a JSON object"),
        (b"\xff\xfe{}", "its value is not a JSON object"),
        (b'{"customer": "A"', "its value is not a JSON object"),
        (b'{"a": 1, "a": 2}', "its value is not a JSON object"),
        (b'["customer"]', "its value is not a JSON object"),
        (b'"customer"', "its value is not a JSON object"),
        (b"null", "its value is not a JSON object"),
        (b'{"a": 1e999}', "it has a number that is out of range"),
        (b'{"a": ["Infinity", "\\"", {"b": -1.5E+400}]}', "it has a number that is out of range"),
        (b'{"a": 1e999, "b": "%s"}' % (b"x\\n" * 50_000), "it has a number that is out of range"),
        (b'{"a": "{\\"customer\\": \\"A\\"}"}', "it has such a field where it cannot be removed"),
    ],
)
def test_what_cannot_be_cleared_is_withheld_and_told_why(spark: SparkSession, value: bytes, why: str) -> None:
    (row,) = clear(spark, value)
    assert row["withheld"] == why


def test_text_that_looks_like_a_number_out_of_range_is_passed_on(spark: SparkSession) -> None:
    value = {"a": "Infinity", "b": "-Infinity", "c": '1e999"', "d": 1e300, "1e999": 7}
    (row,) = clear(spark, json.dumps(value).encode())
    assert as_json(row) == value


def test_what_stands_after_a_value_does_not_leave(spark: SparkSession) -> None:
    (row,) = clear(spark, b'{"kept": 1} {"customer": "A"}')
    assert bytes(row["value"]) == b'{"kept":1}'


def test_a_deletion_stays_one(spark: SparkSession) -> None:
    (row,) = clear(spark, None)
    assert (row["key"], row["value"], row["withheld"]) == (b"key", None, None)


def test_named_headers_go_and_the_others_keep_their_order(spark: SparkSession) -> None:
    headers = [("b", b"1"), ("name", b"A"), ("a", None), ("name", None), ("b", b"2"), ("names", b"")]
    rows: list[tuple[Any, ...]] = [
        (None, b"{}", "ORDERS", 0, 0, None, headers),
        (None, None, "ORDERS", 0, 1, None, headers),
        (None, b"{}", "ORDERS", 0, 2, None, None),
    ]
    found = cleared(spark.createDataFrame(rows, RECORD_SCHEMA), (), HEADERS).orderBy("offset").collect()
    kept = [("b", b"1"), ("a", None), ("b", b"2"), ("names", b"")]
    assert [[(key, value) for key, value in row["headers"]] for row in found[:2]] == [kept, kept]
    assert found[2]["headers"] is None


def test_without_fields_to_drop_a_value_stays(spark: SparkSession) -> None:
    (row,) = clear(spark, b'{"customer": {"customerid": 1}, "": ""}', fields=())
    assert as_json(row) == {"customer": {"customerid": 1}, "": ""}
