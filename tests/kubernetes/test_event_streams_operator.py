"""The role that installs Event Streams, before a real API server. What OLM would do, a thread of the test does."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from scripts.apiserver.server import ApiServer, RefusedError

from .conftest import StartApiServer, delete_all, namespace_document
from .playbooks import run_playbook

pytestmark = pytest.mark.kubernetes

OLM = Path(__file__).with_name("schemas") / "olm"
KEY = "not-a-real-entitlement-key"
PLAYBOOK = [
    {
        "hosts": "regions",
        "tasks": [
            {
                "ansible.builtin.include_role": {
                    "name": "event_streams_operator",
                    "tasks_from": "{{ entry_point | default('main') }}",
                }
            }
        ],
    }
]
NAMESPACES = {
    "event_streams_operator_namespace": "operators",
    "event_streams_operator_catalog_namespace": "catalogues",
}


@pytest.fixture(scope="module")
def server(start_api_server: StartApiServer) -> ApiServer:
    """A cluster with OLM's kinds, and the namespaces that OpenShift has."""
    server = start_api_server("openshift", strimzi=False)
    server.install([yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(OLM.glob("*.yaml"))])
    for name in NAMESPACES.values():
        server.apply(namespace_document(name))
    return server


@pytest.fixture
def region() -> str:
    """A region whose namespace was never used before."""
    return f"region-{uuid4().hex[:8]}"


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(server: ApiServer, region: str, tmp_path: Path) -> Run:
    """Runs the role for the region, as a playbook would."""
    kubeconfig = server.administrator().write_kubeconfig(tmp_path / "kubeconfig")

    def run(*arguments: str, kubeconfig: Path = kubeconfig, **variables: object) -> subprocess.CompletedProcess[str]:
        inventory: dict[str, Any] = {"regions": {"hosts": {region: {}}}}
        (tmp_path / "hosts.yaml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        (tmp_path / "playbook.yaml").write_text(yaml.safe_dump(PLAYBOOK), encoding="utf-8")
        settings: dict[str, object] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "platform_role": "platform_kubernetes",
            "platform_kubernetes_kubeconfig": str(kubeconfig),
            "event_streams_operator_entitlement_key": KEY,
            "event_streams_operator_timeout": 60,
            **NAMESPACES,
            **variables,
        }
        given = ("-i", "hosts.yaml", "playbook.yaml", "-e", json.dumps(settings), *arguments)
        return run_playbook(tmp_path, *given, cwd=tmp_path, timeout=180)

    return run


def olm(kind: str, name: str, namespace: str = "operators", **more: Any) -> dict[str, Any]:
    """A resource of OLM."""
    version = "operators.coreos.com/v1" if kind == "OperatorGroup" else "operators.coreos.com/v1alpha1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **more}


SUBSCRIPTION = olm("Subscription", "ibm-eventstreams")
RELEASE = olm("ClusterServiceVersion", "ibm-eventstreams.v13.0.0", spec={"version": "13.0.0"})
OLDER_RELEASE = olm("ClusterServiceVersion", "ibm-eventstreams.v12.3.1", spec={"version": "12.3.1"})
CATALOGUE = olm("CatalogSource", "loosehanger-event-streams", "catalogues")
GROUP = olm("OperatorGroup", "loosehanger-event-streams")
THEIR_GROUP = olm("OperatorGroup", "global-operators")


@pytest.fixture
def nothing_installed(server: ApiServer) -> Iterator[None]:
    """No operator before, and none after."""
    yield
    delete_all(server, (SUBSCRIPTION, RELEASE, OLDER_RELEASE, CATALOGUE, GROUP, THEIR_GROUP))


def operator_of_somebody_else(server: ApiServer, watched: list[str], installed: str = "") -> dict[str, Any]:
    """Subscribes another account to the operator, for some namespaces ('' is all); returns the subscription."""
    server.apply({**THEIR_GROUP, "spec": {}}, manager="stranger")
    server.set_status(THEIR_GROUP, {"namespaces": watched})
    spec = {"name": "ibm-eventstreams", "channel": "v12.3", "source": "theirs", "sourceNamespace": "catalogues"}
    made = server.apply(SUBSCRIPTION | {"spec": spec}, manager="stranger")
    if installed:
        release = {"13.0.0": RELEASE, "12.3.1": OLDER_RELEASE}[installed]
        server.apply(release)
        server.set_status(release, {"phase": "Succeeded"})
        server.set_status(SUBSCRIPTION, {"installedCSV": release["metadata"]["name"]})
    return made


@pytest.fixture
def lifecycle_manager(server: ApiServer) -> Iterator[None]:
    """A stand-in for OLM: every subscription gets the release."""
    stop = threading.Event()

    def reconcile() -> None:
        while not stop.wait(0.2):
            try:
                found = server.get(SUBSCRIPTION)
                if found and "status" not in found:
                    server.apply(RELEASE)
                    server.set_status(RELEASE, {"phase": "Succeeded"})
                    server.set_status(SUBSCRIPTION, {"installedCSV": RELEASE["metadata"]["name"]})
            except RefusedError:
                continue  # changed in the meantime: look again

    thread = threading.Thread(target=reconcile)
    thread.start()
    yield
    stop.set()
    thread.join()


def present(server: ApiServer, document: dict[str, Any]) -> dict[str, Any]:
    """A resource that must be there."""
    found = server.get(document)
    assert found is not None, document
    return found


@pytest.mark.usefixtures("nothing_installed", "lifecycle_manager")
def test_installs_the_operator_and_gives_the_region_its_key(server: ApiServer, run: Run, region: str) -> None:
    done = run("-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    assert base64.b64encode(f"cp:{KEY}".encode()).decode() not in done.stdout + done.stderr
    assert present(server, SUBSCRIPTION)["spec"] == {
        "name": "ibm-eventstreams",
        "channel": "v13.0",
        "source": "loosehanger-event-streams",
        "sourceNamespace": "catalogues",
        "installPlanApproval": "Automatic",
    }
    assert present(server, CATALOGUE)["spec"]["image"] == (
        "icr.io/cpopen/ibm-eventstreams-catalog@sha256:74fe5cf39af2dc5c0944feb6560e825d258906a1c0f177c6b45d2e2812ed670b"
    )
    assert present(server, GROUP)["metadata"]["labels"]["app.kubernetes.io/part-of"] == "loosehanger-lab"
    secret = present(
        server,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ibm-entitlement-key", "namespace": region}},
    )
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    login = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))["auths"]["cp.icr.io"]
    assert (login["username"], login["password"]) == ("cp", KEY)
    assert base64.b64decode(login["auth"]).decode() == f"cp:{KEY}"

    again = run()
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changed=0" in again.stdout


@pytest.mark.usefixtures("nothing_installed", "lifecycle_manager")
def test_deletes_what_it_installed(server: ApiServer, run: Run) -> None:
    assert run(event_streams_operator_make_pull_secret=False).returncode == 0
    done = run(entry_point="delete")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [server.get(document) for document in (SUBSCRIPTION, RELEASE, CATALOGUE, GROUP)] == [None] * 4
    assert "changed=0" in run(entry_point="delete").stdout


@pytest.mark.usefixtures("nothing_installed", "lifecycle_manager")
def test_uses_an_operator_of_somebody_else_and_leaves_it_alone(server: ApiServer, run: Run) -> None:
    theirs = operator_of_somebody_else(server, [""])
    done = run(event_streams_operator_make_pull_secret=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in done.stdout
    assert present(server, SUBSCRIPTION)["spec"] == theirs["spec"]
    assert server.get(CATALOGUE) is None
    assert "changed=0" in run(entry_point="delete").stdout
    assert present(server, RELEASE)


@pytest.mark.parametrize(
    ("version", "image"),
    [
        ("12.3.1", "@sha256:40e23abe1b421fda06dcd4945be44ddb90b2d528c4520b4620386275490f1ce9"),
        ("12.2.0", ":12.2.0"),
    ],
)
@pytest.mark.usefixtures("nothing_installed")
def test_the_catalogue_is_named_by_its_digest_where_the_kit_knows_it(
    server: ApiServer, run: Run, version: str, image: str
) -> None:
    run(
        event_streams_operator_make_pull_secret=False,
        event_streams_operator_version=version,
        event_streams_operator_timeout=0,
    )
    assert present(server, CATALOGUE)["spec"]["image"] == f"icr.io/cpopen/ibm-eventstreams-catalog{image}"


@pytest.mark.usefixtures("nothing_installed")
def test_an_operator_of_another_major_version_is_refused(server: ApiServer, run: Run) -> None:
    operator_of_somebody_else(server, [""], installed="12.3.1")
    for arguments in ([], ["--check"]):
        done = run(*arguments, event_streams_operator_make_pull_secret=False)
        assert done.returncode == 2
        assert "has installed Event Streams 12.3.1, and event_streams_operator_version is 13.0.0" in done.stdout
    assert run(event_streams_operator_make_pull_secret=False, event_streams_operator_version="12.3.0").returncode == 0


@pytest.mark.usefixtures("nothing_installed")
def test_an_operator_that_does_not_watch_the_region_is_refused(server: ApiServer, run: Run, region: str) -> None:
    operator_of_somebody_else(server, ["elsewhere", "operators"], installed="13.0.0")
    done = run(event_streams_operator_make_pull_secret=False)
    assert done.returncode == 2
    assert f"the operators in operators do not watch the namespace {region}" in done.stdout
    assert server.get(CATALOGUE) is None
    server.set_status(THEIR_GROUP, {"namespaces": ["elsewhere", region]})
    assert run(event_streams_operator_make_pull_secret=False).returncode == 0


@pytest.mark.usefixtures("nothing_installed")
def test_none_is_installed_where_it_would_not_watch_the_region(server: ApiServer, run: Run, region: str) -> None:
    server.apply({**THEIR_GROUP, "spec": {}}, manager="stranger")
    server.set_status(THEIR_GROUP, {"namespaces": ["elsewhere"]})
    done = run(event_streams_operator_make_pull_secret=False)
    assert done.returncode == 2
    assert f"the operators in operators do not watch the namespace {region}" in done.stdout
    assert server.get(SUBSCRIPTION) is None


@pytest.mark.usefixtures("nothing_installed", "lifecycle_manager")
def test_its_own_operator_is_not_made_one_of_another_major_version(server: ApiServer, run: Run) -> None:
    assert run(event_streams_operator_make_pull_secret=False).returncode == 0
    before = present(server, SUBSCRIPTION)["spec"]
    done = run(event_streams_operator_make_pull_secret=False, event_streams_operator_version="12.3.1")
    assert done.returncode == 2
    assert "give -e event_streams_version=13.0.0, or have the operator upgraded" in done.stdout
    assert present(server, SUBSCRIPTION)["spec"] == before


@pytest.mark.usefixtures("nothing_installed")
def test_waits_no_longer_than_it_is_told_and_says_for_what(server: ApiServer, run: Run) -> None:
    operator_of_somebody_else(server, [""])
    server.set_status(SUBSCRIPTION, {"conditions": [{"type": "X", "status": "True", "message": "no such catalogue"}]})
    done = run(event_streams_operator_timeout=5)
    assert done.returncode == 2
    assert "not installed within 5 seconds" in done.stdout + done.stderr
    assert "no such catalogue" in done.stdout + done.stderr


@pytest.mark.usefixtures("nothing_installed")
def test_check_mode_changes_nothing(server: ApiServer, run: Run, region: str) -> None:
    done = run("--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.get(SUBSCRIPTION) is None
    assert server.get(namespace_document(region)) is None


def test_asks_for_the_key_before_it_does_anything(server: ApiServer, run: Run) -> None:
    done = run(event_streams_operator_entitlement_key="")
    assert done.returncode == 2
    assert "set IBM_ENTITLEMENT_KEY" in done.stdout + done.stderr
    assert server.get(SUBSCRIPTION) is None


def test_says_that_a_cluster_cannot_install_operators(api_server: ApiServer, run: Run, tmp_path: Path) -> None:
    kubeconfig = api_server.administrator().write_kubeconfig(tmp_path / "plain")
    done = run(kubeconfig=kubeconfig)
    assert done.returncode == 2
    assert "the cluster has no Operator Lifecycle Manager" in done.stdout + done.stderr
