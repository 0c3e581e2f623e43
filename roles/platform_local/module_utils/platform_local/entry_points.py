"""The platform's entry points, as its Ansible module and its action plugin offer them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .access import record
from .apply import apply, delete, delete_region, stop_clients
from .bundle import collect
from .errors import PlatformError
from .manifests import Manifest, read_manifests
from .preflight import check_machine, check_mirrors, check_ports
from .region import Region
from .secret_store import copy_secrets
from .status import status

_MANIFESTS = {
    "type": "list",
    "elements": "dict",
    "options": {"source": {"type": "str", "required": True}, "content": {"type": "str", "required": True}},
}

OPTIONS: dict[str, Any] = {
    "entry_point": {"type": "str", "required": True},
    "home": {"type": "path", "required": True},
    "checkout": {"type": "path", "required": True},
    "region": {"type": "str", "required": True},
    "port_base": {"type": "int", "required": True},
    "manifests": _MANIFESTS,
    "ready_seconds": {"type": "int", "default": 120},
    "stop_seconds": {"type": "int", "default": 25},
    "regions": {"type": "int", "default": 1},
    "memory_mb": {"type": "int", "default": 0},
    "disk_mb": {"type": "int", "default": 0},
    "ports": {"type": "list", "elements": "int", "default": []},
    "origin": {"type": "str"},
    "secrets": {"type": "list", "elements": "str", "no_log": False},
    "folder": {"type": "path"},
}
"""What the module takes; an argument specification of Ansible."""

# Every entry point takes the same, whether it needs all of it or not.
# ruff: noqa: ARG001
Parameters = dict[str, Any]
Result = dict[str, Any]


def run(parameters: Parameters, *, check_mode: bool) -> Result:
    """Runs an entry point for a region.

    Args:
        parameters: as ``OPTIONS`` has them, validated.
        check_mode: only tell what would change.

    Returns:
        The module's result. Where the work failed it has ``failed``, and in ``lab_error`` one line for the user;
        ``lab_wrong_use`` then tells bad input from failed work.
    """
    region = Region(
        Path(parameters["home"]).absolute(),
        Path(parameters["checkout"]),
        parameters["region"],
        parameters["port_base"],
    )
    try:
        return _ENTRY_POINTS[parameters["entry_point"]](region, parameters, check_mode)
    except PlatformError as error:
        return _failure(str(error), wrong_use=error.wrong_use)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _failure(f"{region.name}{where}: {error.strerror or error}", wrong_use=False)


def _failure(message: str, *, wrong_use: bool) -> Result:
    return {"failed": True, "msg": message, "lab_error": message, "lab_wrong_use": wrong_use}


def _read(parameters: Parameters, namespace: str | None) -> list[Manifest]:
    return [
        manifest
        for file in parameters["manifests"] or []
        for manifest in read_manifests(file["source"], file["content"], namespace)
    ]


def _preflight(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    manifests = _read(parameters, None)
    check_mirrors(manifests)
    check_machine(
        region, regions=parameters["regions"], memory_mb=parameters["memory_mb"], disk_mb=parameters["disk_mb"]
    )
    check_ports(region, manifests, parameters["ports"])
    return {"changed": False}


def _apply(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    manifests = _read(parameters, region.name)
    outcome = apply(region, manifests, ready_seconds=parameters["ready_seconds"], dry_run=check_mode)
    diff = {"before": outcome.before, "after": outcome.after}
    return {"changed": bool(outcome.changed), "resources": outcome.changed, "diff": diff}


def _delete(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    deleted = delete(region, _read(parameters, region.name), dry_run=check_mode)
    return {"changed": bool(deleted), "resources": deleted}


def _copy_secrets(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    origin = Region(region.home, region.checkout, parameters["origin"], 0)
    # In check mode the region that has them may not be there yet.
    if check_mode and not origin.exists():
        return {"changed": True}
    copied = copy_secrets(origin, region, parameters["secrets"], dry_run=check_mode)
    return {"changed": bool(copied), "resources": [f"Secret/{name}" for name in copied]}


def _status(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    return {"changed": False, "resources": status(region)}


def _access(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    return {"changed": False if check_mode else record(region)}


def _stop_clients(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    return {"changed": region.folder.exists() if check_mode else stop_clients(region)}


def _delete_region(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    return {"changed": region.folder.exists() if check_mode else delete_region(region, parameters["stop_seconds"])}


def _bundle(region: Region, parameters: Parameters, check_mode: bool) -> Result:
    collect(region, Path(parameters["folder"]) / region.name)
    return {"changed": False}


_ENTRY_POINTS: dict[str, Callable[[Region, Parameters, bool], Result]] = {
    "preflight": _preflight,
    "apply": _apply,
    "delete": _delete,
    "copy_secrets": _copy_secrets,
    "status": _status,
    "access": _access,
    "stop_clients": _stop_clients,
    "delete_region": _delete_region,
    "bundle": _bundle,
}
OPTIONS["entry_point"]["choices"] = list(_ENTRY_POINTS)
