"""``mirrorproof`` as a stranger has it: the wheel in a bare environment, and two plain brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka import KafkaProducer

from .broker import Broker, running
from .stranger import installed, run

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 500
LOST = 123
BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""The first record's time: a broker refuses one that is ahead of its own."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, installed from its wheel into an environment that has nothing else."""
    return installed(tmp_path_factory.mktemp("stranger"), "spark", "report")


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    """Two clusters; the second one has copies of ``whole``, and of ``torn`` all but one record."""
    with (
        running(tmp_path_factory.mktemp("source")) as source,
        running(tmp_path_factory.mktemp("target"), cluster="VGhlT3RoZXJDbHVzdGVyMQ") as target,
    ):
        for broker in (source, target):
            client = broker.admin()
            client.create_topics({name: {"num_partitions": 1, "replication_factor": 1} for name in ("whole", "torn")})
            client.wait_for_topics(["whole", "torn"])
            client.close()
            with KafkaProducer(**broker.connection().kafka_python()) as producer:
                for topic in ("whole", "torn"):
                    for number in range(RECORDS):
                        if not (broker is target and topic == "torn" and number == LOST):
                            key, value = b"k%d" % number, b"v%d" % number
                            producer.send(topic, value, key=key, timestamp_ms=BEGAN_MS + number)
        yield source, target


def test_two_clusters_are_checked_and_proved(
    program: Path, clusters: tuple[Broker, Broker], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("user")
    source, target = (broker.properties("admin") for broker in clusters)

    checked = run(program, folder, "doctor", source, target)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    same = run(program, folder, "doctor", source, source)
    assert same.returncode == 1
    assert "the same cluster" in same.stdout

    assert run(program, folder, "key", "mine.key").returncode == 0
    evidence = ("--evidence", "proof.json", "--sign", "mine.key", "--pdf", "proof.pdf")
    whole = ("--topics", "whole", "--json", "--report", "page.html", *evidence)
    proved = run(program, folder, "prove", source, target, *whole)
    assert proved.returncode == 0, proved.stdout + proved.stderr
    document = json.loads(proved.stdout)
    assert (document["verdict"], document["totals"]["source_records"]) == ("proved", RECORDS)
    assert (folder / "page.html").exists()
    assert (folder / "proof.pdf").read_bytes().startswith(b"%PDF-")
    verified = run(program, folder, "verify", "proof.json", "--key", "mine.key.pub")
    assert verified.returncode == 0, verified.stdout + verified.stderr

    everything = run(program, folder, "prove", source, target, "--timeout", "5", "--json")
    assert everything.returncode == 1, everything.stdout + everything.stderr
    flows = {flow["topic"]: flow for flow in json.loads(everything.stdout)["flows"]}
    assert (flows["torn"]["missing"], flows["whole"]["missing"]) == (1, 0)

    refused = run(program, folder, "prove", source, source)
    assert refused.returncode == 2
    assert "the same cluster" in refused.stderr


def test_evidence_of_what_is_new_is_verified_by_the_configuration(
    program: Path, clusters: tuple[Broker, Broker], tmp_path: Path
) -> None:
    ends = dict(zip(("old", "new"), (str(broker.properties("admin")) for broker in clusters), strict=True))
    flow = {"name": "half", "source": "old", "target": "new", "topics": ["whole"]}
    text = {"clusters": {name: {"file": path} for name, path in ends.items()}, "flows": [flow]}
    (tmp_path / "flows.yaml").write_text(json.dumps(text), encoding="utf-8")
    half = datetime.fromtimestamp((BEGAN_MS + RECORDS // 2) / 1000, UTC).isoformat()
    assert run(program, tmp_path, "key", "mine.key").returncode == 0

    evidence = ("--since", half, "--evidence", "proof.json", "--sign", "mine.key", "--json")
    proved = run(program, tmp_path, "prove", "--config", "flows.yaml", *evidence)
    assert proved.returncode == 0, proved.stdout + proved.stderr
    assert json.loads(proved.stdout)["totals"]["source_records"] == RECORDS // 2

    verify = ("verify", "proof.json", "--key", "mine.key.pub", "--config", "flows.yaml", "--json")
    verified = run(program, tmp_path, *verify)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    document = json.loads(verified.stdout)
    assert (document["held"], document["records_held"]) == ("everything", RECORDS)
