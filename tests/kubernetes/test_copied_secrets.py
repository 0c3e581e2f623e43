"""Secrets that are copied between regions: what a real API server keeps of them, and what it would not let pass."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.lab.topology import SecretCopy
from loosehanger.paths import ROOT
from loosehanger.platforms.kubernetes.apply import RegionNamespace
from loosehanger.platforms.kubernetes.copied_secrets import COPIED_FROM, copy_secrets
from loosehanger.platforms.kubernetes.services import ClusterContext
from scripts.apiserver.server import ApiServer

pytestmark = pytest.mark.kubernetes


def secret(namespace: str, name: str, value: str, type_: str = "Opaque", **metadata: Any) -> dict[str, Any]:
    """A secret with one key."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "type": type_,
        "data": {"password": base64.b64encode(value.encode()).decode()},
    }


def test_copies_under_other_names(api_server: ApiServer, kubeconfig: Path, make_namespace: Callable[[], str]) -> None:
    origin, target = make_namespace(), make_namespace()
    place = ClusterContext(str(kubeconfig))
    region = RegionNamespace(target, place, {origin: place, target: place}, True, "", ROOT, print)
    labels = {"strimzi.io/cluster": "europe", "strimzi.io/kind": "Kafka"}
    generation = {"strimzi.io/ca-cert-generation": "2"}
    api_server.apply(secret(origin, "europe-cluster-ca-cert", "a", labels=labels, annotations=generation))
    api_server.apply(secret(origin, "mm2-europe", "one"))
    copies = [
        SecretCopy(origin, "mm2-europe", target, "mm2-europe", "KafkaUser"),
        SecretCopy(origin, "europe-cluster-ca-cert", target, "backup-cluster-ca-cert", "Kafka"),
    ]
    names = ["mm2-europe", "backup-cluster-ca-cert"]
    assert copy_secrets(region, copies, dry_run=True) == names
    assert copy_secrets(region, copies) == names
    assert copy_secrets(region, copies) == []
    authority = api_server.get(secret(target, "backup-cluster-ca-cert", ""))
    assert authority is not None
    assert authority["metadata"]["labels"].items() >= (labels | {"strimzi.io/cluster": "backup"}).items()
    noted = {**generation, COPIED_FROM: f"{origin}/europe-cluster-ca-cert"}
    assert authority["metadata"]["annotations"].items() >= noted.items()

    # The type of a secret cannot be changed; a copy is made anew.
    api_server.delete(secret(origin, "mm2-europe", ""))
    basic = secret(origin, "mm2-europe", "two", "kubernetes.io/basic-auth")
    api_server.apply(basic)
    assert copy_secrets(region, copies) == ["mm2-europe"]
    copied = api_server.get(secret(target, "mm2-europe", ""))
    assert copied is not None
    assert (copied["type"], copied["data"]) == (basic["type"], basic["data"])

    api_server.apply(secret(target, "strangers", "kept"), manager="stranger")
    with pytest.raises(WrongUseError, match="Secret/strangers: already exists and is not managed by the kit"):
        copy_secrets(region, [SecretCopy(origin, "mm2-europe", target, "strangers", "KafkaUser")])
    kept = api_server.get(secret(target, "strangers", ""))
    assert kept is not None
    assert base64.b64decode(kept["data"]["password"]) == b"kept"
