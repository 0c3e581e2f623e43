"""One source and several targets: what happens to one target's copies is never reported for another's."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.cluster import Config
from loosehanger.proof.compare.comparison import Comparison, Counts
from loosehanger.proof.flows import Flow
from loosehanger.proof.judge import FAULT_KEYS
from loosehanger.proof.read.batches import Ranges
from loosehanger.proof.read.mirrors import MirrorProgress
from loosehanger.proof.read.records import BUCKET_MS
from loosehanger.proof.snapshot import Cut, OffsetSnapshot

from .test_spark_comparison import CUT_AT, MIRROR, Record, _row, frame_of

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves it to the garbage collector to close the sockets that results come through.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Log = Sequence[tuple[int, Record]]
"""Offsets, which compaction leaves gaps in, and records; of all partitions, in order."""
KEYS, PARTITIONS = 10, 2


@dataclass(frozen=True)
class Topic:
    """A topic at its source and at its targets."""

    source: Log
    targets: Mapping[str, Log]
    policy: str


def compare(spark: SparkSession, topics: Mapping[str, Topic]) -> dict[tuple[str, str], Counts]:
    """What the comparison finds, by topic and target. One Spark run for all."""
    logs: dict[str, dict[str, Log]] = {"here": {name: topic.source for name, topic in topics.items()}}
    for name, topic in topics.items():
        for target, log in topic.targets.items():
            logs.setdefault(target, {})[name] = log
    ranges: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
    frames: dict[str, DataFrame] = {}
    for region, of_topics in logs.items():
        rows: list[tuple[Any, ...]] = []
        for name, log in of_topics.items():
            for partition in range(PARTITIONS):
                own = [(offset, record) for offset, record in log if record.partition == partition]
                end = max([0, *(offset + 1 for offset, _ in own)])
                ranges.setdefault(region, {})[TopicPartition(name, partition)] = (0, end)
                rows += [_row(name, offset, record) for offset, record in own]
        frames[region] = frame_of(spark, rows)

    def read(region: str, wanted: Ranges) -> DataFrame:
        bounds = spark.createDataFrame(
            [(*partition, *offsets) for partition, offsets in wanted.items()],
            "topic string, partition int, from long, to long",
        )
        known = frames[region].join(F.broadcast(bounds), ["topic", "partition"])
        return known.where("offset >= from AND offset < to").drop("from", "to")

    flows = [
        Flow(replace(MIRROR, name=target, target=target), name, name)
        for name, topic in topics.items()
        for target in topic.targets
    ]
    policies = {
        name: {"cleanup.policy": Config(topic.policy, override=True, mirrored=True)} for name, topic in topics.items()
    }
    found = Comparison(
        spark,
        flows,
        {"here": Cut(CUT_AT, ranges["here"], {}, policies)},
        {flow.mirror.id: MirrorProgress("RUNNING") for flow in flows},
        OffsetSnapshot(
            {},
            {region: wanted for region, wanted in ranges.items() if region != "here"},
            {"here": ranges["here"]},
            {region: {} for region in ranges if region != "here"},
            CUT_AT,
        ),
        read,
    ).run(5)
    return {(flow.topic, flow.target): found[flow.id] for flow in flows}


def faults(counts: Counts) -> dict[str, int]:
    """What was found, without the zeros."""
    return {name: getattr(counts, name) for name in FAULT_KEYS if getattr(counts, name)}


def log(partition_records: Sequence[Record]) -> list[tuple[int, Record]]:
    """The records with the offsets that they get in their partitions."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    found = []
    for record in partition_records:
        found.append((ends[record.partition], record))
        ends[record.partition] += 1
    return found


def compacted(full: Log, before: int) -> list[tuple[int, Record]]:
    """The log once the cleaner has been through all offsets below this one: of each key, the last of them is left."""
    last = {(record.partition, record.key): offset for offset, record in full if offset < before}
    return [
        (offset, record) for offset, record in full if offset >= before or last[record.partition, record.key] == offset
    ]


def changed(full: Log, number: int) -> list[tuple[int, Record]]:
    """The log with another value in one record."""
    return [
        (offset, replace(record, value=b"altered") if place == number else record)
        for place, (offset, record) in enumerate(full)
    ]


# Two versions of each key, spread over partitions and over buckets of time.
VERSIONS = log(
    [
        Record(b"%d" % key, b"version %d" % version, key % PARTITIONS, (version * KEYS + key) * BUCKET_MS // 3)
        for version in range(2)
        for key in range(KEYS)
    ]
)
HALF = KEYS // PARTITIONS


def topics(policy: str, targets: Sequence[str]) -> dict[str, Topic]:
    """Topics whose first target, or last one, differs in some way from the others'."""
    first, *_, last = targets
    same = dict.fromkeys(targets, VERSIONS)
    old_gone = compacted(VERSIONS, HALF + 1)
    return {
        "one compacted": Topic(VERSIONS, same | {first: compacted(VERSIONS, 2 * HALF)}, policy),
        "one altered": Topic(VERSIONS, same | {last: changed(VERSIONS, len(VERSIONS) - 1)}, policy),
        "one partition lost": Topic(
            VERSIONS, same | {last: [(o, record) for o, record in VERSIONS if record.partition == 0]}, policy
        ),
        "each compacted in its time": Topic(
            VERSIONS,
            {name: compacted(VERSIONS, HALF + number) for number, name in enumerate(targets)},
            policy,
        ),
        "source compacted": Topic(compacted(VERSIONS, 2 * HALF), same | {first: old_gone}, policy),
    }


def test_one_targets_fault_is_not_told_of_another(spark: SparkSession) -> None:
    worlds = {
        f"{name}, {policy}, {len(targets)} targets": topic
        for policy in ("compact", "compact,delete")
        for targets in (("na", "sa"), ("na", "sa", "asia"))
        for name, topic in topics(policy, targets).items()
    }
    found = compare(spark, worlds)
    last = {name: list(topic.targets)[-1] for name, topic in worlds.items()}
    expected = {"one altered": {"altered": 1}, "one partition lost": {"missing": HALF}}
    assert {place: faults(counts) for place, counts in found.items() if faults(counts)} == {
        (name, last[name]): counts for name in worlds for kind, counts in expected.items() if name.startswith(kind)
    }


def latest(source: Log, target: Log) -> dict[str, int]:
    """By definition, what a compacted topic's target has otherwise than its source."""
    here, there = ({(r.partition, r.key): r for _, r in side} for side in (source, target))
    kinds = [
        "altered" if key in here and key in there else "missing" if key in here else "unexpected"
        for key in here.keys() | there.keys()
        if here.get(key) != there.get(key)
        and any(key in side and side[key].value is not None for side in (here, there))
    ]
    return {kind: kinds.count(kind) for kind in set(kinds)}


def test_random_compaction_and_damage_as_the_reference_has_it(spark: SparkSession) -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    found: dict[str, Topic] = {}
    for number in range(40):
        source = log(
            [
                Record(
                    b"%d" % chance.randrange(4),
                    chance.choice([None, b"", b"%d" % at]),
                    chance.randrange(PARTITIONS),
                    chance.randrange(4) * BUCKET_MS,
                )
                for at in range(chance.randrange(12))
            ]
        )
        targets = {}
        for name in ("na", "sa", "asia")[: chance.choice((2, 3))]:
            copy = compacted(source, chance.randrange(8))
            for place in [place for place in range(len(copy)) if chance.random() < 0.1]:
                copy = changed(copy, place)
            targets[name] = [entry for entry in copy if chance.random() > 0.1]
        # The cleaner works at the source as well.
        found[f"t{number}"] = Topic(compacted(source, chance.randrange(8)), targets, "compact")
    for (topic, target), counts in compare(spark, found).items():
        expected = latest(found[topic].source, found[topic].targets[target])
        assert faults(counts) == expected, (topic, target, found[topic])
