"""A producer that dies in the middle of a transaction: what is behind it is hidden, and every reader says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import TopicPartition
from kafka.admin import ACLOperation

from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.retention_risk import RetentionReader, by_topic

from .broker import Broker, running
from .conftest import wait_until
from .hanging import BEHIND, OPEN, held

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


def test_the_transaction_that_holds_records_back_is_named(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = held(broker, "named")
    broker.allow("reader", "named", ACLOperation.READ)
    place = TopicPartition("named", 0)
    for user, said in (("admin", "transaction 'till-named' of producer "), ("reader", "a transaction of producer ")):
        with closing(Cluster("europe", broker.connection(user))) as cluster:
            (one,) = cluster.held_back(cluster.written_offsets([place]))
            assert (one.topic, one.partition, one.stable, one.end) == ("named", 0, 1, 1 + OPEN + BEHIND)
            assert one.by.startswith(f"held by {said}")
            if user == "admin":
                assert "(timeout 15.0 min)" in one.by
            else:
                assert one.by.endswith("; user 'reader' lacks Describe on transactional ids")
    loss_watch = RetentionReader(Cluster("europe", broker.connection()))
    monkeypatch.setattr("loosehanger.kafka.transactions.WARN_S", 0.0)
    try:
        (danger,) = by_topic(loss_watch.look({place: 0})).values()
    finally:
        loss_watch.close()
    assert danger.warnings()[0].startswith(
        "named: up to 1,005 records are behind the last stable offset and are not copied, held by transaction "
        "'till-named' of producer "
    )
    shown = subprocess.run(
        [*(sys.executable, "-m", "consumers", "--config", str(broker.properties("admin"))),
         *("--topic", "named", "--no-follow", "--json")],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert shown.stdout.count("\n") == 1
    assert "named-0: up to 1,005 records are behind the last stable offset 1, held by transaction" in shown.stderr
    producer.abort_transaction(60)
    with closing(Cluster("europe", broker.connection())) as cluster:
        # The coordinator writes its markers once it has answered.
        wait_until(lambda: not cluster.held_back(cluster.written_offsets([place])), 60, "the end of the transaction")
