"""The proof succeeds on a broadcast that works, and finds and names every kind of fault in one that does not."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from loosehanger.kafka.connect import ConnectClient
from scripts.sandbox import Kit

from .conftest import admin, processes, wait_until
from .faults import FAULTS, RECORDS, SPOILT, count, create, empty, prove, some_records, spoil, write

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TOPICS = (*SPOILT, "INTACT", "RECONFIGURED", "LATE", "UNNUMBERED", "AGAIN", "GONE")
UNTIMED = "LH.UNTIMED"
OWN = "LH.OWN"
"""A topic that North America alone has, and always had."""


def switch(kit: Kit, action: str, state: str) -> None:
    """Pauses or resumes North America's mirror, and waits until its tasks are in that state."""
    (mirror,) = kit.lab.region("north-america").mirrors
    rest = ConnectClient.of(mirror.connect)
    rest.act(mirror.connector, action)

    def tasks() -> set[str]:
        return {task["state"] for task in (rest.status(mirror.connector) or {"tasks": ()})["tasks"]}

    wait_until(lambda: tasks() == {state}, 30, f"tasks that are {state}")


@contextmanager
def unasked(kit: Kit, region: str) -> Iterator[None]:
    """A region whose mirrors cannot be asked for their offsets, as on a cluster of its own."""
    record = kit.home / "access" / f"{region}.json"
    text = record.read_text(encoding="utf-8")
    document = json.loads(text)
    record.write_text(json.dumps({**document, "connect": {}}), encoding="utf-8")
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

    # A target that does not get the events by these names, if one may see that: it has them by others.
    elsewhere = ("--topics", r"LH\.ORDERS", "--policy", "default", "--source-alias", "europe", "--timeout", "3")
    code, document = prove(kit, *clusters, *elsewhere)
    assert (code, document["verdict"]) == (4, "inconclusive")
    assert "user 'prover' lacks Describe on topic europe.LH.ORDERS in target" in document["reasons"][0]
    administrator = str(kit.lab.region("south-america").clients["admin"])
    code, document = prove(kit, *clusters[:2], "--target-config", administrator, *elsewhere)
    assert (code, document["verdict"]) == (4, "inconclusive")
    assert document["reasons"] == [
        "LH.ORDERS, source → target: not compared: target has no topic europe.LH.ORDERS, but it has LH.ORDERS; "
        "if that is the copy, leave out --policy and --source-alias"
    ]


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


def test_records_without_a_timestamp_are_named_and_no_difference(kit: Kit) -> None:
    records = [(key, value, -1) for key, value, _ in some_records()]

    def flows(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {flow["target"]: flow for flow in document["flows"] if flow["topic"] == UNTIMED}

    try:
        create(kit, "europe", [UNTIMED])
        write(kit, "europe", UNTIMED, records)
        for region in ("north-america", "south-america"):
            wait_until(lambda region=region: count(kit, region, UNTIMED) == RECORDS, 60, "copies")  # type: ignore[misc]
        code, document = prove(kit)
        assert (code, document["verdict"]) == (0, "proved"), document["reasons"]
        assert [flow["target_records"] for flow in flows(document).values()] == [RECORDS, RECORDS]
        noted = [note for note in document["notes"] if f"{RECORDS} records have no timestamp" in note]
        assert len(noted) == 2, document["notes"]
        write(kit, "north-america", UNTIMED, [(*records[0][:2], int(time.time() * 1000) + 1)])
        code, document = prove(kit)
        assert (code, document["verdict"]) == (1, "disproved")
        assert {target: flow["unexpected"] for target, flow in flows(document).items()} == {
            "north-america": 1,
            "south-america": 0,
        }
    finally:
        for region in kit.lab.regions:
            client = admin(kit, region)
            client.delete_topics([UNTIMED])
            client.close()


def test_the_aggregates_are_the_same_in_every_region(kit: Kit) -> None:
    done = kit.run("aggregate", "--json")
    assert done.returncode == 0, done.stderr
    regions = json.loads(done.stdout)["regions"]
    assert set(regions) == {"europe", "north-america", "south-america"}


@pytest.fixture(scope="class")
def disproof(kit: Kit) -> Iterator[dict[str, Any]]:
    """What the proof says after a fault of each kind was made in North America."""
    topics = [f"LH.{topic}" for topic in TOPICS]
    # The mirror would put a changed configuration right within seconds, so it is configured not to look.
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
        yield document
    finally:
        for region in kit.lab.regions:
            client = admin(kit, region)
            client.delete_topics([topic for topic in (*topics, OWN) if topic in client.list_topics()])
            client.close()
        manifest.write_text(text)
        assert kit.setup().returncode == 0


@pytest.fixture(scope="class")
def tampered(disproof: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The flows to North America, by their topics."""
    return {flow["topic"]: flow for flow in disproof["flows"] if flow["target"] == "north-america"}


def tamper(kit: Kit, topics: list[str]) -> None:
    """Makes the topics in Europe, waits until they are mirrored, and spoils North America's copies."""
    europe = admin(kit, "europe")
    create(kit, "europe", topics)
    originals = some_records()
    begin = originals[0][2]
    numbered = [(b"%d" % n, b"event", begin + n) for n in range(RECORDS)]
    for topic in topics:
        write(kit, "europe", topic, *((numbered, 0, "run") if topic == "LH.LATE" else (originals,)))
    for topic in topics:
        for region in ("north-america", "south-america"):
            wait_until(lambda r=region, t=topic: count(kit, r, t) == RECORDS, 60, f"{topic} in {region}")  # type: ignore[misc]

    spoil(kit, "north-america", "", originals)
    # The source deletes five records before they are mirrored; MM2 goes on with the next one and says nothing.
    switch(kit, "pause", "PAUSED")
    later = [(b"%d" % n, b"event", begin + n) for n in range(RECORDS, RECORDS + 10)]
    for topic, run in (("LH.LATE", "run"), ("LH.UNNUMBERED", "")):
        write(kit, "europe", topic, later, run=run)
        empty(kit, "europe", topic, before=RECORDS + 5)
    europe = admin(kit, "europe")
    europe.delete_topics(["LH.GONE", "LH.AGAIN"])
    wait_until(lambda: "LH.AGAIN" not in europe.list_topics(), 30, "the end of LH.AGAIN")
    europe.create_topics({"LH.AGAIN": {"num_partitions": 1, "replication_factor": 1}})
    europe.wait_for_topics(["LH.AGAIN"])
    europe.close()
    write(kit, "europe", "LH.AGAIN", later)
    client = admin(kit, "north-america")
    client.create_topics({OWN: {"num_partitions": 1, "replication_factor": 1}})
    client.close()
    switch(kit, "resume", "RUNNING")
    for topic in ("LH.LATE", "LH.UNNUMBERED"):
        wait_until(lambda t=topic: count(kit, "north-america", t) == RECORDS + 5, 60, f"the rest of {topic}")  # type: ignore[misc]


class TestFaults:
    """One fault of each kind, in one target, found in one proof."""

    @pytest.mark.parametrize(
        ("topic", "fault", "number"),
        [
            *((f"LH.{name}", fault, 1) for name, fault in SPOILT.items()),
            ("LH.LATE", "never_mirrored", 5),
            ("LH.UNNUMBERED", "never_mirrored", 5),
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

    def test_what_was_deleted_before_it_was_mirrored_is_told_by_its_offsets(self, disproof: dict[str, Any]) -> None:
        said = (
            f"LH.UNNUMBERED, europe → north-america: partition 0: source offsets {RECORDS} to {RECORDS + 4} were "
            "deleted before they were mirrored"
        )
        assert said in disproof["reasons"]

    def test_a_topic_that_was_made_again_is_told_beside_its_strange_records(
        self, tampered: dict[str, dict[str, Any]], disproof: dict[str, Any]
    ) -> None:
        assert tampered["LH.AGAIN"]["unexpected"] == RECORDS
        where = "LH.AGAIN, europe → north-america: partition 0: the topic seems to have been recreated at the source: "
        assert any(reason.startswith(where) for reason in disproof["reasons"]), disproof["reasons"]

    def test_a_topic_that_is_only_at_the_target_is_named(self, disproof: dict[str, Any]) -> None:
        there = [entry["topic"] for entry in disproof["only_at_target"] if entry["target"] == "north-america"]
        assert there == ["LH.GONE"]
        assert any(
            reason.startswith("LH.GONE, europe → north-america: LH.GONE is a copy") for reason in disproof["reasons"]
        )
        assert [note for note in disproof["notes"] if OWN in note], disproof["notes"]

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
