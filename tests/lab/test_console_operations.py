"""Topics, records and groups are changed through a console's API, by a user with the role's rights and no others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    NewTopic,
    ResourcePattern,
    ResourceType,
)
from kafka.structs import OffsetAndMetadata

from loosehanger.console.service import Service
from loosehanger.console.settings import RegionSettings, Settings
from tests.console_role import described
from tests.consoles import PASSWORD, Running
from tests.consoles import running as console_of

from .broker import Broker, running

pytestmark = pytest.mark.lab

GROUP = "consumer-europe"
RESET = "/api/regions/europe/reset"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a topic of a mirror's, which no console may change, and two consoles' users."""
    with running(tmp_path_factory.mktemp("broker")) as found:
        client = found.admin()
        client.create_topics([NewTopic("mm2-offsets", 1, 1), NewTopic("LH.KEPT", 1, 1)])
        for user, operator in (("looking", False), ("changing", True)):
            found.allow(user, "LH.KEPT")
            rights, _ = described(console_operator=operator)
            client.create_acls([_acl(user, kind, name, one) for (kind, name), of in rights.items() for one in of])
        client.close()
        yield found


def _acl(user: str, kind: str, name: str, operation: str) -> ACL:
    """A right as the role has it; its topics are prefixes."""
    kinds = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.CLUSTER,
             "transactionalId": ResourceType.TRANSACTIONAL_ID}  # fmt: skip
    pattern = ACLResourcePatternType.PREFIXED if kind == "topic" else ACLResourcePatternType.LITERAL
    resource = ResourcePattern(kinds[kind], name or "kafka-cluster", pattern)
    named = {one.name.replace("_", "").lower(): one for one in ACLOperation}
    return ACL(f"User:{user}", "*", named[operation.lower()], ACLPermissionType.ALLOW, resource)


@contextmanager
def console(broker: Broker, user: str, home: Path, *, operator: bool) -> Iterator[Running]:
    """Europe's console, as a user of the broker's."""
    region = RegionSettings("europe", broker.connection(user))
    given = Settings("europe", "operator", PASSWORD, (region,), operator=operator, lab_home=home)
    with console_of(given, Service(given)) as found:
        yield found


def write(broker: Broker, count: int, at: int, key: str) -> None:
    """Writes records in a transaction, so that its marker takes an offset as well."""
    producer = KafkaProducer(**broker.connection().kafka_python(), transactional_id="writer")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(count):
        producer.send("LH.NEW", key=f"{key}-{number}".encode(), partition=0, timestamp_ms=at)
    producer.commit_transaction()
    producer.close()


def read_all(broker: Broker, count: int, *, stay: bool = False) -> KafkaConsumer:
    """A member of the group that reads so many records and commits."""
    consumer = KafkaConsumer(
        "LH.NEW", **broker.connection().kafka_python(), group_id=GROUP, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed",
    )  # fmt: skip
    read, until = 0, time.monotonic() + 40
    while read < count:
        assert time.monotonic() < until, f"{read} of {count} records were read"
        read += sum(map(len, consumer.poll(500).values()))
    consumer.commit()
    if not stay:
        consumer.close()
    return consumer


def test_topics_records_and_groups_are_changed(broker: Broker, tmp_path: Path) -> None:
    with console(broker, "changing", tmp_path, operator=True) as found:
        browser = found.browser()

        def change(method: str, path: str, status: int = 200, **more: Any) -> str:
            answer = browser.change(method, f"/api/regions/europe/{path}", **more)
            assert answer.status_code == status, answer.text
            return str(answer.json().get("said") or answer.json())

        new = {"name": "LH.NEW", "partitions": 2, "settings": {"retention.ms": "-1"}}
        assert change("POST", "topics", json=new) == "europe: LH.NEW is created, with 2 partitions"
        assert "already exists" in change("POST", "topics", 400, json=new)
        assert "NoSuch" not in change("POST", "topics", 400, json={**new, "name": "LH.ODD", "settings": {"a.b": "1"}})
        assert change("PUT", "topics/LH.NEW/partitions", json={"partitions": 3}) == "europe: LH.NEW has 3 partitions"
        assert "refuses to add partitions" in change("PUT", "topics/LH.NEW/partitions", 400, json={"partitions": 3})
        (topic,) = browser.get("/api/topics/LH.NEW").json()
        assert len(topic["partitions"]) == 3
        assert {"retention.ms": "-1"}.items() <= {one["name"]: one["value"] for one in topic["settings"]}.items()

        now = time.time_ns() // 1_000_000
        write(broker, 40, now - 3_600_000, "old")
        write(broker, 25, now - 60_000, "new")
        consumer = read_all(broker, 65, stay=True)
        asked = {"group": GROUP, "to": "10m"}
        active = browser.get(RESET, params=asked).json()
        assert "has 1 member and is stable; stop its consumers first" in active["refused"]
        assert (active["again"], active["records_again"]) == (27, 25), "markers take offsets, and are no records"
        body = {"group": GROUP, "moves": [{name: one[name] for name in ("topic", "partition", "committed", "to")}
                                          for one in active["moves"]]}  # fmt: skip
        assert "stop its consumers first" in change("POST", "reset", 400, json=body)
        assert "stop its consumers first" in change("DELETE", f"groups?group={GROUP}", 400)
        consumer.close()

        planned = browser.get(RESET, params=asked).json()
        assert planned["refused"] == ""
        assert [(one["partition"], one["committed"], one["to"]) for one in planned["moves"] if one["again"]] == [
            (0, 67, 40)
        ]
        assert change("POST", "reset", json=body) == f"europe: {GROUP} is reset in 3 partitions"
        assert "as in the preview; look at the preview again" in change("POST", "reset", 409, json=body)
        read_all(broker, 25)
        early = browser.get(RESET, params={"group": GROUP, "to": "earliest", "topic": "LH.NEW"}).json()
        assert (early["again"], early["records_again"], early["records_skipped"]) == (67, 65, 0)
        beyond = {"group": GROUP, "moves": [{"topic": "LH.NEW", "partition": 0, "committed": 67, "to": 68}]}
        assert "has no offset 68; choose one from 0 to 67" in change("POST", "reset", 400, json=beyond)
        other = {"group": GROUP, "moves": [{"topic": "mm2-offsets", "partition": 0, "committed": None, "to": 0}]}
        assert "no such topic" in change("POST", "reset", 400, json=other), "Kafka hides what it may not see"

        (part,) = browser.get("/api/regions/europe/topics/LH.NEW/deletion?partition=0&before=41").json()
        assert part == {"partition": 0, "first": 0, "end": 67, "before": 41, "offsets": 41}
        assert "partition 0 begins at offset 41" in change("POST", "topics/LH.NEW/deletion", json={"before": {"0": 41}})
        assert "refuses to delete" in change("POST", "topics/LH.NEW/deletion", 400, json={"before": {"0": 999}})
        assert "no such topic" in change("POST", "topics/LH.NONE/deletion", 400, json={"before": {"0": 1}})

        assert change("DELETE", f"groups?group={GROUP}") == f"europe: {GROUP} is deleted, with its committed offsets"
        assert "there is no group" in change("DELETE", f"groups?group={GROUP}", 400)
        assert change("DELETE", "topics/LH.NEW") == "europe: LH.NEW is deleted"
        assert "no such topic" in change("DELETE", "topics/LH.NEW", 400)
        assert "internal topic" in change("DELETE", "topics/mm2-offsets", 400)
        assert "does not allow" in change("POST", "topics", 403, json={**new, "name": "OTHER"})

        users = {one["name"]: one for one in browser.get("/api/users").json()["users"]}
        assert users["changing"]["mechanisms"] == ["SCRAM-SHA-512"]
        assert {"kind": "GROUP", "name": "*", "operations": ["Delete", "Describe", "Read"], "allows": True} in users[
            "changing"
        ]["acls"]
        log = browser.get("/api/changes").json()["changes"]
        assert [one["done"] for one in log if one["action"] == "create topic"] == [False, False, False, True]


def test_without_the_switch_the_console_refuses_and_so_does_kafka(broker: Broker, tmp_path: Path) -> None:
    changes = (
        ("POST", "topics", {"name": "LH.MORE"}),
        ("PUT", "topics/LH.KEPT/partitions", {"partitions": 3}),
        ("POST", "topics/LH.KEPT/deletion", {"before": {"0": 0}}),
        ("DELETE", "topics/LH.KEPT", None),
        ("POST", "reset", {"group": GROUP, "moves": [{"topic": "LH.KEPT", "partition": 0, "committed": 0, "to": 0}]}),
        ("DELETE", f"groups?group={GROUP}", None),
    )
    client = broker.admin()
    client.alter_group_offsets(GROUP, {TopicPartition("LH.KEPT", 0): OffsetAndMetadata(0, "", -1)})
    client.close()
    for operator, reason in ((False, "-e console_operator=true"), (True, "Kafka does not allow the console's user to")):
        with console(broker, "looking", tmp_path, operator=operator) as found:
            browser = found.browser()
            for method, path, body in changes:
                answer = browser.change(method, f"/api/regions/europe/{path}", json=body)
                assert answer.status_code == 403, (path, answer.text)
                assert reason in answer.text, (path, answer.text)
            settings = {"settings": {"retention.ms": "1"}}
            answer = browser.change("PATCH", "/api/regions/europe/topics/LH.KEPT/settings", json=settings)
            # Kafka's own refusal is that of a right.
            assert answer.status_code == (400 if operator else 403), answer.text
            assert ("uthorization" if operator else reason) in answer.text, answer.text
            (topic,) = browser.get("/api/topics/LH.KEPT").json()
            assert len(topic["partitions"]) == 1
            assert "1" not in {one["value"] for one in topic["settings"] if one["name"] == "retention.ms"}
