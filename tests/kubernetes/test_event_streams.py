"""The lab's resources in the dialect of IBM Event Streams, before a real API server.

The schemas in this folder are the project's own, written after IBM's documentation; there is no Event Streams here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.server import ApiServer, RefusedError
from lab.access import ROOT
from platform_kubernetes.event_streams import EventStreams, to_event_streams

from .manifests import File, record
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


@pytest.fixture(scope="module")
def event_streams_server(api_server: ApiServer) -> ApiServer:
    """The API server, knowing the kinds of Event Streams."""
    paths = sorted(SCHEMAS.glob("*.yaml"))
    api_server.install([yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths])
    return api_server


@pytest.fixture(scope="module", params=SCENARIOS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[File]:
    """What a scenario applies with the inventory of Event Streams."""
    return record(request.param, ROOT / "inventories/eventstreams", tmp_path_factory.mktemp("event-streams"))


def converted(files: list[File]) -> list[dict[str, Any]]:
    """The resources of all files in the dialect."""
    result = []
    for file in files:
        documents = [(file.source, document) for document in file.documents]
        result += [document for _, document in to_event_streams(documents, SETTINGS)]
    return result


def test_every_converted_resource_is_accepted(
    event_streams_server: ApiServer, files: list[File], namespace: str
) -> None:
    documents = converted(files)
    for document in documents:
        try:
            event_streams_server.apply(in_namespace(document, namespace), dry_run=True)
        except RefusedError as error:
            pytest.fail(f"{document['kind']}/{document['metadata']['name']}: {error}")
    kinds = {(document["apiVersion"], document["kind"]) for document in documents}
    assert kinds == {
        ("v1", "Namespace"),
        ("apps/v1", "Deployment"),
        *(
            ("eventstreams.ibm.com/v1beta2", kind)
            for kind in ("EventStreams", "KafkaMirrorMaker2", "KafkaTopic", "KafkaUser")
        ),
    }


@pytest.mark.parametrize("kind", ["Kafka", "KafkaMirrorMaker2"])
def test_the_schemas_tell_the_dialects_apart(
    event_streams_server: ApiServer, files: list[File], namespace: str, kind: str
) -> None:
    found = next(document for file in files for document in file.documents if document["kind"] == kind)
    other = {"Kafka": "EventStreams"}.get(kind, kind)
    renamed = in_namespace(found, namespace) | {"apiVersion": "eventstreams.ibm.com/v1beta2", "kind": other}
    with pytest.raises(RefusedError, match="field not declared in schema"):
        event_streams_server.apply(renamed, dry_run=True)
