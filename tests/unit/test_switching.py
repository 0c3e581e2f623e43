"""The gate of a planned switch: what it asks, when it refuses and with which numbers, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from kafka import TopicPartition

from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka import clients, reading
from loosehanger.kafka import cluster as kafka_cluster
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.offsets import Positions
from loosehanger.lab.actions import DeleteTopics
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import internal_topics, selected_groups, target_topic
from loosehanger.lab.programs import Consumer
from loosehanger.lab.scenario import read_scenario
from loosehanger.lab.snapshots import FenceSnapshot, OffsetReset, RegionEnding, keep_ending, read_snapshots
from loosehanger.lab.topology import Topology
from loosehanger.ledger import LedgerEntry
from loosehanger.platforms import registry
from loosehanger.stages import drain, fence, gates, live_mirror, offsets, steps

from ..topologies import documents, kafka, program
from .test_ledger import FOREIGN
from .test_scenario import TEXT, folder

ORDERS, STOCK = TopicPartition("LH.ORDERS", 0), TopicPartition("LH.STOCK", 0)
MIRROR = Mirror(
    *("ab", "a", "b", "region-a", "region-b", "identity", "."),
    topics=r"LH\..*",
    topics_exclude="",
    connector="source",
    region="region-b",
    groups="consumer-.*",
    checkpoint_connector="checkpoints",
)


class Record(NamedTuple):
    """A record as kafka-python has it."""

    topic: str
    partition: int
    offset: int
    headers: list[tuple[str, bytes | None]]


class Cluster:
    """What ``kafka.cluster.Cluster`` reads, with a marker of a transaction behind each partition's last record."""

    def __init__(self, ends: Positions, committed: dict[str, Positions], members: int = 0, markers: int = 0) -> None:
        self._ends = ends
        self._committed = committed
        self._members = members
        self._markers = markers
        self.users = ["admin"]
        self.deleted: list[str] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def id(self) -> str:
        return "an-id"

    def topics(self) -> dict[str, int]:
        return {part.topic: 1 for part in self._ends} | {"__mm2_offsets": 1, "other": 1}

    def ends(self, topics: list[str]) -> Positions:
        return {part: end for part, end in self._ends.items() if part.topic in topics}

    def groups(self) -> list[str]:
        return [*self._committed, "connect-mm2"]

    def committed(self, group: str, topics: list[str]) -> Positions:
        return {part: at for part, at in self._committed.get(group, {}).items() if part.topic in topics}

    def writers(self, _topics: list[str]) -> list[str]:
        return self.users

    def written(self, starts: Positions) -> dict[str, int]:
        return {
            f"{part.topic} by a stranger": end - starts[part] for part, end in self._ends.items() if end > starts[part]
        }

    def set_committed(self, group: str, offsets: Positions) -> None:
        self._committed[group] = self._committed.get(group, {}) | offsets

    def delete_topics(self, names: list[str], _bound: float) -> None:
        self.deleted += names

    def members(self, _group: str) -> int:
        return self._members

    def records(self, starts: Positions, ends: Positions) -> Iterator[Record]:
        """Each partition has one run's records in order, from sequence number 0 on."""
        for part, end in ends.items():
            for offset in range(starts.get(part, 0), end):
                yield Record(part.topic, part.partition, offset, [("lh-run", b"run"), ("lh-seq", b"%d" % offset)])

    def records_from(self, starts: Positions, ends: Positions) -> int:
        return sum(max(0, end - self._markers - starts.get(part, 0)) for part, end in ends.items())


def use_consumers(monkeypatch: pytest.MonkeyPatch, found: Callable[[Any], list[Consumer]]) -> None:
    """The consumers of every lab."""
    for module in (live_mirror, gates):
        monkeypatch.setattr(module, "consumers", found)


class Lab:
    """Two clusters and the mirror between them; by default everything has arrived."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states = ["RUNNING", "RUNNING"]
        self.positions = {ORDERS: 99, STOCK: 9}
        self.source = Cluster({ORDERS: 100, STOCK: 10}, {"consumer-x": {ORDERS: 100, STOCK: 10}}, members=1)
        self.target = Cluster({ORDERS: 121, STOCK: 12}, {"consumer-x": {ORDERS: 120, STOCK: 11}}, markers=1)
        monkeypatch.setattr(
            live_mirror, "open_cluster", lambda _, region: self.source if region == "region-a" else self.target
        )
        self.reported: dict[TopicPartition, int | None] = {}
        monkeypatch.setattr(live_mirror, "connect_of", lambda *_: self)
        for module in (live_mirror, gates, fence):
            monkeypatch.setattr(module, "connector_states", lambda *_: self.states)
        for module in (live_mirror, fence, offsets):
            monkeypatch.setattr(module, "mirror_positions", lambda *_: self.positions)

    def check(self) -> None:
        gates.check(gates.conditions(cast(Any, self), [MIRROR]))

    def set_positions(self, _connector: str, alias: str, positions: dict[TopicPartition, int | None]) -> None:
        assert alias == "a"
        self.reported = positions

    def reset(self) -> list[OffsetReset]:
        return offsets.reset_mirror_offsets(cast(Any, self), [MIRROR], 0.3)

    def drain(self) -> None:
        drain.drain(cast(Any, self), [MIRROR], 0.3)

    mirrors: tuple[Mirror, ...] = (MIRROR,)
    pod = None
    topology = Topology(())
    lost: tuple[str, ...] = ()
    regions: Mapping[str, Cluster] = MappingProxyType({})
    stage, unfinished = "setup", ""

    def settle(self, seconds: float = 0.3) -> None:
        drain.settle(cast(Any, self), [MIRROR], seconds)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(monkeypatch)


def test_where_everything_has_arrived_the_switch_may_begin_and_has_nothing_to_wait_for(lab: Lab) -> None:
    lab.check()
    lab.drain()
    assert [(c.what, c.value) for c in gates.conditions(cast(Any, lab), [MIRROR])] == [
        ("ab: connectors and tasks", "RUNNING"),
        ("ab: records behind", "0"),
        ("consumer-x: records that it has not read", "0"),
        ("consumer-x: members in region-b", "0"),
    ]


def test_a_mirror_that_does_not_run_refuses(lab: Lab) -> None:
    lab.states = ["RUNNING", "FAILED"]
    with pytest.raises(WrongUseError, match=r"FAILED, RUNNING; it must be RUNNING, each of them; nothing was changed"):
        lab.check()


def test_a_mirror_far_behind_refuses_with_the_numbers(lab: Lab) -> None:
    lab.source = Cluster({ORDERS: 50_100, STOCK: 10}, {})
    with pytest.raises(WrongUseError, match=r"ab: records behind: 50,000; it must be 20,000 or less"):
        lab.check()


def test_a_group_far_behind_refuses_with_the_numbers(lab: Lab) -> None:
    lab.source = Cluster({ORDERS: 100, STOCK: 30_000}, {"consumer-x": {ORDERS: 100}})
    lab.positions = {ORDERS: 99, STOCK: 29_999}
    with pytest.raises(WrongUseError, match=r"consumer-x: records that it has not read: 30,000"):
        lab.check()


def test_a_member_at_the_target_refuses_since_its_group_would_not_follow(lab: Lab) -> None:
    lab.target = Cluster({ORDERS: 121, STOCK: 12}, {"consumer-x": {ORDERS: 120, STOCK: 11}}, members=1, markers=1)
    with pytest.raises(WrongUseError, match=r"consumer-x: members in region-b: 1; it must be 0"):
        lab.check()


@pytest.mark.parametrize(
    ("source", "target", "position", "missing"),
    [
        (100, 120, 95, "ab is 4 records behind"),
        (90, 120, 99, r"consumer-x has 10 records to read in region-a"),
        (100, 117, 99, r"consumer-x is 3 records behind in region-b"),
    ],
)
def test_what_does_not_arrive_is_told_with_the_numbers(
    lab: Lab, source: int, target: int, position: int, missing: str
) -> None:
    lab.source = Cluster({ORDERS: 100, STOCK: 10}, {"consumer-x": {ORDERS: source, STOCK: 10}})
    lab.target = Cluster({ORDERS: 121, STOCK: 12}, {"consumer-x": {ORDERS: target, STOCK: 11}}, markers=1)
    lab.positions = {ORDERS: position, STOCK: 9}
    with pytest.raises(
        LabError, match=rf"^still draining \(producers are stopped .*\): not within 0 seconds: {missing}"
    ):
        lab.drain()


def test_groups_settle_when_their_offsets_grow_no_more(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_SETTLED_SECONDS", 0.1)
    lab.source = Cluster({ORDERS: 200, STOCK: 10}, {"consumer-x": {ORDERS: 90, STOCK: 10}})
    lab.settle()


@pytest.mark.parametrize(
    ("position", "there", "missing"),
    [
        (80, {ORDERS: 80, STOCK: 11}, "LH.ORDERS-0 is not in region-b as far as consumer-x has read it"),
        (99, {STOCK: 11}, "consumer-x has no offset in region-b for LH.ORDERS-0"),
        (99, {ORDERS: 80, STOCK: 11}, "offsets of groups are still growing"),
    ],
)
def test_what_a_group_would_miss_is_told(lab: Lab, position: int, there: Positions, missing: str) -> None:
    lab.source = Cluster({ORDERS: 200, STOCK: 10}, {"consumer-x": {ORDERS: 90, STOCK: 10}})
    lab.target = Cluster({ORDERS: 121, STOCK: 12}, {"consumer-x": there})
    lab.positions = {ORDERS: position, STOCK: 9}
    with pytest.raises(LabError, match=rf"^offsets still settling .*: not within 0 seconds: {missing}"):
        lab.settle()


def of_consumer(cluster: str) -> Topology:
    """A consumer of its own region, with offsets wherever mirrors bring them, that uses a region's cluster."""
    found = program("region-c", cluster, name="consumers")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container["command"] = ["python", "-m", "consumers"]
    container["env"].append({"name": "CONSUMER_GROUP", "value": "consumer-x"})
    return Topology(documents(kafka("region-a"), kafka("region-b"), found))


def test_a_group_that_has_only_offsets_in_a_backup_need_not_read_there(lab: Lab) -> None:
    """When a backup was brought back: the group is behind its end, for it died before it had read everything."""
    lab.source = Cluster({ORDERS: 100, STOCK: 10}, {"consumer-x": {ORDERS: 90, STOCK: 0}})
    lab.target = Cluster({ORDERS: 121, STOCK: 12}, {"consumer-x": {ORDERS: 80}}, markers=1)
    lab.topology = of_consumer("region-a")
    with pytest.raises(LabError, match="consumer-x has 20 records to read in region-a"):
        lab.drain()
    lab.topology = of_consumer("region-b")
    lab.drain()
    reported = {c.what: (c.value, c.holds) for c in gates.conditions(cast(Any, lab), [MIRROR])}
    assert reported["consumer-x: partitions without its offset in region-b"] == ("0", True)
    assert "consumer-x: records that it has not read" not in reported


def test_a_group_that_has_no_place_where_a_backup_was_brought_back_is_named(lab: Lab) -> None:
    lab.source = Cluster({ORDERS: 100, STOCK: 10}, {"consumer-x": {ORDERS: 90, STOCK: 3}})
    lab.target = Cluster({ORDERS: 121, STOCK: 12}, {"consumer-x": {ORDERS: 80}}, markers=1)
    lab.topology = of_consumer("region-b")
    with pytest.raises(LabError, match=r"consumer-x has no offset in region-b for LH\.STOCK-0"):
        lab.drain()
    with pytest.raises(WrongUseError, match="consumer-x: partitions without its offset in region-b: 1; it must be 0"):
        lab.check()


FENCED = FenceSnapshot("region-a", 1, {"LH.ORDERS": {0: 100}, "LH.STOCK": {0: 10}})


def test_a_fence_that_holds_says_so(lab: Lab) -> None:
    found = gates.fence_conditions(cast(Any, lab), "region-a", FENCED)
    assert [(condition.value, condition.holds) for condition in found] == [("none", True), ("none", True)]


def test_who_gets_round_the_fence_is_named_with_numbers(lab: Lab) -> None:
    lab.source = Cluster({ORDERS: 107, STOCK: 10}, {})
    lab.source.users = ["admin", "backdoor"]
    found = gates.fence_conditions(cast(Any, lab), "region-a", FENCED)
    assert [str(condition) for condition in found] == [
        "region-a: users that may write events: backdoor; it must be none",
        "region-a: records written since the fence: 7 in LH.ORDERS by a stranger; it must be none",
    ]
    assert gates.fence_conditions(cast(Any, lab), "region-a", None)[1].holds is False


def test_a_fence_with_a_hole_is_not_kept(lab: Lab, tmp_path: Path) -> None:
    lab.source.users = ["admin", "backdoor"]
    with pytest.raises(LabError, match="region-a: write fence incomplete: backdoor still has Write; revoke it"):
        fence.fence_writes(cast(Any, lab), tmp_path, "fence", "region-a")
    lab.source.users = ["admin"]
    fence.fence_writes(cast(Any, lab), tmp_path, "fence", "region-a")
    (kept,) = read_snapshots(tmp_path, "fence").write_fences
    assert kept.ends == FENCED.ends


READER = Consumer("consumer-x", "region-c", "region-b", "consumer-x", r"^(.+\.)?LH\..*", "consumer-x")


def processed(topic: str, last: int) -> LedgerEntry:
    return LedgerEntry("processed", "run", "old", topic, 0, 0, last, 1, 2, "consumer-x", 0, last)


def test_a_group_begins_behind_what_its_ledger_has(lab: Lab, tmp_path: Path) -> None:
    ledger = [processed("LH.ORDERS", 99), replace(processed("LH.STOCK", 11), group="another")]
    offsets.start_group(cast(Any, lab), tmp_path, "rollback", READER, ledger, translated=False)
    assert lab.target.committed("consumer-x", ["LH.ORDERS", "LH.STOCK"]) == {ORDERS: 100, STOCK: 0}
    (fence,) = read_snapshots(tmp_path, "rollback").fences
    assert fence.ends == {"LH.ORDERS": {0: 121}, "LH.STOCK": {0: 12}}
    assert fence.groups == {"consumer-x": {"LH.ORDERS": {0: 100}, "LH.STOCK": {0: 0}}}


@pytest.mark.parametrize("headers", FOREIGN)
def test_what_nobody_has_numbered_does_not_set_a_group_back_that_has_passed_it(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: list[tuple[str, bytes | None]]
) -> None:
    plain = [Record("LH.ORDERS", 0, offset, headers) for offset in (40, 110)]
    monkeypatch.setattr(lab.target, "records", lambda *_: iter(plain))
    lab.target.set_committed("consumer-x", {ORDERS: 100})
    offsets.start_group(cast(Any, lab), tmp_path, "rollback", READER, [], translated=False)
    assert lab.target.committed("consumer-x", ["LH.ORDERS"]) == {ORDERS: 110}


def test_a_group_that_stays_is_not_touched(lab: Lab, tmp_path: Path) -> None:
    offsets.stay_group(cast(Any, lab), tmp_path, "rollback", READER)
    (fence,) = read_snapshots(tmp_path, "rollback").fences
    assert (fence.mirror, fence.target, fence.cluster, fence.ends) == ("by ledger/consumer-x", "region-b", "an-id", {})
    assert lab.target.committed("consumer-x", ["LH.ORDERS"]) == {ORDERS: 120}


def test_after_a_death_it_begins_where_a_mirror_has_translated_it_and_else_by_the_ledger(
    lab: Lab, tmp_path: Path
) -> None:
    """What it read of this region as a copy, before, shows how far it is in the original."""
    copy = TopicPartition("a.LH.ORDERS", 0)
    lab.target = Cluster({ORDERS: 50, copy: 70}, {"consumer-x": {copy: 60}})
    default = replace(MIRROR, policy="default")
    back = replace(default, source="region-b", target="region-a", source_alias="b", target_alias="a")
    lab.mirrors = (default, back)
    ledger = [processed("b.LH.ORDERS", 40), processed("LH.ORDERS", 66)]
    offsets.start_group(cast(Any, lab), tmp_path, "failover", READER, ledger, translated=True)
    (fence,) = read_snapshots(tmp_path, "failover").fences
    # The ledger has the events of both origins under the same names, but runs distinguish them.
    assert fence.groups["consumer-x"]["a.LH.ORDERS"] == {0: 60}
    assert fence.groups["consumer-x"]["LH.ORDERS"] == {0: 50}


def test_a_region_in_which_somebody_reads_still_does_not_go(lab: Lab) -> None:
    found = gates.use_condition(cast(Any, lab), "region-a")
    assert not found.holds
    assert str(found) == "region-a: groups with members: consumer-x (1), connect-mm2 (1); it must be none"
    lab.source = Cluster({ORDERS: 100}, {"consumer-x": {ORDERS: 90}})
    assert gates.use_condition(cast(Any, lab), "region-a").holds, "what a group has committed is no use of it"


def test_a_stage_that_was_interrupted_when_it_had_stopped_a_mirror_may_run_again(lab: Lab, tmp_path: Path) -> None:
    folder(tmp_path, TEXT)
    scenario = read_scenario("99-test", tmp_path)
    lab.states = ["STOPPED", "STOPPED"]

    def right() -> bool:
        found = steps.conditions(cast(Any, lab), tmp_path, registry.run_step_in_pod, scenario, "failover")
        return {condition.what: condition.holds for condition in found}["ab: connectors and tasks"]

    assert not right(), "another stage has stopped it"
    lab.unfinished = "failover"
    assert right()
    lab.states = ["STOPPED", "FAILED"]
    assert not right()


def test_of_a_region_that_has_gone_already_nothing_is_asked(lab: Lab, tmp_path: Path) -> None:
    """A stage may be interrupted while a region goes, and is run again."""
    table = "failover: {after: [setup], fenced: [region-a], gone: [region-a], mirrors: {ab: absent}}"
    folder(tmp_path, TEXT.replace("failover: {after: [setup], mirrors: {ab: stopped}}", table))
    scenario = read_scenario("99-test", tmp_path)
    lab.mirrors = ()
    lab.regions, lab.stage = {"region-b": lab.target}, "failover"
    assert steps.conditions(cast(Any, lab), tmp_path, registry.run_step_in_pod, scenario, "failover") == []
    lab.regions, lab.stage = {**lab.regions, "region-a": lab.source}, "setup"
    for lab.unfinished in ("", "failover"):
        found = steps.conditions(cast(Any, lab), tmp_path, registry.run_step_in_pod, scenario, "failover")
        assert [condition.what for condition in found] == ["region-a: groups with members"]
    keep_ending(tmp_path, "failover", RegionEnding("region-a", 1000))
    assert steps.conditions(cast(Any, lab), tmp_path, registry.run_step_in_pod, scenario, "failover") == []


def test_a_group_with_members_is_not_set(lab: Lab, tmp_path: Path) -> None:
    lab.target = Cluster({ORDERS: 121}, {}, members=2)
    with pytest.raises(LabError, match="region-b: consumer-x still has 2 members"):
        offsets.start_group(cast(Any, lab), tmp_path, "rollback", READER, [], translated=False)


def test_a_group_does_not_begin_before_mirrors_have_brought_what_it_has_read(lab: Lab) -> None:
    lab.lost = ()
    drain.await_arrival(cast(Any, lab), "consumer-x", "region-b", 0.2)
    lab.positions = {ORDERS: 80, STOCK: 9}
    with pytest.raises(LabError, match=r"LH.ORDERS-0 is not in region-b as far as consumer-x has read it"):
        drain.await_arrival(cast(Any, lab), "consumer-x", "region-b", 0.2)


def test_a_mirror_that_goes_takes_its_own_topics_with_it(lab: Lab, tmp_path: Path) -> None:
    target = {f"{kind}StorageTopic": f"__ab_{kind}" for kind in ("config", "offset", "status")}
    (document,) = documents(
        {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaMirrorMaker2",
            "metadata": {"name": "ab", "namespace": "region-b"},
            "spec": {"target": target},
        }
    )
    lab.mirrors = (replace(MIRROR, offset_syncs="target"),)
    step = DeleteTopics(stage="finish", topics=internal_topics([document], lab.mirrors))
    steps.ask(cast(Any, lab), tmp_path, registry.run_step_in_pod, step)
    internal = ["a.checkpoints.internal", "mm2-offset-syncs.a.internal"]
    assert lab.target.deleted == ["__ab_config", "__ab_offset", "__ab_status", *internal]


def test_snapshots_have_all_offsets(lab: Lab, tmp_path: Path) -> None:
    lab.states = ["STOPPED"]
    fence.snapshot_mirrors(cast(Any, lab), tmp_path, "failover", [MIRROR])
    (kept,) = read_snapshots(tmp_path, "failover").fences
    assert (kept.mirror, kept.target, kept.cluster) == ("ab/a", "region-b", "an-id")
    assert kept.ends == {"LH.ORDERS": {0: 121}, "LH.STOCK": {0: 12}}
    assert kept.positions == {"LH.ORDERS": {0: 99}, "LH.STOCK": {0: 9}}
    assert kept.groups == {"consumer-x": {"LH.ORDERS": {0: 120}, "LH.STOCK": {0: 11}}}


def test_a_mirror_that_has_tasks_still_is_not_held(lab: Lab, tmp_path: Path) -> None:
    lab.states = ["STOPPED", "RUNNING"]
    with pytest.raises(LabError, match="region-b: source still has tasks: RUNNING"):
        fence.snapshot_mirrors(cast(Any, lab), tmp_path, "failover", [replace(MIRROR, state="stopped")])
    # Of one that goes on copying, only what translates groups is held.
    with pytest.raises(LabError, match="region-b: checkpoints still has tasks: RUNNING"):
        fence.snapshot_mirrors(cast(Any, lab), tmp_path, "failover", [replace(MIRROR, checkpoint_state="stopped")])


def test_a_cluster_that_does_not_answer_is_named() -> None:
    with pytest.raises(LabError, match="region-a: the cluster does not answer"):
        kafka_cluster.Cluster("region-a", Connection(("127.0.0.1:1",))).topics()


def test_a_partition_of_which_nothing_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = SimpleNamespace(
        assign=lambda _: None, seek=lambda *_: None, poll=lambda _: {}, position=lambda _: 7, close=lambda: None
    )
    monkeypatch.setattr(clients, "KafkaAdminClient", lambda **_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(clients, "KafkaConsumer", lambda **_: quiet)
    monkeypatch.setattr(reading, "_SILENT_S", 0.1)
    with kafka_cluster.Cluster("region-a", Connection(("x:1",))) as looker:
        with pytest.raises(LabError, match=r"region-a: LH\.ORDERS-0: no record received for 0 s, from offset 7"):
            list(looker.records({}, {ORDERS: 9}))
        assert list(looker.records({}, {ORDERS: 7})) == []


def test_the_groups_of_connects_workers_are_no_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        {"group_id": "shop", "protocol_type": "consumer"},
        {"group_id": "mm2", "protocol_type": "connect"},
        {"group_id": "has only committed", "protocol_type": ""},
    ]
    client = SimpleNamespace(list_groups=lambda: found, close=lambda: None)
    monkeypatch.setattr(clients, "KafkaAdminClient", lambda **_: client)
    with kafka_cluster.Cluster("region-a", Connection(("x:1",))) as looker:
        assert looker.groups() == ["has only committed", "shop"]


@pytest.mark.parametrize(
    ("groups", "excluded", "selected"),
    [
        (".*", "", ["consumer-x", "shop"]),
        ("consumer-.*, shop", "sh.*", ["consumer-x"]),
        ("", "", []),
    ],
)
def test_the_groups_that_a_mirror_translates(groups: str, excluded: str, selected: list[str]) -> None:
    mirror = replace(MIRROR, groups=groups, groups_exclude=excluded)
    there = ["shop", "consumer-x", "connect-mm2", "console-consumer-77", "__strimzi"]
    assert selected_groups(mirror, there) == selected


GONE = TopicPartition("LH.GONE", 0)


def made_again(lab: Lab, **of_source: Any) -> Lab:
    """The source was made again and filled from the target; of one partition that the mirror knew, nothing is left."""
    lab.states = ["STOPPED"]
    lab.positions = {ORDERS: 4711, GONE: 5}
    lab.source = Cluster({ORDERS: 130, STOCK: 0}, {"consumer-x": {ORDERS: of_source.pop("read", 130)}})
    lab.target = Cluster({ORDERS: 151, STOCK: 0}, {"consumer-x": {ORDERS: 120}}, **of_source)
    return lab


def test_a_mirror_is_re_armed_at_the_end_of_what_both_sides_have(lab: Lab) -> None:
    (done,) = made_again(lab).reset()
    assert lab.reported == {ORDERS: 129, GONE: None}
    assert done == OffsetReset("ab/a", {"LH.ORDERS": {0: 129}}, {}, "region-b", done.at_ms)
    assert (lab.source.deleted, lab.target.deleted) == (["mm2-offset-syncs.b.internal"], ["a.checkpoints.internal"])
    assert lab.target.committed("consumer-x", ["LH.ORDERS"]) == {ORDERS: 151}


@pytest.mark.parametrize(("policy", "archives"), [("default", {"a.LH.ORDERS": {0: 151}}), ("identity", {})])
def test_what_the_source_has_nothing_of_is_an_archive_under_another_name(
    lab: Lab, policy: str, archives: dict[str, dict[int, int]]
) -> None:
    made_again(lab)
    mirror = replace(MIRROR, policy=policy)
    orders, stock = (TopicPartition(target_topic(mirror, part.topic), 0) for part in (ORDERS, STOCK))
    lab.source = Cluster({ORDERS: 0, STOCK: 3}, {})
    lab.target = Cluster({orders: 151, stock: 3}, {})
    (done,) = offsets.reset_mirror_offsets(cast(Any, lab), [mirror], 0.3)
    assert (done.positions, done.archives) == ({"LH.STOCK": {0: 2}}, archives)


@pytest.mark.parametrize(
    ("policy", "pattern", "read", "unread"),
    [
        ("default", "", 120, 31),
        ("default", "a.LH.ORD", 151, 0),
        ("default", "LH.*", 120, 0),
        ("identity", "", 120, 0),
    ],
    ids=["not to the end", "to the end", "it does not read it", "where names are kept, producers write"],
)
def test_what_no_other_cluster_has_must_be_read_before_a_group_leaves(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, policy: str, pattern: str, read: int, unread: int
) -> None:
    mirror = replace(MIRROR, policy=policy)
    orders, stock = (TopicPartition(target_topic(mirror, part.topic), 0) for part in (ORDERS, STOCK))
    lab.source = Cluster({ORDERS: 0, STOCK: 3}, {})
    lab.target = Cluster({orders: 151, stock: 3}, {"consumer-x": {orders: read}})
    every = [
        Consumer(name, "south", region, "consumer-x", pattern, "consumer-x")
        for name, region in (("leaves", "region-b"), ("stays", "region-b"), ("leaves", "region-a"))
    ]
    use_consumers(monkeypatch, lambda _: every)
    (condition,) = gates.archive_conditions(cast(Any, lab), [mirror], ["leaves"])
    assert condition.what == "consumer-x: records that only region-b has, and that it has not read"
    assert (condition.value, condition.holds) == (str(unread), not unread)


def test_a_mirror_that_goes_on_standing_ready_is_re_armed_with_its_groups(lab: Lab) -> None:
    ready = replace(MIRROR, state="stopped", checkpoint_state="stopped")
    offsets.reset_mirror_offsets(cast(Any, made_again(lab)), [ready], 0.3)
    assert lab.target.committed("consumer-x", ["LH.ORDERS"]) == {ORDERS: 151}


def test_a_group_that_reads_still_at_the_source_is_waited_for(lab: Lab) -> None:
    made_again(lab, read=125).source._members = 1
    with pytest.raises(LabError, match=r"^groups still reading .*: consumer-x has 5 records to read in region-a"):
        lab.reset()
    assert lab.reported == {}
    lab.source.set_committed("consumer-x", {ORDERS: 130})
    lab.reset()
    assert lab.target.committed("consumer-x", ["LH.ORDERS"]) == {ORDERS: 151}


def test_a_group_that_has_not_read_everything_stays_where_it_is(lab: Lab) -> None:
    made_again(lab, read=125).reset()
    assert lab.target.committed("consumer-x", ["LH.ORDERS"]) == {ORDERS: 120}


def test_a_mirror_that_runs_is_not_re_armed(lab: Lab) -> None:
    made_again(lab).states = ["STOPPED", "RUNNING"]
    with pytest.raises(LabError, match="region-b: ab is not stopped: STOPPED, RUNNING"):
        lab.reset()
    assert lab.reported == {}


def test_a_group_with_members_at_the_target_is_named_before_anything_changes(lab: Lab) -> None:
    with pytest.raises(LabError, match="region-b: consumer-x still has 1 members"):
        made_again(lab, members=1).reset()
    assert lab.reported == {}


def test_a_group_that_is_at_home_at_the_target_reads_on(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    use_consumers(monkeypatch, lambda _: [replace(READER, group="consumer-x")])
    made_again(lab, members=1).reset()
    assert lab.reported == {ORDERS: 129, GONE: None}
    assert lab.target.committed("consumer-x", ["LH.ORDERS"]) == {ORDERS: 120}
    use_consumers(monkeypatch, lambda _: [replace(READER, group="consumer-x", replicas=0)])
    with pytest.raises(LabError, match="region-b: consumer-x still has 1 members"):
        lab.reset()


@pytest.mark.parametrize(
    ("states", "holds"), [(["STOPPED"], True), (["RUNNING"], False), (["STOPPED", "PAUSED"], False)]
)
def test_before_its_source_is_wiped_a_mirror_has_to_be_stopped(lab: Lab, states: list[str], holds: bool) -> None:
    lab.states = states
    (condition,) = gates.standstill(cast(Any, lab), [MIRROR])
    assert (condition.what, condition.holds) == ("ab: connectors", holds)
