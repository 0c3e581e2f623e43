"""What consoles on Kubernetes learn of mirrors: a pod without labels asks, and the API server is made up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes import console_facts
from loosehanger.platforms.kubernetes.apply import RegionNamespace
from loosehanger.platforms.kubernetes.resources import ManifestEntry
from loosehanger.platforms.kubernetes.services import ClusterContext

MIRROR = yaml.safe_load((ROOT / "playbooks" / "03-broadcast" / "manifests" / "mm2-na.yaml").read_text(encoding="utf-8"))
URL = "http://mm2-na-mirrormaker2-api.north-america.svc:8083"
WARNING = "north-america: network policies are not enforced here: any pod may change mm2-na"


def console(**spec: Any) -> dict[str, Any]:
    """A console's Deployment, as the role describes it."""
    labels = {"app": "console", "loosehanger-lab/asks-connect": "true"}
    variables = {"CONSOLE_NAME": "north-america", "CONSOLE_REGIONS": "europe,north-america"}
    container = {
        "name": "console",
        "image": "lab:1",
        "securityContext": {"readOnlyRootFilesystem": True},
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": "sign-in", "mountPath": "/etc/console/sign-in"}],
    }
    pod = {"securityContext": {"runAsNonRoot": True}, "containers": [container], "volumes": [{"name": "sign-in"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "console", "namespace": "north-america"},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": {**pod, **spec}}},
    }


class Cluster:
    """Says of the pod that asks how it ended."""

    def __init__(self, ended: dict[str, Any] | None, known: dict[str, Any] | None = None) -> None:
        self.ended = ended
        self.known = known
        self.jobs: list[dict[str, Any]] = []

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        """Takes the Job."""
        self.jobs.append(job)
        return job

    def delete(self, job: dict[str, Any]) -> None:
        """Deletes it."""
        self.jobs = [one for one in self.jobs if one["metadata"]["name"] != job["metadata"]["name"]]

    def list(self, _version: str, _kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        """The Job's pod."""
        (job,) = self.jobs
        assert namespace == "north-america"
        assert selector == f"batch.kubernetes.io/job-name={job['metadata']['name']}"
        state = (
            {"terminated": self.ended} if self.ended else {"waiting": {"reason": "ErrImagePull", "message": "no lab:1"}}
        )
        return [{"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "ask", "state": state}]}}]

    def get(self, *_: str) -> dict[str, Any] | None:
        """The ConfigMap."""
        return self.known


def region(cluster: Cluster, reported: list[str]) -> RegionNamespace:
    """North America, on the same cluster as Europe."""

    class Place(ClusterContext):
        def cluster(self) -> Any:
            return cluster

    place = Place()
    return RegionNamespace(
        "north-america", place, {"north-america": place, "europe": place}, True, "", ROOT, cast(Any, reported.append)
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A record with a mirror in North America, and none in Europe."""
    (tmp_path / "access").mkdir()
    for name, documents in (("europe", []), ("north-america", [{"source": "x", "line": 1, "content": MIRROR}])):
        (tmp_path / "access" / f"{name}.json").write_text(json.dumps({"documents": documents}), encoding="utf-8")
    return tmp_path


def facts(manifests: list[ManifestEntry]) -> dict[str, Any]:
    """What the ConfigMap has of North America's mirrors."""
    return cast(dict[str, Any], json.loads(manifests[0].document["data"]["north-america.json"]))


@pytest.mark.parametrize("is_open", [True, False])
def test_a_mirror_that_answers_a_pod_without_labels_is_warned_of(home: Path, is_open: bool) -> None:
    reported: list[str] = []
    cluster = Cluster({"exitCode": 0, "message": json.dumps([URL] if is_open else [])})
    here = region(cluster, reported)
    found = console_facts.with_facts(here, home, [ManifestEntry("x", console())], dry_run=False)
    assert facts(found)["mm2-na"]["open"] == is_open
    assert [line for line in reported if line.startswith(WARNING)] == (reported if is_open else [])
    assert len(reported) == is_open
    assert cluster.jobs == [], "the Job is gone"
    (container,) = found[1].document["spec"]["template"]["spec"]["containers"]
    assert {"name": "CONSOLE_MIRRORS_FOLDER", "value": console_facts.FOLDER} in container["env"]
    assert console_facts.FOLDER in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_the_pod_that_asks_has_no_label_no_secret_and_no_right() -> None:
    job = console_facts.question(region(Cluster(None), []), [URL], console())
    template = job["spec"]["template"]
    assert "metadata" not in template
    assert job["metadata"]["labels"], "else it would get those of its pods, and clean-up would not know it"
    assert "volumes" not in template["spec"]
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["containers"][0]["image"] == "lab:1"
    assert "env" not in template["spec"]["containers"][0]


@pytest.mark.parametrize("ended", [None, {"exitCode": 1}])
def test_a_pod_that_does_not_answer_stops_nothing_and_leaves_what_is_known(
    home: Path, monkeypatch: pytest.MonkeyPatch, ended: dict[str, Any] | None
) -> None:
    monkeypatch.setattr(console_facts, "ASK_SECONDS", 0)
    reported: list[str] = []
    cluster = Cluster(ended, {"data": {"north-america.json": json.dumps({"mm2-na": {"open": True}})}})
    found = console_facts.with_facts(region(cluster, reported), home, [ManifestEntry("x", console())], dry_run=False)
    assert facts(found)["mm2-na"]["open"] is True
    (line,) = reported
    assert line.endswith("cannot determine whether network policies are enforced")
    assert ("ErrImagePull: no lab:1" if ended is None else "Pod/p ended with exit code 1 and no answer") in line
    assert cluster.jobs == []


def test_check_mode_asks_nothing(home: Path) -> None:
    reported: list[str] = []
    found = console_facts.with_facts(
        region(Cluster(None), reported), home, [ManifestEntry("x", console())], dry_run=True
    )
    assert facts(found)["mm2-na"]["open"] is False
    assert reported == []


def test_a_region_without_mirrors_in_sight_gets_no_config_map(tmp_path: Path) -> None:
    given = [ManifestEntry("x", console())]
    assert console_facts.with_facts(region(Cluster(None), []), tmp_path, given, dry_run=False) == given


def test_what_the_pod_runs_tells_who_answers(tmp_path: Path) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    closed = HTTPServer(("127.0.0.1", 0), Refusing)
    closed.server_close()
    answering, silent = (f"http://127.0.0.1:{one.server_address[1]}" for one in (server, closed))
    program = console_facts.PROGRAM.replace("/dev/termination-log", str(tmp_path / "said"))
    try:
        command = [sys.executable, "-P", "-c", program, silent, answering, "http://nowhere.invalid:8083"]
        subprocess.run(command, check=True, timeout=120)
    finally:
        server.shutdown()
        server.server_close()
    assert json.loads((tmp_path / "said").read_text(encoding="utf-8")) == [answering]
