"""Every manifest of every scenario before a real API server: what is right is accepted, what is wrong is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.lab.manifests.loader import read_manifests
from loosehanger.lab.manifests.views import Program
from loosehanger.lab.scenario import read_scenario, scenario_names
from loosehanger.paths import ROOT
from scripts.apiserver.server import ApiServer, RefusedError

from .. import sign_in_scenario
from . import golden
from .conftest import Described

SCENARIOS = scenario_names()
PLATFORMS = sorted(path.name for path in (ROOT / "inventories").iterdir() if path.is_dir())
KINDS = {"Deployment", "Kafka", "KafkaMirrorMaker2", "KafkaNodePool", "KafkaTopic", "KafkaUser"}

Change = Callable[[dict[str, Any]], object]


@pytest.mark.kubernetes
def test_the_broadcast_applies_what_it_did(
    described: Described, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of this is meant, or it is a mistake: ``golden`` says how to make its file again."""
    monkeypatch.delenv("LAB_PORT_BASE", raising=False)
    applied = golden.golden(described(golden.SCENARIO, golden.INVENTORY.name), tmp_path)
    kept = json.loads(golden.FILE.read_text(encoding="utf-8"))
    assert applied["tasks"] == kept["tasks"]
    assert {region: list(resources) for region, resources in applied["documents"].items()} == {
        region: list(resources) for region, resources in kept["documents"].items()
    }
    for region, resources in kept["documents"].items():
        for name, resource in resources.items():
            assert applied["documents"][region][name] == resource, f"{region}: {name}"


def in_namespace(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A copy for another namespace: those of the regions are not there."""
    copied = copy.deepcopy(document)
    if document["kind"] == "Namespace":
        copied["metadata"]["name"] = f"{namespace}-copy"
    else:
        copied["metadata"]["namespace"] = namespace
    return copied


@pytest.mark.kubernetes
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("platform", [name for name in PLATFORMS if name != "eventstreams"])
def test_every_manifest_is_accepted(
    described: Described, api_server: ApiServer, namespace: str, scenario: str, platform: str
) -> None:
    seen = set()
    reported = read_scenario(scenario)
    later = [document for stage in reported.stages for document in reported.manifests(stage)]
    for document in (*described(scenario, platform), *later):
        seen.add(document.kind)
        try:
            api_server.apply(in_namespace(document.content, namespace), dry_run=True)
        except RefusedError as error:
            pytest.fail(f"{document.where()}: {error}")
    assert seen >= KINDS


@pytest.mark.kubernetes
def test_every_sign_in_is_accepted(api_server: ApiServer, namespace: str) -> None:
    external = copy.deepcopy(sign_in_scenario.user("south-america", "external", []))
    external["spec"]["authentication"]["type"] = "tls-external"
    mirror = copy.deepcopy(next(one for one in sign_in_scenario.resources() if one["kind"] == "KafkaMirrorMaker2"))
    mirror["spec"]["target"]["authentication"] = {
        "type": "custom",
        "sasl": True,
        "config": {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": "${strimzisecrets:a/b:c}"},
    }
    java = [{"name": "org.apache.kafka.sasl.oauthbearer.allowed.urls", "value": "https://identity.example.com"}]
    mirror["spec"]["jvmOptions"] = {"javaSystemProperties": java}
    for document in (*sign_in_scenario.clusters(), *sign_in_scenario.resources(), external, mirror):
        assert read_manifests("file.yaml", yaml.safe_dump(document))
        api_server.apply(in_namespace(document, namespace), dry_run=True)


@pytest.mark.kubernetes
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_platform_applies_the_same(described: Described, scenario: str) -> None:
    """What a scenario's folder holds, and no less; and what the roles render, but for the consoles.

    People reach a console at other addresses on Kubernetes, and it reaches Connect in another way.
    """
    # A region that comes in a later stage has its users described there.
    regions = {document.namespace for document in described(scenario, "local")}
    own = [document for document in read_scenario(scenario).manifests("setup") if document.namespace in regions]
    assert len(own) >= 2
    local, *others = (
        {
            d.reference + d.namespace: d.content
            for d in described(scenario, platform)
            if not Program(d.content).is_console
        }
        for platform in ("local", *(name for name in PLATFORMS if name != "local"))
    )
    assert {document.reference + document.namespace: document.content for document in own}.items() <= local.items()
    for other in others:
        assert {name: content for name, content in other.items() if "NodePool" not in name} == {
            name: content for name, content in local.items() if "NodePool" not in name
        }


def put(path: str, value: Any) -> Change:
    """Puts a value at a path of a resource."""

    def change(document: dict[str, Any]) -> None:
        here: Any = document
        *folders, name = path.split("/")
        for part in folders:
            here = here[int(part)] if isinstance(here, list) else here[part]
        here[name] = value

    return change


def remove(path: str) -> Change:
    """Removes what stands at a path of a resource."""

    def change(document: dict[str, Any]) -> None:
        here: Any = document
        *folders, name = path.split("/")
        for part in folders:
            here = here[int(part)] if isinstance(here, list) else here[part]
        del here[name]

    return change


# Of the first resource of a kind: what is changed, and what the API server then says.
WRONG: list[tuple[str, Change, str]] = [
    ("KafkaMirrorMaker2", put("spec/replica", 1), ".spec.replica: field not declared in schema"),
    ("KafkaMirrorMaker2", put("spec/connectCluster", "a"), ".spec.connectCluster: field not declared in schema"),
    ("KafkaMirrorMaker2", put("spec/replicas", "one"), "spec.replicas"),
    ("KafkaMirrorMaker2", remove("spec/target/groupId"), "spec.target.groupId: Required value"),
    ("KafkaMirrorMaker2", remove("spec/target/configStorageTopic"), "spec.target.configStorageTopic: Required value"),
    (
        "KafkaMirrorMaker2",
        put("spec/mirrors/0/sourceConnector/state", "asleep"),
        'spec.mirrors[0].sourceConnector.state: Unsupported value: "asleep"',
    ),
    (
        "KafkaMirrorMaker2",
        put("spec/mirrors/0/sourceConnector/tasks", 1),
        ".spec.mirrors[0].sourceConnector.tasks: field not declared in schema",
    ),
    ("KafkaMirrorMaker2", put("apiVersion", "kafka.strimzi.io/v1beta2"), "v1beta2: 404 page not found"),
    ("KafkaUser", put("spec/authentication/type", "password"), "spec.authentication.type: Unsupported value"),
    (
        "KafkaUser",
        put("spec/authorization/acls/0/operations", ["Fly"]),
        'spec.authorization.acls[0].operations[0]: Unsupported value: "Fly"',
    ),
    (
        "KafkaUser",
        put("spec/authorization/acls/0/operation", "Read"),
        ".spec.authorization.acls[0].operation: field not declared in schema",
    ),
    ("KafkaTopic", put("spec/partition", 1), ".spec.partition: field not declared in schema"),
    ("KafkaTopic", put("spec/partitions", 0), "spec.partitions: Invalid value: 0"),
    ("KafkaNodePool", remove("spec/storage"), "spec.storage: Required value"),
    ("KafkaNodePool", put("spec/roles", ["boss"]), 'spec.roles[0]: Unsupported value: "boss"'),
    ("Kafka", put("spec/kafka/listeners/0/port", 80), "spec.kafka.listeners[0].port: Invalid value: 80"),
    ("Kafka", remove("spec/kafka/listeners/0/tls"), "spec.kafka.listeners[0].tls: Required value"),
    (
        "Deployment",
        put("spec/template/spec/containers/0/imagePulPolicy", "Always"),
        "imagePulPolicy: field not declared in schema",
    ),
    ("Deployment", put("spec/selector/matchLabels/app", "other"), "spec.template.metadata.labels: Invalid value"),
]


@pytest.mark.kubernetes
@pytest.mark.parametrize(("kind", "change", "message"), WRONG, ids=[f"{row[0]} {row[2]}" for row in WRONG])
def test_what_is_wrong_is_refused(
    described: Described, api_server: ApiServer, namespace: str, kind: str, change: Change, message: str
) -> None:
    resources = [document.content for document in described(SCENARIOS[0], "local")]
    right = in_namespace(next(document for document in resources if document["kind"] == kind), namespace)
    api_server.apply(right, dry_run=True)
    wrong = yaml.safe_load(yaml.safe_dump(right))
    change(wrong)
    with pytest.raises(RefusedError) as caught:
        api_server.apply(wrong, dry_run=True)
    assert message in str(caught.value)
