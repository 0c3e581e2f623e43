"""What the tests of a real lab share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from loosehanger.kafka.connection import connection_for
from scripts.sandbox import Kit, copy_kit
from tests.unit.conftest import spark  # noqa: F401 - for proofs in the tests' own process

PATIENCE_S = 120.0


@pytest.fixture
def bare_kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A copy of the kit with nothing set up, whose clean-up has to leave nothing that runs."""
    kit = copy_kit(tmp_path_factory.mktemp("kit"), port_base=25000)
    try:
        yield kit
    finally:
        done = kit.run("cleanup")
        assert done.returncode == 0, done.stdout + done.stderr
        left = [
            process for process in psutil.process_iter(["cmdline"]) if str(kit.root) in str(process.info["cmdline"])
        ]
        assert left == []


@contextmanager
def set_up(kit: Kit, scenario: str) -> Iterator[None]:
    """Has a scenario of one's own set up, with a producer of 50 records a second; cleans up at the end."""
    try:
        done = kit.run("setup", scenario, "-e", "producer_rate=50")
        assert done.returncode == 0, done.stdout + done.stderr
        yield
    finally:
        done = kit.run("cleanup")
        assert done.returncode == 0, done.stdout + done.stderr


def assert_settled(kit: Kit, scenario: str) -> None:
    """The scenario is set up and healthy, and a second set-up changes nothing."""
    status = json.loads(kit.run("status", "--json").stdout)
    assert (status["scenario"], status["healthy"]) == (scenario, True), json.dumps(status, indent=1)
    again = kit.run("setup", scenario)
    assert again.returncode == 0, again.stdout + again.stderr
    assert " changed " not in again.stdout.replace("unchanged", ""), again.stdout


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Waits until a condition holds; fails the test when it does not within the bound, or two minutes if that is less.

    A bound ends a test that waits in vain. It is no measure of speed: what takes two seconds at rest takes forty beside
    other tests on a slow machine.
    """
    seconds = max(seconds, PATIENCE_S)
    began = time.monotonic()
    deadline = began + seconds
    while not condition():
        looked = time.monotonic()
        assert looked < deadline, f"not within {seconds} s: {what}"
        # As long as the look took: ./lab status computes for seconds, and what is waited for needs the cores as well.
        time.sleep(min(max(0.2, looked - began), 5))
        began = time.monotonic()


def batches(consumer: Any, ends: Mapping[TopicPartition, int]) -> Iterator[Sequence[Any]]:
    """Reads up to these offsets; fails the test when nothing more comes for two minutes."""
    deadline = time.monotonic() + PATIENCE_S
    while left := [place for place, end in ends.items() if consumer.position(place) < end]:
        assert time.monotonic() < deadline, f"nothing more within {PATIENCE_S} s of {left}"
        polled = consumer.poll(timeout_ms=500)
        if polled:
            deadline = time.monotonic() + PATIENCE_S
        yield from polled.values()


def admin(kit: Kit, region: str) -> KafkaAdminClient:
    """A client that may do everything in a region."""
    return KafkaAdminClient(**connection_for(kit.lab.region(region), "admin").kafka_python())


def processes(kit: Kit, region: str, what: str) -> list[psutil.Process]:
    """The processes of a region whose command line has this in it."""
    found = []
    for process in psutil.process_iter():
        try:
            folder = process.environ().get("LAB_REGION_FOLDER", "")
            if folder == str(kit.home / "regions" / region) and what in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found
