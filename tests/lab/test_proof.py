"""The proof succeeds on a broadcast that works, and finds and names every kind of fault in one that does not."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from lab.sandbox import Kit

from .conftest import admin, processes, wait_until

pytestmark = pytest.mark.lab

RECORDS = 20
TOPICS = ("INTACT", "DELETED", "FOREIGN", "TWICE", "ALTERED", "REORDERED", "RECONFIGURED", "MOVED", "COMPACTED", "LATE")
FAULTS = ("missing", "never_mirrored", "duplicates", "reordered", "unexpected", "altered", "moved")


def write(
    kit: Kit, region: str, topic: str, records: list[tuple[bytes, bytes, int]], partition: int = 0, run: str = ""
) -> None:
    """Writes records (key, value, timestamp in ms) to a partition; with a run, the key is their sequence number."""
    with KafkaProducer(**kit.lab.region(region).connection("admin").kafka_python()) as producer:
        for key, value, timestamp in records:
            headers = [("lh-run", run.encode()), ("lh-seq", key)] if run else None
            sent = producer.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp, headers=headers)
            sent.get(timeout=30)


def switch(kit: Kit, action: str, state: str) -> None:
    """Pauses or resumes North America's mirror, and waits until its tasks are in that state."""
    (mirror,) = kit.lab.region("north-america").mirrors
    url = f"{mirror.connect['url']}/connectors/{quote(mirror.connector, safe='')}"
    session = requests.Session()
    session.trust_env = False  # a certificate authority of the user's own is not the lab's
    session.auth = (mirror.connect["username"], Path(mirror.connect["password_file"]).read_text())
    session.verify = mirror.connect["ca_file"]
    with session:
        session.put(f"{url}/{action}", timeout=30).raise_for_status()
        wait_until(
            lambda: {task["state"] for task in session.get(f"{url}/status", timeout=30).json()["tasks"]} == {state},
            30,
            f"tasks that are {state}",
        )


def count(kit: Kit, region: str, topic: str) -> int:
    """How many committed records a region's copy of a topic has."""
    with KafkaConsumer(
        **kit.lab.region(region).connection("prover").kafka_python(), isolation_level="read_committed"
    ) as consumer:
        partition = TopicPartition(topic, 0)
        if partition.partition not in (consumer.partitions_for_topic(topic) or ()):
            return 0
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end, records = consumer.end_offsets([partition])[partition], 0
        while consumer.position(partition) < end:
            records += sum(len(batch) for batch in consumer.poll(timeout_ms=1000).values())
        return records


def empty(kit: Kit, region: str, topic: str, before: int = -1) -> None:
    """Deletes the records before an offset (all of them by default)."""
    client = admin(kit, region)
    client.delete_records({TopicPartition(topic, 0): before})
    client.close()


def prove(kit: Kit, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Runs the proof: its exit code and its document."""
    done = kit.run("prove", "--json", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@contextmanager
def unasked(kit: Kit, region: str) -> Iterator[None]:
    """A region whose mirrors nobody can ask how far they are, as on a cluster of its own."""
    record = kit.home / "access" / f"{region}.json"
    text = record.read_text(encoding="utf-8")
    document = json.loads(text)
    mirrors = [{**mirror, "connect": {}} for mirror in document["mirrors"]]
    record.write_text(json.dumps({**document, "mirrors": mirrors}), encoding="utf-8")
    try:
        yield
    finally:
        record.write_text(text, encoding="utf-8")


def test_a_broadcast_that_works_is_proved_while_the_producer_goes_on(kit: Kit) -> None:
    code, document = prove(kit)
    assert code == 0, document
    assert document["verdict"] == "proved"
    assert {(flow["source"], flow["target"]) for flow in document["flows"]} == {
        ("europe", "north-america"),
        ("europe", "south-america"),
    }
    assert len(document["flows"]) == 12
    for flow in document["flows"]:
        assert [flow[fault] for fault in FAULTS] == [0] * len(FAULTS)
        assert flow["config_differences"] in (0, [])
    orders = next(flow for flow in document["flows"] if flow["topic"] == "LH.ORDERS")
    assert orders["partitions"] == 3
    assert orders["source_records"] == orders["target_records"] > 0
    text = kit.run("prove")
    assert text.returncode == 0
    assert "proved" in text.stdout
    assert "WARN" not in text.stdout + text.stderr


def test_two_clusters_are_compared_without_the_lab(kit: Kit) -> None:
    files = {region: kit.lab.region(region).clients["prover"] for region in kit.lab.regions}
    clusters = ("--source-config", str(files["europe"]), "--target-config", str(files["south-america"]))
    code, document = prove(kit, *clusters, "--topics", r"LH\.(ORDERS|STOCK)", "--since", "1h")
    assert (code, document["verdict"]) == (0, "proved"), document["reasons"]
    assert [(flow["source"], flow["target"], flow["topic"]) for flow in document["flows"]] == [
        ("source", "target", "LH.ORDERS"),
        ("source", "target", "LH.STOCK"),
    ]
    assert document["flows"][0]["source_records"] > 0

    # A target that does not get the events: nothing is there of what its names would be.
    code, document = prove(
        kit, *clusters, "--topics", r"LH\.ORDERS", "--policy", "default", "--source-alias", "europe", "--timeout", "3"
    )
    assert (code, document["verdict"]) == (1, "disproved")
    (flow,) = document["flows"]
    assert flow["target_topic"] == "europe.LH.ORDERS"
    assert flow["missing"] == flow["source_records"] > 0


def test_a_mirror_that_cannot_be_asked_is_proved_by_what_arrives(kit: Kit) -> None:
    with unasked(kit, "north-america"):
        code, document = prove(kit)
    assert (code, document["verdict"]) == (0, "proved"), document["reasons"]
    assert {flow["target"] for flow in document["flows"] if flow["source_records"]} == {
        "north-america",
        "south-america",
    }


def test_what_is_older_is_left_out(kit: Kit) -> None:
    code, document = prove(kit, "--since", "2099-01-01")
    assert (code, document["verdict"]) == (4, "inconclusive")
    assert "nothing to prove" in document["reasons"][0]


def test_the_aggregates_are_the_same_in_every_region(kit: Kit) -> None:
    done = kit.run("aggregate", "--json")
    assert done.returncode == 0, done.stderr
    regions = json.loads(done.stdout)["regions"]
    assert set(regions) == {"europe", "north-america", "south-america"}


@pytest.fixture(scope="class")
def tampered(kit: Kit) -> Iterator[dict[str, dict[str, Any]]]:
    """The flows to North America after a fault of each kind was made there, by the fault's name."""
    topics = [f"LH.{topic}" for topic in TOPICS]
    # The mirror would put a changed configuration right within seconds, so it is told not to look.
    manifest = kit.manifest("mm2-na.yaml")
    text = manifest.read_text()
    try:
        tamper(kit, topics)
        manifest.write_text(text.replace("sync.topic.configs.enabled: true", "sync.topic.configs.enabled: false"))
        assert kit.setup().returncode == 0
        client = admin(kit, "north-america")
        client.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, "LH.RECONFIGURED", {"retention.ms": "12345678"})]
        )
        client.close()
        code, document = prove(kit)
        assert (code, document["verdict"]) == (1, "disproved")
        yield {flow["topic"]: flow for flow in document["flows"] if flow["target"] == "north-america"}
    finally:
        for region in kit.lab.regions:
            client = admin(kit, region)
            client.delete_topics([topic for topic in topics if topic in client.list_topics()])
            client.close()
        manifest.write_text(text)
        assert kit.setup().returncode == 0


def tamper(kit: Kit, topics: list[str]) -> None:
    """Makes the topics in Europe, waits until they are mirrored, and spoils North America's copies."""
    europe = admin(kit, "europe")
    europe.create_topics(
        {topic: {"num_partitions": 2 if topic == "LH.MOVED" else 1, "replication_factor": 1} for topic in topics}
    )
    compact = {"cleanup.policy": "compact,delete"}  # records of a topic that is only compacted cannot be deleted
    europe.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "LH.COMPACTED", compact)])
    europe.close()
    # Not older than any retention: what a target's own retention may have deleted counts as expired, not as missing.
    begin = int(time.time() * 1000)
    originals = [(f"key-{n}".encode(), f"value-{n}".encode(), begin + n) for n in range(RECORDS)]
    numbered = [(b"%d" % n, b"event", begin + n) for n in range(RECORDS)]
    for topic in topics:
        write(kit, "europe", topic, *((numbered, 0, "run") if topic == "LH.LATE" else (originals,)))
    for topic in topics:
        for region in ("north-america", "south-america"):
            wait_until(lambda r=region, t=topic: count(kit, r, t) == RECORDS, 60, f"{topic} in {region}")  # type: ignore[misc]

    empty(kit, "north-america", "LH.DELETED", before=1)
    write(kit, "north-america", "LH.FOREIGN", [(b"nobody", b"wrote this in Europe", begin)])
    write(kit, "north-america", "LH.TWICE", [originals[7]])
    empty(kit, "north-america", "LH.ALTERED")
    write(
        kit,
        "north-america",
        "LH.ALTERED",
        [(k, b"changed" if n == 3 else v, t) for n, (k, v, t) in enumerate(originals)],
    )
    empty(kit, "north-america", "LH.REORDERED")
    write(kit, "north-america", "LH.REORDERED", [*originals[:5], originals[6], originals[5], *originals[7:]])
    empty(kit, "north-america", "LH.MOVED")
    write(kit, "north-america", "LH.MOVED", originals[1:])
    write(kit, "north-america", "LH.MOVED", originals[:1], partition=1)
    empty(kit, "north-america", "LH.COMPACTED")
    write(kit, "north-america", "LH.COMPACTED", originals[1:])
    # The source deletes five records before they are mirrored; MM2 goes on with the next one and says nothing.
    switch(kit, "pause", "PAUSED")
    later = [(b"%d" % n, b"event", begin + n) for n in range(RECORDS, RECORDS + 10)]
    write(kit, "europe", "LH.LATE", later, run="run")
    empty(kit, "europe", "LH.LATE", before=RECORDS + 5)
    switch(kit, "resume", "RUNNING")
    wait_until(lambda: count(kit, "north-america", "LH.LATE") == RECORDS + 5, 60, "the rest of LH.LATE")


class TestFaults:
    """One fault of each kind, in one target, found in one proof."""

    @pytest.mark.parametrize(
        ("topic", "fault", "number"),
        [
            ("LH.DELETED", "missing", 1),
            ("LH.FOREIGN", "unexpected", 1),
            ("LH.TWICE", "duplicates", 1),
            ("LH.ALTERED", "altered", 1),
            ("LH.REORDERED", "reordered", 1),
            ("LH.MOVED", "moved", 1),
            ("LH.COMPACTED", "missing", 1),
            ("LH.LATE", "never_mirrored", 5),
        ],
    )
    def test_a_fault_is_found_and_counted_and_nothing_else(
        self, tampered: dict[str, dict[str, Any]], topic: str, fault: str, number: int
    ) -> None:
        flow = tampered[topic]
        assert {name: flow[name] for name in FAULTS} == {name: number if name == fault else 0 for name in FAULTS}

    def test_a_changed_topic_configuration_is_found(self, tampered: dict[str, dict[str, Any]]) -> None:
        assert "retention.ms" in json.dumps(tampered["LH.RECONFIGURED"])
        assert tampered["LH.RECONFIGURED"]["config_differences"] not in (0, [])
        assert tampered["LH.INTACT"]["config_differences"] in (0, [])

    def test_an_intact_topic_stays_intact_beside_the_others(self, tampered: dict[str, dict[str, Any]]) -> None:
        assert [tampered["LH.INTACT"][fault] for fault in FAULTS] == [0] * len(FAULTS)
        assert tampered["LH.INTACT"]["target_records"] == RECORDS


def test_a_source_that_does_not_answer_makes_the_proof_inconclusive_and_is_named(kit: Kit) -> None:
    (broker,) = processes(kit, "europe", "kafka.Kafka")
    broker.suspend()
    try:
        code, document = prove(kit, "--timeout", "10")
    finally:
        broker.resume()
    assert (code, document["verdict"]) == (4, "inconclusive")
    assert any("europe: the cluster does not answer" in reason for reason in document["reasons"])
    wait_until(lambda: kit.run("status").returncode == 0, 90, "a healthy lab")
    assert prove(kit)[0] == 0


def test_a_stopped_mirror_makes_the_proof_inconclusive_and_is_named(kit: Kit) -> None:
    manifest = kit.manifest("mm2-sa.yaml")
    text = manifest.read_text()
    try:
        manifest.write_text(text.replace("        tasksMax: 1\n", "        tasksMax: 1\n        state: stopped\n"))
        assert kit.setup().returncode == 0
        write(kit, "europe", "LH.ORDERS", [(b"later", b"{}", int(time.time() * 1000))])
        done = kit.run("prove", "--json", "--timeout", "20")
        document = json.loads(done.stdout)
        assert (done.returncode, document["verdict"]) == (4, "inconclusive")
        assert "mm2-sa" in json.dumps(document)
        assert "STOPPED" in json.dumps(document)
        with unasked(kit, "south-america"):
            code, document = prove(kit, "--timeout", "10")
        assert (code, document["verdict"]) == (4, "inconclusive")
        (reason,) = document["reasons"]
        assert re.fullmatch(r"mirror mm2-sa: the last records of \d+ of \d+ partitions did not arrive in time", reason)
    finally:
        manifest.write_text(text)
        assert kit.setup().returncode == 0
    assert prove(kit)[0] == 0
