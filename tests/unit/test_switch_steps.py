"""Steps of a switch go to where clusters answer, and what they kept comes back; what they do is tested elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.lab.actions import (
    DeleteTopics,
    DrainMirrors,
    FenceWrites,
    ResetMirrorOffsets,
    SalvageRecords,
    SeedGroupOffsets,
    SnapshotMirrors,
)
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.programs import Consumer
from loosehanger.lab.progress import Progress
from loosehanger.lab.record import Lab, Pod, Region, region_record
from loosehanger.lab.snapshots import (
    MirrorSnapshot,
    RegionLoss,
    keep_loss,
    keep_mirror_snapshot,
    keep_proof,
    read_snapshots,
    snapshot_files,
)
from loosehanger.platforms import registry
from loosehanger.platforms.kubernetes import pods
from loosehanger.platforms.pod_files import ANSWER, STEP_FILE
from loosehanger.stages import offsets, remote_entry, remote_steps, steps
from loosehanger.stages.steps import STEPS, Gate, Legs, SwitchStep

READER = Consumer("consumer-x", "south", "east", "consumer-x", "LH.*", "consumer-x")
MIRROR = Mirror(*("ab", "a", "b", "west", "east", "identity", ".", ".*", "", "source"), connect={"url": "http://x"})
FENCE = MirrorSnapshot(
    "ab/a", "west", "east", "an-id", 1000, {"LH.ORDERS": {0: 7}}, groups={"g": {"LH.ORDERS": {0: 3}}}
)


@pytest.mark.parametrize(
    "step",
    [
        Gate(
            stage="s",
            begun=True,
            moves=("east/ab/a->b",),
            still=(),
            resets=("one",),
            starts=("consumer",),
            fences=(("west", "fence"),),
            going=("west",),
        ),
        DrainMirrors(stage="s", drains=("one", "two"), settles=()),
        FenceWrites(stage="s", region="west"),
        SnapshotMirrors(stage="s", mirrors=(MIRROR,)),
        SeedGroupOffsets(stage="s", region="south", stays=(), starts=(READER,), translated=True),
        ResetMirrorOffsets(stage="s", mirrors=(MIRROR, MIRROR)),
        SalvageRecords(stage="s", mirrors=(MIRROR,), write=True),
        DeleteTopics(stage="s", topics={"east": ("__ab_configs",)}),
        Legs(stage="s"),
    ],
    ids=lambda step: step.kind,
)
def test_every_step_is_the_same_once_it_has_been_sent(step: SwitchStep) -> None:
    assert STEPS.validate_json(step.model_dump_json()) == step


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lab's home in a pod: what was brought cannot be written to."""
    home = tmp_path / "pod"
    Progress("99-test", "kubernetes", "i", "setup", "failover").write(home)
    keep_loss(home, "failover", RegionLoss("west", 1000))
    (home / "access" / "south.json").write_text(
        region_record("south", [], clients={}, logs={}, consoles=[], connect={})
    )
    monkeypatch.setenv("LAB_HOME", str(home))
    monkeypatch.setattr(remote_entry, "FILES", tmp_path / "files")
    return home


def answered(record: Path, step: SwitchStep) -> dict[str, Any]:
    (record / "access" / STEP_FILE).write_text(step.model_dump_json())
    before = snapshot_files(record)
    assert remote_entry.main() == 0
    assert snapshot_files(record) == before
    answer: dict[str, Any] = json.loads((record.parent / "files" / ANSWER).read_text())
    return answer


def test_in_a_pod_a_step_finds_the_snapshots_and_only_what_it_kept_comes_back(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stay_group(lab: Lab, home: Path, stage: str, consumer: Consumer) -> None:
        assert (lab.unfinished, consumer) == ("failover", READER)
        assert read_snapshots(home, "failover").losses == (RegionLoss("west", 1000),)
        keep_mirror_snapshot(home, stage, FENCE)

    monkeypatch.setattr(offsets, "stay_group", stay_group)
    answer = answered(
        record, SeedGroupOffsets(stage="failover", region="south", stays=(READER,), starts=(), translated=True)
    )
    assert answer["value"] is False
    assert list(answer["files"]) == ["access/marks/failover/fence.ab.a.json"]


def test_in_a_pod_a_step_that_fails_says_why(record: Path) -> None:
    step = SeedGroupOffsets(stage="failover", region="south", stays=(), starts=(READER,), translated=True)
    answer = answered(record, step)
    assert answer["error"] == "south: 'consumer-x' keeps no ledger that can be read from here"
    assert not answer["wrong_use"]
    step = SeedGroupOffsets(stage="failover", region="nowhere", stays=(), starts=(READER,), translated=True)
    assert answered(record, step)["wrong_use"]


POD = Pod("south", "", "", "image", "access-south")
LAB = Lab("99-test", "kubernetes", "i", {"south": Region("south", "", {}, {}, (), POD)}, "setup", "failover")


def pod_that_answers(monkeypatch: pytest.MonkeyPatch, answer: Mapping[str, Any] | None) -> list[str]:
    """Has pods answer this; returns the steps that they are sent."""
    sent: list[str] = []

    def run(
        lab: Lab,
        pod: Pod,
        command: str,
        rest: Sequence[str],
        *,
        home: Path,
        brought: dict[str, str],
        back: dict[str, Path],
    ) -> int:
        assert (lab, pod, command, [*rest]) == (LAB, POD, "step", [])
        assert home
        sent.extend(brought.values())
        (path,) = back.values()
        if answer is not None:
            path.write_text(json.dumps(answer))
        return ExitCode.DONE

    monkeypatch.setattr(pods, "run", run)
    monkeypatch.setattr(pods, "end_all", lambda _, command: sent.append(f"no other {command}"))
    return sent


def test_what_a_pod_kept_is_kept_here_and_names_files_as_they_are_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "access/marks/failover/rescue.ab.a.json": '{"file": "/pod/home/rescued/west.jsonl"}',
        "access/marks/failover/fence.by-ledger.orders:v2 ü.json": "{}",
        "rescued/west.jsonl": "{}\n",
    }
    sent = pod_that_answers(monkeypatch, {"home": "/pod/home", "value": True, "files": files})
    step = SalvageRecords(stage="failover", mirrors=(MIRROR,), write=False)
    assert steps.ask(LAB, tmp_path, registry.run_step_in_pod, step) is True
    assert sent == ["no other step", step.model_dump_json()]
    rescued = tmp_path / "rescued" / "west.jsonl"
    assert rescued.read_text() == "{}\n"
    assert json.loads((tmp_path / "access/marks/failover/rescue.ab.a.json").read_text()) == {"file": str(rescued)}


@pytest.mark.parametrize(("wrong_use", "raised"), [(False, LabError), (True, WrongUseError)])
def test_what_failed_in_a_pod_fails_here_and_what_it_kept_before_stays(
    wrong_use: bool, raised: type[LabError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"access/marks/failover/loss.west.json": "{}"}
    answer = {"home": "/pod", "error": "east: no answer", "wrong_use": wrong_use, "files": files}
    pod_that_answers(monkeypatch, answer)
    with pytest.raises(LabError, match=r"^east: no answer$") as error:
        remote_steps.take(LAB, POD, tmp_path, registry.run_step_in_pod, Legs(stage="failover"))
    assert type(error.value) is raised
    assert [*snapshot_files(tmp_path)] == ["marks/failover/loss.west.json"]


def test_a_step_that_changes_nothing_may_be_taken_beside_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pod_that_answers(monkeypatch, {"home": "/pod", "value": None, "files": {}})
    assert steps.legs(LAB, tmp_path, registry.run_step_in_pod, "failover") is None
    assert sent == [Legs(stage="failover").model_dump_json()]


def test_a_pod_writes_nothing_outside_the_labs_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod_that_answers(monkeypatch, {"home": "/pod", "value": None, "files": {"../outside": "x"}})
    with pytest.raises(LabError, match=r"would write \.\./outside, outside the lab's home"):
        remote_steps.take(LAB, POD, tmp_path / "home", registry.run_step_in_pod, Legs(stage="failover"))
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    "name",
    [
        "venv/lib/python3.11/site-packages/sitecustomize.py",
        "access/lab.json",
        "access/east.json",
        "access/marks/failover/proof.json",
        "access/marks/failover/loss.west.json.py",
        "access/marks/failover/loss.west.json\n",
        "access/marks/../lab.json",
        "rescued/.profile",
        "rescued/a/b.jsonl",
        "rescued/linked.jsonl",
    ],
)
def test_a_pod_writes_snapshots_and_salvaged_files_only(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rescued").mkdir()
    (tmp_path / "rescued/linked.jsonl").symlink_to(tmp_path / "elsewhere")
    files = {"access/marks/failover/loss.west.json": "{}", name: "import os"}
    pod_that_answers(monkeypatch, {"home": "/pod", "value": None, "files": files})
    with pytest.raises(LabError, match=r"(?s)would write .*, which is neither a snapshot nor a salvaged file"):
        remote_steps.take(LAB, POD, tmp_path, registry.run_step_in_pod, Legs(stage="failover"))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["rescued", "rescued/linked.jsonl"]


def test_a_pod_without_an_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod_that_answers(monkeypatch, None)
    with pytest.raises(LabError, match="south: the step 'legs' ended with exit code 0, and no answer"):
        remote_steps.take(LAB, POD, tmp_path, registry.run_step_in_pod, Legs(stage="failover"))


def test_snapshots_go_along_but_not_what_proofs_found(tmp_path: Path) -> None:
    keep_mirror_snapshot(tmp_path, "failover", FENCE)
    keep_proof(tmp_path, "failover", {"claims": []})
    assert [*snapshot_files(tmp_path)] == ["marks/failover/fence.ab.a.json"]
