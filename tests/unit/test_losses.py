"""Status: a mirror that may lose records is not healthy, and one that has caught up is, whatever it lost before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from loosehanger.acls import AclRule
from loosehanger.cli import retention_risk, status
from loosehanger.cli.retention_risk import MirrorRisk
from loosehanger.cli.status import exit_code
from loosehanger.errors import LabError
from loosehanger.kafka.retention_risk import PartitionRisk, TopicRisk
from loosehanger.kafka.transactions import Held, Holder
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.topology import Topology, clients_of
from tests.topologies import documents, kafka

MIRROR = Mirror("m", "europe", "na", "europe", "na", "identity", ".", "LH.*", "", "c")


@pytest.mark.parametrize(
    ("changes", "losing", "reported"),
    [
        ({}, False, 0),
        ({"behind": 5, "age_s": 2.0, "loss_in_s": 9e5, "by": "time"}, False, 0),
        ({"behind": 5, "age_s": 90.0, "loss_in_s": 30.0, "by": "time", "endangered": True}, True, 1),
        ({"behind": 5, "gone": 3}, True, 1),
        ({"gone": 3}, False, 1),
        ({"made_again": True}, False, 1),
    ],
)
def test_what_a_mirror_loses_is_told_and_decides_on_its_health(
    changes: dict[str, Any], losing: bool, reported: int
) -> None:
    nothing: dict[str, Any] = {
        "behind": 0,
        "age_s": None,
        "loss_in_s": None,
        "by": "",
        "partition": None,
        "pace": None,
        "endangered": False,
        "gone": 0,
        "made_again": False,
    }
    standing = MirrorRisk(MIRROR, {"A": TopicRisk("A", **nothing | changes)})
    assert standing.losing == losing
    assert len(list(standing.warnings)) == reported


STORED = ("configStorageTopic", "offsetStorageTopic", "statusStorageTopic")


class Clock:
    """Time that passes only while a caller waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class World:
    """A source and a Connect group with one mirror, as a test has them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.state = "RUNNING"
        self.config: dict[str, str] = {"refresh.topics.interval.seconds": "10"}
        self.position: Callable[[float], int] = lambda _: 7
        self.fails: Callable[[float], str] = lambda _: ""
        self.unread = False
        self.asked: list[str] = []

    def connectors(self) -> dict[str, Any]:
        status = {"connector": {"state": self.state}, "tasks": [{"id": 0, "state": self.state}]}
        return {"c": {"info": {"config": self.config}, "status": status}}

    def ends(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append("ends")
        return dict.fromkeys(wanted, 99)

    def positions(self) -> dict[TopicPartition, int]:
        self.asked.append("positions")
        return {TopicPartition("LH.A", 0): self.position(self.clock.now)}

    def look(
        self, positions: Mapping[TopicPartition, int | None], *, now: float, ends: Mapping[TopicPartition, int]
    ) -> list[PartitionRisk]:
        assert (now, [*ends.values()]) == (self.clock.now, [99])
        if reason := self.fails(self.clock.now):
            raise LabError(reason)
        (position,) = positions.values()
        assert position is not None
        oldest, age = (None, None) if self.unread else (position + 1, 600.0)
        return [PartitionRisk("LH.A", 0, position, 0, 99, 1, age_s=age, oldest=oldest, unread=self.unread)]

    def topics(self) -> dict[str, int]:
        return {"LH.A": 1}

    def connect_ahead(self) -> None:
        """It is there at once."""

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """A mirror that stands still while an old record waits, and positions that are written every five seconds."""
    found = World()
    properties = tmp_path / "regions/na/connect/m/worker-0.properties"
    properties.parent.mkdir(parents=True)
    properties.write_text("offset.flush.interval.ms=5000\n", encoding="utf-8")
    (tmp_path / "regions/na/logs").mkdir()
    (tmp_path / "regions/na/logs/m-0.log").write_text("2026-01-01 00:00:00,000 ERROR it collides\n", encoding="utf-8")
    monkeypatch.setattr(retention_risk, "time", found.clock)
    monkeypatch.setattr(retention_risk, "connection_for", lambda *_: None)
    monkeypatch.setattr(retention_risk, "lab_home", lambda: tmp_path)
    monkeypatch.setattr(retention_risk, "RetentionReader", lambda _: found)
    monkeypatch.setattr(retention_risk, "Cluster", lambda *_: found)
    monkeypatch.setattr(retention_risk, "ConnectClient", SimpleNamespace(of=lambda *_, **__: found))
    monkeypatch.setattr(retention_risk, "mirror_positions", lambda *_: found.positions())
    return found


def test_a_mirror_behind_an_open_transaction_is_blocked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    open_one = Held("LH.A", 0, 8, 99, Holder(5, "till-7", 78.0, 900.0))
    exposure = PartitionRisk("LH.A", 0, 7, 0, 99, 0, held=open_one)
    monkeypatch.setattr(world, "look", lambda *_, **__: [exposure])
    found = standing()
    assert found.state == "Blocked"
    assert list(found.warnings) == [
        "LH.A: up to 91 records are behind the last stable offset and are not copied, held by transaction 'till-7' of "
        "producer 5, open for 1.3 min (timeout 15.0 min)"
    ]


def test_status_looks_for_30_seconds_at_a_transaction_of_unknown_age(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = world.clock.now
    unknown = Held("LH.A", 0, 8, 99, Holder(5), "user 'prover' lacks Describe on transactional ids")

    def look(*_: object, **__: object) -> list[PartitionRisk]:
        return [PartitionRisk("LH.A", 0, 7, 0, 99, 0, held=unknown, held_s=world.clock.now - began)]

    monkeypatch.setattr(world, "look", look)
    assert "lacks Describe on transactional ids" in next(iter(standing().warnings))
    monkeypatch.setattr(world, "look", lambda *_, **__: [PartitionRisk("LH.A", 0, 7, 0, 99, 0, held=unknown)])
    assert (standing().state, world.clock.now - began < 40) == ("", True), "each look sees another transaction"


def standing(*, rests: bool = False) -> MirrorRisk:
    """How the mirror stands, for a reader that begins to look now."""
    mirror = replace(MIRROR, region="na", connect={"url": "x"})
    lab: Any = SimpleNamespace(mirrors=[mirror], clusters={"europe": 1, "na": 1}, region=lambda _: SimpleNamespace())
    (found,) = retention_risk.standings(lab, lambda: {("na", mirror.name)} if rests else ())
    return found


def test_a_mirror_that_rests_as_it_should_needs_no_workers(world: World) -> None:
    world.fails = lambda _: "no Connect worker answers"
    assert standing().state == "Unknown"
    began = world.clock.now
    assert (standing(rests=True).state, list(standing(rests=True).warnings)) == ("", [])
    assert world.clock.now == began, "and it is not waited for"


def test_status_looks_until_it_knows_that_a_running_mirror_delivers_nothing(world: World) -> None:
    found = standing()
    assert found.state == "Stalled"
    assert list(found.warnings) == [
        "running, but no record was delivered for 35 s: LH.A-0 waits at offset 8; "
        "last error in the worker's log: it collides"
    ]
    assert world.clock.now == 1035.0


def test_status_does_not_wait_for_a_mirror_that_moves(world: World) -> None:
    world.position = lambda now: int(now)
    assert standing().state == ""
    assert world.clock.now <= 1002


def test_the_ends_are_read_before_the_positions(world: World) -> None:
    standing()
    assert world.asked[:2] == ["ends", "positions"]


@pytest.mark.parametrize(
    ("state", "config"),
    [
        ("PAUSED", {}),
        ("STOPPED", {}),
        ("RUNNING", {"transforms": "sample", "transforms.sample.type": "org.apache.kafka.connect.transforms.Filter"}),
    ],
)
def test_a_mirror_that_need_not_deliver_is_not_waited_for(world: World, state: str, config: dict[str, str]) -> None:
    world.state, world.config = state, config
    assert standing().state == ""
    assert world.clock.now == 1000.0


def test_a_reading_that_fails_does_not_begin_the_wait_anew(world: World) -> None:
    world.fails = lambda now: "no answer" if 1020 <= now < 1030 else ""
    assert standing().state == "Stalled"
    assert world.clock.now == 1035.0


@pytest.mark.parametrize("unread", [True, False])
def test_a_lag_that_cannot_be_measured_is_said_after_some_tries(world: World, *, unread: bool) -> None:
    world.unread = unread
    if not unread:
        world.fails = lambda _: "europe: the cluster does not answer"
    found = standing()
    assert found.state == "Unknown"
    reason = "LH.A-0 could not be read in time" if unread else "europe: the cluster does not answer"
    assert list(found.warnings) == [f"lag not measured: {reason}"]
    world.state = "PAUSED"
    assert standing().state == "", "of a mirror that does not run, nothing is missed"


def test_the_right_that_a_mirror_lacks_is_named_with_its_user_and_region(world: World, monkeypatch: Any) -> None:
    end = {"authentication": {"username": "writes"}, "groupId": "g", **dict.fromkeys(STORED, "s")}
    source = {"alias": "europe", "authentication": {"username": "reads"}}
    spec = {"target": end, "mirrors": [{"source": source, "sourceConnector": {}}]}
    mirror = replace(MIRROR, region="na", connect={"url": "x"}, offset_syncs="target")
    lab: Any = SimpleNamespace(
        topology=SimpleNamespace(of_kind=lambda *_: [SimpleNamespace(name="m", content={"spec": spec})]),
        region=lambda _: SimpleNamespace(),
    )
    every = [
        AclRule("User:writes", kind, "*", prefix=False, operation="ALL", allows=True) for kind in ("TOPIC", "GROUP")
    ]
    monkeypatch.setattr(World, "rules", lambda _: every, raising=False)
    said = retention_risk.lacking_rights(lab, mirror)
    assert said == ["user reads lacks in europe: Read on topic LH.A, DescribeConfigs on topic LH.A"]
    said = retention_risk.lacking_rights(lab, mirror, ["LH.A", "LH.STAYS"])
    assert said == ["user reads lacks in europe: Read on topic LH.A"], "of one that runs, only what it copies counts"
    assert retention_risk.lacking_rights(lab, mirror, ["LH.STAYS"]) == []

    def away() -> dict[str, int]:
        raise LabError("no answer")

    monkeypatch.setattr(world, "topics", away)
    assert retention_risk.lacking_rights(lab, mirror) == []


@pytest.mark.parametrize(
    ("silent", "lacks"),
    [
        (("na", "KafkaMirrorMaker2", "m"), "none of its workers in na runs"),
        (("europe", "Kafka", "europe"), "the cluster of europe is down"),
        (("na", "Kafka", "na"), "the cluster of na is down"),
        (("asia", "Kafka", "asia"), ""),
    ],
)
def test_what_cannot_answer_is_not_asked(world: World, silent: tuple[str, str, str], lacks: str) -> None:
    world.position = int
    mirror = replace(MIRROR, region="na", connect={"url": "x"})
    lab: Any = SimpleNamespace(mirrors=[mirror], clusters={"europe": 1, "na": 1}, region=lambda _: SimpleNamespace())
    (found,) = retention_risk.standings(lab, silent={silent})
    assert found.problem == lacks
    assert bool(world.asked) is not bool(lacks)
    (resting,) = retention_risk.standings(lab, lambda: {("na", "m")}, {silent})
    assert resting.problem == ""


def test_a_record_that_waits_is_known_by_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_risk, "time", Clock())

    def risk(topic: str, behind: int, age_s: float | None) -> TopicRisk:
        return TopicRisk(topic, behind, age_s, None, "", None, None, endangered=False, gone=0, made_again=False)

    found = MirrorRisk(MIRROR, {one.topic: one for one in (risk("A", 3, 40.0), risk("B", 3, 2.0), risk("C", 0, None))})
    assert found.waiting == {"A": 960.0}


def test_a_lag_that_could_not_be_measured_is_inconclusive_unless_something_is_down() -> None:
    well = {"healthy": True, "state": "Running"}
    unknown, down = {"healthy": False, "state": "Unknown"}, {"healthy": False, "state": "Down"}
    assert exit_code({"a": [well, unknown]}) == 4
    assert exit_code({"a": [well, unknown], "b": [down]}) == 1
    assert exit_code({"a": [well, unknown], "b": []}) == 1


def program(name: str, module: str, address: str) -> dict[str, Any]:
    """A Deployment in South America that runs one of the kit's programs."""
    container = {
        "command": ["python", "-P", "-m", module],
        "env": [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": address}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "south-america"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def test_a_program_of_a_cluster_that_is_lost_as_intended_is_not_wrong() -> None:
    address = "north-america-kafka-bootstrap.north-america.svc.cluster.local:9098"
    programs = [
        program("consumer-southamerica", "consumers", address),
        program("other", "loosehanger.console", address),
    ]
    shop = Topology(documents(kafka("europe"), kafka("north-america"), *programs))
    assert clients_of(shop, "north-america") == {("south-america", "consumer-southamerica")}
    assert clients_of(shop, "europe") == clients_of(shop, "south-america") == set()
    down = {"healthy": False, "state": "Degraded", "detail": "x", "problems": ("x",)}
    consumer, other = ({"kind": "Deployment", "name": name, **down} for name in ("consumer-southamerica", "other"))
    lab: Any = SimpleNamespace(
        regions={"south-america": None, "europe": None},
        lost=("north-america",),
        topology=shop,
        stage="lose-region",
        unfinished="",
    )
    found = status._complete(lab, {"south-america": [consumer, other], "europe": []})
    assert found["south-america"][0] == {
        "kind": "Deployment",
        "name": "consumer-southamerica",
        "healthy": True,
        "state": "Waiting",
        "detail": "as intended: its cluster is lost since the stage 'lose-region'",
        "problems": (),
    }
    assert found["south-america"][1] is other
    assert {one["state"] for one in found["north-america"]} == {"Lost"}
    ended = {**consumer, "state": "Down"}
    assert status._complete(lab, {"south-america": [ended]})["south-america"] == [ended]
    cluster = {**consumer, "kind": "Kafka"}
    assert status._complete(lab, {"south-america": [cluster]})["south-america"] == [cluster]
    assert status._complete(lab, {"europe": []}).keys() == {"europe", "north-america"}
    lab.lost = ()
    assert status._complete(lab, {"south-america": [consumer]})["south-america"] == [consumer]
