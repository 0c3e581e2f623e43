"""Running a command of the kit in a pod: the addresses of clusters on Kubernetes mean something only there.

The command runs as a Job in the kit's image, with the record of all regions mounted from Secrets. Its output, its
errors and the files that it writes arrive here as if it had run here, and so does its exit code.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.access import ROOT, Lab, Pod, caller_path
from lab.connection import Connection
from lab.errors import LabError
from lab.in_pod import FILES

for _role in ("platform_local", "platform_kubernetes"):
    sys.path.insert(0, str(ROOT / "roles" / _role / "module_utils"))

from platform_kubernetes.cluster import Cluster, LogCutError, SilentError  # noqa: E402 - found by the lines above
from platform_kubernetes.readiness import pod_problems  # noqa: E402
from platform_kubernetes.resources import LABELS, labelled  # noqa: E402
from platform_local.errors import PlatformError  # noqa: E402

HOME = "/opt/lab"
"""The lab's home in the kit's image."""
START_SECONDS = 300
"""How long a pod may take to start: the image may have to be fetched."""
SILENT_SECONDS = 300
"""How long the API server may be away while a pod runs, which does not need it."""
LOOK_SECONDS = 0.3
_DAY = 86400
_KEPT_SECONDS = 600
_FILES = ("--report", "--junit")
"""Options of commands that name a file to write."""
_SPARK = ("prove", "aggregate", "watch")
EXECUTOR = Path("/opt/loosehanger-lab/spark-jobs/conf/executor.yaml")
"""In the kit's image: what a pod of an executor looks like."""
_SERVICE_ACCOUNT = "loosehanger-lab-spark"
"""Of Spark drivers that start executors: see docs/kubernetes.md."""


@dataclass(frozen=True)
class _Written:
    option: str
    path: Path

    @property
    def in_pod(self) -> Path:
        return FILES / f"{self.option.lstrip('-')}{self.path.suffix}"


def run(lab: Lab, pod: Pod, command: str, arguments: Sequence[str]) -> int:
    """Runs a command in a pod; returns its exit code.

    Args:
        lab: what is set up.
        pod: where pods run.
        command: the kit's command, such as ``prove``.
        arguments: its arguments.

    Raises:
        LabError: the pod does not start, or the API server does not answer; the message says why.
    """
    written, passed = _files(arguments)
    job = labelled(_job(lab, pod, command, passed))
    name = job["metadata"]["name"]
    try:
        cluster = Cluster(pod.kubeconfig, pod.context)
        created = cluster.create(job)
        try:
            started = _wait_started(cluster, pod.namespace, name)
            return _follow(cluster, pod.namespace, started, {w.in_pod.name: w.path for w in written})
        finally:
            cluster.delete({"apiVersion": "batch/v1", "kind": "Job", **created})
    except PlatformError as error:
        raise LabError(str(error)) from error


def connection(pod: Pod, user: str) -> Connection:
    """A user's way into a region's cluster, as the cluster keeps it for the kit's pods.

    Raises:
        LabError: it is not there, or the API server does not answer.
    """
    try:
        secret = Cluster(pod.kubeconfig, pod.context).get("v1", "Secret", pod.secret, pod.namespace)
    except PlatformError as error:
        raise LabError(str(error)) from error
    place = f"{pod.namespace}: secret '{pod.secret}'"
    properties = ((secret or {}).get("data") or {}).get(f"{user}.properties")
    if properties is None:
        raise LabError(f"{place} has nothing about the user '{user}'; run the set-up again")
    return Connection.parse(base64.b64decode(properties).decode(), place)


def _files(arguments: Sequence[str]) -> tuple[list[_Written], list[str]]:
    """The files that a command is asked to write, and the arguments with their places in the pod."""
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


def _job(lab: Lab, pod: Pod, command: str, arguments: Sequence[str]) -> dict[str, Any]:
    spark = command in _SPARK
    on_kubernetes = any("k8s://" in argument for argument in arguments)
    if spark and on_kubernetes:
        arguments = [*executors(lab, pod), *arguments]
    container = {
        "name": "lab",
        "image": pod.image,
        "command": ["python", "-m", "lab.in_pod", command, *arguments],
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
            *({"name": "work", "mountPath": path, "subPath": path.rpartition("/")[2]} for path in _WRITTEN),
        ],
    }
    template = {
        "metadata": labelled({"metadata": {}})["metadata"],
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": spark and on_kubernetes,
            **({"serviceAccountName": _SERVICE_ACCOUNT} if spark and on_kubernetes else {}),
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [
                {"name": "work", "emptyDir": {"sizeLimit": "8Gi"}},
                {"name": "access", "projected": {"sources": list(_record(lab, pod))}},
            ],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"lab-{command}-{secrets.token_hex(3)}", "namespace": pod.namespace},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _DAY,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": template,
        },
    }


_WRITTEN = ("/tmp", *(f"{HOME}/{name}" for name in ("logs", "artifacts", "watch", "cache")))  # noqa: S108 - its own


def _environment() -> list[dict[str, str]]:
    """What a program must know of the terminal that its output ends in."""
    variables = {"LAB_HOME": HOME, "PYTHONUNBUFFERED": "1"}
    if sys.stdout.isatty():
        variables["COLUMNS"] = str(shutil.get_terminal_size().columns)
    return [{"name": name, "value": value} for name, value in variables.items()]


def _fields(**fields: str) -> Iterator[dict[str, Any]]:
    """Variables that tell a pod of itself."""
    for name, path in fields.items():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _record(lab: Lab, pod: Pod) -> Iterator[dict[str, Any]]:
    """The Secrets of all regions, as the files of ``lab.access``."""
    for region in lab.regions.values():
        assert region.pod is not None
        items = [{"key": "region.json", "path": f"{region.name}.json"}]
        if region.name == pod.namespace:
            items.append({"key": "lab.json", "path": "lab.json"})
        names = ["ca.crt", *(f"{user}.properties" for user in region.clients)] if region.clients else []
        items += [{"key": name, "path": f"{region.name}/{name}"} for name in names]
        yield {"secret": {"name": region.pod.secret, "items": items}}


def executors(lab: Lab, pod: Pod) -> list[str]:
    """What Spark's own scheduler on Kubernetes must know of this pod and of the lab."""
    known = next(iter(lab.region(pod.namespace).clients.values()), None)
    if known is None:
        raise LabError(f"{pod.namespace}: there are no users to connect as; run the set-up again")
    settings = {
        "spark.driver.host": "$(POD_IP)",
        # What the driver tells its executors has Kafka's passwords in it. A file that all of them have is their secret.
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": f"{HOME}/access/{pod.namespace}/{known.name}",
        # By Spark's default cipher: with AES/GCM, executors of Spark 4.0.0 wait without end for their first answer.
        "spark.network.crypto.enabled": "true",
        "spark.kubernetes.namespace": pod.namespace,
        # With the driver's pod its executors go as well, however it ends.
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.executor.container.image": pod.image,
        "spark.kubernetes.executor.podTemplateFile": str(EXECUTOR),
        # What it would need more rights for, and has no use for here.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        **{f"spark.kubernetes.executor.label.{name}": value for name, value in LABELS.items()},
        **{
            f"spark.kubernetes.executor.secrets.{region.pod.secret}": f"{HOME}/access/{region.name}"
            for region in lab.regions.values()
            if region.pod
        },
    }
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def _wait_started(cluster: Cluster, namespace: str, job: str) -> str:
    """Waits until the job's pod runs, or has run; returns its name."""
    deadline, pause, told = time.monotonic() + START_SECONDS, 0.2, ""
    while True:
        pods = cluster.list("v1", "Pod", namespace, f"batch.kubernetes.io/job-name={job}")
        if pods and pods[0].get("status", {}).get("phase") in ("Running", "Succeeded", "Failed"):
            return str(pods[0]["metadata"]["name"])
        problems = [problem for pod in pods for problem in pod_problems(pod)] or _refusals(cluster, namespace, job)
        text = "; ".join(problems)
        if time.monotonic() >= deadline:
            raise LabError(
                f"{namespace}: Job/{job}: its pod did not start within {START_SECONDS} s: "
                f"{text or 'Kubernetes has not said why'}"
            )
        if text and text != told:
            print(f"waiting: {text}", file=sys.stderr, flush=True)
            told = text
        time.sleep(pause)  # between two looks; the condition above decides when it ends
        pause = min(pause * 1.3, 2.0)


def _refusals(cluster: Cluster, namespace: str, job: str) -> list[str]:
    """Why there is no pod at all: a quota, for instance."""
    return [
        " ".join(str(event.get("message", "")).split())
        for event in cluster.list("v1", "Event", namespace)
        if event.get("involvedObject", {}).get("name") == job and event.get("type") == "Warning"
    ]


def _follow(cluster: Cluster, namespace: str, pod: str, files: Mapping[str, Path]) -> int:
    """Shows a pod's output until it ends, through cut connections and restarts of the API server; its exit code."""
    output = _Output(files)
    last, silent_since = "", None
    while True:
        try:
            for at, line in cluster.follow(namespace, pod, "lab", since=last):
                last, silent_since = at, None
                output.take(line)
            code, silent_since = _exit_code(cluster, namespace, pod), None
        except LogCutError:
            continue
        except SilentError as error:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() >= silent_since + SILENT_SECONDS:
                raise LabError(f"{error}; gave up after {SILENT_SECONDS} s") from error
            code = None
        if code is not None:
            output.write_files()
            return code
        time.sleep(LOOK_SECONDS)  # until Kubernetes has noticed that the program has ended, or answers again


def _exit_code(cluster: Cluster, namespace: str, pod: str) -> int | None:
    found = cluster.get("v1", "Pod", pod, namespace)
    if found is None:
        raise LabError(f"{namespace}: Pod/{pod} was deleted by somebody else")
    for container in found.get("status", {}).get("containerStatuses") or ():
        if ended := (container.get("state") or {}).get("terminated"):
            return int(ended["exitCode"])
    return None


class _Output:
    """Takes the marked lines of a pod's log apart."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self._parts: dict[str, bytearray] = {}

    def take(self, line: str) -> None:
        """Shows a line, or keeps it, whatever it is."""
        mark, text = line[:1], line[1:]
        if mark == "o":
            print(text, flush=True)
        elif mark == "f":
            name, _, part = text.partition(" ")
            self._parts.setdefault(name, bytearray()).extend(base64.b64decode(part))
        else:
            # What Python says before the command runs bears no mark.
            print(text if mark == "e" else line, file=sys.stderr, flush=True)

    def write_files(self) -> None:
        """Writes what the command has written, where its caller wanted it."""
        for name, path in self._files.items():
            if name in self._parts:
                path.write_bytes(self._parts[name])
