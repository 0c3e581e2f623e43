"""The audit as a Deployment on Kubernetes: what its pod gets. No node runs it here, and operators are a stand-in."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loosehanger.audit.service import digest
from loosehanger.jobs.audit import arguments
from loosehanger.kafka.connection import Connection
from loosehanger.lab.progress import required_progress
from loosehanger.lab.record import load_lab
from scripts.apiserver.server import ApiServer
from scripts.sandbox import Kit

from .commands import copy_kit_for, present, resource, setup
from .conftest import REGIONS, delete_namespaces
from .stand_in import StandIn

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


@pytest.fixture(scope="module")
def audited(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The broadcast with an audit that sends canaries."""
    if not api_server.has_controllers:
        pytest.skip("there is no kube-controller-manager, without which no namespace ends")
    delete_namespaces(api_server, *REGIONS)
    folder = tmp_path_factory.mktemp("audited")
    kit = copy_kit_for(api_server.administrator().write_kubeconfig(folder / "kubeconfig"), folder)
    with StandIn(api_server, REGIONS):
        done = setup(kit, "-e", "audit=true", "-e", "console_audit_canary=60")
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
        delete_namespaces(api_server, *REGIONS)


def pod_of(server: ApiServer) -> dict[str, Any]:
    """The specification of its pod."""
    found: dict[str, Any] = present(server, "apps/v1", "Deployment", "audit", "europe")["spec"]["template"]["spec"]
    return found


def mounted(server: ApiServer, pod: Mapping[str, Any], folder: Path) -> None:
    """Writes the files of its projected volume, as a kubelet would."""
    (volume,) = (volume["projected"] for volume in pod["volumes"] if "projected" in volume)
    for source in volume["sources"]:
        ((kind, given),) = source.items()
        found = present(server, "v1", {"secret": "Secret", "configMap": "ConfigMap"}[kind], given["name"], "europe")
        for item in given["items"]:
            text = found["data"][item["key"]]
            path = folder / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(text) if kind == "secret" else text.encode())


def test_its_pod_has_the_record_of_the_lab_with_the_users_it_needs(
    audited: Kit, api_server: ApiServer, tmp_path: Path
) -> None:
    assert audited
    pod = pod_of(api_server)
    mounted(api_server, pod, tmp_path / "access")
    lab = load_lab(tmp_path)
    assert set(lab.clusters) == set(REGIONS)
    assert {(one.source, one.target) for one in lab.mirrors} == {("europe", name) for name in REGIONS[1:]}
    progress = required_progress(tmp_path)
    assert (progress.stage, progress.unfinished) == ("setup", "")
    assert len(digest(tmp_path / "access")) == 64
    for name in REGIONS:
        files = {path.name for path in (tmp_path / "access" / name).iterdir()}
        assert files == {"ca.crt", "prover.properties", "admin.properties"}
        found = Connection.from_properties(tmp_path / "access" / name / "prover.properties")
        assert (found.username, found.password) == ("prover", f"password-of-prover-in-{name}")
    (container,) = pod["containers"]
    command = container["command"]
    assert command[3:5] == ["loosehanger.proof.submit", "audit"]
    arguments().parse_args(command[command.index("--state") :])
    written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert {"/tmp", "/var/lib/audit", "/opt/lab/logs"} <= written  # noqa: S108 - of a pod
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_an_image_without_spark_is_refused_and_the_audit_leaves(audited: Kit, api_server: ApiServer) -> None:
    done = setup(
        audited, "-e", "audit=true", "-e", "platform_kubernetes_python_image=docker.io/library/python:3.13-slim"
    )
    assert done.returncode == 2
    assert "europe: the audit needs Spark, which only the kit's own image has; leave out -e audit=true" in done.stderr
    done = setup(audited, "-e", "audit=false")
    assert done.returncode == 0, done.stdout + done.stderr
    assert api_server.get(resource("apps/v1", "Deployment", "audit", "europe")) is None
