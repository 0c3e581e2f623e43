"""What the platform's Ansible modules share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from .errors import PlatformError
from .manifests import Manifest, read_manifests
from .region import Region

_REGION_OPTIONS: dict[str, Any] = {
    "home": {"type": "path", "required": True},
    "checkout": {"type": "path", "required": True},
    "region": {"type": "str", "required": True},
    "port_base": {"type": "int", "required": True},
}

MANIFESTS_OPTION: dict[str, Any] = {
    "type": "list",
    "elements": "dict",
    "required": True,
    "options": {
        "source": {"type": "str", "required": True},
        "content": {"type": "str", "required": True},
    },
}


def run_module(
    work: Callable[[AnsibleModule, Region], dict[str, Any]],
    options: dict[str, Any] | None = None,
    *,
    no_log: bool = False,
) -> None:
    """Runs a module's work for a region and leaves the process with its result.

    An error that a user can do something about is one line; ``wrong_use`` tells bad input from failed work.
    """
    module = AnsibleModule(
        argument_spec={**_REGION_OPTIONS, **(options or {})}, supports_check_mode=True, no_log=no_log
    )
    arguments = module.params
    region = Region(
        Path(arguments["home"]).absolute(), Path(arguments["checkout"]), arguments["region"], arguments["port_base"]
    )
    try:
        result = work(module, region)
    except PlatformError as error:
        module.fail_json(msg=str(error), lab_error=str(error), lab_wrong_use=error.wrong_use)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        message = f"{region.name}{where}: {error.strerror or error}"
        module.fail_json(msg=message, lab_error=message, lab_wrong_use=False)
    module.exit_json(**result)


def manifests_of(module: AnsibleModule, region: Region | None) -> list[Manifest]:
    """The module's manifests, read and checked; all of the region's namespace when a region is given."""
    return [
        manifest
        for file in module.params["manifests"]
        for manifest in read_manifests(file["source"], file["content"], region.name if region else None)
    ]
