"""Signed evidence of a proof between two plain brokers: checked offline, and against what the brokers still hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition

from loosehanger.mirrorproof.places import JARS
from loosehanger.paths import lab_home

from .broker import Broker, running

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 40
AT_MS = int(time.time() * 1000) - 3_600_000
"""Recent: the brokers delete what is older than a week, by its timestamp."""
TOPICS = {"orders": 2, "stock": 1}
"""With their partitions."""
NULL = 7
"""The number of a record whose value is null, and whose headers repeat."""


def fill(broker: Broker, topic: str, partitions: int, altered: int | None = None) -> None:
    """Creates a topic with numbered records, one of them altered."""
    client = broker.admin()
    client.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})
    client.wait_for_topics([topic])
    client.close()
    with KafkaProducer(**broker.connection().kafka_python()) as producer:
        for partition in range(partitions):
            for number in range(RECORDS):
                plain = number != NULL
                producer.send(
                    topic,
                    b"ALTERED" if number == altered else b"v%d" % number if plain else None,
                    key=b"k%d" % number,
                    headers=[] if plain else [("a", b"1"), ("a", b""), ("b", b"\x00")],
                    partition=partition,
                    timestamp_ms=AT_MS + number,
                )
        producer.flush()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    with (
        running(tmp_path_factory.mktemp("source")) as source,
        running(tmp_path_factory.mktemp("target"), cluster="RXZpZGVuY2VPZlRhcmdldA") as target,
    ):
        for broker in (source, target):
            for topic, partitions in TOPICS.items():
                fill(broker, topic, partitions)
        yield source, target


def run(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the command with a cache of its own."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), JARS: str(lab_home() / "jars" / "spark")}
    command = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def verified(folder: Path, *clusters: str | Path) -> tuple[int, dict[str, Any]]:
    access = ["--clusters", *clusters] if clusters else []
    done = run(folder, "verify", "proof.json", "--key", "mine.key.pub", *access, "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def not_held(document: dict[str, Any]) -> list[tuple[str, str, int, int, Sequence[str]]]:
    return [
        (one["cluster"], one["topic"], one["partition"], one["no_longer_verifiable"], one["changed"])
        for one in document["not_held"]
    ]


def test_what_was_proved_is_verified_by_others(
    brokers: tuple[Broker, Broker], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("user")
    clusters = [broker.properties("admin") for broker in brokers]
    assert run(folder, "key", "mine.key").returncode == 0
    proved = run(folder, "prove", *clusters, "--evidence", "proof.json", "--sign", "mine.key", "--report", "page.html")
    assert proved.returncode == 0, proved.stdout + proved.stderr

    code, document = verified(folder)
    assert (code, document["verdict"], document["partitions"]) == (0, "proved", 2 * 3)
    assert document["records"] == 2 * 3 * RECORDS
    partitions = json.loads((folder / "proof.json").read_text(encoding="utf-8"))["partitions"]
    both = [{one["sha256"] for one in partitions if one["topic"] == topic} for topic in TOPICS]
    assert [len(digests) for digests in both] == [1, 1], "every copy is the same, offsets included"
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert document["key_id"] in page
    assert all(one["sha256"] in page for one in partitions)

    code, document = verified(folder, *clusters)
    assert (code, document["held"], document["records_held"]) == (0, "everything", 2 * 3 * RECORDS)
    swapped = run(folder, "verify", "proof.json", "--key", "mine.key.pub", "--clusters", *reversed(clusters))
    assert (swapped.returncode, "give the clusters that were compared" in swapped.stderr) == (2, True)

    # What retention deletes is no longer verifiable, and nothing more.
    source, target = (broker.admin() for broker in brokers)
    source.delete_records({TopicPartition("orders", 1): 10})
    code, document = verified(folder, *clusters)
    assert (code, document["held"]) == (4, "no longer verifiable")
    assert not_held(document) == [("source", "orders", 1, 10, [])]

    # Another topic of the same name, where one record is another one.
    target.delete_topics(["stock"])
    fill(brokers[1], "stock", 1, altered=13)
    code, document = verified(folder, *clusters)
    assert (code, document["held"]) == (1, "changed")
    assert not_held(document) == [
        ("source", "orders", 1, 10, []),
        ("target", "stock", 0, 0, ["offset 13: the record was altered"]),
    ]
    for client in (source, target):
        client.close()

    content = (folder / "proof.json").read_bytes()
    (folder / "proof.json").write_bytes(content.replace(b'"verdict":"proved"', b'"verdict":"PROVED"'))
    damaged = run(folder, "verify", "proof.json", "--key", "mine.key.pub")
    assert damaged.returncode == 1
    assert damaged.stdout.startswith("NOT INTACT  ")
    assert len(damaged.stdout.splitlines()) == 1
