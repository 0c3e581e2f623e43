"""The API server that the other tests rely on is one: it keeps, checks and guards what it is given."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml
from kubernetes import client
from kubernetes.config import new_client_from_config

from loosehanger.waiting import wait_for
from scripts.apiserver.build import kubernetes_version
from scripts.apiserver.server import ApiServer, RefusedError, write_kubeconfig

from .conftest import StartApiServer, delete_namespaces

pytestmark = pytest.mark.kubernetes


def config_map(namespace: str, **data: str) -> dict[str, Any]:
    """A resource of Kubernetes' own."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "sample", "namespace": namespace},
        "data": data,
    }


def core_api(kubeconfig: Path, context: str | None = None) -> client.CoreV1Api:
    """The API, as a client with this kubeconfig sees it."""
    return client.CoreV1Api(new_client_from_config(str(kubeconfig), context))  # type: ignore[no-untyped-call]


@pytest.mark.skipif("KUBEBUILDER_ASSETS" in os.environ, reason="KUBEBUILDER_ASSETS may be of any version")
def test_it_says_its_version(api_server: ApiServer) -> None:
    assert api_server.request("GET", "/version")["gitVersion"] == kubernetes_version()


def test_it_keeps_what_is_applied(api_server: ApiServer, namespace: str) -> None:
    wanted = config_map(namespace, a="1")
    assert api_server.get(wanted) is None
    api_server.apply(wanted, dry_run=True)
    assert api_server.get(wanted) is None
    api_server.apply(wanted)
    kept = api_server.get(wanted)
    assert kept is not None
    assert kept["data"] == {"a": "1"}
    api_server.delete(wanted)
    assert api_server.get(wanted) is None


def test_it_refuses_unknown_fields_and_kinds(api_server: ApiServer, namespace: str) -> None:
    with pytest.raises(RefusedError, match=r"\.datum: field not declared in schema"):
        api_server.apply(config_map(namespace) | {"datum": {}})
    with pytest.raises(RefusedError, match="no kind ConfigMop in v1"):
        api_server.apply(config_map(namespace) | {"kind": "ConfigMop"})


def test_an_account_may_do_what_rbac_says_and_nothing_else(
    api_server: ApiServer, make_namespace: Callable[[], str], tmp_path: Path
) -> None:
    own, others = make_namespace(), make_namespace()
    account = api_server.account("stranger", "some-group")
    kubeconfig = write_kubeconfig(tmp_path / "some/kubeconfig", {"one": account, "two": account})
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE(kubeconfig.parent.stat().st_mode) == 0o700
    core = core_api(kubeconfig, context="two")
    with pytest.raises(client.ApiException, match="Forbidden"):
        core.list_namespaced_config_map(own)
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "readers", "namespace": own}}
    readers = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "readers"}
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "some-group"}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    api_server.apply(rbac | {"kind": "Role", "rules": [rule]})
    api_server.apply(rbac | {"kind": "RoleBinding", "roleRef": readers, "subjects": [group]})

    def refused() -> str | None:
        """The server hears of its own new rules a moment later."""
        try:
            core.list_namespaced_config_map(own)
        except client.ApiException as error:
            return str(error)
        return None

    wait_for(refused, 20, "the new rule")
    with pytest.raises(client.ApiException, match="Forbidden"):
        core.list_namespaced_config_map(others)
    with pytest.raises(client.ApiException, match="Forbidden"):
        core.create_namespaced_config_map(own, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="sample")))


def test_nobody_gets_in_without_a_certificate(api_server: ApiServer) -> None:
    authority = str(api_server.folder / "keys/ca.crt")
    answer = requests.get(f"{api_server.address}/api/v1/namespaces", verify=authority, timeout=10)
    assert answer.status_code == requests.codes.forbidden


def test_a_status_is_what_an_operator_writes(api_server: ApiServer, namespace: str) -> None:
    topic = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaTopic",
        "metadata": {"name": "orders", "namespace": namespace},
        "spec": {"partitions": 3},
    }
    api_server.apply(topic)
    api_server.set_status(topic, {"observedGeneration": 1})
    kept = api_server.get(topic)
    assert kept is not None
    assert kept["status"] == {"observedGeneration": 1}
    assert kept["spec"] == {"partitions": 3}


@pytest.mark.usefixtures("controllers")
def test_a_deleted_namespace_ends_with_all_that_is_in_it(
    api_server: ApiServer, make_namespace: Callable[[], str]
) -> None:
    name = make_namespace()
    api_server.apply(config_map(name))
    delete_namespaces(api_server, name)
    assert api_server.get(config_map(name)) is None


def test_it_ends_and_leaves_nothing(start_api_server: StartApiServer) -> None:
    before = set(psutil.Process().children(recursive=True))
    server = start_api_server("short-lived", strimzi=False)
    started = set(psutil.Process().children(recursive=True)) - before
    assert {process.name() for process in started} >= {"etcd", "kube-apiserver"}
    server.stop()
    assert not any(process.is_running() for process in started)
    for key in server.folder.glob("keys/*"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600, key


def test_a_server_that_cannot_start_says_why(start_api_server: StartApiServer, tmp_path: Path) -> None:
    server = start_api_server("blueprint", strimzi=False)
    server.stop()
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/etcd").symlink_to(server.programs / "etcd")
    broken = tmp_path / "programs/kube-apiserver"
    broken.write_text("#!/bin/sh\necho no such luck\nexit 3\n", encoding="utf-8")
    broken.chmod(0o755)
    other = ApiServer(tmp_path / "programs", tmp_path / "server")
    with pytest.raises(Exception, match="kube-apiserver ended with 3: no such luck"):
        other.start()


def test_the_kubeconfig_is_the_administrators(kubeconfig: Path, namespace: str) -> None:
    assert yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["current-context"] == "kubernetes"
    core = core_api(kubeconfig)
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="sample")))
    assert core.list_namespaced_config_map(namespace).items
