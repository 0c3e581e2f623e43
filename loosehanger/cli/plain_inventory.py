"""The kit's own inventory of this machine, read without Ansible while it is as it came."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from loosehanger.cli.inventories import DEFAULT_INVENTORY
from loosehanger.cli.port_base import ENVIRONMENT, VARIABLE
from loosehanger.lab.progress import LOCAL, Progress
from loosehanger.paths import ROOT

_FOLDER = ROOT / DEFAULT_INVENTORY
_FILES = {"group_vars", "group_vars/all.yaml", "regions.yaml"}
_OF_THE_PLATFORM = ("ansible_", "platform_", "lab_")
_NAME = re.compile(r"[\w-]+")
"""A region's name. Ansible reads more into some others, such as ``region[1:3]``."""
_FIRST_PORT, _PORTS_OF_A_REGION = 19000, 100
_EXPECTED = {
    "ansible_connection": "local",
    "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    "platform_role": "platform_local",
    VARIABLE: f"{{{{ lookup('ansible.builtin.env', 'LAB_PORT_BASE') | default('{_FIRST_PORT}', true) }}}}",
    "platform_local_port_base": (
        f"{{{{ lab_port_base | int + {_PORTS_OF_A_REGION} * (groups.regions.index(inventory_hostname) + 1) }}}}"
    ),
}
"""The variables of the inventory on which a region's ports and files depend."""


def port_bases(
    progress: Progress, folder: Path = _FOLDER, environment: Mapping[str, str] = os.environ
) -> dict[str, int] | None:
    """Returns the first port of each region of the inventory, in its order.

    Args:
        progress: what is set up.
        folder: the kit's inventory.
        environment: the environment, which may name the first port of all.

    Returns:
        None if the lab was set up with another inventory, or this one was changed, so that only Ansible can read it.
    """
    if progress.platform != LOCAL or Path(ROOT, progress.inventory).resolve() != folder.resolve():
        return None
    if {str(path.relative_to(folder)) for path in folder.rglob("*")} != _FILES:
        return None
    if any((ROOT / "playbooks" / name).exists() for name in ("group_vars", "host_vars")):
        return None
    regions, variables = _read(folder / "regions.yaml"), _read(folder / "group_vars/all.yaml")
    if _relevant(variables) != _EXPECTED or list(regions) != ["regions"]:
        return None
    group = regions["regions"]
    if not isinstance(group, dict) or not isinstance(group.get("hosts"), dict) or set(group) - {"hosts", "vars"}:
        return None
    each = [own or {} for own in (*group["hosts"].values(), group.get("vars"))]
    if not all(isinstance(own, dict) and not _relevant(own) for own in each):
        return None
    names = [str(name) for name in group["hosts"]]
    if not all(map(_NAME.fullmatch, names)):
        return None
    base = progress.port_base or int(environment.get(ENVIRONMENT) or _FIRST_PORT)
    return {name: base + number * _PORTS_OF_A_REGION for number, name in enumerate(names, start=1)}


def _read(path: Path) -> dict[str, Any]:
    """Returns a file's mapping; empty for any other content."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _relevant(variables: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in variables.items() if str(name).startswith(_OF_THE_PLATFORM)}
