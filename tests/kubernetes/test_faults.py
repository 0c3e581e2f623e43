"""Faults on Kubernetes: what is changed in the API server, and what healing restores.

No operator carries anything out here, so what a mirror does then is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.faults.choosing import WantedSite
from loosehanger.faults.fault import read_fault
from loosehanger.faults.injecting import heal, inject
from loosehanger.faults.journal import Journal
from loosehanger.faults.names import fault_names
from loosehanger.platforms import registry
from loosehanger.platforms.kubernetes.resources import BROKER_PODS, MIRROR_PODS
from scripts.apiserver.server import ApiServer
from scripts.sandbox import Kit

from .commands import copy_kit_for, setup
from .conftest import REGIONS, delete_namespaces
from .stand_in import STRIMZI, StandIn

pytestmark = pytest.mark.kubernetes

ON_KUBERNETES = [name for name in fault_names() if read_fault(name).on_kubernetes]
FITTING = [name for name in ON_KUBERNETES if not read_fault(name).needs.checkpoints]
"""Those that the broadcast can have: its mirrors translate no consumer groups."""
MIRROR_NA = "KafkaMirrorMaker2/north-america/mm2-na"
MIRRORS = {"north-america": "mm2-na", "south-america": "mm2-sa"}
"""The broadcast's mirrors by their regions, which are their targets."""
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
    for region, mirror in MIRRORS.items():
        for name, cluster, labels in (
            (f"{mirror}-mirrormaker2-0", mirror, MIRROR_PODS),
            (f"{region}-broker-0", region, BROKER_PODS),
            (f"{region}-entity-operator-0", region, {}),
        ):
            own = {"strimzi.io/cluster": cluster, **labels}
            metadata = {"name": name, "namespace": region, "labels": own}
            spec = {"containers": [{"name": "one", "image": "none"}], "automountServiceAccountToken": False}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            api_server.apply(pod, manager="operator")


def specs(api_server: ApiServer) -> dict[str, Any]:
    """What the resources of all regions say that faults edit."""
    found = {}
    for region in REGIONS:
        for kind in ("KafkaMirrorMaker2", "KafkaUser"):
            any_ = {"apiVersion": STRIMZI, "kind": kind, "metadata": {"namespace": region}}
            for item in api_server.request("GET", api_server.path(any_, of_kind=True))["items"]:
                found[f"{kind}/{region}/{item['metadata']['name']}"] = item["spec"]
    return found


def pod_names(api_server: ApiServer) -> set[str]:
    """The pods that are there, with their regions."""
    found = set()
    for region in MIRRORS:
        answer = api_server.request("GET", f"/api/v1/namespaces/{region}/pods")
        found |= {f"{region}/{pod['metadata']['name']}" for pod in answer["items"]}
    return found


@pytest.mark.parametrize(("name", "target"), list(zip(FITTING, cycle(MIRRORS))))
def test_a_fault_changes_one_mirror_of_two_and_healing_restores_it(
    kit: Kit, api_server: ApiServer, name: str, target: str
) -> None:
    before, running = specs(api_server), pod_names(api_server)
    injection = inject(kit.lab, kit.home, registry, read_fault(name), WantedSite(target=target))
    changed = {place for place, spec in specs(api_server).items() if spec != before[place]}
    gone = running - pod_names(api_server)
    assert changed or gone
    # Of the mirror that was not chosen nothing is touched; both sign in to Europe as the same user.
    own = {f"KafkaMirrorMaker2/{target}/{MIRRORS[target]}", "KafkaUser/europe/mm2-europe"}
    assert {place for place in changed - own if not place.startswith(f"KafkaUser/{target}/mm2-")} == set()
    assert all(place.startswith(f"{target}/") and "entity-operator" not in place for place in gone)
    with pytest.raises(WrongUseError, match="injected already"):
        inject(kit.lab, kit.home, registry, read_fault(name), WantedSite(target=target))
    heal(kit.lab, kit.home, registry, injection)
    assert specs(api_server) == before
    assert Journal(kit.home).read() == []


def test_faults_of_both_mirrors_are_healed_each_for_itself(kit: Kit, api_server: ApiServer) -> None:
    before = specs(api_server)
    first = inject(kit.lab, kit.home, registry, read_fault("transform-fails"), WantedSite(target="north-america"))
    alone = specs(api_server)
    second = inject(kit.lab, kit.home, registry, read_fault("connector-paused"), WantedSite(target="south-america"))
    both = specs(api_server)
    assert both["KafkaMirrorMaker2/south-america/mm2-sa"] != before["KafkaMirrorMaker2/south-america/mm2-sa"]
    assert both[MIRROR_NA] == alone[MIRROR_NA] != before[MIRROR_NA]
    heal(kit.lab, kit.home, registry, first)
    left = specs(api_server)
    assert left == both | {MIRROR_NA: before[MIRROR_NA]}
    heal(kit.lab, kit.home, registry, second)
    assert specs(api_server) == before


def test_what_a_fault_changes_in_a_mirror(kit: Kit, api_server: ApiServer) -> None:
    def entry() -> dict[str, Any]:
        found: dict[str, Any] = specs(api_server)[MIRROR_NA]["mirrors"][0]
        return found

    before = entry()
    injection = inject(kit.lab, kit.home, registry, read_fault("transform-fails"), TARGET)
    connector = entry()["sourceConnector"]
    assert connector["config"] == before["sourceConnector"]["config"] | {
        "transforms": "pick",
        "transforms.pick.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
        "transforms.pick.field": "id",
    }
    assert connector["tasksMax"] == before["sourceConnector"]["tasksMax"]
    heal(kit.lab, kit.home, registry, injection)
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
    injection = inject(kit.lab, kit.home, registry, read_fault("connector-stopped"), TARGET)
    done = setup(kit, "-e", f"platform_kubernetes_kubeconfig={kit.environment['KUBECONFIG']}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert specs(api_server) == before
    heal(kit.lab, kit.home, registry, injection)
    assert specs(api_server) == before
