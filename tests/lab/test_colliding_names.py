"""What stopped a mirror for good: a small record that is large when unpacked, and a name that collides with another.

Names collide where one has a dot and the other an underscore: both would be one in Kafka's metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaProducer

from loosehanger.kafka.connection import connection_for
from scripts.sandbox import Kit, copy_kit
from tests.three_files import NAME, write_scenario

from .conftest import admin, wait_until
from .faults import count
from .test_console import signed_in

pytestmark = pytest.mark.lab

BOUND_S = 420
"""Generous: what is waited for takes a minute where nothing else runs."""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """One mirror from Europe to North America, with a producer that writes all the time."""
    kit = copy_kit(tmp_path_factory.mktemp("colliding"), port_base=31000)
    write_scenario(kit.root)
    # Kafka's default for this is a minute, and only then does a position show what was delivered.
    manifest = kit.root / "playbooks" / NAME / "manifests" / "everything.yaml"
    text = manifest.read_text(encoding="utf-8")
    before = "status.storage.partitions: 1\n"
    assert before in text
    manifest.write_text(text.replace(before, before + "      offset.flush.interval.ms: 1000\n"), encoding="utf-8")
    try:
        done = kit.run("setup", NAME, "-e", "producer_rate=20", timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
    finally:
        done = kit.run("cleanup", timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr


def mirror(kit: Kit) -> tuple[int, dict[str, Any]]:
    """What ``./lab status`` ends with, and what it says of the mirror."""
    done = kit.run("status", "--json", timeout=600)
    resources = json.loads(done.stdout)["regions"]["north-america"]
    return done.returncode, next(found for found in resources if found["kind"] == "KafkaMirrorMaker2")


def test_a_megabyte_that_is_packed_into_a_kilobyte_is_copied(one: Kit) -> None:
    topic, value = "LH.PACKED", bytes(1_200_000)
    source = admin(one, "europe")
    source.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    source.close()
    connection = connection_for(one.lab.region("europe"), "producer").kafka_python()
    packed = {"compression_type": "gzip", "max_request_size": 2_000_000, "enable_idempotence": False}
    with KafkaProducer(**connection, **packed) as producer:
        producer.send(topic, value, partition=0).get(timeout=120)
    wait_until(lambda: count(one, "north-america", f"europe.{topic}") == 1, BOUND_S, "the record's copy")
    wait_until(lambda: mirror(one)[0] == 0, BOUND_S, "a mirror that runs")


def test_a_mirror_that_waits_for_a_topic_it_cannot_make_is_not_running(one: Kit) -> None:
    wait_until(lambda: mirror(one)[0] == 0, BOUND_S, "a lab that is healthy")
    source, target = admin(one, "europe"), admin(one, "north-america")
    topic = {"num_partitions": 1, "replication_factor": 1}
    target.create_topics({"europe.LH.met_ric": topic})
    source.create_topics({"LH.met.ric": topic})
    with KafkaProducer(**connection_for(one.lab.region("europe"), "admin").kafka_python()) as producer:
        producer.send("LH.met.ric", b"21.5").get(timeout=60)

    def stalled() -> bool:
        code, found = mirror(one)
        causes = ("collides with", "no record was delivered for")
        return code == 1 and found["state"] == "Stalled" and all(cause in found["detail"] for cause in causes)

    wait_until(stalled, BOUND_S, "a mirror that is shown as stalled, with the cause")
    browser = signed_in(one, "control-room")

    def shown() -> bool:
        (found,) = browser.get("/api/mirrors").json()["mirrors"]
        return found["health"] == "bad" and "no record was delivered for" in found["explanation"]

    wait_until(shown, BOUND_S, "the same in the control room")
    # The mirror makes its own topic once the other one is gone.
    target.delete_topics(["europe.LH.met_ric"])
    wait_until(lambda: mirror(one)[0] == 0, BOUND_S, "a mirror that has caught up")
    source.close()
    target.close()
