"""The inventory of a playbook: the one that the user names, or the one that the lab was set up with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loosehanger.arguments import Parser
from loosehanger.errors import WrongUseError
from loosehanger.lab.progress import Progress
from loosehanger.paths import ROOT

DEFAULT_INVENTORY = "inventories/local"


def given_inventories(arguments: Sequence[str]) -> list[str]:
    """The inventories that Ansible's arguments name."""
    return _split(arguments)[0]


def with_inventory(arguments: Sequence[str], progress: Progress | None) -> list[str]:
    """Arguments for Ansible with an inventory, whose path is relative to the checkout.

    Args:
        arguments: the user's arguments.
        progress: what is set up; None for nothing.

    Raises:
        WrongUseError: the inventory does not exist.
    """
    given, rest = _split(arguments)
    if not given:
        return ["-i", progress.inventory if progress else DEFAULT_INVENTORY, *rest]
    return [*(word for inventory in given for word in ("-i", _found(inventory))), *rest]


def check_same_inventory(arguments: Sequence[str], progress: Progress | None) -> None:
    """Checks that Ansible's arguments name no other inventory than that of the lab that is set up.

    Raises:
        WrongUseError: they name another one.
    """
    given = given_inventories(arguments)
    if progress and given and (ROOT / _found(given[0])).resolve() != (ROOT / progress.inventory).resolve():
        raise WrongUseError(
            f"-i {given[0]}: the lab is set up with {progress.inventory}; run ./lab cleanup before another inventory"
        )


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    parser = Parser(prog="lab setup", add_help=False, allow_abbrev=False)
    parser.add_argument("-i", "--inventory", action="append", default=[])
    found, rest = parser.parse_known_args(arguments)
    return found.inventory, rest


def _found(inventory: str) -> str:
    """An inventory's path for Ansible, which runs in the checkout and not in the user's folder."""
    if "," in inventory or (ROOT / inventory).exists():
        return inventory
    if Path(inventory).exists():
        return str(Path(inventory).absolute())
    raise WrongUseError(f"-i {inventory}: there is no such inventory; see inventories/ in the checkout")
