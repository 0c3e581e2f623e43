"""What a switch has cost, counted against what happens record by record."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from loosehanger.lab.snapshots import MirrorSnapshot
from loosehanger.ledger import Kind, LedgerEntry, normal
from loosehanger.proof.compare.switches import (
    AFTER,
    BEFORE,
    BETWEEN,
    Key,
    SequenceRange,
    both,
    count,
    is_behind,
    kept,
    minus,
    moved,
)

OLD, NEW = "old-cluster", "new-cluster"
KEY = Key("run", "LH.T", 0)


def entry(
    kind: Kind, cluster: str, first: int, last: int, since: int = 0, until: int = 0, offset: int = -1
) -> LedgerEntry:
    group = "g" if kind == "processed" else ""
    return LedgerEntry(kind, KEY.run, cluster, KEY.topic, KEY.partition, first, last, since, until, group, offset)


def numbers(found: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in found for number in range(first, last + 1)}


def some_ranges(chance: random.Random) -> list[tuple[int, int]]:
    starts = [chance.randrange(60) for _ in range(chance.randrange(6))]
    return [(start, start + chance.randrange(8)) for start in starts]


@pytest.mark.parametrize("seed", range(200))
def test_ranges_behave_as_sets(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (a test wants the same numbers every time)
    one, other = normal(some_ranges(chance)), normal(some_ranges(chance))
    assert numbers(minus(one, other)) == numbers(one) - numbers(other)
    assert numbers(both(one, other)) == numbers(one) & numbers(other)
    assert count(one) == len(numbers(one))
    assert normal(minus(one, other)) == minus(one, other)


def test_what_was_acknowledged_and_is_nowhere_is_lost_and_what_had_no_answer_is_not() -> None:
    ledgers = [
        entry("sent", OLD, 0, 999),
        entry("acked", OLD, 0, 79, 1000, 1900),
        entry("acked", OLD, 80, 99, 2000, 2100),
        entry("acked", OLD, 100, 109, 2200, 2300),
        entry("unknown", OLD, 110, 119),
        entry("processed", OLD, 0, 94),
        entry("acked", NEW, 110, 119, 9000, 9000),
    ]
    found = kept(ledgers, [SequenceRange(KEY, 0, 89), SequenceRange(KEY, 110, 119, twice=4)], {})
    assert found.lost == {KEY: [(90, 109)]}
    assert (found.acknowledged, found.lost_processed, found.oldest_lost_ms) == (120, 5, 2000)
    assert found.sent_twice == 4


def test_what_only_a_wiped_cluster_had_was_lost_before() -> None:
    ledgers = [entry("acked", OLD, 0, 99, 1000, 1900), entry("acked", "made-again", 100, 109, 5000, 5900)]
    found = kept(ledgers, [SequenceRange(KEY, 0, 89)], {}, lambda one: one.cluster == OLD)
    assert (found.given_up, found.lost) == (10, {KEY: [(100, 109)]})


def test_what_retention_has_deleted_is_not_lost() -> None:
    ledgers = [entry("acked", OLD, 0, 99, 1000, 1900)]
    there = [SequenceRange(KEY, 30, 89)]
    found = kept(ledgers, there, {("LH.T", 0): 1300})
    assert (found.retired, found.lost) == (30, {KEY: [(90, 99)]})
    assert count(kept(ledgers, there, {}).lost[KEY]) == 40


def test_what_was_acknowledged_later_than_the_oldest_record_that_is_left_was_not_deleted_by_retention() -> None:
    later = Key("later", *KEY[1:])
    ledgers = [
        entry("acked", OLD, 0, 99, 1000, 1900),
        replace(entry("acked", OLD, 0, 9, 5000, 5900), run=later.run),
        replace(entry("acked", OLD, 10, 19, 6000, 6900), run=later.run),
    ]
    begins = {("LH.T", 0): 1300}
    found = kept(ledgers, [SequenceRange(KEY, 30, 99)], begins)
    assert (found.retired, found.lost) == (30, {later: [(0, 19)]})
    # Nor where its run goes on.
    found = kept(ledgers, [SequenceRange(KEY, 30, 99), SequenceRange(later, 10, 19)], begins)
    assert (found.retired, found.lost) == (30, {later: [(0, 9)]})
    # Of an earlier run nothing is left.
    found = kept(ledgers, [SequenceRange(later, 10, 19)], {("LH.T", 0): 6000})
    assert (found.retired, found.lost) == (110, {})


TARGET = [SequenceRange(KEY, 0, 69, BEFORE), SequenceRange(KEY, 70, 94, BETWEEN), SequenceRange(KEY, 95, 120, AFTER)]
"""Offset 70 was the group's when the mirror was held, and 95 the partition's end."""


def test_a_group_reads_again_what_it_had_read_behind_its_offset_and_skips_nothing() -> None:
    ledgers = [entry("processed", OLD, 0, 89), entry("processed", NEW, 70, 110)]
    found = moved(ledgers, "g", NEW, 0, TARGET, passed=True)
    assert (found.predicted, found.again, found.skipped) == (20, 20, {})


def test_a_group_that_was_set_back_reads_more_than_was_predicted() -> None:
    ledgers = [entry("processed", OLD, 0, 89), entry("processed", NEW, 50, 110)]
    found = moved(ledgers, "g", NEW, 0, TARGET, passed=True)
    assert (found.predicted, found.again, found.skipped) == (20, 40, {})


def test_a_group_that_was_set_ahead_has_skipped_records() -> None:
    ledgers = [entry("processed", OLD, 0, 89), entry("processed", NEW, 93, 110)]
    found = moved(ledgers, "g", NEW, 0, TARGET, passed=True)
    assert found.skipped == {KEY: [(90, 92)]}
    assert (found.predicted, found.again) == (20, 0)


def test_what_a_group_read_in_an_earlier_stay_it_reads_again() -> None:
    first_stay = [entry("processed", NEW, 0, 60, 100, 200), entry("processed", OLD, 61, 89, 300, 400)]
    second_stay = [entry("processed", NEW, 70, 110, 600, 700)]
    found = moved([*first_stay, *second_stay], "g", NEW, 500, TARGET, passed=True)
    assert (found.predicted, found.again, found.skipped) == (20, 20, {})


def test_records_before_the_offset_that_nobody_has_processed_are_skipped_at_once() -> None:
    ledgers = [entry("processed", OLD, 0, 59)]
    assert moved(ledgers, "g", NEW, 0, TARGET, passed=False).skipped == {KEY: [(60, 69)]}


def test_until_the_group_has_passed_the_fence_what_is_to_come_is_not_skipped() -> None:
    ledgers = [entry("processed", OLD, 0, 79), entry("processed", NEW, 70, 74)]
    found = moved(ledgers, "g", NEW, 0, TARGET, passed=False)
    assert (found.predicted, found.again, found.skipped) == (10, 5, {})


def test_other_groups_and_what_comes_after_the_fence_do_not_count() -> None:
    others = [LedgerEntry("processed", "run", OLD, "LH.T", 0, 0, 120, 0, 0, "other")]
    mine = [entry("processed", OLD, 0, 89), entry("processed", NEW, 70, 120), entry("processed", NEW, 100, 120)]
    found = moved([*others, *mine], "g", NEW, 0, TARGET, passed=True)
    assert (found.predicted, found.again, found.skipped) == (20, 20, {})


def test_what_a_producer_sent_again_is_another_copy_and_not_read_again() -> None:
    # It had no answer to 85 to 94, which were mirrored; the group reads them, and then their copies behind the fence.
    again = entry("processed", NEW, 85, 120)
    ledgers = [entry("processed", OLD, 0, 79), entry("processed", NEW, 70, 94), again]
    found = moved(ledgers, "g", NEW, 0, TARGET, {again}, passed=True)
    assert (found.predicted, found.again, found.skipped) == (10, 10, {})
    # Nor are they skipped, where the copy is all that it has read.
    ledgers = [entry("processed", OLD, 0, 79), entry("processed", NEW, 70, 84), again]
    found = moved(ledgers, "g", NEW, 0, TARGET, {again}, passed=True)
    assert (found.predicted, found.again, found.skipped) == (10, 10, {})


@pytest.mark.parametrize(
    ("cluster", "offset", "behind"), [(NEW, 99, False), (NEW, 100, True), (NEW, 500, True), (OLD, 500, False)]
)
def test_what_lies_behind_a_fence_was_found_in_its_cluster_at_its_end_or_later(
    cluster: str, offset: int, behind: bool
) -> None:
    fence = MirrorSnapshot("mm2/old", "old", "new", NEW, 0, {KEY.topic: {KEY.partition: 100}})
    assert is_behind(entry("processed", cluster, 0, 9, offset=offset), fence) == behind
    assert not is_behind(
        entry("processed", cluster, 0, 9, offset=offset), MirrorSnapshot("mm2/old", "old", "new", NEW, 0, {})
    )


@pytest.mark.parametrize("seed", range(100))
def test_counted_record_by_record_it_is_the_same(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (a test wants the same numbers every time)
    before, after = chance.randrange(40, 90), chance.randrange(40, 90)
    reads = [(start, min(start + chance.randrange(40), 94)) for start in [before - chance.randrange(30), after]]
    end = chance.randrange(60, 95)
    ledgers = [entry("processed", OLD, 0, end), *(entry("processed", NEW, *read) for read in reads)]
    found = moved(ledgers, "g", NEW, 0, TARGET, passed=True)
    times = Counter(n for first, last in reads for n in range(first, last + 1))
    earlier = set(range(end + 1))
    again = sum(n_times - (0 if n in earlier else 1) for n, n_times in times.items() if n < 95)
    assert found.again == again
    assert found.predicted == len(earlier & set(range(70, 95)))
    assert numbers(found.skipped.get(KEY, [])) == set(range(95)) - earlier - set(times)
