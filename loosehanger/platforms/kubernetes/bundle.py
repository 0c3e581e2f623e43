"""A region's part of a support bundle: resources, events and logs, without secrets."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from loosehanger.errors import LabError
from loosehanger.files import write_file
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.resources import ORDER, SELECTOR
from loosehanger.platforms.redact import redact_folder, say_unread

LOG_LINES = 500


def collect(cluster: KubernetesCluster, namespace: str, folder: Path) -> None:
    """Writes a region's resources, events and logs into a folder.

    A resource that the account may not read is noted there and is not an error, because a bundle is for broken labs.
    """
    summary = [f"API server: {_or_reason(cluster.version)}\n"]
    for version, kind in ORDER:
        if kind == "Secret":
            continue
        selector = "" if kind == "Namespace" else SELECTOR
        found = _or_reason(lambda v=version, k=kind, s=selector: _own(cluster, v, k, namespace, s))
        if isinstance(found, str):
            summary.append(f"{kind}: {found}\n")
        for resource in found if isinstance(found, list) else ():
            _write(folder / f"{kind}-{resource['metadata']['name']}.yaml", resource)
    pods = _or_reason(lambda: cluster.list("v1", "Pod", namespace))
    for pod in pods if isinstance(pods, list) else ():
        name = pod["metadata"]["name"]
        _write(folder / "pods" / f"{name}.yaml", pod)
        for container, previous in _containers(pod):
            log = cluster.log(namespace, name, container, LOG_LINES, previous=previous)
            if log:
                write_file(folder / "logs" / f"{name}-{container}{'-previous' if previous else ''}.log", log)
    events = _or_reason(lambda: cluster.list("v1", "Event", namespace))
    if isinstance(events, list):
        lines = sorted(
            f"{event.get('lastTimestamp') or event.get('eventTime')} {event.get('type')} "
            f"{event.get('involvedObject', {}).get('kind')}/{event.get('involvedObject', {}).get('name')} "
            f"{event.get('reason')}: {' '.join(str(event.get('message', '')).split())}\n"
            for event in events
        )
        write_file(folder / "events.txt", "".join(lines))
    summary += [f"{what}: {answer}\n" for what, answer in (("Pod", pods), ("Event", events)) if isinstance(answer, str)]
    write_file(folder / "cluster.txt", "".join(summary))


def take_secrets_out(cluster: KubernetesCluster, namespace: str, bundle: Path, folder: Path) -> None:
    """Removes the region's secrets from a bundle; notes in the region's folder if they cannot be read."""
    secrets = _or_reason(lambda: cluster.list("v1", "Secret", namespace))
    if isinstance(secrets, str):
        say_unread(folder, secrets)
        return
    values = (secret.get("data") or {} for secret in secrets)
    redact_folder(bundle, (base64.b64decode(value) for data in values for value in data.values()))


def _own(cluster: KubernetesCluster, version: str, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
    if kind == "Namespace":
        found = cluster.get(version, kind, namespace)
        return [found] if found else []
    return cluster.list(version, kind, namespace, selector)


def _or_reason(read: Any) -> Any:
    try:
        return read()
    except LabError as error:
        return str(error)


def _write(path: Path, resource: Mapping[str, Any]) -> None:
    metadata = {key: value for key, value in resource["metadata"].items() if key != "managedFields"}
    write_file(path, yaml.safe_dump({**resource, "metadata": metadata}, sort_keys=False, allow_unicode=True))


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    status = pod.get("status", {})
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        yield container["name"], False
        if container.get("restartCount"):
            yield container["name"], True
