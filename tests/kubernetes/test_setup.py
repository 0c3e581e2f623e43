"""Setting up where something is missing, wrong or not the kit's, and with more than one cluster."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes.console_facts import CONFIG_MAP
from scripts.apiserver.server import ApiServer, write_kubeconfig
from scripts.sandbox import Kit
from tests.recap import recap
from tests.three_files import NAME, write_scenario

from .commands import copy_kit_for, present, resource, setup
from .conftest import REGIONS, StartApiServer, delete_namespaces, namespace_document
from .stand_in import STRIMZI, StandIn, not_ready, ready

pytestmark = pytest.mark.kubernetes

SECONDS = 10
"""The bound of waits that never come true."""
told_elsewhere = pytest.mark.slow(
    reason="test_what_a_resource_waits_for of tests/unit/test_kubernetes_platform.py has this reason, and "
    "test_a_wait_that_never_comes_true_ends_in_its_bound_with_the_reason the way of any to the user"
)


@pytest.fixture
def kit(kubeconfig: Path, without_regions: None, tmp_path: Path) -> Kit:  # noqa: ARG001
    """A copy of the kit whose kubeconfig is that of the API server, in which there are no regions."""
    return copy_kit_for(kubeconfig, tmp_path)


@pytest.fixture
def operators(api_server: ApiServer) -> Iterator[StandIn]:
    """The stand-in for all operators and controllers."""
    with StandIn(api_server, REGIONS) as stand_in:
        yield stand_in


def test_check_mode_creates_nothing(kit: Kit, api_server: ApiServer) -> None:
    done = setup(kit, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [api_server.get(namespace_document(region)) for region in REGIONS] == [None] * 3


def test_where_no_network_policy_is_enforced_the_set_up_and_the_consoles_say_so(
    kit: Kit, operators: StandIn, api_server: ApiServer
) -> None:
    warning = "network policies are not enforced here: any pod may change mm2-na"
    for enforces in (False, True):
        operators.enforces = enforces
        done = setup(kit)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (f"north-america: {warning}" in done.stdout) == (not enforces)
        for console, namespace in (("console-north-america", "north-america"), ("control-room", "europe")):
            data = present(api_server, "v1", "ConfigMap", CONFIG_MAP, namespace)["data"]
            connectors = {"europe->northamerica.MirrorSourceConnector": "RUNNING"}
            mirror = {"replicas": 1, "connectors": connectors, "open": not enforces}
            assert json.loads(data["north-america.json"]) == {"mm2-na": mirror}
            pod = present(api_server, "apps/v1", "Deployment", console, namespace)["spec"]["template"]["spec"]
            (volume,) = (one["name"] for one in pod["volumes"] if one.get("configMap", {}).get("name") == CONFIG_MAP)
            (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume)
            assert {"name": "CONSOLE_MIRRORS_FOLDER", "value": mount["mountPath"]} in pod["containers"][0]["env"]
        for region in REGIONS:
            assert api_server.request("GET", f"/apis/batch/v1/namespaces/{region}/jobs")["items"] == []


def test_a_wait_that_never_comes_true_ends_in_its_bound_with_the_reason(kit: Kit, operators: StandIn) -> None:
    operators.says["KafkaMirrorMaker2"] = not_ready(
        "ConnectRestException", "SaslAuthenticationException: not mm2-europe"
    )
    done = setup(kit, "-e", f"platform_kubernetes_ready_timeout={SECONDS}")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"not within {SECONDS} seconds" in last
    assert "KafkaMirrorMaker2/mm2-na" in last
    assert "ConnectRestException: SaslAuthenticationException: not mm2-europe" in last
    assert "Traceback" not in done.stdout + done.stderr


@told_elsewhere
def test_without_an_operator_the_wait_says_so(kit: Kit) -> None:
    done = setup(kit, "-e", "platform_kubernetes_ready_timeout=3")
    assert done.returncode == 1
    assert "Kafka/europe: no operator has reconciled it yet" in done.stderr


@told_elsewhere
def test_a_status_of_an_older_generation_does_not_count(kit: Kit, operators: StandIn) -> None:
    operators.says["Kafka"] = lambda kafka: ready(kafka) | {"observedGeneration": 0}
    done = setup(kit, "-e", "platform_kubernetes_ready_timeout=3")
    assert done.returncode == 1
    assert "has not seen its newest version" in done.stderr


def test_a_namespace_of_somebody_elses_is_left_alone(kit: Kit, api_server: ApiServer) -> None:
    api_server.apply(namespace_document("europe"))
    done = setup(kit)
    assert done.returncode == 2
    assert "Namespace/europe: already exists and is not managed by the kit" in done.stderr
    assert "platform_kubernetes_create_namespaces" in done.stderr
    assert api_server.get(namespace_document("north-america")) is None
    assert kit.run("cleanup").returncode == 0
    assert api_server.get(namespace_document("europe")) is not None


def test_a_wrong_field_is_named_before_anything_is_created(kit: Kit, api_server: ApiServer) -> None:
    file = kit.manifest("mm2-sa.yaml")
    file.write_text(file.read_text().replace("replicas: 1", "replicas: 1\n  replica: 2"))
    done = setup(kit)
    assert done.returncode == 2
    assert re.search(r"mm2-sa\.yaml:\d+: KafkaMirrorMaker2/mm2-sa: .*\.spec\.replica: field not declared", done.stderr)
    assert [api_server.get(namespace_document(region)) for region in REGIONS] == [None] * 3


def test_a_cluster_without_strimzi_is_told_with_all_that_is_missing(
    kit: Kit, start_api_server: StartApiServer, tmp_path: Path
) -> None:
    bare = start_api_server("bare", strimzi=False)
    kit.environment = {"KUBECONFIG": str(bare.administrator().write_kubeconfig(tmp_path / "bare"))}
    done = setup(kit)
    assert done.returncode == 2
    assert "the cluster does not know KafkaNodePool, Kafka, KafkaUser" in done.stderr


def test_an_account_without_rights_gets_one_list(kit: Kit, api_server: ApiServer, tmp_path: Path) -> None:
    account = api_server.account("without-rights")
    kit.environment = {"KUBECONFIG": str(account.write_kubeconfig(tmp_path / "without-rights"))}
    done = setup(kit)
    assert done.returncode == 2
    for missing in ("kafkas.kafka.strimzi.io", "deployments.apps", "secrets", "pods/log", "namespaces"):
        assert re.search(rf"this account may not [a-z, ]+ {re.escape(missing)}", done.stderr), missing


def test_a_small_quota_and_a_storage_class_that_is_not_there_are_told_together(kit: Kit, api_server: ApiServer) -> None:
    for region in REGIONS:
        api_server.apply(namespace_document(region))
    quota = {**resource("v1", "ResourceQuota", "tight", "europe"), "spec": {"hard": {"pods": "1"}}}
    api_server.apply(quota)
    api_server.set_status(quota, {"hard": {"pods": "1"}, "used": {"pods": "0"}})
    storage = ("-e", "kafka_cluster_storage_size=1Gi", "-e", "kafka_cluster_storage_class=fast")
    done = setup(kit, "-e", "platform_kubernetes_create_namespaces=false", *storage)
    assert done.returncode == 2
    assert "ResourceQuota/tight leaves 1 pods; the region needs at least 2" in done.stderr
    assert "no storage class 'fast'" in done.stderr


def test_a_listener_whose_certificate_names_no_node_is_told(kit: Kit) -> None:
    done = setup(kit, "-e", "kafka_cluster_external_listener=nodeport")
    assert done.returncode == 2
    assert "listener 'external' is reached at the nodes' addresses, and its certificate has none of them" in done.stderr


def test_a_namespaced_account_with_just_the_listed_rights_suffices(
    kit: Kit, operators: StandIn, api_server: ApiServer, tmp_path: Path
) -> None:
    account = api_server.account("workshop")
    for region in REGIONS:
        api_server.apply(namespace_document(region))
        role = {**resource("rbac.authorization.k8s.io/v1", "Role", "lab", region), "rules": listed_rights()}
        binding = {
            **resource("rbac.authorization.k8s.io/v1", "RoleBinding", "lab", region),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lab"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "workshop"}],
        }
        api_server.apply(role)
        api_server.apply(binding)
    kit.environment = {"KUBECONFIG": str(account.write_kubeconfig(tmp_path / "workshop"))}
    without_namespaces = ("-e", "platform_kubernetes_create_namespaces=false")
    done = setup(kit, *without_namespaces)
    assert done.returncode == 0, done.stdout + done.stderr
    assert kit.run("status").returncode == 0
    done = kit.run("cleanup", *without_namespaces)
    assert done.returncode == 0, done.stdout + done.stderr
    for region in REGIONS:
        assert api_server.get(namespace_document(region)) is not None
        assert api_server.get(resource(STRIMZI, "Kafka", region, region)) is None
        assert present(api_server, "rbac.authorization.k8s.io/v1", "Role", "lab", region)
    assert operators.failure is None


def listed_rights() -> list[dict[str, list[str]]]:
    """The rules of a Role, as the platform's README lists them for namespaces and for Strimzi."""
    readme = (ROOT / "roles" / "platform_kubernetes" / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^\| API group \|.*\n\|[-| ]+\n((?:\|.*\n)+)", readme, re.MULTILINE)
    assert table
    rules = []
    for line in table[1].splitlines():
        group, resources, verbs, where = (cell.strip() for cell in line.strip("|").split("|"))
        if where in ("every region", "every region, with Strimzi"):
            rules.append(
                {
                    "apiGroups": ["" if group == "core" else group.strip("`")],
                    "resources": re.findall(r"`([^`]+)`", resources),
                    "verbs": re.findall(r"\w+", verbs),
                }
            )
    return rules


def test_regions_on_two_clusters(kit: Kit, api_server: ApiServer, other_api_server: ApiServer, tmp_path: Path) -> None:
    contexts = {"first": api_server.administrator(), "second": other_api_server.administrator()}
    kit.environment = {"KUBECONFIG": str(write_kubeconfig(tmp_path / "both", contexts))}
    folder = kit.root / "inventories" / "strimzi" / "host_vars"
    folder.mkdir()
    for region, context in (("europe", "first"), ("north-america", "second"), ("south-america", "first")):
        (folder / f"{region}.yaml").write_text(f"platform_kubernetes_context: {context}\n")
    try:
        with StandIn(api_server, REGIONS), StandIn(other_api_server, REGIONS):
            done = setup(kit, "-e", "kafka_cluster_external_listener=loadbalancer")
            assert done.returncode == 0, done.stdout + done.stderr
            mirror = present(other_api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-na", "north-america")
            assert mirror["spec"]["mirrors"][0]["source"]["bootstrapServers"] == "europe.external.example:9094"
            assert mirror["spec"]["target"]["bootstrapServers"].endswith(".svc:9098")
            there = present(other_api_server, "v1", "Secret", "mm2-europe", "north-america")
            assert there["data"] == present(api_server, "v1", "Secret", "mm2-europe", "europe")["data"]
            assert api_server.get(namespace_document("north-america")) is None
            here = present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-sa", "south-america")
            assert here["spec"]["mirrors"][0]["source"]["bootstrapServers"].endswith(".svc:9098")
            record = present(api_server, "v1", "Secret", "loosehanger-lab-access-north-america", "europe")
            description = json.loads(base64.b64decode(record["data"]["region.json"]))
            assert description["connect"] == {"mm2-na": {}}, "its network is another one"
            policy = ("networking.k8s.io/v1", "NetworkPolicy", "loosehanger-lab-clients", "north-america")
            (peer,) = present(other_api_server, *policy)["spec"]["ingress"][0]["from"]
            assert peer["namespaceSelector"]["matchExpressions"][0]["values"] == ["north-america"], "its own console"
            assert recap(setup(kit, "-e", "kafka_cluster_external_listener=loadbalancer").stdout) == {}
            assert kit.run("cleanup").returncode == 0
        assert other_api_server.get(namespace_document("north-america")) is None
    finally:
        delete_namespaces(other_api_server, "north-america")


def test_programs_on_a_stock_python_image(kit: Kit, operators: StandIn, api_server: ApiServer) -> None:
    image = "docker.io/library/python:3.13-slim"
    done = setup(kit, "-e", f"platform_kubernetes_python_image={image}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert operators.failure is None
    code = present(api_server, "v1", "ConfigMap", "loosehanger-lab-code", "europe")
    assert re.search(r"^kafka-python==", code["data"]["requirements.txt"], re.MULTILINE)
    pod = present(api_server, "apps/v1", "Deployment", "producer", "europe")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == pod["initContainers"][0]["image"] == image
    assert pod["securityContext"]["runAsNonRoot"]
    assert recap(setup(kit, "-e", f"platform_kubernetes_python_image={image}").stdout) == {}


def test_three_files_are_a_scenario(kit: Kit, operators: StandIn, api_server: ApiServer) -> None:
    write_scenario(kit.root)
    done = kit.run("setup", NAME, "-i", "inventories/strimzi")
    assert done.returncode == 0, done.stdout + done.stderr
    assert operators.failure is None
    applied = present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2", "north-america")
    assert applied["spec"]["mirrors"][0]["source"]["bootstrapServers"] == "europe-kafka-bootstrap.europe.svc:9098"
    shown = json.loads(kit.run("status", "--json").stdout)
    assert (shown["scenario"], shown["stage"], shown["healthy"]) == (NAME, "setup", True)
    used = {name for name, components in shown["regions"].items() if components}
    assert used == {"europe", "north-america"}
    assert api_server.get(namespace_document("south-america")) is None
    again = kit.run("setup", NAME, "-i", "inventories/strimzi")
    assert again.returncode == 0, again.stdout + again.stderr
    assert recap(again.stdout) == {}
