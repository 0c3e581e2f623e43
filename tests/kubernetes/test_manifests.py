"""Every manifest of every scenario before a real API server: what is right is accepted, what is wrong is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml

from apiserver.server import ApiServer, RefusedError
from lab.access import ROOT

from .manifests import File, record

SCENARIOS = sorted(path.parent.name for path in ROOT.glob("playbooks/*/setup.yaml"))
PLATFORMS = sorted(path.name for path in (ROOT / "inventories").iterdir())
KINDS = {"Deployment", "Kafka", "KafkaMirrorMaker2", "KafkaNodePool", "KafkaTopic", "KafkaUser", "Namespace"}

Recorded = Callable[[str, str], list[File]]
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """What a scenario applies on a platform."""

    @cache
    def get(scenario: str, platform: str) -> list[File]:
        return record(scenario, ROOT / "inventories" / platform, tmp_path_factory.mktemp(platform))

    return get


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
    recorded: Recorded, api_server: ApiServer, namespace: str, scenario: str, platform: str
) -> None:
    seen = set()
    for file in recorded(scenario, platform):
        for document in file.documents:
            seen.add(document["kind"])
            try:
                api_server.apply(in_namespace(document, namespace), dry_run=True)
            except RefusedError as error:
                pytest.fail(f"{file.source}: {document['kind']}/{document['metadata']['name']}: {error}")
    assert seen >= KINDS


@pytest.mark.kubernetes
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_platform_applies_the_same_files(recorded: Recorded, scenario: str) -> None:
    """Byte for byte: a file is on its way to the API server what it is on its way to the local platform."""
    on_disk = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for path in (ROOT / "playbooks" / scenario).glob("*.yaml")
        if path.name != "setup.yaml"
    }
    assert len(on_disk) >= 2
    for platform in PLATFORMS:
        files = [file for file in recorded(scenario, platform) if file.source.startswith("playbooks/")]
        assert {file.source: file.content.encode() for file in files} == on_disk, platform


@pytest.mark.kubernetes
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_the_roles_render_is_the_same_locally_and_on_strimzi(recorded: Recorded, scenario: str) -> None:
    # People reach a console at other addresses there, and it reaches Connect in another way.
    local, strimzi = (
        [file for file in recorded(scenario, platform) if not file.source.startswith("roles/console/")]
        for platform in ("local", "strimzi")
    )
    assert local == strimzi


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
    recorded: Recorded, api_server: ApiServer, namespace: str, kind: str, change: Change, message: str
) -> None:
    resources = [document for file in recorded(SCENARIOS[0], "local") for document in file.documents]
    right = in_namespace(next(document for document in resources if document["kind"] == kind), namespace)
    api_server.apply(right, dry_run=True)
    wrong = yaml.safe_load(yaml.safe_dump(right))
    change(wrong)
    with pytest.raises(RefusedError) as caught:
        api_server.apply(wrong, dry_run=True)
    assert message in str(caught.value)
