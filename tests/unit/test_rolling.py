"""Workers of a group and nodes of a cluster: in which order they start, restart and end, and what each waits for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from loosehanger.errors import LabError
from loosehanger.kafka.connection import Connection
from loosehanger.lab.manifests.loader import read_manifests
from loosehanger.paths import ROOT
from loosehanger.platforms.local import apply, kafka_entities, processes, rolling
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.processes import Process, ProcessState
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import write_secret

FIRST, SECOND = "127.0.0.1:19150", "127.0.0.1:19151"


def connector(worker: str, *workers: str, state: str = "RUNNING") -> dict[str, Any]:
    """A connector on a worker, with tasks on these."""
    tasks = [{"id": number, "state": state, "worker_id": of_task} for number, of_task in enumerate(workers)]
    return {"connector": {"state": state, "worker_id": worker}, "tasks": tasks}


@pytest.mark.parametrize(
    ("statuses", "lacking"),
    [
        ({"a": connector(FIRST, FIRST, SECOND)}, None),
        ({"a": connector(FIRST, FIRST, FIRST)}, "no share"),
        ({"a": connector(FIRST, FIRST), "b": connector(SECOND, SECOND)}, None),
        # Connectors and tasks are dealt out each by themselves: it has a connector, and no task.
        ({"a": connector(FIRST, FIRST), "b": connector(SECOND, FIRST)}, "no share"),
        ({"a": connector(FIRST, FIRST)}, None),
        ({}, None),
        ({"a": connector(FIRST, FIRST, SECOND, state="UNASSIGNED")}, "3 of 3 connectors and tasks lack a worker"),
        # What failed is not going to change, and nothing waits for it.
        ({"a": connector(FIRST, FIRST, SECOND, state="FAILED")}, None),
    ],
)
def test_a_worker_is_back_when_it_has_its_share(statuses: dict[str, Any], lacking: str | None) -> None:
    found = rolling.lacks(statuses, statuses, SECOND, 2)
    assert (found is None) if lacking is None else lacking in str(found)


class Worker:
    """A worker's REST interface, which answers these statuses one after the other."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self.answers = [*answers]

    def statuses(self) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise LabError("no Connect worker answers")
        return answer


def wait(monkeypatch: pytest.MonkeyPatch, *workers: Worker, bound_s: float = 30.0) -> None:
    """Waits before the second one restarts."""
    monkeypatch.setattr(rolling, "_client", lambda _, port: workers[port - 19150])
    ports = [19150 + index for index in range(len(workers))]
    rolling.wait_for_others({}, ports, "north-america: mirror", bound_s, 1)


def test_the_next_worker_waits_until_the_others_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    both, alone = {"a": connector(SECOND, FIRST, SECOND)}, {"a": connector(SECOND, SECOND, SECOND)}
    # A worker that has not read the configurations answers that there is no connector.
    first = Worker(None, {}, alone, both)
    wait(monkeypatch, first, Worker(alone))
    assert first.answers == [both]
    with pytest.raises(LabError, match=r"north-america: mirror: the group's other workers, .*port 19150 has no share"):
        wait(monkeypatch, Worker(alone), Worker(alone), bound_s=0.3)
    with pytest.raises(LabError, match=r"port 19150 has not read the connectors' configurations yet"):
        wait(monkeypatch, Worker({}), Worker(alone), bound_s=0.3)
    with pytest.raises(LabError, match=r"not within .* no Connect worker answers"):
        wait(monkeypatch, Worker(None), Worker(alone), bound_s=0.3)


@pytest.mark.parametrize(
    ("settings", "seconds"), [({}, 450), ({rolling.DELAY: 0}, 150), ({rolling.DELAY: "60000"}, 210)]
)
def test_the_wait_follows_from_the_delay_of_the_group(settings: dict[str, Any], seconds: float) -> None:
    assert rolling.bound(settings) == seconds


def test_a_worker_that_does_not_work_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    wait(monkeypatch, Worker(None), Worker(None))


@pytest.mark.parametrize(
    ("running", "replicas", "changed", "done"),
    [
        ((), 2, True, ["start 0", "start 1"]),
        ((0, 1), 2, True, ["wait 0", "run 0", "wait 1", "run 1", "wait 0"]),
        ((0, 1), 2, False, ["run 0", "run 1"]),
        # The one that is missing comes first, and the one that is too many goes last.
        ((0,), 2, True, ["start 1", "wait 0", "run 0", "wait 1"]),
        ((0, 1), 1, True, ["wait 0", "run 0", "end 1"]),
    ],
)
def test_workers_restart_one_after_the_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    running: tuple[int, ...],
    replicas: int,
    changed: bool,
    done: list[str],
) -> None:
    text = (ROOT / "playbooks/03-broadcast/manifests/mm2-na.yaml").read_text(encoding="utf-8")
    (manifest,) = read_manifests("file.yaml", text.replace("replicas: 1", f"replicas: {replicas}"))
    region = LocalRegion(tmp_path, ROOT, "north-america", 19_100)
    mirror = LocalMirrorMaker(region, cast(Any, manifest.resource))
    write_secret(region, "mm2-na-connect-certs", {"keystore.p12": b"x"})
    seen: list[str] = []

    def run(_: LocalRegion, process: Process, *, when: bool) -> bool:
        index = int(process.name[-1])
        seen.append(f"{('run' if index in running else 'start') if when else 'end'} {index}")
        return True

    states = [ProcessState(f"mm2-na-{i}", f"mm2-na-{i}", "RUNNING", 1, 1, tmp_path) for i in running]
    monkeypatch.setattr(processes, "states", lambda _: states)
    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(processes, "restarts", lambda *_: changed)
    monkeypatch.setattr(rolling, "wait_for_others", lambda *given: seen.append(f"wait {given[-1]}"))
    monkeypatch.setattr(LocalMirrorMaker, "access", {})
    monkeypatch.setattr(mirror.settings, "worker", lambda _: "")
    mirror._workers([0, 1], [])
    assert seen == done


NODES = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {name: nodes, namespace: north-america, labels: {strimzi.io/cluster: north-america}}
spec: {replicas: 3, roles: [controller, broker], storage: {type: ephemeral}}
---
apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata: {name: north-america, namespace: north-america}
spec:
  kafka:
    listeners: [{name: internal, port: 9098, type: internal, tls: true, authentication: {type: scram-sha-512}}]
    authorization: {type: simple}
"""


def cluster(home: Path) -> LocalCluster:
    """A cluster of three nodes."""
    pool, kafka = (manifest.resource for manifest in read_manifests("file.yaml", NODES))
    return LocalCluster(LocalRegion(home, ROOT, "north-america", 19_100), cast(Any, kafka), [cast(Any, pool)])


@pytest.mark.parametrize(
    ("running", "changed", "done"),
    [
        ((), True, ["run 0", "run 1", "run 2"]),
        ((0, 1, 2), True, ["wait", "run 0", "wait", "run 1", "wait", "run 2"]),
        ((0, 1, 2), False, ["run 0", "run 1", "run 2"]),
        # A node that is missing starts before another one restarts.
        ((0, 1), True, ["run 2", "wait", "run 0", "wait", "run 1"]),
    ],
)
def test_nodes_restart_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: tuple[int, ...], changed: bool, done: list[str]
) -> None:
    seen: list[str] = []

    def run(_: LocalRegion, process: Process) -> bool:
        seen.append(f"run {process.name[-1]}")
        return True

    states = [ProcessState("n", f"north-america-kafka-{i}", "RUNNING", 1, 1, tmp_path) for i in running]
    monkeypatch.setattr(processes, "states", lambda _: states)
    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(processes, "restarts", lambda *_: changed)
    monkeypatch.setattr(LocalCluster, "_certificates", lambda _: False)
    monkeypatch.setattr(LocalCluster, "_node", lambda _, node: Process(f"north-america-kafka-{node}", [], 1, tmp_path))
    cluster(tmp_path).apply(before_restart=lambda: seen.append("wait"))
    assert seen == done


@pytest.mark.parametrize(("restarts", "waits"), [(0, 0), (3, 4)])
def test_a_cluster_is_whole_again_after_the_last_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int, waits: int
) -> None:
    waited: list[LocalCluster] = []

    def restart(_: LocalCluster, before_restart: Callable[[], None]) -> bool:
        for _number in range(restarts):
            before_restart()
        return bool(restarts)

    monkeypatch.setattr(LocalCluster, "apply", restart)
    monkeypatch.setattr(kafka_entities, "wait_for_replicas", waited.append)
    assert apply._apply_cluster(cluster(tmp_path)) is bool(restarts)
    assert len(waited) == waits


def topic(name: str, *in_sync: int) -> dict[str, Any]:
    """A topic of three replicas, with so many of each partition's in sync."""
    partitions = [
        {"partition_index": index, "replica_nodes": [0, 1, 2], "isr_nodes": [*range(count)]}
        for index, count in enumerate(in_sync)
    ]
    return {"name": name, "partitions": partitions}


class Node:
    """The admin client of a node, which knows so many nodes and these topics."""

    def __init__(self, nodes: int, *topics: dict[str, Any]) -> None:
        self._nodes, self._topics = nodes, topics

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [*range(self._nodes)]}

    def describe_topics(self) -> tuple[dict[str, Any], ...]:
        return self._topics

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("last", "lacking"),
    [
        (Node(3, topic("LH.A", 3, 3)), None),
        (Node(3, topic("LH.A", 3, 2), topic("LH.B", 2)), "2 partitions have replicas .* LH.A-1 among them"),
        (Node(2, topic("LH.A", 3, 3)), "2 of 3 nodes answer"),
        # The others count it among the living for some seconds, and it does not answer.
        (OSError(), "OSError from the node at 127.0.0.1:19117"),
    ],
)
def test_a_node_restarts_only_when_every_other_one_has_all_it_lacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: Node | OSError, lacking: str | None
) -> None:
    healthy = Node(3, topic("LH.A", 3, 3))

    def open_client(connection: Connection, _: object) -> Node:
        (address,) = connection.bootstrap_servers
        if address != "127.0.0.1:19117":
            return healthy
        if isinstance(last, OSError):
            raise last
        return last

    monkeypatch.setattr(kafka_entities, "connect_admin", open_client)
    monkeypatch.setattr(LocalCluster, "admin_connection", lambda _: Connection(()))
    if lacking is None:
        kafka_entities.wait_for_replicas(cluster(tmp_path), 0.1)
        return
    with pytest.raises(LabError, match=f"north-america: Kafka/north-america: its other nodes, .*{lacking}"):
        kafka_entities.wait_for_replicas(cluster(tmp_path), 0.1)
