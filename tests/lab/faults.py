"""Faults that tests make in the copies of a lab's topics, and what the proof says of them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from loosehanger.kafka.connection import connection_for
from scripts.sandbox import Kit

from .conftest import admin, batches

FAULTS = ("missing", "never_mirrored", "duplicates", "reordered", "unexpected", "altered", "moved")
"""The numbers of a flow that are 0 where its copy is exact."""
RECORDS = 20
SPOILT = {
    "DELETED": "missing",
    "FOREIGN": "unexpected",
    "TWICE": "duplicates",
    "ALTERED": "altered",
    "REORDERED": "reordered",
    "MOVED": "moved",
    "COMPACTED": "missing",
}
"""The topics (behind ``LH.``) whose copies ``spoil`` spoils, with the one fault that each then has, once."""


def write(
    kit: Kit, region: str, topic: str, records: Sequence[tuple[bytes, bytes, int]], partition: int = 0, run: str = ""
) -> None:
    """Writes records (key, value, timestamp in ms) to a partition; with a run, the key is their sequence number."""
    with KafkaProducer(**connection_for(kit.lab.region(region), "admin").kafka_python()) as producer:
        for key, value, timestamp in records:
            headers = [("lh-run", run.encode()), ("lh-seq", key)] if run else None
            sent = producer.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp, headers=headers)
            sent.get(timeout=30)


def count(kit: Kit, region: str, topic: str) -> int:
    """How many committed records a region's copy of a topic has."""
    with KafkaConsumer(
        **connection_for(kit.lab.region(region), "prover").kafka_python(), isolation_level="read_committed"
    ) as consumer:
        partition = TopicPartition(topic, 0)
        if partition.partition not in (consumer.partitions_for_topic(topic) or ()):
            return 0
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return sum(map(len, batches(consumer, consumer.end_offsets([partition]))))


def empty(kit: Kit, region: str, topic: str, before: int = -1) -> None:
    """Deletes the records before an offset (all of them by default)."""
    client = admin(kit, region)
    client.delete_records({TopicPartition(topic, 0): before})
    client.close()


def prove(kit: Kit, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Runs the proof: its exit code and its document."""
    done = kit.run("prove", "--json", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def some_records() -> list[tuple[bytes, bytes, int]]:
    """Records (key, value, timestamp in ms), all different.

    They are not older than any retention: what a target's own retention may have deleted is expired, not missing.
    """
    begin = int(time.time() * 1000)
    return [(f"key-{n}".encode(), f"value-{n}".encode(), begin + n) for n in range(RECORDS)]


def create(kit: Kit, region: str, topics: Sequence[str]) -> None:
    """Makes topics of a partition, two where a record is to move, compacted where that matters."""
    client = admin(kit, region)
    client.create_topics(
        {topic: {"num_partitions": 2 if topic == "LH.MOVED" else 1, "replication_factor": 1} for topic in topics}
    )
    if "LH.COMPACTED" in topics:
        compact = {"cleanup.policy": "compact,delete"}  # records of a topic that is only compacted cannot be deleted
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "LH.COMPACTED", compact)])
    client.close()


def spoil(kit: Kit, region: str, prefix: str, originals: Sequence[tuple[bytes, bytes, int]]) -> None:
    """Spoils a region's copies of the topics of ``SPOILT``, which hold these records and are called with a prefix."""

    def copy_of(name: str) -> str:
        return f"{prefix}LH.{name}"

    empty(kit, region, copy_of("DELETED"), before=1)
    write(kit, region, copy_of("FOREIGN"), [(b"nobody", b"wrote this at the source", originals[0][2])])
    write(kit, region, copy_of("TWICE"), [originals[7]])
    empty(kit, region, copy_of("ALTERED"))
    altered = [(k, b"changed" if n == 3 else v, t) for n, (k, v, t) in enumerate(originals)]
    write(kit, region, copy_of("ALTERED"), altered)
    empty(kit, region, copy_of("REORDERED"))
    write(kit, region, copy_of("REORDERED"), [*originals[:5], originals[6], originals[5], *originals[7:]])
    empty(kit, region, copy_of("MOVED"))
    write(kit, region, copy_of("MOVED"), originals[1:])
    write(kit, region, copy_of("MOVED"), originals[:1], partition=1)
    empty(kit, region, copy_of("COMPACTED"))
    write(kit, region, copy_of("COMPACTED"), originals[1:])
