"""Records compared one by one without Spark: fingerprints, kinds of difference, and how far a copier has come."""

from __future__ import annotations

import random
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from loosehanger.audit import client_reader
from loosehanger.audit.balance import DIFFERENT, MISSING, NEVER_MIRRORED, AuditBalance, Bucket, OpenBucket
from loosehanger.audit.client_naming import BucketReader, _note, compare, name_altered, name_moved, name_records
from loosehanger.audit.client_records import ReadRecord, fingerprint, halves
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.flows import Flow

KEY = Bucket("new", "t", 0, 1)
MIRROR = Mirror("m", "old", "new", "old", "new", "identity", ".", "t", "", "c")


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


def test_a_reading_counts_the_records_without_a_timestamp(monkeypatch: pytest.MonkeyPatch) -> None:
    place, times = TopicPartition("t", 0), (-1, 20_000, None, 20_001)
    read = [sent(topic="t", partition=0, offset=offset, timestamp=time) for offset, time in enumerate(times)]
    monkeypatch.setattr(client_reader, "read_between", lambda *_: read)
    cluster = SimpleNamespace(reaching=nullcontext, consumer=lambda **_: None)
    found, _ = client_reader.ClientReader("old", cluster).totals({place: (0, 4)}, {})  # type: ignore[arg-type]
    assert [(row.bucket, row.records, row.untimed, row.first, row.last) for row in found] == [
        (-1, 2, 2, 0, 2),
        (2, 2, 0, 1, 3),
    ]


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
    ("verdict", "records", "copies", "kinds"),
    [
        ("missing", 1, 0, {"missing": 1}),
        # The source has deleted the other two since.
        ("missing", 3, 0, {"missing": 3}),
        (NEVER_MIRRORED, 3, 0, {"missing": 1, "never_mirrored": 2}),
    ],
)
def test_records_are_named_and_deleted_ones_are_counted(
    verdict: str, records: int, copies: int, kinds: dict[str, int]
) -> None:
    account = OpenBucket(0, records, copies, verdict=verdict, kinds={verdict: records})
    _note(account, compare(KEY, [record(5)], []), 1, 0)
    assert account.kinds == kinds
    assert [example["kind"] for example in account.examples] == ["missing"]


class Log:
    """A topic on both sides, with a made-up cluster for each: the records that are still there."""

    def __init__(self, source: list[ReadRecord], target: list[ReadRecord]) -> None:
        self.records = {"old": source, "new": target}
        self.balance = AuditBalance([Flow(MIRROR, "t", "t")])

    def name(self, found: dict[Bucket, OpenBucket], monkeypatch: pytest.MonkeyPatch) -> None:
        """Names the records of these buckets."""

        def read(region: str, _topic: str, key: Bucket, _known: Any) -> list[ReadRecord]:
            return [one for one in self.records[region] if (one.partition, one.timestamp // 10_000) == key[2:]]

        reader = BucketReader({}, {}, {})
        monkeypatch.setattr(reader, "read", read)
        monkeypatch.setattr(BucketReader, "opened", lambda *_: nullcontext(reader))
        name_records(lambda _: pytest.fail("no cluster is asked"), self.balance, found, {})


def account_of(sources: list[ReadRecord], copies: list[ReadRecord], verdict: str) -> OpenBucket:
    """The account that has counted these records."""
    account = OpenBucket(0, len(sources), len(copies), verdict=verdict)
    account.sources = {"old t": [sources[0].offset, sources[-1].offset]} if sources else {}
    account.target = [copies[0].offset, copies[-1].offset] if copies else []
    for side, sign in ((sources, 1), (copies, -1)):
        for one in side:
            account.content = [a + sign * b for a, b in zip(account.content, halves(one.fingerprint[:16]), strict=True)]
    return account


def numbered(*offsets: int, first: int = 0, **changed: Any) -> list[ReadRecord]:
    """Records by their offsets at the source; the offsets here count from ``first``."""
    return [record(first + place, f"{number:016}", **changed) for place, number in enumerate(offsets)]


def test_copies_of_records_that_the_source_has_deleted_are_not_unexpected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror was held behind 194 of 400 records and copied one more; the source has deleted all but the last ten."""
    sources, copies = numbered(*range(400)), numbered(*range(195), *range(390, 400))
    account = account_of(sources, copies, NEVER_MIRRORED)
    Log(sources[390:], copies).name({KEY: account}, monkeypatch)
    assert (account.kinds, account.verdict, account.examples) == ({"never_mirrored": 195}, NEVER_MIRRORED, [])


def test_copies_that_were_the_same_before_a_bucket_was_opened_again_are_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources, copies = numbered(*range(400)), numbered(*range(195))
    # The first 194 were found equal, and dropped.
    account = account_of(sources[194:], copies[194:], NEVER_MIRRORED)
    Log([], copies).name({KEY: account}, monkeypatch)
    assert (account.kinds, account.examples) == ({"never_mirrored": 205}, [])


def test_a_record_that_is_there_and_was_not_copied_is_missing_whatever_was_deleted_after_it_was_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources, copies = numbered(*range(10)), numbered(*range(7), 8, 9)
    account = account_of(sources, copies, NEVER_MIRRORED)
    # All have the same key and time, so the lost one could be taken for one that was altered.
    Log(sources[5:], copies).name({KEY: account}, monkeypatch)
    assert (account.kinds, account.verdict) == ({"missing": 1}, MISSING)


def test_more_copies_than_records_were_deleted_are_unexpected_and_which_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources, copies = numbered(*range(10)), [*numbered(*range(10)), *numbered(77, first=10)]
    account = account_of(sources, copies, DIFFERENT)
    Log(sources[4:], copies).name({KEY: account}, monkeypatch)
    assert (account.kinds, account.examples) == ({"unexpected": 1}, [])
    account = account_of(sources, copies, DIFFERENT)
    Log(sources, copies).name({KEY: account}, monkeypatch)
    assert [one["target_offset"] for one in account.examples] == [10]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_source_has_deleted_the_kinds_are_those_of_the_history(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror copies in order up to somewhere; the source deletes up to somewhere; the mirror goes on from there."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    count = chance.randint(1, 30)
    opened, copied, start = chance.randint(0, count), chance.randint(0, count), chance.randint(0, count)
    there = [number for number in range(count) if number < copied or number >= start]
    left = list(range(max(start, opened), count))
    skipped = set(chance.sample(left, min(len(left), chance.randint(0, 2))))
    doubled = [number for number in left if number not in skipped and chance.random() < 0.1]
    sources, copies = numbered(*range(count)), numbered(*(one for one in there if one not in skipped), *doubled)
    before = min(opened, copied)  # These were the same on both sides, and the bucket was dropped and opened again.
    lost = max(start - max(copied, before), 0)
    account = account_of(sources[before:], copies[before:], NEVER_MIRRORED if lost else MISSING)
    if not any(account.content):
        return
    kinds = {"never_mirrored": lost, "missing": len(skipped), "duplicates": len(doubled)}
    Log(sources[start:], copies).name({KEY: account}, monkeypatch)
    assert account.kinds == {kind: found for kind, found in kinds.items() if found}


def test_records_that_were_named_keep_their_names_after_the_source_has_deleted_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources, copies = numbered(0, 1), numbered(0)
    account = account_of(sources, copies, MISSING)
    Log(sources, copies).name({KEY: account}, monkeypatch)
    Log([], copies).name({KEY: account}, monkeypatch)
    assert (account.kinds, [one["source_offset"] for one in account.examples]) == ({"missing": 1}, [1])


def test_where_the_target_has_deleted_copies_only_the_count_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, copies = numbered(*range(10)), numbered(*range(4), *range(7, 10))
    account = account_of(sources, copies, NEVER_MIRRORED)
    account.kinds = {"never_mirrored": 3}
    # Without the rule: one missing of those that the target has deleted, and two never mirrored.
    Log(sources[5:], copies[5:]).name({KEY: account}, monkeypatch)
    assert (account.kinds, account.examples) == ({"never_mirrored": 3}, [])


def test_a_bucket_that_differs_is_never_without_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, copies = numbered(*range(3)), numbered(0, 1, 77)
    account = account_of(sources, copies, DIFFERENT)
    account.kinds = {"altered": 1}
    Log([], copies).name({KEY: account}, monkeypatch)
    assert account.kinds == {"altered": 1}


def test_a_second_copy_of_a_record_from_before_is_a_duplicate_also_after_the_source_deleted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = [*numbered(0, 1), *numbered(1, first=2)]
    account = account_of([], copies[2:], DIFFERENT)
    Log([], copies).name({KEY: account}, monkeypatch)
    assert account.kinds == {"duplicates": 1}


def test_a_record_that_moved_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = KEY._replace(partition=1)
    sources, copies = numbered(5), numbered(5, partition=1)
    found = {KEY: account_of(sources, [], MISSING), elsewhere: account_of([], copies, DIFFERENT)}
    found[elsewhere].kinds = {"unexpected": 1}
    Log(sources, copies).name(found, monkeypatch)
    assert (found[KEY].kinds, found[elsewhere].kinds) == ({"moved": 1}, {})
