"""The broadcast on Kubernetes: the kit's commands and a real API server. A stand-in says what operators would say."""

from __future__ import annotations

import base64
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.apiserver.server import ApiServer
from scripts.sandbox import Kit
from tests.recap import recap

from .commands import KIT, copy_kit_for, labels, present, resource, setup
from .conftest import REGIONS, delete_namespaces, namespace_document
from .stand_in import STRIMZI, StandIn

pytestmark = pytest.mark.kubernetes

OWN = "correct-horse-battery"
"""The password of all web consoles."""


@pytest.fixture(scope="module")
def broadcast(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The broadcast, set up once for all tests of this file."""
    if not api_server.has_controllers:
        pytest.skip("there is no kube-controller-manager, without which no namespace ends")
    delete_namespaces(api_server, *REGIONS)
    folder = tmp_path_factory.mktemp("broadcast")
    kit = copy_kit_for(api_server.administrator().write_kubeconfig(folder / "kubeconfig"), folder)
    with StandIn(api_server, REGIONS):
        inherited = kit.environment
        kit.environment = {**inherited, "LAB_PASSWORD": OWN}
        done = setup(kit)
        kit.environment = inherited
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
        delete_namespaces(api_server, *REGIONS)


def test_everything_is_there_and_is_the_kits(broadcast: Kit, api_server: ApiServer) -> None:
    assert broadcast
    for region in REGIONS:
        namespace = api_server.get(namespace_document(region))
        assert namespace is not None
        assert labels(namespace).items() >= KIT.items()
        assert labels(present(api_server, STRIMZI, "Kafka", region, region)).items() >= KIT.items()
    for region, mirror in (("north-america", "mm2-na"), ("south-america", "mm2-sa")):
        applied = present(api_server, STRIMZI, "KafkaMirrorMaker2", mirror, region)
        assert applied["spec"]["mirrors"][0]["source"]["bootstrapServers"] == "europe-kafka-bootstrap.europe.svc:9098"
        for name in ("mm2-europe", "europe-cluster-ca-cert"):
            copied = present(api_server, "v1", "Secret", name, region)
            assert copied["data"] == present(api_server, "v1", "Secret", name, "europe")["data"]
            assert labels(copied).items() >= KIT.items()


def test_a_second_run_changes_nothing_and_shows_no_password(broadcast: Kit) -> None:
    done = setup(broadcast, "-vvv")
    assert done.returncode == 0
    assert recap(done.stdout) == {}
    assert "password-of" not in done.stdout + done.stderr
    assert OWN not in done.stdout + done.stderr


def environment(server: ApiServer, deployment: str, region: str) -> dict[str, str]:
    """The environment of a program."""
    found = present(server, "apps/v1", "Deployment", deployment, region)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def test_a_chosen_password_opens_every_console_and_each_leads_to_the_others(
    broadcast: Kit, api_server: ApiServer
) -> None:
    consoles = {"europe": "8080", "control-room": "8081", "north-america": "8090", "south-america": "8100"}
    for name in consoles:
        region = "europe" if name == "control-room" else name
        user = "control-room" if name == "control-room" else "operator"
        secret = present(api_server, "v1", "Secret", user, region)
        assert base64.b64decode(secret["data"]["password"]).decode() == OWN
        variables = environment(api_server, name if name == "control-room" else f"console-{name}", region)
        assert variables["CONSOLE_USERNAME"] == "operator"
        assert variables["CONSOLE_PORT"] == consoles[name]
        assert variables["CONSOLE_SHARED_PASSWORD"] == "true"
        neighbours = dict(one.split("=") for one in variables["CONSOLE_NEIGHBOURS"].split(","))
        assert neighbours == {other: f"http://127.0.0.1:{port}" for other, port in consoles.items() if other != name}
    kept = present(api_server, "v1", "Secret", "loosehanger-lab-sign-in", "europe")
    assert labels(kept).items() >= KIT.items()
    producer = present(api_server, "v1", "Secret", "producer", "europe")
    assert base64.b64decode(producer["data"]["password"]).decode() == "password-of-producer-in-europe"
    shown = broadcast.run("status", "--credentials")
    assert shown.stdout.count("as in LAB_PASSWORD") == len(consoles)
    assert OWN not in shown.stdout


def test_status_tells_what_the_operators_report(broadcast: Kit) -> None:
    status = broadcast.run("status", "--json")
    assert status.returncode == 0, status.stdout + status.stderr
    document = json.loads(status.stdout)
    assert document["platform"] == "kubernetes"
    assert document["healthy"]
    found = {(r["kind"], r["name"]): r for region in document["regions"].values() for r in region}
    assert found[("Kafka", "europe")]["detail"] == "1 node, 6 topics, 14 partitions"
    assert found[("KafkaMirrorMaker2", "mm2-na")]["detail"] == "from europe: 1 connector, 1 task on 1 worker"
    assert found[("Deployment", "producer")]["state"] == "Running"


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
    connect = json.loads(files["region.json"])["connect"]
    assert connect == {"mm2-na": {"url": "http://mm2-na-mirrormaker2-api.north-america.svc:8083"}}


def test_of_the_programs_only_consoles_may_ask_mirrors(broadcast: Kit, api_server: ApiServer) -> None:
    assert broadcast
    for region in ("north-america", "south-america"):
        policy = present(api_server, "networking.k8s.io/v1", "NetworkPolicy", "loosehanger-lab-clients", region)["spec"]
        assert policy["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "kafka-mirror-maker-2"}}
        (peer,) = policy["ingress"][0]["from"]
        assert peer["namespaceSelector"]["matchExpressions"][0]["values"] == sorted(["europe", region])
        wanted = peer["podSelector"]["matchLabels"].items()
        let_in = set()
        for namespace in ("europe", region):
            for deployment in api_server.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"]:
                if wanted <= labels(deployment["spec"]["template"]).items():
                    let_in.add(deployment["metadata"]["name"])
        assert let_in == {"console-europe", "control-room", f"console-{region}"}


def test_a_change_by_hand_is_put_back(broadcast: Kit, api_server: ApiServer) -> None:
    mirror = present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-sa", "south-america")
    by_hand = resource(STRIMZI, "KafkaMirrorMaker2", "mm2-sa", "south-america")
    by_hand["spec"] = {"replicas": 3, "version": mirror["spec"]["version"]}
    api_server.apply(by_hand, manager="kubectl-edit")
    done = setup(broadcast)
    assert done.returncode == 0, done.stdout + done.stderr
    assert recap(done.stdout) == {"south-america": 1}
    assert present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-sa", "south-america")["spec"]["replicas"] == 1


def test_what_is_learnt_from_a_manifest_is_applied_and_told_beforehand(broadcast: Kit, api_server: ApiServer) -> None:
    file = broadcast.manifest("mm2-na.yaml")
    file.write_text(file.read_text().replace("replicas: 1", "replicas: 2"))
    before = present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-na", "north-america")
    reported = setup(broadcast, "--check", "--diff")
    assert reported.returncode == 0, reported.stdout + reported.stderr
    assert recap(reported.stdout) == {"north-america": 1}
    assert re.search(r"^\+ +replicas: 2$", reported.stdout, re.MULTILINE)
    assert present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-na", "north-america") == before
    done = setup(broadcast)
    assert recap(done.stdout) == {"north-america": 1}
    assert present(api_server, STRIMZI, "KafkaMirrorMaker2", "mm2-na", "north-america")["spec"]["replicas"] == 2


def test_a_program_starts_again_when_its_secret_changes(broadcast: Kit, api_server: ApiServer) -> None:
    secret = present(api_server, "v1", "Secret", "producer", "europe")
    # As its owner would: what the owner leaves out would go.
    kept = ("name", "namespace", "labels", "ownerReferences")
    metadata = {key: value for key, value in secret["metadata"].items() if key in kept}
    changed = {**secret["data"], "password": base64.b64encode(b"another").decode()}
    api_server.apply({**secret, "metadata": metadata, "data": changed}, manager="operator")
    done = setup(broadcast)
    assert recap(done.stdout) == {"europe": 1}


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


def test_cleanup_deletes_what_is_the_kits_and_leaves_what_is_somebody_elses(
    broadcast: Kit, api_server: ApiServer
) -> None:
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
    done = broadcast.run("cleanup")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [api_server.get(namespace_document(region)) for region in REGIONS] == [None] * 3
    assert not (broadcast.home / "access").exists()
