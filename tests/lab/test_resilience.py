"""Killed workers and brokers come back by themselves, and nothing is lost or doubled on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.sandbox import Kit

from .conftest import processes, wait_until

pytestmark = pytest.mark.lab

EVENTS = 30_000


def kill(kit: Kit, region: str, what: str) -> None:
    """Kills a region's process, and waits until another one has taken its place."""
    (victim,) = processes(kit, region, what)
    victim.kill()
    wait_until(
        lambda: any(process.pid != victim.pid for process in processes(kit, region, what)),
        30,
        f"a new {what} in {region}",
    )


def healthy(kit: Kit) -> bool:
    """Whether everything in the lab is."""
    return kit.run("status").returncode == 0


def test_killed_workers_and_brokers_under_load_lose_and_double_nothing(kit: Kit) -> None:
    europe = kit.lab.region("europe")
    load = subprocess.Popen(
        [
            *(sys.executable, "-m", "producer", "--config", str(europe.clients["producer"])),
            *("--events", str(EVENTS), "--rate", "1000", "--origin", "europe"),
        ],
        cwd=kit.root,
        env=kit.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        kill(kit, "north-america", "ConnectDistributed")
        kill(kit, "europe", "kafka.Kafka")
        wait_until(lambda: healthy(kit), 90, "a healthy lab")
        kill(kit, "south-america", "kafka.Kafka")
        wait_until(lambda: healthy(kit), 90, "a healthy lab")
        kill(kit, "south-america", "ConnectDistributed")
        output, _ = load.communicate(timeout=180)
    finally:
        load.kill()
    assert load.returncode == 0, output
    wait_until(lambda: healthy(kit), 90, "a healthy lab")
    done = kit.run("prove", "--json", "--timeout", "120")
    document = json.loads(done.stdout)
    assert done.returncode == 0, document
    faults = ("missing", "duplicates", "reordered", "unexpected", "altered")
    assert {fault: document["totals"][fault] for fault in faults} == dict.fromkeys(faults, 0)
    assert document["totals"]["source_records"] >= 2 * EVENTS


def test_a_failed_task_is_started_again(kit: Kit) -> None:
    # A connector that may not write fails; as soon as it may again, the platform restarts it.
    users = kit.manifest("users-south-america.yaml")
    text = users.read_text()
    log = kit.home / "regions" / "south-america" / "logs" / "mm2-sa-auto-restart.log"
    before = log.read_text() if log.exists() else ""
    try:
        users.write_text(
            text.replace("operations: [Create, Write, Alter, AlterConfigs]", "operations: [Create, Alter]")
        )
        assert "Write, Alter" not in users.read_text().split("__mm2_sa_")[1].split("consumer-")[0]
        kit.setup()
        wait_until(lambda: _log(log) != before, 90, "a restart of the failed task")
    finally:
        users.write_text(text)
    kit.setup()
    wait_until(lambda: healthy(kit), 90, "a healthy lab")


def _log(path: Path) -> str:
    return path.read_text() if path.exists() else ""
