"""``mirrorproof`` as a stranger has it: the wheel in a bare environment, and two plain brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from loosehanger.paths import ROOT, lab_home

from .broker import Broker, running

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 500
LOST = 123
BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""The first record's time: a broker refuses one that is ahead of its own."""
PROGRAM = "LAB_MIRRORPROOF"
"""The variable that names a program that is installed already."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, installed from its wheel into an environment that has nothing else."""
    if given := os.environ.get(PROGRAM):
        return Path(given)
    folder, uv = tmp_path_factory.mktemp("stranger"), lab_home().resolve() / "uv" / "bin"
    build = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([uv / "python", "-P", "-c", build], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([uv / "uv", "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True, cwd=folder)
    install: list[str | Path] = [uv / "uv", "pip", "install", "--quiet", "--python", python, f"{wheel}[spark,report]"]
    subprocess.run(install, check=True, cwd=folder)
    return python.with_name("mirrorproof")


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


def run(program: Path, folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the command with a cache of its own, and nothing of this environment on its path."""
    own = ("LAB_", "PYTHON", "SPARK", "JAVA_HOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    environment |= {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": os.defpath}
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


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
