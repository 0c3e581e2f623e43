"""Faults on Kubernetes: what is changed in the API server, and what healing restores.

No operator carries anything out here, so what a mirror does then is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.faults.choosing import WantedSite
from loosehanger.faults.fault import read_fault
from loosehanger.faults.injecting import heal, inject
from loosehanger.faults.journal import Journal
from loosehanger.faults.names import fault_names
from loosehanger.platforms.kubernetes.resources import BROKER_PODS, MIRROR_PODS
from scripts.apiserver.server import ApiServer
from scripts.sandbox import Kit

from .commands import copy_kit_for, present, setup
from .conftest import REGIONS, delete_namespaces
from .stand_in import STRIMZI, StandIn

pytestmark = pytest.mark.kubernetes

ON_KUBERNETES = [name for name in fault_names() if read_fault(name).on_kubernetes]
FITTING = [name for name in ON_KUBERNETES if not read_fault(name).needs.checkpoints]
"""Those that the broadcast can have: its mirrors translate no consumer groups."""
EDITED = (
    "KafkaMirrorMaker2/north-america/mm2-na",
    "KafkaUser/europe/mm2-europe",
    "KafkaUser/north-america/mm2-northamerica",
)
TARGET = WantedSite(target="north-america")


@pytest.fixture(scope="module")
def kit(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The broadcast, set up in the API server."""
    folder = tmp_path_factory.mktemp("faults")
    kubeconfig = api_server.administrator().write_kubeconfig(folder / "kubeconfig")
    delete_namespaces(api_server, *REGIONS)
    kit = copy_kit_for(kubeconfig, folder)
    with StandIn(api_server, REGIONS):
        # The variable of the commands does not reach what runs in the test's own process.
        done = setup(kit, "-e", f"platform_kubernetes_kubeconfig={kubeconfig}")
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
    delete_namespaces(api_server, *REGIONS)


@pytest.fixture(autouse=True)
def pods(kit: Kit, api_server: ApiServer) -> None:  # noqa: ARG001
    """The pods that the operator would create."""
    for name, cluster, labels in (
        ("mm2-na-mirrormaker2-0", "mm2-na", MIRROR_PODS),
        ("north-america-broker-0", "north-america", BROKER_PODS),
        ("north-america-entity-operator-0", "north-america", {}),
    ):
        metadata = {
            "name": name,
            "namespace": "north-america",
            "labels": {"strimzi.io/cluster": cluster, **labels},
        }
        spec = {"containers": [{"name": "one", "image": "none"}], "automountServiceAccountToken": False}
        api_server.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, manager="operator")


def specs(api_server: ApiServer) -> dict[str, Any]:
    """What the resources say that faults edit."""
    found = {}
    for place in EDITED:
        kind, namespace, name = place.split("/")
        found[place] = present(api_server, STRIMZI, kind, name, namespace)["spec"]
    return found


def pod_names(api_server: ApiServer) -> set[str]:
    """The pods that are there."""
    answer = api_server.request("GET", "/api/v1/namespaces/north-america/pods")
    return {pod["metadata"]["name"] for pod in answer["items"]}


@pytest.mark.parametrize("name", FITTING)
def test_a_fault_changes_something_and_healing_restores_it(kit: Kit, api_server: ApiServer, name: str) -> None:
    before, running = specs(api_server), pod_names(api_server)
    injection = inject(kit.lab, kit.home, read_fault(name), TARGET)
    changed = [place for place, spec in specs(api_server).items() if spec != before[place]]
    gone = running - pod_names(api_server)
    assert changed or gone
    assert "north-america-entity-operator-0" not in gone
    assert "mm2-sa" not in str(changed)
    with pytest.raises(WrongUseError, match="injected already"):
        inject(kit.lab, kit.home, read_fault(name), TARGET)
    heal(kit.lab, kit.home, injection)
    assert specs(api_server) == before
    assert Journal(kit.home).read() == []


def test_what_a_fault_changes_in_a_mirror(kit: Kit, api_server: ApiServer) -> None:
    def entry() -> dict[str, Any]:
        found: dict[str, Any] = specs(api_server)[EDITED[0]]["mirrors"][0]
        return found

    before = entry()
    injection = inject(kit.lab, kit.home, read_fault("transform-fails"), TARGET)
    connector = entry()["sourceConnector"]
    assert connector["config"] == before["sourceConnector"]["config"] | {
        "transforms": "pick",
        "transforms.pick.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
        "transforms.pick.field": "id",
    }
    assert connector["tasksMax"] == before["sourceConnector"]["tasksMax"]
    heal(kit.lab, kit.home, injection)
    assert entry() == before


def test_the_command_injects_lists_refuses_and_heals(kit: Kit, api_server: ApiServer) -> None:
    before = specs(api_server)
    done = kit.run("fault", "list", "--json")
    refused = {fault["name"]: fault["refused"] for fault in json.loads(done.stdout)["faults"]}
    assert {name for name, reason in refused.items() if reason is None} == set(FITTING)
    assert refused["link-cut"] == "link-cut cannot be injected on kubernetes; it needs the local platform"
    done = kit.run("fault", "inject", "link-cut")
    assert (done.returncode, done.stdout) == (2, "")
    done = kit.run("fault", "inject", "read-denied", "--target", "north-america", "--topic", "LH.ORDERS")
    assert done.returncode == 0, done.stderr
    rule = {
        "type": "deny",
        "resource": {"type": "topic", "name": "LH.ORDERS", "patternType": "literal"},
        "operations": ["Read"],
        "host": "*",
    }
    assert rule in specs(api_server)["KafkaUser/europe/mm2-europe"]["authorization"]["acls"]
    done = kit.run("fault", "heal", "read-denied")
    assert done.returncode == 0, done.stderr
    assert specs(api_server) == before


@pytest.mark.slow
def test_a_set_up_heals_what_was_edited(kit: Kit, api_server: ApiServer) -> None:
    before = specs(api_server)
    injection = inject(kit.lab, kit.home, read_fault("connector-stopped"), TARGET)
    done = setup(kit, "-e", f"platform_kubernetes_kubeconfig={kit.environment['KUBECONFIG']}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert specs(api_server) == before
    heal(kit.lab, kit.home, injection)
    assert specs(api_server) == before
