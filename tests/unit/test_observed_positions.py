"""The position of a copier without an interface is known by its copies alone, and never further than they show."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from kafka import TopicPartition

from loosehanger.audit.balance import AuditBalance, Bucket, Judged, RegionPartition, Tally, View
from loosehanger.audit.observed_positions import ObservedPositions
from loosehanger.errors import UnreachableError
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.flows import Flow

MIRROR = Mirror("m", "old", "new", "old", "new", "identity", ".", "t", "", "c")
FLOW = Flow(MIRROR, "t", "t")
PLACE = TopicPartition("t", 0)
HERE, THERE = RegionPartition("old", "t", 0), RegionPartition("new", "t", 0)
GRACE_S = 10.0


class Audit:
    """A balance that is fed by hand, one round after another."""

    def __init__(self, reached: Any = lambda *_: {}) -> None:
        self.balance = AuditBalance([FLOW])
        self.balance.begin(THERE, 0)
        self.positions = ObservedPositions([MIRROR], lambda _: None, lambda _: [PLACE], reached, GRACE_S)  # type: ignore[arg-type,return-value]
        self.read = {HERE: 0, THERE: 0}
        self.at_ms = 0

    def add(self, place: RegionPartition, bucket: int, *records: int) -> None:
        """Records by their contents, at the next offsets."""
        for content in records:
            offset = self.read[place]
            self.balance.take(place, bucket, Tally(1, (content,) * 4, offset, offset), self.at_ms)
            self.read[place] = offset + 1

    def round(self, seconds: float = 1.0) -> list[Judged]:
        ends: Mapping[RegionPartition, int] = dict(self.read)
        positions = self.positions.positions()
        self.at_ms += round(seconds * 1000)
        settled_ms = self.at_ms - round(GRACE_S * 1000)
        view = View(positions, ends, ends, {HERE: 0}, self.read, settled_ms)
        judged = self.balance.judge(view)
        self.positions.learn(judged, self.balance, self.read, self.at_ms)
        self.balance.begin_round()
        return judged


@pytest.fixture
def audit() -> Iterator[Audit]:
    found = Audit()
    found.balance.begin_round()
    yield found
    found.positions.end()


def verdicts(judged: list[Judged]) -> dict[int, str]:
    return {entry.key.bucket: entry.verdict for entry in judged}


def test_a_record_is_missing_once_a_later_bucket_is_equal_and_the_grace_time_is_over(audit: Audit) -> None:
    audit.add(HERE, 1, 5, 6)
    audit.add(THERE, 1, 5)
    for _ in range(5):
        assert audit.round(60) == [], "nothing shows that the copier has passed it"
    audit.add(HERE, 2, 7)
    audit.add(THERE, 2, 7)
    assert verdicts(audit.round()) == {}
    assert verdicts(audit.round()) == {2: "equal"}
    assert audit.positions.positions() == {MIRROR.id: {PLACE: 2}}
    assert verdicts(audit.round()) == {1: "missing"}


def test_within_the_grace_time_nothing_is_missing(audit: Audit) -> None:
    audit.add(HERE, 1, 5)
    audit.add(HERE, 2, 7)
    audit.add(THERE, 2, 7)
    for _ in range(8):
        assert set(verdicts(audit.round()).values()) <= {"equal"}
    audit.round(GRACE_S)
    assert verdicts(audit.round()) | {1: "missing"} == {1: "missing"}
    assert audit.balance.accounts[Bucket("new", "t", 0, 1)].verdict == "missing"


def test_a_foreign_record_does_not_show_that_the_copier_has_passed(audit: Audit) -> None:
    audit.add(HERE, 1, 5)
    audit.add(HERE, 2, 7)
    audit.add(THERE, 2, 99)
    for _ in range(5):
        assert verdicts(audit.round(60)) == {}
    assert audit.positions.positions() == {}


def test_a_bucket_that_does_not_change_is_read_again_and_shows_how_far_the_copier_is() -> None:
    asked: list[Any] = []

    def reached(fronts: Mapping[Bucket, Any], _: Any) -> dict[Bucket, int]:
        asked.append(list(fronts))
        if len(asked) == 1:
            raise UnreachableError("new does not answer")
        return dict.fromkeys(fronts, 2)

    audit = Audit(reached)
    audit.balance.begin_round()
    audit.add(HERE, 1, 5, 6, 7)
    audit.add(THERE, 1, 5, 7)
    deadline = time.monotonic() + 20
    found: dict[int, str] = {}
    while not found and time.monotonic() < deadline:
        found = verdicts(audit.round(GRACE_S))
    audit.positions.end()
    assert found == {1: "missing"}
    assert len(asked) == 2, "once more after a cluster did not answer, and not again"


def test_the_lag_is_what_the_copies_lack(audit: Audit) -> None:
    audit.add(HERE, 1, 5, 6, 7, 8)
    audit.add(THERE, 1, 5, 6)
    audit.round()
    progress = audit.positions.progress_of(MIRROR)()
    assert progress.positions == {PLACE: 1}
    audit.add(THERE, 1, 7, 8)
    audit.round()
    assert audit.positions.progress_of(MIRROR)().positions == {PLACE: 3}


def test_positions_outlive_a_restart_and_are_forgotten_with_a_recreated_topic(audit: Audit) -> None:
    audit.positions.load([[MIRROR.id, "t", 0, 7]])
    assert audit.positions.dump() == [[MIRROR.id, "t", 0, 7]]
    audit.positions.forget("new", "t")
    assert audit.positions.positions() == {MIRROR.id: {PLACE: 7}}
    audit.positions.forget("old", "t")
    assert audit.positions.dump() == []


class Committing:
    """A source's cluster, as far as a copier's group needs it."""

    def __init__(self) -> None:
        self.offset, self.end = 0, 2
        self.answers = True

    def committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        assert (group, list(topics)) == ("copier", ["t"])
        if not self.answers:
            raise UnreachableError("old does not answer")
        return {PLACE: self.offset}

    def written_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self.end)


def test_a_group_shows_that_the_last_record_of_a_partition_is_missing(audit: Audit) -> None:
    audit.positions.end()
    source = Committing()
    audit.positions = ObservedPositions(
        [MIRROR],
        lambda _: source,  # type: ignore[arg-type,return-value]
        lambda _: [PLACE],
        lambda *_: {},
        GRACE_S,
        {MIRROR.id: "copier"},
    )
    audit.add(HERE, 1, 5, 6)
    audit.add(THERE, 1, 5)
    ask = audit.positions.progress_of(MIRROR)
    source.offset = 1
    ask()
    audit.round(60)
    assert audit.round(60) == [], "it has not come to the last record"
    source.offset, source.end = 7, 2
    ask()
    assert audit.round(60) == [], "an offset beyond the end is of another topic of that name"
    source.offset = 2
    ask()
    source.answers = False
    ask()
    assert verdicts(audit.round(60)) == {1: "missing"}, "what was committed still holds"
    audit.positions.forget("old", "other")
    assert audit.positions.positions() == {MIRROR.id: {PLACE: 1}}
    audit.positions.forget("old", "t")
    assert audit.positions.positions() == {MIRROR.id: {}}
