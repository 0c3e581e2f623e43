"""Two clusters of anybody's, whose copier cannot be asked: what its copies show of how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from kafka import TopicPartition

from loosehanger.kafka import clients, cluster, reading
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.read import copier, external
from loosehanger.proof.read.external import EXTERNAL, wait_for_arrival
from loosehanger.proof.read.mirrors import GROWING, UNKNOWN, MirrorProgress, describe, standing

MIRROR = Mirror(EXTERNAL, "old", "target", "source", "target", "default", ".", ".*", "", "", {})
P, Q = (TopicPartition("orders", number) for number in (0, 1))
RECORDS = 1000
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Record:
    """A record as the client has it."""

    offset: int
    key: bytes
    timestamp: int
    value: bytes = b""
    timestamp_type: int = 0


@dataclass(frozen=True)
class Place:
    """Where a record was found."""

    offset: int
    timestamp: int


@dataclass
class World:
    """Two clusters and a clock; what happens while it is waited for is ``each_second``."""

    logs: dict[str, dict[TopicPartition, list[Record]]] = field(default_factory=lambda: {"source": {}, "target": {}})
    now: float = 0.0
    each_second: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        before, self.now = int(self.now), self.now + seconds
        for _ in range(int(self.now) - before):
            self.each_second()

    def write(self, region: str, place: TopicPartition, numbers: Sequence[int], **changes: Any) -> None:
        """Writes numbered records; a number is a key, and a time in seconds."""
        log = self.logs[region].setdefault(place, [])
        for number in numbers:
            log.append(replace(Record(len(log), b"%d" % number, number * 1000), **changes))

    def copy(self, place: TopicPartition, numbers: Sequence[int], **changes: Any) -> None:
        """Writes copies of them."""
        self.write("target", TopicPartition(f"old.{place.topic}", place.partition), numbers, **changes)

    def copied(self, place: TopicPartition) -> int:
        return len(self.logs["target"].get(TopicPartition(f"old.{place.topic}", place.partition), ()))

    def first_at(self, region: str, place: TopicPartition, timestamp: int) -> Record | None:
        return next((record for record in self.logs[region][place] if record.timestamp >= timestamp), None)


class Admin:
    """What the proof asks of a cluster."""

    def __init__(self, world: World, region: str) -> None:
        self.world, self.region = world, region

    def describe_topics(self) -> list[dict[str, Any]]:
        counts: dict[str, int] = {}
        for place in self.world.logs[self.region]:
            counts[place.topic] = counts.get(place.topic, 0) + 1
        return [{"name": name, "partitions": [0] * count, "error_code": 0} for name, count in counts.items()]

    def list_partition_offsets(self, specs: Mapping[TopicPartition, int], **_: Any) -> dict[TopicPartition, Place]:
        found = {}
        for place, spec in specs.items():
            log = self.world.logs[self.region][place]
            first = self.world.first_at(self.region, place, spec)
            at = {-2: log[0].offset if log else 0, -1: len(log)}.get(spec, first.offset if first else -1)
            found[place] = Place(at, first.timestamp if first else -1)
        return found

    def close(self) -> None:
        """Nothing to close."""


class Consumer:
    """Reads everything at once."""

    world: ClassVar[World]

    def __init__(self, **settings: Any) -> None:
        self.log = self.world.logs[settings["bootstrap_servers"][0].partition(":")[0]]
        self.region = settings["bootstrap_servers"][0].partition(":")[0]
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def close(self, **_: Any) -> None:
        """Nothing to close."""

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.positions = dict.fromkeys(places, 0)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.positions[place] = offset

    def pause(self, *places: TopicPartition) -> None:
        self.paused |= {*places}

    def resume(self, *places: TopicPartition) -> None:
        self.paused -= {*places}

    def position(self, place: TopicPartition, timeout_ms: float | None = None) -> int:
        del timeout_ms
        return self.positions[place]

    def topics(self) -> set[str]:
        return {place.topic for place in self.log}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {place.partition for place in self.log if place.topic == topic}

    def end_offsets(self, places: Sequence[TopicPartition], *_: Any) -> dict[TopicPartition, int]:
        return {place: len(self.log[place]) for place in places}

    def offsets_for_times(self, times: Mapping[TopicPartition, int], *_: Any) -> dict[TopicPartition, Place | None]:
        found = {place: self.world.first_at(self.region, place, time) for place, time in times.items()}
        return {place: Place(one.offset, one.timestamp) if one else None for place, one in found.items()}

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        del timeout_ms
        found = {place: self.log[place][at:] for place, at in self.positions.items() if place not in self.paused}
        self.positions |= {place: len(self.log[place]) for place in found}
        return {place: records for place, records in found.items() if records}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A source with a thousand records in each of two partitions, and a clock that only waiting moves."""
    found = World()
    for place in (P, Q):
        found.write("source", place, range(RECORDS))
    monkeypatch.setattr(Consumer, "world", found, raising=False)
    for module in (external, cluster, reading, copier):
        monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(clients, "KafkaConsumer", Consumer)
    monkeypatch.setattr(Cluster, "_client", lambda cluster: Admin(found, cluster.region))
    return found


def wait(mirror: Mirror = MIRROR, *, while_moving: bool = False) -> tuple[MirrorProgress, list[str]]:
    """What the wait for both partitions comes to, and what it reports."""
    both = {region: Cluster(region, Connection((f"{region}:1",))) for region in ("source", "target")}
    last = dict.fromkeys((P, Q), RECORDS - 1)
    said: list[str] = []
    return wait_for_arrival(mirror, both, last, TIMEOUT_S, said.append, while_moving=while_moving), said


def test_a_copier_that_lags_is_behind_and_judged_as_far_as_it_has_come(world: World) -> None:
    world.copy(P, range(RECORDS))
    world.copy(Q, range(500))
    world.each_second = lambda: world.copy(Q, range(world.copied(Q), world.copied(Q) + 10))
    progress, said = wait()
    last = dict.fromkeys((P, Q), RECORDS - 1)
    assert (progress.state, set(progress.behind(last))) == (GROWING, {Q})
    # Everything before is judged, and nothing that has not been copied.
    assert world.copied(Q) - 20 <= progress.positions[Q] + 1 <= world.copied(Q)
    assert world.now < 2 * TIMEOUT_S
    assert said[-1].startswith("after 10 s the last record of orders-1 was not found at the target")
    sentence = describe(standing(MIRROR, progress, last))
    assert sentence.startswith("the copies are behind and still grow: ")
    assert sentence.endswith(" in 1 of 2 partitions; wait longer with --timeout or --while-moving")


def test_what_a_copier_at_rest_has_not_brought_is_missing(world: World) -> None:
    world.copy(P, range(RECORDS))
    world.copy(Q, range(500))
    progress, _ = wait()
    assert (progress.state, progress.positions) == (UNKNOWN, dict.fromkeys((P, Q), RECORDS - 1))


def test_a_copier_that_has_come_to_rest_some_time_ago_brings_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "_STILL_S", 3.0)
    world.copy(P, range(RECORDS))
    world.copy(Q, range(500))
    world.each_second = lambda: world.copy(Q, [500] if world.now < 3 else [])
    assert wait()[0].state == UNKNOWN


def test_a_last_record_that_was_passed_over_is_missing_while_the_target_grows(world: World) -> None:
    world.copy(P, range(RECORDS))
    world.write("source", Q, range(RECORDS, 3 * RECORDS))
    world.copy(Q, range(RECORDS - 1))
    world.copy(Q, range(RECORDS, RECORDS + 10))
    world.each_second = lambda: world.copy(Q, range(world.copied(Q) + 1, world.copied(Q) + 11))
    for while_moving in (False, True):
        progress, _ = wait(while_moving=while_moving)
        assert (progress.state, progress.behind(dict.fromkeys((P, Q), RECORDS - 1))) == (UNKNOWN, {})


def test_a_partition_that_comes_later_is_behind_as_a_whole(world: World) -> None:
    world.each_second = lambda: world.copy(P, range(world.copied(P), world.copied(P) + 10))
    progress, _ = wait()
    assert (progress.state, progress.positions[Q]) == (GROWING, -1)
    assert progress.positions[P] > 0


def test_a_copier_that_moves_is_waited_for_on_request(world: World) -> None:
    def ten_more() -> None:
        for place in (P, Q):
            done = world.copied(place)
            world.copy(place, range(done, min(done + 10, RECORDS)))

    world.each_second = ten_more
    progress, _ = wait(while_moving=True)
    assert (progress.state, progress.behind(dict.fromkeys((P, Q), RECORDS - 1))) == (UNKNOWN, {})
    assert world.now == pytest.approx(100, abs=TIMEOUT_S)


def test_a_copier_that_stops_moving_is_not_waited_for_for_ever(world: World) -> None:
    world.copy(P, range(RECORDS))
    world.each_second = lambda: world.copy(Q, range(world.copied(Q), world.copied(Q) + 10) if world.now < 30 else [])
    progress, _ = wait(while_moving=True)
    assert world.now < 30 + 3 * TIMEOUT_S
    assert progress.behind({P: RECORDS - 1}) == {}


def test_a_mirror_of_the_lab_whose_copies_did_not_arrive_stays_open(world: World) -> None:
    world.copy(P, range(RECORDS))
    world.copy(Q, range(500))
    progress, _ = wait(replace(MIRROR, name="chain"))
    assert (progress.state, progress.positions) == (UNKNOWN, {P: RECORDS - 1})


def test_a_copy_with_the_time_of_its_arrival_has_arrived(world: World) -> None:
    for place in (P, Q):
        world.copy(place, range(RECORDS), timestamp=10_000_000_000, timestamp_type=1)
    progress, said = wait()
    assert (world.now, said) == (0, [])
    assert progress.behind(dict.fromkeys((P, Q), RECORDS - 1)) == {}
