"""Records compared one by one without Spark: fingerprints, kinds of difference, and how far a copier has come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loosehanger.audit.balance import NEVER_MIRRORED, Bucket, OpenBucket
from loosehanger.audit.client_naming import _note, compare, name_altered, name_moved
from loosehanger.audit.client_records import ReadRecord, fingerprint, halves

KEY = Bucket("new", "t", 0, 1)


def record(
    offset: int, content: str = "", partition: int = 0, key: bytes = b"k", timestamp: int = 10_000
) -> ReadRecord:
    return ReadRecord(partition, offset, timestamp, key, content.encode() or b"%d" % offset)


def sent(**changed: Any) -> Any:
    given = {"key": b"k", "value": b"v", "timestamp": 5, "headers": [("h", b"x")]}
    return SimpleNamespace(**(given | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"key": None},
        {"key": b""},
        {"value": None},
        {"value": b"v\x00"},
        {"timestamp": 6},
        {"headers": []},
        {"headers": [("h", None)]},
        {"headers": [("h", b"x"), ("h", b"x")]},
        {"key": b"kv", "value": b""},
    ],
)
def test_any_change_of_a_record_changes_its_fingerprint(changed: dict[str, Any]) -> None:
    assert fingerprint(sent(**changed)) != fingerprint(sent())
    assert fingerprint(sent(**changed)) == fingerprint(sent(**changed))
    assert fingerprint(sent(headers=[("a", b"1"), ("b", b"2")])) != fingerprint(
        sent(headers=[("b", b"2"), ("a", b"1")])
    )


def test_a_fingerprint_is_four_numbers_of_32_bits() -> None:
    assert halves(bytes(range(16))) == (0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C)


def test_records_without_a_partner_are_missing_doubled_or_unexpected() -> None:
    here = [record(0, "a"), record(1, "a"), record(2, "b"), record(3, "c")]
    there = [record(0, "a"), record(1, "c"), record(2, "c"), record(3, "z")]
    found = [
        (one.kind, one.source and one.source.offset, one.target and one.target.offset)
        for one in compare(KEY, here, there)
    ]
    assert sorted(found, key=str) == sorted(
        [("missing", 1, None), ("missing", 2, None), ("duplicates", None, 2), ("unexpected", None, 3)], key=str
    )


def test_a_record_that_was_altered_or_moved_is_one_difference() -> None:
    other = Bucket("new", "t", 1, 1)
    differences = [
        *compare(KEY, [record(0, "a"), record(1, "m", key=b"x")], [record(7, "b")]),
        *compare(other, [], [record(4, "m", partition=1, key=b"x")]),
    ]
    altered, moved = sorted(name_altered(name_moved(differences)), key=lambda one: one.kind)
    assert (altered.kind, altered.source and altered.source.offset, altered.target and altered.target.offset) == (
        "altered", 0, 7,
    )  # fmt: skip
    assert moved.kind == "moved"
    assert moved.example() == {
        "kind": "moved",
        "partition": 0,
        "source_offset": 1,
        "target_offset": 4,
        "target_partition": 1,
        "key": "x",
        "timestamp": "1970-01-01T00:00:10.000+00:00",
    }


@pytest.mark.parametrize(
    ("verdict", "records", "kinds"),
    [
        ("missing", 1, {"missing": 1}),
        # Retention has deleted what would explain the rest.
        ("missing", 3, {"missing": 3}),
        (NEVER_MIRRORED, 3, {"missing": 1, "never_mirrored": 2}),
    ],
)
def test_only_records_that_explain_the_difference_are_named(verdict: str, records: int, kinds: dict[str, int]) -> None:
    account = OpenBucket(0, records, 0, verdict=verdict, kinds={"missing": records})
    _note(account, compare(KEY, [record(5)], []))
    assert account.kinds == kinds
    assert len(account.examples) == (0 if verdict == "missing" and records == 3 else 1)
