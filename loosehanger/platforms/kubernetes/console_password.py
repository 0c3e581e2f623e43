"""A chosen password for all web consoles on Kubernetes: a Secret in each region, to which the KafkaUsers refer."""

from __future__ import annotations

import base64
import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from loosehanger.lab.console_password import SIGNS_IN, chosen_at, console_password
from loosehanger.lab.manifests.views import Program
from loosehanger.platforms.kubernetes.resources import ManifestEntry, labelled

SECRET: Final = "loosehanger-lab-sign-in"  # noqa: S105 - a name
"""The Secret with the chosen password, in the namespace of each region."""
SHARED: Final = "CONSOLE_SHARED_PASSWORD"
"""Set for a console when all consoles of the lab have its password."""


def with_password(namespace: str, home: Path, manifests: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Returns the manifests with the chosen password; unchanged without one, where the operator generates passwords.

    Users who sign in get a reference to the password, preceded by its Secret. The key in the Secret names the moment of
    the choice, so that another password changes the users' specs and their operator reconciles them.

    Args:
        namespace: the region's namespace.
        home: the lab's home, which keeps the password.
        manifests: what is applied there.
    """
    password = console_password(home)
    if password is None:
        return [*manifests]
    key = f"password-{chosen_at(home)}"
    reference = {"valueFrom": {"secretKeyRef": {"name": SECRET, "key": key}}}
    found = []
    for one in manifests:
        document = copy.deepcopy(one.document)
        if document["kind"] == "KafkaUser" and SIGNS_IN in (document["metadata"].get("labels") or {}):
            document["spec"]["authentication"]["password"] = reference
        elif document["kind"] == "Deployment" and Program(document).is_console:
            document["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": SHARED, "value": "true"})
        else:
            document = one.document
        found.append(replace(one, document=document))
    first = next((index for index, one in enumerate(found) if _refers(one.document)), None)
    if first is not None:
        data = {key: base64.b64encode(password.encode()).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": namespace}}
        found.insert(first, ManifestEntry("LAB_PASSWORD", labelled({**secret, "type": "Opaque", "data": data})))
    return found


def _refers(document: dict[str, Any]) -> bool:
    return document["kind"] == "KafkaUser" and "password" in document["spec"].get("authentication", {})
