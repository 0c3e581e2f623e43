"""What a playbook of an exercise does, and why: the names of its tasks are the reasons."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import StrictLoader, read_file

COMMAND = "ansible.builtin.command"
_ESCAPED = re.compile(r"\\(\d|\\)")
"""In the text of a replacement: a reference to what the expression matched, or a backslash."""
_ENDS_CONSOLES = ("./lab cleanup", "./lab setup", "./lab stage")


@dataclass(frozen=True)
class Task:
    """One task of a playbook."""

    why: str
    what: str


def solution(path: Path) -> list[Task]:
    """Lists the tasks of a playbook and of the playbooks that it imports.

    Raises:
        WrongUseError: it cannot be read.
    """
    try:
        plays = yaml.load(read_file(path), StrictLoader)  # noqa: S506 - a safe loader
        return [task for play in plays for task in _tasks(play, path)]
    except (yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise WrongUseError(f"{os.path.relpath(path)}: is not a playbook ({error})") from error


def needs_terminal(path: Path) -> bool:
    """Whether a playbook sets up, cleans up or runs a stage, which may end or restart the lab's consoles.

    Raises:
        WrongUseError: it cannot be read.
    """
    return any(task.what.startswith(_ENDS_CONSOLES) for task in solution(path))


def _tasks(play: dict[str, Any], path: Path) -> list[Task]:
    if imported := play.get("ansible.builtin.import_playbook"):
        return solution(path.parent / imported)
    return [Task(task["name"], _what(task)) for task in play["tasks"]]


def _what(task: dict[str, Any]) -> str:
    module, arguments = next((key, value) for key, value in task.items() if key.startswith("ansible.builtin."))
    if module == COMMAND:
        return str(arguments["cmd"] if isinstance(arguments, dict) else arguments)
    if isinstance(arguments, dict) and "path" in arguments:
        file = Path(arguments["path"]).name
        if "replace" in arguments:
            return f"{file}: {_ESCAPED.sub(_as_written, arguments['replace']).strip()}"
        return f"{file}: {arguments.get('line', module)}"
    return json.dumps(arguments)


def _as_written(escaped: re.Match[str]) -> str:
    return "\\" if escaped[1] == "\\" else ""
