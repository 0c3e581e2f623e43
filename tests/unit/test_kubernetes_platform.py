"""The Kubernetes platform's own reasoning: what is ready and why not, and what pods get beside their manifests."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from loosehanger.cli import commands
from loosehanger.errors import LabError, UnreachableError, WrongUseError
from loosehanger.kafka.connected import connected
from loosehanger.lab.manifests.documents import read_documents
from loosehanger.lab.record import Lab, Pod, Progress, Region, region_record
from loosehanger.lab.scenario import read_scenario
from loosehanger.lab.topology import Topology
from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes import access, apply, bundle, pods, preflight, programs, rights, services, topics
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster, LogCutError
from loosehanger.platforms.kubernetes.event_streams import V1, V1BETA2, EventStreams
from loosehanger.platforms.kubernetes.pod_entry import user_name
from loosehanger.platforms.kubernetes.preflight import quantity
from loosehanger.platforms.kubernetes.readiness import by_reason, pod_problems, waiting_for
from loosehanger.platforms.kubernetes.resources import ManifestEntry, check_documents
from loosehanger.platforms.kubernetes.status import cluster_health, mirror_health, program_health, status
from loosehanger.platforms.pod_files import FILES
from loosehanger.platforms.redact import redact_folder

from .. import topologies

MIRROR = yaml.safe_load((ROOT / "playbooks" / "03-broadcast" / "manifests" / "mm2-na.yaml").read_text(encoding="utf-8"))
CONNECTOR = "europe->northamerica.MirrorSourceConnector"


def kafka(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "Kafka",
        "metadata": {"name": "europe", "namespace": "europe", "generation": 2},
        "spec": {"kafka": {}},
        **({"status": status} if status else {}),
    }


def mirror(connectors: list[dict[str, Any]], *, said: str = "True") -> dict[str, Any]:
    status = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": said}], "connectors": connectors}
    return {**MIRROR, "metadata": {**MIRROR["metadata"], "generation": 1}, "status": status}


def connector(state: str, *tasks: str, trace: str = "") -> dict[str, Any]:
    listed = [{"id": number, "state": task, "trace": trace} for number, task in enumerate(tasks)]
    return {"name": CONNECTOR, "connector": {"state": state}, "tasks": listed}


READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (kafka(observedGeneration=2, conditions=[READY]), None),
        (kafka(), "no operator has reconciled it yet"),
        (kafka(observedGeneration=1, conditions=[READY]), r"not seen its newest version yet \(generation 2, seen: 1\)"),
        (
            kafka(
                observedGeneration=2,
                conditions=[{"type": "NotReady", "status": "True", "reason": "Invalid", "message": "no\nnodes"}],
            ),
            "^Invalid: no nodes$",
        ),
        (
            kafka(observedGeneration=2, conditions=[{"type": "ReconciliationPaused", "status": "True"}]),
            "Paused is True",
        ),
        (mirror([connector("RUNNING", "RUNNING")]), None),
        (mirror([]), f"^{CONNECTOR} is not there$"),
        (
            mirror([connector("RUNNING", "FAILED", trace="SaslException: no\n at x")]),
            "task 0 is FAILED: SaslException: no$",
        ),
        (mirror([connector("PAUSED", "PAUSED")]), "is PAUSED"),
    ],
)
def test_what_a_resource_waits_for(document: dict[str, Any], reason: str | None) -> None:
    found = waiting_for(document)
    assert (found is None) == (reason is None)
    assert reason is None or (found and re.search(reason, found))


def deployment(generation: int, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "producer", "generation": generation},
        "spec": {"replicas": 2},
        "status": status,
    }


def test_a_deployment_is_ready_when_all_its_new_pods_are_available() -> None:
    counts = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    assert waiting_for(deployment(1, observedGeneration=1, **counts)) is None
    assert waiting_for(deployment(2, observedGeneration=1, **counts))
    # The old pods still run.
    assert waiting_for(deployment(1, observedGeneration=1, **{**counts, "replicas": 3}))
    condition = {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "no pods"}
    reason = waiting_for(deployment(1, observedGeneration=1, replicas=2, updatedReplicas=2, conditions=[condition]))
    assert reason == "0 of 2 pods available; MinimumReplicasUnavailable: no pods"


def test_a_pod_says_why_it_does_not_run() -> None:
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    status = {"containerStatuses": [{"name": "producer", "ready": False, "state": {"waiting": waiting}}]}
    assert list(pod_problems({"metadata": {"name": "p"}, "status": status})) == ["pod p: ErrImagePull: not found"]
    condition = {"type": "PodScheduled", "status": "False", "message": "Insufficient memory"}
    problems = list(pod_problems({"metadata": {"name": "p"}, "status": {"conditions": [condition]}}))
    assert problems == ["pod p cannot be scheduled: Insufficient memory"]


def test_what_many_wait_for_is_told_once() -> None:
    later = dict.fromkeys(("KafkaUser/a", "KafkaUser/b", "KafkaUser/c"), "later")
    assert (
        by_reason({"Kafka/west": "not yet", **later})
        == "Kafka/west: not yet; KafkaUser/a, KafkaUser/b, KafkaUser/c: later"
    )
    reasons = {"KafkaTopic/t": "later", "Kafka/west": "not yet", **later, "KafkaUser/d": "later"}
    assert by_reason(reasons) == "KafkaTopic/t, KafkaUser/a, KafkaUser/b and 2 more: later; Kafka/west: not yet"
    assert by_reason({}) == ""


class OnePod:
    """A cluster with a Deployment, whose only pod gets its image when it has been asked for often enough."""

    name = "kind"

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def get(self, *_: object) -> dict[str, Any]:
        self.looks -= 1
        available = 0 if self.looks > 0 else 2
        counts = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": available}
        return deployment(1, observedGeneration=1, **counts)

    def list(self, *_: object) -> list[dict[str, Any]]:
        state = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        status = {"containerStatuses": [{"name": "producer", "ready": False, "state": state}]}
        return [{"metadata": {"name": "p"}, "status": status}]


def test_while_it_waits_it_tells_what_keeps_pods_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "REPORT_SECONDS", 0)
    reported: list[str] = []
    region = apply.RegionNamespace("europe", services.ClusterContext(), {}, True, "", ROOT, reported.append)
    document = deployment(1)
    document["spec"]["selector"] = {"matchLabels": {"app": "producer"}}
    apply._wait_ready(region, cast(Any, OnePod(looks=3)), [ManifestEntry("producer.yaml", document)], bound=20)
    assert (
        reported[-1] == "europe: waiting for Deployment/producer: 0 of 2 pods available; pod p: ErrImagePull: not found"
    )


def test_health_tells_numbers_or_the_reason() -> None:
    topic = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaTopic",
        "metadata": {"name": "orders", "generation": 1, "labels": {"strimzi.io/cluster": "europe"}},
        "spec": {"partitions": 3},
        "status": {"observedGeneration": 1, "conditions": [READY]},
    }
    pool = {"metadata": {"labels": {"strimzi.io/cluster": "europe"}}, "spec": {"replicas": 1}}
    well = kafka(observedGeneration=2, conditions=[READY])
    assert cluster_health(well, [pool], [topic])[2:] == (True, "Running", "1 node, 1 topic, 3 partitions")
    assert cluster_health(kafka(), [pool], [topic])[2:4] == (False, "Down")
    assert cluster_health(well, [pool], [{**topic, "status": {}}])[2:4] == (False, "Degraded")
    detail = "from europe: 1 connector, 1 task on 1 worker"
    assert mirror_health(mirror([connector("RUNNING", "RUNNING")]))[2:] == (True, "Running", detail)
    assert mirror_health(mirror([connector("RUNNING")]))[2:4] == (False, "Degraded")


def test_a_pod_that_does_not_run_is_told_before_the_operator_has_noticed() -> None:
    def pod(kind: str, cluster: str) -> dict[str, Any]:
        containers = [{"name": "kafka", "ready": False, "state": {"running": {}}}]
        labels = {"strimzi.io/cluster": cluster, "strimzi.io/kind": kind}
        return {"metadata": {"name": f"{cluster}-0", "labels": labels}, "status": {"containerStatuses": containers}}

    well = kafka(observedGeneration=2, conditions=[{"type": "Ready", "status": "True"}])
    lame = [pod("Kafka", "europe"), pod("KafkaMirrorMaker2", "mm2-na")]
    said = "pod europe-0: container kafka is running and not ready"
    assert cluster_health(well, [], [], lame)[2:] == (False, "Degraded", said)
    assert cluster_health(well, [], [], [pod("KafkaMirrorMaker2", "europe")])[2]
    copying = mirror([connector("RUNNING", "RUNNING")])
    said = "pod mm2-na-0: container kafka is running and not ready"
    assert mirror_health(copying, lame)[2:] == (False, "Degraded", said)


class OneMirror:
    """A cluster with a mirror, whose worker's log names the topic that its task failed for."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def allowed(self, _: dict[str, str]) -> bool:
        """Everything is."""
        return True

    def serves(self, _version: str, _kind: str) -> bool:
        """Not Event Streams."""
        return False

    def list(self, version: str, kind: str, _namespace: str, _selector: str = "") -> list[dict[str, Any]]:
        """The mirror, its pod, and nothing else."""
        if version not in ("v1", self.found["apiVersion"]):
            return []
        labels = {"strimzi.io/cluster": self.found["metadata"]["name"], "strimzi.io/kind": "KafkaMirrorMaker2"}
        spec = {"containers": [{"name": "worker"}]}
        pod = {"metadata": {"name": "worker-0", "labels": labels}, "spec": spec, "status": {}}
        return {"KafkaMirrorMaker2": [self.found], "Pod": [pod]}.get(kind, [])

    def log(self, _: str, pod: str, container: str, _lines: int) -> str:
        """As the operator's workers write it."""
        assert (pod, container) == ("worker-0", "worker")
        return (
            f"2026-01-01 00:00:01 ERROR [task-thread-{CONNECTOR}-0] AbstractWorkerSourceTask:430 - "
            f"ExactlyOnceWorkerSourceTask{{id={CONNECTOR}-0}} failed to send record to LH.BIG: \n"
            "org.apache.kafka.common.errors.RecordTooLargeException: The message is 10000088 bytes\n"
        )


def test_status_names_the_topic_that_a_task_failed_for() -> None:
    reason = "org.apache.kafka.common.errors.RecordTooLargeException: The message is 10000088 bytes"
    failed = mirror(
        [connector("RUNNING", "FAILED", trace=f"org.x.ConnectException: no\nCaused by: {reason}\n\tat a.b")]
    )
    failed["metadata"] = {**failed["metadata"], "namespace": "north-america"}
    (found,) = status(cast(Any, OneMirror(failed)), "north-america")
    assert f"task 0 is FAILED: {reason} (topic LH.BIG)" in found["detail"]


def held(state: str, *, replicas: int = 1) -> dict[str, Any]:
    """The mirror's manifest with its connector stopped or paused."""
    entry = MIRROR["spec"]["mirrors"][0]
    changed = {**entry, "sourceConnector": {**entry["sourceConnector"], "state": state}}
    return {**MIRROR, "spec": {**MIRROR["spec"], "replicas": replicas, "mirrors": [changed]}}


def test_a_mirror_is_healthy_when_it_is_as_the_kit_wants_it() -> None:
    running, stopped = mirror([connector("RUNNING", "RUNNING")]), {**mirror([connector("STOPPED")]), **held("stopped")}
    stopped["metadata"] = running["metadata"]
    assert waiting_for(stopped) is None
    # Its own word is taken where nothing else is known.
    for described in (None, held("stopped")):
        health = mirror_health(stopped, (), described)
        assert health[2:] == (True, "Stopped", f"as it should be: {CONNECTOR} is STOPPED")
    # Stopped by hand, in the resource or at the connector, and started by hand.
    assert not mirror_health(stopped, (), MIRROR)[2]
    assert mirror_health(mirror([connector("STOPPED")]), (), MIRROR)[2:4] == (False, "Degraded")
    said = f"{CONNECTOR} is RUNNING and should be STOPPED"
    assert said in mirror_health(running, (), held("stopped"))[4]


def test_replicas_are_as_the_kit_wants_them() -> None:
    none = mirror([])
    none["spec"] = {**MIRROR["spec"], "replicas": 0}
    assert mirror_health(none)[2:] == (True, "Stopped", "as it should be: spec.replicas is 0")
    assert mirror_health(none, (), MIRROR)[2:] == (False, "Stopped", "spec.replicas is 0 and should be 1")
    running = mirror([connector("RUNNING", "RUNNING")])
    said = (False, "Degraded", "spec.replicas is 1 and should be 0")
    assert mirror_health(running, (), held("running", replicas=0))[2:] == said

    program, now = deployment(1, observedGeneration=1), datetime.now(UTC)
    program["spec"] = {"replicas": 0, "selector": {"matchLabels": {"app": "producer"}}}
    assert program_health(program, (), now)[2:] == (True, "Stopped", "as it should be: spec.replicas is 0")
    described = {"spec": {"replicas": 2}}
    assert program_health(program, (), now, described)[2:] == (False, "Stopped", "spec.replicas is 0 and should be 2")


@pytest.mark.parametrize(("text", "number"), [("500m", "0.5"), ("1Gi", "1073741824"), ("2", "2"), ("1.5k", "1500")])
def test_quantities(text: str, number: str) -> None:
    assert quantity(text) == Decimal(number)


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(WrongUseError, match="'much' is not a quantity"):
        quantity("much")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Kafka\nmetadata: {name: a}", "f.yaml:1: apiVersion: is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}", "kind: 'Pod' is not one that the kit applies"),
        (
            "apiVersion: kafka.strimzi.io/v1beta2\nkind: Kafka\nmetadata: {name: a}",
            r"Kafka/a: apiVersion: 'kafka.strimzi.io/v1beta2' is not .*; expected kafka.strimzi.io/v1",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}",
            "Secret/a: metadata.namespace: 'b' is not the region's namespace 'europe'",
        ),
        ("apiVersion: v1\nkind: Secret\nkind: Secret\nmetadata: {name: a}", "f.yaml:3: .*duplicate key 'kind'"),
    ],
)
def test_a_wrong_manifest_is_refused_with_file_and_field(text: str, message: str) -> None:
    with pytest.raises(WrongUseError, match=message):
        check_documents(read_documents("f.yaml", text), "europe")


def test_resources_come_in_the_order_in_which_they_need_each_other() -> None:
    manifests = read_scenario("03-broadcast").manifests("setup")
    own = [document for document in manifests if document.namespace == "north-america"]
    kinds = [manifest.document["kind"] for manifest in check_documents(own, "north-america")]
    assert kinds == [*["KafkaUser"] * (len(kinds) - 1), "KafkaMirrorMaker2"]
    assert len(kinds) > 2


def test_names_on_the_same_cluster_stay() -> None:
    here = services.ClusterContext("", "one")
    assert services.resolve(MIRROR, here, {"europe": here, "north-america": here}) == MIRROR


@pytest.mark.parametrize(
    ("command", "replicas", "refused"),
    [("loosehanger.proof.submit", 1, True), ("loosehanger.proof.submit", 0, False), ("producer", 1, False)],
)
def test_a_stock_python_image_runs_no_spark(command: str, replicas: int, refused: bool) -> None:
    containers = [{"name": "stream", "command": ["python", "-P", "-m", command, "clear"]}]
    spec = {"replicas": replicas, "template": {"spec": {"containers": containers}}}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "stream"}, "spec": spec}
    reported = list(preflight._without_spark([ManifestEntry("stream.yaml:1", document)]))
    assert bool(reported) == refused
    if reported:
        assert reported[0].startswith("stream.yaml:1: Deployment/stream: needs Spark, which the image of platform_kub")


def test_the_code_for_a_stock_python_image_is_whole_and_small(tmp_path: Path) -> None:
    code = programs.code_map(ROOT, "europe")
    assert len(str(code)) < 1_000_000  # the most that a ConfigMap may hold, in bytes
    assert code == programs.code_map(ROOT, "europe")
    listed = re.findall(r"^([a-z0-9_.-]+)==.*\\\n    --hash=sha256:", code["data"]["requirements.txt"], re.MULTILINE)
    assert {"kafka-python", "faker", "rich"} <= set(listed)
    assert "pyspark" not in listed
    (tmp_path / "lock").write_text("rich==1\n")
    with pytest.raises(WrongUseError, match=r"is not in it; run scripts/lock\.sh"):
        programs.requirements(tmp_path / "lock")


def test_a_bundle_is_scrubbed(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"user a, password correct-horse; Y29ycmVjdC1ob3JzZQ==; ab")
    redact_folder(tmp_path, [b"correct-horse\n", b"ab"])
    assert (tmp_path / "log").read_bytes() == b"user a, password ***; ***; ab"


@pytest.mark.parametrize("before", ["", "    ", "\t> "])
def test_a_private_key_is_taken_out_however_it_is_indented(tmp_path: Path, before: str) -> None:
    key = ["-----BEGIN EC PRIVATE KEY-----", "MHcCAQEEIB" * 6, "AwEHoUQDQg==", "-----END EC PRIVATE KEY-----"]
    text = "".join(f"{before}{line}\n" for line in key)
    kept = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    (tmp_path / "log").write_text(f"a: |\n{text}b\n{kept}" + json.dumps({"key": "\n".join(key)}), encoding="utf-8")
    redact_folder(tmp_path, [])
    found = (tmp_path / "log").read_text(encoding="utf-8")
    assert "MHcCAQEEIB" not in found
    assert f"b\n{kept}" in found


def test_a_bundle_says_where_secrets_may_not_be_read(tmp_path: Path) -> None:
    class Refusing:
        def list(self, *_: str) -> list[dict[str, Any]]:
            raise LabError("secrets is forbidden")

    bundle.take_secrets_out(cast("Any", Refusing()), "europe", tmp_path, tmp_path / "regions/europe")
    assert (tmp_path / "regions/europe/unread-secrets.txt").read_text() == "secrets is forbidden\n"


def test_a_command_in_a_pod_gives_both_streams_and_its_exit_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loosehanger.platforms.kubernetes.pod_entry", "status"],
        env={"LAB_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == "eerror: nothing is set up; ./lab scenarios shows what there is\n"


def test_a_user_without_a_name_gets_one(tmp_path: Path) -> None:
    assert user_name(0, tmp_path) == {}
    names = user_name(1234567890, tmp_path)
    assert Path(names["NSS_WRAPPER_PASSWD"]).read_text().startswith("lab:x:1234567890:0:")


def test_the_lines_of_a_pod_become_two_streams_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = pods._Output({"report.html": tmp_path / "proof.html"})
    for line in ("o{", "ewaiting", 'o"a": 1}', "freport.html PGh0bWw+", "freport.html PC9odG1sPg==", "Traceback"):
        output.take(line)
    output.write_files()
    shown = capsys.readouterr()
    assert shown.out == '{\n"a": 1}\n'
    assert shown.err == "waiting\nTraceback\n"
    assert (tmp_path / "proof.html").read_text() == "<html></html>"


class SilentCluster:
    """In place of an API server that restarts while a pod runs, for no pods run beside the one of the tests."""

    def __init__(self, silences: int) -> None:
        self._looks = iter([*[UnreachableError("cannot be reached")] * silences, LogCutError("cut"), None])
        self.asked: list[str] = []

    def follow(self, _namespace: str, _pod: str, _container: str, since: str) -> Iterator[tuple[str, str]]:
        self.asked.append(since)
        if since < "2":
            yield f"{len(since) + 1}", f"oline {len(since) + 1}"
        if error := next(self._looks):
            raise error

    def get(self, *_: str) -> dict[str, Any]:
        return {"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 4}}}]}}


def test_a_silent_api_server_does_not_end_what_it_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    cluster = SilentCluster(silences=3)
    assert pods._follow(cast(KubernetesCluster, cluster), "europe", "pod", {}) == 4
    assert cluster.asked == ["", "1", "2", "2", "2"], "each time from the last line that was shown"
    assert pauses == [pods.LOOK_SECONDS] * 4, "also after a log that was cut, which is not asked for in a busy loop"
    assert capsys.readouterr().out == "line 1\nline 2\n"


def test_an_api_server_that_stays_silent_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "LOOK_SECONDS", 0)
    monkeypatch.setattr(pods, "SILENT_SECONDS", 0)
    with pytest.raises(LabError, match="cannot be reached; gave up after 0 s"):
        pods._follow(cast(KubernetesCluster, SilentCluster(silences=1)), "europe", "pod", {})


def test_what_is_awaited_stays_open_while_the_api_server_is_away() -> None:
    answers: Iterator[Exception | None] = iter([UnreachableError("the API server cannot be reached"), None])

    def condition() -> str | None:
        if error := next(answers):
            raise error
        return None

    assert [apply.patient(condition)() for _ in range(2)] == ["the API server cannot be reached", None]


def test_files_that_a_command_writes_get_a_place_in_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CALLED_FROM", str(tmp_path))
    written, passed = pods._files(["--json", "--report", "proof.html", "--junit=r.xml", "--timeout", "5"])
    assert passed == [
        "--json",
        "--report",
        str(FILES / "report.html"),
        "--junit",
        str(FILES / "junit.xml"),
        "--timeout",
        "5",
    ]
    assert [entry.path for entry in written] == [tmp_path / "proof.html", tmp_path / "r.xml"]


def test_a_job_may_write_wherever_the_kits_programs_do() -> None:
    pod = Pod("europe", "", "", "image", "loosehanger-lab-access-europe")
    lab = Lab("03-broadcast", "kubernetes", "", {"europe": Region("europe", "europe", {}, {}, (), pod)})
    spec = pods._job(lab, pod, "prove", ["--report", "/tmp/files/report.html"])["spec"]["template"]["spec"]  # noqa: S108
    (container,) = spec["containers"]
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    # The charts' library keeps its fonts in the cache.
    homes = ("logs", "artifacts", "spark", "watch", "cache")
    assert writable == {"/tmp", *(f"/opt/lab/{name}" for name in homes)}  # noqa: S108


def two_regions() -> Lab:
    """A lab whose Jobs run in Europe, with several users in each region, and in Asia none yet."""

    def region(name: str, *users: str) -> Region:
        pod = Pod("europe", "", "", "image", f"access-{name}")
        return Region(name, name, {user: Path("/x") for user in users}, {}, (), pod)

    regions = [
        region("europe", "admin", "console-europe", "consumer-europe", "mm2-europe", "operator", "prover"),
        region("north-america", "admin", "consumer-northamerica", "mm2-northamerica", "prover"),
        region("asia"),
    ]
    reading = topologies.program("north-america", "north-america", name="consumer-northamerica")
    (container,) = reading["spec"]["template"]["spec"]["containers"]
    container["command"] = ["python", "-P", "-m", "consumers"]
    container["env"].append({"name": "KAFKA_USERNAME", "value": "consumer-northamerica"})
    topology = Topology(topologies.documents(topologies.kafka("north-america"), reading))
    return Lab("03-broadcast", "kubernetes", "i", {region.name: region for region in regions}, topology=topology)


def mounted(spec: dict[str, Any]) -> set[str]:
    """The files of Secrets that a pod mounts, as ``secret: path``."""
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "access")
    secrets = [source["secret"] for source in volume["projected"]["sources"] if "secret" in source]
    return {f"{secret['name']}: {item['path']}" for secret in secrets for item in secret["items"]}


DESCRIPTIONS = {
    "access-europe: europe.json",
    *("access-north-america: north-america.json", "access-asia: asia.json"),
}


@pytest.mark.parametrize(
    ("command", "arguments", "users"),
    [
        ("prove", ["--json"], {"europe": "prover", "north-america": "prover"}),
        ("watch", [], {"europe": "prover", "north-america": "prover"}),
        ("watch", ["--canary=60"], {"europe": "prover admin", "north-america": "prover admin"}),
        ("watch", ["--topic-in", "europe"], {"europe": "prover admin", "north-america": "prover admin"}),
        ("aggregate", [], {"europe": "prover", "north-america": "prover"}),
        ("topic", ["show"], {"europe": "admin", "north-america": "admin"}),
        ("consume", ["north-america", "--max", "1"], {"north-america": "consumer-northamerica"}),
        ("consume", ["asia"], {}),
    ],
)
def test_a_job_mounts_only_the_user_of_its_command(command: str, arguments: list[str], users: dict[str, str]) -> None:
    lab = two_regions()
    assert lab.pod
    spec = pods._job(lab, lab.pod, command, arguments)["spec"]["template"]["spec"]
    own = {
        f"access-{region}: {region}/{name}"
        for region, named in users.items()
        for name in ("ca.crt", *(f"{user}.properties" for user in named.split()))
    }
    assert mounted(spec) == DESCRIPTIONS | own


def test_a_job_reads_ledgers_beside_the_programs_that_keep_them() -> None:
    lab = two_regions()
    keeping = replace(lab.regions["europe"], ledgers={"producer": Path("/opt/lab/ledgers/producer-ledger")})
    lab = replace(lab, regions={**lab.regions, "europe": keeping})
    assert lab.pod
    for command, reads in {"prove": True, "step": True, "watch": False, "topic": False}.items():
        spec = pods._job(lab, lab.pod, command, [])["spec"]["template"]["spec"]
        claims = [volume["persistentVolumeClaim"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
        assert claims == ([{"claimName": "producer-ledger", "readOnly": True}] if reads else [])
        mounts = {mount["mountPath"]: mount.get("readOnly") for mount in spec["containers"][0]["volumeMounts"]}
        assert mounts.get("/opt/lab/ledgers/producer-ledger") == (True if reads else None)
        assert ("affinity" in spec) == reads


def test_a_job_finds_what_it_is_told_by_the_names_that_it_has_here() -> None:
    lab = two_regions()
    assert lab.pod
    job = pods._job(lab, lab.pod, "step", [], ["lab.json", "marks/failover/loss.west.json"])
    spec = job["spec"]["template"]["spec"]
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "access")
    (reported,) = (source["configMap"] for source in volume["projected"]["sources"] if "configMap" in source)
    told_by = pods._config_map(job["metadata"], {"lab.json": "{}", "marks/failover/loss.west.json": "x"})
    assert reported["name"] == told_by["metadata"]["name"]
    files = {item["path"]: told_by["data"][item["key"]] for item in reported["items"]}
    assert files == {"lab.json": "{}", "marks/failover/loss.west.json": "x"}


def test_an_executor_mounts_certificates_and_what_it_shares_with_its_driver() -> None:
    lab = two_regions()
    assert lab.pod
    template = pods._job(lab, lab.pod, "prove", ["--master", "k8s://here"])["spec"]["template"]
    spec = yaml.safe_load(template["metadata"]["annotations"]["loosehanger-lab/executor"])["spec"]
    assert mounted(spec) == {
        *("access-europe: europe/ca.crt", "access-europe: europe/prover.properties"),
        "access-north-america: north-america/ca.crt",
    }
    words = pods.executors(lab, lab.pod)
    settings = dict(word.split("=", 1) for word in words if word != "--conf")
    assert settings["spark.authenticate.secret.file"] == "/opt/lab/access/europe/prover.properties"
    assert not any(name.startswith("spark.kubernetes.executor.secrets.") for name in settings)
    # What the annotation says, Spark finds as a file.
    (volume,) = (volume for volume in template["spec"]["volumes"] if volume["name"] == "access")
    (item,) = volume["projected"]["sources"][-1]["downwardAPI"]["items"]
    assert f"/opt/lab/access/{item['path']}" == settings["spark.kubernetes.executor.podTemplateFile"]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['loosehanger-lab/executor']"


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector of Kubernetes selects what has these labels."""
    assert selector.keys() <= {"matchLabels"}
    return bool(selector["matchLabels"].items() <= labels.items())


def test_only_consoles_and_proofs_may_ask_mirrors() -> None:
    policy = access._network_policy("north-america", {"north-america", "europe"})["spec"]
    # As Strimzi labels the pods of a mirror, and as Event Streams does.
    common = {"app.kubernetes.io/name": "kafka-mirror-maker-2", "app.kubernetes.io/instance": "mm2-na"}
    for prefix in ("strimzi.io/", "eventstreams.ibm.com/"):
        own = {f"{prefix}kind": "KafkaMirrorMaker2", f"{prefix}cluster": "mm2-na"}
        assert selects(policy["podSelector"], common | own)
        kafka = {f"{prefix}kind": "Kafka", f"{prefix}cluster": "europe", "app.kubernetes.io/name": "kafka"}
        assert not selects(policy["podSelector"], kafka)
    (peer,) = policy["ingress"][0]["from"]
    (namespaces,) = peer["namespaceSelector"]["matchExpressions"]
    assert namespaces["values"] == ["europe", "north-america"]
    lab = two_regions()
    assert lab.pod
    asking = {
        command
        for command, arguments in {
            "prove": [],
            "watch": [],
            "aggregate": [],
            "topic": [],
            "consume": ["europe"],
        }.items()
        if selects(
            peer["podSelector"], pods._job(lab, lab.pod, command, arguments)["spec"]["template"]["metadata"]["labels"]
        )
    }
    assert asking == {"prove"}
    of_executors = dict(
        word.removeprefix("spark.kubernetes.executor.label.").split("=", 1)
        for word in pods.executors(lab, lab.pod)
        if word.startswith("spark.kubernetes.executor.label.")
    )
    assert of_executors
    assert not selects(peer["podSelector"], of_executors)
    deployment = {"metadata": {"namespace": "europe"}, "spec": {"template": {"spec": {"containers": [{}]}}}}
    prepared = programs.prepared(deployment, cast(KubernetesCluster, None), python_image="")
    assert not selects(peer["podSelector"], prepared["spec"]["template"]["metadata"]["labels"])


class Dialects:
    """A cluster that serves some versions of Event Streams' API, and remembers which pods it was asked for."""

    def __init__(self, *versions: str, **present: dict[str, Any]) -> None:
        self.versions = versions
        self.present = present
        self.selectors: list[str] = []

    def serves(self, version: str, _kind: str) -> bool:
        return version in self.versions

    def allowed(self, attributes: dict[str, str]) -> bool:
        return attributes["group"] == "eventstreams.ibm.com"

    def get(self, _version: str, kind: str, *_: object) -> dict[str, Any] | None:
        return self.present.get(kind)

    def list(self, _version: str, _kind: str, _namespace: str, selector: str) -> list[dict[str, Any]]:
        self.selectors.append(selector)
        return []


@pytest.mark.parametrize(
    ("served", "taken"), [((V1,), V1), ((V1BETA2,), V1BETA2), ((V1BETA2, V1), V1), ((), V1)], ids=str
)
def test_each_resource_of_event_streams_is_found_once(served: tuple[str, ...], taken: str) -> None:
    kinds = rights.own_kinds(cast(Any, Dialects(*served)), "europe")
    of_operators = [(version, kind) for version, kind in kinds if "Kafka" in kind or kind == "EventStreams"]
    assert of_operators == [(taken, kind) for kind in ("EventStreams", "KafkaTopic", "KafkaUser", "KafkaMirrorMaker2")]


def of_event_streams(version: str, *, nodes: int = 1) -> list[ManifestEntry]:
    """A cluster and a mirror, converted."""
    pool = {"replicas": nodes, "roles": ["controller", "broker"]}
    metadata = {"name": "nodes", "namespace": "europe", "labels": {"strimzi.io/cluster": "europe"}}
    documents = [
        {"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool", "metadata": metadata, "spec": pool},
        kafka(),
        MIRROR,
    ]
    settings = EventStreams(True, "L-TEST", "EventAutomationNonProduction", version=version)
    return check_documents(read_documents("f.yaml", yaml.safe_dump_all(documents)), None, settings)


@pytest.mark.parametrize("version", ["13.0.0", "12.3.1"])
def test_pods_of_clusters_and_mirrors_are_looked_for_by_the_dialects_labels(version: str) -> None:
    region = apply.RegionNamespace("europe", services.ClusterContext(), {}, True, "", ROOT, print)
    cluster = Dialects()
    apply._pods(region, cast(Any, cluster), of_event_streams(version))
    assert cluster.selectors == [
        "eventstreams.ibm.com/cluster=europe",
        "eventstreams.ibm.com/cluster=mm2-na,app.kubernetes.io/name=kafka-mirror-maker-2",
    ]
    cluster.selectors.clear()
    apply._pods(region, cast(Any, cluster), [ManifestEntry("mm2-na.yaml", MIRROR)])
    assert cluster.selectors == ["strimzi.io/cluster=mm2-na,app.kubernetes.io/name=kafka-mirror-maker-2"]


def test_another_version_of_event_streams_is_told_before_anything_is_created() -> None:
    (reported,) = preflight._kinds(cast(Any, Dialects(V1BETA2)), of_event_streams("13.0.0"))
    assert (
        reported == f"the cluster's Event Streams has {V1BETA2} and not {V1}: set event_streams_version to its version"
    )
    (reported,) = preflight._kinds(cast(Any, Dialects()), of_event_streams("13.0.0"))
    assert "install the operator" in reported


def test_controllers_of_event_streams_are_not_scaled() -> None:
    before, after = of_event_streams("13.0.0"), of_event_streams("13.0.0", nodes=3)
    cluster = cast(Any, Dialects(V1, EventStreams=before[0].document))
    assert list(preflight._scaled_controllers(cluster, before)) == []
    assert list(preflight._scaled_controllers(cast(Any, Dialects(V1)), after)) == []
    (reported,) = preflight._scaled_controllers(cluster, after)
    assert "EventStreams/europe: node pool 'nodes' cannot go from 1 to 3 nodes: they are controllers" in reported
    assert "set kafka_replicas=1, or clean up first" in reported


def record(home: Path, inventory: str) -> None:
    """What a set-up on Kubernetes leaves on this machine."""
    Progress("03-broadcast", "kubernetes", inventory, stage="setup").write(home)
    pod = {"namespace": "europe", "kubeconfig": "", "context": "", "image": "image", "secret": "access-europe"}
    text = region_record("europe", [], clients={}, logs={}, consoles=[], connect={}, pod=pod)
    (home / "access" / "europe.json").write_text(text)


@pytest.mark.parametrize(
    ("run", "arguments", "called"),
    [
        (commands.prove, ["--json"], ["prove", "--json"]),
        (commands.aggregate, [], ["aggregate"]),
        (commands.consume, ["europe", "--max", "1"], ["consume", "europe", "--max", "1"]),
    ],
)
def test_where_clusters_are_on_kubernetes_commands_run_there_and_give_their_exit_code(
    run: Callable[[list[str]], int],
    arguments: list[str],
    called: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record(tmp_path, "inventories/strimzi")
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    seen: list[str] = []

    def in_pod(_lab: Lab, pod: Pod, command: str, rest: list[str]) -> int:
        seen.extend([command, *rest])
        assert pod.secret == "access-europe"
        return 4

    monkeypatch.setattr(pods, "run", in_pod)
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 4
    assert seen == called


@pytest.mark.parametrize(
    ("arguments", "declared", "called"),
    [
        (["show"], True, ["show"]),
        (["set", "europe", "LH.ORDERS", "a=1"], True, ["set", "europe", "LH.ORDERS", "a=1", "--only-wait"]),
        (["set", "europe", "LH.ORDERS", "a=1"], False, ["set", "europe", "LH.ORDERS", "a=1"]),
    ],
)
def test_a_declared_topic_is_changed_here_and_waited_for_in_a_pod(
    arguments: list[str], declared: bool, called: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, "inventories/strimzi")
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    monkeypatch.setattr(topics, "change", lambda *_: declared)
    seen: list[str] = []

    def in_pod(_lab: Lab, _pod: Pod, _command: str, rest: list[str]) -> int:
        seen.extend(rest)
        return 4

    monkeypatch.setattr(pods, "run", in_pod)
    assert commands.topic(arguments) == 4
    assert seen == called


def test_a_setting_that_is_none_starts_no_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, "inventories/strimzi")
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    with pytest.raises(WrongUseError, match="'retention' is not NAME=VALUE"):
        commands.topic(["set", "europe", "LH.ORDERS", "retention"])


def test_another_inventory_is_refused_while_a_lab_is_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, str(ROOT / "inventories" / "strimzi"))
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    with pytest.raises(WrongUseError, match=r"-i inventories/local: the lab is set up with .*inventories/strimzi"):
        commands.setup(["03-broadcast", "-i", "inventories/local"])


def test_a_probe_sees_established_connections_only(tmp_path: Path) -> None:
    header = "  sl  local_address rem_address   st\n"
    listening, established = (f"   0: 0100007F:1F90 00000000:0000 {state} 0\n" for state in ("0A", "01"))
    table = tmp_path / "tcp"
    table.write_text(header + listening)
    assert not connected([table, tmp_path / "tcp6"])
    table.write_text(header + listening + established)
    assert connected([table])


def test_clients_run_in_the_first_region_with_a_cluster_and_stay_there(tmp_path: Path) -> None:
    inventory = ["unused", "west", "east"]
    kafkas = {
        region: read_documents("kafka.yaml", yaml.safe_dump(topologies.kafka(region))) for region in inventory[1:]
    }
    topology = Topology([*kafkas["west"], *kafkas["east"]])
    assert access.client_region(tmp_path, inventory, topology) == "west"
    # A stage that adds a cluster to an earlier region does not move them.
    pod = {"namespace": "east", "kubeconfig": "", "context": "", "image": "lab", "secret": "access"}
    record = region_record("west", kafkas["west"], clients={}, logs={}, consoles=[], connect={}, pod=pod)
    (tmp_path / "access").mkdir()
    (tmp_path / "access" / "west.json").write_text(record)
    assert access.client_region(tmp_path, inventory, topology) == "east"


def test_clients_run_beside_the_programs_that_keep_ledgers(tmp_path: Path) -> None:
    keeping = topologies.program("apps", "west")
    pod = keeping["spec"]["template"]["spec"]
    pod["containers"][0]["env"].append({"name": "PRODUCER_LEDGER", "value": "/ledger"})
    pod["containers"][0]["volumeMounts"] = [{"name": "ledger", "mountPath": "/ledger"}]
    pod["volumes"] = [{"name": "ledger", "persistentVolumeClaim": {"claimName": "producer-ledger"}}]
    topology = Topology(topologies.documents(topologies.kafka("west"), keeping))
    assert access.client_region(tmp_path, ["west", "apps"], topology) == "apps"


def kubeconfig_of(folder: Path, server: str) -> str:
    """A kubeconfig whose only context is called ``there``."""
    kubeconfig = folder / "kubeconfig"
    cluster = {"name": "there", "cluster": {"server": server}}
    context = {"name": "there", "context": {"cluster": "there", "user": "stranger"}}
    user = {"name": "stranger", "user": {}}
    kubeconfig.write_text(
        yaml.safe_dump({"apiVersion": "v1", "clusters": [cluster], "contexts": [context], "users": [user]}),
        encoding="utf-8",
    )
    return str(kubeconfig)


def test_a_command_leaves_no_file_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_maps = {"name": "configmaps", "singularName": "", "namespaced": True, "kind": "ConfigMap", "verbs": ["get"]}
    answers = {
        "/version": {"major": "1", "minor": "35", "gitVersion": "v1.35.0"},
        "/apis": {"kind": "APIGroupList", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [config_maps]},
    }

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in answers else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path, {})).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        kubeconfig = kubeconfig_of(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
        cluster = KubernetesCluster(kubeconfig, "there")
        assert cluster.serves("v1", "ConfigMap")
        assert cluster.version() == "v1.35.0"
    finally:
        server.shutdown()
        server.server_close()
    assert list(temporary.iterdir()) == []


def test_an_api_server_that_is_away_leaves_other_sockets_as_they_were(tmp_path: Path) -> None:
    kubeconfig = kubeconfig_of(tmp_path, "http://127.0.0.1:1")
    before = socket.getdefaulttimeout()
    with pytest.raises(LabError, match="refused"):
        KubernetesCluster(kubeconfig, "there")
    assert socket.getdefaulttimeout() == before
