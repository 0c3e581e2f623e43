"""The examples of ``mirrorproof`` on Kubernetes, before a real API server whose namespace enforces restricted pods."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.mirrorproof.command_line import SUB_COMMANDS
from loosehanger.mirrorproof.configuration import read_configuration
from loosehanger.paths import ROOT
from scripts.apiserver.server import ApiServer, RefusedError

from .conftest import namespace_document

FOLDER = ROOT / "examples" / "mirrorproof"
FILES = ("clusters.yaml", "jobs.yaml", "watch.yaml")


def documents(name: str) -> list[dict[str, Any]]:
    """The resources of a file."""
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def pods(name: str) -> list[dict[str, Any]]:
    """The pods that a file's resources make, without those of others."""
    found = []
    for document in documents(name):
        spec = document.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        found += [template["spec"]] if template else []
    return found


@pytest.mark.kubernetes
def test_the_examples_are_accepted_and_their_pods_are_restricted(api_server: ApiServer, namespace: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api_server.apply({**namespace_document(namespace), "metadata": {"name": namespace, "labels": labels}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    api_server.apply(account)
    for name in FILES:
        for document in documents(name):
            document["metadata"]["namespace"] = namespace
            api_server.apply(document)
        for number, spec in enumerate(pods(name)):
            # What makes the pods judges none of them: a pod itself is refused where it may do too much.
            metadata = {"name": f"{name.removesuffix('.yaml')}-{number}", "namespace": namespace}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            api_server.apply(pod)
            del spec["containers"][0]["securityContext"]["capabilities"]
            metadata["name"] += "-wrong"
            with pytest.raises(RefusedError, match="violates PodSecurity"):
                api_server.apply(pod)


def test_the_examples_commands_are_ones_that_the_tool_has() -> None:
    for name in FILES:
        for spec in pods(name):
            command, *arguments = spec["containers"][0]["args"]
            if command in SUB_COMMANDS:
                SUB_COMMANDS[command].parser(command).parse_args(arguments)


def test_the_examples_configuration_and_variables_fit(tmp_path: Path) -> None:
    configuration, *secrets = documents("clusters.yaml")
    (tmp_path / "mirrorproof.yaml").write_text(configuration["data"]["mirrorproof.yaml"], encoding="utf-8")
    (spec,) = pods("jobs.yaml")
    given = {entry["secretRef"]["name"]: entry["prefix"] for entry in spec["containers"][0]["envFrom"]}
    environment = {
        f"{given[secret['metadata']['name']]}{name}": value
        for secret in secrets
        for name, value in secret["stringData"].items()
    }
    found = read_configuration(tmp_path / "mirrorproof.yaml").lab(os.environ | environment)
    assert {found.region(name).name for name in ("old", "new")} == {"old", "new"}


def test_the_workflow_runs_commands_that_the_tool_has() -> None:
    workflow = yaml.safe_load((FOLDER / "github-workflow.yaml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["prove"]["steps"]
    (run,) = [step["run"] for step in steps if "mirrorproof prove" in step.get("run", "")]
    assert json.dumps(run).count("mirrorproof") == 2
    assert "set -e" not in run, "the shell of a step stops at the first command that fails by itself"
