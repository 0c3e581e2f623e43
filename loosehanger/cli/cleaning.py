"""Deletes everything that the lab made and, on request, the installation."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from loosehanger.cli import class_archives
from loosehanger.cli.command_line import COMMANDS
from loosehanger.cli.exported import UNPACKED
from loosehanger.cli.inventories import DEFAULT_INVENTORY, given_inventories, with_inventory
from loosehanger.cli.playbook import run_playbook
from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.lab.console_password import CHOSEN_PASSWORD, console_password
from loosehanger.lab.progress import LOCK, Progress, read_progress
from loosehanger.mounts import unmount_all
from loosehanger.paths import lab_home
from loosehanger.waiting import wait_for

PLAYBOOK = "playbooks/cleanup.yaml"
_USED_SECONDS = 10
"""How long a program that is ending may still use a folder that is deleted."""
TARGETS = "monitoring/targets"
"""What the lab's Prometheus scrapes."""
Checked = Callable[[list[str], str, Progress | None], list[str]]
INSTALLED = (
    "venv",
    "uv",
    "jars",
    "java",
    "java-spark",
    "installed",
    "install.lock",
    "cache",
    "molecule-ansible",
    UNPACKED,
)
FOUND = ("experiments", "learn.json")
"""Results of experiments and a learner's progress, which a clean-up of the lab keeps."""
MADE = (
    "regions", "access", "artifacts", "logs", "ansible", "monitoring", "spark", "watch", "rescued", "faults",
    LOCK,
)  # fmt: skip


def is_anything_to_delete(arguments: Sequence[str]) -> bool:
    """Whether a playbook must run: a named inventory may describe a lab that another machine set up."""
    home = lab_home()
    return bool(given_inventories(arguments)) or any((home / name).exists() for name in MADE)


def cleanup(arguments: Sequence[str], checked: Checked = lambda found, *_: found) -> int:
    """Deletes everything that the kit made: ``cleanup [--all] [--keep-password] [ANSIBLE-ARGUMENT …]``.

    Args:
        arguments: the user's arguments.
        checked: checks Ansible's arguments for a playbook and the lab that is set up. It needs the installation,
            without which a playbook has nothing to delete.
    """
    options, rest = COMMANDS["cleanup"].parser().parse_known_args(arguments)
    home = lab_home()
    if options.keep_password and options.all:
        raise WrongUseError("--keep-password excludes --all, which removes everything in .lab")
    if options.keep_password and console_password(home) is None:
        raise WrongUseError("--keep-password: no password was chosen; LAB_PASSWORD at set-up chooses one")
    class_archives.stop(home)
    if is_anything_to_delete(rest):
        progress = _progress(rest)
        # First of all, so that nothing alarms that they are down.
        _remove(home, [TARGETS])
        unmount_all(home)
        run_playbook(PLAYBOOK, checked(with_inventory(rest, progress), PLAYBOOK, progress))
        _remove(home, MADE, options.keep_password)
        print("Everything that the lab made is deleted.")
        if options.keep_password:
            print("The consoles' password is kept for the next set-up; ./lab cleanup deletes it.")
    else:
        print("There is nothing to clean up.")
    if options.all:
        _remove(home, (*INSTALLED, *FOUND))
        with contextlib.suppress(OSError):
            home.rmdir()
        print(f"What was installed into {home} is removed.")
    return ExitCode.DONE


def _progress(arguments: Sequence[str]) -> Progress | None:
    """What is set up. A record that cannot be read does not prevent the clean-up."""
    try:
        return read_progress()
    except WrongUseError as error:
        if not given_inventories(arguments):
            print(f"warning: {error}", file=sys.stderr)
            print(f"warning: cleaning up what {DEFAULT_INVENTORY} has; -i names another inventory", file=sys.stderr)
        return None


def _remove(home: Path, names: Sequence[str], keep_password: bool = False) -> None:
    kept = home / CHOSEN_PASSWORD
    for name in names:
        path = home / name
        if keep_password and path == kept.parent:
            _remove(path, [entry.name for entry in path.iterdir() if entry != kept])
        elif path.is_dir() and not path.is_symlink():
            wait_for(partial(_in_use, path), _USED_SECONDS, f"deleting {path}")
        else:
            path.unlink(missing_ok=True)


def _in_use(folder: Path) -> str | None:
    """Deletes a folder; returns why it cannot be deleted, where a program still writes or deletes files there."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass  # It was deleted at the same time, or one of its files.
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
    if not folder.exists():
        return None
    return "a proof or a watch of this lab still writes there; end it, and run ./lab cleanup again"
