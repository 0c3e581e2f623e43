"""A producer that dies in the middle of a transaction, in a lab: nothing shows the mirrors behind it as healthy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from loosehanger.kafka.connection import Connection, connection_for
from scripts.sandbox import Kit

from .conftest import admin, wait_until
from .faults import count
from .hanging import BEHIND, abandon, write
from .test_console import signed_in

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TOPIC, NAME = "LH.HELD", "till-of-a-test"
COPIES = ("north-america", "south-america")
HELD = (
    f"{TOPIC}: up to 1,005 records are behind the last stable offset and are not copied, held by transaction '{NAME}'"
)


@pytest.fixture
def connection(kit: Kit) -> Iterator[Connection]:
    """The administrator of Europe, who may write in transactions, and a topic with one record that is mirrored."""
    connection = connection_for(kit.lab.region("europe"), "admin")
    client = admin(kit, "europe")
    pattern = ResourcePattern(ResourceType.TRANSACTIONAL_ID, NAME)
    rights = [
        ACL("User:admin", "*", operation, ACLPermissionType.ALLOW, pattern)
        for operation in (ACLOperation.WRITE, ACLOperation.DESCRIBE)
    ]
    try:
        client.create_acls(rights)
        client.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}})
        client.wait_for_topics([TOPIC])
        write(connection, TOPIC, 0)
        wait_until(lambda: all(count(kit, region, TOPIC) == 1 for region in COPIES), 120, "the first copies")
        yield connection
    finally:
        # What is left of it in the Americas would be a copy without a source to every later proof.
        for region in kit.lab.regions:
            there = admin(kit, region)
            there.delete_topics([topic for topic in there.list_topics() if topic == TOPIC])
            there.close()
        of_test = ResourcePatternFilter(ResourceType.TRANSACTIONAL_ID, NAME, ACLResourcePatternType.LITERAL)
        client.delete_acls([ACLFilter("User:admin", "*", ACLOperation.ANY, ACLPermissionType.ANY, of_test)])
        client.close()


def mirrors(kit: Kit) -> list[dict[str, Any]]:
    """Every mirror, as the status has it."""
    found = json.loads(kit.run("status", "--json").stdout)["regions"]
    return [one for resources in found.values() for one in resources if one["kind"] == "KafkaMirrorMaker2"]


def test_records_behind_an_abandoned_transaction_are_nowhere_called_mirrored(kit: Kit, connection: Connection) -> None:
    producer = abandon(connection, TOPIC, NAME)
    try:
        write(connection, TOPIC, *range(1, BEHIND + 1))

        def blocked() -> bool:
            return all(one["state"] == "Blocked" and HELD in one["detail"] for one in mirrors(kit))

        wait_until(blocked, 120, "the status of the mirrors")
        done = kit.run("prove", "--timeout", "10", "--json")
        document = json.loads(done.stdout)
        assert (done.returncode, document["verdict"]) == (4, "inconclusive")
        for region in COPIES:
            said = (
                f"{TOPIC}, europe → {region}: in europe, up to 1,005 records of partition 0 are behind the last stable"
            )
            (reason,) = (one for one in document["reasons"] if one.startswith(said))
            assert f"held by transaction '{NAME}' of producer " in reason
        browser = signed_in(kit, "control-room")

        def shown() -> bool:
            flows = browser.get("/api/flows", timeout=60).json().get("flows", [])
            return bool(flows) and all(HELD in flow["explanation"] for flow in flows)

        wait_until(shown, 120, "the flows of the control room")
    finally:
        producer.abort_transaction(60)
    wait_until(lambda: all(count(kit, region, TOPIC) == 1 + BEHIND for region in COPIES), 120, "the rest of the copies")
    done = kit.run("prove", "--timeout", "60")
    assert done.returncode == 0, done.stdout + done.stderr
