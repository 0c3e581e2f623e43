"""The links between a lab's regions: asks their relays for status or for a change, one line of JSON each.

A relay listens at a socket in a folder of its own, which only the lab's owner can enter.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import short_path

CONTROL = "control.sock"
ROUTES, SETTINGS = "relay.json", "settings.json"
"""A relay's files: the ports at which it listens and where they lead, and what was set since it began."""
CLIENT = "LAB_CLIENT"
"""The environment variable that names a client to the relay that carries its connections."""
OPEN = "open"
ANSWER_SECONDS = 10


def link_state(status: Mapping[str, Any]) -> str:
    """What a link is, in a word or three: ``open``, ``cut``, ``silent``, or ``silent to REGION``.

    Args:
        status: what its relay reports.
    """
    if status["refused"]:
        return "cut"
    silent = [way["to"] for way in status["directions"] if way["silent"]]
    return OPEN if not silent else "silent" if len(silent) == 2 else f"silent to {silent[0]}"


def relay_folders(home: Path) -> dict[tuple[str, str], Path]:
    """The folder of every relay that a lab has, by the two regions that it connects."""
    return {(path.parents[1].name, path.name): path for path in sorted((home / "regions").glob("*/links/*"))}


@dataclass(frozen=True)
class ClosedLink:
    """A link that is cut or silent, in one direction at least: no answer comes through it."""

    between: tuple[str, str]
    state: str
    """As from ``link_state``."""
    ports: frozenset[int]
    """Those at which clients of either region reach the other."""
    folder: Path
    """Its relay's."""


def closed_links(home: Path) -> Iterator[ClosedLink]:
    """The links of a lab that are closed, by the files of their relays: none of these is asked."""
    for between, folder in relay_folders(home).items():
        try:
            kept = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            begun = json.loads((folder / ROUTES).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # Nothing was ever set, or the link has just been removed.
        if kept.get("start") != begun.get("start"):
            continue  # The settings of an earlier set-up, which the relay does not keep.
        ways = [{"to": way.partition(">")[2], **settings} for way, settings in kept["directions"].items()]
        if (state := link_state({"refused": kept["refused"], "directions": ways})) != OPEN:
            yield ClosedLink(between, state, frozenset(route["port"] for route in begun["routes"]), folder)


def wanted_change(
    one: str,
    other: str,
    values: Mapping[str, float],
    action: str | None,
    *,
    one_way: bool,
    outbound_only: bool | None = None,
) -> dict[str, Any]:
    """What to ask a relay for.

    Args:
        one: a region.
        other: the region at the other end.
        values: new delay and jitter in seconds, and rate in bytes a second; what is left out stays.
        action: ``cut``, ``silent``, ``heal`` or ``forget``; None for nothing.
        one_way: only what flows from the first region to the second.
        outbound_only: whether a firewall of the first region refuses the other's connections; None leaves it as it is.
    """
    directions = [f"{one}>{other}"] + ([] if one_way else [f"{other}>{one}"])
    refuses = {} if outbound_only is None else {f"{other}>{one}": outbound_only}
    return {"directions": directions, "set": dict(values), "action": action, "refuses": refuses}


def ask(folder: Path, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The status that a relay reports, after a change if one is given.

    Args:
        folder: the relay's.
        wanted: the change, as ``wanted_change`` makes it.

    Raises:
        OSError: it does not answer.
        WrongUseError: the change cannot be made, and nothing was changed.
        LabError: the change failed.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(ANSWER_SECONDS)
        with short_path(folder, CONTROL) as path:
            asking.connect(path)
        asking.sendall(json.dumps(wanted or {}).encode() + b"\n")
        with asking.makefile("rb") as answers:
            line = answers.readline()
    if not line:
        raise ConnectionError(f"{folder}: no answer")
    said: dict[str, Any] = json.loads(line)
    if "wrong_use" in said:
        raise WrongUseError(said["wrong_use"])
    if "failed" in said:
        raise LabError(said["failed"])
    return said
