"""Status names causes: of a connector that was paused by hand, a frozen worker, and a link that was cut."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from loosehanger.kafka.connect import ConnectClient
from scripts.sandbox import Kit

from .conftest import processes, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def problems(kit: Kit) -> list[dict[str, Any]]:
    """What status lists."""
    found: list[dict[str, Any]] = json.loads(kit.run("status", "--json", timeout=300).stdout)["problems"]
    return found


def test_the_first_problem_is_the_cause(kit: Kit) -> None:
    assert problems(kit) == []
    mirror = next(one for one in kit.lab.mirrors if one.region == "north-america")
    connect = ConnectClient.of(mirror.connect)
    connect.act(mirror.connector, "pause")
    wait_until(lambda: problems(kit) != [], 30, "a problem")
    (paused,) = problems(kit)
    assert paused["cause"] == f"connector {mirror.connector} was paused by hand"
    assert paused["since"] is not None
    assert paused["next"].startswith("./lab setup ")
    (worker,) = processes(kit, "south-america", "ConnectDistributed")
    worker.send_signal(signal.SIGSTOP)
    try:
        first, second, *_ = problems(kit)
    finally:
        worker.send_signal(signal.SIGCONT)
    assert "is frozen" in first["cause"]
    assert first["next"] == f"kill -CONT {worker.pid}"
    assert second == paused
    connect.act(mirror.connector, "resume")
    regions = sorted((mirror.source, mirror.target))
    assert kit.run("link", *regions, "--cut").returncode == 0
    try:
        cut = problems(kit)[0]
    finally:
        assert kit.run("link", *regions, "--heal").returncode == 0
    assert cut["cause"] == f"the link between {regions[0]} and {regions[1]} is cut"
    assert cut["next"] == f"./lab link {regions[0]} {regions[1]} --heal"
    wait_until(lambda: problems(kit) == [], 90, "a healthy lab")
