"""The balance judges a bucket only when no record can arrive any more, and never calls late records lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from kafka import TopicPartition

from loosehanger.audit.balance import (
    DIFFERENT,
    EQUAL,
    MISSING,
    NEVER_MIRRORED,
    AuditBalance,
    Bucket,
    RegionPartition,
    Tally,
    View,
)
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.flows import Flow

MIRROR = Mirror("m", "europe", "na", "europe", "na", "identity", ".", ".*", "", "c")
HERE, THERE = RegionPartition("europe", "A", 0), RegionPartition("na", "A", 0)
BUCKET = 100


class Log:
    """Two clusters and a mirror, as far as the balance needs them: the records of each, and how far each was read.

    Records are numbers; their offsets count up.
    """

    def __init__(self, flows: Sequence[Flow] = (Flow(MIRROR, "A", "A"),), since: int = BUCKET) -> None:
        self.balance = AuditBalance(flows)
        self.ends: dict[RegionPartition, int] = {}
        self.read: dict[RegionPartition, int] = {}
        self.starts: dict[RegionPartition, int] = {}
        self.position: dict[str, dict[TopicPartition, int]] = {}
        for flow in flows:
            self.balance.begin(RegionPartition(flow.target, flow.target_topic, 0), since)
            self.ends |= {
                RegionPartition(flow.source, flow.topic, 0): 0,
                RegionPartition(flow.target, flow.target_topic, 0): 0,
            }
            self.starts[RegionPartition(flow.source, flow.topic, 0)] = 0
        self.read = dict(self.ends)

    def write(self, place: RegionPartition, *values: int, bucket: int = BUCKET, read: bool = True) -> None:
        """Appends records; ``read`` adds them to the balance; otherwise they are there and unread."""
        first = self.ends[place]
        self.ends[place] += len(values)
        if read:
            content = (sum(values), sum(value * value for value in values), 0, 0)
            self.balance.take(place, bucket, Tally(len(values), content, first, first + len(values) - 1), 0)
            self.read[place] = self.ends[place]

    def copied(self, offset: int, mirror: Mirror = MIRROR, topic: str = "A") -> None:
        """The mirror's position."""
        self.position.setdefault(mirror.id, {})[TopicPartition(topic, 0)] = offset

    def judge(self, ends: Mapping[RegionPartition, int] | None = None) -> list[tuple[str, int, dict[str, int]]]:
        """A further round, in which nothing is read: verdict, bucket and kinds of what is judged."""
        self.balance.begin_round()
        view = View(self.position, ends or self.ends, ends or self.ends, self.starts, self.read)
        return [(found.verdict, found.key.bucket, found.account.kinds) for found in self.balance.judge(view)]


def test_what_balances_is_equal_and_forgotten_even_if_no_mirror_can_be_asked() -> None:
    log = Log()
    log.write(HERE, 1, 2)
    log.write(THERE, 2, 1)
    assert log.balance.judge(View({}, {}, {}, {}, {})) == [], "the round that read it does not judge it"
    assert log.judge() == [(EQUAL, BUCKET, {})]
    assert log.balance.accounts == {}
    assert log.balance.records == {("europe", "A"): 2, ("na", "A"): 2}


@pytest.mark.parametrize("position", [None, 0])
def test_a_mirror_that_is_behind_or_unknown_has_lost_nothing(position: int | None) -> None:
    log = Log()
    log.write(HERE, 1, 2)
    if position is not None:
        log.copied(position)
    for _ in range(3):
        assert log.judge() == []
    (key, account) = next(iter(log.balance.accounts.items()))
    assert log.balance.behind(key, account, log.position)
    log.write(THERE, 1, 2)
    assert log.judge() == [(EQUAL, BUCKET, {})]


def test_a_record_that_the_mirror_has_passed_is_missing_until_it_comes() -> None:
    log = Log()
    log.write(HERE, 1, 2, 3)
    log.write(THERE, 1, 3)
    log.copied(2)
    assert log.judge() == [(MISSING, BUCKET, {"missing": 1})]
    assert log.judge() == [], "it is reported once"
    log.write(THERE, 2)
    assert log.judge() == [(EQUAL, BUCKET, {})]


def test_what_nobody_has_read_yet_is_waited_for() -> None:
    log = Log()
    log.write(HERE, 1)
    log.write(THERE, 1, read=False)
    log.copied(0)
    assert log.judge() == [], "the target goes further than it was read"
    other = Log()
    other.write(THERE, 1)
    other.write(HERE, 1, read=False)
    assert other.judge() == [], "the source goes further than it was read"
    assert other.judge({}) == [], "a region that does not answer decides nothing"


def test_records_that_differ_that_came_twice_or_from_elsewhere() -> None:
    log = Log()
    log.write(HERE, 1, 2)
    log.write(THERE, 1, 7)
    log.copied(1)
    assert log.judge() == [(DIFFERENT, BUCKET, {"altered": 1})]
    log = Log()
    log.write(THERE, 5, 5)
    assert log.judge() == [(DIFFERENT, BUCKET, {"unexpected": 2})]


def test_what_the_source_deleted_before_it_was_copied_is_never_excused() -> None:
    log = Log()
    log.write(HERE, 1, 2, 3)
    log.write(THERE, 3)
    log.copied(2)
    log.starts[HERE] = 2
    assert log.judge() == [(NEVER_MIRRORED, BUCKET, {"never_mirrored": 2})]
    log = Log()
    log.write(HERE, 1, 2, 3)
    log.copied(2)
    log.starts[HERE] = 1
    assert log.judge() == [(NEVER_MIRRORED, BUCKET, {"never_mirrored": 1, "missing": 2})], "only one was deleted"


def test_while_it_is_unknown_where_the_sources_log_begins_no_record_is_missing() -> None:
    log = Log()
    log.write(HERE, 1, 2)
    log.copied(1)
    del log.starts[HERE]
    assert log.judge() == []
    log.starts[HERE] = 2
    assert log.judge() == [(NEVER_MIRRORED, BUCKET, {"never_mirrored": 2})]


def test_a_late_record_opens_a_bucket_again_and_older_ones_are_left_out() -> None:
    log = Log()
    log.write(HERE, 1, bucket=BUCKET - 1)
    assert log.balance.accounts == {}
    assert log.balance.older == {("europe", "A"): 1}
    for number in (1, 2):
        log.write(HERE, number)
        log.write(THERE, number)
        assert log.judge() == [(EQUAL, BUCKET, {})]


def test_several_sources_add_into_one_topic() -> None:
    other = replace(MIRROR, source="sa", source_alias="sa")
    log = Log([Flow(MIRROR, "A", "A"), Flow(other, "A", "A")])
    log.write(HERE, 1)
    log.write(RegionPartition("sa", "A", 0), 2)
    log.write(THERE, 2)
    log.copied(0)
    assert log.judge() == [], "the other mirror cannot be asked"
    log.copied(0, other)
    assert log.judge() == [(MISSING, BUCKET, {"missing": 1})]


def test_in_a_chain_a_copy_counts_for_the_next_flow() -> None:
    on = replace(MIRROR, source="na", source_alias="na", target="sa", target_alias="sa")
    log = Log([Flow(MIRROR, "A", "A"), Flow(on, "A", "A")])
    log.write(HERE, 1, 2)
    log.write(THERE, 1, 2)
    log.write(RegionPartition("sa", "A", 0), 1)
    log.copied(1)
    log.copied(1, on)
    found = sorted(log.judge())
    assert found == [(EQUAL, BUCKET, {}), (MISSING, BUCKET, {"missing": 1})]
    assert [key.region for key in log.balance.accounts] == ["sa"]


def test_what_was_not_read_whole_is_given_up_and_judged_anew_later() -> None:
    log = Log()
    log.write(HERE, 1)
    assert log.balance.restart(THERE, BUCKET + 1) == [Bucket(*THERE, BUCKET)]
    log.write(HERE, 2)
    log.write(HERE, 3, bucket=BUCKET + 1)
    log.copied(2)
    assert log.judge() == [(MISSING, BUCKET + 1, {"missing": 1})]


def test_the_books_are_the_same_after_they_were_put_away() -> None:
    log = Log()
    log.write(HERE, 1, 2**62, 3)
    log.write(THERE, 1)
    log.copied(2)
    first = log.judge()
    again = AuditBalance([Flow(MIRROR, "A", "A")])
    again.load(json.loads(json.dumps(log.balance.dump())))
    assert again.dump() == log.balance.dump()
    log.balance = again
    log.write(THERE, 2**62)
    assert first == [(MISSING, BUCKET, {"missing": 2})]
    assert log.judge() == [(MISSING, BUCKET, {"missing": 1})]
    log.write(THERE, 3)
    assert log.judge() == [(EQUAL, BUCKET, {})]


def test_a_flow_that_is_gone_takes_its_buckets_with_it() -> None:
    log = Log()
    log.write(HERE, 1)
    log.balance.serve([])
    assert log.balance.accounts == {}


def test_it_is_said_where_a_part_of_what_was_read_did_not_count() -> None:
    other = replace(MIRROR, name="o", source="sa", source_alias="sa")
    one, two, there = Flow(MIRROR, "A", "A"), Flow(other, "A", "A"), THERE[:2]
    balance = AuditBalance()
    assert balance.serve([one], [HERE[:2]]) == {there}, "what was read of the source was counted nowhere"
    assert balance.serve([one], [HERE[:2]]) == set()
    assert balance.serve([one, two], [HERE[:2], there]) == set(), "its copies have been counted"
    again = AuditBalance()
    again.load(balance.dump())
    assert again.serve([one, two], [HERE[:2], there, ("sa", "A")]) == set()
    assert again.serve([one], [HERE[:2], there]) == {there}, "what is on its way from the other will not balance"
    assert again.serve([], [there]) == set()
    assert again.serve([two], [there]) == {there}, "its copies were counted nowhere"
    assert AuditBalance().serve([one, two]) == set(), "nothing was read yet"
