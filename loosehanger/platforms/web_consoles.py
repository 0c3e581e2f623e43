"""Recognises the web consoles among Deployments, and reads their addresses from their environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loosehanger.lab.plan import is_console


def web_console(deployment: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns the address and the user of a web console; None for other programs, and for a console without replicas.

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
