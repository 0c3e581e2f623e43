"""The Kubernetes platform's own reasoning: what is ready and why not, and what pods get beside their manifests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from lab import commands, pods, topic_resources
from lab.access import ROOT, Lab, Pod, Region
from lab.connected import connected
from lab.errors import LabError, WrongUseError
from lab.in_pod import FILES, user_name
from platform_kubernetes import apply, programs, services
from platform_kubernetes.cluster import Cluster, LogCutError, SilentError
from platform_kubernetes.preflight import quantity
from platform_kubernetes.readiness import pod_problems, waiting_for
from platform_kubernetes.resources import Manifest, read_manifests
from platform_kubernetes.status import cluster_health, mirror_health
from platform_local.errors import ManifestError
from platform_local.scrub import scrub

MIRROR = yaml.safe_load((ROOT / "playbooks" / "03-broadcast" / "mm2-na.yaml").read_text(encoding="utf-8"))
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
        (kafka(), "no operator has looked at it yet"),
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
    told: list[str] = []
    region = apply.Region("europe", services.Place(), {}, True, "", ROOT, told.append)
    document = deployment(1)
    document["spec"]["selector"] = {"matchLabels": {"app": "producer"}}
    apply._wait_ready(region, cast(Any, OnePod(looks=3)), [Manifest("producer.yaml", document)], bound=20)
    assert told[-1] == "europe: waiting for Deployment/producer: 0 of 2 pods available; pod p: ErrImagePull: not found"


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
    said = "pod europe-0: container kafka runs, and is not ready"
    assert cluster_health(well, [], [], lame)[2:] == (False, "Degraded", said)
    assert cluster_health(well, [], [], [pod("KafkaMirrorMaker2", "europe")])[2]
    copying = mirror([connector("RUNNING", "RUNNING")])
    said = "pod mm2-na-0: container kafka runs, and is not ready"
    assert mirror_health(copying, lame)[2:] == (False, "Degraded", said)


def test_a_stopped_mirror_is_told_as_stopped() -> None:
    entry = MIRROR["spec"]["mirrors"][0]
    stopped = {**entry, "sourceConnector": {**entry["sourceConnector"], "state": "stopped"}}
    document = mirror([connector("STOPPED")])
    document["spec"] = {**MIRROR["spec"], "mirrors": [stopped]}
    assert waiting_for(document) is None
    assert mirror_health(document)[2:4] == (False, "Stopped")


@pytest.mark.parametrize(("text", "number"), [("500m", "0.5"), ("1Gi", "1073741824"), ("2", "2"), ("1.5k", "1500")])
def test_quantities(text: str, number: str) -> None:
    assert quantity(text) == Decimal(number)


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(ManifestError, match="'much' is not a quantity"):
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
        ("apiVersion: v1\nkind: Secret\nkind: Secret\nmetadata: {name: a}", "f.yaml:3: .*the key 'kind' stands twice"),
    ],
)
def test_a_wrong_manifest_is_refused_with_file_and_field(text: str, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        read_manifests([{"source": "f.yaml", "content": text}], "europe")


def test_manifests_come_in_the_order_in_which_they_need_each_other() -> None:
    folder = ROOT / "playbooks" / "03-broadcast"
    files = [{"source": path.name, "content": path.read_text("utf-8")} for path in folder.glob("*-north-america.yaml")]
    files.insert(0, {"source": "mm2-na.yaml", "content": (folder / "mm2-na.yaml").read_text("utf-8")})
    kinds = [manifest.document["kind"] for manifest in read_manifests(files, "north-america")]
    assert kinds == [*["KafkaUser"] * (len(kinds) - 1), "KafkaMirrorMaker2"]


def test_names_on_the_same_cluster_stay() -> None:
    here = services.Place("", "one")
    assert services.resolve(MIRROR, here, {"europe": here, "north-america": here}) == MIRROR


def test_names_that_were_replaced_can_be_told_again() -> None:
    name = MIRROR["spec"]["mirrors"][0]["source"]["bootstrapServers"]
    replaced = yaml.safe_load(yaml.safe_dump(MIRROR).replace(name, "kafka.example.com:9094"))
    replaced["metadata"]["annotations"] = {services.REPLACED: f'{{"kafka.example.com:9094": "{name}"}}'}
    assert services.unresolve(replaced)["spec"] == MIRROR["spec"]


def test_the_code_for_a_stock_python_image_is_whole_and_small(tmp_path: Path) -> None:
    code = programs.code_map(ROOT, "europe")
    assert len(str(code)) < 1_000_000  # the most that a ConfigMap may hold, in bytes
    assert code == programs.code_map(ROOT, "europe")
    listed = re.findall(r"^([a-z0-9_.-]+)==.*\\\n    --hash=sha256:", code["data"]["requirements.txt"], re.MULTILINE)
    assert {"kafka-python", "faker", "rich"} <= set(listed)
    assert "pyspark" not in listed
    (tmp_path / "lock").write_text("rich==1\n")
    with pytest.raises(ManifestError, match=r"is not in it; run scripts/lock\.sh"):
        programs.requirements(tmp_path / "lock")


def test_a_bundle_is_scrubbed(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"user a, password correct-horse; Y29ycmVjdC1ob3JzZQ==; ab")
    scrub(tmp_path, [b"correct-horse\n", b"ab"])
    assert (tmp_path / "log").read_bytes() == b"user a, password ***; ***; ab"


def test_a_command_in_a_pod_gives_both_streams_and_its_exit_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab.in_pod", "status"],
        env={"LAB_HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == "eerror: nothing is set up; run ./setup-03-broadcast.sh first\n"


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
        self._looks = iter([*[SilentError("cannot be reached")] * silences, LogCutError("cut"), None])
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
    monkeypatch.setattr(pods, "LOOK_SECONDS", 0)
    cluster = SilentCluster(silences=3)
    assert pods._follow(cast(Cluster, cluster), "europe", "pod", {}) == 4
    assert cluster.asked == ["", "1", "2", "2", "2"], "each time from the last line that was shown"
    assert capsys.readouterr().out == "line 1\nline 2\n"


def test_an_api_server_that_stays_silent_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "LOOK_SECONDS", 0)
    monkeypatch.setattr(pods, "SILENT_SECONDS", 0)
    with pytest.raises(LabError, match="cannot be reached; gave up after 0 s"):
        pods._follow(cast(Cluster, SilentCluster(silences=1)), "europe", "pod", {})


def test_what_is_awaited_stays_open_while_the_api_server_is_away() -> None:
    answers: Iterator[Exception | None] = iter([SilentError("the API server cannot be reached"), None])

    def condition() -> str | None:
        if error := next(answers):
            raise error
        return None

    assert [apply._patient(condition)() for _ in range(2)] == ["the API server cannot be reached", None]


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
    assert writable == {"/tmp", *(f"/opt/lab/{name}" for name in ("logs", "artifacts", "watch", "cache"))}  # noqa: S108


def test_a_jobs_record_is_that_of_all_regions() -> None:
    def region(name: str) -> Region:
        pod = Pod("europe", "", "", "image", f"access-{name}")
        return Region(name, name, {"prover": Path("/x")}, {}, (), pod)

    lab = Lab("03-broadcast", "kubernetes", "i", {name: region(name) for name in ("europe", "north-america")})
    assert lab.pod
    sources = list(pods._record(lab, lab.pod))
    paths = [item["path"] for source in sources for item in source["secret"]["items"]]
    assert {"lab.json", "europe.json", "north-america.json", "north-america/prover.properties"} <= set(paths)
    assert paths.count("lab.json") == 1


def record(home: Path, inventory: str) -> None:
    """What a set-up on Kubernetes leaves on this machine."""
    (home / "access").mkdir()
    lab = {"scenario": "03-broadcast", "platform": "kubernetes", "inventory": inventory}
    (home / "access" / "lab.json").write_text(json.dumps(lab))
    pod = {"namespace": "europe", "kubeconfig": "", "context": "", "image": "image", "secret": "access-europe"}
    region = {"name": "europe", "cluster": "europe", "clients": {}, "logs": {}, "mirrors": [], "pod": pod}
    (home / "access" / "europe.json").write_text(json.dumps(region))


@pytest.mark.parametrize(
    ("run", "arguments", "called"),
    [
        (commands.prove, ["--json"], ["prove", "--json"]),
        (commands.aggregate, [], ["aggregate"]),
        (commands.consumer, ["europe", "--max", "1"], ["consumer", "europe", "--max", "1"]),
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
    monkeypatch.setattr(topic_resources, "change", lambda *_: declared)
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
