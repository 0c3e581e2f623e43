"""The ConfigMap with facts about mirrors that web consoles cannot query on Kubernetes.

The facts are the mirrors' desired states, and whether network policies keep other pods from changing them. Connect's
REST interface has no password here, and some network plug-ins accept network policies and do not enforce them. So a
pod without the kit's labels tries to connect.
"""

from __future__ import annotations

import copy
import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from loosehanger.errors import LabError
from loosehanger.kafka.connector_states import wanted_connectors
from loosehanger.lab.manifests.views import MIRROR, MirrorMaker, Program
from loosehanger.lab.record import recorded_documents
from loosehanger.platforms.kubernetes.access import connect_url
from loosehanger.platforms.kubernetes.apply import RegionNamespace
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.programs import USER
from loosehanger.platforms.kubernetes.readiness import pod_problems
from loosehanger.platforms.kubernetes.resources import ManifestEntry, labelled

CONFIG_MAP: Final = "loosehanger-lab-mirrors"
FOLDER: Final = "/etc/console/mirrors"
"""The console's folder with the facts, a file for each region."""
JOB: Final = "lab-network-"
"""The name prefix of the Jobs that try to connect."""
ASK_SECONDS = 120
"""Seconds a pod may take to answer, including the pull of its image."""
_LOOK_SECONDS = 0.5
PROGRAM = """\
import http.client, json, sys, urllib.error, urllib.request
opener, answered = urllib.request.build_opener(urllib.request.ProxyHandler({})), []
for url in sys.argv[1:]:
    try:
        opener.open(url, timeout=5).close()
    except urllib.error.HTTPError:
        pass
    except (OSError, http.client.HTTPException):
        continue
    answered.append(url)
with open("/dev/termination-log", "w") as file:
    json.dump(answered, file)
"""

Facts = dict[str, dict[str, dict[str, Any]]]
"""By region and mirror: ``replicas``, ``connectors`` with their desired states, and ``open``."""


def with_facts(
    region: RegionNamespace, home: Path, manifests: Sequence[ManifestEntry], *, dry_run: bool
) -> list[ManifestEntry]:
    """Returns the console manifests, preceded by the ConfigMap about the mirrors that they show.

    Args:
        region: the region of the consoles.
        home: the lab's home, with the record of every region.
        manifests: the consoles and their resources.
        dry_run: do not try to connect; keep the ConfigMap's results.
    """
    consoles = [manifest for manifest in manifests if Program(manifest.document).is_console]
    facts = wanted(home, (name for console in consoles for name in _regions(console.document)))
    if not any(facts.values()):
        return [*manifests]
    _judge(region, facts, consoles[0].document, dry_run=dry_run)
    data = {f"{name}.json": json.dumps(mirrors, sort_keys=True) for name, mirrors in sorted(facts.items())}
    metadata = {"name": CONFIG_MAP, "namespace": region.name}
    config_map = labelled({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    return [
        ManifestEntry("what consoles show of mirrors", config_map),
        *(replace(one, document=_reading(one.document)) if one in consoles else one for one in manifests),
    ]


def _regions(console: Mapping[str, Any]) -> list[str]:
    """Returns the regions that a console shows."""
    shown = Program(console).variables.get("CONSOLE_REGIONS")
    return [] if shown is None else shown.split(",")


def wanted(home: Path, regions: Iterable[str]) -> Facts:
    """Returns the desired state of each mirror, from the record."""
    return {
        name: {
            document.name: {
                # Whether there is any: a console does not use the number.
                "replicas": min(1, MirrorMaker(document.content).replicas),
                "connectors": wanted_connectors(document.content["spec"]),
                "open": False,
            }
            for document in recorded_documents(home, name)
            if document.kind == MIRROR
        }
        for name in regions
    }


def _judge(region: RegionNamespace, facts: Facts, console: Mapping[str, Any], *, dry_run: bool) -> None:
    """Adds to the facts which mirrors any pod may change, and warns of those of this region."""
    reachable = [name for name in facts if region.places.get(name) == region.place]
    asked = {connect_url(mirror, name): (name, mirror) for name in reachable for mirror in facts[name]}
    answered = None
    if asked and not dry_run:
        try:
            answered = _ask(region, [*asked], console)
        except LabError as error:
            region.report(f"{error}; cannot determine whether network policies are enforced")
    before = _present(region) if answered is None else {}
    for url, (name, mirror) in asked.items():
        known = before.get(name, {}).get(mirror, {}).get("open") is True
        facts[name][mirror]["open"] = known if answered is None else url in answered
    open_ = [mirror for mirror, fact in facts.get(region.name, {}).items() if fact["open"]]
    if open_ and answered is not None:
        region.report(
            f"{region.name}: network policies are not enforced here: any pod may change {', '.join(open_)}; use a "
            "network plug-in that enforces them, or keep other pods out of this cluster"
        )


def _present(region: RegionNamespace) -> Facts:
    """Returns the facts of the existing ConfigMap."""
    found = region.cluster.get("v1", "ConfigMap", CONFIG_MAP, region.name) or {}
    try:
        facts = {key.removesuffix(".json"): json.loads(text) for key, text in (found.get("data") or {}).items()}
    except ValueError:
        return {}
    return {name: mirrors for name, mirrors in facts.items() if isinstance(mirrors, dict)}


def _reading(console: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a console that mounts the ConfigMap. Kubernetes updates the files in two minutes without a restart."""
    changed: dict[str, Any] = copy.deepcopy(dict(console))
    pod = changed["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["env"] = [*container["env"], {"name": "CONSOLE_MIRRORS_FOLDER", "value": FOLDER}]
    mount = {"name": "mirrors", "mountPath": FOLDER, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    pod["volumes"] = [*(pod.get("volumes") or ()), {"name": "mirrors", "configMap": {"name": CONFIG_MAP}}]
    return changed


def _ask(region: RegionNamespace, urls: Sequence[str], console: Mapping[str, Any]) -> frozenset[str]:
    """Tries to connect to Connect from a pod that no network policy admits.

    Returns:
        The addresses that answered.

    Raises:
        LabError: the pod did not start in time or gave no answer, or the API server does not answer.
    """
    job = question(region, urls, console)
    cluster = region.cluster
    made = {**job, **cluster.create(job)}
    try:
        return _answer(cluster, region.name, str(job["metadata"]["name"]))
    finally:
        cluster.delete(made)


def question(region: RegionNamespace, urls: Sequence[str], console: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the Job that tries to connect: the console's image, without labels, rights, secrets and volumes."""
    pod = console["spec"]["template"]["spec"]
    container = pod["containers"][0]
    user = {"runAsUser": USER, "runAsGroup": USER} if region.python_image else {}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {**(pod.get("securityContext") or {}), **user},
        **{key: pod[key] for key in ("imagePullSecrets",) if key in pod},
        "containers": [
            {
                "name": "ask",
                "image": region.python_image or container["image"],
                "command": ["python", "-P", "-c", PROGRAM, *urls],
                **{key: container[key] for key in ("imagePullPolicy", "securityContext") if key in container},
                "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
            }
        ],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{JOB}{secrets.token_hex(3)}", "namespace": region.name},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": ASK_SECONDS,
            "ttlSecondsAfterFinished": ASK_SECONDS,
            "template": {"spec": spec},
        },
    }
    return labelled(job)


def _answer(cluster: KubernetesCluster, namespace: str, job: str) -> frozenset[str]:
    deadline = time.monotonic() + ASK_SECONDS
    while True:
        pods = cluster.list("v1", "Pod", namespace, f"batch.kubernetes.io/job-name={job}")
        for pod in pods:
            for container in (pod.get("status") or {}).get("containerStatuses") or ():
                if ended := (container.get("state") or {}).get("terminated"):
                    return _answered(namespace, pod, ended)
        if time.monotonic() >= deadline:
            reasons = "; ".join(problem for pod in pods for problem in pod_problems(pod))
            raise LabError(
                f"{namespace}: Job/{job}: its pod did not answer within {ASK_SECONDS} s: "
                f"{reasons or 'Kubernetes gives no reason'}"
            )
        time.sleep(_LOOK_SECONDS)  # between two polls; the condition above ends the loop


def _answered(namespace: str, pod: Mapping[str, Any], ended: Mapping[str, Any]) -> frozenset[str]:
    try:
        answered = json.loads(ended.get("message") or "")
    except ValueError:
        name = pod["metadata"]["name"]
        raise LabError(f"{namespace}: Pod/{name} ended with exit code {ended.get('exitCode')} and no answer") from None
    return frozenset(map(str, answered))
