"""The consoles of a real lab: signing in as the set-up says, each its own region, and nothing in Kafka beyond that."""

from __future__ import annotations

import json
import time

import psutil
import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.patches import alter_topic
from scripts.sandbox import Kit
from tests.consoles import Browser

from .conftest import wait_until
from .test_resilience import kill
from .test_security import can_write

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def signed_in(kit: Kit, name: str) -> Browser:
    """A user of a console, with the credentials that ``./lab status --credentials`` shows."""
    done = kit.run("status", "--credentials", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = [entry for entry in json.loads(done.stdout) if entry["console"] == name]
    browser = Browser(found["url"])
    assert browser.sign_in(found["username"], found["password"]).status_code == 303
    return browser


@pytest.fixture
def control_room(kit: Kit) -> Browser:
    return signed_in(kit, "control-room")


def test_the_set_up_shows_credentials_once_and_the_status_whenever_asked(kit: Kit) -> None:
    again = kit.setup()
    assert again.returncode == 0
    shown = kit.run("status", "--credentials")
    assert shown.returncode == 0
    entries = json.loads(kit.run("status", "--credentials", "--json").stdout)
    assert [entry["console"] for entry in entries] == ["europe", "control-room", "north-america", "south-america"]
    for entry in entries:
        assert entry["password"] in shown.stdout
        assert entry["url"] in shown.stdout
        assert entry["password"] not in again.stdout + again.stderr
    assert len({entry["password"] for entry in entries}) == 4


def test_another_consoles_password_is_refused(kit: Kit) -> None:
    entries = {e["console"]: e for e in json.loads(kit.run("status", "--credentials", "--json").stdout)}
    browser = Browser(entries["north-america"]["url"])
    assert browser.sign_in("operator", entries["europe"]["password"]).status_code == 403


@pytest.mark.parametrize("region", ["europe", "north-america", "south-america"])
def test_a_region_console_shows_its_region(kit: Kit, region: str) -> None:
    browser = signed_in(kit, region)
    answer = browser.get("/api/topics").json()
    assert answer["problems"] == []
    topics = {topic["name"]: topic for topic in answer["topics"]}
    assert {"LH.ORDERS", "LH.STOCK", "LH.SENSORS"} <= set(topics)
    orders = topics["LH.ORDERS"]
    assert orders["region"] == region
    assert orders["health"] == "good"
    assert all(partition["leader"] is not None for partition in orders["partitions"])
    assert orders["bytes"] > 0
    assert bool(orders["mirror"]) == (region != "europe")
    (detail,) = browser.get("/api/topics/LH.ORDERS").json()
    sources = {setting["name"]: setting["source"] for setting in detail["settings"]}
    assert len(sources) > 20
    assert sources["flush.ms"] == "default"
    groups = {group["name"]: group for group in browser.get("/api/groups").json()["groups"]}
    (consumer,) = [group for name, group in groups.items() if name.startswith("consumer-")]
    assert consumer["state"] == "Stable"
    assert consumer["partitions"]
    (broker,) = browser.get("/api/brokers").json()["brokers"]
    assert broker["bytes"] > 0
    for path in ("/", "/topics", "/topics/LH.ORDERS", "/messages", "/mirrors", "/groups", "/brokers"):
        assert browser.get(path).status_code == 200


def test_messages_can_be_read(kit: Kit) -> None:
    browser = signed_in(kit, "north-america")
    browser.get("/api/messages")
    wait_until(lambda: browser.get("/api/messages?topic=LH.DOORS").json()["messages"], 20, "messages")
    message = browser.get("/api/messages?topic=LH.DOORS").json()["messages"][-1]
    assert message["summary"].startswith("badge of ")
    assert {"lh-origin", "lh-time"} <= {header["name"] for header in message["headers"]}
    assert message["latency_ms"] >= 0


def test_the_control_room_sees_what_flows(control_room: Browser) -> None:
    def settled() -> bool:
        flows = control_room.get("/api/flows").json()["flows"]
        return len(flows) == 2 and all(
            flow["health"] == "good" and flow["records_per_s"] and flow["latency_ms_p99"] and flow["lag"] is not None
            for flow in flows
        )

    wait_until(settled, 30, "two flows with rate, lag and latency")
    flows = control_room.get("/api/flows").json()["flows"]
    assert {(flow["source"], flow["target"]) for flow in flows} == {
        ("europe", "north-america"),
        ("europe", "south-america"),
    }
    assert all(flow["lag"] < 1000 for flow in flows)


def test_a_killed_broker_is_explained_and_comes_back(kit: Kit) -> None:
    browser = signed_in(kit, "south-america")
    assert browser.get("/api/topics").json()["problems"] == []
    kill(kit, "south-america", "kafka.Kafka")
    wait_until(lambda: browser.get("/api/topics").json()["problems"], 20, "the missing broker")
    wait_until(lambda: not browser.get("/api/topics").json()["problems"], 60, "the broker")
    assert browser.get("/api/topics").json()["topics"]


def test_the_consoles_users_can_do_no_more_than_they_must(kit: Kit) -> None:
    for region in kit.lab.regions.values():
        connection = connection_for(region, f"console-{region.name}")
        assert not can_write(connection)
        admin = KafkaAdminClient(**connection.kafka_python())
        try:
            with pytest.raises(KafkaError):
                admin.create_topics({"LH.NEW": {"num_partitions": 1, "replication_factor": 1}})
            with pytest.raises(KafkaError):
                admin.delete_topics(["LH.DOORS"])
            with pytest.raises(WrongUseError, match=r"(?i)authorization"):
                alter_topic(admin, "LH.DOORS", {"retention.ms": "1"}, "LH.DOORS")
        finally:
            admin.close()
        with KafkaConsumer(**connection_for(region, "operator").kafka_python()) as consumer:
            assert consumer.topics() == set()
        with KafkaConsumer(**connection.kafka_python()) as consumer:
            assert consumer.end_offsets([TopicPartition("LH.ORDERS", 0)])


def test_while_nobody_looks_the_consoles_cost_next_to_nothing(kit: Kit) -> None:
    consoles = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("LAB_REGION_FOLDER", "").startswith(str(kit.home))
            if ours and process.cmdline()[-2:] == ["-m", "loosehanger.console"]:
                consoles.append(process)
        except psutil.Error:
            continue
    assert len(consoles) == 4
    time.sleep(45)  # Readers go on for 20 s after the last look, and clients are closed after a minute at most.
    before = sum(sum(process.cpu_times()[:2]) for process in consoles)
    time.sleep(10)  # what is measured
    used = sum(sum(process.cpu_times()[:2]) for process in consoles) - before
    assert used < 0.4
    assert sum(process.memory_info().rss for process in consoles) < 600e6


def test_a_proof_is_run(control_room: Browser) -> None:
    answer = control_room.change("POST", "/api/proof")
    assert answer.status_code == 202, answer.text
    assert control_room.change("POST", "/api/aggregates").status_code == 409
    wait_until(lambda: control_room.get("/api/proof").json()["state"] != "running", 240, "the proof")
    job = control_room.get("/api/proof").json()
    assert job["state"] == "done", job
    assert job["result"]["verdict"] == "proved"
    report = control_room.get("/proof/report")
    assert "Everything was mirrored" in report.text
    assert report.headers["content-security-policy"].startswith("sandbox;")
