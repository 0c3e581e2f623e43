"""``./lab diff``: what the manifests say and the lab does not have yet, and what a set-up would refuse."""

from __future__ import annotations

import json
import re
import shutil
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.cli import diff
from loosehanger.errors import WrongUseError
from loosehanger.lab import manifest_diff
from loosehanger.lab.manifest_diff import compare_manifests
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.loader import check_document
from loosehanger.lab.record import Lab
from loosehanger.lab.scenario import read_scenario, scenario_names
from loosehanger.lab.scenario_index import PLAYBOOKS

from .test_planned_stages import REGIONS, recorded, walked

LAB = Lab("12-sea", "local", "inventories/local", {}, "setup")
MIRROR = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {name: mm2, namespace: south}
spec:
  target: {alias: south}
  mirrors:
    - source: {alias: north}
      sourceConnector: {tasksMax: 1}
"""
SCENARIO = "title: Sea\nteaches: Something.\ntopics: [LH.]\nstages: {setup: {next: go on}}\n"


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The manifest of a scenario's mirror, which was applied as it is."""
    folder = tmp_path / "playbooks" / "12-sea"
    (folder / "manifests").mkdir(parents=True)
    (folder / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    (folder / "setup.yaml").write_text("- hosts: south\n  roles: [mirror_maker]\n", encoding="utf-8")
    manifest = folder / "manifests" / "mm2.yaml"
    manifest.write_text(MIRROR, encoding="utf-8")
    monkeypatch.setattr(diff, "read_scenario", lambda name: read_scenario(name, folder.parent))
    applied = read_scenario("12-sea", folder.parent).manifests("setup")
    monkeypatch.setattr(diff, "recorded_documents", lambda _, region: [d for d in applied if d.namespace == region])
    monkeypatch.setattr(diff, "check_document", lambda document: document)
    # It has no cluster.
    monkeypatch.setattr(manifest_diff, "check_together", lambda *_: None)
    return manifest


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The document, and the exit code in it."""
    code = diff.run(LAB, Namespace(json=True))
    return {**json.loads(capsys.readouterr().out), "code": code}


def test_a_lab_that_is_as_its_manifests_say(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manifest.exists()
    assert diff.run(LAB, Namespace(json=False)) == 0
    assert capsys.readouterr().out == "The lab is as the manifests of 12-sea say.\n"
    assert {one["state"] for one in shown(capsys)["resources"]} == {"same"}


def test_a_changed_field_is_named_with_both_values(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text(MIRROR.replace("alias: south", "alias: west"), encoding="utf-8")
    assert diff.run(LAB, Namespace(json=False)) == 1
    said = capsys.readouterr().out
    assert 'mm2.yaml:1: south: KafkaMirrorMaker2/mm2\n  spec.target.alias: "south" -> "west"\n' in said
    assert said.endswith("./lab setup 12-sea applies this.\n")
    (changed,) = (one for one in shown(capsys)["resources"] if one["state"] == "changed")
    assert changed["fields"] == [{"field": "spec.target.alias", "applied": "south", "now": "west"}]
    assert changed["applied"]["target"]["alias"] == "south"


def test_a_new_resource_and_one_that_a_set_up_would_refuse(
    manifest: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest.write_text(MIRROR.replace("name: mm2", "name: mm3", 1), encoding="utf-8")

    def refuse(document: Document) -> None:
        raise WrongUseError(f"{document.name} is refused")

    monkeypatch.setattr(diff, "check_document", refuse)
    found = shown(capsys)
    assert (found["errors"], found["code"]) == (["mm3 is refused"], 1)
    assert [one["state"] for one in found["resources"]] == ["new"]
    with pytest.raises(WrongUseError, match="mm3 is refused"):
        diff.run(LAB, Namespace(json=False))


def test_a_file_that_is_not_yaml_is_named(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write_text("a: [", encoding="utf-8")
    found = shown(capsys)
    assert found["resources"] == []
    assert "mm2.yaml:2: not YAML" in found["errors"][0]


@pytest.mark.parametrize("name", [name for name in scenario_names() if len(read_scenario(name).stages) > 1])
def test_a_lab_that_has_reached_a_stage_differs_in_nothing(name: str) -> None:
    """Also where a region is not there yet, or is lost, or is gone with the users of its mirrors."""
    scenario = read_scenario(name)
    for _, stage, _, plans in walked(scenario):
        record = recorded(plans)
        found, errors = compare_manifests(scenario, stage, record.__getitem__, check_document, REGIONS)
        assert errors == []
        assert [f"{stage}: {one.region}: {one.kind}/{one.name}" for one in found if one.state != "same"] == []


POLICY = "replication.policy.class: org.apache.kafka.connect.mirror.{}ReplicationPolicy"


@pytest.mark.parametrize(
    ("name", "files", "edit", "said"),
    [
        (
            "08-active-active",
            ("mm2-eu.yaml", "mm2-na.yaml"),
            (POLICY.format("Default"), POLICY.format("Identity")),
            r"mm2-(eu|na).*these mirrors form a loop",
        ),
        (
            "10-forwarding",
            ("mm2-sa.yaml",),
            (r"topicsPattern: (.+\.)?LH\..*", r"topicsPattern: LH\..*"),
            r"mm2-sa.yaml.* does not match europe\.LH",
        ),
    ],
)
def test_manifests_that_do_not_fit_together_are_refused_as_by_a_set_up(
    name: str, files: tuple[str, ...], edit: tuple[str, str], said: str, tmp_path: Path
) -> None:
    """Each file is right alone."""
    shutil.copytree(PLAYBOOKS / name, tmp_path / name)
    for file in files:
        manifest = tmp_path / name / "manifests" / file
        text = manifest.read_text(encoding="utf-8")
        assert edit[0] in text
        manifest.write_text(text.replace(*edit), encoding="utf-8")
    (plans,) = (plans for _, stage, _, plans in walked(read_scenario(name)) if stage == "setup")
    record = recorded(plans)
    _, errors = compare_manifests(read_scenario(name, tmp_path), "setup", record.__getitem__, check_document, REGIONS)
    assert errors
    assert re.search(said, errors[0])


def test_the_values_of_a_secret_are_hidden() -> None:
    from loosehanger.lab.manifest_diff import _compared

    old = Document("s.yaml", 1, {"kind": "Secret", "metadata": {"name": "s", "namespace": "sea"}, "data": {"a": "b"}})
    new = replace(old, content={**old.content, "data": {"a": "c"}})
    assert [(one.field, one.applied, one.now) for one in _compared(new, old).fields] == [("data.a", "hidden", "hidden")]
