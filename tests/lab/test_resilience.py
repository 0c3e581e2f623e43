"""Killed workers and brokers come back by themselves, and nothing is lost or doubled on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from loosehanger.kafka.connection import connection_for
from scripts.sandbox import Kit

from .conftest import admin, processes, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

EVENTS = 30_000


def kill(kit: Kit, region: str, what: str) -> None:
    """Kills a region's process, and waits until another one has taken its place."""
    (victim,) = processes(kit, region, what)
    victim.kill()
    wait_until(
        lambda: any(process.pid != victim.pid for process in processes(kit, region, what)),
        30,
        f"a new {what} in {region}",
    )


def healthy(kit: Kit) -> bool:
    """Whether everything in the lab is."""
    return kit.run("status").returncode == 0


def test_killed_workers_and_brokers_under_load_lose_and_double_nothing(kit: Kit) -> None:
    europe = kit.lab.region("europe")
    load = subprocess.Popen(
        [
            *(sys.executable, "-m", "producer", "--config", str(europe.clients["producer"])),
            *("--events", str(EVENTS), "--rate", "1000", "--origin", "europe"),
        ],
        cwd=kit.root,
        env=kit.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        kill(kit, "north-america", "ConnectDistributed")
        kill(kit, "europe", "kafka.Kafka")
        wait_until(lambda: healthy(kit), 90, "a healthy lab")
        kill(kit, "south-america", "kafka.Kafka")
        wait_until(lambda: healthy(kit), 90, "a healthy lab")
        kill(kit, "south-america", "ConnectDistributed")
        output, _ = load.communicate(timeout=180)
    finally:
        load.kill()
    assert load.returncode == 0, output
    wait_until(lambda: healthy(kit), 90, "a healthy lab")
    done = kit.run("prove", "--json", "--timeout", "120")
    document = json.loads(done.stdout)
    assert done.returncode == 0, document
    faults = ("missing", "duplicates", "reordered", "unexpected", "altered")
    assert {fault: document["totals"][fault] for fault in faults} == dict.fromkeys(faults, 0)
    assert document["totals"]["source_records"] >= 2 * EVENTS


def test_a_failed_task_is_started_again(kit: Kit) -> None:
    # A connector that may not write fails; as soon as it may again, the platform restarts it.
    users = kit.manifest("users-south-america.yaml")
    text = users.read_text()
    log = kit.home / "regions" / "south-america" / "logs" / "mm2-sa-auto-restart.log"
    before = log.read_text() if log.exists() else ""
    try:
        users.write_text(
            text.replace("operations: [Create, Write, Alter, AlterConfigs]", "operations: [Create, Alter]")
        )
        assert "Write, Alter" not in users.read_text().split("__mm2_sa_")[1].split("consumer-")[0]
        kit.setup()
        wait_until(lambda: _log(log) != before, 90, "a restart of the failed task")
    finally:
        users.write_text(text)
    kit.setup()
    wait_until(lambda: healthy(kit), 90, "a healthy lab")


def test_a_frozen_consumer_is_named_with_what_ends_that(kit: Kit) -> None:
    """Before its group misses it, which happens after its session timeout; when it goes on, it reads again."""

    def consumer() -> dict[str, Any]:
        europe = json.loads(kit.run("status", "--json").stdout)["regions"]["europe"]
        (found,) = (resource for resource in europe if resource["name"] == "consumer-europe")
        return dict(found)

    assert "reads" in consumer()["detail"]
    (process,) = processes(kit, "europe", "consumers")
    process.suspend()
    try:
        found = consumer()
        assert found["state"] == "Down"
        assert f"kill -CONT {process.pid} resumes it" in found["detail"]
    finally:
        process.resume()
    wait_until(lambda: consumer()["state"] == "Running", 60, "a consumer that reads")


def test_a_record_that_the_mirrors_refuse_is_told_as_long_as_they_try(kit: Kit) -> None:
    """Ten megabytes are too much for a mirror's producer, whatever the topic allows."""
    topic = "LH.LARGE"
    regions = ("europe", "north-america", "south-america")

    def mirrors() -> dict[str, dict[str, Any]]:
        regions_ = json.loads(kit.run("status", "--json").stdout)["regions"].values()
        return {r["name"]: r for region in regions_ for r in region if r["kind"] == "KafkaMirrorMaker2"}

    def reported(mirror: dict[str, Any]) -> bool:
        return not mirror["healthy"] and "RecordTooLargeException: The message is 100000" in mirror["detail"]

    clients = {region: admin(kit, region) for region in regions}
    try:
        configuration = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "20000000"}}
        clients["europe"].create_topics({topic: configuration})
        connection = connection_for(kit.lab.region("europe"), "producer").kafka_python()
        producer = KafkaProducer(**connection, max_request_size=20_000_000, enable_idempotence=False)
        producer.send(topic, bytes(10_000_000)).get(timeout=60)
        producer.close(timeout=5)
        wait_until(lambda: all(reported(mirror) for mirror in mirrors().values()), 150, "the mirrors' failure")
        # From attempt to attempt, whatever state the task is in.
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found = mirrors()
            assert all(reported(mirror) for mirror in found.values()), found
            assert set(found) == {"mm2-na", "mm2-sa"}
    finally:
        for client in clients.values():
            client.delete_topics([name for name in client.list_topics() if name == topic])
            client.close()
    wait_until(lambda: healthy(kit), 150, "a healthy lab")


def _log(path: Path) -> str:
    return path.read_text() if path.exists() else ""
