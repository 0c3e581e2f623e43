"""How long Spark's consumers wait for a broker that falls silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from loosehanger.kafka.connection import Connection
from loosehanger.proof.read.batches import read_records
from loosehanger.proof.session import SILENT_S

MIB = 1024 * 1024


def options_of(silent_s: float | None, **own: str) -> dict[str, str]:
    """What a reading gives Spark's connector, in a session with this bound."""
    given: dict[str, str] = {}

    class Reader:
        def format(self, name: str) -> Reader:
            assert name == "kafka"
            return self

        def options(self, **named: str) -> Reader:
            given.update(named)
            return self

        def option(self, name: str, value: str) -> Reader:
            given[name] = value
            return self

        def load(self) -> Any:
            return SimpleNamespace(select=lambda *_: None)

    settings = {} if silent_s is None else {SILENT_S: str(silent_s)}
    spark: Any = SimpleNamespace(
        read=Reader(), conf=SimpleNamespace(get=settings.get), sparkContext=SimpleNamespace(master="yarn")
    )
    read_records(spark, Connection(("x:1",)), {TopicPartition("a", 0): (0, 10)}, **own)
    return given


@pytest.mark.parametrize(
    ("bound", "wait_s"), [(0.0, 10), (3.0, 10), (20.0, 10), (40.0, 20), (60.0, 30), (3600.0, 30), (float("inf"), 30)]
)
def test_a_silent_broker_is_waited_for_within_the_bound(bound: float, wait_s: int) -> None:
    given = options_of(bound)
    waits = ("kafkaConsumer.pollTimeoutMs", "kafka.default.api.timeout.ms", "kafka.request.timeout.ms")
    assert {name: given[name] for name in waits} == dict.fromkeys(waits, str(wait_s * 1000))
    # Any link that is quick enough for the longest wait is quick enough for a shorter one.
    rate = int(given["kafka.max.partition.fetch.bytes"]) / wait_s
    assert rate == pytest.approx(8 * MIB / 30, rel=0.001)


def test_without_a_bound_the_consumers_keep_their_own() -> None:
    given = options_of(None)
    assert (given["kafkaConsumer.pollTimeoutMs"], given["kafka.max.partition.fetch.bytes"]) == ("30000", str(8 * MIB))
    assert "kafka.default.api.timeout.ms" not in given
    # A reading that has one of its own, as the watch has, keeps it.
    assert options_of(20, **{"kafkaConsumer.pollTimeoutMs": "500"})["kafkaConsumer.pollTimeoutMs"] == "500"
