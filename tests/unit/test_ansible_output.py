"""What a set-up shows: a line for each region and step, and Ansible's own output with ``-v``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.callback import default

from loosehanger.ansible.callback import lab

REGIONS = ("europe", "north-america", "unused")


class Shown:
    """A callback, with what it has shown."""

    def __init__(self, *, verbosity: int = 0) -> None:
        self.lines: list[str] = []
        display = SimpleNamespace(
            verbosity=verbosity, display=lambda text, **_: self.lines.append(text), banner=self.lines.append
        )
        self.callback: Any = object.__new__(lab.CallbackModule)
        self.callback.__dict__ |= {"_display": display, "_brief": True, "_began": {}, "_steps": [], "_used": set()}
        self.callback._handle_warnings_and_exception = lambda _: None

    def task(self, name: str, region: str, **outcome: Any) -> None:
        """A task that is done in a region."""
        host, task = SimpleNamespace(get_name=lambda: region), SimpleNamespace(_uuid=name, get_name=lambda: name)
        self.callback.v2_runner_on_start(host, task)
        self.callback.v2_runner_on_ok(SimpleNamespace(host=host, task=task, result=outcome))


def set_up(shown: Shown) -> None:
    """What a set-up does that uses two of three regions."""
    callback = shown.callback
    callback.v2_playbook_on_play_start(SimpleNamespace(get_name=lambda: "A Kafka cluster in every region"))
    for region in REGIONS:
        shown.task("Describe", region, changed=False)
        shown.task("Check", region, changed=False, steps=["clusters", "dataflow"], lab_used=region != "unused")
    callback.v2_playbook_on_include(SimpleNamespace(_filename="platform_local", _hosts=[], _vars={}))
    for step in ("clusters", "dataflow"):
        for region in REGIONS:
            changed = region == "europe"
            shown.task(step, region, lab_step=step, changed=changed, resources=["Kafka/europe"] * changed)


def test_each_step_of_a_region_is_a_line_and_nothing_else_is_shown() -> None:
    shown = Shown()
    set_up(shown)
    begin, *lines = shown.lines
    assert begin == "Everything is checked; the steps are clusters, dataflow."
    assert [" ".join(line.split()[:-2]) for line in lines] == [
        "[1/2] clusters europe 1 changed",
        "[1/2] clusters north-america unchanged",
        "[2/2] dataflow europe 1 changed",
        "[2/2] dataflow north-america unchanged",
    ]
    assert all(line.endswith(" s") for line in lines)


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
    methods = ("on_play_start", "on_include", "on_stats"), ("on_start", "on_ok")
    names = {f"v2_{kind}_{name}" for kind, own in zip(("playbook", "runner"), methods, strict=True) for name in own}
    for name in names:
        monkeypatch.setattr(default.CallbackModule, name, lambda *_, name=name: called.add(name))
    shown = Shown(verbosity=1)
    set_up(shown)
    shown.callback.v2_playbook_on_stats(None)
    assert shown.lines == []
    assert called == names
