"""Checks the variables that a user gives to a playbook with ``-e``: refuses unknown names and invalid values.

Ansible accepts any name and any value: a typing error has no effect, and a wrong value is reported only by the program
that fails because of it. The kit's variables are known: the options in the roles' argument specifications, and the
variables that roles, the scenario's playbooks and the inventory define or use.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from loosehanger.arguments import Parser
from loosehanger.cli.port_base import HIGHEST, LOWEST, VARIABLE, check_same_port_base, read_port_base
from loosehanger.errors import WrongUseError
from loosehanger.lab.progress import Progress
from loosehanger.paths import ROOT
from loosehanger.suggestions import did_you_mean

OWN = "my_"
"""The prefix of a user's own variables."""
_OF_ANSIBLE = "ansible_"
_PROGRAMS = {"producer": "producer.__main__", "consumer": "loosehanger.events.consume"}
"""The roles whose programs validate values: their options have the variables' names without the role's."""
_LIKE = {"kafka_replicas": "kafka_cluster_replicas", "jmx_metrics": "kafka_cluster_metrics", "audit": "console_audit"}
"""Variables without a specification of their own, and the role's variable that takes its value from them."""
_RANGES = {
    "console_session_minutes": (1, 7 * 24 * 60),
    "console_port": (1, 65535),
    "console_control_room_port": (1, 65535),
    "console_audit_port": (1, 65535),
    "console_audit_interval": (1, 3600),
    "platform_local_port_base": (LOWEST, HIGHEST),
}
_SPARK_HEAPS = {"clearing_memory", "console_audit_memory"}
_HEAPS = {"kafka_cluster_heap", *_SPARK_HEAPS}
_LEAST_SPARK_MIB = 480
"""Spark refuses to start with less than 450 MiB; of its heap, the collector keeps a part to itself."""
_UNITS_MIB = {"k": 2**-10, "m": 1, "g": 2**10}
_TRUE_OR_FALSE = {"yes", "on", "1", "true", "t", "y", "1.0", "no", "off", "0", "false", "f", "n", "0.0"}
"""The values that Ansible accepts as booleans, in any case."""
_TEMPLATE = re.compile(r"\{\{|\{%")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Variables:
    """The variables that a playbook of the kit accepts."""

    options: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The roles' options, with their argument specifications."""
    others: set[str] = field(default_factory=set)
    """Other variables that roles, playbooks and the inventory define or use."""
    complete: bool = True
    """False where an inventory is a program or encrypted, so that its variables are not known here."""

    def check(self, name: str, value: Any) -> None:
        """Checks one variable.

        Raises:
            WrongUseError: the name is unknown, or the value invalid.
        """
        if name.startswith((OWN, _OF_ANSIBLE)):
            return
        if option := self.options.get(_LIKE.get(name, name)):
            if not is_template(value) and (wanted := _problem(name, value, option)):
                raise WrongUseError(f"-e {name}={_shown(value)}: {wanted}")
        elif self.complete and name not in self.others:
            hint = did_you_mean(name, sorted({*self.options, *self.others})) or "; roles/*/README.md list them"
            raise WrongUseError(f"-e {name}: the kit has no variable of this name{hint} (yours begin with {OWN})")


def checked_variables(
    arguments: Sequence[str], playbook: str, inventories: Iterable[str], progress: Progress | None
) -> list[str]:
    """Checks the variables in Ansible's arguments, and returns the arguments with paths for the checkout.

    Args:
        arguments: the user's arguments.
        playbook: its path in the checkout.
        inventories: its inventories, with paths relative to the checkout.
        progress: what is set up; None for nothing.

    Raises:
        WrongUseError: a variable is unknown, or its value is invalid.
    """
    given, rest = given_variables(arguments)
    if not given:
        return list(arguments)
    texts = [_found(text) for text in given]
    known = _known(playbook, inventories)
    for text in texts:
        for name, value in read_variables(text):
            known.check(name, value)
            if name == VARIABLE and not is_template(value):
                check_same_port_base(read_port_base(str(value), f"-e {name}={value}"), f"-e {name}={value}", progress)
    if texts == given:
        return list(arguments)
    return [*rest, *(word for text in texts for word in ("-e", text))]


def given_variables(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of ``-e`` in Ansible's arguments, and the other arguments."""
    # Like Ansible, accept abbreviations of the option.
    parser = Parser(prog="lab setup", add_help=False)
    parser.add_argument("-e", "--extra-vars", action="append", default=[])
    given, rest = parser.parse_known_args(arguments)
    return given.extra_vars, rest


def _found(text: str) -> str:
    """The option's value, with a file's path for Ansible, which runs in the checkout and not in the user's folder."""
    if not text.startswith("@") or (ROOT / text[1:]).is_file():
        return text
    path = Path(text[1:]).absolute()
    if not path.is_file():
        raise WrongUseError(f"-e {text}: there is no such file")
    return f"@{path}"


def read_variables(text: str) -> Iterator[tuple[str, Any]]:
    """The names and values that a value of ``-e`` gives, as Ansible reads it.

    Raises:
        WrongUseError: it is not valid.
    """
    if text.startswith("@"):
        content = (ROOT / text[1:]).read_text(encoding="utf-8", errors="replace")
        # An encrypted file can be decrypted by Ansible only.
        found = {} if content.startswith("$ANSIBLE_VAULT") else _yaml(content)
        if not isinstance(found, (dict, type(None))):
            raise WrongUseError(f"-e {text}: not a file of variables; write one NAME: VALUE on each line")
    elif text.startswith(("{", "[")):
        found = _yaml(text)
        if not isinstance(found, dict):
            raise WrongUseError(f"-e {text}: neither NAME=VALUE nor a mapping")
    elif is_template(text):
        # A template may contain blanks, so only Ansible can split the text.
        found = dict.fromkeys(re.findall(r"(?:^|\s)([A-Za-z_]\w*)=", text), text)
    else:
        found = dict(_pair(word) for word in _words(text))
    for name, value in (found or {}).items():
        yield str(name), value


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise WrongUseError(f"-e {text}: {error}") from error


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise WrongUseError(f"-e {word}: not NAME=VALUE")
    return name, value


def _problem(name: str, value: Any, option: Mapping[str, Any]) -> str:
    """The problem of a value; empty for a valid one."""
    text = str(value).strip()
    kind = option.get("type", "str")
    if kind == "int" and not (text.isascii() and text.isdecimal()):
        return f"'{text}' is not a whole number of at least 0"
    if kind == "bool" and text.lower() not in _TRUE_OR_FALSE:
        return f"'{text}' is neither true nor false"
    if kind == "dict" and not isinstance(value, dict):
        return "not a mapping; give it as YAML, for example -e '{NAME: {KEY: VALUE}}'"
    choices = [str(choice) for choice in option.get("choices", ())]
    if choices and text not in choices:
        return f"'{text}' is not one of {', '.join(choice or 'nothing' for choice in choices)}"
    lowest, highest = _RANGES.get(name, (0, 0))
    if highest and not lowest <= int(text) <= highest:
        return f"'{text}' is not a number from {lowest} to {highest}"
    if name in _HEAPS and not re.fullmatch(r"[1-9]\d*[kKmMgG]", text):
        return f"'{text}' is not a size of a Java heap, such as 384m"
    if name in _SPARK_HEAPS and int(text[:-1]) * _UNITS_MIB[text[-1].lower()] < _LEAST_SPARK_MIB:
        return f"'{text}' is too small a Java heap for Spark, which needs {_LEAST_SPARK_MIB}m"
    role, _, rest = name.partition("_")
    return _program_problem(role, rest, value) if role in _PROGRAMS and kind != "bool" and text else ""


def _program_problem(role: str, option: str, value: Any) -> str:
    """The error of the role's program for a value; empty for a valid one."""
    flag = f"--{option.replace('_', '-')}"
    parser: argparse.ArgumentParser = importlib.import_module(_PROGRAMS[role]).parser({})
    if flag not in parser.format_usage():
        return ""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        parser.parse_args([f"{flag}={text}"])
    except WrongUseError as error:
        return re.sub(r"^argument \S+: |; [^;]*--help explains$", "", str(error))
    return ""


def is_template(value: Any) -> bool:
    """Whether a value holds a template, which only Ansible can render."""
    return bool(_TEMPLATE.search(value if isinstance(value, str) else json.dumps(value, default=str)))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _known(playbook: str, inventories: Iterable[str]) -> Variables:
    """The variables that a playbook accepts with these inventories."""
    known = Variables()
    path = ROOT / playbook
    for roles in (ROOT / "roles", path.parent / "roles"):
        for role in sorted(roles.glob("*/")):
            _add_role(known, role)
    for file in (path, *(ROOT / "playbooks").glob("*.yaml")):
        if file.is_file():
            _add_playbook(known, file)
    folders = [path.parent, ROOT / "playbooks"]
    # The kit's own inventories always count, since a file of variables may be used with each of them.
    for inventory in [*map(str, (ROOT / "inventories").glob("*/")), *inventories]:
        if "," in inventory:
            continue
        place = ROOT / inventory
        folders.append(place if place.is_dir() else place.parent)
        for file in place.iterdir() if place.is_dir() else [place]:
            if file.is_file():
                _add_inventory(known, file)
    for folder in folders:
        for file in (*folder.glob("group_vars/**/*"), *folder.glob("host_vars/**/*")):
            if file.is_file():
                _add_inventory(known, file)
    return known


def _add_role(known: Variables, role: Path) -> None:
    specification = role / "meta" / "argument_specs.yml"
    if specification.is_file():
        entries = _yaml(specification.read_text(encoding="utf-8"))["argument_specs"].values()
        known.options |= {name: option for entry in entries for name, option in (entry.get("options") or {}).items()}
    for file in (*role.glob("defaults/*.y*ml"), *role.glob("vars/*.y*ml")):
        text = file.read_text(encoding="utf-8")
        known.others |= {name for name in _yaml(text) or {} if not name.startswith("_")} | _used(text)
    for file in (*role.glob("tasks/*.y*ml"), *role.glob("templates/*")):
        text = file.read_text(encoding="utf-8")
        known.others |= _used(text) | _conditions(text)


def _add_playbook(known: Variables, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    known.others |= _used(text) | _conditions(text)
    for entry in _mappings(_yaml(text)):
        known.others |= set(variables) if isinstance(variables := entry.get("vars"), dict) else set()
        roles = entry.get("roles")
        known.others |= {name for role in roles or () if isinstance(role, dict) for name in role if "_" in name}


def _add_inventory(known: Variables, file: Path) -> None:
    text = file.read_text(encoding="utf-8", errors="replace")
    if text.startswith("$ANSIBLE_VAULT"):
        known.complete = False
        return
    try:
        content = _yaml(text)
    except WrongUseError:
        content = None
    if isinstance(content, dict):
        known.complete &= "plugin" not in content
        names = {str(name) for mapping in _mappings(content) for name in mapping}
        known.others |= {name for name in names if _NAME.fullmatch(name)} | _used(text)
    elif text.startswith("#!") or os.access(file, os.X_OK):
        known.complete = False
    else:
        known.others |= set(re.findall(r"([A-Za-z_]\w*)\s*=", text)) | _used(text)


def _mappings(content: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, dict):
        yield content
    if isinstance(content, (dict, list)):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from _mappings(inner)


def _used(text: str) -> set[str]:
    """The variables that templates in a file use."""
    from jinja2 import Environment, TemplateError, nodes  # slow to import

    try:
        return {found.name for found in Environment(autoescape=True).parse(text).find_all(nodes.Name)}
    except TemplateError:
        return set()


def _conditions(text: str) -> set[str]:
    """The variables that the conditions of tasks use."""
    return set().union(*(_used(f"{{{{ {found} }}}}") for found in re.findall(r"^[ -]*when: (.+)$", text, re.MULTILINE)))


class _Loader(yaml.SafeLoader):
    """Reads YAML with Ansible's tags, such as ``!vault``."""


def _unknown_here(*_: object) -> str:
    return "{{ known to Ansible only }}"


_Loader.add_multi_constructor("!", _unknown_here)


def _yaml(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        raise WrongUseError(f"-e: not YAML{f' in line {where.line + 1}' if where else ''}") from error
