"""Which inventory a playbook runs with: the one that is named, or the one that was named when the lab was set up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loosehanger.arguments import Parser
from loosehanger.errors import WrongUseError
from loosehanger.lab.progress import Progress
from loosehanger.paths import ROOT

DEFAULT_INVENTORY = "inventories/local"


def given_inventories(arguments: Sequence[str]) -> list[str]:
    """The inventories that arguments for Ansible name."""
    return _split(arguments)[0]


def with_inventory(arguments: Sequence[str], progress: Progress | None) -> list[str]:
    """Arguments for Ansible that name an inventory, as Ansible finds it from the checkout.

    Args:
        arguments: what the user gave.
        progress: what is set up; None for nothing.

    Raises:
        WrongUseError: there is no such inventory, or the lab is set up with another one.
    """
    given, rest = _split(arguments)
    if not given:
        return ["-i", progress.inventory if progress else DEFAULT_INVENTORY, *rest]
    return [*(word for inventory in given for word in ("-i", _found(inventory))), *rest]


def check_same_inventory(arguments: Sequence[str], progress: Progress | None) -> None:
    """Checks that arguments for Ansible name no other inventory than that of the lab which is set up.

    Raises:
        WrongUseError: they do.
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
    """An inventory as Ansible finds it, which runs in the checkout and not where the user is."""
    if "," in inventory or (ROOT / inventory).exists():
        return inventory
    if Path(inventory).exists():
        return str(Path(inventory).absolute())
    raise WrongUseError(f"-i {inventory}: there is no such inventory; see inventories/ in the checkout")
