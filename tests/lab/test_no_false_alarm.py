"""Proofs in a row, while events are written, workers are killed and a topic grows: none of them sees a fault."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from tempfile import TemporaryFile
from typing import Any

import pytest
from kafka import KafkaProducer

from loosehanger.kafka.connection import connection_for
from scripts.sandbox import Kit

from .conftest import admin, processes, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PROOFS = 20
TOPIC = "LH.GROWING"
RECORDS = 50
WORKER = "ConnectDistributed"
COMPARING = "reading and comparing"


@pytest.fixture
def growing(kit: Kit) -> Iterator[None]:
    """A topic of one partition in Europe, deleted everywhere in the end."""
    client = admin(kit, "europe")
    client.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}})
    client.close()
    try:
        yield
    finally:
        for region in kit.lab.regions:
            client = admin(kit, region)
            client.delete_topics([topic for topic in client.list_topics() if topic == TOPIC])
            client.close()


def partitions(kit: Kit, region: str) -> int:
    """How many partitions the topic has in a region."""
    client = admin(kit, region)
    try:
        return sum(len(topic["partitions"]) for topic in client.describe_topics([TOPIC]))
    finally:
        client.close()


def grow(kit: Kit) -> None:
    """Adds a partition in Europe, and writes to all that are there by then."""
    count = partitions(kit, "europe") + 1
    client = admin(kit, "europe")
    client.create_partitions({TOPIC: count})
    client.close()
    with KafkaProducer(**connection_for(kit.lab.region("europe"), "admin").kafka_python()) as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, b"event %d" % number, key=b"%d" % number, partition=number % count)


def kill_worker(kit: Kit, region: str) -> None:
    """Kills a region's mirror worker; the process manager has to start it again."""
    (worker,) = processes(kit, region, WORKER)
    worker.kill()


def prove(kit: Kit, at_once: Callable[[], object], while_comparing: Callable[[], object]) -> tuple[int, dict[str, Any]]:
    """A proof, with something that happens as it begins, and something when it begins to read."""
    with (
        TemporaryFile("w+") as output,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "loosehanger.cli", "prove", "--json", "--timeout", "180"],
            cwd=kit.root,
            env=kit.variables(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr
        try:
            at_once()
            for line in process.stderr:
                if COMPARING in line:
                    while_comparing()
            code = process.wait(timeout=60)
        finally:
            process.kill()
        output.seek(0)
        return code, json.load(output)


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("growing")
def test_twenty_proofs_in_a_row_raise_no_false_alarm(kit: Kit) -> None:
    def nothing() -> None:
        pass

    disturbances: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (lambda: kill_worker(kit, "north-america"), nothing),
        (lambda: grow(kit), nothing),
        (nothing, lambda: kill_worker(kit, "south-america")),
        (lambda: kill_worker(kit, "south-america"), lambda: grow(kit)),
    ]
    records = 0
    for number in range(PROOFS):
        code, document = prove(kit, *disturbances[number % len(disturbances)])
        assert (code, document["verdict"]) == (0, "proved"), (number, document)
        assert document["totals"]["source_records"] > records
        records = document["totals"]["source_records"]
        wait_until(lambda: all(processes(kit, r, WORKER) for r in ("north-america", "south-america")), 60, "workers")
    grown = partitions(kit, "europe")
    assert grown == 1 + PROOFS // 2
    for region in ("north-america", "south-america"):
        wait_until(lambda r=region: partitions(kit, r) == grown, 60, f"{grown} partitions in {region}")  # type: ignore[misc]
