"""A real Kubernetes API server for the tests, with Strimzi's custom resources and without nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest

from loosehanger.errors import LabError
from loosehanger.lab.manifests.documents import Document
from loosehanger.paths import ROOT
from loosehanger.waiting import wait_for
from scripts.apiserver.build import NotAvailableError, programs
from scripts.apiserver.crds import strimzi_definitions
from scripts.apiserver.server import ApiServer

from . import manifests

Described = Callable[[str, str], list[Document]]
"""What the fixture ``described`` is: of a scenario, and of a platform."""
REQUIRED = "LAB_REQUIRE_KUBERNETES"
"""Set where these tests must run, as in continuous integration: without it they are skipped where they cannot."""
GONE_SECONDS = 60.0
REGIONS = ("europe", "north-america", "south-america")
_PROGRAMS = pytest.StashKey[Path | LabError]()


class StartApiServer(Protocol):
    """What the fixture ``start_api_server`` is."""

    def __call__(self, name: str, *, strimzi: bool = True) -> ApiServer:
        """Gives the server of this name, which is started the first time; without Strimzi's kinds if so asked."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the programs before the first test, whose time would not do for it."""
    if session.config.option.collectonly or not any(item.get_closest_marker("kubernetes") for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            session.config.stash[_PROGRAMS] = programs()
        except LabError as error:
            session.config.stash[_PROGRAMS] = error


@pytest.fixture(scope="session")
def start_api_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartApiServer]:
    """Starts API servers, each with data of its own (3 seconds, 0.4 GB); they end with the tests."""
    found = pytestconfig.stash[_PROGRAMS]
    if isinstance(found, NotAvailableError) and not os.environ.get(REQUIRED):
        pytest.skip(str(found))
    if isinstance(found, LabError):
        pytest.fail(str(found), pytrace=False)
    servers: dict[str, ApiServer] = {}

    def start(name: str, *, strimzi: bool = True) -> ApiServer:
        if name not in servers:
            servers[name] = ApiServer(found, tmp_path_factory.mktemp(f"api-server-{name}"))
            servers[name].start()
            if strimzi:
                servers[name].install(strimzi_definitions())
        return servers[name]

    yield start
    for server in servers.values():
        server.stop()


@pytest.fixture(scope="session")
def api_server(start_api_server: StartApiServer) -> ApiServer:
    """The server that most tests share."""
    return start_api_server("main")


@pytest.fixture(scope="session")
def other_api_server(start_api_server: StartApiServer) -> ApiServer:
    """A second cluster, for regions that have one each."""
    return start_api_server("other")


@pytest.fixture(scope="session")
def described(tmp_path_factory: pytest.TempPathFactory) -> Described:
    """What a scenario applies on a platform; the playbook of either runs once for all tests."""

    @cache
    def get(scenario: str, platform: str) -> list[Document]:
        return manifests.described(scenario, ROOT / "inventories" / platform, tmp_path_factory.mktemp(platform))

    return get


@pytest.fixture
def controllers(api_server: ApiServer) -> None:
    """For tests that need more than the API: namespaces that end, service accounts that come with them."""
    if not api_server.has_controllers:
        reason = "KUBEBUILDER_ASSETS has no kube-controller-manager; unset it to have one built"
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(reason)


@pytest.fixture
def kubeconfig(api_server: ApiServer, tmp_path: Path) -> Path:
    """The administrator's kubeconfig."""
    return api_server.administrator().write_kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def make_namespace(api_server: ApiServer) -> Iterator[Callable[[], str]]:
    """Makes namespaces that were never used before."""
    made: list[str] = []

    def make() -> str:
        made.append(f"test-{uuid4().hex[:8]}")
        api_server.apply(namespace_document(made[-1]))
        return made[-1]

    yield make
    for name in made:
        api_server.delete(namespace_document(name))


@pytest.fixture
def namespace(make_namespace: Callable[[], str]) -> str:
    """A namespace that was never used before."""
    return make_namespace()


@pytest.fixture
def without_regions(api_server: ApiServer, controllers: None) -> Iterator[None]:  # noqa: ARG001
    """Begins and ends without the namespaces of the regions, which the kit makes."""
    delete_namespaces(api_server, *REGIONS)
    yield
    delete_namespaces(api_server, *REGIONS)


def delete_namespaces(server: ApiServer, *names: str) -> None:
    """Deletes namespaces with all that is in them, and waits until they are gone."""
    delete_all(server, [namespace_document(name) for name in names])


def delete_all(server: ApiServer, documents: Iterable[dict[str, Any]]) -> None:
    """Deletes resources, and waits until they are gone: a kind or a namespace takes seconds to end."""
    deleted = list(documents)
    for document in deleted:
        server.delete(document)
    wait_for(lambda: next((server.path(d) for d in deleted if server.get(d)), None), GONE_SECONDS, "deletion")


def namespace_document(name: str) -> dict[str, Any]:
    """The manifest of a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
