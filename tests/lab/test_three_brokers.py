"""Three brokers in every region: topics are replicated, and one broker may go while events are written."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from scripts.sandbox import Kit, copy_kit

from .conftest import admin, processes, wait_until
from .crossings import crossings

pytestmark = [pytest.mark.lab, pytest.mark.slow]

BROKERS = 3
BROKER = "kafka.Kafka"


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A lab with three brokers in every region."""
    kit = copy_kit(tmp_path_factory.mktemp("three brokers"), port_base=30000)
    try:
        done = kit.setup("-e", f"kafka_replicas={BROKERS}")
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
    finally:
        done = kit.run("cleanup")
        assert done.returncode == 0, done.stdout + done.stderr


def test_topics_of_events_and_of_the_mirrors_are_replicated(replicated: Kit) -> None:
    for name in replicated.lab.regions:
        assert len(processes(replicated, name, BROKER)) == BROKERS
        client = admin(replicated, name)
        try:
            # A mirror's own topics as well: with one replica its position would go with its broker.
            topics = [topic for topic in client.list_topics() if topic.startswith(("LH.", "__mm2", "mm2-"))]
            assert "LH.ORDERS" in topics
            for topic in client.describe_topics(topics):
                for partition in topic["partitions"]:
                    assert len(partition["replica_nodes"]) == BROKERS, topic["name"]
            resource = ConfigResource(ConfigResourceType.TOPIC, "LH.ORDERS")
            found = client.describe_configs([resource], config_filter="all")["topic"]["LH.ORDERS"]
            assert found["min.insync.replicas"]["value"] == "2"
        finally:
            client.close()


def test_every_broker_is_reached_through_the_link(replicated: Kit) -> None:
    found = list(crossings(replicated))
    assert [crossing for crossing in found if not crossing.is_right] == []
    # The mirrors read all three of Europe's.
    assert len({c.port for c in found if (c.region, c.to) == ("north-america", "europe") and not c.is_relay}) == BROKERS


def test_a_killed_broker_of_three_loses_nothing(replicated: Kit) -> None:
    for region in ("europe", "north-america"):
        before = processes(replicated, region, BROKER)
        before[0].kill()
        wait_until(
            lambda r=region, b=before: len({p.pid for p in processes(replicated, r, BROKER)} - {p.pid for p in b}) == 1,  # type: ignore[misc]
            30,
            f"a new broker in {region}",
        )
    wait_until(lambda: replicated.run("status").returncode == 0, 90, "a healthy lab")
    done = replicated.run("prove", "--json", "--timeout", "120")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["totals"]["source_records"] > 0
