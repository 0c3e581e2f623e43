"""Runs a command of the kit in a pod, where the addresses of clusters on Kubernetes resolve.

The command runs as a Job in the kit's image. Secrets provide the records of all regions, with only those users that the
command connects as. A ConfigMap of the Job provides the lab's progress and snapshots, and the volumes of the programs
provide their ledgers. The caller gets its output, errors, files and exit code as if the command had run locally.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from loosehanger.errors import ExitCode, LabError, UnreachableError
from loosehanger.kafka.connection import Connection
from loosehanger.lab.kit_users import ADMINISTRATOR, PROVER
from loosehanger.lab.programs import consumers
from loosehanger.lab.progress import required_progress
from loosehanger.lab.record import Lab, Pod, Region
from loosehanger.lab.snapshots import snapshot_files
from loosehanger.paths import ROOT, caller_path, lab_home
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster, LogCutError
from loosehanger.platforms.kubernetes.readiness import pod_problems
from loosehanger.platforms.kubernetes.resources import ASKS_CONNECT, LABELS, SELECTOR, labelled, reference
from loosehanger.platforms.pod_files import FILES, HOME, STEP
from loosehanger.waiting import wait_for

START_SECONDS = 300
"""Seconds a pod may take to start, including the pull of its image."""
SILENT_SECONDS = 300
"""Seconds the API server may be unreachable while a pod runs, which does not need it."""
LOOK_SECONDS = 0.3
_DAY = 86400
_KEPT_SECONDS = 600
_FILES = ("--report", "--junit")
"""Options of commands that name a file to write."""
_END_SECONDS = 90
"""Seconds a pod may take to stop on request."""
_SPARK = ("prove", "aggregate", "watch")
"""The commands that are Spark jobs, which connect as the prover."""
_WRITING = ("--canary", "--topic-in")
"""The options with which a Spark job writes, and so connects as the administrator."""
_SHARED = f"{PROVER}.properties"
"""The file that a Spark driver and its executors share as their secret."""
_ASKING = ("prove", STEP)
"""The commands that query mirrors and read ledgers."""
_EXECUTOR = ROOT / "spark-jobs" / "conf" / "executor.yaml"
TEMPLATE = "loosehanger-lab/executor"
"""The annotation of a driver's pod with the template of its executors' pods."""
TEMPLATE_IN_POD = f"{HOME}/access/executor.yaml"
"""The template's path in the pod."""
_SERVICE_ACCOUNT = "loosehanger-lab-spark"
"""The service account of Spark drivers that start executors: see docs/kubernetes.md."""


@dataclass(frozen=True)
class _Written:
    option: str
    path: Path

    @property
    def in_pod(self) -> Path:
        return FILES / f"{self.option.lstrip('-')}{self.path.suffix}"


def run(
    lab: Lab,
    pod: Pod,
    command: str,
    arguments: Sequence[str],
    *,
    home: Path | None = None,
    brought: Mapping[str, str] = MappingProxyType({}),
    back: Mapping[str, Path] = MappingProxyType({}),
) -> int:
    """Runs a command in a pod; returns its exit code.

    Args:
        lab: what is set up.
        pod: the place of pods.
        command: the kit's command, such as ``prove``.
        arguments: its arguments.
        home: the lab's home; None for the default.
        brought: additional files of its ``access`` folder: texts by name.
        back: destinations of files that it writes, by name, besides those that its arguments name.

    Raises:
        LabError: the pod does not start, or the API server does not answer; the message says why.
    """
    written, passed = _files(arguments)
    wanted = {**back, **{one.in_pod.name: one.path for one in written}}
    files = {**_progress(home or lab_home()), **brought}
    job = labelled(_job(lab, pod, command, passed, [*files]))
    name = job["metadata"]["name"]
    cluster = KubernetesCluster(pod.kubeconfig, pod.context)
    made = []
    try:
        for document in (_config_map(job["metadata"], files), job):
            made.append({**document, **cluster.create(document)})
        started = _wait_started(cluster, pod.namespace, name)
        return _follow(cluster, pod.namespace, started, wanted)
    finally:
        for document in reversed(made):
            cluster.delete(document)


def end_all(pod: Pod, command: str) -> None:
    """Deletes a command's pods and their ConfigMaps, and waits until they are gone.

    A caller waits for the end of its pod. So an existing one was left behind by a caller that was killed, and would run
    beside the next step.

    Raises:
        LabError: a pod does not stop, or the API server does not answer.
    """
    cluster = KubernetesCluster(pod.kubeconfig, pod.context)

    def left() -> str | None:
        there = [
            resource
            for version, kind in (("batch/v1", "Job"), ("v1", "ConfigMap"))
            for resource in cluster.list(version, kind, pod.namespace, SELECTOR)
            if resource["metadata"]["name"].startswith(_prefix(command))
        ]
        for resource in there:
            cluster.delete(resource, "Foreground")
        names = ", ".join(map(reference, there))
        return f"{names}: left behind by a command that was killed" if there else None

    wait_for(left, _END_SECONDS, pod.namespace)


def connection(pod: Pod, user: str) -> Connection:
    """Returns a user's connection to a region's cluster, from the secret that the kit's pods use.

    Raises:
        LabError: the secret has no such user, or the API server does not answer.
    """
    secret = KubernetesCluster(pod.kubeconfig, pod.context).get("v1", "Secret", pod.secret, pod.namespace)
    place = f"{pod.namespace}: secret '{pod.secret}'"
    properties = ((secret or {}).get("data") or {}).get(f"{user}.properties")
    if properties is None:
        raise LabError(f"{place} has no user '{user}'; run the set-up again")
    return Connection.parse(base64.b64decode(properties).decode(), place)


def _files(arguments: Sequence[str]) -> tuple[list[_Written], list[str]]:
    """Returns the files that a command must write, and its arguments with their paths in the pod."""
    written, passed, rest = [], [], list(arguments)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if option in _FILES and (equals or rest):
            written.append(_Written(option, caller_path(value if equals else rest.pop(0))))
            passed += [option, str(written[-1].in_pod)]
        else:
            passed.append(word)
    return written, passed


def _progress(home: Path) -> dict[str, str]:
    """Returns the lab's progress and snapshots: files of the folder ``access``, by name."""
    return {"lab.json": required_progress(home).text, **snapshot_files(home)}


def _config_map(metadata: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Returns the ConfigMap with a Job's files, each under its number, because a key may not contain a slash."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": dict(metadata), "data": numbered(files)}


def numbered(files: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts of files under their numbers."""
    return {str(number): text for number, text in enumerate(files.values())}


def _job(lab: Lab, pod: Pod, command: str, arguments: Sequence[str], files: Sequence[str] = ()) -> dict[str, Any]:
    spark = command in _SPARK
    users = _users(lab, command, arguments)
    name = f"{_prefix(command)}{secrets.token_hex(3)}"
    items = [{"key": str(number), "path": path} for number, path in enumerate(files)]
    sources = [*_record(lab, users), {"configMap": {"name": name, "items": items}}]
    ledgers = lab.region(pod.namespace).ledgers if command in _ASKING and pod.namespace in lab.regions else {}
    metadata = labelled({"metadata": {"labels": ASKS_CONNECT if command in _ASKING else {}}})["metadata"]
    on_kubernetes = spark and any("k8s://" in argument for argument in arguments)
    if on_kubernetes:
        arguments = [*executors(lab, pod), *arguments]
        metadata["annotations"] = {TEMPLATE: executor_template(lab)}
        field = {"fieldPath": f"metadata.annotations['{TEMPLATE}']"}
        sources.append({"downwardAPI": {"items": [{"path": Path(TEMPLATE_IN_POD).name, "fieldRef": field}]}})
    container = _container(pod, [command, *arguments], ledgers.values(), spark=spark)
    template = {
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": on_kubernetes,
            **({"serviceAccountName": _SERVICE_ACCOUNT} if on_kubernetes else {}),
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [
                {"name": "work", "emptyDir": {"sizeLimit": "8Gi"}},
                {"name": "access", "projected": {"sources": sources}},
                *(
                    {"name": path.name, "persistentVolumeClaim": {"claimName": path.name, "readOnly": True}}
                    for path in ledgers.values()
                ),
            ],
            **({"affinity": _beside(ledgers)} if ledgers else {}),
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": pod.namespace},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _DAY,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": template,
        },
    }


def _container(pod: Pod, words: Sequence[str], ledgers: Iterable[Path], *, spark: bool) -> dict[str, Any]:
    """Returns the container of a Job: a command of the kit, and the folders that it reads and writes."""
    return {
        "name": "lab",
        "image": pod.image,
        "command": ["python", "-P", "-m", "loosehanger.platforms.kubernetes.pod_entry", *words],
        "env": [*_environment(), *_fields(POD_IP="status.podIP", POD_NAME="metadata.name")],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": "500m" if spark else "100m", "memory": "1536Mi" if spark else "128Mi"},
            "limits": {"cpu": "4" if spark else "1", "memory": "3Gi" if spark else "512Mi"},
        },
        "volumeMounts": [
            {"name": "access", "mountPath": f"{HOME}/access", "readOnly": True},
            *({"name": "work", "mountPath": path, "subPath": path.rpartition("/")[2]} for path in WRITTEN),
            *({"name": path.name, "mountPath": str(path), "readOnly": True} for path in ledgers),
        ],
    }


def _prefix(command: str) -> str:
    """Returns the name prefix of a command's Jobs."""
    return f"lab-{command}-"


def _beside(programs: Iterable[str]) -> dict[str, Any]:
    """Returns the affinity to the node of running programs, because most volumes can be on one node only."""
    term = {
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": sorted(programs)}]},
        "topologyKey": "kubernetes.io/hostname",
    }
    weighted = {"weight": 100, "podAffinityTerm": term}
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


WRITTEN = ("/tmp", *(f"{HOME}/{name}" for name in ("logs", "artifacts", "spark", "watch", "cache")))  # noqa: S108 - its own
"""The folders that a command of the kit writes in."""


def _environment() -> list[dict[str, str]]:
    """Returns the variables that describe the caller's terminal."""
    variables = {"LAB_HOME": HOME, "PYTHONUNBUFFERED": "1"}
    if sys.stdout.isatty():
        variables["COLUMNS"] = str(shutil.get_terminal_size().columns)
    return [{"name": name, "value": value} for name, value in variables.items()]


def _fields(**fields: str) -> Iterator[dict[str, Any]]:
    """Yields variables with fields of the pod itself."""
    for name, path in fields.items():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _users(lab: Lab, command: str, arguments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the users that a command connects as, by region.

    A region without that user is left out, and the command reports it.
    """
    if command == "consume":
        own = next((consumer for consumer in consumers(lab.topology) if consumer.region == arguments[0]), None)
        return {own.cluster_region: (own.user,)} if own else {}
    users = [PROVER if command in _SPARK else ADMINISTRATOR]
    if command in _SPARK and any(argument.startswith(_WRITING) for argument in arguments):
        users.append(ADMINISTRATOR)
    return {
        region.name: known
        for region in lab.regions.values()
        if (known := tuple(user for user in users if user in region.clients))
    }


def _record(lab: Lab, users: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Any]]:
    """Yields the parts of all regions' Secrets that a command needs, as the files of the record."""
    for region in lab.regions.values():
        assert region.pod is not None
        yield mounted_files(region.pod.secret, region.name, users.get(region.name, ()))


def mounted_files(secret: str, region: str, users: Sequence[str]) -> dict[str, Any]:
    """Returns a source of a projected volume: a region's part of the record.

    Args:
        secret: the region's Secret.
        region: its name.
        users: those that the pod connects as.
    """
    items = [("region.json", f"{region}.json")]
    if users:
        names = ("ca.crt", *(f"{user}.properties" for user in users))
        items += [(name, f"{region}/{name}") for name in names]
    return _items_of(secret, items)


def _mounted(region: Region, items: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Returns a source of a projected volume: keys of a region's Secret and their files."""
    assert region.pod is not None
    return _items_of(region.pod.secret, items)


def _items_of(secret: str, items: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {"secret": {"name": secret, "items": [{"key": key, "path": path} for key, path in items]}}


def executor_template(lab: Lab) -> str:
    """Returns the pod template of executors, as YAML.

    The driver passes Kafka's credentials to its executors. They need files only for the clusters' certificates and the
    secret that they share with the driver.
    """
    template = yaml.safe_load(_EXECUTOR.read_text(encoding="utf-8"))
    sharing = _sharing_region(lab)
    sources = [
        _mounted(region, [(name, f"{region.name}/{name}") for name in names])
        for region in lab.regions.values()
        if (names := [*(["ca.crt"] if region.clients else []), *([_SHARED] if region == sharing else [])])
    ]
    template["spec"]["volumes"].append({"name": "access", "projected": {"sources": sources}})
    (container,) = template["spec"]["containers"]
    container["volumeMounts"].append({"name": "access", "mountPath": f"{HOME}/access", "readOnly": True})
    return str(yaml.safe_dump(template, sort_keys=False))


def _sharing_region(lab: Lab) -> Region:
    """Returns the region whose file for the prover is the secret that a driver shares with its executors."""
    for region in lab.regions.values():
        if PROVER in region.clients:
            return region
    raise LabError(f"no region has the user '{PROVER}' to connect as; run the set-up again")


def executors(lab: Lab, pod: Pod) -> list[str]:
    """Returns the settings of Spark's Kubernetes scheduler for this pod and lab."""
    settings = {
        "spark.driver.host": "$(POD_IP)",
        # The driver sends Kafka's passwords to its executors; a file that all of them have is their shared secret.
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": f"{HOME}/access/{_sharing_region(lab).name}/{_SHARED}",
        # With Spark's default cipher: with AES/GCM, executors of Spark 4.0.0 wait forever for their first answer.
        "spark.network.crypto.enabled": "true",
        "spark.kubernetes.namespace": pod.namespace,
        # Executors are deleted with the driver's pod, however it stops.
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.executor.container.image": pod.image,
        "spark.kubernetes.executor.podTemplateFile": TEMPLATE_IN_POD,
        # Features that would need more rights and are not used here.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        **{f"spark.kubernetes.executor.label.{name}": value for name, value in LABELS.items()},
    }
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def _wait_started(cluster: KubernetesCluster, namespace: str, job: str) -> str:
    """Waits until the Job's pod runs, or has run; returns its name."""
    deadline, pause, shown = time.monotonic() + START_SECONDS, 0.2, ""
    while True:
        pods = cluster.list("v1", "Pod", namespace, f"batch.kubernetes.io/job-name={job}")
        if pods and pods[0].get("status", {}).get("phase") in ("Running", "Succeeded", "Failed"):
            return str(pods[0]["metadata"]["name"])
        problems = [problem for pod in pods for problem in pod_problems(pod)] or _refusals(cluster, namespace, job)
        text = "; ".join(problems)
        if time.monotonic() >= deadline:
            raise LabError(
                f"{namespace}: Job/{job}: its pod did not start within {START_SECONDS} s: "
                f"{text or 'Kubernetes gives no reason'}"
            )
        if text and text != shown:
            print(f"waiting: {text}", file=sys.stderr, flush=True)
            shown = text
        time.sleep(pause)  # between two looks; the condition above decides when it ends
        pause = min(pause * 1.3, 2.0)


def _refusals(cluster: KubernetesCluster, namespace: str, job: str) -> list[str]:
    """Returns why there is no pod, such as a quota."""
    return [
        " ".join(str(event.get("message", "")).split())
        for event in cluster.list("v1", "Event", namespace)
        if event.get("involvedObject", {}).get("name") == job and event.get("type") == "Warning"
    ]


def _follow(cluster: KubernetesCluster, namespace: str, pod: str, files: Mapping[str, Path]) -> int:
    """Shows a pod's output until it exits, across lost connections and API server restarts; returns its exit code."""
    output = _Output(files)
    try:
        return _follow_output(cluster, namespace, pod, output)
    except LabError as error:
        error.shown = output.shown
        raise


def _follow_output(cluster: KubernetesCluster, namespace: str, pod: str, output: _Output) -> int:
    last, silent_since = "", None
    while True:
        try:
            for at, line in cluster.follow(namespace, pod, "lab", since=last):
                last, silent_since = at, None
                output.take(line)
            code, silent_since = _exit_code(cluster, namespace, pod), None
        except LogCutError:
            code = None
        except UnreachableError as error:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() >= silent_since + SILENT_SECONDS:
                raise LabError(f"{error}; gave up after {SILENT_SECONDS} s") from error
            code = None
        if code == ExitCode.FAILED and not output.begun:
            # A command that fails reports why. An error of Python before the command begins is not its verdict.
            raise LabError(f"{namespace}: Pod/{pod} ended with exit code {code} before the command began; see above")
        if code is not None:
            output.write_files()
            return code
        time.sleep(LOOK_SECONDS)  # until Kubernetes reports the exit, or answers again


def _exit_code(cluster: KubernetesCluster, namespace: str, pod: str) -> int | None:
    found = cluster.get("v1", "Pod", pod, namespace)
    if found is None:
        raise LabError(f"{namespace}: Pod/{pod} was deleted outside the kit")
    for container in found.get("status", {}).get("containerStatuses") or ():
        if ended := (container.get("state") or {}).get("terminated"):
            return int(ended["exitCode"])
    return None


class _Output:
    """Splits the marked lines of a pod's log into output, errors and files."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self._parts: dict[str, bytearray] = {}
        self.begun = False
        """Whether the command has written a line."""
        self.shown = False
        """Whether the last line was output."""

    def take(self, line: str) -> None:
        """Shows a line of output or errors, or stores a part of a file."""
        mark, text = line[:1], line[1:]
        self.begun = self.begun or mark in ("o", "e")
        if mark == "o":
            self.shown = True
            print(text, flush=True)
        elif mark == "f":
            name, _, part = text.partition(" ")
            self._parts.setdefault(name, bytearray()).extend(base64.b64decode(part))
        else:
            # Python's messages before the command runs have no mark.
            print(text if mark == "e" else line, file=sys.stderr, flush=True)

    def write_files(self) -> None:
        """Writes the command's files to their destinations."""
        for name, path in self._files.items():
            if name in self._parts:
                path.write_bytes(self._parts[name])
