"""A stand-in for the operators and for Kubernetes' own controllers of workloads: it writes statuses, and runs nothing.

Where there are no nodes, no controller carries out what is applied. This says "done" of everything, in the way in which
Strimzi and Kubernetes say it, and makes the secrets that the operators would make. What it says of a kind can be
changed, for tests of what the kit does when things do not get ready.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loosehanger.platforms.kubernetes.console_facts import JOB
from scripts.apiserver.server import ApiServer, RefusedError

Document = dict[str, Any]
STRIMZI = "kafka.strimzi.io/v1"
PAUSE_SECONDS = 0.4
"""Between two looks, each of which asks for some twenty lists: more looks take time from the commands."""


class StandIn:
    """Watches namespaces of an API server until it is stopped; a context manager."""

    def __init__(self, server: ApiServer, namespaces: Sequence[str]) -> None:
        self._server = server
        self._namespaces = namespaces
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure: Exception | None = None
        self.says: dict[str, Callable[[Document], Document | None]] = {
            "Kafka": kafka_status,
            "KafkaNodePool": lambda pool: {"observedGeneration": pool["metadata"]["generation"], "nodeIds": [0]},
            "KafkaTopic": ready,
            "KafkaUser": ready,
            "KafkaMirrorMaker2": mirror_status,
            "Deployment": deployment_status,
        }
        """What it says of each kind; None says nothing."""
        self.enforces = True
        """Whether network policies keep out the pods that ask: nothing runs here, so that this is only said."""

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_SECONDS):
                for namespace in self._namespaces:
                    try:
                        self._look(namespace)
                    except RefusedError as error:
                        # Deleted or changed in the meantime, or not served yet: the next look finds what is there.
                        if error.code not in (403, 404, 409, 429, 503):
                            raise
        except Exception as error:  # reported in the test's own thread
            self.failure = error

    def _look(self, namespace: str) -> None:
        self._answer_questions(namespace)
        for kind, says in self.says.items():
            version = "apps/v1" if kind == "Deployment" else STRIMZI
            any_ = {"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace}}
            for item in self._server.request("GET", self._server.path(any_, of_kind=True))["items"]:
                resource = {"apiVersion": version, "kind": kind, **item}
                status = paused(resource) or says(resource)
                if status is None or resource.get("status") == status:
                    continue
                for secret in secrets(resource, self._given(resource)):
                    self._server.apply(secret, manager="operator")
                self._server.set_status(resource, status)

    def _given(self, resource: Mapping[str, Any]) -> str:
        """The password that a user's resource refers to; empty for one that the operator generates."""
        reference = (resource["spec"].get("authentication") or {}).get("password") if resource["spec"] else None
        if resource["kind"] != "KafkaUser" or not reference:
            return ""
        wanted = reference["valueFrom"]["secretKeyRef"]
        metadata = {"name": wanted["name"], "namespace": resource["metadata"]["namespace"]}
        found = self._server.get({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        assert found is not None, f"{metadata}: the operator does not find the password"
        return base64.b64decode(found["data"][wanted["key"]]).decode()

    def _answer_questions(self, namespace: str) -> None:
        """Says of the Jobs that ask Connect that their pods have ended, and who answered them."""
        jobs = self._server.request("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
        for job in jobs:
            name = job["metadata"]["name"]
            if not name.startswith(JOB) or "deletionTimestamp" in job["metadata"]:
                continue
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
            labels = {"batch.kubernetes.io/job-name": name}
            metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
            spec = job["spec"]["template"]["spec"]
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            present = self._server.get(pod) or self._server.apply(pod, manager="kubelet")
            if present.get("status", {}).get("phase") == "Succeeded":
                continue
            urls = [word for word in spec["containers"][0]["command"] if word.startswith("http://")]
            ended = {"exitCode": 0, "message": json.dumps([] if self.enforces else urls)}
            container = {"name": "ask", "image": "", "imageID": "", "ready": False, "restartCount": 0}
            said = {**container, "state": {"terminated": ended}}
            self._server.set_status(pod, {"phase": "Succeeded", "containerStatuses": [said]})


def ready(resource: Mapping[str, Any]) -> Document:
    """As Strimzi says that a resource is ready."""
    return {
        "observedGeneration": resource["metadata"]["generation"],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }


def paused(resource: Mapping[str, Any]) -> Document | None:
    """As Strimzi says that it leaves a resource alone, where the resource asks for that."""
    if (resource["metadata"].get("annotations") or {}).get("strimzi.io/pause-reconciliation") != "true":
        return None
    condition = {"type": "ReconciliationPaused", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"observedGeneration": resource["metadata"]["generation"], "conditions": [condition]}


def not_ready(reason: str, message: str) -> Callable[[Mapping[str, Any]], Document]:
    """As Strimzi says that a resource is not."""

    def says(resource: Mapping[str, Any]) -> Document:
        condition = {"type": "NotReady", "status": "True", "reason": reason, "message": message}
        return {
            "observedGeneration": resource["metadata"]["generation"],
            "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }

    return says


def kafka_status(kafka: Mapping[str, Any]) -> Document:
    """Ready, with an address for each listener."""
    name, namespace = kafka["metadata"]["name"], kafka["metadata"]["namespace"]
    addresses = {
        listener["name"]: f"{name}.{listener['name']}.example:{listener['port']}"
        if listener["type"] != "internal"
        else f"{name}-kafka-bootstrap.{namespace}.svc:{listener['port']}"
        for listener in kafka["spec"]["kafka"]["listeners"]
    }
    listeners = [{"name": name, "bootstrapServers": address} for name, address in addresses.items()]
    return ready(kafka) | {"listeners": listeners}


def mirror_status(mirror: Mapping[str, Any]) -> Document:
    """Ready, with every connector running one task."""
    target = mirror["spec"]["target"]["alias"]
    names = [f"{entry['source']['alias']}->{target}.MirrorSourceConnector" for entry in mirror["spec"]["mirrors"]]
    worker = {"state": "RUNNING", "worker_id": "worker:8083"}
    connectors = [
        {"name": name, "type": "source", "connector": worker, "tasks": [{"id": 0, **worker}]} for name in names
    ]
    return ready(mirror) | {"connectors": connectors, "replicas": 1}


def deployment_status(deployment: Mapping[str, Any]) -> Document:
    """All pods of the newest version run."""
    copies = deployment["spec"]["replicas"]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), copies)
    return {"observedGeneration": deployment["metadata"]["generation"], **{k: v for k, v in counts.items() if v}}


def secrets(resource: Mapping[str, Any], given: str = "") -> list[Document]:
    """The secrets that the operators make of a resource; a user's with the password that is given to it."""
    name, namespace = resource["metadata"]["name"], resource["metadata"]["namespace"]
    if resource["kind"] == "Kafka":
        return [_secret(resource, f"{name}-cluster-ca-cert", {"ca.crt": f"certificate of {name}"})]
    if resource["kind"] == "KafkaUser":
        password = given or f"password-of-{name}-in-{namespace}"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        jaas = f'{module} required username="{name}" password="{password}";'
        return [_secret(resource, name, {"password": password, "sasl.jaas.config": jaas})]
    return []


def _secret(owner: Mapping[str, Any], name: str, values: Mapping[str, str]) -> Document:
    metadata = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {"app.kubernetes.io/managed-by": "strimzi-cluster-operator"},
            "ownerReferences": [{**reference, "uid": metadata["uid"]}],
        },
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }
