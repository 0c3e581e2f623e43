"""The proof beside a transaction that its producer has abandoned: it waits, and says what it cannot judge.

Source and target are one broker here, where the copies of ``orders`` are in ``old.orders``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from loosehanger.proof.proof import Proof
from loosehanger.proof.read.external import two_clusters
from loosehanger.proof.run import Report
from loosehanger.proof.verdict import judge

from .broker import Broker, running
from .hanging import BEHIND, abandon, held, write

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


def prove(
    broker: Broker,
    spark: SparkSession,
    topic: str,
    timeout_s: float,
    report: Report = lambda _: None,
) -> dict[str, Any]:
    """The proof's document."""
    properties = broker.properties("admin")
    lab = two_clusters(properties, properties, topic, "default", "old")
    return judge(Proof(lab, lambda _: spark, timeout_s, 5, report).run(), lab.scenario, 1.0)


def test_the_proof_is_inconclusive_while_a_transaction_holds_records_back(broker: Broker, spark: SparkSession) -> None:
    producer = held(broker, "orders")
    document = prove(broker, spark, "orders", 20)
    assert document["verdict"] == "inconclusive"
    (reason,) = document["reasons"]
    assert reason.startswith(
        "orders, source → target: in source, up to 1,005 records of partition 0 are behind the last stable offset 1, "
        "where no consumer of committed records sees them: held by transaction 'till-orders' of producer "
    )
    assert [flow["source_records"] for flow in document["flows"]] == [1], "what can be read is compared all the same"
    # Once it has ended, what was behind it counts: it was written before the cut.
    waited: list[str] = []

    def end(line: str) -> None:
        if line.startswith("waiting for an open transaction: source: orders-0: ") and not waited:
            waited.append(line)
            producer.abort_transaction(60)
            write(broker.connection(), "old.orders", *range(1, BEHIND + 1))

    document = prove(broker, spark, "orders", 120, report=end)
    assert len(waited) == 1
    assert (document["verdict"], document["flows"][0]["source_records"]) == ("proved", 1 + BEHIND)


def test_what_a_transaction_hides_at_the_target_is_not_missing(broker: Broker, spark: SparkSession) -> None:
    producer = held(broker, "target")
    producer.abort_transaction(60)
    other = abandon(broker.connection(), "old.target", "till-other")
    write(broker.connection(), "old.target", *range(1, BEHIND + 1))
    document = prove(broker, spark, "target", 20)
    assert document["verdict"] == "inconclusive"
    assert "in target, up to 1,005 records of partition 0 are behind the last stable offset 1" in document["reasons"][0]
    other.abort_transaction(60)
    assert prove(broker, spark, "target", 60)["verdict"] == "proved"
