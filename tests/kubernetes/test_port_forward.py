"""A browser at consoles behind ``kubectl port-forward``: kubectl, the API server and the browser are real.

The kubelet is not: a program of Kubernetes' own streaming code takes its place (scripts/apiserver/port_forward), and
the consoles run on this machine, before made-up clusters.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, expect

from loosehanger.ports import LOOPBACK, free_ports
from loosehanger.waiting import wait_for
from scripts.apiserver.build import NotAvailableError, port_forwarder
from scripts.apiserver.server import ApiServer
from tests.browser.conftest import browser  # noqa: F401 - the machine's browser
from tests.browser.people import person
from tests.consoles import PASSWORD, Running, running, settings

pytestmark = [pytest.mark.kubernetes, pytest.mark.browser, pytest.mark.slow]

NODE = "node"
READY_S = 60


@pytest.fixture(scope="module")
def node(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose kubelet forwards ports and does nothing else."""
    folder = tmp_path_factory.mktemp("node")
    try:
        program = port_forwarder(folder)
    except NotAvailableError as error:
        pytest.skip(str(error))
    (port,) = free_ports(1)
    keys = api_server.folder / "keys"
    command = [str(program), f"{LOOPBACK}:{port}", str(keys / "kube-apiserver.crt"), str(keys / "kube-apiserver.key")]
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        api_server.apply(document)
        api_server.set_status(
            document,
            {
                "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            },
        )
        yield NODE
    finally:
        api_server.delete(document)
        process.terminate()
        process.wait()


def run_pod(api_server: ApiServer, namespace: str, node: str, name: str) -> None:
    """Makes a pod that runs on a node."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "console", "image": "localhost/none"}]},
    }
    api_server.apply(pod)
    api_server.set_status(pod, {"phase": "Running"})


@contextmanager
def forwarded(api_server: ApiServer, folder: Path, namespace: str, pod: str, local: int, port: int) -> Iterator[None]:
    """Runs ``kubectl port-forward`` to a pod."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    kubeconfig = api_server.administrator().write_kubeconfig(folder / f"{pod}.kubeconfig")
    said = folder / f"{pod}.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [kubectl, "--kubeconfig", kubeconfig, "-n", namespace, "port-forward", f"pod/{pod}", f"{local}:{port}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:

        def missing() -> str | None:
            try:
                return None if requests.get(f"http://{LOOPBACK}:{local}/health", timeout=5).ok else "not healthy"
            except requests.RequestException:
                return said.read_text(encoding="utf-8") or "no answer"

        wait_for(missing, READY_S, f"kubectl port-forward pod/{pod}")
        yield
    finally:
        process.terminate()
        process.wait()


def port_of(console: Running) -> int:
    """Where a console listens."""
    return int(console.url.rpartition(":")[2])


def test_consoles_are_used_through_forwarded_ports(
    api_server: ApiServer,
    namespace: str,
    node: str,
    browser: Browser,  # noqa: F811 - the fixture above
    tmp_path: Path,
) -> None:
    names, local = ("europe", "north-america"), free_ports(2)
    urls = {name: f"http://{LOOPBACK}:{port}" for name, port in zip(names, local, strict=True)}
    with ExitStack() as stack:
        consoles = [
            stack.enter_context(running(settings(name, shared_password=True, neighbours=urls, lab_home=None)))
            for name in names
        ]
        for name, port, console in zip(names, local, consoles, strict=True):
            run_pod(api_server, namespace, node, f"console-{name}")
            stack.enter_context(forwarded(api_server, tmp_path, namespace, f"console-{name}", port, port_of(console)))
        europe = person(browser, urls["europe"], "operator", PASSWORD)
        page = europe.page
        expect(page.get_by_role("link", name="LH.ORDERS")).to_be_visible()
        # What the page's stream brings arrives through the same connection.
        consoles[0].service.regions["europe"].cluster.names = ("LH.ORDERS", "LH.RETURNS")
        expect(page.get_by_role("link", name="LH.RETURNS")).to_be_visible()
        page.get_by_text("Consoles", exact=True).click()
        page.get_by_role("button", name="north-america").click()
        expect(page).to_have_url(f"{urls['north-america']}/")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert europe.said == []
        page.context.close()
