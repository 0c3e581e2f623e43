"""The broadcast on Kubernetes: the kit's commands and a real API server. A stand-in says what operators would say."""

from __future__ import annotations

import base64
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.server import ApiServer, write_kubeconfig
from lab.access import ROOT
from lab.sandbox import Kit, copy_kit

from .conftest import REGIONS, namespace_document
from .stand_in import STRIMZI, StandIn, not_ready, ready

pytestmark = pytest.mark.kubernetes

KIT = {"app.kubernetes.io/managed-by": "loosehanger-lab", "app.kubernetes.io/part-of": "loosehanger-lab"}
SECONDS = 20
"""The bound of waits that never come true."""


def recap(output: str) -> dict[str, int]:
    """How many things Ansible says it changed, by region."""
    return {host: int(changed) for host, changed in re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.M)}


def resource(version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def present(server: ApiServer, version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    found = server.get(resource(version, kind, name, namespace))
    assert found is not None, f"{namespace}: there is no {kind}/{name}"
    return found


def setup(kit: Kit, *arguments: str) -> Any:
    return kit.setup("-i", "inventories/strimzi", *arguments)


@pytest.fixture
def kit(api_server: ApiServer, kubeconfig: Path, without_regions: None, tmp_path: Path) -> Kit:  # noqa: ARG001
    """A copy of the kit whose kubeconfig is that of the API server, in which there are no regions."""
    kit = copy_kit(tmp_path, port_base=28000)
    kit.environment = {"KUBECONFIG": str(kubeconfig)}
    return kit


@pytest.fixture
def operators(api_server: ApiServer) -> Iterator[StandIn]:
    """The stand-in for all operators and controllers."""
    with StandIn(api_server, REGIONS) as stand_in:
        yield stand_in


@pytest.fixture
def broadcast(kit: Kit, operators: StandIn) -> Kit:  # noqa: ARG001
    """The broadcast, set up."""
    done = setup(kit)
    assert done.returncode == 0, done.stdout + done.stderr
    return kit


def test_the_broadcast_is_set_up_looked_at_and_deleted(broadcast: Kit, api_server: ApiServer) -> None:
    for region in REGIONS:
        namespace = api_server.get(namespace_document(region))
        assert namespace is not None
        assert namespace["metadata"]["labels"].items() >= KIT.items()
        assert present(api_server, STRIMZI, "Kafka", region, region)["metadata"]["labels"].items() >= KIT.items()
    for region, mirror in (("north-america", "mm2-na"), ("south-america", "mm2-sa")):
        applied = present(api_server, STRIMZI, "KafkaMirrorMaker2", mirror, region)
        for name in ("mm2-europe", "europe-cluster-ca-cert"):
            copied = present(api_server, "v1", "Secret", name, region)
            assert copied["data"] == present(api_server, "v1", "Secret", name, "europe")["data"]
            assert copied["metadata"]["labels"].items() >= KIT.items()
        assert applied["spec"]["mirrors"][0]["source"]["bootstrapServers"] == "europe-kafka-bootstrap.europe.svc:9098"
    assert "password-of" not in setup(broadcast, "-vvv").stdout

    done = setup(broadcast)
    assert done.returncode == 0
    assert recap(done.stdout) == dict.fromkeys(REGIONS, 0)

    status = broadcast.run("status", "--json")
    assert status.returncode == 0, status.stdout + status.stderr
    document = json.loads(status.stdout)
    assert document["platform"] == "kubernetes"
    assert document["healthy"]
    states = {(r["kind"], r["name"]): r["state"] for region in document["regions"].values() for r in region}
    assert states[("KafkaMirrorMaker2", "mm2-na")] == states[("Deployment", "producer")] == "Running"

    done = broadcast.run("cleanup")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [api_server.get(namespace_document(region)) for region in REGIONS] == [None] * 3
    assert not (broadcast.home / "access").exists()


def test_clients_get_their_record_from_a_secret_and_not_from_this_machine(
    broadcast: Kit, api_server: ApiServer
) -> None:
    record = json.loads((broadcast.home / "access" / "north-america.json").read_text())
    assert record["pod"]["namespace"] == "europe"
    on_this_machine = "".join(path.read_text() for path in (broadcast.home / "access").rglob("*") if path.is_file())
    assert "password-of" not in on_this_machine
    secret = present(api_server, "v1", "Secret", record["pod"]["secret"], "europe")
    files = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert "password-of-prover-in-north-america" in files["prover.properties"]
    assert "bootstrap.servers=north-america-kafka-bootstrap.north-america.svc:9098" in files["prover.properties"]
    mirror = json.loads(files["region.json"])["mirrors"][0]
    assert mirror["source"] == "europe"
    assert mirror["connect"] == {"url": "http://mm2-na-mirrormaker2-api.north-america.svc:8083"}
    policy = present(api_server, "networking.k8s.io/v1", "NetworkPolicy", "loosehanger-lab-clients", "north-america")
    assert policy["spec"]["ingress"][0]["from"][0]["podSelector"] == {"matchLabels": KIT}


def test_a_change_by_hand_is_put_back(broadcast: Kit, api_server: ApiServer) -> None:
    mirror = present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-sa", "south-america")
    by_hand = resource(STRIMZI, "KafkaMirrorMaker2", "mm2-sa", "south-america")
    by_hand["spec"] = {"replicas": 3, "version": mirror["spec"]["version"]}
    api_server.apply(by_hand, manager="kubectl-edit")
    done = setup(broadcast)
    assert done.returncode == 0, done.stdout + done.stderr
    assert recap(done.stdout) == {"europe": 0, "north-america": 0, "south-america": 1}
    assert present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-sa", "south-america")["spec"]["replicas"] == 1


def test_what_is_learnt_from_a_manifest_is_applied_and_told_beforehand(broadcast: Kit, api_server: ApiServer) -> None:
    file = broadcast.manifest("mm2-na.yaml")
    file.write_text(file.read_text().replace("replicas: 1", "replicas: 2"))
    before = present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-na", "north-america")
    told = setup(broadcast, "--check", "--diff")
    assert told.returncode == 0, told.stdout + told.stderr
    assert recap(told.stdout) == {"europe": 0, "north-america": 1, "south-america": 0}
    assert re.search(r"^\+ +replicas: 2$", told.stdout, re.MULTILINE)
    assert present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-na", "north-america") == before
    done = setup(broadcast)
    assert recap(done.stdout) == {"europe": 0, "north-america": 1, "south-america": 0}
    assert present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-na", "north-america")["spec"]["replicas"] == 2


def test_check_mode_creates_nothing(kit: Kit, api_server: ApiServer) -> None:
    done = setup(kit, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [api_server.get(namespace_document(region)) for region in REGIONS] == [None] * 3


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


def test_without_an_operator_the_wait_says_so(kit: Kit) -> None:
    done = setup(kit, "-e", "platform_kubernetes_ready_timeout=3")
    assert done.returncode == 1
    assert "Kafka/europe: no operator has looked at it yet" in done.stderr


def test_a_status_of_an_older_generation_does_not_count(kit: Kit, operators: StandIn) -> None:
    operators.says["Kafka"] = lambda kafka: ready(kafka) | {"observedGeneration": 0}
    done = setup(kit, "-e", "platform_kubernetes_ready_timeout=3")
    assert done.returncode == 1
    assert "has not seen its newest version" in done.stderr


def test_a_namespace_of_somebody_elses_is_left_alone(kit: Kit, api_server: ApiServer) -> None:
    api_server.apply(namespace_document("europe"))
    done = setup(kit)
    assert done.returncode == 2
    assert "Namespace/europe: there is one already that is not the kit's" in done.stderr
    assert "platform_kubernetes_create_namespaces" in done.stderr
    assert api_server.get(namespace_document("north-america")) is None
    assert kit.run("cleanup").returncode == 0
    assert api_server.get(namespace_document("europe")) is not None


def test_cleanup_leaves_what_is_somebody_elses(broadcast: Kit, api_server: ApiServer) -> None:
    strangers = {**resource("v1", "ConfigMap", "strangers", "europe"), "data": {"a": "b"}}
    api_server.apply(strangers)
    done = broadcast.run("cleanup")
    assert done.returncode == 1
    assert "europe: the kit's resources are deleted; the namespace stays" in done.stderr
    assert "ConfigMap/strangers" in done.stderr
    assert api_server.get(strangers) is not None
    assert api_server.get(resource(STRIMZI, "Kafka", "europe", "europe")) is None
    assert api_server.get(namespace_document("north-america")) is None
    api_server.delete(strangers)
    assert broadcast.run("cleanup").returncode == 0
    assert api_server.get(namespace_document("europe")) is None


def test_a_wrong_field_is_named_before_anything_is_created(kit: Kit, api_server: ApiServer) -> None:
    file = kit.manifest("mm2-sa.yaml")
    file.write_text(file.read_text().replace("replicas: 1", "replicas: 1\n  replica: 2"))
    done = setup(kit)
    assert done.returncode == 2
    assert re.search(r"mm2-sa\.yaml:\d+: KafkaMirrorMaker2/mm2-sa: .*\.spec\.replica: field not declared", done.stderr)
    assert [api_server.get(namespace_document(region)) for region in REGIONS] == [None] * 3


def test_a_cluster_without_strimzi_is_told_with_all_that_is_missing(
    kit: Kit, start_api_server: Any, tmp_path: Path
) -> None:
    bare = start_api_server("bare", strimzi=False)
    kit.environment = {"KUBECONFIG": str(bare.administrator().write_kubeconfig(tmp_path / "bare"))}
    done = setup(kit)
    assert done.returncode == 2
    assert "the cluster does not know KafkaNodePool, Kafka, KafkaUser" in done.stderr


def test_an_account_without_rights_gets_one_list(kit: Kit, api_server: ApiServer, tmp_path: Path) -> None:
    account = api_server.account("nobody-in-particular")
    kit.environment = {"KUBECONFIG": str(account.write_kubeconfig(tmp_path / "nobody"))}
    done = setup(kit)
    assert done.returncode == 2
    for missing in ("kafkas.kafka.strimzi.io", "deployments.apps", "secrets", "pods/log", "namespaces"):
        assert re.search(rf"this account may not [a-z, ]+ {re.escape(missing)}", done.stderr), missing


def test_a_quota_that_is_too_small_is_told(kit: Kit, api_server: ApiServer) -> None:
    for region in REGIONS:
        api_server.apply(namespace_document(region))
    quota = {**resource("v1", "ResourceQuota", "tight", "europe"), "spec": {"hard": {"pods": "1"}}}
    api_server.apply(quota)
    api_server.set_status(quota, {"hard": {"pods": "1"}, "used": {"pods": "0"}})
    done = setup(kit, "-e", "platform_kubernetes_create_namespaces=false")
    assert done.returncode == 2
    assert "ResourceQuota/tight leaves 1 pods; the region needs at least 2" in done.stderr


def test_a_storage_class_that_is_not_there_is_told(kit: Kit) -> None:
    done = setup(kit, "-e", "kafka_cluster_storage_size=1Gi", "-e", "kafka_cluster_storage_class=fast")
    assert done.returncode == 2
    assert "there is no storage class 'fast'" in done.stderr


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
    hosts = kit.root / "inventories" / "strimzi" / "hosts.yaml"
    inventory = yaml.safe_load(hosts.read_text())
    for region, context in (("europe", "first"), ("north-america", "second"), ("south-america", "first")):
        inventory["regions"]["hosts"][region]["platform_kubernetes_context"] = context
    hosts.write_text(yaml.safe_dump(inventory, allow_unicode=True))
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
            assert description["mirrors"][0]["source"] == "europe"
            assert recap(setup(kit, "-e", "kafka_cluster_external_listener=loadbalancer").stdout) == dict.fromkeys(
                REGIONS, 0
            )
            assert kit.run("cleanup").returncode == 0
        assert other_api_server.get(namespace_document("north-america")) is None
    finally:
        other_api_server.delete(namespace_document("north-america"))


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
    assert recap(setup(kit, "-e", f"platform_kubernetes_python_image={image}").stdout) == dict.fromkeys(REGIONS, 0)


def test_a_program_starts_again_when_its_secret_changes(broadcast: Kit, api_server: ApiServer) -> None:
    secret = resource("v1", "Secret", "producer", "europe")
    secret["stringData"] = {"password": "another"}
    api_server.apply(secret, manager="operator")
    done = setup(broadcast)
    assert recap(done.stdout)["europe"] == 2  # the producer, and the record of how clients reach the region


def test_a_bundle_has_what_helps_and_no_secret(broadcast: Kit, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    done = broadcast.run("status", "--bundle", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(file) as archive:
        names = archive.getnames()
        texts = [stream.read() for member in archive.getmembers() if (stream := archive.extractfile(member))]
    assert "bundle/regions/north-america/KafkaMirrorMaker2-mm2-na.yaml" in names
    assert "bundle/status.json" in names
    assert not any(b"password-of" in text for text in texts)
    assert not any("Secret" in name for name in names)


def test_the_programs_pass_the_restricted_profile(broadcast: Kit, api_server: ApiServer) -> None:
    """Kubernetes' own check, which refuses in dry run what such a namespace would not let in."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {**namespace_document("restricted"), "metadata": {"name": "restricted", "labels": labels}}
    api_server.apply(namespace)
    try:
        for region, name in (("europe", "producer"), ("north-america", "consumer-northamerica")):
            template = present(api_server, "apps/v1", "Deployment", name, region)["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
            pod["metadata"] = {"name": name, "namespace": "restricted"}
            pod["spec"] = {k: v for k, v in pod["spec"].items() if k not in ("serviceAccount", "serviceAccountName")}
            api_server.apply(pod, dry_run=True)
    finally:
        api_server.delete(namespace)
    assert broadcast
