"""Scenarios: what their file may say, what a stage makes of their manifests, and which stage may follow which."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from loosehanger.ansible.described import FACT, described
from loosehanger.errors import WrongUseError
from loosehanger.lab.actions import (
    CopySecrets,
    Decommission,
    Delete,
    DeleteCopies,
    DeleteTopics,
    DrainMirrors,
    FenceWrites,
    Kill,
    RecordResources,
    ResetMirrorOffsets,
    SalvageRecords,
    SeedGroupOffsets,
    SnapshotMirrors,
    Wipe,
)
from loosehanger.lab.link_settings import OneWay
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.plan import Plan, Step, plan_stage, reversed_copies, steps
from loosehanger.lab.record import Progress, check_stage
from loosehanger.lab.scenario import Scenario, Stage, read_scenario, scenario_names
from loosehanger.lab.topology import SecretCopy
from scripts.sandbox import copy_kit

from ..topologies import address, documents, kafka, mirror, program, user, with_users

A, B = "region-a", "region-b"
TEXT = """\
title: A test
teaches: Something.
topics: [LH.]
stages:
  setup: {mirrors: {ba: absent}}
  failover: {after: [setup], mirrors: {ab: stopped}}
  failback: {after: [failover], manifests: fenced, mirrors: {ab: absent}}
"""


def folder(playbooks: Path, text: str = TEXT) -> Path:
    """A scenario with two mirrors and three stages."""
    scenario = playbooks / "99-test"
    (scenario / "manifests" / "fenced").mkdir(parents=True)
    (scenario / "scenario.yaml").write_text(text)
    for stage in ("setup", "failover", "failback"):
        (scenario / f"{stage}.yaml").touch()
    mirrors = [mirror("ab", B, B, A), mirror("ba", A, A, B)]
    (scenario / "manifests" / "mirrors.yaml").write_text(yaml.safe_dump_all(mirrors))
    (scenario / "manifests" / "users.yaml").write_text(yaml.safe_dump_all([user(A, "writer", authorization="all")]))
    (scenario / "manifests" / "fenced" / "users.yaml").write_text(
        yaml.safe_dump_all([user(A, "writer", authorization="nothing")])
    )
    return scenario


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    folder(tmp_path)
    return read_scenario("99-test", tmp_path)


def names(scenario: Scenario, stage: str) -> dict[str, object]:
    return {
        document.name: document.content["spec"]["mirrors"][0]["sourceConnector"].get("state", "as it is")
        if document.kind == "KafkaMirrorMaker2"
        else document.content["spec"]["authorization"]
        for document in scenario.manifests(stage)
    }


def test_a_stage_decides_on_the_life_of_mirrors_and_replaces_whole_resources(scenario: Scenario) -> None:
    assert names(scenario, "setup") == {"ab": "as it is", "writer": "all"}
    assert names(scenario, "failover") == {"ab": "stopped", "ba": "as it is", "writer": "all"}
    assert names(scenario, "failback") == {"ba": "as it is", "writer": "nothing"}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("title: A test\n", "", r"scenario\.yaml:1: title: is missing"),
        ("topics: [LH.]", "topic: [LH.]", r"scenario\.yaml:3: topic: unknown field"),
        ("setup: {", "start: {", "there is no stage 'setup'"),
        ("after: [setup]", "after: [set-up]", "stages.failover.after: there is no stage 'set-up'"),
        ("after: [setup], ", "", "stages.failover.after: is missing"),
        ("ab: stopped", "ab: asleep", r"scenario\.yaml:6: stages\.failover\.mirrors\.ab: 'asleep' is not possible"),
        ("after: [setup], ", "after: [setup], deleted: [region-a], ", "deleted: region-a is not lost"),
        ("failback:", "fallback:", "there is no playbook .*fallback.yaml"),
        ("title: A test", "title: A test\ntitle: twice", "duplicate key 'title'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in TEXT
    folder(tmp_path, TEXT.replace(before, after, 1))
    with pytest.raises(WrongUseError, match=message):
        read_scenario("99-test", tmp_path)


LINKS = f"""\
links:
  - between: [{A}, {B}]
    delay: 80ms
    jitter: 5ms
  - {{between: [{B}, region-c], rate: 20MB/s, one_way: true}}
  - {{between: [{A}, region-d], outbound_only: true}}
stages:"""


def test_a_scenario_says_what_its_links_begin_with(tmp_path: Path) -> None:
    folder(tmp_path, TEXT.replace("stages:", LINKS))
    slow, narrow = OneWay(delay=0.08, jitter=0.005), OneWay(rate=20e6)
    found = read_scenario("99-test", tmp_path).link_directions
    firewall = {(A, "region-d"): OneWay(), ("region-d", A): OneWay(refuses=True)}
    assert found == {(A, B): slow, (B, A): slow, (B, "region-c"): narrow, **firewall}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("delay: 80ms", "delay: 80", r"scenario\.yaml:6: links\[0\]\.delay: '80' has no unit; write a time as in 80ms"),
        ("delay: 80ms", "delay: -80ms", r"links\[0\]\.delay: '-80ms' is negative"),
        ("rate: 20MB/s", "rate: quick", r"scenario\.yaml:8: links\[1\]\.rate: 'quick' is not a rate"),
        ("delay: 80ms", "delay: 1ms", r"scenario\.yaml:5: links\[0\]: the jitter of 5 ms is more than the delay"),
        (f"[{A}, {B}]", f"[{A}, {A}]", rf"links\[0\]: between: {A} has no link to itself"),
        (f"[{A}, {B}]", f"[{A}]", r"links\[0\]\.between: is missing"),
        ("    jitter", "    speed", r"links\[0\]\.speed: unknown field"),
        ("one_way: true", "one_way: true, outbound_only: true", r"links\[1\]: outbound_only: .*; remove one_way"),
        (f"[{B}, region-c]", f"[{B}, {A}]", f"links: duplicate link from {B} to {A}"),
    ],
)
def test_a_mistake_in_a_link_is_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in LINKS
    folder(tmp_path, TEXT.replace("stages:", LINKS.replace(before, after)))
    with pytest.raises(WrongUseError, match=message):
        read_scenario("99-test", tmp_path)


def test_a_link_with_a_region_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder(tmp_path, TEXT.replace("stages:", LINKS))
    scenario = read_scenario("99-test", tmp_path)
    message = r"scenario\.yaml:8: links\[1\]\.between: there is no region 'region-c'; the regions are: region-a"
    with pytest.raises(WrongUseError, match=message):
        plan(scenario, "setup")


@pytest.mark.parametrize("name", scenario_names())
def test_every_stage_of_a_scenario_has_its_manifests(name: str) -> None:
    scenario = read_scenario(name)
    assert [stage for stage in scenario.stages if not scenario.manifests(stage)] == []


def test_a_broken_folder_fails_these_tests_by_its_name(tmp_path: Path) -> None:
    """They look for scenarios: none has to be added to a list."""
    kit = copy_kit(tmp_path, port_base=28000)
    broken = {"97-no-title": ("scenario.yaml", "title:"), "98-odd-manifest": ("manifests/mm2-na.yaml", "replicas:")}
    for name, (file, field) in broken.items():
        scenario = shutil.copytree(kit.root / "playbooks" / "03-broadcast", kit.root / "playbooks" / name)
        text = (scenario / file).read_text()
        (scenario / file).write_text(text.replace(field, f"not-a-{field}", 1))
    files = [f"tests/unit/test_{name}.py" for name in ("scenario", "manifests")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "97- or 98-", "-p", "no:cacheprovider", *files],
        cwd=kit.root,
        env=kit.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    failed = re.findall(r"^FAILED .*\[(.*?)\]", done.stdout, re.MULTILINE)
    assert sorted(failed) == ["97-no-title", "98-odd-manifest/manifests/mm2-na.yaml"], done.stdout


def test_an_unknown_mirror_and_a_replacement_for_nothing_are_named(tmp_path: Path) -> None:
    path = folder(tmp_path, TEXT.replace("ab: stopped", "xy: stopped"))
    with pytest.raises(WrongUseError, match=r"stages\.failover\.mirrors: manifests/ has no mirror 'xy'"):
        read_scenario("99-test", tmp_path).manifests("failover")
    (path / "manifests" / "fenced" / "users.yaml").write_text(yaml.safe_dump(user(A, "stranger")))
    with pytest.raises(WrongUseError, match="KafkaUser/stranger: manifests/ has no resource of this name to replace"):
        read_scenario("99-test", tmp_path).manifests("failback")


KEYS = """\
  setup: {without: [key-2]}
  failover: {after: [setup]}
  failback: {after: [failover], without: [key-1]}
"""


def test_a_stage_leaves_out_users_and_deletes_those_that_exist(tmp_path: Path) -> None:
    path = folder(tmp_path, TEXT[: TEXT.index("  setup:")] + KEYS)
    keys = [user(A, name) for name in ("key-1", "key-2")]
    (path / "manifests" / "keys.yaml").write_text(yaml.safe_dump_all(keys))
    (path / "manifests" / "mirrors.yaml").unlink()
    found = read_scenario("99-test", tmp_path)

    def planned(stage: str, recorded: dict[str, tuple[Document, ...]]) -> Plan:
        manifests = found.manifests(stage)
        assert "KafkaUser/writer" in references(manifests)
        return plan_stage({A: [*documents(kafka(A)), *manifests]}, recorded, found, stage)[A]

    first = planned("setup", {})
    assert [one for one in references(first.documents) if "key" in one] == ["KafkaUser/key-1"]
    second = planned("failover", {A: first.documents})
    assert [one for one in references(second.documents) if "key" in one] == ["KafkaUser/key-1", "KafkaUser/key-2"]
    assert leaving(second) == []
    third = planned("failback", {A: second.documents})
    assert references(leaving(third)) == ["KafkaUser/key-1"]
    assert [one for one in references(third.documents) if "key" in one] == ["KafkaUser/key-2"]
    assert leaving(planned("failback", {A: third.documents})) == []


def test_with_another_key_a_mirror_is_as_it_was() -> None:
    scenario = read_scenario("12-hybrid")
    before, after = (
        next(
            yaml.safe_dump(one.content)
            for one in scenario.manifests(stage)
            if one.reference == "KafkaMirrorMaker2/mm2-out"
        )
        for stage in ("setup", "rotate-key")
    )
    assert after == before.replace("secretName: token\n", "secretName: token-2\n").replace(
        "username: token\n", "username: token-2\n"
    )
    rights = {one.name: one.content["spec"] for one in scenario.manifests("rotate-key") if one.kind == "KafkaUser"}
    assert rights["token"] == rights["token-2"]


def test_a_user_that_a_stage_leaves_out_and_that_does_not_exist_is_named(tmp_path: Path) -> None:
    folder(tmp_path, TEXT.replace("ab: stopped}", "ab: stopped}, without: [wirter]"))
    with pytest.raises(WrongUseError, match=r"stages\.failover\.without: manifests/ has no user 'wirter'"):
        read_scenario("99-test", tmp_path).manifests("failover")


def test_a_resource_that_stands_twice_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "manifests" / "more.yaml").write_text(yaml.safe_dump(mirror("ab", B, B, A)))
    with pytest.raises(WrongUseError, match=r"KafkaMirrorMaker2/ab: duplicate resource; it is also in .*m.*\.yaml:1"):
        read_scenario("99-test", tmp_path).manifests("setup")


def test_an_unknown_scenario_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    folder(tmp_path)
    assert scenario_names(tmp_path) == ["99-test"]
    for name in ("98-test", "../99-test", ""):
        with pytest.raises(WrongUseError, match=r"there is no scenario .*99-test"):
            read_scenario(name, tmp_path)


def at(stage: str = "", unfinished: str = "") -> Progress:
    return Progress("99-test", "local", "inventories/local", stage, unfinished)


@pytest.mark.parametrize(
    ("progress", "allowed"),
    [
        (None, {"setup"}),
        (at(unfinished="setup"), {"setup"}),
        (at("setup"), {"setup", "failover"}),
        (at("setup", unfinished="failover"), {"failover"}),
        (at("failover"), {"failover", "failback"}),
        (at("failback"), {"failback"}),
    ],
)
def test_stages_run_in_their_order(scenario: Scenario, progress: Progress | None, allowed: set[str]) -> None:
    for stage in scenario.stages:
        if stage in allowed:
            check_stage(scenario, stage, progress)
            continue
        with pytest.raises(WrongUseError, match=r"comes after|comes first|begun and not finished"):
            check_stage(scenario, stage, progress)


def test_a_way_back_from_two_stages_leads_from_between_them(tmp_path: Path) -> None:
    folder(tmp_path, TEXT.replace("after: [failover], manifests", "after: [setup, failover], manifests"))
    scenario = read_scenario("99-test", tmp_path)
    check_stage(scenario, "failback", at("setup", unfinished="failover"))
    with pytest.raises(WrongUseError, match="'failback' was begun and not finished; run it again before 'failover'"):
        check_stage(scenario, "failover", at("setup", unfinished="failback"))


def test_another_scenario_is_refused(scenario: Scenario) -> None:
    with pytest.raises(WrongUseError, match="the scenario 01-other is set up"):
        check_stage(scenario, "setup", Progress("01-other", "local", "inventories/local", "setup"))


DESCRIBED = with_users(mirror("ab", B, B, A), user(A, "writer", authorization="all"), regions=[A, B])


def plan(scenario: Scenario | None, stage: str, recorded: dict[str, Plan] | None = None) -> dict[str, Plan]:
    described = {region: [d for d in DESCRIBED if d.namespace == region] for region in (A, B)} if not recorded else {}
    return plan_stage(described, {name: plan.documents for name, plan in (recorded or {}).items()}, scenario, stage)


def copies(plan: Plan) -> list[SecretCopy]:
    """The secrets that a stage copies to a region."""
    return [copy for action in plan.every(CopySecrets) for copy in action.copies]


def leaving(plan: Plan) -> list[Document]:
    """The resources that a stage deletes in a region."""
    return [document for action in plan.every(Delete) for document in action.documents]


def mirrors(plan: Plan, kind: type[SnapshotMirrors | ResetMirrorOffsets | SalvageRecords]) -> list[str]:
    """The mirrors of the actions of one kind."""
    return [mirror.name for action in plan.every(kind) for mirror in action.mirrors]


def recorded_after(plan: Plan, step: Step, before: Iterable[Document]) -> list[Document]:
    """What the record of a region has after a step."""
    (record,) = (action for action in plan.actions[step] if isinstance(action, RecordResources))
    return record.documents(before)


def references(documents: object) -> list[str]:
    return [document.reference for document in documents]  # type: ignore[attr-defined]


def test_a_stage_changes_what_it_names_and_leaves_the_rest(scenario: Scenario) -> None:
    first = plan(scenario, "setup")
    assert references(first[B].applied(Step.DATAFLOW)) == ["KafkaMirrorMaker2/ab"]
    assert "Namespace/region-a" in references(first[A].applied(Step.CLUSTERS))
    assert {copy.name for copy in copies(first[B])} == {"ab-reads-region-a", "region-a-cluster-ca-cert"}
    failed_over = {
        A: (*first[A].documents, *documents(mirror("ba", A, A, B), user(A, "ba-writes"))),
        B: (*first[B].documents, *documents(user(B, "ba-reads-region-b"))),
    }
    second = plan_stage({}, failed_over, scenario, "failover")
    assert references(second[B].applied(Step.FENCE_MIRRORS)) == ["KafkaMirrorMaker2/ab"], (
        "held before anything else flows"
    )
    assert references(second[B].applied(Step.DATAFLOW)) == []
    assert second[A].changes == ()
    third = plan_stage({}, {name: plan.documents for name, plan in second.items()}, scenario, "failback")
    assert references(leaving(third[B])) == ["KafkaMirrorMaker2/ab"]
    assert references(third[A].changes) == ["Namespace/region-a", "KafkaUser/writer"]
    assert "KafkaMirrorMaker2/ab" not in references(third[B].documents)


def test_a_resource_that_no_play_describes_is_named(scenario: Scenario) -> None:
    described = {A: documents(kafka(A)), B: documents(kafka(B))}
    with pytest.raises(WrongUseError, match=r"mirrors\.yaml:1: KafkaMirrorMaker2/ab: no play describes it: region-b"):
        plan_stage(described, {}, scenario, "setup")


def test_a_resource_without_a_namespace_is_named_with_the_region_that_it_needs(tmp_path: Path) -> None:
    file = folder(tmp_path) / "manifests" / "mirrors.yaml"
    manifests = [*yaml.safe_load_all(file.read_text())]
    for manifest in manifests:
        manifest["metadata"].pop("namespace")
    file.write_text(yaml.safe_dump_all(manifests))
    described = {A: documents(kafka(A)), B: documents(kafka(B))}
    message = r"mirrors\.yaml:\d+: KafkaMirrorMaker2/ab: metadata\.namespace: is missing; .*: region-b, as its target"
    with pytest.raises(WrongUseError, match=message):
        plan_stage(described, {}, read_scenario("99-test", tmp_path), "setup")


def test_a_config_map_beside_a_mirror_goes_with_it(tmp_path: Path) -> None:
    path = folder(tmp_path)
    metrics = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": B}, "data": {"a": "b"}}
    (path / "manifests" / "metrics.yaml").write_text(yaml.safe_dump(metrics))
    found = read_scenario("99-test", tmp_path)
    facts = {"ansible_facts": {FACT: [{"kind": "KafkaMirrorMaker2"}]}}
    documents_ = described({"hostvars": {A: facts, B: facts}}, found, "setup")
    assert [document.reference for document in documents_[B]] == ["ConfigMap/m", "KafkaMirrorMaker2/ab"]
    assert "ConfigMap/m" not in [document.reference for document in documents_[A]]


def test_a_resource_described_in_two_ways_is_named() -> None:
    described = {A: [*documents(kafka(A), user(A, "one")), *documents(user(A, "one", authorization="more"))]}
    with pytest.raises(WrongUseError, match=r"KafkaUser/one: is described in another way in file\.yaml:\d+"):
        plan_stage(described, {})


def test_what_does_not_fit_together_can_be_deleted(scenario: Scenario) -> None:
    described = {B: documents(mirror("ab", B, B, A))}
    with pytest.raises(WrongUseError, match="has the address"):
        plan_stage(described, {})
    for of in ((), (scenario, "setup")):
        assert "KafkaMirrorMaker2/ab" in references(plan_stage(described, {}, *of, fits=False)[B].changes)


def test_a_region_with_applications_only_gets_its_namespace() -> None:
    resources = [*documents(kafka(A), user(A, "reader"))]
    application = documents(program("region-c", A, "reader", "region-a-cluster-ca-cert"))
    found = plan_stage({A: resources, "region-c": application}, {})["region-c"]
    assert references(found.applied(Step.CLUSTERS)) == ["Namespace/region-c"]
    assert references(found.applied(Step.DATAFLOW)) == ["Deployment/program"]
    assert {copy.name for copy in copies(found)} == {"reader", "region-a-cluster-ca-cert"}


def address_of(document: object) -> tuple[str, int]:
    spec = document.content["spec"]  # type: ignore[attr-defined]
    (container,) = spec["template"]["spec"]["containers"]
    return container["env"][0]["value"], spec["replicas"]


def application(cluster: str, name: str) -> dict[str, object]:
    """A producer or a consumer in a region of its own."""
    found = program("region-c", cluster, name=name)
    found["spec"]["replicas"] = 1
    found["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "-m", name]
    return found


def switch(tmp_path: Path, failover: str) -> dict[str, Plan]:
    """The plans of a stage in which both applications change over from one cluster to the other."""
    before = "failover: {after: [setup], mirrors: {ab: stopped}}"
    assert before in TEXT
    folder(tmp_path, TEXT.replace(before, f"failover: {{after: [setup], mirrors: {{ab: stopped}}, {failover}}}"))
    scenario = read_scenario("99-test", tmp_path)
    described = {region: [d for d in DESCRIBED if d.namespace == region] for region in (A, B)}
    described["region-c"] = documents(*(application(A, name) for name in ("producer", "consumers")))
    recorded = {name: plan.documents for name, plan in plan_stage(described, {}, scenario, "setup").items()}
    # The other direction stands ready, as the stage's table has it.
    recorded[A] = (*recorded[A], *documents(mirror("ba", A, A, B), user(A, "ba-writes")))
    recorded[B] = (*recorded[B], *documents(user(B, "ba-reads-region-b")))
    moved = documents(*(application(B, name) for name in ("producer", "consumers")))
    return plan_stage({"region-c": moved}, recorded, scenario, "failover")


def test_in_a_planned_switch_producers_end_first_and_consumers_when_all_has_arrived(tmp_path: Path) -> None:
    plans = switch(tmp_path, "snapshot: true")
    # Among what comes with clusters is the link over which the applications reach the other one.
    assert steps(plans) == [Step.QUIESCE, Step.DRAIN, Step.FENCE_MIRRORS, Step.CLUSTERS, Step.DATAFLOW]
    applications = plans["region-c"]
    (stopped,) = applications.applied(Step.QUIESCE)
    assert (stopped.name, *address_of(stopped)) == ("producer", address(A), 0)
    fenced = {d.name: address_of(d) for d in applications.applied(Step.FENCE_MIRRORS)}
    assert fenced == {"producer": (address(A), 0), "consumers": (address(A), 0)}
    assert {d.name: address_of(d) for d in applications.applied(Step.DATAFLOW)} == {
        "producer": (address(B), 1),
        "consumers": (address(B), 1),
    }
    (drain,) = plans[B].every(DrainMirrors)
    assert (drain.drains, drain.settles) == (("region-b/ab/regiona->regionb",), ())
    assert not plans["region-c"].every(DrainMirrors)


def test_when_a_region_dies_nothing_is_waited_for(tmp_path: Path) -> None:
    plans = switch(tmp_path, f"snapshot: true, lost: [{A}]")
    assert steps(plans) == [Step.KILL, Step.FENCE_MIRRORS, Step.CLUSTERS, Step.DATAFLOW]
    assert [name for name, plan in plans.items() if plan.every(Kill)] == [A]
    assert {d.name for d in plans["region-c"].applied(Step.FENCE_MIRRORS)} == {"producer", "consumers"}


def test_of_a_region_that_is_deleted_nothing_is_copied_any_more(tmp_path: Path) -> None:
    plans = switch(tmp_path, f"lost: [{A}]")
    assert plans[A].every(Kill) == [Kill(deletes_data=False)]
    assert {copy.origin for copy in copies(plans[B])} == {A}
    shutil.rmtree(tmp_path / "99-test")
    plans = switch(tmp_path, f"lost: [{A}], deleted: [{A}]")
    assert (plans[A].every(Kill), plans[B].every(Kill), copies(plans[B])) == ([Kill(deletes_data=True)], [], [])


def test_a_switch_that_is_run_again_has_nothing_left_to_stop(tmp_path: Path) -> None:
    plans = switch(tmp_path, "snapshot: true")
    again = plan_stage(
        {"region-c": documents(*(application(B, name) for name in ("producer", "consumers")))},
        {name: plan.documents for name, plan in plans.items()},
        read_scenario("99-test", tmp_path),
        "failover",
    )
    # Marks are looked at again, since the stage may have been interrupted before it kept them.
    assert steps(again) == [Step.FENCE_MIRRORS, Step.DATAFLOW]
    assert again["region-c"].applied(Step.FENCE_MIRRORS) == ()
    (kept,) = again[B].every(SnapshotMirrors)
    assert kept.stopped_before == kept.mirrors != ()


def moving(tmp_path: Path, stage: str, *moved: dict[str, object]) -> dict[str, Plan]:
    """The plans of a stage that has the life ``stage`` says, for some of the applications."""
    before = "failover: {after: [setup], mirrors: {ab: stopped}}"
    folder(tmp_path, TEXT.replace(before, f"failover: {{after: [setup], {stage}}}"))
    checkpoints = mirror("ab", B, B, A)
    checkpoints["spec"]["mirrors"][0]["checkpointConnector"] = {"tasksMax": 1}
    manifests = tmp_path / "99-test" / "manifests" / "mirrors.yaml"
    manifests.write_text(yaml.safe_dump_all([checkpoints, mirror("ba", A, A, B)]))
    scenario = read_scenario("99-test", tmp_path)
    described = {region: [d for d in DESCRIBED if d.namespace == region] for region in (A, B)}
    described[B] = [d for d in described[B] if d.name != "ab"] + documents(checkpoints)
    described["region-c"] = documents(*(application(A, name) for name in ("producer", "consumers")))
    recorded = {name: plan.documents for name, plan in plan_stage(described, {}, scenario, "setup").items()}
    recorded[A] = (*recorded[A], *documents(mirror("ba", A, A, B), user(A, "ba-writes")))
    recorded[B] = (*recorded[B], *documents(user(B, "ba-reads-region-b")))
    return plan_stage({"region-c": documents(*moved)}, recorded, scenario, "failover")


def test_consumers_that_move_while_producers_go_on_end_first_and_their_offsets_settle(tmp_path: Path) -> None:
    plans = moving(tmp_path, "snapshot: true, mirrors: {ab: copying, ba: stopped}", application(B, "consumers"))
    assert steps(plans) == [Step.QUIESCE, Step.DRAIN, Step.FENCE_MIRRORS, Step.CLUSTERS, Step.DATAFLOW]
    assert references(plans["region-c"].applied(Step.QUIESCE)) == ["Deployment/consumers"]
    (drain,) = plans[B].every(DrainMirrors)
    assert (drain.drains, drain.settles) == ((), ("region-b/ab/regiona->regionb",))
    (held,) = plans[B].applied(Step.FENCE_MIRRORS)
    (connectors,) = held.content["spec"]["mirrors"]
    assert connectors["checkpointConnector"]["state"] == "stopped"
    assert "state" not in connectors["sourceConnector"], "records are copied on"


def test_a_fence_ends_producers_before_their_right_goes_and_is_kept_at_last(tmp_path: Path) -> None:
    ended = application(A, "producer")
    ended["spec"]["replicas"] = 0  # type: ignore[index]
    plans = moving(tmp_path, f"manifests: fenced, fenced: [{A}], mirrors: {{ba: stopped}}", ended)
    assert steps(plans) == [
        Step.QUIESCE,
        Step.DRAIN,
        Step.FENCE_MIRRORS,
        Step.CLUSTERS,
        Step.DATAFLOW,
        Step.FENCE_WRITES,
    ]
    assert references(plans["region-c"].applied(Step.QUIESCE)) == ["Deployment/producer"]
    assert references(plans[A].applied(Step.CLUSTERS)) == ["Namespace/region-a", "KafkaUser/writer"]
    assert [name for name, found in plans.items() if found.every(FenceWrites)] == [A]


def test_a_region_that_goes_needs_nothing_and_goes_last(tmp_path: Path) -> None:
    moved = [application(B, name) for name in ("producer", "consumers")]
    plans = moving(tmp_path, f"gone: [{A}], mirrors: {{ab: absent, ba: absent}}", *moved)
    assert [name for name, found in plans.items() if found.every(Decommission)] == [A]
    assert plans[A].documents == ()
    # Until the step that deletes it, what goes is there.
    before = [*leaving(plans[B]), *plans[B].documents]
    assert "KafkaMirrorMaker2/ab" in references(recorded_after(plans[B], Step.CLUSTERS, before))
    assert "KafkaMirrorMaker2/ab" not in references(recorded_after(plans[B], Step.DATAFLOW, before))
    # With the mirror goes the user that only it needs, and with the region what was copied from it.
    assert sorted(references(leaving(plans[B]))) == [
        "KafkaMirrorMaker2/ab",
        "KafkaUser/ab-writes",
        "KafkaUser/ba-reads-region-b",
    ]
    (leftovers,) = plans[B].every(DeleteCopies)
    assert set(leftovers.names) >= {"ab-reads-region-a", "region-a-cluster-ca-cert"}
    assert not {"region-b-cluster-ca-cert"} & set(leftovers.names)
    # With the mirror go the topics that only it uses.
    (topics,) = plans[B].every(DeleteTopics)
    assert {name for names in topics.topics.values() for name in names} >= {"regiona.checkpoints.internal"}
    assert steps(plans)[-2:] == [Step.CONSOLES, Step.DECOMMISSION]
    # Each step plans anew, and does not need what has gone by then.
    written = yaml.safe_dump_all([user(B, "ab-writes")])
    (tmp_path / "99-test" / "manifests" / "users-b.yaml").write_text(written)
    recorded = {name: found.documents for name, found in plans.items()}
    later = plan_stage({}, recorded, read_scenario("99-test", tmp_path), "failover")
    assert leaving(later[B]) == []


def test_consumers_begin_by_their_ledgers_only_when_they_change_over(tmp_path: Path) -> None:
    stage = "starts: [consumers], mirrors: {ab: dropped, ba: stopped}"
    plans = moving(tmp_path, stage, application(B, "consumers"))
    (seed,) = plans["region-c"].every(SeedGroupOffsets)
    assert ([consumer.cluster_region for consumer in seed.starts], seed.stays) == ([B], ())
    assert references(plans[B].applied(Step.FENCE_MIRRORS)) == ["KafkaMirrorMaker2/ab"]
    assert plans[B].every(DrainMirrors) == [], "whatever is on its way"
    (tmp_path / "again").mkdir()
    there = moving(tmp_path / "again", stage, application(A, "consumers"))["region-c"]
    (seed,) = there.every(SeedGroupOffsets)
    assert (seed.starts, [consumer.cluster_region for consumer in seed.stays]) == ((), [A])
    assert there.has(Step.SEED_GROUP_OFFSETS), "a snapshot shows that its group continues where it is"


def test_a_fence_stands_from_the_first_stage_that_says_so(tmp_path: Path) -> None:
    folder(
        tmp_path,
        TEXT.replace("after: [setup],", f"after: [setup], fenced: [{A}],").replace(
            "after: [failover],", f"after: [failover], fenced: [{A}],"
        ),
    )
    found = read_scenario("99-test", tmp_path)
    assert [found.fence_of(stage, A) for stage in ("failover", "failback")] == ["failover", "failover"]


def test_a_mirror_that_only_stands_ready_is_held_by_no_stage(tmp_path: Path) -> None:
    """It leaves no snapshot: how long a switch took is not reported for a mirror that took no part in it."""
    setup, failover = "setup: {mirrors: {ba: absent}}", "failover: {after: [setup], mirrors: {ab: stopped}}"
    text = TEXT.replace(setup, "setup: {mirrors: {ba: stopped}}")
    text = text.replace(
        failover, "failover: {after: [setup], snapshot: true, mirrors: {ab: stopped, ba: reset-stopped}}"
    )
    folder(tmp_path, text)
    scenario = read_scenario("99-test", tmp_path)
    described = {region: [d for d in DESCRIBED if d.namespace == region] for region in (A, B)}
    ready = mirror("ba", A, A, B)
    ready["spec"]["mirrors"][0]["sourceConnector"]["state"] = "stopped"
    described[A] += documents(ready, user(A, "ba-writes"))
    described[B] += documents(user(B, "ba-reads-region-b"))
    first = plan_stage(described, {}, scenario, "setup")
    second = plan_stage({}, {name: plan.documents for name, plan in first.items()}, scenario, "failover")
    assert [mirrors(second[name], SnapshotMirrors) for name in (A, B)] == [[], ["ab"]]
    assert mirrors(second[A], ResetMirrorOffsets) == ["ba"]
    assert second[A].topology.mirrors[0].state == "stopped"


@pytest.mark.parametrize(("earlier", "state"), [("rearmed", "reset"), ("armed", "reset-stopped")])
def test_the_earlier_words_of_a_stage_are_read(earlier: str, state: str) -> None:
    stage = Stage.model_validate({"mark": True, "mirrors": {"ab": earlier, "ba": "stopped"}})
    assert stage == Stage.model_validate({"snapshot": True, "mirrors": {"ab": state, "ba": "stopped"}})


def test_a_mirror_that_its_manifest_stops_is_not_drained(tmp_path: Path) -> None:
    """Only the stage's table switches; what a learner writes into a manifest is carried out as it stands."""
    folder(tmp_path, TEXT.replace("mirrors: {ab: stopped}", "mirrors: {ab: running}"))
    scenario = read_scenario("99-test", tmp_path)
    path = tmp_path / "99-test" / "manifests" / "mirrors.yaml"
    first = plan(scenario, "setup")
    stopped = mirror("ab", B, B, A)
    stopped["spec"]["mirrors"][0]["sourceConnector"]["state"] = "stopped"
    path.write_text(yaml.safe_dump_all([stopped, mirror("ba", A, A, B)]))
    second = plan(read_scenario("99-test", tmp_path), "setup", first)
    assert references(second[B].applied(Step.DATAFLOW)) == ["KafkaMirrorMaker2/ab"]
    assert steps(second) == [Step.DATAFLOW]


def test_a_scenario_prepares_the_regions_that_its_plays_name_and_no_others(tmp_path: Path) -> None:
    written = folder(tmp_path)
    known = ["region-a", "region-b", "region-c", "region-d"]

    def regions(hosts: dict[str, str]) -> tuple[str, ...]:
        for stage, pattern in hosts.items():
            plays = [{"hosts": pattern, "roles": [{"role": "kafka_cluster"}]}, {"hosts": "all", "roles": ["carry_out"]}]
            (written / f"{stage}.yaml").write_text(yaml.safe_dump(plays))
        return read_scenario(written.name, tmp_path).regions(known)

    # Those of later stages too: brokers are configured once with all ways to them.
    assert regions({"setup": "region-b:region-a", "failover": "region-a"}) == ("region-a", "region-b")
    assert regions({"failback": "region-d"}) == ("region-a", "region-b", "region-d")
    assert regions({"failback": "all:!region-b"}) == tuple(known)


def test_a_region_that_is_made_again_begins_with_nothing_but_its_identity(tmp_path: Path) -> None:
    table = f"failback: {{after: [failover], rebuilt: [{A}], mirrors: {{ab: reset, ba: absent}}, rescues: [ab]}}"
    folder(tmp_path, re.sub(r"failback: \{.*\}", table, TEXT))
    scenario = read_scenario("99-test", tmp_path)
    first = plan(scenario, "setup")
    recorded = {name: list(plan.documents) for name, plan in first.items()}
    # The other direction stands ready, as the stage in between has it.
    recorded[A] += documents(mirror("ba", A, A, B), user(A, "ba-writes"))
    recorded[B] += documents(user(B, "ba-reads-region-b"))
    before = plan_stage({}, recorded, scenario, "failover")
    held = {name: plan.documents for name, plan in before.items()}
    described = {A: [document for document in DESCRIBED if document.namespace == A]}
    plans = plan_stage(described, held, scenario, "failback")
    assert steps(plans) == [Step.WIPE, Step.RESET_MIRROR_OFFSETS, Step.CLUSTERS, Step.DATAFLOW, Step.SALVAGE]
    (wipe,) = plans[A].every(Wipe)
    assert plans[B].every(Wipe) == []
    assert plans[A].has(Step.CLUSTERS)
    assert wipe.kept == {
        "region-a-cluster-ca", "region-a-cluster-ca-cert", "region-a-clients-ca", "region-a-clients-ca-cert", "writer",
        "ab-reads-region-a",
    }  # fmt: skip
    # What was wiped elsewhere comes back from who has copies of it, under the names that it had.
    assert {(back.origin, back.name, back.as_name) for back in wipe.returns} == {
        (B, name, name) for name in ("region-a-cluster-ca-cert", "ab-reads-region-a")
    }
    assert before[A].every(Wipe) == []
    assert mirrors(plans[B], ResetMirrorOffsets) == ["ab"]
    assert mirrors(plans[B], SalvageRecords) == ["ab"]
    assert not plans[B].every(DrainMirrors)
    # Once it runs again, it is not reset: it would pass over what was written since.
    again = plan_stage(described, {name: plan.documents for name, plan in plans.items()}, scenario, "failback")
    assert mirrors(again[B], ResetMirrorOffsets) == []


def test_copies_come_back_once_each_and_without_what_is_no_identity() -> None:
    copies = [
        SecretCopy(A, "writer", "region-c", "writer", "KafkaUser"),
        SecretCopy(A, "writer", B, "kept-writer", "KafkaUser"),
        SecretCopy(A, "ba-connect", B, "ba-connect", "KafkaMirrorMaker2"),
        SecretCopy(B, "reader", A, "reader", "KafkaUser"),
    ]
    assert reversed_copies(copies, A) == (SecretCopy(B, "kept-writer", A, "writer", "KafkaUser"),)


def test_a_mirror_that_goes_in_a_later_step_is_recorded_until_then(tmp_path: Path) -> None:
    folder(tmp_path)
    scenario = read_scenario("99-test", tmp_path)
    recorded = {name: list(of_region.documents) for name, of_region in plan(scenario, "setup").items()}
    recorded[A] += documents(mirror("ba", A, A, B), user(A, "ba-writes"))
    recorded[B] += documents(user(B, "ba-reads-region-b"))
    later = plan_stage({}, recorded, scenario, "failback")[B]
    assert [document.name for document in leaving(later)] == ["ab"]
    after = [recorded_after(later, step, recorded[B]) for step in (Step.CLUSTERS, Step.DATAFLOW)]
    names = [[document.name for document in of_step] for of_step in after]
    assert ["ab" in found for found in names] == [True, False]
