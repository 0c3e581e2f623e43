"""Thousands of partitions are read in seconds, and a broker that dies ends in an answer, not in a wait."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import TopicPartition
from kafka.admin import NewTopic
from pyspark.sql import SparkSession

from loosehanger.errors import UnreachableError
from loosehanger.kafka.cluster import Cluster, partitions_of
from loosehanger.lab.kit_users import PROVER
from loosehanger.proof import flow_comparer, scratch, snapshot
from loosehanger.proof.compare.comparison import compare
from loosehanger.proof.proof import Proof
from loosehanger.proof.read import batches, fetching
from loosehanger.proof.read.external import two_clusters, wait_for_arrival
from loosehanger.proof.session import SILENT_S
from loosehanger.proof.verdict import judge

from .broker import Broker, running
from .test_fetching import librdkafka

pytestmark = pytest.mark.lab

WAIT_S = 240
EACH = 2
"""Records in each partition."""


# The same with fewer partitions runs every time.
@pytest.fixture(scope="module", params=[150, pytest.param(2100, marks=pytest.mark.slow)])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """One with a topic of many partitions, and its copy."""
    count: int = request.param
    with running(tmp_path_factory.mktemp("broker")) as found:
        client = found.admin()
        for name in ("many", "old.many"):
            client.create_topics([NewTopic(name, count, 1)], timeout_ms=WAIT_S * 1000)
            client.wait_for_topics([name], timeout_ms=WAIT_S * 1000)
        client.close()
        writer, begin = Producer(librdkafka(found)), time.time_ns() // 1_000_000 - 60_000
        for number in range(EACH):
            for partition in range(count):
                for name in ("many", "old.many"):
                    stamp = begin + number
                    writer.produce(name, b"%d" % number, b"%d" % partition, partition, timestamp=stamp)
        assert writer.flush(WAIT_S) == 0
        yield found, count


def test_the_last_records_of_many_partitions_are_found(broker: tuple[Broker, int]) -> None:
    found, count = broker
    places = partitions_of({"many": count})
    with closing(Cluster("here", found.connection())) as cluster:
        began = time.monotonic()
        assert cluster.last_records(dict.fromkeys(places, (0, EACH)), WAIT_S) == (dict.fromkeys(places, EACH - 1), {})
        print(f"{count} partitions: {time.monotonic() - began:.1f} s")


@pytest.mark.parametrize("most", [None, 1], ids=["in memory", "in a file"])
def test_many_partitions_are_proved(
    broker: tuple[Broker, int], spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, most: int | None
) -> None:
    found, count = broker
    if most:
        monkeypatch.setattr(fetching, "_MOST_OFFSETS", most)
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    admin = found.properties("admin")
    lab = two_clusters(admin, admin, "many", "default", "old")
    began = time.monotonic()
    document = judge(Proof(lab, lambda _: spark, WAIT_S, 5, lambda _: None).run(), lab.scenario, 1.0)
    print(f"{count} partitions: {time.monotonic() - began:.1f} s")
    assert document["verdict"] == "proved", document["reasons"]
    assert [flow["source_records"] for flow in document["flows"]] == [EACH * count]


@pytest.mark.parametrize("broker", [150], indirect=True)
def test_a_broker_that_dies_is_not_waited_for_partition_by_partition(broker: tuple[Broker, int]) -> None:
    found, count = broker
    admin = found.properties("admin")
    lab = two_clusters(admin, admin, "many", "default", "old")
    (mirror,) = lab.mirrors
    clusters = {name: Cluster.of(region, PROVER) for name, region in lab.regions.items()}
    wanted = dict.fromkeys(partitions_of({"many": count}), EACH - 1)
    assert clusters["source"].topics()
    os.kill(found.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(UnreachableError):
            wait_for_arrival(mirror, clusters, wanted, 5, lambda _: None)
        for _ in range(10):
            with pytest.raises(UnreachableError):
                clusters["source"].end_offsets([TopicPartition("many", 0)])
        took = time.monotonic() - began
        print(f"silent for {took:.1f} s")
        # Twelve questions, each of which would wait for the whole of its time.
        assert took < 12 * 15
    finally:
        os.kill(found.pid, signal.SIGCONT)
        for cluster in clusters.values():
            cluster.close()


@pytest.mark.slow
@pytest.mark.parametrize("broker", [150], indirect=True)
def test_a_broker_that_falls_silent_while_spark_reads_is_named(
    broker: tuple[Broker, int], spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    found, _ = broker
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    # So few records would be read before Spark reads.
    monkeypatch.setattr(snapshot.OffsetSnapshot, "fetch", lambda frozen: frozen)
    monkeypatch.setattr(batches, "takes_files", lambda _: False)
    stopped: list[float] = []

    def silent(*arguments: Any) -> Any:
        if not stopped:
            stopped.append(time.monotonic())
            os.kill(found.pid, signal.SIGSTOP)
        return compare(*arguments)

    monkeypatch.setattr(flow_comparer, "compare", silent)
    admin = found.properties("admin")
    lab = two_clusters(admin, admin, "many", "default", "old")
    spark.conf.set(SILENT_S, "20")
    try:
        evidence = Proof(lab, lambda _: spark, 20, 5, lambda _: None).run()
        print(f"ended {time.monotonic() - stopped[0]:.1f} s after the broker fell silent, with --timeout 20")
    finally:
        os.kill(found.pid, signal.SIGCONT)
        spark.conf.unset(SILENT_S)
    document = judge(evidence, lab.scenario, 1.0)
    assert document["verdict"] == "inconclusive"
    assert sorted(document["reasons"])[0].startswith("source: the cluster does not answer")
