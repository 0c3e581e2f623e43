"""Running the kit's own commands against an API server, and looking at what is there then."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.apiserver.server import ApiServer
from scripts.sandbox import Kit, copy_kit

KIT = {"app.kubernetes.io/managed-by": "loosehanger-lab", "app.kubernetes.io/part-of": "loosehanger-lab"}
"""The labels of everything that is the kit's."""


def copy_kit_for(kubeconfig: Path, folder: Path) -> Kit:
    """A copy of the kit that uses this kubeconfig."""
    kit = copy_kit(folder, port_base=28000)
    kit.environment = {"KUBECONFIG": str(kubeconfig)}
    return kit


def setup(kit: Kit, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Sets the broadcast up on Kubernetes."""
    return kit.setup("-i", "inventories/strimzi", *arguments)


def resource(version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    """A resource without anything in it."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def present(server: ApiServer, version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    """A resource that must be there."""
    found = server.get(resource(version, kind, name, namespace))
    assert found is not None, f"{namespace}: there is no {kind}/{name}"
    return found


def labels(document: Mapping[str, Any]) -> dict[str, str]:
    """The labels of a resource."""
    found: dict[str, str] = document["metadata"].get("labels") or {}
    return found
