"""What a stage keeps of a step that may be interrupted: before it begins, what nothing shows afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loosehanger.ansible.kit_action import RegionsFailedError
from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.actions import (
    Action,
    Decommission,
    Delete,
    DeleteTopics,
    DrainMirrors,
    FenceWrites,
    Kill,
    Prove,
    RecordResources,
    ResetMirrorOffsets,
    SalvageRecords,
    SeedGroupOffsets,
    SnapshotMirrors,
    Wipe,
)
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.plan import Plan, Step
from loosehanger.lab.snapshots import MirrorSnapshot, is_ending, keep_mirror_snapshot, read_snapshots, snapshot_id
from loosehanger.lab.topology import Topology
from loosehanger.platforms import registry
from loosehanger.platforms.outcome import Outcome
from loosehanger.stages import runner
from loosehanger.stages.region_workers import region_workers
from loosehanger.stages.runner import StageRunner

REGION = "region-a"
NOTHING: dict[str, Any] = {"stage": "stage", "mirrors": ()}
RECORDED = RecordResources((), (), (), Topology(()), is_deleted=False)
ACTIONS: dict[Step, tuple[Action, ...]] = {
    Step.KILL: (Kill(deletes_data=False),),
    Step.WIPE: (Wipe((), frozenset(), ()),),
    Step.QUIESCE: (RECORDED,),
    Step.DRAIN: (DrainMirrors(stage="stage", drains=(), settles=()),),
    Step.FENCE_MIRRORS: (RECORDED, SnapshotMirrors(**NOTHING)),
    Step.SEED_GROUP_OFFSETS: (SeedGroupOffsets(stage="stage", region=REGION, stays=(), starts=(), translated=False),),
    Step.RESET_MIRROR_OFFSETS: (ResetMirrorOffsets(**NOTHING),),
    Step.CLUSTERS: (RECORDED,),
    Step.DATAFLOW: (Delete(()), RECORDED, DeleteTopics(stage="stage", topics={})),
    Step.FENCE_WRITES: (FenceWrites(stage="stage", region=REGION),),
    Step.SALVAGE: (SalvageRecords(**NOTHING),),
    Step.CONSOLES: (RECORDED,),
    Step.DECOMMISSION: (Decommission(),),
    Step.PROOF: (Prove(),),
}


@pytest.fixture
def step(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs a step, with a platform that does what the test says."""

    def run(step: Step, of_platform: Callable[[], Outcome], **options: bool) -> Outcome:
        plan = Plan(REGION, (), (), Topology(()), actions=ACTIONS)
        shown = StageRunner(tmp_path, "stage", {REGION: plan}, lambda _: None, registry.run_step_in_pod, **options)
        return shown.run(REGION, step, lambda *_: of_platform())

    return run


def interrupted() -> Outcome:
    raise KeyboardInterrupt


def test_a_death_is_kept_even_if_its_end_is_not_seen(step: Any, tmp_path: Path) -> None:
    began_ms = time.time_ns() // 1_000_000
    with pytest.raises(KeyboardInterrupt):
        step(Step.KILL, interrupted)
    step(Step.KILL, Outcome)
    (loss,) = read_snapshots(tmp_path, "stage").losses
    assert began_ms <= loss.died_ms <= time.time_ns() // 1_000_000
    step(Step.KILL, lambda: Outcome(["1 processes"], died_ms=99))
    assert read_snapshots(tmp_path, "stage").losses == (loss,), "what dies a second time was started by hand"


def test_the_platform_knows_best_when_it_was(step: Any, tmp_path: Path) -> None:
    step(Step.KILL, lambda: Outcome(["1 processes"], died_ms=99))
    assert [loss.died_ms for loss in read_snapshots(tmp_path, "stage").losses] == [99]


def test_that_a_region_is_being_deleted_is_kept_first(step: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        step(Step.DATAFLOW, interrupted)
    assert not is_ending(tmp_path, "stage", REGION)
    with pytest.raises(KeyboardInterrupt):
        step(Step.DECOMMISSION, interrupted)
    assert is_ending(tmp_path, "stage", REGION)


def test_a_region_is_wiped_once_in_a_stage(step: Any) -> None:
    wiped = Outcome(["Namespace/region-a"])
    with pytest.raises(KeyboardInterrupt):
        step(Step.WIPE, interrupted)
    assert step(Step.WIPE, lambda: wiped) == wiped
    assert not step(Step.WIPE, interrupted).is_changed


def test_check_mode_keeps_nothing_and_asks_nothing(step: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "load_lab", lambda _: interrupted())
    monkeypatch.setattr(runner, "prove", lambda *_: interrupted())
    assert [*ACTIONS] == [*Step]
    for one in Step:
        step(one, Outcome, check_mode=True)
    marks = read_snapshots(tmp_path, "stage")
    assert (marks.losses, marks.wipes, is_ending(tmp_path, "stage", REGION)) == ((), (), False)


def test_a_forced_stage_waits_for_nothing_and_needs_no_proof(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "load_lab", lambda _: interrupted())
    monkeypatch.setattr(runner, "prove", lambda *_: interrupted())
    for one in (Step.DRAIN, Step.FENCE_WRITES, Step.PROOF):
        assert not step(one, interrupted, force=True).is_changed
    with pytest.raises(KeyboardInterrupt):
        step(Step.PROOF, Outcome)


def test_the_record_counts_where_nothing_else_has_changed(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert step(Step.CLUSTERS, lambda: Outcome(["the record of region-a"])).changed == ["the record of region-a"]
    changes = iter([Outcome(["KafkaMirrorMaker2/ab"]), Outcome(["the record of region-a"])])
    monkeypatch.setattr(runner, "load_lab", lambda _: None)
    monkeypatch.setattr(runner, "ask", lambda *_: None)
    assert step(Step.DATAFLOW, lambda: next(changes)).changed == ["KafkaMirrorMaker2/ab"]


def test_a_mirror_that_stopped_before_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(runner, "load_lab", lambda _: None)
    monkeypatch.setattr(runner, "ask", lambda _lab, _home, _run, action: asked.append(action))
    first, second = (Mirror(name, "a", "b", "west", "east", "identity", ".", ".*", "", "source") for name in "xy")
    kept = SnapshotMirrors(stage="stage", mirrors=(first, second), stopped_before=(second,))
    plan = Plan(REGION, (), (), Topology(()), actions={Step.FENCE_MIRRORS: (kept,)})
    shown = StageRunner(tmp_path, "stage", {REGION: plan}, lambda _: None, registry.run_step_in_pod)
    shown.run(REGION, Step.FENCE_MIRRORS, lambda _: Outcome())
    keep_mirror_snapshot(tmp_path, "stage", MirrorSnapshot(snapshot_id(second), "west", "east", "an-id", 1, {}))
    shown.run(REGION, Step.FENCE_MIRRORS, lambda _: Outcome())
    assert [action.mirrors for action in asked] == [(first, second), (first,)]


def answer(region: str, task: str) -> str:
    """What a worker does in these tests."""
    if region == "refuses":
        raise WrongUseError("wrong")
    if region == "fails":
        raise FileNotFoundError(2, "not there", "file")
    if region == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if region == "broken":
        raise ZeroDivisionError
    return f"{task} in {region}: {os.getpid()}"


def test_each_region_works_in_a_process_of_its_own_for_all_its_tasks() -> None:
    with region_workers(["a", "b"], answer) as workers:
        first, second = ({done.region: done.answer for done in workers.run(task)} for task in ("one", "two"))
    pids = {region: str(of).split()[-1] for region, of in first.items()}
    assert len({*pids.values(), str(os.getpid())}) == 3
    assert second == {region: f"two in {region}: {pid}" for region, pid in pids.items()}


def test_one_region_that_fails_does_not_keep_others_from_their_answer() -> None:
    with region_workers(["refuses", "fails", "dies", "a"], answer) as workers:
        found = {done.region: done for done in workers.run("one")}
    assert isinstance(found["refuses"].error, WrongUseError)
    assert {region: str(done.error) for region, done in found.items() if done.error} == {
        "refuses": "wrong",
        "fails": "fails: file: not there",
        "dies": "dies: the process that worked on it was killed; run it again",
    }
    assert found["a"].answer


def test_a_defect_is_shown_with_its_traceback_when_all_have_answered() -> None:
    with region_workers(["broken", "a"], answer) as workers:
        answers = workers.run("one")
        assert next(answers).region == "a"
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            next(answers)


def test_a_reason_that_several_regions_have_is_given_once() -> None:
    assert str(RegionsFailedError({"a": LabError("no"), "b": LabError("no"), "c": LabError("never")})) == "no; never"
