"""The base of the lab's ports on this machine: ``LAB_PORT_BASE``, or the base that the lab was set up with."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from loosehanger.errors import WrongUseError
from loosehanger.lab.progress import Progress, read_progress
from loosehanger.paths import ROOT

ENVIRONMENT = "LAB_PORT_BASE"
VARIABLE = "lab_port_base"
"""The inventory's name for it."""
LOWEST, HIGHEST = 1024, 65000
_INVENTORY = ROOT / "inventories" / "local" / "group_vars" / "all.yaml"
_REGIONS = ROOT / "inventories" / "regions.yaml"


def read_port_base(text: str, given: str) -> int:
    """Parses a port base.

    Args:
        text: the number.
        given: the user's option or variable, for the message.

    Raises:
        WrongUseError: it is not a valid port base.
    """
    if not (text.isascii() and text.isdecimal() and LOWEST <= int(text) <= HIGHEST):
        raise WrongUseError(f"{given}: not a number from {LOWEST} to {HIGHEST}, such as 29000")
    return int(text)


def region_ports(base: int | None) -> range:
    """The ports that the regions of the local inventory may take.

    Args:
        base: the port base; None for the inventory's.

    Raises:
        WrongUseError: the inventory has been changed so that its line cannot be parsed.
    """
    # Without the installation there is no YAML parser.
    text = _INVENTORY.read_text(encoding="utf-8")
    default = re.search(rf"^{VARIABLE}:.*default\('(\d+)'", text, re.MULTILINE)
    each = re.search(rf"{VARIABLE} \| int \+ (\d+) \* ", text)
    if not default or not each:
        raise WrongUseError(f"{_INVENTORY}: {VARIABLE} cannot be read; restore the file from git")
    regions = len(
        re.findall(r"^    [\w-]+:$", _REGIONS.read_text(encoding="utf-8").partition("  vars:")[0], re.MULTILINE)
    )
    first = (base or int(default[1])) + int(each[1])
    return range(first, min(first + regions * int(each[1]), 65536))


def check_port_base(progress: Progress | None, environment: Mapping[str, str] = os.environ) -> None:
    """Checks that the environment's port base is valid, and that of the lab that is set up.

    Raises:
        WrongUseError: it is invalid, or another one.
    """
    if text := environment.get(ENVIRONMENT):
        check_same_port_base(read_port_base(text, f"{ENVIRONMENT}={text}"), f"{ENVIRONMENT}={text}", progress)


def check_same_port_base(number: int, given: str, progress: Progress | None) -> None:
    """Checks that a port base is that of the lab that is set up.

    Raises:
        WrongUseError: it is another one.
    """
    if progress and progress.port_base not in (0, number):
        raise WrongUseError(
            f"{given}: the lab is set up with {progress.port_base}; unset it, or run ./lab cleanup before another value"
        )


def with_port_base(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """An environment for Ansible, with the port base of the lab that is set up, if that is known."""
    progress = None
    with contextlib.suppress(WrongUseError):  # A record that cannot be read is reported elsewhere, or cleaned up.
        progress = read_progress(home)
    if progress and progress.port_base:
        return {**environment, ENVIRONMENT: str(progress.port_base)}
    return dict(environment)
