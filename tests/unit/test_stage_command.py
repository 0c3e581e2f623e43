"""./lab stage: what it asks before a switch, what it passes on, and how it reports how long a switch took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loosehanger.cli import commands
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab, Progress, Region
from loosehanger.lab.scenario import Scenario, read_scenario
from loosehanger.lab.snapshots import (
    MirrorSnapshot,
    OffsetReset,
    RegionLoss,
    RegionWipe,
    SalvageSnapshot,
    keep_loss,
    keep_mirror_snapshot,
    keep_rescue,
    keep_reset,
    keep_wipe,
    snapshot_id,
)
from loosehanger.ledger import Ledger
from loosehanger.stages import gates, steps
from loosehanger.stages.live_mirror import Condition

from .test_scenario import TEXT, folder

HOLDS = Condition("ab: records behind", "12", "20,000 or less", holds=True)
FAILS = Condition("consumer-x: members in region-b", "1", "0", holds=False)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The playbooks that were started, with their arguments."""
    folder(tmp_path, TEXT.replace("mirrors: {ab: stopped}", "snapshot: true, mirrors: {ab: stopped}"))
    scenario = read_scenario("99-test", tmp_path)
    progress = Progress("99-test", "local", "inventories/local", "setup")
    monkeypatch.setattr(commands, "required_progress", lambda: progress)
    monkeypatch.setattr(commands, "read_scenario", lambda _: scenario)
    monkeypatch.setattr(commands, "load_lab", lambda: Lab("99-test", "local", "inventories/local", {}))
    monkeypatch.setattr(commands, "next_steps", lambda *_: "")
    found: list[list[str]] = []
    monkeypatch.setattr(commands, "run_playbook", lambda playbook, rest, **_: found.append([playbook, *rest]))
    return found


@pytest.mark.parametrize(("conditions", "code"), [([HOLDS], 0), ([HOLDS, FAILS], 1)])
def test_a_dry_run_lists_each_condition_and_changes_nothing(
    started: list[list[str]],
    conditions: list[Condition],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(steps, "conditions", lambda *_: conditions)
    assert commands.stage(["failover", "--dry-run"]) == code
    assert started == []
    shown = capsys.readouterr().out
    assert "holds   ab: records behind: 12 (20,000 or less)" in shown
    assert ("FAILS   consumer-x: members in region-b: 1 (0)" in shown) == bool(code)


@pytest.mark.parametrize(
    ("table", "unfinished", "asked"),
    [
        ("rebuilt: [region-a], mirrors: {ab: stopped}", "", ["ab"]),
        ("mirrors: {ab: reset}", "", ["ab"]),
        ("mirrors: {ab: stopped}", "", []),
        # Wiped by the run that was interrupted: there is nothing left that the mirror could read.
        ("rebuilt: [region-a], mirrors: {ab: stopped}", "failover", []),
        # Reset by it, and maybe started.
        ("mirrors: {ab: reset}", "failover", []),
    ],
)
def test_before_a_source_is_wiped_or_a_mirror_re_armed_it_is_asked_whether_it_stands_still(
    table: str, unfinished: str, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, TEXT.replace("mirrors: {ab: stopped}", table))
    mirror = Mirror("ab", "a", "b", "region-a", "region-b", "identity", ".", ".*", "", "source", state="stopped")
    lab = Lab("99-test", "local", "", {"b": Region("b", "", {}, {}, (mirror,))}, "setup", unfinished)
    monkeypatch.setattr(commands, "load_lab", lambda: lab)
    monkeypatch.setattr(commands, "lab_home", lambda: tmp_path)
    keep_wipe(tmp_path, "failover", RegionWipe("region-a", 1000))
    keep_reset(tmp_path, "failover", OffsetReset(snapshot_id(mirror), {}))
    found: list[str] = []

    def standstill(_: Lab, mirrors: list[Mirror]) -> list[Condition]:
        found.extend(one.name for one in mirrors)
        return []

    monkeypatch.setattr(gates, "standstill", standstill)
    monkeypatch.setattr(gates, "conditions", lambda *_, **__: [])
    commands._show_conditions(read_scenario("99-test", tmp_path), "failover")
    assert found == asked


def test_what_was_rescued_is_told_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "lab_home", lambda: tmp_path)
    monkeypatch.setenv("LAB_CALLED_FROM", str(tmp_path))
    for written in (0, 1313):
        keep_rescue(
            tmp_path, "rescue", SalvageSnapshot("ab/a", "west", "east", str(tmp_path / "west.jsonl"), 1313, written)
        )
        commands._show_rescues("rescue")
    assert [line for line in capsys.readouterr().out.splitlines() if line] == [
        "1,313 records of west were never mirrored: west.jsonl",
        "They are not written to east: -e carry_out_write_rescued=true writes them.",
        "1,313 records of west were never mirrored: west.jsonl",
        "1,313 of them are written to east, each with the header lh-rescued.",
    ]


def test_force_is_passed_on_as_a_variable(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_show_recovery", lambda *_: None)
    commands.stage(["failover", "--force", "-v"])
    ((playbook, *rest),) = started
    assert playbook.endswith("99-test/failover.yaml")
    assert rest[-3:] == ["-v", "-e", "carry_out_force=true"]
    assert "--force" not in rest


def test_what_a_switch_took_is_told_leg_by_leg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "lab_home", lambda: tmp_path)
    monkeypatch.setattr(commands, "_RECOVERY_SECONDS", 0)
    keep_loss(tmp_path, "failover", RegionLoss("region-a", 1000))
    keep_mirror_snapshot(tmp_path, "failover", MirrorSnapshot("ab/a", "region-a", "region-b", "new", 3500, {}))
    ledger = Ledger(tmp_path / "ledger", "producer")
    ledger.cluster = "new"
    ledger.write("acked", "run", "LH.ORDERS", 0, 0, 9, 5250)
    lab: Any = Lab("99-test", "local", "", {"c": Region("c", "", {}, {}, (), ledgers={"p": tmp_path / "ledger"})})
    commands._show_recovery(lab, "failover")
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Seconds from the death of region-a:",
        "  mirror held                          2.5",
        "  consumer's first record           not yet",
        "  producer's first acknowledgement     4.2",
        "  consumer's first new event        not yet",
    ]


def test_a_stage_without_conditions_says_so(
    started: list[list[str]], scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands._show_conditions(scenario, "setup") == 0
    assert "has no conditions besides its predecessors" in capsys.readouterr().out
    assert started == []


@pytest.fixture
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path = tmp_path_factory.mktemp("playbooks")
    folder(path)
    return read_scenario("99-test", path)
