"""Among a million records every fault is found, counted exactly and named; by a Spark cluster as well."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import requests
from confluent_kafka import Producer
from kafka.admin import KafkaAdminClient

from loosehanger.kafka.connection import connection_for
from loosehanger.proof.submit import environment
from scripts.bench.mirroring import librdkafka
from scripts.sandbox import Kit

from .conftest import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TOPIC = "BULK"
RECORDS = 1_000_000
PARTITIONS = 3
STEP_MS = 1
"""Between the timestamps of two records; a million of them lie in a hundred buckets of time."""
FAULTS = {"missing": 5, "duplicates": 4, "altered": 3, "unexpected": 2, "moved": 2, "reordered": 1}

Numbered = tuple[int, bytes, int]
"""A record's number, which gives key and timestamp; its value; its partition."""


def produce(kit: Kit, region: str, records: Iterator[Numbered], begin: int) -> None:
    """Writes records as quickly as may be."""
    producer = Producer(
        librdkafka(kit, region) | {"linger.ms": 50, "enable.idempotence": True, "queue.buffering.max.messages": 500_000}
    )
    for number, value, partition in records:
        while True:
            try:
                producer.produce(TOPIC, value, b"%d" % number, partition, timestamp=begin + number * STEP_MS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def originals() -> Iterator[Numbered]:
    """What the source holds."""
    filling = b"." * 250
    for number in range(RECORDS):
        yield number, b"%d%b" % (number, filling), number % PARTITIONS


def tampered() -> Iterator[Numbered]:
    """What a bad mirror would have made of it: ``FAULTS``, far from each other."""
    held: Numbered | None = None
    for number, value, partition in originals():
        match number:
            case 100_000 | 200_000 | 300_000 | 400_000 | 999_999:
                continue
            case 150_000 | 250_000:
                yield number, value, partition
                yield number, value, partition
            case 350_000:
                yield from [(number, value, partition)] * 3
            case 50_000 | 450_000 | 550_000:
                yield number, b"changed", partition
            case 600_000 | 700_000:
                yield number, value, partition
                yield RECORDS + number, b"nobody wrote this", partition
            case 650_000 | 750_000:
                yield number, value, (partition + 1) % PARTITIONS
            case 800_000:
                # The next one of the same partition comes first.
                held = number, value, partition
            case 800_003:
                yield number, value, partition
                assert held
                yield held
            case _:
                yield number, value, partition


@pytest.fixture(scope="module")
def bulk(kit: Kit) -> Iterator[tuple[str, ...]]:
    """A topic on both sides; the arguments that compare them."""
    begin = int(time.time() * 1000) - RECORDS * STEP_MS
    for region in ("europe", "north-america"):
        admin = KafkaAdminClient(**connection_for(kit.lab.region(region), "admin").kafka_python())
        admin.create_topics({TOPIC: {"num_partitions": PARTITIONS, "replication_factor": 1}})
        admin.close()
    produce(kit, "europe", originals(), begin)
    produce(kit, "north-america", tampered(), begin)
    files = [str(kit.lab.region(region).clients["admin"]) for region in ("europe", "north-america")]
    yield "--source-config", files[0], "--target-config", files[1], "--topics", TOPIC, "--timeout", "2"
    for region in ("europe", "north-america"):
        admin = KafkaAdminClient(**connection_for(kit.lab.region(region), "admin").kafka_python())
        admin.delete_topics([TOPIC])
        admin.close()


def check(document: dict[str, Any]) -> None:
    """Every fault is there, and nothing else."""
    (flow,) = document["flows"]
    kinds = (*FAULTS, "never_mirrored", "expired")
    assert {kind: flow[kind] for kind in kinds} == {kind: FAULTS.get(kind, 0) for kind in kinds}
    assert flow["source_records"] == RECORDS
    assert flow["target_records"] == RECORDS - 5 + 4 + 2
    shown = Counter(example["kind"] for example in flow["examples"])
    assert shown == {kind: min(number, 5) for kind, number in FAULTS.items()}
    assert {e["key"] for e in flow["examples"] if e["kind"] == "moved"} == {"650000", "750000"}


def test_every_fault_is_found_among_a_million_records(kit: Kit, bulk: tuple[str, ...]) -> None:
    done = kit.run("prove", "--json", *bulk)
    assert done.returncode == 1, done.stderr
    check(json.loads(done.stdout))


@pytest.fixture
def spark_cluster(kit: Kit, tmp_path: Path) -> Iterator[str]:
    """A standalone cluster of two workers on this machine; its address."""
    variables = environment(kit.home, "spark://", "1g", []) | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        path = tmp_path / f"{name}.log"
        with path.open("wb") as output:
            processes.append(
                subprocess.Popen(
                    [str(spark_class), *arguments],
                    env=variables | {"LAB_SPARK_LOG": str(path)},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=tmp_path,
                )
            )

    port, web = 27900, 27901
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    start("master", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web))
    for number in (1, 2):
        start(
            f"worker-{number}", f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
            "--webui-port", str(web + number), "--work-dir", str(tmp_path / f"work-{number}"), address,
        )  # fmt: skip
    try:

        def registered() -> bool:
            try:
                state = requests.get(f"http://127.0.0.1:{web}/json/", timeout=5).json()
            except requests.RequestException:
                return False
            return [worker["state"] for worker in state["workers"]] == ["ALIVE", "ALIVE"]

        wait_until(registered, 90, f"two Spark workers; see {tmp_path}")
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


def test_a_spark_cluster_of_two_workers_finds_the_same(kit: Kit, bulk: tuple[str, ...], spark_cluster: str) -> None:
    done = kit.run(
        *("prove", "--json", *bulk, "--master", spark_cluster),
        *("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"),
        timeout=400,
    )
    assert done.returncode == 1, done.stderr
    check(json.loads(done.stdout))
