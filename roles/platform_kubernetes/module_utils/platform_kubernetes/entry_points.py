"""The platform's entry points, as its action plugin offers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from platform_local.errors import ManifestError, PlatformError

from . import access, apply, bundle, preflight
from .event_streams import EventStreams
from .resources import Manifest, read_manifests
from .services import Place
from .status import status

OPTIONS: dict[str, Any] = {
    "entry_point": {"type": "str", "required": True},
    "home": {"type": "path", "required": True},
    "checkout": {"type": "path", "required": True},
    "region": {"type": "str", "required": True},
    "kubeconfigs": {"type": "dict", "required": True},
    "contexts": {"type": "dict", "required": True},
    "create_namespaces": {"type": "bool", "default": True},
    "python_image": {"type": "str", "default": ""},
    "event_streams": {"type": "dict", "default": {}},
    "operator_comes": {"type": "bool", "default": False},
    "manifests": {
        "type": "list",
        "elements": "dict",
        "options": {"source": {"type": "str", "required": True}, "content": {"type": "str", "required": True}},
    },
    "ready_seconds": {"type": "int", "default": 600},
    "delete_seconds": {"type": "int", "default": 300},
    "origin": {"type": "str"},
    "secrets": {"type": "list", "elements": "str", "no_log": False},
    "client_region": {"type": "str"},
    "image": {"type": "str"},
    "folder": {"type": "path"},
}
"""What the action takes; an argument specification of Ansible."""

# Every entry point takes the same, whether it needs all of it or not.
# ruff: noqa: ARG001
Parameters = dict[str, Any]
Result = dict[str, Any]


def run(parameters: Parameters, *, check_mode: bool, report: apply.Report) -> Result:
    """Runs an entry point for a region.

    Args:
        parameters: as ``OPTIONS`` has them, validated.
        check_mode: only tell what would change.
        report: takes a line that says what is being waited for.

    Returns:
        The task's result. Where the work failed it has ``failed``, and in ``lab_error`` one line for the user;
        ``lab_wrong_use`` then tells bad input from failed work.
    """
    contexts = parameters["contexts"]
    places = {name: Place(_absolute(path), contexts[name]) for name, path in parameters["kubeconfigs"].items()}
    region = apply.Region(
        name=parameters["region"],
        place=places[parameters["region"]],
        places=places,
        create_namespace=parameters["create_namespaces"],
        python_image=parameters["python_image"],
        checkout=Path(parameters["checkout"]),
        report=report,
    )
    try:
        return _ENTRY_POINTS[parameters["entry_point"]](region, parameters, check_mode)
    except PlatformError as error:
        return _failure(str(error), wrong_use=error.wrong_use)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _failure(f"{region.name}{where}: {error.strerror or error}", wrong_use=False)


def _absolute(kubeconfig: str) -> str:
    """A path as it is also right for the wrappers, wherever they are called."""
    return str(Path(kubeconfig).expanduser().absolute()) if kubeconfig else ""


def _failure(message: str, *, wrong_use: bool) -> Result:
    return {"failed": True, "msg": message, "lab_error": message, "lab_wrong_use": wrong_use}


def _changed(resources: list[str]) -> Result:
    return {"changed": bool(resources), "resources": resources}


def _read(parameters: Parameters, namespace: str | None) -> list[Manifest]:
    settings = parameters["event_streams"]
    try:
        event_streams = EventStreams(**settings) if settings else None
    except TypeError as error:
        known = ", ".join(field.name for field in fields(EventStreams))
        raise ManifestError(f"platform_kubernetes_event_streams: {error}; it has: {known}") from error
    return read_manifests(parameters["manifests"] or [], namespace, event_streams)


def _preflight(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    manifests = _read(parameters, None)
    preflight.check(
        region,
        manifests,
        dialect="eventstreams" if parameters["event_streams"] else "strimzi",
        operator_comes=parameters["operator_comes"],
    )
    return {"changed": False}


def _apply(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    manifests = _read(parameters, region.name)
    outcome = apply.apply(region, manifests, ready_seconds=parameters["ready_seconds"], dry_run=check_mode)
    return {**_changed(outcome.changed), "diff": {"before": outcome.before, "after": outcome.after}}


def _delete(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    manifests = _read(parameters, region.name)
    return _changed(apply.delete(region, manifests, bound=parameters["delete_seconds"], dry_run=check_mode))


def _copy_secrets(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    copied = apply.copy_secrets(region, parameters["origin"], parameters["secrets"], dry_run=check_mode)
    return _changed([f"Secret/{name}" for name in copied])


def _status(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    return {"changed": False, "resources": status(region.cluster, region.name)}


def _access(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    home = Path(parameters["home"])
    return {
        "changed": access.record(region, home, parameters["client_region"], parameters["image"], dry_run=check_mode)
    }


def _stop_clients(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    return _changed(apply.stop_clients(region, bound=parameters["delete_seconds"], dry_run=check_mode))


def _delete_region(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    home = Path(parameters["home"])
    recorded = access.forget(region, home, parameters["client_region"], dry_run=check_mode)
    deleted = apply.delete_region(region, bound=parameters["delete_seconds"], dry_run=check_mode)
    return {**_changed(deleted), "changed": bool(deleted) or recorded}


def _bundle(region: apply.Region, parameters: Parameters, check_mode: bool) -> Result:
    bundle.collect(region.cluster, region.name, Path(parameters["folder"]) / region.name)
    return {"changed": False}


_ENTRY_POINTS: dict[str, Callable[[apply.Region, Parameters, bool], Result]] = {
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
