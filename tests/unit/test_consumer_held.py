"""A reader whose records are kept by an open transaction says so, once, and not for a transaction in passing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from loosehanger.events import open_transactions as module
from loosehanger.events.open_transactions import OpenTransactions
from loosehanger.kafka import clients
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.transactions import Held, Holder

ORDERS, STOCK = TopicPartition("LH.ORDERS", 0), TopicPartition("LH.STOCK", 1)
SAID = (
    "LH.ORDERS-0: up to 1,005 records are behind the last stable offset 1, held by transaction 'till-7' of producer 5, "
    "open for 1.3 min (timeout 15.0 min); they are not shown while it is open"
)


class World:
    """What is held back at each look; time passes only while a caller waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.looks: list[set[TopicPartition]] = []
        self.held: list[Held] = []
        self.lines: list[str] = []
        self.away = False
        monkeypatch.setattr(module, "time", self)
        monkeypatch.setattr(clients, "KafkaAdminClient", lambda **_: self)
        monkeypatch.setattr(module, "held_back", self.look)
        self.open = OpenTransactions(Connection(("x:1",)), self.lines.append)

    def look(self, _: Any, partitions: Collection[TopicPartition], __: str | None) -> list[Held]:
        if self.away:
            raise KafkaTimeoutError
        self.looks.append(set(partitions))
        return [one for one in self.held if TopicPartition(one.topic, one.partition) in partitions]

    def close(self) -> None:
        """Nothing is open."""

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(monkeypatch)
    found.held = [Held("LH.ORDERS", 0, 1, 1006, Holder(5, "till-7", 78.0, 900.0))]
    return found


def test_a_follower_that_stands_still_says_once_what_keeps_its_records(world: World) -> None:
    for passed in (0, 5, 29):
        world.open.follow({ORDERS: 1, STOCK: passed}, 1000.0 + passed)
    assert (world.lines, world.looks) == ([], []), "nothing is asked for half a minute"
    for passed in (30, 35, 90, 150):
        world.open.follow({ORDERS: 1, STOCK: passed}, 1000.0 + passed)
    assert (world.lines, world.looks) == ([SAID], [{ORDERS}])


def test_a_follower_that_is_only_slow_says_nothing(world: World) -> None:
    world.held = []
    for passed in range(0, 120, 5):
        world.open.follow({ORDERS: 1}, 1000.0 + passed)
    assert world.lines == []
    assert len(world.looks) == 3, "it looks again after the same time"


def test_a_reader_that_ends_says_what_it_could_not_read(world: World) -> None:
    world.open.at_the_end([ORDERS, STOCK])
    assert (world.lines, world.now) == ([SAID], 1000.0)


def test_a_transaction_in_passing_is_no_reason_to_say_anything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.held = [Held("LH.ORDERS", 0, 1, 6, Holder(5))]

    def pass_by(seconds: float) -> None:
        world.now += seconds
        world.held = [Held("LH.ORDERS", 0, round(world.now), 2000, Holder(5))]

    monkeypatch.setattr(world, "sleep", pass_by)
    world.open.at_the_end([ORDERS])
    assert (world.lines, world.now) == ([], 1005.0), "one follows the other"


def test_one_of_unknown_age_is_watched_for_a_moment(world: World) -> None:
    world.held = [Held("LH.ORDERS", 0, 1, 6, Holder(5), "user 'x' lacks Describe on transactional ids")]
    world.open.at_the_end([ORDERS])
    (line,) = world.lines
    assert "user 'x' lacks Describe on transactional ids" in line
    assert world.now == 1005.0


def test_a_cluster_that_is_away_is_the_readers_own_matter(world: World) -> None:
    world.away = True
    world.open.at_the_end([ORDERS])
    assert world.lines == []
