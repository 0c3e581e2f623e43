"""Recognises the web consoles and the audit among Deployments, and reads their addresses from their environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loosehanger.lab.manifests.views import Program
from loosehanger.ports import LOOPBACK


def web_console(deployment: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns the address and the user of a web console; None for other programs, and for a console without replicas.

    Args:
        deployment: the resource.

    Returns:
        ``name``, ``url``, ``username``, and two KafkaUsers: ``account``, whose password people sign in with, and
        ``scraper``, whose password is the token for its metrics; empty for a console without metrics.
    """
    program = Program(deployment)
    if not (program.is_console and program.replicas):
        return None
    variables = program.variables
    scheme = "https" if variables.get("CONSOLE_CERTIFICATE_FILE") else "http"
    return {
        "name": variables["CONSOLE_NAME"],
        "url": f"{scheme}://{variables['CONSOLE_ADDRESS']}:{variables['CONSOLE_PORT']}",
        "username": variables["CONSOLE_USERNAME"],
        "account": _account(program.pod, variables["CONSOLE_PASSWORD_FILE"]),
        "scraper": _account(program.pod, variables.get("CONSOLE_METRICS_TOKEN_FILE", "")),
    }


def audit(deployment: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns the address of the audit and its scraper; None for other programs, and for an audit without replicas.

    Args:
        deployment: the resource.

    Returns:
        ``address``, and ``scraper``, the KafkaUser whose password is the token for its metrics.
    """
    program = Program(deployment)
    if not (program.is_audit and program.replicas):
        return None
    variables = program.variables
    return {
        "address": f"{LOOPBACK}:{variables['AUDIT_PORT']}",
        "scraper": _account(program.pod, variables["AUDIT_METRICS_TOKEN_FILE"]),
    }


def _account(pod: Mapping[str, Any], file: str) -> str:
    """The KafkaUser whose secret a console reads a password from; empty for a file from elsewhere."""
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0].get("volumeMounts") or ()}
    volumes = {volume["name"]: volume.get("secret") or {} for volume in pod.get("volumes") or ()}
    return str(volumes.get(mounts.get(file.rpartition("/")[0], ""), {}).get("secretName", ""))
