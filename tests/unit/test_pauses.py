"""What ``pauses.py`` of 13-rolling counts: pauses, losses and duplicates, with a stand-in for the consumer."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from loosehanger.errors import LabError
from loosehanger.paths import ROOT

PROGRAM = runpy.run_path(str(ROOT / "playbooks/13-rolling/pauses.py"))
Watched = PROGRAM["Watched"]
PARTITION = TopicPartition("LH.ORDERS", 0)


def counted(*records: tuple[str, int, float, float]) -> Any:
    """A partition that received records: run, number, when they were written, and when they arrived."""
    watched = Watched()
    for record in records:
        watched.take(*record)
    return watched


def test_the_longest_pause_and_the_greatest_age_are_kept() -> None:
    found = counted(
        ("a", 7, 1.0, 1.1), ("a", 8, 2.0, 2.1), ("a", 9, 2.05, 9.0), ("a", 10, 3.0, 9.0), ("a", 11, 30.0, 30.2)
    )
    assert (found.records, found.lost, found.duplicates) == (5, 0, 0)
    assert found.longest_pause_s == pytest.approx(6.9), "where nothing was written, nothing paused"
    assert found.oldest_s == pytest.approx(6.95)
    assert found.has_seen(29.9)
    assert not found.has_seen(30.0)


def test_what_is_lost_and_what_came_twice_is_counted_by_run() -> None:
    def arrive(*numbers: int, run: str = "a") -> list[tuple[str, int, float, float]]:
        return [(run, number, 1.0, 1.0) for number in numbers]

    again = counted(*arrive(5, 6, 7, 6, 7, 8), *arrive(1, 2, run="b"))
    assert (again.lost, again.duplicates) == (0, 2)
    gap = counted(*arrive(5, 8, 9))
    assert (gap.lost, gap.duplicates) == (2, 0)


class Consumer:
    """A consumer that gets these batches of one partition: each record's number, and when it was written."""

    def __init__(self, *batches: list[tuple[int, int]]) -> None:
        self._batches = iter(batches)

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0, 1}

    def assign(self, partitions: list[TopicPartition]) -> None:
        assert len(partitions) == 2

    def seek_to_end(self) -> None:
        """Nothing was written before."""

    def position(self, _: TopicPartition) -> int:
        return 0

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        assert timeout_ms
        return {
            PARTITION: [
                SimpleNamespace(headers=[("lh-run", b"a"), ("lh-seq", str(number).encode())], timestamp=seconds * 1000)
                for number, seconds in next(self._batches, [])
            ]
        }


LATER = 4_000_000_000
"""Seconds since the epoch, after any command of today."""


def test_a_command_is_watched_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAM["watch"].__globals__, "FIRST_S", 0.3)
    found = PROGRAM["watch"](Consumer([(1, 1), (2, 2)], [(3, 3)], [(3, 3), (6, LATER)]), ["LH.ORDERS"], lambda: 3, 5.0)
    assert found["exit_code"] == 3
    (one,) = found["partitions"]
    assert (one["partition"], one["records"]) == ("LH.ORDERS-0", 5), "a partition without events is left out"
    assert (found["lost"], found["duplicates"]) == (one["lost"], one["duplicates"]) == (2, 1)


def test_copies_that_do_not_go_on_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAM["watch"].__globals__, "FIRST_S", 0.3)
    with pytest.raises(LabError, match=r"no record of LH.ORDERS-0 for 0 s after the command; see ./lab status"):
        PROGRAM["watch"](Consumer([(1, 1)]), ["LH.ORDERS"], lambda: 0, 0.2)
    with pytest.raises(LabError, match="no record arrived within"):
        PROGRAM["watch"](Consumer(), ["LH.ORDERS"], lambda: 0, 0.2)
