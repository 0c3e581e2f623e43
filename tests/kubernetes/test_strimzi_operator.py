"""Installing the operator, from a file of a release's form with Strimzi's real custom resource definitions."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.paths import ROOT
from scripts.apiserver.crds import strimzi_definitions
from scripts.apiserver.server import ApiServer

from .conftest import StartApiServer, delete_all, delete_namespaces, namespace_document
from .playbooks import run_playbook

pytestmark = pytest.mark.kubernetes

RBAC = "rbac.authorization.k8s.io"
NAME = "strimzi-cluster-operator"
REGIONS = tuple(yaml.safe_load((ROOT / "inventories" / "regions.yaml").read_text(encoding="utf-8"))["regions"]["hosts"])
"""Every region of the inventory: the operator is there for whatever scenario comes next."""
PLAYBOOK = """
- hosts: regions
  tasks:
    - name: Provide the operator
      ansible.builtin.include_role:
        name: strimzi_operator
        tasks_from: "{{ entry_point | default('main') }}"
"""


def release() -> list[dict[str, Any]]:
    """What a release's installation file has, in its form: only subjects have a namespace. Most rules are left out."""
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": "myproject"}]

    def binding(name: str, role: str) -> dict[str, Any]:
        return {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "labels": {"app": "strimzi"}},
            "subjects": subjects,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        }

    container = {
        "name": NAME,
        "image": "quay.io/strimzi/operator:1.2.0",
        "env": [
            {"name": "STRIMZI_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "STRIMZI_KAFKA_IMAGES", "value": "4.3.1=quay.io/strimzi/kafka:1.2.0-kafka-4.3.1"},
        ],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": {"app": "strimzi"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"name": NAME}},
            "template": {"metadata": {"labels": {"name": NAME}}, "spec": {"containers": [container]}},
        },
    }
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": f"{NAME}-namespaced"}, "rules": []}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}
    definitions = strimzi_definitions()
    for definition in definitions:
        definition["metadata"].setdefault("labels", {})["app"] = "strimzi"
    return [
        account,
        role,
        binding(NAME, f"{NAME}-namespaced"),
        binding(f"{NAME}-leader-election", f"{NAME}-leader-election"),
        *definitions,
        deployment,
    ]


@pytest.fixture
def bare(start_api_server: StartApiServer) -> Iterator[ApiServer]:
    """A cluster without Strimzi."""
    server = start_api_server("bare", strimzi=False)
    yield server
    of_all = ("CustomResourceDefinition", "ClusterRole")
    delete_all(server, (document for document in release() if document["kind"] in of_all))
    delete_namespaces(server, *REGIONS, "strimzi")


def play(server: ApiServer, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the role against the server."""
    file = folder / "release.yaml"
    file.write_text(yaml.safe_dump_all(release()))
    playbook = folder / "playbook.yaml"
    playbook.write_text(PLAYBOOK)
    variables = {
        "strimzi_operator_release": file,
        "strimzi_operator_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "strimzi_operator_home": folder,
        "strimzi_operator_ready_timeout": 30,
    }
    given = [argument for name, value in variables.items() for argument in ("-e", f"{name}={value}")]
    return run_playbook(
        folder,
        *(str(playbook), "-i", "inventories/strimzi", *given, *arguments),
        cwd=ROOT,
        kubeconfig=server.administrator().write_kubeconfig(folder / "kubeconfig"),
    )


def bindings(server: ApiServer, namespaces: Sequence[str]) -> dict[str, list[str]]:
    found = {}
    for namespace in namespaces:
        listed = server.request("GET", f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings")["items"]
        found[namespace] = sorted(item["metadata"]["name"] for item in listed)
    return found


def say_that_it_runs(server: ApiServer) -> dict[str, Any]:
    """The stand-in for what Kubernetes would report of the operator."""
    deployment = next(document for document in release() if document["kind"] == "Deployment")
    deployment["metadata"]["namespace"] = "strimzi"
    found = server.get(deployment)
    assert found
    condition = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "yes"}
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    server.set_status(
        deployment, {**counts, "conditions": [condition], "observedGeneration": found["metadata"]["generation"]}
    )
    return found


def test_the_operator_watches_the_regions_and_nothing_else(bare: ApiServer, tmp_path: Path) -> None:
    first = play(
        bare, tmp_path, "-e", "strimzi_operator_ready_timeout=1", "-e", "strimzi_operator_registry=registry.local"
    )
    assert first.returncode != 0  # no node runs it here, and it is waited for
    deployment = say_that_it_runs(bare)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert environment["STRIMZI_NAMESPACE"] == ",".join(REGIONS)
    assert environment["STRIMZI_POD_SECURITY_PROVIDER_CLASS"] == "restricted"
    assert container["image"] == "registry.local/strimzi/operator:1.2.0"
    assert bindings(bare, [*REGIONS, "strimzi"]) == {
        **{region: [NAME] for region in REGIONS},
        "strimzi": [f"{NAME}-leader-election"],
    }
    again = play(bare, tmp_path, "-e", "strimzi_operator_registry=registry.local")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changed=0" in again.stdout
    assert "changed=1" not in again.stdout


def test_check_mode_on_a_cluster_without_anything_creates_nothing(bare: ApiServer, tmp_path: Path) -> None:
    done = play(bare, tmp_path, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert bare.get(namespace_document("strimzi")) is None
    assert not any(bare.get(definition) for definition in strimzi_definitions())


def test_an_operator_of_somebody_elses_is_never_touched(bare: ApiServer, tmp_path: Path) -> None:
    bare.install(strimzi_definitions())
    done = play(bare, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert bare.get(namespace_document("strimzi")) is None
    done = play(bare, tmp_path, "-e", "entry_point=remove")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(bare.get(definition) for definition in strimzi_definitions())


def test_a_release_with_another_checksum_is_refused(bare: ApiServer, tmp_path: Path) -> None:
    done = play(bare, tmp_path, "-e", f"strimzi_operator_sha256={'0' * 64}")
    assert done.returncode != 0
    assert "checksum" in done.stdout + done.stderr
    assert bare.get(namespace_document("strimzi")) is None


def test_a_kind_that_somebody_uses_is_not_removed(bare: ApiServer, tmp_path: Path) -> None:
    play(bare, tmp_path, "-e", "strimzi_operator_ready_timeout=1")
    say_that_it_runs(bare)
    bare.apply(namespace_document("stranger"))
    topic = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaTopic",
        "metadata": {"name": "theirs", "namespace": "stranger"},
        "spec": {"partitions": 1},
    }
    bare.apply(topic)
    try:
        done = play(bare, tmp_path, "-e", "entry_point=remove")
        assert done.returncode == 0, done.stdout + done.stderr
        assert bare.get(topic)
        left = [definition["spec"]["names"]["kind"] for definition in strimzi_definitions() if bare.get(definition)]
        assert left == ["KafkaTopic"]
        assert bare.get(namespace_document("strimzi")) is None
    finally:
        bare.delete(topic)
        delete_namespaces(bare, "stranger")
