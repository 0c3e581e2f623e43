"""Status: what is as its manifest and its stage want is healthy; what was stopped by hand is not."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import LabError
from loosehanger.kafka.connect import ConnectClient, ConnectError
from loosehanger.kafka.groups import Group
from loosehanger.lab.manifests.loader import check_document
from loosehanger.lab.manifests.resources import Deployment, KafkaMirrorMaker2
from loosehanger.lab.scenario import in_state
from loosehanger.paths import ROOT
from loosehanger.platforms.local import status as local_status
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.processes import ProcessState
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.status import after_rebalance, mirror_health
from loosehanger.ports import LOOPBACK
from tests.topologies import documents, resource

HERE = LocalRegion(Path("/nowhere"), ROOT, "west", 20000)
SOURCE, CHECKPOINT = "east->west.MirrorSourceConnector", "east->west.MirrorCheckpointConnector"


def mirror(state: str = "running", *, replicas: int = 1, checkpoints: str = "running") -> KafkaMirrorMaker2:
    """A mirror with two connectors, as a stage wants it."""

    def end(alias: str) -> dict[str, Any]:
        return {
            "alias": alias,
            "bootstrapServers": f"{alias}-kafka-bootstrap.{alias}.svc:9098",
            "tls": {"trustedCertificates": [{"secretName": f"{alias}-cluster-ca-cert", "pattern": "*.crt"}]},
            "authentication": {
                "type": "scram-sha-512",
                "username": "mm2",
                "passwordSecret": {"secretName": "mm2", "password": "password"},
            },
        }

    storage = {f"{kind}StorageTopic": f"__mm2_{kind}" for kind in ("config", "offset", "status")}
    checkpoint = {"state": checkpoints} if checkpoints != "running" else {}
    content = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": "mm2", "namespace": "west"},
        "spec": {
            "version": "4.3.1",
            "replicas": replicas,
            "target": {**end("west"), "groupId": "mm2", **storage},
            "mirrors": [{"source": end("east"), "sourceConnector": {}, "checkpointConnector": checkpoint}],
        },
    }
    found = check_document(in_state(documents(content)[0], state)).resource  # type: ignore[arg-type]
    assert isinstance(found, KafkaMirrorMaker2)
    return found


def present(source: str, checkpoint: str, *tasks: str) -> dict[str, Any]:
    """What Connect says of both connectors, each with these tasks."""
    each = [{"id": number, "state": state} for number, state in enumerate(tasks)]
    return {
        name: {"connector": {"state": state}, "tasks": each}
        for name, state in ((SOURCE, source), (CHECKPOINT, checkpoint))
    }


@pytest.mark.parametrize(
    ("resource", "found", "healthy", "state", "detail"),
    [
        (
            mirror(),
            present("RUNNING", "RUNNING", "RUNNING"),
            True,
            "Running",
            "from east: 2 connectors, 2 tasks on 1 worker",
        ),
        # By the stage, or by the manifest.
        (mirror("stopped"), present("STOPPED", "STOPPED"), True, "Stopped", f"as it should be: {SOURCE} is STOPPED"),
        (mirror("paused"), present("PAUSED", "PAUSED", "PAUSED"), True, "Paused", f"{CHECKPOINT} is PAUSED"),
        # By hand.
        (mirror(), present("STOPPED", "STOPPED"), False, "Stopped", f"{SOURCE} is STOPPED"),
        (mirror(), present("RUNNING", "RUNNING", "RESTARTING"), False, "Restarting", "task 0 is RESTARTING"),
        (mirror(), present("RUNNING", "STOPPED", "FAILED"), False, "Failed", "task 0 is FAILED"),
        (mirror(), present("PAUSED", "PAUSED", "PAUSED"), False, "Paused", f"{CHECKPOINT} task 0 is PAUSED"),
        (
            mirror("stopped"),
            present("RUNNING", "RUNNING", "RUNNING"),
            False,
            "Degraded",
            "is RUNNING and should be STOPPED",
        ),
        (mirror("paused"), present("STOPPED", "PAUSED"), False, "Stopped", f"{SOURCE} is STOPPED and should be PAUSED"),
        # One of two.
        (
            mirror(checkpoints="stopped"),
            present("RUNNING", "STOPPED", "RUNNING"),
            False,
            "Degraded",
            "task 0 is RUNNING",
        ),
        (mirror(), present("RUNNING", "STOPPED", "RUNNING"), False, "Stopped", f"{CHECKPOINT} is STOPPED"),
        # What should run and has nothing to do, and what is not there at all.
        (mirror(), present("RUNNING", "RUNNING"), False, "Degraded", f"{SOURCE} has no task"),
        (mirror("stopped"), {}, False, "Degraded", f"{SOURCE} is not there"),
    ],
)
def test_a_mirror_is_healthy_when_it_is_as_it_should_be(
    resource: KafkaMirrorMaker2, found: dict[str, Any], healthy: bool, state: str, detail: str
) -> None:
    health = mirror_health(resource, LocalMirrorMaker(HERE, resource).states(), found, {})
    assert (health.healthy, health.state) == (healthy, state)
    assert detail in health.detail


def test_a_mirror_of_which_one_connector_is_held_runs() -> None:
    resource = mirror(checkpoints="stopped")
    found = present("RUNNING", "STOPPED", "RUNNING")
    found[CHECKPOINT]["tasks"] = []
    health = mirror_health(resource, LocalMirrorMaker(HERE, resource).states(), found, {})
    assert (health.healthy, health.state) == (True, "Running")


def test_a_process_that_does_not_run_is_told() -> None:
    resource = mirror("stopped")
    found = present("STOPPED", "STOPPED")
    health = mirror_health(resource, LocalMirrorMaker(HERE, resource).states(), found, {}, ["process mm2-1 is FATAL"])
    assert (health.healthy, health.state, health.detail) == (False, "Degraded", "process mm2-1 is FATAL")


def test_without_replicas_is_stopped_and_healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    region = LocalRegion(tmp_path, ROOT, "west", 20000)
    region.store(mirror(replicas=0).model_dump(by_alias=True, exclude_none=True, exclude_defaults=False))
    region.store(program(0))
    monkeypatch.setattr(local_status, "states", lambda _: [])
    found = {
        entry["kind"]: (entry["healthy"], entry["state"], entry["detail"]) for entry in local_status.status(region)
    }
    assert found == {
        "KafkaMirrorMaker2": (True, "Stopped", "as it should be: spec.replicas is 0"),
        "Deployment": (True, "Stopped", "as it should be: spec.replicas is 0"),
    }
    region.store(program(1))
    assert [entry["healthy"] for entry in local_status.status(region)] == [True, False]


def test_what_is_down_or_frozen_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    region = LocalRegion(tmp_path, ROOT, "west", 20000)
    region.store(mirror(replicas=2).model_dump(by_alias=True, exclude_none=True, exclude_defaults=False))
    asked: list[list[str]] = []

    def connectors(client: ConnectClient) -> Any:
        asked.append([url.rpartition(":")[2] for url in client.urls])
        raise ConnectError("no Connect worker answers")

    access = {"url": "https://127.0.0.1:1"}
    monkeypatch.setattr(LocalMirrorMaker, "access", property(lambda _: access))
    monkeypatch.setattr(ConnectClient, "connectors", connectors)
    running: dict[str, str] = {"mm2-auto-restart": "RUNNING", "mm2-0": "FATAL", "mm2-1": "RUNNING"}

    def look() -> tuple[str, list[tuple[str, str]]]:
        found = [ProcessState(name, name, state, 0, 9, tmp_path / name) for name, state in running.items()]
        monkeypatch.setattr(local_status, "states", lambda _: found)
        (health,) = local_status.status(region)
        assert ("no Connect worker answers" in health["detail"]) is (running["mm2-1"] != "STOPPED")
        return health["state"], local_status.silent(region)

    ports = [str(port) for port in LocalMirrorMaker(region, mirror(replicas=2)).ports()]
    assert look() == ("Down", [])
    assert asked == [ports[1:]], "the worker that runs is asked, and no other"
    running["mm2-1"] = "STOPPED"
    assert look() == ("Down", [("KafkaMirrorMaker2", "mm2")])
    assert len(asked) == 1
    running["mm2-1"] = "STARTING"
    assert look() == ("Down", [])
    assert len(asked) == 2, "one that starts may answer"


def test_a_topic_that_was_refused_is_named_until_the_next_look_for_topics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    region = LocalRegion(tmp_path, ROOT, "west", 20000)
    region.store(mirror().model_dump(by_alias=True, exclude_none=True, exclude_defaults=False))
    ran = present("RUNNING", "RUNNING", "RUNNING")
    connector = {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}
    found = {name: {"status": of, "info": {"config": connector}} for name, of in ran.items()}
    monkeypatch.setattr(LocalMirrorMaker, "access", property(lambda _: {"url": "https://127.0.0.1:1"}))
    monkeypatch.setattr(LocalMirrorMaker, "connectors", lambda _: {})
    monkeypatch.setattr(LocalMirrorMaker, "failures", lambda _: {})
    monkeypatch.setattr(ConnectClient, "connectors", lambda _: found)
    workers = [ProcessState("mm2-0", "mm2-0", "RUNNING", 0, 9, tmp_path / "mm2-0")]
    monkeypatch.setattr(local_status, "states", lambda _: workers)
    refused = time.strftime("%Y-%m-%d %H:%M:%S,000", time.localtime(time.time() - 60))
    region.logs.mkdir(parents=True, exist_ok=True)
    (region.logs / "mm2-0.log").write_text(
        f"{refused} WARN  Could not create topic LH.OLD. (MirrorSourceConnector)\n"
        "org.apache.kafka.common.errors.InvalidConfigurationException: Unknown topic config name: a.b\n",
        encoding="utf-8",
    )

    def named() -> list[str]:
        (health,) = local_status.status(region)
        return [one["where"] for one in health["problems"]]

    # MM2 looks every ten minutes, unless its connector has another setting.
    assert named() == ["west, KafkaMirrorMaker2/mm2, topic LH.OLD"]
    connector |= {"refresh.topics.interval.seconds": "5", "sync.topic.configs.interval.seconds": "5"}
    assert named() == []


@pytest.mark.parametrize(
    ("state", "members", "partitions", "topics", "lacks"),
    [
        ("Stable", 2, 6, 2, None),
        ("Stable", 2, 0, 0, None),
        ("Empty", 0, 0, 2, "0 of 2 are in group 'readers', which is Empty"),
        ("Stable", 1, 6, 2, "1 of 2 are in group 'readers', which is Stable"),
        ("PreparingRebalance", 2, 0, 2, "group 'readers' is PreparingRebalance"),
        ("Stable", 2, 0, 2, "group 'readers' holds no partition of the 2 topics that match ^LH"),
    ],
)
def test_what_two_consumers_of_a_group_lack(
    state: str, members: int, partitions: int, topics: int, lacks: str | None
) -> None:
    group = Group("readers", "^LH", state, members=members, partitions=partitions, topics=topics)
    assert group.lacks(2) == lacks


def program(replicas: int) -> dict[str, Any]:
    container = {"name": "clock", "image": "clock", "command": ["date"]}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "clock", "namespace": "west"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }
    Deployment.model_validate(document)
    return document


def test_what_a_program_cannot_reach_is_not_asked_and_has_the_cause_of_the_other_region(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bases = {"north-america": 20000, "south-america": 20100}
    there = LocalRegion(tmp_path, ROOT, "north-america", 20000, bases)
    here = there.peer("south-america")
    authentication = {"type": "scram-sha-512"}
    listener = {"name": "tls", "port": 9093, "type": "internal", "tls": True, "authentication": authentication}
    spec = {"version": "4.3.1", "listeners": [listener], "authorization": {"type": "simple"}, "config": {}}
    kafka = resource("kafka.strimzi.io/v1", "Kafka", there.name, there.name, {"kafka": spec, "entityOperator": {}})
    del kafka["metadata"]["labels"]
    storage = {"type": "jbod", "volumes": [{"id": 0, "type": "ephemeral", "kraftMetadata": "shared"}]}
    nodes = {"replicas": 1, "roles": ["controller", "broker"], "storage": storage}
    there.store(kafka)
    there.store(resource("kafka.strimzi.io/v1", "KafkaNodePool", "nodes", there.name, nodes))
    cluster = LocalCluster.of(there, there.name)
    states = {name: ProcessState(name, name, "RUNNING", 7, 9, tmp_path / name) for name in cluster.process_names()}
    monkeypatch.setattr(
        local_status, "states", lambda region: list(states.values()) if region.name != here.name else []
    )
    (tmp_path / "password").write_text("x", encoding="utf-8")
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": cluster.addresses_for(here.name)[0],
        "KAFKA_USERNAME": "consumer",
        "KAFKA_PASSWORD_FILE": str(tmp_path / "password"),
        "KAFKA_CA_FILE": str(tmp_path / "ca.crt"),
    }

    def unreachable() -> tuple[str, list[str]] | None:
        found = local_status._unreachable(here, environment, [])
        return found and (found.why, [f"{one.where}: {one.cause}" for one in found.causes])

    assert unreachable() is None
    name = next(iter(states))
    running = states[name]
    states[name] = replace(running, state="FATAL")
    of_cluster = f"its cluster {there.name} is down"
    assert unreachable() == (of_cluster, [f"{there.name}, process {name}: process {name} does not run (FATAL)"])
    states.clear()
    down = f"nothing of {there.name} is running: its process manager is down, as after a restart of the machine"
    assert unreachable() == (of_cluster, [f"{there.name}: {down}"])
    states[name] = running
    folder = there.folder / "links" / here.name
    folder.mkdir(parents=True)
    routes = [{"port": there.relay_port(0, here.name)}, {"port": here.relay_port(0, there.name)}]
    (folder / "relay.json").write_text(json.dumps({"start": {}, "routes": routes}), encoding="utf-8")
    kept: dict[str, Any] = {"start": {}, "refused": True, "directions": {}}
    (folder / "settings.json").write_text(json.dumps(kept), encoding="utf-8")
    cut = f"the link between {there.name} and {here.name} is cut"
    assert unreachable() == (cut, [f"{there.name}, {here.name}: {cut}"])
    (folder / "settings.json").write_text(json.dumps(kept | {"refused": False}), encoding="utf-8")
    assert unreachable() is None

    with socket.create_server((LOOPBACK, 0)) as someone:
        left = f"{LOOPBACK}:{someone.getsockname()[1]}"
        environment["KAFKA_BOOTSTRAP_SERVERS"] = left
        assert unreachable() is None
    with pytest.raises(LabError, match=f"nothing listens at {left}, where its cluster should be"):
        unreachable()

    # Without its process manager, too, a cluster that is gone is not asked; a node that has outlived it is.
    asked: list[str] = []

    def ask(cluster: LocalCluster, _: float) -> None:
        asked.append(cluster.name)
        raise LabError("no answer")

    monkeypatch.setattr(local_status, "admin_client", ask)
    monkeypatch.setattr(LocalCluster, "addresses", lambda *_: [left])
    assert local_status._cluster(cluster, []).detail == f"process {name} is not there"
    assert asked == []
    with socket.create_server((LOOPBACK, int(left.rpartition(":")[2]))):
        local_status._cluster(cluster, [])
    assert asked == [there.name]


def answers(monkeypatch: pytest.MonkeyPatch, *tasks: str) -> Callable[[], dict[str, dict[str, Any]]]:
    """Connect with one task, which is in the next of these states at each question, and stays in the last one."""
    left = list(tasks)
    monkeypatch.setattr(local_status, "LOOK_SECONDS", 0.3)
    return lambda: {
        "a->b": {
            "status": {
                "connector": {"state": "RUNNING"},
                "tasks": [{"id": 0, "state": left.pop(0) if left[1:] else left[0]}],
            }
        }
    }


@pytest.mark.parametrize(
    ("tasks", "seen"),
    [
        (("UNASSIGNED", "UNASSIGNED", "RUNNING"), "RUNNING"),
        (("UNASSIGNED", "FAILED"), "FAILED"),
        (("FAILED", "RUNNING"), "FAILED"),
        (("UNASSIGNED",), "UNASSIGNED"),
    ],
)
def test_a_task_between_two_workers_is_given_a_moment(
    monkeypatch: pytest.MonkeyPatch, tasks: tuple[str, ...], seen: str
) -> None:
    (found,) = after_rebalance(answers(monkeypatch, *tasks)).values()
    assert [task["state"] for task in found["status"]["tasks"]] == [seen]


def test_connect_that_does_not_answer_meanwhile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    read = answers(monkeypatch, "UNASSIGNED")
    seen: list[object] = []

    def once() -> dict[str, dict[str, Any]]:
        if seen:
            raise ConnectError("no worker answers")
        seen.append(None)
        return read()

    with pytest.raises(ConnectError, match="no worker answers"):
        after_rebalance(once)
