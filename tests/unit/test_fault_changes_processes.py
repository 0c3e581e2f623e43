"""Changes to connectors, with a stand-in for Connect, and to processes, with real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes import processes as changes
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.connectors import ConfigureConnector, DeleteConnector, MistypePattern, PauseConnector
from loosehanger.faults.changes.processes import FreezeProcess, KillProcess, StopProcess
from loosehanger.faults.site import FaultSite
from loosehanger.lab.record import Lab, Region
from loosehanger.paths import ROOT
from loosehanger.platforms import registry
from loosehanger.platforms.local.processes import Process, marked_processes, run, states, stop_everything
from loosehanger.platforms.local.region import LocalRegion

from .test_scenario_rights import topology

MIRROR = next(mirror for mirror in topology("05-active-passive").mirrors if mirror.checkpoint_connector)
TOPIC = "LH.ORDERS"
BAD = "transforms"


@dataclass
class Connect:
    """The part of Connect's REST interface that these changes use."""

    configurations: dict[str, dict[str, str]]
    states: dict[str, str] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)

    def status(self, name: str) -> dict[str, Any] | None:
        if name not in self.configurations:
            return None
        state = self.states.get(name, "RUNNING")
        failed = BAD in self.configurations[name]
        tasks = [] if state == "STOPPED" else [{"id": 0, "state": "FAILED" if failed else state, "trace": "x.Y: z"}]
        return {"connector": {"state": state}, "tasks": tasks}

    def act(self, name: str, action: str) -> None:
        self.states[name] = {"pause": "PAUSED", "stop": "STOPPED", "resume": "RUNNING"}[action]

    def connectors(self) -> dict[str, dict[str, Any]]:
        return {name: {"info": {"config": dict(found)}} for name, found in self.configurations.items()}

    def configure(self, name: str, configuration: Mapping[str, str]) -> None:
        self.configurations[name] = dict(configuration)

    def objections(self, configuration: Mapping[str, str]) -> list[str]:
        return ["odd: unknown"] if "odd" in configuration else []

    def delete(self, name: str) -> None:
        del self.configurations[name]

    def restart_failed(self, name: str) -> None:
        self.restarted.append(name)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Connect with the connectors of a mirror."""
    settings = {"topics": MIRROR.topics, "emit.checkpoints.enabled": "true"}
    found = Connect({MIRROR.connector: {**settings}, MIRROR.checkpoint_connector: {**settings}})
    monkeypatch.setattr(FaultSite, "connect", lambda _: found)
    return found


def site(home: Path = ROOT) -> FaultSite:
    """The mirror, and a topic."""
    names = {MIRROR.source, MIRROR.target, MIRROR.region}
    regions = {name: Region(name, name, {}, {}, ()) for name in names}
    return FaultSite(Lab("05-active-passive", "local", "", regions), home, MIRROR, TOPIC, registry)


@pytest.mark.parametrize(
    "change",
    [
        PauseConnector(),
        PauseConnector(state="stopped"),
        PauseConnector(connector="checkpoint"),
        DeleteConnector(),
        ConfigureConnector(connector="checkpoint", settings={"emit.checkpoints.enabled": "false"}),
        ConfigureConnector(settings={BAD: "pick"}, then="FAILED"),
        MistypePattern(),
    ],
    ids=lambda change: repr(change),
)
def test_a_change_of_a_connector_is_undone(connect: Connect, change: Change) -> None:
    before = ({**connect.configurations}, {**connect.states})
    undo = change.prepare(site())
    assert ({**connect.configurations}, {**connect.states}) == before
    change.heal(site(), undo)  # it was never made
    change.inject(site(), undo)
    made = ({**connect.configurations}, {**connect.states})
    assert made != before
    change.heal(site(), undo)
    change.heal(site(), undo)
    assert connect.configurations == before[0]
    assert set(connect.states.values()) <= {"RUNNING"}


def test_a_pattern_is_wrong_by_one_character(connect: Connect) -> None:
    change = MistypePattern()
    change.inject(site(), change.prepare(site()))
    wrong, right = connect.configurations[MIRROR.connector]["topics"], MIRROR.topics
    assert len(wrong) == len(right)
    assert sum(one != other for one, other in zip(wrong, right, strict=True)) == 1


def test_a_pattern_without_a_character_to_mistype_is_refused(connect: Connect) -> None:
    connect.configurations[MIRROR.connector]["topics"] = ".*"
    with pytest.raises(WrongUseError, match="has no character to mistype"):
        MistypePattern().prepare(site())


def test_what_cannot_be_changed_is_refused(connect: Connect) -> None:
    with pytest.raises(WrongUseError, match="odd: unknown"):
        ConfigureConnector(settings={"odd": "1"}).prepare(site())
    connect.states[MIRROR.connector] = "PAUSED"
    with pytest.raises(WrongUseError, match="MirrorSourceConnector is paused already"):
        PauseConnector().prepare(site())
    without = replace(site(), mirror=replace(MIRROR, checkpoint_connector=""))
    with pytest.raises(WrongUseError, match="has no checkpoint connector"):
        PauseConnector(connector="checkpoint").prepare(without)


# Processes.


@pytest.fixture
def region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalRegion]:
    """A region with a program in a worker's place."""
    found = LocalRegion(tmp_path, ROOT, MIRROR.region, 0)
    monkeypatch.setattr(changes, "_lacking", lambda _: None)
    command = ["python", "-c", "import time; time.sleep(600)"]
    run(found, Process(f"{MIRROR.name}-0", command, 200, tmp_path, stop_seconds=1))
    until(lambda: [state.state for state in states(found)] == ["RUNNING"])
    yield found
    stop_everything(found, 30)


@pytest.mark.parametrize(
    ("states", "lacking"),
    [
        (["RUNNING", "RUNNING"], None),
        (["PAUSED", "PAUSED"], None),  # another fault has paused it
        (["RUNNING", "FAILED"], None),  # another fault makes it fail
        (["UNASSIGNED", "UNASSIGNED"], f"{MIRROR.connector} is unassigned"),
        (None, None),  # another fault has deleted it
    ],
)
def test_a_worker_is_back_when_connect_answers_for_its_connector(
    monkeypatch: pytest.MonkeyPatch, states: list[str] | None, lacking: str | None
) -> None:
    class Answering:
        def status(self, connector: str) -> dict[str, object] | None:
            assert connector == MIRROR.connector
            return states and {"connector": {"state": states[0]}, "tasks": [{"state": states[1]}]}  # type: ignore[return-value]

    monkeypatch.setattr(FaultSite, "connect", lambda _: Answering())
    assert changes._lacking(site()) == lacking


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that comes soon."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def program(region: LocalRegion) -> psutil.Process:
    """The program's process."""
    (state,) = states(region)
    return psutil.Process(state.pid)


def injected(region: LocalRegion, change: Change) -> Undo:
    """Makes a change; returns what healing needs."""
    undo = change.prepare(site(region.home))
    assert undo["region"] == MIRROR.region
    change.inject(site(region.home), undo)
    return undo


def test_a_frozen_program_continues_and_nothing_else_was_frozen(region: LocalRegion) -> None:
    change = FreezeProcess()
    undo = injected(region, change)
    stopped = program(region)
    until(lambda: stopped.status() == psutil.STATUS_STOPPED)
    assert [one.pid for one in marked_processes(region) if one.status() == psutil.STATUS_STOPPED] == [stopped.pid]
    change.heal(site(region.home), undo)
    until(lambda: stopped.status() != psutil.STATUS_STOPPED)


def test_a_frozen_program_does_not_hold_a_clean_up_up(region: LocalRegion) -> None:
    injected(region, FreezeProcess())
    frozen = program(region)
    began = time.monotonic()
    assert stop_everything(region, 30)
    assert not frozen.is_running()
    assert marked_processes(region) == []
    assert time.monotonic() - began < 30


def test_a_killed_program_is_started_again(region: LocalRegion) -> None:
    before = program(region)
    change = KillProcess()
    undo = injected(region, change)
    until(lambda: not before.is_running() and states(region)[0].state == "RUNNING")
    assert undo["pid"] == before.pid != program(region).pid
    change.heal(site(region.home), undo)


def test_a_stopped_program_stays_so_until_it_is_healed(region: LocalRegion) -> None:
    change = StopProcess()
    undo = injected(region, change)
    assert [state.state for state in states(region)] == ["STOPPED"]
    with pytest.raises(WrongUseError, match=f"{MIRROR.name}-0 does not run; see ./lab status"):
        change.prepare(site(region.home))
    change.heal(site(region.home), undo)
    change.heal(site(region.home), undo)
    until(lambda: states(region)[0].state == "RUNNING")


def test_a_region_that_is_down_cannot_be_healed(region: LocalRegion) -> None:
    change = StopProcess()
    undo = injected(region, change)
    stop_everything(region, 30)
    with pytest.raises(LabError, match=f"{MIRROR.region}: nothing is running; run the set-up again"):
        change.heal(site(region.home), undo)
