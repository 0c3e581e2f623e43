"""What is known of open transactions: how much they hold back, which one, and why something of it is not known."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import IsolationLevel, TopicPartition
from kafka.errors import (
    CoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
)

from loosehanger.kafka.transactions import Held, Holder, held_back

ORDERS, STOCK = TopicPartition("orders", 0), TopicPartition("stock", 1)


class Brokers:
    """An admin client, as far as it is asked: ``till-7`` of producer 5 holds orders back, for 78 s by now."""

    def __init__(self, **errors: Exception) -> None:
        self.stable = {ORDERS: 1, STOCK: 40}
        self.ends = {ORDERS: 1006, STOCK: 40}
        self.errors = errors
        self.begun = {ORDERS: [(9, 700), (5, 1), (3, -1)]}
        self.listed = {5: "till-7"}
        self.asked: list[str] = []

    def _answer(self, name: str) -> None:
        self.asked.append(name)
        if name in self.errors:
            raise self.errors[name]

    def list_partition_offsets(
        self, specs: Mapping[TopicPartition, Any], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, Any]:
        found = self.stable if isolation_level is IsolationLevel.READ_COMMITTED else self.ends
        return {place: SimpleNamespace(offset=found[place]) for place in specs}

    def describe_producers(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Any]:
        for topic in {place.topic for place in places}:
            self._answer(f"producers_{topic}")
        self._answer("producers")
        return {
            place: SimpleNamespace(
                active_producers=[
                    SimpleNamespace(producer_id=producer, current_transaction_start_offset=start)
                    for producer, start in self.begun.get(place, ())
                ]
            )
            for place in places
        }

    def list_transactions(self, producer_id_filters: Iterable[int]) -> dict[int, list[Any]]:
        self._answer("list")
        return {
            1: [],
            2: [
                SimpleNamespace(producer_id=producer, transactional_id=self.listed[producer])
                for producer in producer_id_filters
                if producer in self.listed
            ],
        }

    def describe_transactions(self, names: Collection[str]) -> dict[str, Any]:
        if any(name not in self.listed.values() for name in names):
            self._answer("probe")
        begun_ms = (time.time() - 78) * 1000
        return {
            name: SimpleNamespace(transaction_start_time_ms=begun_ms, transaction_timeout_ms=900_000) for name in names
        }


def look(brokers: Brokers) -> list[Held]:
    """What is held back, as the user ``prover`` sees it."""
    return held_back(brokers, [ORDERS, STOCK], "prover")


def test_the_oldest_open_transaction_of_a_partition_is_named() -> None:
    (held,) = look(Brokers())
    assert (held.topic, held.partition, held.stable, held.end, held.offsets) == ("orders", 0, 1, 1006, 1005)
    assert str(held) == (
        "orders-0: up to 1,005 records are behind the last stable offset 1, held by transaction 'till-7' of producer "
        "5, open for 1.3 min (timeout 15.0 min)"
    )
    assert held.overdue


def test_where_nothing_is_held_back_no_transaction_is_asked_for() -> None:
    brokers = Brokers()
    brokers.stable[ORDERS] = 1006
    assert (look(brokers), brokers.asked) == ([], [])


def test_an_offset_to_reach_takes_the_place_of_the_high_watermark() -> None:
    assert held_back(Brokers(), [ORDERS], "prover", {ORDERS: 1}) == []
    (held,) = held_back(Brokers(), [ORDERS], "prover", {ORDERS: 6})
    assert held.offsets == 5


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ({"producers": IncompatibleBrokerVersion()}, "the brokers are too old to name the transaction"),
        ({"producers_orders": TopicAuthorizationFailedError()}, "user 'prover' lacks Read on topic orders"),
        (
            {"producers": CoordinatorNotAvailableError()},
            "the transaction cannot be named (CoordinatorNotAvailableError)",
        ),
        (
            {"list": IncompatibleBrokerVersion()},
            "held by a transaction of producer 5; the brokers are too old to name the transaction",
        ),
    ],
)
def test_the_number_is_there_also_where_nothing_names_the_transaction(errors: dict[str, Exception], said: str) -> None:
    (held,) = look(Brokers(**errors))
    assert (held.offsets, held.by, held.overdue) == (1005, said, False)


def test_a_right_that_is_missing_is_told_from_a_transaction_that_never_ends() -> None:
    brokers = Brokers(probe=TransactionalIdAuthorizationFailedError())
    brokers.listed = {}
    (held,) = look(brokers)
    assert held.by == "held by a transaction of producer 5; user 'prover' lacks Describe on transactional ids"
    assert not held.overdue
    brokers.errors["probe"] = TransactionalIdNotFoundError()
    (held,) = look(brokers)
    assert held.by.endswith("it never ends; abort it with kafka-transactions.sh abort")
    assert held.overdue


def test_a_topic_that_may_not_be_read_hides_no_other_transaction() -> None:
    brokers = Brokers(producers_stock=TopicAuthorizationFailedError())
    brokers.ends[STOCK] = 50
    orders, stock = look(brokers)
    assert orders.holder is not None
    assert orders.holder.transactional_id == "till-7"
    assert (stock.holder, stock.by) == (None, "user 'prover' lacks Read on topic stock")


@pytest.mark.parametrize(
    ("age_s", "timeout_s", "overdue"),
    [(29, 900, False), (30, 900, True), (12, 10, True), (9, 10, False), (None, 10, False)],
)
def test_a_transaction_is_overdue_after_30_seconds_or_past_its_own_timeout(
    age_s: float | None, timeout_s: float, overdue: bool
) -> None:
    assert Held("orders", 0, 1, 2, Holder(5, "till-7", age_s, timeout_s)).overdue is overdue
