"""The changes of the catalogue to topics, records, groups and transactions: what they refuse, and how they heal."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from kafka import TopicPartition

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes import positions
from loosehanger.faults.changes.groups import CommitOffsets, JoinGroup
from loosehanger.faults.changes.permissions import granted
from loosehanger.faults.changes.positions import forget
from loosehanger.faults.changes.records import DeleteRecords, OutrunMirror, WriteRecords
from loosehanger.faults.changes.topics import (
    AlterCopy,
    DeleteCopy,
    DeleteInternalTopic,
    OwnTopic,
    RecreateTopic,
    its_topics,
)
from loosehanger.faults.changes.transactions import OpenTransaction
from loosehanger.faults.fault import read_fault
from loosehanger.faults.names import fault_names
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.connect import ConnectClient, ConnectError
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.platforms import registry

CONNECTOR = "europe->northamerica.MirrorSourceConnector"
MIRROR = Mirror(
    "mm2-na", "europe", "northamerica", "europe", "north-america", "identity", ".", r"LH\..*", "", CONNECTOR,
    connect={"url": "http://localhost:1"}, region="north-america", groups="consumer-.*",
)  # fmt: skip


class Cluster:
    """A region's cluster, as a dictionary of topics."""

    def __init__(self, region: str, names: dict[str, int], groups: list[str]) -> None:
        self.region, self.names, self._groups = region, names, groups

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def topics(self) -> dict[str, int]:
        return dict(self.names)

    def groups(self) -> list[str]:
        return self._groups

    def delete_topics(self, names: list[str], _: float) -> None:
        for name in names:
            self.names.pop(name, None)


class Connect:
    """Connect's REST interface, with one connector."""

    def __init__(self, state: str = "RUNNING", task: str = "RUNNING", positions: Any = ()) -> None:
        self.state, self.task, self.known = state, task, dict(positions)
        self.asked: list[str] = []

    def status(self, _: str) -> dict[str, Any]:
        tasks = [] if self.state == "STOPPED" else [{"id": 0, "state": self.task}]
        return {"connector": {"state": self.state}, "tasks": tasks}

    def act(self, _: str, action: str) -> None:
        self.asked.append(action)
        self.state = {"stop": "STOPPED", "pause": "PAUSED", "resume": "RUNNING"}[action]
        self.task = self.state

    def positions(self, _: str, alias: str) -> dict[tuple[str, int], int]:
        assert alias == "europe"
        return self.known

    def set_positions(self, _: str, __: str, wanted: dict[tuple[str, int], int | None]) -> None:
        assert self.state == "STOPPED", "Connect refuses to change the offsets of a connector that is not stopped"
        for place, offset in wanted.items():
            assert offset is None
            del self.known[place]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> dict[str, Cluster]:
    """Two regions without topics of faults."""
    found = {name: Cluster(name, {"LH.ORDERS": 3}, []) for name in ("europe", "north-america")}
    for module in ("topics", "groups", "records"):
        monkeypatch.setattr(f"loosehanger.faults.changes.{module}.cluster", lambda _, region: found[region])
    return found


def site(mirror: Mirror = MIRROR) -> FaultSite:
    regions = {"europe": 1, "north-america": 1}
    return FaultSite(
        cast("Any", SimpleNamespace(clusters=regions, mirrors=(mirror,))), Path(), mirror, "LH.ORDERS", registry
    )


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    "change",
    [
        OwnTopic(topic="LH-FAULT"),
        RecreateTopic(topic="LH-FAULT"),
        DeleteCopy(topic="LH-FAULT"),
        AlterCopy(topic="LH-FAULT", settings={}),
        WriteRecords(topic="LH-FAULT"),
        DeleteRecords(topic="LH-FAULT"),
        OpenTransaction(topic="LH-FAULT"),
    ],
    ids=lambda change: type(change).__name__,
)
def test_a_topic_that_the_mirror_does_not_copy_is_refused(change: Any) -> None:
    with pytest.raises(WrongUseError, match="mm2-na in north-america does not copy topics named LH-FAULT"):
        change.prepare(site())


@pytest.mark.usefixtures("lab")
def test_a_topic_that_misses_the_pattern_must_miss_it() -> None:
    assert OwnTopic(topic="LH-FAULT", copied=False).prepare(site()) == {"topic": "LH-FAULT"}
    with pytest.raises(WrongUseError, match=r"copies topics named LH\.FAULT"):
        OwnTopic(topic="LH.FAULT", copied=False).prepare(site())


def test_a_topic_that_is_left_from_before_is_refused(lab: dict[str, Cluster]) -> None:
    lab["north-america"].names["europe.LH.FAULT"] = 1
    with pytest.raises(WrongUseError, match=r"north-america has topic europe\.LH\.FAULT already"):
        OwnTopic(topic="LH.FAULT").prepare(site())


def test_only_the_topic_and_its_copies_are_deleted(lab: dict[str, Cluster]) -> None:
    names = [
        "LH.FAULT",
        "europe.LH.FAULT",
        "asiapacific.europe.LH.FAULT",
        "LH.FAULT-2",
        "xLH.FAULT",
        "europe.LH.FAULTS",
    ]
    lab["europe"].names = dict.fromkeys(names, 1)
    assert its_topics(cast("Any", lab["europe"]), "LH.FAULT") == sorted(names[:3])


def test_healing_deletes_the_topic_everywhere_and_forgets_its_positions(
    lab: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Connect(positions={("LH.FAULT", 0): 99, ("LH.ORDERS", 1): 7})
    monkeypatch.setattr(ConnectClient, "of", lambda _: connect)
    for region in lab.values():
        region.names["LH.FAULT"] = 1
    OwnTopic(topic="LH.FAULT").heal(site(), {"topic": "LH.FAULT"})
    assert [region.names for region in lab.values()] == [{"LH.ORDERS": 3}, {"LH.ORDERS": 3}]
    assert (connect.known, connect.asked) == ({("LH.ORDERS", 1): 7}, ["stop", "resume"])
    OwnTopic(topic="LH.FAULT").heal(site(), {"topic": "LH.FAULT"})
    assert connect.asked == ["stop", "resume"], "a second healing has nothing to do"


@pytest.mark.parametrize(
    ("state", "task", "positions", "asked"),
    [
        ("RUNNING", "RUNNING", {}, []),
        ("RUNNING", "FAILED", {}, ["stop", "resume"]),
        ("PAUSED", "PAUSED", {("LH.FAULT", 0): 1}, ["stop", "pause"]),
        ("STOPPED", "STOPPED", {("LH.FAULT", 0): 1}, ["stop"]),
    ],
)
def test_a_connector_gets_its_state_again(
    state: str, task: str, positions: Any, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Connect(state, task, positions)
    monkeypatch.setattr(ConnectClient, "of", lambda _: connect)
    forget(site(), MIRROR, "LH.FAULT")
    assert (connect.asked, connect.known) == (asked, {})


def test_a_mirror_without_workers_forgets_by_tombstones_under_the_keys_that_connect_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def key(topic: str, connector: str = CONNECTOR, cluster: str = "europe", partition: int = 0) -> bytes:
        return json.dumps([connector, {"topic": topic, "partition": partition, "cluster": cluster}]).encode()

    wanted, copied = key("LH.FAULT"), key("asia.LH.FAULT")
    others = [key("LH.ORDERS"), key("LH.FAULT", "another"), key("LH.FAULT", cluster="asia"), key("LH.FAULTS")]
    records = [(number, b"{}") for number in (wanted, copied, *others)] + [(key("LH.FAULT", partition=1), None)]
    read = [SimpleNamespace(key=name, value=value, partition=3) for name, value in records]
    sent: list[tuple[Any, ...]] = []
    client = MagicMock()

    def send(*given: Any, **more: Any) -> MagicMock:
        sent.append((*given, more))
        return MagicMock()

    client.__enter__.return_value.send.side_effect = send
    monkeypatch.setattr(ConnectClient, "status", MagicMock(side_effect=ConnectError("no Connect worker answers")))
    monkeypatch.setattr(positions, "offsets_topic", lambda *_: "offsets")
    monkeypatch.setattr(positions, "granted", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(positions, "connect_consumer", lambda *_, **__: client)
    monkeypatch.setattr(positions, "connect_producer", lambda *_: client)
    monkeypatch.setattr(positions, "read_between", lambda *_: read)
    monkeypatch.setattr(FaultSite, "connection", lambda *_: None)
    forget(site(), MIRROR, "LH.FAULT")
    assert sent == [("offsets", None, name, {"partition": 3}) for name in (wanted, copied)]


@pytest.mark.parametrize(
    "change", [CommitOffsets(group="x", topic="LH.F", offset=1), JoinGroup(group="x", topic="LH.F")]
)
def test_a_group_that_the_mirror_does_not_translate_is_refused(change: Any) -> None:
    with pytest.raises(WrongUseError, match="does not translate the offsets of x"):
        change.prepare(site())


def test_a_group_that_exists_is_refused(lab: dict[str, Cluster]) -> None:
    lab["north-america"]._groups = ["consumer-fault"]
    with pytest.raises(WrongUseError, match="north-america has a group consumer-fault already"):
        CommitOffsets(group="consumer-fault", topic="LH.F", offset=1).prepare(site())


@pytest.mark.usefixtures("lab")
def test_internal_topics_that_are_not_there_are_refused() -> None:
    with pytest.raises(WrongUseError, match="has no checkpoint connector"):
        DeleteInternalTopic(which="checkpoints").prepare(site())
    with pytest.raises(WrongUseError, match=r"europe has no topic mm2-offset-syncs\.northamerica\.internal"):
        DeleteInternalTopic(which="offset_syncs").prepare(site())


def test_only_a_running_mirror_is_outrun(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = Connect("PAUSED", "PAUSED")
    monkeypatch.setattr(FaultSite, "connect", lambda _: connect)
    with pytest.raises(WrongUseError, match="does not run"):
        OutrunMirror(topic="LH.F").prepare(site())
    OutrunMirror(topic="LH.F").heal(site(), {"connector": CONNECTOR})
    assert connect.asked == ["resume"], "healing starts what an interrupted injection has left"


def test_every_partition_loses_its_first_records(lab: dict[str, Cluster]) -> None:
    asked: list[Any] = []
    lab["north-america"].names["LH.F"] = 2
    cast("Any", lab["north-america"]).ask = lambda request: request(SimpleNamespace(delete_records=asked.append))
    DeleteRecords(topic="LH.F", records=30).inject(site(), {"topic": "LH.F"})
    assert asked == [{TopicPartition("LH.F", 0): 30, TopicPartition("LH.F", 1): 30}]


OF_TOPICS = [name for name in fault_names() if any(isinstance(one, OwnTopic) for one in read_fault(name).changes)]


@pytest.mark.parametrize("name", OF_TOPICS)
def test_a_fault_names_its_own_topic(name: str) -> None:
    """Every change of a fault with a topic of its own is about that topic, which no scenario has."""
    first, *others = read_fault(name).changes
    assert isinstance(first, OwnTopic)
    assert re.fullmatch(r"LH.FAULT-[A-Z]+", first.topic)
    assert {getattr(one, "topic", first.topic) for one in others} <= {first.topic}


def test_the_catalogue_has_faults_of_topics() -> None:
    assert len(OF_TOPICS) >= 10


def test_a_right_for_a_change_is_taken_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[Any] = []
    admin = SimpleNamespace(
        create_acls=rules.extend,
        delete_acls=lambda _: rules.clear(),
        describe_acls=lambda rule: ([one for one in rules if one == rule], None),
    )
    monkeypatch.setattr(FaultSite, "admin", lambda _, region: contextlib.nullcontext(admin) if region == "r" else None)
    seen: list[str] = []

    def fail() -> None:
        with granted(site(), "r", "TRANSACTIONAL_ID", "x", "WRITE"):
            seen.extend(rule.principal for rule in rules)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (seen, rules) == (["User:admin"], [])
