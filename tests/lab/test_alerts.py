"""Alerts of the lab's profile fire within a minute of a fault, and end within a minute of its mending.

A real Prometheus scrapes the lab with the configuration of ``./lab monitoring``, and a real Alertmanager hands its
alerts to a receiver.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psutil
import pytest
import yaml

from loosehanger.faults.fault import Fault, read_fault
from loosehanger.faults.names import fault_names
from loosehanger.paths import ROOT
from scripts.sandbox import Kit
from tests.alerting import Monitoring, monitoring

from .conftest import processes, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]

BOUND_S = 60.0
"""Within which an alert must fire after its fault, and end after its mending."""
CATALOGUE = [fault for name in fault_names() if (fault := read_fault(name)).noticed.alert]
"""The faults that an alert notices."""
WAIT_S = 240.0
"""How long a test waits to say how much longer it took."""
QUIET_S = 60
NOT_MADE = {
    "ProofTooOld": "it waits for a week",
    **dict.fromkeys(
        (
            *("MirrorLagging", "MirrorLossNear", "MirrorLoss"),
            "ProofDisproved",
        ),
        "its fault is not made here yet",
    ),
    **dict.fromkeys(
        ("AuditDown", "AuditStale", "AuditDifference", "CanaryLate", "CanaryStale"), "no audit runs in the broadcast"
    ),
}
"""The alerts that no test here makes fire, with the reason; monitoring/tests has made-up series for them."""
WITHOUT_DATA = {
    "loosehanger_mirror_time_to_loss_seconds": "it is absent while nothing waits",
    "loosehanger_proof_": "it is absent until a proof was run from the control room",
    "loosehanger_audit_": "it is absent without an audit",
    "loosehanger_link_rate_limit_bytes_per_second": "it is absent without a limit",
}
"""What a healthy lab has no data for, by the beginning of a metric's name, with the reason; docs/monitoring.md."""


@pytest.fixture(scope="module")
def watched(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitoring]:
    """Prometheus and Alertmanager beside the broadcast."""
    with monitoring(kit, tmp_path_factory.mktemp("monitoring") / "lab") as found:
        wait_until(lambda: found.query("loosehanger_mirror_lag_seconds"), 60, "the first scrape")
        yield found


@pytest.fixture(autouse=True)
def calm(watched: Monitoring) -> None:
    """Waits until nothing fires and nothing is about to."""
    wait_until(lambda: not watched.query("ALERTS"), 180, "the end of all alerts")


def holds(
    watched: Monitoring,
    fault: Callable[[], object],
    mend: Callable[[], object],
    bound: float = BOUND_S,
    **alerts: dict[str, str],
) -> None:
    """Makes a fault and mends it: each of these alerts must fire and end within the bound.

    Args:
        watched: Prometheus and Alertmanager.
        fault: makes it.
        mend: mends it, whatever happens.
        bound: the seconds.
        alerts: the alerts' names, with labels that they must have.
    """
    seconds = {}
    try:
        fault()
        made = time.monotonic()
        for alert, labels in alerts.items():
            seconds[f"{alert} fires"] = watched.wait_for(alert, firing=True, since=made, bound=WAIT_S, **labels)
    finally:
        mend()
    mended = time.monotonic()
    for alert, labels in alerts.items():
        seconds[f"{alert} ends"] = watched.wait_for(alert, firing=False, since=mended, bound=WAIT_S, **labels)
    print(*(f"{what} after {took:.0f} s" for what, took in seconds.items()), sep="\n")
    assert all(took <= bound for took in seconds.values()), seconds


@contextmanager
def load(kit: Kit, seconds: int) -> Iterator[None]:
    """Has a thousand events written each second."""
    config = kit.lab.region("europe").clients["producer"]
    command = [
        *(sys.executable, "-m", "producer", "--config", str(config), "--origin", "europe"),
        *("--rate", "1000", "--events", str(1000 * seconds)),
    ]
    with subprocess.Popen(
        command, cwd=kit.root, env=kit.variables(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as writing:
        try:
            yield
        finally:
            writing.kill()


def expressions() -> dict[str, str]:
    """Every expression of a recording rule or a panel, by where it stands, with all variables set to everything."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "monitoring" / "rules").glob("*.yaml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            found |= {rule["record"]: rule["expr"] for rule in group["rules"] if "record" in rule}
    for path in sorted((ROOT / "monitoring" / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                place = f"{path.stem}: {panel['title']}, {target['refId']}"
                found[place] = re.sub(r"\$(source|target|mirror)\b", ".*", target["expr"])
    return found


def alert_rules() -> dict[str, str]:
    """The expression of every alert."""
    files = [
        yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / "monitoring" / "rules").glob("*.yaml")
    ]
    rules = [rule for file in files for group in file["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule["expr"] for rule in rules if "alert" in rule}


def explained(expression: str) -> bool:
    """Whether there is a reason for an expression to have no data in a healthy lab."""
    return any(name in expression for name in WITHOUT_DATA)


def test_a_quiet_lab_raises_no_alert_and_every_expression_has_data(kit: Kit, watched: Monitoring) -> None:
    before = len(watched.notices)
    begun = time.monotonic()
    with load(kit, 2 * QUIET_S):
        wait_until(lambda: time.monotonic() - begun > QUIET_S, 2 * QUIET_S, "a quiet minute")
        empty = {place for place, text in expressions().items() if not watched.query(text) and not explained(text)}
        assert empty == set()
        # An alert's own expression has data while it fires; what it compares has data always.
        for alert, text in alert_rules().items():
            watched.query(text)
            for metric in {f"{name}" for name in re.findall(r"\b(?:up|loosehanger_\w+)\b", text)}:
                assert watched.query(metric) or explained(metric), (alert, metric)
    assert watched.fired(time.monotonic() - begun) == set()
    assert watched.notices[before:] == []


def test_each_alert_is_made_or_has_its_reason() -> None:
    made = {"ControlRoomDown", "RegionDown", "MirrorDown"}
    made |= {fault.noticed.alert.says for fault in CATALOGUE if fault.noticed.alert}
    assert alert_rules().keys() == made | NOT_MADE.keys()


def test_a_control_room_that_hangs(kit: Kit, watched: Monitoring) -> None:
    (room,) = (
        process
        for process in processes(kit, "europe", "loosehanger.console")
        if "control-room" in " ".join(str(value) for value in process.environ().values())
    )
    holds(watched, room.suspend, room.resume, ControlRoomDown={"job": "loosehanger"})


def keep_dead(kit: Kit, region: str, what: str) -> None:
    """Kills a region's process, and has its process manager pause, which would start it again."""
    (manager,) = processes(kit, region, "supervisor.supervisord")
    (victim,) = processes(kit, region, what)
    manager.suspend()
    victim.kill()


def restart(kit: Kit, region: str) -> None:
    """Has the process manager continue: it starts what is down."""
    for manager in processes(kit, region, "supervisor.supervisord"):
        with suppress(psutil.Error):
            manager.resume()


def test_a_region_whose_broker_is_down(kit: Kit, watched: Monitoring) -> None:
    region = "south-america"
    fault = partial(keep_dead, kit, region, "kafka.Kafka")
    holds(watched, fault, partial(restart, kit, region), RegionDown={"region": region})


def test_a_mirror_whose_worker_is_down(kit: Kit, watched: Monitoring) -> None:
    region = "south-america"
    fault = partial(keep_dead, kit, region, "ConnectDistributed")
    holds(watched, fault, partial(restart, kit, region), MirrorDown={"region": region})


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_a_fault_of_the_catalogue(kit: Kit, watched: Monitoring, fault: Fault) -> None:
    alert = fault.noticed.alert
    assert alert

    def run(*words: str) -> None:
        done = kit.run("fault", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    holds(
        watched,
        partial(run, "inject", fault.name),
        partial(run, "heal", fault.name),
        bound=alert.within,
        **{alert.says: {}},
    )
