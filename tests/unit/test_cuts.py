"""What is frozen of each side: of a target that has an archive, only what lies behind it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition

from loosehanger.lab.claims.claims import Claim
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.flows import Flow
from loosehanger.proof.snapshot import OffsetSnapshot

MIRROR = Mirror("mm2", "west", "east", "west", "east", "default", ".", ".*", "", "c", {})
COPY = "west.t"


@dataclass
class Cluster:
    """Topics of two partitions, each from its start to its end."""

    ranges: dict[TopicPartition, tuple[int, int]]

    def topics(self) -> dict[str, int]:
        return {partition.topic: 2 for partition in self.ranges}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.ranges[partition][1] for partition in partitions}

    def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.ranges[partition][0] for partition in partitions}

    def configs(self, _topics: object) -> dict[str, Any]:
        return {}


def both(topic: str, *ranges: tuple[int, int]) -> dict[TopicPartition, tuple[int, int]]:
    return {TopicPartition(topic, number): found for number, found in enumerate(ranges)}


def test_what_an_archive_holds_is_not_read_and_what_retention_takes_of_it_is_no_loss() -> None:
    clusters: Any = {
        "west": Cluster(both("t", (0, 4), (0, 0))),
        "east": Cluster(both(COPY, (3, 14), (25, 30)) | both("other", (1, 2), (0, 0))),
    }
    claim = Claim("copy", "copy", (MIRROR.id,), archives={COPY: {0: 10, 1: 20}, "other": {0: 2}})
    evidence = Evidence(claims=(claim,), flows=[Flow(MIRROR, "t", COPY)])
    frozen = OffsetSnapshot.freeze(evidence.flows, clusters, archives=evidence.archives())
    assert frozen.targets == {"east": both(COPY, (10, 14), (25, 30))}
    assert frozen.sources == {"west": both("t", (0, 4), (0, 0))}
    assert [frozen.deleted("east", TopicPartition(COPY, number)) for number in (0, 1)] == [0, 5]
    assert evidence.archives() == {"east": {TopicPartition(COPY, 0): 10, TopicPartition(COPY, 1): 20}}
    assert not frozen.moved()


def test_without_an_archive_everything_is_read() -> None:
    clusters: Any = {"west": Cluster(both("t", (0, 4), (0, 0))), "east": Cluster(both(COPY, (3, 14), (5, 5)))}
    evidence = Evidence(claims=(Claim("copy", "copy", (MIRROR.id,)),), flows=[Flow(MIRROR, "t", COPY)])
    frozen = OffsetSnapshot.freeze(evidence.flows, clusters, archives=evidence.archives())
    assert frozen.targets == {"east": both(COPY, (3, 14), (5, 5))}
    assert [frozen.deleted("east", TopicPartition(COPY, number)) for number in (0, 1)] == [3, 5]
