"""Deployments: the additions to their manifests on Kubernetes.

A Deployment restarts when a secret that it mounts changes, as on the local platform. Without an image of the kit, its
code comes from a ConfigMap, and its dependencies from a package index.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from loosehanger.errors import WrongUseError
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.resources import LABELS, labelled

SECRETS_ANNOTATION: Final = "loosehanger-lab/secrets"
CODE: Final = "loosehanger-lab-code"
"""The ConfigMap with the programs' code."""
_PROGRAMS = ("producer", "consumers", "loosehanger", "loosehanger/kafka", "loosehanger/events")
"""Folders whose modules the programs import, without subfolders."""
_NEEDED = ("kafka-python", "crc32c", "faker", "rich")
"""The packages that the programs import; the lock has their dependencies."""
USER = 10001
_INSTALL = (
    "tar -xzf /code/code.tar.gz -C /lab && "
    "python -P -m pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: "
    "--target /lab/packages --requirement /code/requirements.txt"
)


def prepared(document: Mapping[str, Any], cluster: KubernetesCluster, *, python_image: str) -> dict[str, Any]:
    """Returns a Deployment in the form in which it is applied.

    Args:
        document: the manifest.
        cluster: the cluster that it is applied to, and whose secrets are read.
        python_image: a stock Python image to run the ConfigMap's code; empty to run the manifest's own image.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    template = changed["spec"]["template"]
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **LABELS}
    pod = template["spec"]
    namespace = document["metadata"]["namespace"]
    secrets = [volume["secret"]["secretName"] for volume in pod.get("volumes") or () if "secret" in volume]
    data = [(cluster.get("v1", "Secret", name, namespace) or {}).get("data") for name in sorted(secrets)]
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    metadata["annotations"] = {**(metadata.get("annotations") or {}), SECRETS_ANNOTATION: digest}
    if python_image:
        _use_stock_python(pod, python_image, metadata["annotations"], cluster, namespace)
    return changed


def _use_stock_python(
    pod: dict[str, Any], image: str, annotations: dict[str, str], cluster: KubernetesCluster, namespace: str
) -> None:
    code = cluster.get("v1", "ConfigMap", CODE, namespace) or {}
    annotations["loosehanger-lab/code"] = hashlib.sha256(json.dumps(code.get("binaryData")).encode()).hexdigest()
    # The image's own user is root.
    pod["securityContext"] = {**pod.get("securityContext", {}), "runAsUser": USER, "runAsGroup": USER}
    lab = {"name": "lab", "mountPath": "/lab"}
    first = pod["containers"][0]
    pod["initContainers"] = [
        {
            "name": "install",
            "image": image,
            "command": ["sh", "-c", _INSTALL],
            "env": [{"name": "HOME", "value": "/lab"}, {"name": "TMPDIR", "value": "/lab"}],
            "volumeMounts": [lab, {"name": "code", "mountPath": "/code", "readOnly": True}],
            **{key: first[key] for key in ("securityContext", "resources") if key in first},
        }
    ]
    for container in pod["containers"]:
        container["image"] = image
        container["workingDir"] = "/lab"
        paths = {"name": "PYTHONPATH", "value": "/lab:/lab/packages"}
        container["env"] = [*container.get("env", ()), paths]
        container["volumeMounts"] = [*container.get("volumeMounts", ()), {**lab, "readOnly": True}]
    pod["volumes"] = [
        *pod.get("volumes", ()),
        {"name": "lab", "emptyDir": {"sizeLimit": "256Mi"}},
        {"name": "code", "configMap": {"name": CODE}},
    ]


def code_map(checkout: Path, namespace: str) -> dict[str, Any]:
    """Returns the ConfigMap with the programs' code and the locked list of their dependencies."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=9) as tar:
        for folder in _PROGRAMS:
            for path in sorted((checkout / folder).glob("*.py")):
                info = tarfile.TarInfo(str(path.relative_to(checkout)))
                info.size = path.stat().st_size
                tar.addfile(info, io.BytesIO(path.read_bytes()))
    data = bytearray(archive.getvalue())
    data[4:8] = bytes(4)  # the time of packing, so that the same code gives the same bytes
    return labelled(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CODE, "namespace": namespace},
            "data": {"requirements.txt": requirements(checkout / "requirements.lock")},
            "binaryData": {"code.tar.gz": base64.b64encode(bytes(data)).decode()},
        }
    )


def requirements(lock: Path) -> str:
    """Returns the part of the lock that the programs need, with hashes.

    Raises:
        WrongUseError: the lock lacks a package that they need.
    """
    entries = dict(_entries(lock.read_text(encoding="utf-8")))
    wanted, needed = list(_NEEDED), dict[str, str]()
    while wanted:
        name = wanted.pop()
        if name in needed:
            continue
        if name not in entries:
            raise WrongUseError(f"{lock}: {name} is not in it; run scripts/lock.sh")
        needed[name] = entries[name]
        wanted += [other for other, text in entries.items() if re.search(rf"^    # +(?:via )?{name}$", text, re.M)]
    return "".join(needed[name] for name in sorted(needed))


def _entries(lock: str) -> Iterator[tuple[str, str]]:
    for entry in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE):
        if match := re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==", entry):
            yield match[1], entry
