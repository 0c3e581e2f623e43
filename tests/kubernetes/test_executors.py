"""Executors of Spark: a real driver asks a real API server for their pods. There is no node to run them on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.paths import ROOT, lab_home
from loosehanger.platforms.kubernetes import pods
from loosehanger.proof import submit
from loosehanger.waiting import wait_for
from scripts.apiserver.server import ApiServer

from .conftest import namespace_document
from .test_pods import lab

pytestmark = [pytest.mark.kubernetes, pytest.mark.spark]

ACCOUNT = "loosehanger-lab-spark"
EXECUTORS_SECONDS = 180
NO_NODES = "spark.scheduler.maxRegisteredResourcesWaitingTime=0s"
"""Spark need not wait for executors to report: none will."""
DRIVER = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("executors").getOrCreate()
print("ready", flush=True)
input()
spark.stop()
"""


def test_the_documented_rights_suffice_for_executors_under_the_restricted_profile(
    api_server: ApiServer, kubeconfig: Path, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api_server.apply({**namespace_document(namespace), "metadata": {"name": namespace, "labels": labels}})
    api_server.apply({**account("default"), "metadata": {"name": "default", "namespace": namespace}})
    for document in yaml.safe_load_all((ROOT / "docs" / "spark-executors.yaml").read_text(encoding="utf-8")):
        document["metadata"]["namespace"] = namespace
        api_server.apply(document)
    one = lab(namespace, kubeconfig)
    assert one.pod
    driver = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "namespace": namespace}}
    template = pods._job(one, one.pod, "prove", ["--master", "k8s://here"])["spec"]["template"]
    api_server.apply({**driver, "spec": template["spec"]})
    monkeypatch.setattr(pods, "HOME", str(tmp_path))
    monkeypatch.setattr(pods, "TEMPLATE_IN_POD", str(tmp_path / "executor.yaml"))
    (tmp_path / "executor.yaml").write_text(template["metadata"]["annotations"][pods.TEMPLATE], encoding="utf-8")
    (tmp_path / "access" / namespace).mkdir(parents=True)
    (tmp_path / "access" / namespace / "prover.properties").write_text("password=secret\n", encoding="ascii")

    given = [word for word in pods.executors(one, one.pod) if word != "--conf"]
    of_this_pod = {"$(POD_NAME)": "driver", "$(POD_IP)": "127.0.0.1"}
    conf = [name + "=" + of_this_pod.get(value, value) for name, _, value in (word.partition("=") for word in given)]
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        env=submit.environment(
            lab_home(),
            f"k8s://{api_server.address}",
            "512m",
            [*conf, NO_NODES, *in_place_of_the_mounted_token(api_server, namespace, tmp_path)],
        )
        | {"LAB_SPARK_LOG": str(tmp_path / "spark.log"), "HOME": str(tmp_path)},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for(lambda: None if executors(api_server, namespace) else "no pods", EXECUTORS_SECONDS, "executors")
        found = executors(api_server, namespace)[0]
        assert found["metadata"]["ownerReferences"][0]["name"] == "driver"
        assert found["metadata"]["labels"]["app.kubernetes.io/part-of"] == "loosehanger-lab"
        container = found["spec"]["containers"][0]
        assert container["image"] == one.pod.image
        assert container["command"] == ["python", "-P", "-m", "loosehanger.proof.executor"]
        assert "_SPARK_AUTH_SECRET" not in {variable["name"] for variable in container["env"]}
        (access,) = (volume for volume in found["spec"]["volumes"] if volume["name"] == "access")
        items = [item["path"] for source in access["projected"]["sources"] for item in source["secret"]["items"]]
        assert items == [f"{namespace}/ca.crt", f"{namespace}/prover.properties"]
        assert not any("secret" in volume for volume in found["spec"]["volumes"])
        assert {"name": "access", "mountPath": "/opt/lab/access", "readOnly": True} in container["volumeMounts"]
    finally:
        said, _ = process.communicate("\n", timeout=60)
    assert process.returncode == 0, said
    assert executors(api_server, namespace) == []
    assert "Forbidden" not in (tmp_path / "spark.log").read_text(encoding="utf-8")


def account(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def in_place_of_the_mounted_token(server: ApiServer, namespace: str, folder: Path) -> list[str]:
    """Spark's settings for what it finds by itself in a pod: the token of the service account, and the authority."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(server.request("POST", path, review)["status"]["token"], encoding="ascii")
    (folder / "ca.crt").write_bytes(server.administrator().authority)
    prefix = "spark.kubernetes.authenticate"
    return [f"{prefix}.oauthTokenFile={folder / 'token'}", f"{prefix}.caCertFile={folder / 'ca.crt'}"]


def executors(server: ApiServer, namespace: str) -> list[dict[str, Any]]:
    found = server.request("GET", f"/api/v1/namespaces/{namespace}/pods", labelSelector="spark-role=executor")
    return list(found["items"])
