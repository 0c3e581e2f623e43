"""A cluster of Kafka 2.8 with ZooKeeper: its users, what a restart leaves of them, and what is left when it goes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from kafka.errors import KafkaError

from loosehanger.errors import LabError
from loosehanger.kafka.clients import STARTING, connect_consumer, connect_producer
from loosehanger.kafka.connection import Connection
from loosehanger.lab.manifests.loader import read_manifests
from loosehanger.paths import ROOT, lab_home
from loosehanger.platforms.local import kafka_releases, processes
from loosehanger.platforms.local.apply import apply, delete_region
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.kafka_entities import admin_client
from loosehanger.platforms.local.processes import marked_processes
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import read_secret
from loosehanger.platforms.local.status import status
from loosehanger.ports import free_ports
from loosehanger.waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.slow]

READY_S = 120
MANIFESTS = """\
apiVersion: v1
kind: Namespace
metadata: {name: old}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {name: nodes, namespace: old, labels: {strimzi.io/cluster: old}}
spec: {replicas: 1, roles: [controller, broker], storage: {type: ephemeral}}
---
apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata: {name: old, namespace: old}
spec:
  kafka:
    version: 2.8.2
    listeners:
      - name: internal
        port: 9098
        type: internal
        tls: false
        authentication: {type: custom, sasl: true, listenerConfig: {sasl.enabled.mechanisms: SCRAM-SHA-256}}
    authorization: {type: simple}
    config: {default.replication.factor: 1, offsets.topic.replication.factor: 1, offsets.topic.num.partitions: 1}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: writer, namespace: old, labels: {strimzi.io/cluster: old}}
spec:
  authorization:
    type: simple
    acls: [{resource: {type: topic, name: LH., patternType: prefix}, operations: [Read, Write]}]
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata: {name: orders, namespace: old, labels: {strimzi.io/cluster: old}}
spec: {topicName: LH.ORDERS, partitions: 2, replicas: 1, config: {retention.ms: 7200000}}
"""


@pytest.fixture
def region(tmp_path: Path) -> Iterator[LocalRegion]:
    for name in ("venv", "jars", "java"):
        (tmp_path / name).symlink_to((lab_home() / name).resolve())
    (first,) = free_ports(1)
    region = LocalRegion(tmp_path, ROOT, "old", min(first, 65_400))
    manifests = read_manifests("file.yaml", MANIFESTS)
    kafka_releases.fetch(region, manifests)
    try:
        apply(region, manifests, ready_seconds=READY_S)
        yield region
    finally:
        delete_region(region, 30)


def as_writer(region: LocalRegion, password: str) -> Connection:
    address = LocalCluster.of(region, "old").addresses(2)
    return Connection(tuple(address), "SASL_PLAINTEXT", "SCRAM-SHA-256", "writer", password)


def wait_healthy(region: LocalRegion) -> None:
    def lacking() -> str | None:
        (kafka,) = status(region)
        return None if kafka["healthy"] else str(kafka["detail"])

    wait_for(lacking, READY_S, "the old cluster")


def test_an_old_cluster_starts_keeps_what_it_has_and_leaves_nothing(region: LocalRegion) -> None:
    cluster = LocalCluster.of(region, "old")
    assert {state.name for state in processes.states(region)} == {"old-zookeeper-0", "old-kafka-0"}
    assert apply(region, read_manifests("file.yaml", MANIFESTS), ready_seconds=READY_S).changed == []

    password = read_secret(region, "writer")["password"].decode()
    with closing(connect_producer(as_writer(region, password))) as producer:
        assert producer.send("LH.ORDERS", b"jeans", partition=0).get(30).offset == 0
    with pytest.raises((KafkaError, LabError)):
        connect_consumer(as_writer(region, "wrong"), STARTING).close()

    for process in ("old-kafka-0", "old-zookeeper-0"):
        before = pid(region, process)
        assert processes.send_signal(region, process, signal.SIGKILL) == 1
        wait_for(lambda name=process, old=before: _restarts(region, name, old), 30, process)  # type: ignore[misc]
        wait_healthy(region)
    with closing(connect_consumer(as_writer(region, password), consumer_timeout_ms=20_000)) as consumer:
        consumer.subscribe(["LH.ORDERS"])
        assert next(consumer).value == b"jeans"
    with admin_client(cluster) as admin:
        assert admin.describe_user_scram_credentials(["writer"])["writer"]["credential_infos"]

    own = marked_processes(region)
    delete_region(region, 30)
    assert not region.folder.exists()
    assert not any(psutil.pid_exists(process.pid) and process.is_running() for process in own)


def pid(region: LocalRegion, name: str) -> int:
    """The id of a process; 0 where it does not run."""
    return next((state.pid for state in processes.states(region) if state.name == name), 0)


def _restarts(region: LocalRegion, name: str, before: int) -> str | None:
    return "it has not started again" if pid(region, name) in (0, before) else None
