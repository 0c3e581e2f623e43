"""The lab's resources in the dialects of IBM Event Streams, before a real API server.

There is no Event Streams here. The schemas of ``v1beta2`` are the project's own, written after IBM's documentation;
those of ``v1`` are Strimzi's real ones in another group, as in Event Streams 13.0, less what is newer.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.lab.manifests.documents import Document
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.event_streams import API_VERSIONS, GROUP, V1, EventStreams, to_event_streams
from loosehanger.platforms.kubernetes.resources import LABELS
from loosehanger.platforms.kubernetes.rights import list_own
from scripts.apiserver.crds import strimzi_definitions
from scripts.apiserver.server import ApiServer, RefusedError

from .conftest import Described
from .test_manifests import SCENARIOS, in_namespace

pytestmark = pytest.mark.kubernetes

SCHEMAS = Path(__file__).with_name("schemas") / "event-streams"
SETTINGS = EventStreams(
    accept_license=True,
    license="L-CYBH-K48BZQ",
    license_use="EventAutomationNonProduction",
    rest_producer=True,
    pod_annotations={"productChargedContainers": "{name}-mirrormaker2"},
)
OLDER = replace(SETTINGS, version="12.3.1")
SINCE_STRIMZI_1_1 = {
    "Kafka": [
        f"kafka/properties/listeners/items/properties/configuration/properties/{name}"
        for name in ("parentRefs", "perBrokerAnnotationsTemplate", "perBrokerLabelsTemplate")
    ],
    "KafkaUser": [
        *(f"authentication/properties/{name}" for name in ("validityDays", "renewalDays")),
        "authentication/x-kubernetes-validations",
    ],
}
"""What the schemas of Strimzi 1.2 have, and those of 1.0, which Event Streams 13.0 is made of, do not."""


@pytest.fixture(scope="module")
def event_streams_server(api_server: ApiServer) -> ApiServer:
    """The API server, knowing the kinds of Event Streams in both dialects."""
    paths = sorted(SCHEMAS.glob("*.yaml"))
    older = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths]
    newer = {definition["spec"]["names"]["kind"]: definition for definition in strimzi_definitions()}
    for definition in older:
        (v1beta2,) = definition["spec"]["versions"]
        schema = in_v1(definition["spec"]["names"]["kind"], newer, v1beta2["schema"])
        v1 = {**v1beta2, "name": "v1", "schema": schema}
        definition["spec"]["versions"] = [v1, {**v1beta2, "storage": False}]
    api_server.install(older)
    return api_server


def in_v1(kind: str, strimzis: dict[str, dict[str, Any]], older: dict[str, Any]) -> dict[str, Any]:
    """The schema of a kind in ``v1``."""
    specs = {}
    for name, definition in strimzis.items():
        schema = copy.deepcopy(definition["spec"]["versions"][0]["schema"])
        specs[name] = schema["openAPIV3Schema"]["properties"]["spec"]
        for path in SINCE_STRIMZI_1_1.get(name, ()):
            *folders, last = f"properties/{path}".split("/")
            here = specs[name]
            for folder in folders:
                here = here[folder]
            del here[last]
    schema = copy.deepcopy(older)
    properties = schema["openAPIV3Schema"]["properties"]
    if kind != "EventStreams":
        properties["spec"] = specs[kind]
        return schema
    overrides = specs["Kafka"]
    pool = specs["KafkaNodePool"]
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    pool["properties"] |= {"name": {"type": "string"}, "annotations": texts, "labels": texts}
    pool["required"].append("name")
    overrides["properties"]["nodePools"] = {"type": "array", "items": pool}
    properties["spec"]["properties"]["strimziOverrides"] = overrides
    return schema


@pytest.fixture(scope="module", params=[SETTINGS, OLDER], ids=lambda settings: settings.version)
def settings(request: pytest.FixtureRequest) -> EventStreams:
    """Of each dialect."""
    given: EventStreams = request.param
    return given


@pytest.fixture(scope="module", params=SCENARIOS)
def resources(request: pytest.FixtureRequest, described: Described) -> list[Document]:
    """What a scenario applies with the inventory of Event Streams."""
    return described(request.param, "eventstreams")


def converted(resources: list[Document], settings: EventStreams) -> list[dict[str, Any]]:
    """The resources in the dialect."""
    documents = [(document.where(), document.content) for document in resources]
    return [content for _, content in to_event_streams(documents, settings)]


def test_every_converted_resource_is_accepted(
    event_streams_server: ApiServer, resources: list[Document], namespace: str, settings: EventStreams
) -> None:
    documents = converted(resources, settings)
    for document in documents:
        try:
            event_streams_server.apply(in_namespace(document, namespace), dry_run=True)
        except RefusedError as error:
            pytest.fail(f"{document['kind']}/{document['metadata']['name']}: {error}")
    plain = ("Deployment", "PersistentVolumeClaim", "Secret", "ConfigMap")
    kinds = {document["kind"] for document in documents if document["apiVersion"] == settings.api_version}
    # Users and programs are in every scenario; what else there is, is there in the dialect, and nothing is left behind.
    assert {"EventStreams", "KafkaTopic", "KafkaUser"} <= kinds
    others = {document.kind for document in resources} - {"Kafka", "KafkaNodePool", *plain}
    assert kinds == {"EventStreams", *others}


@pytest.mark.parametrize(("kind", "version"), [("Kafka", "v1"), ("Kafka", "v1beta2"), ("KafkaMirrorMaker2", "v1beta2")])
def test_the_schemas_tell_the_dialects_apart(
    event_streams_server: ApiServer, described: Described, namespace: str, kind: str, version: str
) -> None:
    found = next(
        document.content
        for scenario in SCENARIOS
        for document in described(scenario, "eventstreams")
        if document.kind == kind
    )
    other = {"Kafka": "EventStreams"}.get(kind, kind)
    renamed = in_namespace(found, namespace) | {"apiVersion": f"{GROUP}/{version}", "kind": other}
    with pytest.raises(RefusedError, match="field not declared in schema"):
        event_streams_server.apply(renamed, dry_run=True)


def test_what_is_applied_is_found_once_in_the_newer_dialect(
    event_streams_server: ApiServer, kubeconfig: Path, namespace: str
) -> None:
    for version in API_VERSIONS:
        topic = {"apiVersion": version, "kind": "KafkaTopic", "spec": {"partitions": 1, "replicas": 1}}
        name = f"in-{version.rpartition('/')[2]}"
        event_streams_server.apply(topic | {"metadata": {"name": name, "namespace": namespace, "labels": LABELS}})
    found = list_own(KubernetesCluster(str(kubeconfig)), namespace, ("KafkaTopic",))["KafkaTopic"]
    assert [(topic["apiVersion"], topic["metadata"]["name"]) for topic in found] == [(V1, "in-v1"), (V1, "in-v1beta2")]
