"""Commands in pods: what the API server is asked for. Nothing runs there, so what pods answer is tested elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from loosehanger.errors import LabError
from loosehanger.lab.progress import Progress
from loosehanger.lab.record import Lab, Pod, Region
from loosehanger.platforms.kubernetes import pods
from loosehanger.platforms.kubernetes.resources import labelled
from scripts.apiserver.server import ApiServer, RefusedError

from .conftest import namespace_document

pytestmark = pytest.mark.kubernetes


def lab(namespace: str, kubeconfig: Path, image: str = "localhost/loosehanger-lab:0.1.0") -> Lab:
    pod = Pod(namespace, str(kubeconfig), "", image, f"loosehanger-lab-access-{namespace}")
    clients = {"prover": Path(f"/opt/lab/access/{namespace}/prover.properties")}
    region = Region(namespace, "europe", clients, {}, (), pod)
    return Lab("03-broadcast", "kubernetes", "inventories/strimzi", {namespace: region})


def jobs(server: ApiServer, namespace: str) -> list[str]:
    return [
        job["metadata"]["name"] for job in server.request("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
    ]


def test_a_pod_that_does_not_start_is_told_and_leaves_nothing(
    api_server: ApiServer, kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pods, "START_SECONDS", 0.5)
    Progress("03-broadcast", "kubernetes", "inventories/strimzi", "setup").write(tmp_path)
    one = lab(namespace, kubeconfig)
    assert one.pod
    with pytest.raises(LabError, match=rf"{namespace}: Job/lab-prove-\w+: its pod did not start within"):
        pods.run(one, one.pod, "prove", ["--json"], home=tmp_path)
    assert jobs(api_server, namespace) == []


@pytest.mark.usefixtures("controllers")
def test_what_a_killed_command_has_left_behind_is_ended(
    api_server: ApiServer, kubeconfig: Path, namespace: str
) -> None:
    one = lab(namespace, kubeconfig)
    assert one.pod
    for command in ("step", "prove"):
        job = labelled(pods._job(one, one.pod, command, []))
        api_server.apply(job)
        api_server.apply({**pods._config_map(job["metadata"], {}), "data": {}})
    theirs = pods._job(one, one.pod, "step", [])
    # Without labels of its own, a Job gets those of its pods.
    theirs["metadata"]["labels"] = {"app": "a-strangers"}
    api_server.apply(theirs)
    pods.end_all(one.pod, "step")
    left = jobs(api_server, namespace)
    assert theirs["metadata"]["name"] in left, "the kit was not asked to"
    assert [name.split("-")[1] for name in left if name != theirs["metadata"]["name"]] == ["prove"]
    reported = api_server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    assert [name.split("-")[1] for one in reported if (name := one["metadata"]["name"]).startswith("lab-")] == ["prove"]


@pytest.mark.parametrize("arguments", [["--json"], ["--master", "k8s://https://kubernetes.default.svc"]])
def test_its_pod_passes_the_restricted_profile(
    api_server: ApiServer, kubeconfig: Path, namespace: str, arguments: list[str]
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api_server.apply({**namespace_document(namespace), "metadata": {"name": namespace, "labels": labels}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace}}
    for name in ("default", "loosehanger-lab-spark"):
        api_server.apply({**account, "metadata": {"name": name, "namespace": namespace}})
    one = lab(namespace, kubeconfig)
    assert one.pod
    job = pods._job(one, one.pod, "prove", arguments)
    template = job["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "prove", "namespace": namespace}}
    try:
        api_server.apply({**pod, "spec": template["spec"]}, dry_run=True)
    except RefusedError as error:
        pytest.fail(str(error))
