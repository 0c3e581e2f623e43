"""Alerts of the lab's profile fire within a minute of a fault, and end within a minute of its mending.

A real Prometheus scrapes the lab with the configuration of ``./lab monitoring``, and a real Alertmanager hands its
alerts to a receiver.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import psutil
import pytest
import yaml

from loosehanger.console.jobs import PAST
from loosehanger.faults.fault import Fault, read_fault
from loosehanger.faults.names import fault_names
from loosehanger.paths import ROOT
from loosehanger.ports import free_ports
from scripts.alerting import INSTALLED, NOT_INSTALLED, Monitoring, monitoring
from scripts.sandbox import Kit

from .conftest import admin, processes, wait_until
from .faults import count, create, empty, some_records, write
from .test_console import signed_in

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not INSTALLED, reason=NOT_INSTALLED),
]

BOUND_S = 60.0
"""Within which an alert must fire after its fault, and end after its mending."""
CATALOGUE = [fault for name in fault_names() if (fault := read_fault(name)).noticed.alert]
"""The faults that an alert notices."""
WAIT_S = 240.0
"""How long a test waits to say how much longer it took."""
QUIET_S = 60
CANARY_S = 5
WITHOUT_DATA = {
    "loosehanger_mirror_time_to_loss_seconds": "it is absent while nothing waits",
    "loosehanger_proof_": "it is absent until a proof was run from the control room",
    "loosehanger_audit_": "it is absent without an audit",
    "loosehanger_link_rate_limit_bytes_per_second": "it is absent without a limit",
    "kafka_connect_": "it is absent without -e jmx_metrics=true",
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
    wait_until(lambda: not watched.now(), 180, "the end of all alerts")


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
        begun = time.monotonic()
        fault()
        made = time.monotonic() - begun
        for alert, labels in alerts.items():
            # It may fire while a fault of several steps is being made, and end while it is being mended.
            took = watched.wait_for(alert, firing=True, since=begun, bound=made + WAIT_S, **labels)
            seconds[f"{alert} fires"] = max(took - made, 0.0)
    finally:
        begun = time.monotonic()
        mend()
        mended = time.monotonic() - begun
    for alert, labels in alerts.items():
        took = watched.wait_for(alert, firing=False, since=begun, bound=mended + WAIT_S, **labels)
        seconds[f"{alert} ends"] = max(took - mended, 0.0)
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


def test_each_alert_is_made() -> None:
    made = {"ControlRoomDown", "RegionDown", "MirrorDown", "MirrorLagging", "MirrorLossNear", "MirrorLoss"}
    made |= {"ProofDisproved", "ProofTooOld", "AuditDown", "AuditStale", "AuditDifference", "CanaryLate", "CanaryStale"}
    made |= {fault.noticed.alert.says for fault in CATALOGUE if fault.noticed.alert}
    assert alert_rules().keys() == made


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


def run(kit: Kit, *words: str) -> None:
    """Runs a command that must succeed."""
    done = kit.run(*words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_a_fault_of_the_catalogue(kit: Kit, watched: Monitoring, fault: Fault) -> None:
    alert = fault.noticed.alert
    assert alert
    inject, heal = (partial(run, kit, "fault", word, fault.name) for word in ("inject", "heal"))
    holds(watched, inject, heal, bound=alert.within, **{alert.says: {}})


def test_a_mirror_that_lags(kit: Kit, watched: Monitoring) -> None:
    inject, heal = (partial(run, kit, "fault", word, "connector-paused") for word in ("inject", "heal"))
    holds(watched, inject, heal, MirrorLagging={"source": "europe"})


def test_records_that_retention_may_soon_delete(kit: Kit, watched: Monitoring) -> None:
    def fault() -> None:
        run(kit, "topic", "set", "europe", "LH.ORDERS", "retention.ms=60000")
        run(kit, "fault", "inject", "connector-paused")

    def mend() -> None:
        run(kit, "fault", "heal", "connector-paused")
        run(kit, "topic", "unset", "europe", "LH.ORDERS", "retention.ms")

    holds(watched, fault, mend, MirrorLossNear={"topic": "LH.ORDERS", "source": "europe"})


def holds_until_acknowledged(
    watched: Monitoring, fault: Callable[[], object], mend: Callable[[], object], alert: str, **labels: str
) -> None:
    """Makes a fault whose damage stays: its alert must fire within the bound, and a silence must end it."""
    begun = time.monotonic()
    try:
        fault()
        made = time.monotonic() - begun
        took = watched.wait_for(alert, firing=True, since=begun, bound=made + WAIT_S, **labels) - made
        watched.silence(alert)
        wait_until(lambda: all(watched.suppressed(alert)), 30, "the silence")
    finally:
        mend()
    print(f"{alert} fires after {took:.0f} s")
    assert took <= BOUND_S


def test_a_loss_fires_until_it_is_acknowledged(kit: Kit, watched: Monitoring) -> None:
    topic, originals = "LH.OUTRUN", some_records()
    create(kit, "europe", [topic])
    write(kit, "europe", topic, originals)
    copies = ("north-america", "south-america")
    wait_until(lambda: all(count(kit, one, topic) == len(originals) for one in copies), 60, "the copies")

    def fault() -> None:
        run(kit, "fault", "inject", "connector-paused")
        write(kit, "europe", topic, originals)
        empty(kit, "europe", topic)

    def mend() -> None:
        run(kit, "fault", "heal", "connector-paused")
        with closing(admin(kit, "europe")) as client:
            client.delete_topics([topic])

    holds_until_acknowledged(watched, fault, mend, "MirrorLoss", topic=topic, source="europe")


def prove(kit: Kit) -> None:
    """Runs a proof from the control room."""
    room = signed_in(kit, "control-room")
    assert room.change("POST", "/api/proof").ok
    wait_until(lambda: room.get("/api/proof").json()["state"] != "running", 240, "the proof")


def test_a_proof_that_finds_a_difference(kit: Kit, watched: Monitoring) -> None:
    def fault() -> None:
        run(kit, "fault", "inject", "writer-in-copy")
        prove(kit)

    def mend() -> None:
        run(kit, "fault", "heal", "writer-in-copy")
        prove(kit)

    holds(watched, fault, mend, ProofDisproved={"verdict": "disproved"})


def test_a_proof_of_last_week(kit: Kit, watched: Monitoring) -> None:
    prove(kit)
    (path,) = kit.home.rglob(PAST)
    last, *others = path.read_text(encoding="utf-8").splitlines(keepends=True)

    def fault() -> None:
        old = json.loads(last) | {"started": time.time() - 8 * 86_400}
        path.write_text("".join((f"{json.dumps(old)}\n", *others)), encoding="utf-8")

    holds(watched, fault, lambda: prove(kit), ProofTooOld={})


@pytest.fixture(scope="module")
def audited(kit: Kit, watched: Monitoring, tmp_path_factory: pytest.TempPathFactory) -> Iterator[psutil.Process]:
    """An audit with a canary each five seconds, which Prometheus scrapes."""
    output = tmp_path_factory.mktemp("audit") / "watch.txt"
    with output.open("w") as file:
        watch = kit.start(
            file, "watch", "--json", "--metrics", str(free_ports(1)[0]), "--canary", str(CANARY_S), "--every", "5"
        )
    arrived = partial(watched.query, "loosehanger_audit_canary_age_seconds")
    try:
        wait_until(lambda: watch.poll() is not None or arrived(), 180, "the first canary")
        assert watch.poll() is None, output.read_text(encoding="utf-8")
        yield psutil.Process(watch.pid)
    finally:
        watch.send_signal(signal.SIGINT)
        watch.wait(timeout=60)


def test_an_audit_that_hangs(watched: Monitoring, audited: psutil.Process) -> None:
    holds(watched, audited.suspend, audited.resume, AuditDown={"job": "loosehanger-audit"})


def test_an_audit_that_answers_while_its_spark_hangs(watched: Monitoring, audited: psutil.Process) -> None:
    (spark,) = (one for one in audited.children(recursive=True) if one.name() == "java")
    holds(watched, spark.suspend, spark.resume, AuditStale={"job": "loosehanger-audit"})


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize("alert", ["CanaryLate", "CanaryStale"])
def test_canaries_that_do_not_arrive(kit: Kit, watched: Monitoring, alert: str) -> None:
    inject, heal = (partial(run, kit, "fault", word, "connector-paused") for word in ("inject", "heal"))
    holds(watched, inject, heal, bound=BOUND_S, **{alert: {"source": "europe"}})


@pytest.mark.usefixtures("audited")
def test_a_difference_that_the_audit_finds(kit: Kit, watched: Monitoring) -> None:
    inject, heal = (partial(run, kit, "fault", word, "writer-in-copy") for word in ("inject", "heal"))
    labels = {"kind": "unexpected", "topic": "LH.FAULT-WRITTEN"}
    holds_until_acknowledged(watched, inject, heal, "AuditDifference", **labels)
