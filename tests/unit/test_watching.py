"""The watch's rounds: what is new comes in, recreated topics are reported, and a restart changes nothing."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from loosehanger.audit import canary, loop, mirror_positions, regions
from loosehanger.audit.canary import Canary
from loosehanger.audit.display import alarms_of
from loosehanger.audit.document import NUMBERS
from loosehanger.audit.lab_watch import scope_of
from loosehanger.audit.loop import Options, Parts, Watch
from loosehanger.audit.mirror_positions import Positions
from loosehanger.audit.observed_positions import ObservedPositions
from loosehanger.audit.region_reader import BucketTotals, Reading, RegionReader
from loosehanger.audit.scope import Scope
from loosehanger.audit.state import Folder
from loosehanger.errors import UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.lab.claims.claims import claims_of
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.topology import Topology
from loosehanger.proof.read.mirrors import UNKNOWN, MirrorProgress
from loosehanger.proof.report.record_times import iso

MIRROR = Mirror("m", "europe", "na", "europe", "na", "identity", ".", "LH.*", "", "c")
OPTIONS = Options(every_s=0.01, late_after_s=10)
NOW = 1_800_000_005_000
UNTIMED = "?"
"""The value of records without a timestamp."""
OBSERVED = ObservedPositions.positions


@dataclass
class Topic:
    """A topic of one partition: values, of which the first may have been deleted."""

    id: str = "1"
    start: int = 0
    values: list[str] = field(default_factory=list)
    old: int = 0
    """Records before this offset are older than the watch."""


class World:
    """Two clusters and a mirror, in memory."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, Topic]] = {"europe": {"LH.A": Topic()}, "na": {"LH.A": Topic()}}
        self.away: set[str] = set()
        self.positions: dict[str, dict[TopicPartition, int]] = {MIRROR.id: {}}
        self.deleted: dict[str, dict[TopicPartition, int]] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.reading_s = 0.0
        self.taking = threading.Event()

    def write(self, region: str, values: str, topic: str = "LH.A") -> None:
        """A record for each letter."""
        self.topics[region][topic].values += values

    def copy(self, values: str, topic: str = "LH.A") -> None:
        """The mirror has copied everything; what has arrived may be something else."""
        self.write("na", values, topic)
        self.positions[MIRROR.id][TopicPartition(topic, 0)] = len(self.topics["europe"][topic].values) - 1


class StubCluster:
    """A cluster of the world."""

    connection = Connection(("x:1",))

    def __init__(self, world: World, region: str) -> None:
        self.world, self.region = world, region

    def of(self, place: TopicPartition) -> Topic:
        """A topic."""
        if self.region in self.world.away:
            raise UnreachableError(f"{self.region}: the cluster does not answer")
        return self.world.topics[self.region][place.topic]

    def inventory(self) -> dict[str, tuple[str, int]]:
        if self.region in self.world.away:
            raise UnreachableError(f"{self.region}: the cluster does not answer")
        return {name: (topic.id, 1) for name, topic in self.world.topics[self.region].items()}

    def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.of(place).start for place in partitions}

    def written_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: len(self.of(place).values) for place in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.written_offsets(partitions)

    def offsets_from(self, partitions: Iterable[TopicPartition], since_ms: int) -> dict[TopicPartition, int]:
        def first(topic: Topic) -> int:
            begin, end = max(topic.start, topic.old if since_ms else 0), max(topic.start, len(topic.values))
            return next((offset for offset in range(begin, end) if topic.values[offset] != UNTIMED), end)

        return {place: first(self.of(place)) for place in partitions}

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, Any]]:
        self.inventory()
        return {
            topic: {name: SimpleNamespace(value=value) for name, value in self.world.settings.get(topic, {}).items()}
            for topic in topics
        }

    def close(self) -> None:
        """Nothing to close."""


class StubReader(RegionReader):
    """Reads the world without Spark."""

    def __init__(self, world: World, region: str) -> None:
        super().__init__(region, StubCluster(world, region))  # type: ignore[arg-type]
        self.world = world
        self.guard = SimpleNamespace(look=lambda *_: self.world.deleted.get(self.name, {}))  # type: ignore[assignment]

    def totals(self, *_: Any) -> Any:
        raise NotImplementedError

    def close_consumer(self) -> None:
        """Nothing to close."""

    def read_on(self, wanted: Mapping[TopicPartition, int], _: Mapping[str, str]) -> Reading:
        self.world.taking.wait(self.world.reading_s)
        rows, until, lost, back, starts = [], {}, {}, [], {}
        self.cluster.inventory()
        for place, offset in wanted.items():
            topic = self.world.topics[self.name][place.topic]
            starts[place] = topic.start
            if offset > len(topic.values):
                back.append(place)
                continue
            first = max(offset, topic.start)
            until[place] = len(topic.values)
            if first > offset:
                lost[place] = first - offset
            for number, value in enumerate(topic.values[first:], first):
                content = (zlib.crc32(value.encode()),) * 4
                bucket = -1 if value == UNTIMED else round(time.time()) // 10
                found = (place.topic, 0, bucket, 1, content, number, number, 1, int(value == UNTIMED))
                rows.append(BucketTotals(*found))
        return Reading(starts, until, lost, tuple(back), rows)


class StubLab:
    """What the watch wants of a lab."""

    scenario = "s"
    mirrors = (MIRROR,)
    claims = claims_of(mirrors)
    clusters: Mapping[str, str] = {"europe": "1", "na": "2"}
    topology = Topology(())

    def region(self, name: str) -> Any:
        """A region."""
        return SimpleNamespace(name=name)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(loop, "_LOOK_S", 0.0)
    monkeypatch.setattr(time, "time", lambda: NOW / 1000)
    monkeypatch.setattr(Positions, "start", lambda _: None)
    monkeypatch.setattr(Positions, "positions", lambda _: found.positions)
    return found


def watch_of(
    world: World,
    folder: Path,
    said: list[str] | None = None,
    sent: Canary | None = None,
    name: Callable[..., None] = lambda *_: None,
    options: Options = OPTIONS,
    positions: Callable[..., Any] = Positions,
) -> Watch:
    """A watch of the world as it is."""
    inventories = {name: StubCluster(world, name).inventory() for name in world.topics}
    scope = scope_of(StubLab(), StubLab.clusters, inventories)  # type: ignore[arg-type]
    parts = Parts(
        StubLab.scenario,
        StubLab.mirrors,
        lambda there, unfit: scope_of(StubLab(), scope.clusters, there, unfit),  # type: ignore[arg-type]
        {name: StubReader(world, name) for name in scope.clusters},
        lambda copied_by: positions(StubLab.mirrors, lambda _: StubCluster(world, "europe"), copied_by),
        name,
        canary=sent,
    )
    report = said.append if said is not None else pytest.fail
    return Watch(parts, scope, options, Folder(folder), report)


def numbers(watch: Watch, topic: str = "LH.A") -> dict[str, int]:
    """What a flow's newest numbers are, without zeros."""
    (flow,) = [flow for flow in watch.document()["flows"] if flow["topic"] == topic]
    names = ("records", "copies", "older", *NUMBERS)
    return {name: flow[name] for name in names if flow[name] and not name.endswith("buckets")}


def rounds(watch: Watch, count: int = 2) -> None:
    """So many of them."""
    for _ in range(count):
        watch.round()


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_mirror_is_behind_is_of_one_moment(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    place, asked, looks = TopicPartition("LH.A", 0), list[str](), list[Any]()
    progress = MirrorProgress("RUNNING", positions={place: 9})

    class Source:
        def __init__(self, _: object) -> None:
            """It needs no connection."""

        def ends(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
            asked.append("ends")
            return dict.fromkeys(wanted, 10)

        def look(self, positions: dict[TopicPartition, int | None], *, now: float, ends: object) -> list[Any]:
            looks.append((positions, ends, now > 0))
            found.end()
            return []

        def close(self) -> None:
            """Nothing is open."""

    class Worker:
        def __init__(self, _: object) -> None:
            """It needs no address."""

        def progress(self) -> MirrorProgress:
            asked.append("positions")
            return progress if answers else MirrorProgress(UNKNOWN)

    monkeypatch.setattr(mirror_positions, "RetentionReader", Source)
    monkeypatch.setattr(mirror_positions, "Connect", Worker)
    mirror = replace(MIRROR, connect={"url": "x"})
    found = Positions([mirror], lambda _: Cluster("a", Connection(("x:1",))), lambda _: [place])
    found._last[mirror.id] = progress
    found._ask(mirror)
    assert asked == ["ends", "positions"]
    assert looks == [({place: 9}, {place: 10} if answers else None, True)]


def test_records_are_in_flight_until_they_are_copied_and_missing_if_they_were_passed(
    world: World, tmp_path: Path
) -> None:
    with watch_of(world, tmp_path) as watch:
        world.write("europe", "abc")
        rounds(watch, 3)
        assert numbers(watch) == {"records": 3, "in_flight": 3}
        world.copy("ac")
        rounds(watch)
        assert numbers(watch) == {"records": 3, "copies": 2, "missing": 1}
        (finding,) = watch.document()["findings"]
        assert (finding["target"], finding["topic"], finding["verdict"]) == ("na", "LH.A", "missing")
        world.write("na", "b")
        rounds(watch)
        assert numbers(watch) == {"records": 3, "copies": 3}
        assert watch.document()["findings"] == []


def test_what_is_read_too_late_for_a_round_comes_in_with_a_later_one(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watch_of(world, tmp_path) as watch:
        rounds(watch, 1)
        monkeypatch.setattr(regions, "_PATIENCE_S", 0.05)
        watch._regions.end_round()
        world.reading_s = 0.3
        world.write("europe", "abc")
        world.copy("abc")
        problems = set()
        deadline = time.monotonic() + 120
        while numbers(watch) != {"records": 3, "copies": 3}:
            assert time.monotonic() < deadline, numbers(watch)
            watch.round()
            problems |= set(watch.document()["problems"])
        assert problems == {"europe has not answered yet", "na has not answered yet"}
        world.taking.set()
        world.write("europe", "d")
        world.copy("d")
        rounds(watch, 3)
        assert numbers(watch) == {"records": 4, "copies": 4}


def test_a_round_that_reads_no_region_keeps_the_time_of_the_last_reading(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [NOW]
    monkeypatch.setattr(time, "time", lambda: now[0] / 1000)
    with watch_of(world, tmp_path) as watch:
        assert watch.document()["read_at"] is None
        rounds(watch, 1)
        assert watch.document()["read_at"] == watch.document()["at"] == NOW
        monkeypatch.setattr(regions, "_PATIENCE_S", 0.05)
        watch._regions.end_round()
        world.reading_s = 30.0
        now[0] += 5_000
        rounds(watch, 1)
        assert watch.document()["at"] == NOW + 5_000
        assert watch.document()["read_at"] == NOW
        world.taking.set()


def test_a_copy_that_was_made_since_the_last_look_is_no_fault(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_LOOK_S", 3600.0)
    world.topics["europe"]["LH.B"] = Topic()
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        world.topics["na"]["LH.B"] = Topic()
        world.write("europe", "ab", "LH.B")
        world.copy("ab", "LH.B")
        rounds(watch, 3)
        assert watch.document()["findings"] == []
        watch._looked = 0.0
        rounds(watch, 3)
        assert watch.document()["findings"] == []
        assert numbers(watch, "LH.B") == {"records": 2, "copies": 2}


def test_records_are_named_beside_the_rounds_and_only_while_they_are_what_was_judged(
    world: World, tmp_path: Path
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def name(_balance: Any, found: Mapping[Any, Any], _until: Any) -> None:
        begun.set()
        assert go_on.wait(10)
        for account in found.values():
            account.kinds, account.examples = {"missing": account.records - account.copies}, [{"kind": "missing"}]
            account.verdict = "by its records"

    with watch_of(world, tmp_path, name=name) as watch:
        world.write("europe", "abc")
        world.copy("a")
        rounds(watch)
        assert begun.wait(10)
        rounds(watch)
        assert watch.document()["findings"][0]["examples"] == [], "a round does not wait for it"
        world.write("na", "b")
        go_on.set()
        deadline = time.monotonic() + 120
        while not (found := watch.document()["findings"]) or not found[0]["examples"]:
            assert time.monotonic() < deadline
            watch.round()
        assert found[0]["missing"] == 1, "what was named of the bucket as it was before is no longer true"
        assert found[0]["verdict"] == "by its records"


def test_a_watch_that_was_ended_anywhere_goes_on_where_it_was(world: World, tmp_path: Path) -> None:
    with watch_of(world, tmp_path) as watch:
        world.write("europe", "ab")
        world.copy("a")
        rounds(watch)
    world.write("europe", "c")
    for _ in range(2):
        with watch_of(world, tmp_path) as watch:
            rounds(watch)
            assert numbers(watch) == {"records": 3, "copies": 1, "in_flight": 2}
    world.copy("bc")
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        assert numbers(watch) == {"records": 3, "copies": 3}
    StubLab.clusters = {"europe": "1", "na": "3"}
    said: list[str] = []
    try:
        with watch_of(world, tmp_path, said):
            assert "starting over: the cluster of na has changed" in said[0]
    finally:
        StubLab.clusters = {"europe": "1", "na": "2"}


def test_a_topic_that_is_made_later_is_judged_from_its_first_record_on(world: World, tmp_path: Path) -> None:
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        world.topics["europe"]["LH.B"] = Topic(values=list("abc"))
        rounds(watch, 3)
        assert numbers(watch, "LH.B") == {"records": 3, "in_flight": 3}
        world.topics["na"]["LH.B"] = Topic()
        world.copy("ac", "LH.B")
        rounds(watch, 3)
        assert numbers(watch, "LH.B") == {"records": 3, "copies": 2, "missing": 1}


def test_a_region_that_does_not_answer_is_no_loss(world: World, tmp_path: Path) -> None:
    with watch_of(world, tmp_path) as watch:
        world.write("europe", "ab")
        world.copy("ab")
        world.away = {"na"}
        rounds(watch, 3)
        assert watch.document()["problems"] == ["na: the cluster does not answer"]
        assert numbers(watch).get("missing") is None
        world.away = set()
        rounds(watch, 3)
        assert watch.document()["problems"] == []
        assert numbers(watch) == {"records": 2, "copies": 2}


def test_a_topic_that_was_made_again_is_said_and_judged_anew(world: World, tmp_path: Path) -> None:
    with watch_of(world, tmp_path) as watch:
        world.write("europe", "abc")
        rounds(watch)
        world.topics["europe"]["LH.A"] = Topic("2", values=list("d"))
        rounds(watch)
        assert "recreated" in watch.document()["notes"][0]["says"]
        assert not any(numbers(watch).get(name) for name in ("missing", "unexpected", "in_flight"))


@pytest.mark.parametrize("restarted", [False, True])
def test_what_becomes_judged_later_is_judged_from_then_on(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarted: bool
) -> None:
    now = [NOW]
    monkeypatch.setattr(time, "time", lambda: now[0] / 1000)
    monkeypatch.setattr(loop, "_SETTINGS_S", 0.0)
    world.settings["LH.ORDERS"] = {"cleanup.policy": "compact"}
    for region in world.topics:
        world.topics[region]["LH.ORDERS"] = Topic()
    world.write("europe", "ab", "LH.ORDERS")
    with ExitStack() as stack:
        watch = stack.enter_context(watch_of(world, tmp_path))
        rounds(watch)
        assert [reported["topic"] for reported in watch.document()["not_judged"]] == ["LH.ORDERS"]
        if restarted:
            stack.close()
            watch = stack.enter_context(watch_of(world, tmp_path))
        world.settings = {}
        rounds(watch)
        assert "judged from now on" in watch.document()["notes"][0]["says"]
        world.copy("ab", "LH.ORDERS")
        rounds(watch, 3)
        assert numbers(watch, "LH.ORDERS") == {"older": 2}
        now[0] += 60_000
        world.write("europe", "cd", "LH.ORDERS")
        world.copy("c", "LH.ORDERS")
        rounds(watch, 3)
        assert numbers(watch, "LH.ORDERS") == {"records": 2, "copies": 1, "missing": 1, "older": 2}
        assert len(watch.document()["notes"]) == 1


def test_a_source_that_comes_in_without_its_beginning_is_judged_from_then_on(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [NOW]
    monkeypatch.setattr(time, "time", lambda: now[0] / 1000)
    other = replace(MIRROR, name="o", source="sa", source_alias="sa")
    monkeypatch.setattr(StubLab, "mirrors", (MIRROR, other))
    monkeypatch.setattr(StubLab, "claims", claims_of((MIRROR, other)))
    monkeypatch.setattr(StubLab, "clusters", {**StubLab.clusters, "sa": "3"})
    world.topics["sa"] = {}
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        world.topics["sa"]["LH.A"] = Topic(start=2, values=list("abc"))
        world.positions[other.id] = {TopicPartition("LH.A", 0): 2}
        # All three have been copied before two of them were deleted.
        world.copy("abc")
        rounds(watch, 3)
        assert watch.document()["findings"] == []
        now[0] += 60_000
        world.write("sa", "de")
        world.copy("d")
        world.positions[other.id] = {TopicPartition("LH.A", 0): 4}
        rounds(watch, 3)
        assert [finding["missing"] for finding in watch.document()["findings"]] == [1]


def test_a_topic_that_an_unjudged_flow_goes_into_is_not_judged_at_all() -> None:
    other = replace(MIRROR, name="o", source="sa", source_alias="sa")
    lab = SimpleNamespace(mirrors=(MIRROR, other), claims=claims_of((MIRROR, other)), topology=Topology(()))
    there = {"LH.A": ("1", 1), "LH.B": ("1", 1)}
    inventories = {"europe": there, "sa": {"LH.A": ("1", 1)}, "na": there}
    scope = scope_of(lab, dict.fromkeys(inventories, "1"), inventories, {("sa", "LH.A"): "LH.A in sa is compacted"})  # type: ignore[arg-type]
    assert [(flow.source, flow.topic) for flow in scope.flows] == [("europe", "LH.B")]
    assert sorted((flow.source, reason) for flow, reason in scope.excused.values()) == [
        ("europe", "it also has records from sa, which cannot be judged"),
        ("sa", "LH.A in sa is compacted"),
    ]


def test_a_partition_that_ends_before_what_was_read_of_it_is_said(world: World, tmp_path: Path) -> None:
    with watch_of(world, tmp_path) as watch:
        world.write("europe", "abc")
        rounds(watch)
        world.topics["europe"]["LH.A"].values = ["x"]
        rounds(watch)
        (note,) = watch.document()["notes"]
        assert (note["topic"], note["partition"]) == ("LH.A", 0)
        assert "ends before the offset" in note["says"]


def test_what_was_deleted_before_it_was_read_is_not_judged(world: World, tmp_path: Path) -> None:
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        world.write("europe", "abcde")
        world.topics["europe"]["LH.A"].start = 3
        world.copy("de")
        rounds(watch, 3)
        (note,) = watch.document()["notes"]
        assert (note["offsets"], note["region"]) == (3, "europe")
        assert "not judged" in note["says"]
        assert watch.document()["findings"] == []


def test_what_was_deleted_before_it_was_copied_is_named_so_whenever_it_was_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading that came too late for its round is taken by a later one: its log start is from before."""
    read_on = StubReader.read_on

    def late(reader: StubReader, *asked: Any) -> Reading:
        return replace(read_on(reader, *asked), starts=dict.fromkeys(asked[0], 0))

    monkeypatch.setattr(StubReader, "read_on", late)
    with watch_of(world, tmp_path) as watch:
        world.write("europe", "abcde")
        rounds(watch)
        world.topics["europe"]["LH.A"].start = 3
        world.copy("de")
        rounds(watch, 3)
        assert numbers(watch) == {"records": 5, "copies": 2, "never_mirrored": 3}
        assert [finding["verdict"] for finding in watch.document()["findings"]] == ["never mirrored"]


def test_what_was_deleted_at_a_target_is_said(world: World, tmp_path: Path) -> None:
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        world.deleted = {"na": {TopicPartition("LH.A", 0): 7}}
        watch.round()
        world.deleted = {}
        watch.round()
        (note,) = watch.document()["notes"]
        assert (note["offsets"], note["region"]) == (7, "na")
        assert "deleted at the target" in note["says"]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cleanup.policy", "compact,delete", "LH.B in europe is compacted"),
        ("message.timestamp.type", "LogAppendTime", "LH.B in na has the time of arrival"),
    ],
)
def test_a_topic_whose_records_cannot_be_compared_is_said(
    world: World, tmp_path: Path, name: str, value: str, why: str
) -> None:
    world.topics["europe"]["LH.B"] = Topic(values=list("abc"))
    world.topics["na"]["LH.B"] = Topic(values=list("x"))
    world.settings["LH.B"] = {name: value}
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        assert [(entry["topic"], entry["why"]) for entry in watch.document()["not_judged"]] == [("LH.B", why)]
        assert [flow["topic"] for flow in watch.document()["flows"]] == ["LH.A"]
        assert watch.document()["findings"] == []


def why_not_judged(watch: Watch) -> list[str]:
    """Why topics are not judged; no bucket of theirs counts as different."""
    document = watch.document()
    assert document["findings"] == []
    return [entry["why"] for entry in document["not_judged"]]


def test_a_topic_with_records_without_a_timestamp_is_not_judged_and_said(world: World, tmp_path: Path) -> None:
    why = (
        "LH.A in europe has records without a timestamp (at least 1), whose copies have the time at which they were "
        "copied; the proof compares them"
    )
    world.write("europe", "a")
    world.copy("a")
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        assert why_not_judged(watch) == []
        world.write("europe", "b?")
        world.copy("bx")
        for _ in range(4):
            watch.round()
            assert why_not_judged(watch) == [why]
        assert watch.document()["flows"] == []
    # Another watch may find the record no longer.
    world.topics["europe"]["LH.A"].start = 3
    with watch_of(world, tmp_path) as again:
        rounds(again)
        assert why_not_judged(again) == [why]
        # A topic of the same name that is new has none.
        world.topics["europe"]["LH.A"] = Topic("2")
        world.topics["na"]["LH.A"] = Topic("2")
        rounds(again)
        assert why_not_judged(again) == []


@pytest.mark.parametrize(("before", "old", "copied", "count"), [("??a", 0, "xya", 2), ("a?b?", 4, "xy", 1)])
def test_copies_of_earlier_records_without_a_timestamp_are_not_unexpected(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, old: int, copied: str, count: int
) -> None:
    verdicts = list[str]()
    monkeypatch.setattr(StubReader, "most_offsets", 1)
    monkeypatch.setattr(loop, "verdict_row", lambda entry, *_: verdicts.append(entry.verdict))
    world.topics["europe"]["LH.A"] = Topic(values=list(before), old=old)
    with watch_of(world, tmp_path) as watch:
        rounds(watch)
        assert why_not_judged(watch) == []
        world.copy(copied)
        for _ in range(4):
            watch.round()
            whys = why_not_judged(watch)
        assert [why.partition(", whose")[0] for why in whys] == [
            f"LH.A in europe has records without a timestamp (at least {count})"
        ]
    assert verdicts == []


def test_a_topic_whose_records_without_a_timestamp_were_copied_before_is_judged(world: World, tmp_path: Path) -> None:
    world.write("europe", "??ab")
    # The copies of the first two are older than the watch.
    world.copy("??a")
    with watch_of(world, tmp_path) as watch:
        rounds(watch, 4)
        assert numbers(watch) == {"records": 2, "copies": 1, "missing": 1}
        assert watch.document()["not_judged"] == []
        (finding,) = watch.document()["findings"]
        assert (finding["verdict"], finding["missing"]) == ("missing", 1)


def test_a_mirror_of_which_nothing_is_claimed_is_not_judged() -> None:
    lab = SimpleNamespace(mirrors=(MIRROR,), claims=(), topology=Topology(()))
    inventories = {"europe": {"LH.A": ("1", 2)}, "na": {"LH.A": ("1", 2)}}
    scope: Scope = scope_of(lab, {"europe": "1", "na": "2"}, inventories)  # type: ignore[arg-type]
    assert scope.flows == ()
    ((flow, reason),) = scope.excused.values()
    assert flow.topic == "LH.A"
    assert reason == "no claim says that the mirror is the only writer there"


class Sending:
    """A producer whose records are in the world at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: list[tuple[str, str, list[tuple[str, bytes]]]] = []

    def send(self, topic: str, value: bytes, key: bytes, headers: list[tuple[str, bytes]], timestamp_ms: int) -> None:
        assert json.loads(value)["at"] == iso(timestamp_ms)
        self.sent.append((topic, json.loads(value)["region"], headers))
        self.world.write(key.decode(), "c", topic)

    def close(self, timeout: float) -> None:
        """Nothing is on its way."""


def test_a_canary_that_is_swallowed_or_late_is_reported(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Sending(world)
    monkeypatch.setattr(canary, "open_topic", lambda *_: producer)
    for region in world.topics:
        world.topics[region][canary.TOPIC] = Topic()
    watch = watch_of(world, tmp_path, sent=Canary({"europe": StubCluster.connection}, 1e6))
    updates = watch.updates(threading.Event())

    def standing() -> tuple[str, int]:
        document = next(updates)
        (entry,) = document["canaries"]
        reported = [line for line in alarms_of(document) if "canaries do not arrive" in line]
        assert len(reported) == (entry["verdict"] in ("late", "missing"))
        return entry["verdict"], entry["sent"]

    with watch:
        assert standing() == ("arriving", 1)
        assert producer.sent == [("LH.CANARY", "europe", [("lab-canary", b"1")])]
        (entry,) = watch.document()["canaries"]
        assert (entry["mirror"], entry["newest"], entry["latency_s"]) == ("m", None, None)  # No copy was read.
        monkeypatch.setattr(time, "time", lambda: NOW / 1000 + OPTIONS.late_after_s + 1)
        assert standing()[0] == "late"
        world.positions[MIRROR.id][TopicPartition(canary.TOPIC, 0)] = 1
        rounds(watch)
        assert standing() == ("missing", 1)


def test_a_canary_begins_where_no_mirror_writes_its_topic() -> None:
    chain = [
        replace(MIRROR, name=name, source=source, target=target, topics=topics)
        for name, source, target, topics in (
            ("m", "a", "b", "LH.*"),
            ("n", "b", "c", "LH.*"),
            ("o", "d", "a", "SHOP.*"),
        )
    ]
    assert canary.sources(chain) == ["a"], "in b it would be a second writer, and from d no mirror copies it"


def test_without_connect_the_copies_show_what_is_missing_also_over_a_restart(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [NOW]
    monkeypatch.setattr(time, "time", lambda: now[0] / 1000)
    monkeypatch.setattr(ObservedPositions, "positions", OBSERVED)
    grace = replace(OPTIONS, settle_s=10.0)

    def observed(mirrors: Any, source_of: Any, copied_by: Any) -> Positions:
        return ObservedPositions(mirrors, source_of, copied_by, lambda *_: {}, 10.0)

    def later(watch: Watch, seconds: float = 11.0) -> dict[str, int]:
        now[0] += round(seconds * 1000)
        rounds(watch, 3)
        return numbers(watch)

    with watch_of(world, tmp_path, options=grace, positions=observed) as watch:
        world.write("europe", "abc")
        world.write("na", "ac")
        assert later(watch) == {"records": 3, "copies": 2, "in_flight": 1}
        assert later(watch) == {"records": 3, "copies": 2, "late": 1}, "nothing has come since: it may be behind"
        world.write("europe", "d")
        world.write("na", "d")
        # The next watch must know that this copy has arrived: it is not judged before.
        rounds(watch, 2)
        assert not numbers(watch).get("missing")
    with watch_of(world, tmp_path, options=grace, positions=observed) as watch:
        assert later(watch) == {"records": 4, "copies": 3, "missing": 1}
        world.write("na", "b")
        later(watch)
        assert later(watch) == {"records": 4, "copies": 4, "unexpected": 1, "missing": 1}, "in another ten seconds"
