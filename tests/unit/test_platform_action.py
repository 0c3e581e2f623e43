"""What a stage keeps of a step that may be interrupted: before it begins, what nobody could tell afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loosehanger.ansible import platform_action
from loosehanger.ansible.platform_action import PlatformAction
from loosehanger.lab.snapshots import is_ending, read_snapshots

PLAN = SimpleNamespace(region="region-a", lost=True, gone=True, leaving=(), wiped=False, mark=False)


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, Callable[[], dict[str, Any]]], Any]:
    """Carries out a step, with a platform that does what it is told."""
    monkeypatch.setattr(platform_action, "scenario_of", lambda _: (None, "stage"))
    monkeypatch.setattr(platform_action, "plans", lambda *_: {"region-a": PLAN})

    def carry_out(part: str, run: Callable[[], dict[str, Any]]) -> Any:
        action: Any = object.__new__(type("Action", (PlatformAction,), {"_run": lambda *_: run()}))
        action._task = SimpleNamespace(check_mode=False)
        return action._step({"region": "region-a", "part": part}, {}, tmp_path)

    return carry_out


def interrupted() -> dict[str, Any]:
    raise KeyboardInterrupt


def test_a_death_is_kept_even_if_its_end_is_not_seen(step: Any, tmp_path: Path) -> None:
    began_ms = time.time_ns() // 1_000_000
    with pytest.raises(KeyboardInterrupt):
        step("kill", interrupted)
    step("kill", lambda: {"changed": False})
    (loss,) = read_snapshots(tmp_path, "stage").losses
    assert began_ms <= loss.died_ms <= time.time_ns() // 1_000_000
    step("kill", lambda: {"changed": True, "died_ms": 99})
    assert read_snapshots(tmp_path, "stage").losses == (loss,), "what dies a second time had been started by somebody"


def test_the_platform_knows_best_when_it_was(step: Any, tmp_path: Path) -> None:
    step("kill", lambda: {"changed": True, "died_ms": 99})
    assert [loss.died_ms for loss in read_snapshots(tmp_path, "stage").losses] == [99]


def test_that_a_region_is_being_deleted_is_kept_first(step: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        step("dataflow", interrupted)
    assert not is_ending(tmp_path, "stage", "region-a")
    with pytest.raises(KeyboardInterrupt):
        step("decommission", interrupted)
    assert is_ending(tmp_path, "stage", "region-a")
