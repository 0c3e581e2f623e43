"""Faults of the catalogue on a real lab: seen as their files say, healed, and proved.

A fault is tried in the first scenario that can have it. Those of one scenario share a lab; a fault that leaves a loss
behind gets a new one for what follows.

With ``LH_MEASURE_FAULTS=1`` the lab serves Kafka's own metrics, and what plain tools show of each fault is written to
``loosehanger/faults/measured``, for ``python -m scripts.fault_page``; no watch and no proof runs then.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.faults.choosing import WantedSite, choose_site, fitting_mirrors
from loosehanger.faults.fault import Fault, read_fault
from loosehanger.faults.journal import FOLDER
from loosehanger.faults.names import fault_names
from loosehanger.kafka.connect import ConnectClient
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab, Region
from loosehanger.paths import ROOT
from loosehanger.platforms import registry
from scripts.plain_tools import Look, measure, plain_looks
from scripts.sandbox import Kit, copy_kit, forget_bytecode
from tests.unit.test_scenario_rights import topology

from .conftest import PATIENCE_S

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1200)]

SCENARIOS = ("03-broadcast", "05-active-passive", "01-aggregate-central", "04-shared-aggregate")
SLACK = 3
"""What beside other tests takes so many times as long as on a machine of its own."""
_NOTHING = re.compile(r"(?<![\d,.])0 [a-z]+(?: [a-z]+)?")
"""A count of nothing, such as ``0 late``, which a watch always shows."""
MEASURES = bool(os.environ.get("LH_MEASURE_FAULTS"))
CODES = {"proved": 0, "disproved": 1, "inconclusive": 4}


def described(scenario: str) -> Lab:
    """A scenario's lab as its manifests describe it."""
    found = topology(scenario)
    regions = {
        name: Region(name, name, {}, {}, tuple(mirror for mirror in found.mirrors if mirror.region == name))
        for name in found.regions
    }
    return Lab(scenario, "local", "", regions, topology=found)


def place(fault: Fault) -> str:
    """The first scenario that can have a fault; the first of all for one that needs other manifests."""
    if fault.needs.exactly_once is False:
        return SCENARIOS[0]
    for scenario in SCENARIOS:
        try:
            fitting_mirrors(described(scenario), fault)
        except WrongUseError:
            continue
        return scenario
    raise AssertionError(f"no scenario can have {fault.name}")


def tried() -> Iterator[Any]:
    """Every fault with its scenario; those of one scenario together, and those that leave a loss behind last."""
    known = map(read_fault, fault_names())
    faults = [(place(fault), (fault.needs.exactly_once is False, fault.after == "disproved"), fault) for fault in known]
    for scenario, _, fault in sorted(faults, key=lambda entry: (SCENARIOS.index(entry[0]), entry[1], entry[2].name)):
        yield pytest.param(scenario, fault.name, id=fault.name)


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Kit]]:
    """A kit in which a scenario is set up; the one before is cleaned up."""
    folder = tmp_path_factory.mktemp("faults")
    kit = copy_kit(folder, port_base=26000)

    def set_up(scenario: str, *, exactly_once: bool = True) -> Kit:
        done = kit.run("status", "--json")
        there = json.loads(done.stdout)["scenario"] if done.stdout else ""
        changed = deliver(kit, scenario, exactly_once=exactly_once)
        # A test that failed has left its fault.
        if there and (changed or any((kit.home / FOLDER).glob("*.json"))):
            clean(kit)
            there = ""
        if done.returncode == 0 and there == scenario:
            return kit
        if there not in ("", scenario):
            clean(kit)
        done = kit.run("setup", scenario, *(("-e", "jmx_metrics=true") if MEASURES else ()))
        assert done.returncode == 0, done.stdout + done.stderr
        return kit

    try:
        yield set_up
    finally:
        clean(kit)
        forget_bytecode(folder)


def deliver(kit: Kit, scenario: str, *, exactly_once: bool) -> bool:
    """Gives a scenario's mirrors exactly-once delivery, or takes it; returns whether that changed a manifest."""
    changed = False
    for path in (kit.root / "playbooks" / scenario / "manifests").glob("mm2*.yaml"):
        text = (ROOT / path.relative_to(kit.root)).read_text(encoding="utf-8")
        if not exactly_once:
            text = re.sub(r"(?m)^ *exactly\.once\.\S+ \S+\n", "", text)
        changed |= path.read_text(encoding="utf-8") != text
        path.write_text(text, encoding="utf-8")
    return changed


def clean(kit: Kit) -> None:
    """Cleans up."""
    done = kit.run("cleanup")
    assert done.returncode == 0, done.stdout + done.stderr


def seconds_until(condition: Callable[[], str | None], bound: float, what: str) -> float:
    """Waits until a condition returns None; returns how long that took."""
    began = time.monotonic()
    while missing := condition():
        assert time.monotonic() - began < max(bound, PATIENCE_S), f"{what}: {missing}"
        time.sleep(0.5)
    return time.monotonic() - began


@contextlib.contextmanager
def watching(kit: Kit, output: Path) -> Iterator[Callable[[], str]]:
    """A watch that runs beside the fault, once it has shown something; yields what it has counted so far."""
    with output.open("w") as file:
        process = kit.start(file, "watch")
    try:
        seconds_until(lambda: None if output.stat().st_size else "nothing is shown", PATIENCE_S, "the watch")
        yield lambda: _NOTHING.sub("", output.read_text())
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)
        # The next watch would go on where this one was.
        shutil.rmtree(kit.home / "watch", ignore_errors=True)


@pytest.fixture(scope="module")
def looks() -> dict[tuple[str, str], Look]:
    """What plain tools show of healthy mirrors, by scenario and mirror, once that was measured."""
    return {}


def looked_at(kit: Kit, name: str, looks: dict[tuple[str, str], Look]) -> tuple[Mirror, Look]:
    """The mirror that a fault will be injected into, and what plain tools show of it before."""
    lab = kit.lab
    mirror = choose_site(lab, kit.home, registry, read_fault(name), WantedSite()).mirror
    place = (lab.scenario, mirror.id)
    if place not in looks:
        looks[place] = plain_looks(lab, mirror)
    return mirror, looks[place]


def accused(kit: Kit, injected: Mapping[str, str]) -> list[str]:
    """The problems of sources of a mirror that have no fault."""
    region, _, name = injected["mirror"].partition("/")
    others = {one.source for one in kit.lab.mirrors if (one.region, one.name) == (region, name)} - {injected["source"]}
    found = json.loads(kit.run("status", "--json").stdout)["problems"]
    return [one["cause"] for one in found if any(other in f"{one['where']} {one['cause']}" for other in others)]


def heal(kit: Kit, fault: Fault) -> None:
    """Heals a fault."""
    done = kit.run("fault", "heal", fault.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{fault.name} ({fault.title}): healed in " in done.stdout


@pytest.mark.parametrize(("scenario", "name"), list(tried()))
def test_a_fault_is_noticed_healed_and_proved(
    labs: Callable[..., Kit], looks: dict[tuple[str, str], Look], scenario: str, name: str, tmp_path: Path
) -> None:
    fault = read_fault(name)
    kit, noticed = labs(scenario, exactly_once=fault.needs.exactly_once is not False), fault.noticed

    def unhealthy() -> str | None:
        done = kit.run("status", "--json")
        problems = json.loads(done.stdout)["problems"] if done.stdout else ["status shows nothing"]
        return None if done.returncode == 0 and problems == [] else f"{problems}\n{done.stdout}{done.stderr}"

    def unseen() -> str | None:
        assert noticed.status
        text = kit.run("status").stdout
        return None if noticed.status.says.lower() in text.lower() else f"'{noticed.status.says}' is not in:\n{text}"

    seconds_until(unhealthy, PATIENCE_S, "the lab is not healthy")
    before = looked_at(kit, name, looks) if MEASURES else None
    with contextlib.ExitStack() as beside:
        says = None if MEASURES else noticed.watch
        watched = beside.enter_context(watching(kit, tmp_path / "watch.txt")) if says else str
        done = kit.run("fault", "inject", name, "--json")
        if "needs a user who may mount" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stdout + done.stderr
        injected = time.monotonic()
        if noticed.status:
            took = seconds_until(unseen, noticed.status.within, name)
            print(f"{name}: status after {took:.1f} s")
            assert took <= noticed.status.within * SLACK
            if fault.needs.sources > 1:
                assert accused(kit, json.loads(done.stdout)) == []
        if says:
            took = seconds_until(
                lambda: None if says.says in watched() else f"'{says.says}' is not in:\n{watched()[-3000:]}",
                says.within,
                f"{name}, watch",
            )
            print(f"{name}: watch after {took:.1f} s")
            assert took <= says.within * SLACK
    if before:
        mirror, look = before
        print(measure(kit.lab, mirror, fault, look, time.monotonic() - injected))
        heal(kit, fault)
        if fault.after == "disproved" and unhealthy():
            clean(kit)
        return
    if noticed.proof:
        # Where the mirror is not expected to come, the proof need not wait as long as it does by itself.
        waits = () if noticed.proof.verdict == "proved" else ("--timeout", "20", "--limit", "120")
        done = kit.run("prove", *waits)
        assert done.returncode == CODES[noticed.proof.verdict], done.stdout + done.stderr
        assert noticed.proof.says in done.stdout + done.stderr
    if fault.heals_itself:
        seconds_until(unhealthy, PATIENCE_S, "it has not healed by itself")
    heal(kit, fault)
    if fault.after == "proved":
        seconds_until(unhealthy, PATIENCE_S, "it is not healthy after healing")
    done = kit.run("prove")
    assert done.returncode == CODES[fault.after], done.stdout + done.stderr
    if fault.after == "disproved":
        clean(kit)


def test_a_topic_is_forgotten_by_a_mirror_whose_worker_is_down(labs: Callable[..., Kit]) -> None:
    kit = labs("03-broadcast")

    def fault(*words: str) -> str:
        done = kit.run("fault", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def positions() -> list[str]:
        (mirror,) = (one for one in kit.lab.mirrors if one.region == "south-america")
        found = ConnectClient.of(mirror.connect).positions(mirror.connector, mirror.source_alias)
        return sorted({topic for topic, _ in found})

    def unknown() -> str | None:
        return None if "LH.FAULT-TIMES" in (found := positions()) else f"{found}"

    fault("inject", "wrong-timestamps", "--target", "north-america")
    seconds_until(unknown, PATIENCE_S, "the other mirror has not copied the topic")
    fault("inject", "worker-stopped", "--target", "south-america")
    assert "healed in " in fault("heal", "wrong-timestamps")
    fault("heal", "worker-stopped")
    assert "LH.FAULT-TIMES" not in positions()
    assert positions(), "every position is gone"


def test_a_lab_that_was_torn_down_with_a_frozen_worker_leaves_nothing(labs: Callable[..., Kit]) -> None:
    kit = labs("03-broadcast")
    assert kit.run("fault", "inject", "worker-frozen").returncode == 0
    clean(kit)
    assert not (kit.home / "faults").exists()
    assert kit.run("fault", "status").returncode == 3
