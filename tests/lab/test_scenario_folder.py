"""A scenario is a folder: three files beside the others, and nothing else is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.sandbox import Kit, copy_kit
from tests.three_files import NAME, write_scenario

from .conftest import wait_until
from .test_console import signed_in

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Kit]:
    """A copy of the kit with one more scenario."""
    kit = copy_kit(tmp_path, port_base=30000)
    write_scenario(kit.root)
    yield kit
    done = kit.run("cleanup")
    assert done.returncode == 0, done.stdout + done.stderr


def test_three_files_are_a_scenario(own: Kit) -> None:
    listed = json.loads(own.run("scenarios", "--json").stdout)
    assert NAME in [scenario["name"] for scenario in listed["scenarios"]]
    done = own.run("setup", NAME, "-e", "producer_rate=50")
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(own.run("status", "--json").stdout)
    assert (status["scenario"], status["stage"], status["healthy"]) == (NAME, "setup", True)
    (mirror,) = own.lab.mirrors
    assert (mirror.source, mirror.target, mirror.policy) == ("europe", "north-america", "default")

    shown = signed_in(own, "control-room").get("/api/flows").json()["flows"]
    assert ("europe", "north-america") in [(flow["source"], flow["target"]) for flow in shown]

    def is_proved() -> bool:
        document = json.loads(own.run("prove", "--json").stdout)
        topics = {flow["target_topic"] for flow in document["flows"]}
        return document["verdict"] == "proved" and "europe.LH.ORDERS" in topics

    wait_until(is_proved, 200, "a proof of the prefixed topics")
