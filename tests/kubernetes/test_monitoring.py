"""Alerts and dashboards on a cluster that has the Prometheus operator's kinds, and on one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes import monitoring
from loosehanger.platforms.kubernetes.apply import RegionNamespace, delete_region
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.resources import LABELS, RULES, ManifestEntry, labelled
from loosehanger.platforms.kubernetes.rights import own_kinds
from loosehanger.platforms.kubernetes.services import ClusterContext
from scripts.apiserver.server import ApiServer

from .commands import resource
from .conftest import StartApiServer, namespace_document

pytestmark = pytest.mark.kubernetes

GROUP, VERSION = RULES[0].split("/")
KINDS = (RULES, ("v1", "ConfigMap"))
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"prometheusrules.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": RULES[1], "plural": "prometheusrules", "singular": "prometheusrule"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""The kind's name and group, without its schema: promtool checks the rules themselves, in tests/unit."""


def control_room() -> ManifestEntry:
    """The control room's Deployment, as the broadcast has it."""
    golden = json.loads((ROOT / "tests/kubernetes/golden.json").read_text(encoding="utf-8"))["documents"]
    name = "Deployment/control-room"
    (document,) = (documents[name] for documents in golden.values() if name in documents)
    return ManifestEntry("golden.json", document)


@pytest.fixture
def server(start_api_server: StartApiServer) -> ApiServer:
    """A server with the kind, and without Strimzi's."""
    found = start_api_server("monitoring", strimzi=False)
    found.install([DEFINITION])
    return found


def region_of(server: ApiServer, folder: Path) -> Iterator[RegionNamespace]:
    """A region of its own."""
    name = f"test-{uuid4().hex[:8]}"
    server.apply(labelled(namespace_document(name)))
    place = ClusterContext(str(server.administrator().write_kubeconfig(folder / "kubeconfig")))
    yield RegionNamespace(name, place, {name: place}, False, "", ROOT, print)


@pytest.fixture
def region(server: ApiServer, tmp_path: Path) -> Iterator[RegionNamespace]:
    """A region where the kind is."""
    yield from region_of(server, tmp_path)


@pytest.fixture
def plain(api_server: ApiServer, tmp_path: Path) -> Iterator[RegionNamespace]:
    """A region where the kind is not."""
    yield from region_of(api_server, tmp_path)


def entries(region: RegionNamespace, *manifests: ManifestEntry) -> list[ManifestEntry]:
    """What is applied beside these manifests."""
    return monitoring.beside_control_room(region.cluster, ROOT, region.name, manifests)


def test_rules_and_dashboards_come_and_go_with_the_control_room(server: ApiServer, region: RegionNamespace) -> None:
    for one in entries(region, control_room()):
        region.cluster.apply(one.document)
    found = {kind: server.get(resource(version, kind, monitoring.NAME, region.name)) for version, kind in KINDS}
    rules: Any = found["PrometheusRule"]
    given = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / "monitoring/rules").glob("*.yaml")]
    groups = ["loosehanger.alerts", "loosehanger.audit", "loosehanger.recording"]
    assert [group["name"] for group in rules["spec"]["groups"]] == groups
    assert all(group in rules["spec"]["groups"] for file in given for group in file["groups"])
    dashboards: Any = found["ConfigMap"]
    assert dashboards["metadata"]["labels"] == {**LABELS, "grafana_dashboard": "1"}
    assert {name: json.loads(text)["uid"] for name, text in dashboards["data"].items()} == {
        f"{name}.json": f"loosehanger-{name}" for name in ("flows", "loss", "mirror", "proof")
    }
    deleted = delete_region(region, bound=30)
    assert {f"{kind}/{monitoring.NAME}" for _, kind in KINDS} <= set(deleted)
    assert [server.get(resource(version, kind, monitoring.NAME, region.name)) for version, kind in KINDS] == [None] * 2


def test_a_region_without_the_control_room_has_none(region: RegionNamespace) -> None:
    assert entries(region, ManifestEntry("x", {"kind": "ConfigMap"})) == []
    assert entries(region) == []


def test_an_account_without_the_right_applies_none(region: RegionNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KubernetesCluster, "allowed", lambda _, asked: asked["group"] != GROUP)
    assert entries(region, control_room()) == []
    assert RULES not in own_kinds(region.cluster, region.name)


def test_a_cluster_without_the_prometheus_operator_has_none(plain: RegionNamespace) -> None:
    assert entries(plain, control_room()) == []
