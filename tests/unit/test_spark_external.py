"""How it is found out what has arrived between any two clusters, and how long that may take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from loosehanger.errors import UnreachableError
from loosehanger.kafka import clients
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import UnreadableError
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.evidence.findings import Finding
from loosehanger.proof.read import external
from loosehanger.proof.read.copier import Copier
from loosehanger.proof.read.external import two_clusters, wait_for_arrival
from loosehanger.proof.report import messages

MANY = 2100
A_S = 1_800_000_000_000


class Service:
    """Both clusters, in the way of kafka-python's consumer: a record or more in each partition of ``many``."""

    def __init__(self, sizes: Mapping[TopicPartition, int]) -> None:
        self.sizes = dict(sizes)
        self.calls: Counter[str] = Counter()
        self.most_assigned = 0
        self.unreadable: set[TopicPartition] = set()
        self.silent: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def __call__(self, **_: Any) -> Service:
        return self

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def close(self, **_: Any) -> None:
        """Nothing is open."""

    def topics(self) -> set[str]:
        self.calls["topics"] += 1
        return {place.topic for place in self.sizes}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {place.partition for place in self.sizes if place.topic == topic}

    def offsets_for_times(self, times: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, Any]:
        assert timeout_ms > 0
        self.calls["times"] += 1
        return {
            place: SimpleNamespace(offset=max(0, time_ms - A_S)) if time_ms < A_S + self.sizes[place] else None
            for place, time_ms in times.items()
        }

    def end_offsets(self, places: Collection[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        assert timeout_ms > 0
        self.calls["ends"] += 1
        return {place: self.sizes[place] for place in places}

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._positions, self._paused = dict.fromkeys(places, 0), set()
        self.most_assigned = max(self.most_assigned, len(places))

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._positions[place] = offset

    def position(self, place: TopicPartition, timeout_ms: int) -> int:
        del timeout_ms
        return self._positions[place]

    def pause(self, *places: TopicPartition) -> None:
        self._paused |= set(places)

    def resume(self, *places: TopicPartition) -> None:
        self._paused -= set(places)

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        del timeout_ms
        self.calls["polls"] += 1
        found = {}
        for place in (self.unreadable & self._positions.keys()) - self._paused:
            raise UnreadableError(place, self._positions[place], ValueError("odd bytes"))
        for place, at in self._positions.items():
            if place in self._paused | self.silent:
                continue
            found[place] = [
                SimpleNamespace(offset=o, key=b"k", value=b"%d" % o, timestamp=A_S + o)
                for o in range(at, self.sizes[place])
            ]
            self._positions[place] = self.sizes[place]
        return {place: records for place, records in found.items() if records}


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    for side in ("a", "b"):
        (tmp_path / side).write_text("bootstrap.servers=x:1\n", encoding="utf-8")
    (found,) = two_clusters(tmp_path / "a", tmp_path / "b", "many", "default", "old").mirrors
    return found


def test_placeholders_in_client_properties_are_environment_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BROKERS", "x:1")
    for side in ("a", "b"):
        (tmp_path / side).write_text("bootstrap.servers=${KAFKA_BROKERS}\n", encoding="utf-8")
    for region in two_clusters(tmp_path / "a", tmp_path / "b", "many").clusters.values():
        assert Cluster.of(region, PROVER).connection.bootstrap_servers == ("x:1",)


def arrived(
    service: Service, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 60
) -> tuple[dict[TopicPartition, int], list[str]]:
    """What is judged as copied, and what is said."""
    monkeypatch.setattr(clients, "KafkaConsumer", service)
    lines: list[str] = []
    sides = {name: Cluster(name, Connection(("x:1",))) for name in ("source", "target")}
    last = {place: size - 1 for place, size in service.sizes.items() if place.topic == "many"}
    return dict(wait_for_arrival(mirror, sides, last, timeout_s, lines.append).positions), lines


def many(count: int, size: int = 1) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, n): size for topic in ("many", "old.many") for n in range(count)}


def test_all_partitions_are_asked_for_at_once_and_read_in_portions(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(many(MANY, 3))
    positions, lines = arrived(service, mirror, monkeypatch)
    assert positions == {TopicPartition("many", n): 2 for n in range(MANY)}
    assert lines == []
    assert (service.calls["topics"], service.calls["times"], service.calls["ends"]) == (1, 1, 1)
    assert service.most_assigned <= 2000
    assert service.calls["polls"] < MANY / 10


def test_what_has_not_arrived_is_named_in_ten_partitions_and_a_number(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(many(MANY, 3))
    for number in range(MANY - 60):
        service.sizes[TopicPartition("old.many", number)] = 2
    # How far the copier has come is a matter of its own.
    monkeypatch.setattr(external, "OBSERVED_S", 0)
    monkeypatch.setattr(Copier, "look", lambda _: None)
    monkeypatch.setattr(Copier, "reached", lambda _, wanted: dict.fromkeys(wanted, -1))
    _, lines = arrived(service, mirror, monkeypatch, timeout_s=0)
    assert lines == [
        "after 0 s the last record of many-0, many-1, many-2, many-3, many-4, many-5, many-6, many-7, many-8, many-9 "
        "and 2,030 more was not found at the target",
    ]


def test_a_source_that_gives_nothing_ends_at_the_bound_with_a_short_message(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "_GRACE_S", 0.1)
    service = Service(many(MANY))
    service.silent = {place for place in service.sizes if place.topic == "many"}
    with pytest.raises(UnreachableError, match=r"^source: the last record of many-0, .*many-9 and 2,090 more cannot"):
        arrived(service, mirror, monkeypatch, timeout_s=0.2)


def test_a_record_that_cannot_be_read_is_named(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(many(3))
    service.unreadable = {TopicPartition("many", 1)}
    with pytest.raises(UnreachableError, match=r"^source: the last record of many-1 cannot be read: topic many, part"):
        arrived(service, mirror, monkeypatch)


def test_what_of_the_target_cannot_be_read_is_not_waited_for(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(many(3))
    service.unreadable = {TopicPartition("old.many", 1)}
    with pytest.raises(UnreachableError, match=r"^target: .*topic old\.many, partition 1, offset 0: .*odd bytes"):
        arrived(service, mirror, monkeypatch)


def test_a_cluster_that_was_silent_is_not_waited_for_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[tuple[int, int]] = []
    silent = True

    class Admin:
        def __init__(self, bootstrap_timeout_ms: int, request_timeout_ms: int, **_: Any) -> None:
            bounds.append((bootstrap_timeout_ms, request_timeout_ms))
            self.config = {"request_timeout_ms": request_timeout_ms}

        def describe_topics(self) -> list[Any]:
            if silent:
                raise KafkaTimeoutError("no answer")
            return []

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(clients, "KafkaAdminClient", Admin)
    cluster = Cluster("europe", Connection(("x:1",)))
    for _ in range(3):
        with pytest.raises(UnreachableError):
            cluster.topics()
    assert bounds == [(10_000, 15_000), (5_000, 5_000)]
    silent = False
    for _ in range(2):
        assert cluster.topics() == {}
    assert bounds[2:] == [(10_000, 15_000)], "one that answers has its time again"


def test_a_partition_that_cannot_be_decoded_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service({TopicPartition("many", n): 5 for n in range(200)})
    service.unreadable = {TopicPartition("many", 7)}
    cluster = Cluster("europe", Connection(("x:1",)))
    monkeypatch.setattr(cluster, "consumer", lambda: service)
    began = time.monotonic()
    found, unread = cluster.last_records(dict.fromkeys(service.sizes, (0, 5)), 300)
    assert time.monotonic() - began < 200
    assert found == {place: 4 for place in service.sizes if place.partition != 7}
    (reason,) = unread.values()
    assert reason.startswith("topic many, partition 7, offset 0: ")


def test_ten_partitions_of_a_flow_are_named_and_the_others_counted() -> None:
    begins = [{"partition": number, "offset": 7} for number in range(MANY)]
    deleted = [{"partition": number, "first": 0, "last": 6} for number in range(MANY)]
    finding = Finding("missing", "disproves", "claim", details={"log_begins": begins, "source_offsets": deleted})
    said = list(messages._more(finding, "many, a → b: "))
    assert len(said) == 22
    assert said[10] == "many, a → b: 2,090 more of the target's partitions begin later"
    assert said[21].startswith("many, a → b: source offsets of 2,090 more partitions")
