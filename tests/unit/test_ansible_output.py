"""What a set-up shows: a line for each region and step, and Ansible's own output with ``-v``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.executor.stats import AggregateStats
from ansible.plugins.callback import default

from loosehanger.ansible.callback import lab
from loosehanger.ansible.platform_action import PlatformAction
from loosehanger.lab.plan import Step
from loosehanger.paths import ROOT
from loosehanger.platforms.outcome import Outcome
from loosehanger.stages.region_workers import Done

REGIONS = ("europe", "north-america", "unused")


class Shown:
    """A callback, with what it has shown."""

    def __init__(self, *, verbosity: int = 0) -> None:
        self.lines: list[str] = []
        self.display = SimpleNamespace(
            verbosity=verbosity, display=lambda text, **_: self.lines.append(text), banner=self.lines.append
        )
        self.callback: Any = object.__new__(lab.CallbackModule)
        self.callback.__dict__ |= {"_display": self.display, "_brief": True, "_of_regions": []}
        self.callback._handle_warnings_and_exception = lambda _: None

    def result(self, name: str, region: str, **outcome: Any) -> Any:
        """What a task came to in a region."""
        host, task = SimpleNamespace(get_name=lambda: region), SimpleNamespace(_uuid=name, get_name=lambda: name)
        return SimpleNamespace(host=host, task=task, result=outcome)

    def task(self, name: str, region: str, **outcome: Any) -> None:
        """A task that is done in a region."""
        self.callback.v2_runner_on_ok(self.result(name, region, **outcome))


COUNTS = {"europe": {"ok": 2, "changed": 1, "failures": 0}, "unused": {"ok": 0, "changed": 0, "failures": 0}}


def set_up(shown: Shown) -> None:
    """What a set-up does that uses two of three regions."""
    callback = shown.callback
    callback.v2_playbook_on_play_start(SimpleNamespace(get_name=lambda: "A Kafka cluster in every region"))
    for region in REGIONS:
        shown.task("Describe", region, changed=False)
    shown.task("Check", "europe", changed=False, steps=["clusters", "dataflow"])
    callback.v2_playbook_on_include(SimpleNamespace(_filename="platform_local", _hosts=[], _vars={}))
    shown.task("Carry out the stage", "europe", changed=True, lab_regions=COUNTS)


def test_a_stage_begins_with_its_steps_and_is_no_line_itself() -> None:
    shown = Shown()
    set_up(shown)
    assert shown.lines == ["Everything is checked; the steps are clusters, dataflow."]


def test_each_step_of_a_region_is_a_line() -> None:
    shown = Shown()
    action: Any = object.__new__(type("Action", (PlatformAction,), {}))
    action._display = shown.display
    planned = [Step.CLUSTERS, Step.DATAFLOW]
    for outcome in (Outcome(["Kafka/europe"]), Outcome(is_switched=True), Outcome()):
        action._show(planned, Step.DATAFLOW, Done("europe", 1.25, outcome))
    assert shown.lines == [
        "[2/2] dataflow  europe           1 changed      1.2 s",
        "[2/2] dataflow  europe           changed        1.2 s",
        "[2/2] dataflow  europe           unchanged      1.2 s",
    ]


def test_each_region_is_counted_though_one_host_ran_the_task() -> None:
    shown, stats = Shown(), AggregateStats()
    for region in REGIONS:
        stats.increment("ok", region)
    stats.increment("ok", "unused")
    stats.increment("changed", "unused")
    shown.task("Carry out the stage", "unused", changed=True, lab_regions=COUNTS)
    shown.callback.v2_playbook_on_stats(stats)
    assert [line.split() for line in shown.lines] == [
        ["europe", ":", "ok=3", "changed=1", "failed=0"],
        ["north-america", ":", "ok=1", "changed=0", "failed=0"],
        ["unused", ":", "ok=1", "changed=0", "failed=0"],
    ]


def test_every_error_of_a_task_is_a_line_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown()
    monkeypatch.setenv("LAB_OUTCOME", str(tmp_path / "outcome"))
    errors = [{"message": "one", "wrong_use": True}, {"message": "two", "wrong_use": False}]
    counts = {"europe": {"ok": 1, "changed": 1, "failures": 1}}
    failed = shown.result("Carry out", "europe", failed=True, msg="one; two", lab_errors=errors, lab_regions=counts)
    shown.callback.v2_runner_on_failed(failed)
    assert shown.lines == ["error: one", "error: two"]
    assert [json.loads(line) for line in (tmp_path / "outcome").read_text().splitlines()] == errors
    stats = AggregateStats()
    stats.increment("failures", "europe")
    shown.callback.v2_playbook_on_stats(stats)
    assert shown.lines[-1].split() == ["europe", ":", "ok=1", "changed=1", "failed=1"]


def test_a_task_of_ones_own_that_changes_something_is_a_line() -> None:
    shown = Shown()
    set_up(shown)
    shown.lines.clear()
    shown.task("Open the shop", "europe", changed=True)
    shown.task("Look at the shop", "europe", changed=False)
    assert shown.lines == ["europe: Open the shop"]


def test_the_count_of_each_region_has_no_banner() -> None:
    shown = Shown()
    counts = {"ok": 5, "changed": 1, "failures": 0, "unreachable": 0}
    shown.callback.v2_playbook_on_stats(SimpleNamespace(processed={"europe": 1}, summarize=lambda _: counts))
    (line,) = shown.lines
    assert line.split() == ["europe", ":", "ok=5", "changed=1", "failed=0"]


def test_ansibles_own_output_is_shown_with_v(monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()
    methods = ("on_play_start", "on_include", "on_stats"), ("on_ok",)
    names = {f"v2_{kind}_{name}" for kind, own in zip(("playbook", "runner"), methods, strict=True) for name in own}
    for name in names:
        monkeypatch.setattr(default.CallbackModule, name, lambda *_, name=name: called.add(name))
    shown = Shown(verbosity=1)
    set_up(shown)
    shown.callback.v2_playbook_on_stats(AggregateStats())
    assert shown.lines == []
    assert called == names


def test_a_playbook_ends_although_its_reader_has_gone(tmp_path: Path) -> None:
    playbook = tmp_path / "many.yaml"
    task = {"name": "Say much", "ansible.builtin.debug": {"msg": "x" * 500}, "loop": list(range(60))}
    # A worker shows this, and not the callback: the thread that collects results writes it.
    worker = {"name": "Pause", "ansible.builtin.pause": {"seconds": 1}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task, worker]}
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ansible", "playbook", "-i", "localhost,", str(playbook)],
            cwd=ROOT,
            stdout=writer,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert done.returncode == 0


def test_a_playbook_that_is_followed_names_each_task_as_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default.CallbackModule, "v2_playbook_on_task_start", lambda *_: None)
    shown = Shown()
    shown.callback._narrates = True
    shown.callback.v2_playbook_on_task_start(SimpleNamespace(get_name=lambda: " Settings follow "), False)
    shown.task("Settings follow", "localhost", changed=True)
    shown.callback.v2_playbook_on_stats(AggregateStats())
    assert shown.lines == ["Settings follow"]


def test_of_a_playbook_that_is_followed_a_failure_is_kept_for_the_wrappers_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAB_OUTCOME", str(tmp_path / "outcome"))
    monkeypatch.setattr(
        default.CallbackModule, "v2_runner_on_failed", lambda self, *_, **__: self._display.display("a dump")
    )
    shown = Shown()
    failed = shown.result("Set it up", "localhost", stderr="one\nerror: port 31100 is in use", msg="non-zero")
    for narrates, lines in ((True, []), (False, ["a dump"])):
        shown.callback._narrates = narrates
        shown.callback.v2_runner_on_failed(failed)
        assert shown.lines == lines
    kept = [json.loads(line) for line in (tmp_path / "outcome").read_text("utf-8").splitlines()]
    assert kept == [{"message": "port 31100 is in use", "wrong_use": False}] * 2
