"""Which Deployments are web consoles, and where people find them: told by the program's own environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loosehanger.lab.plan import is_console


def web_console(deployment: Mapping[str, Any]) -> dict[str, str] | None:
    """Where people reach a web console, and as whom they sign in; None for other programs, and for one that is stopped.

    Args:
        deployment: the resource.

    Returns:
        ``name``, ``url`` and ``username``: the KafkaUser whose name and password people sign in with.
    """
    if not is_console(deployment):
        return None
    spec = deployment["spec"]
    variables = {
        variable["name"]: variable.get("value", "")
        for variable in spec["template"]["spec"]["containers"][0].get("env") or ()
    }
    if not spec.get("replicas", 1):
        return None
    scheme = "https" if variables.get("CONSOLE_CERTIFICATE_FILE") else "http"
    return {
        "name": variables["CONSOLE_NAME"],
        "url": f"{scheme}://{variables['CONSOLE_ADDRESS']}:{variables['CONSOLE_PORT']}",
        "username": variables["CONSOLE_USERNAME"],
    }
