"""Remembers the variables that a lab was given with ``-e``, so that later set-ups and stages need not repeat them.

The record keeps a variable's last value, and the path of a file of variables. It keeps no secrets.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loosehanger.cli.port_base import VARIABLE
from loosehanger.cli.variables import given_variables, is_template, read_variables
from loosehanger.errors import WrongUseError
from loosehanger.lab.progress import Progress, read_progress
from loosehanger.paths import ROOT

_CARRIED = "LAB_CARRIED_VARIABLES"
"""The environment variable with those of the record that a lab has again where nothing is set up."""
_OUTLIVES_A_LAB = {"console_operator"}
"""Variables that belong to the user rather than to what is set up."""
_ONCE = "carry_out_"
"""The prefix of variables that are meant for one stage only."""
_SECRET = re.compile(r"passw|secret|token|credential|private|_key\b|apikey|entitlement", re.IGNORECASE)
_NAME_OF_A_SECRET = {"console_certificate_secret", "event_streams_operator_make_pull_secret"}
"""Variables of the kit that hold no secret, although they are called so."""
_NAMES = re.compile(r"(?:^|\s)([A-Za-z_]\w*)=")


def carry_over() -> None:
    """Has this process's commands set a lab up, after they cleaned it up, with what the user chose for any lab."""
    kept = [text for text in _recorded(read_progress()) if _id(text) in _OUTLIVES_A_LAB]
    os.environ[_CARRIED] = json.dumps(kept)


def _recorded(progress: Progress | None) -> Sequence[str]:
    return progress.variables if progress else json.loads(os.environ.get(_CARRIED, "[]"))


def remembered_after(progress: Progress | None, arguments: Sequence[str]) -> tuple[str, ...]:
    """The variables to record when a stage begins: those of the record, replaced by what is given now.

    Args:
        progress: what is set up; None for nothing.
        arguments: the user's arguments for Ansible, with paths for the checkout.

    Returns:
        Values for ``-e``, each with one variable, or with one file.
    """
    kept = {_id(text): text for text in _recorded(progress)}
    for text in given_variables(arguments)[0]:
        for one in _single(text):
            if reason := _not_kept(one):
                if reason != _ONCE:
                    print(f"-e {_id(one)}: not remembered ({reason}); give it with each stage", file=sys.stderr)
                kept.pop(_id(one), None)
                continue
            # A later value comes after the files that were given before it, as on the command line.
            kept.pop(_id(one), None)
            kept[_id(one)] = one
    return tuple(kept.values())


def with_remembered(arguments: Sequence[str], progress: Progress | None) -> list[str]:
    """Arguments for Ansible, with the record's variables before the user's, which therefore override them.

    Raises:
        WrongUseError: a file of variables is missing.
    """
    texts = _recorded(progress)
    for text in texts:
        if text.startswith("@") and not (ROOT / text[1:]).is_file():
            raise WrongUseError(
                f"-e {text}: the lab was set up with this file, which is missing; restore it, or run ./lab cleanup"
            )
    return [*(word for text in texts for word in ("-e", text)), *arguments]


def shown(variables: Iterable[str]) -> str:
    """The record's variables on one line: ``producer_rate=100, @/home/me/mine.yml``."""
    return ", ".join(_shown(text) for text in variables)


def _shown(text: str) -> str:
    if not text.startswith("{"):
        return text
    ((name, value),) = json.loads(text).items()
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def _single(text: str) -> Iterator[str]:
    """Splits a value of ``-e`` into one for each variable; a file, and a text with a template, stay whole."""
    if text.startswith("@") or (is_template(text) and not text.startswith("{")):
        yield text if not text.startswith("@") else f"@{(ROOT / text[1:]).absolute()}"
        return
    for name, value in read_variables(text):
        plain = f"{name}={value}"
        yield (
            plain
            if isinstance(value, str) and plain.split() == [plain] and not set(plain) & set("'\"\\{")
            else (json.dumps({name: value}, default=str))
        )


def _id(text: str) -> str:
    """What a later value replaces: a variable's name, or the path of a file."""
    if text.startswith("@"):
        return text
    if text.startswith("{"):
        return str(next(iter(json.loads(text))))
    return " ".join(_NAMES.findall(text))


def _not_kept(text: str) -> str:
    """Why a variable is not remembered; empty if it is."""
    if text.startswith("@"):
        content = Path(text[1:]).read_text(encoding="utf-8", errors="replace")
        return "the file is encrypted" if content.startswith("$ANSIBLE_VAULT") else ""
    names = _id(text).split()
    if VARIABLE in names or all(name.startswith(_ONCE) for name in names):
        return _ONCE  # The record keeps the ports by themselves.
    found = dict(read_variables(text)) if not is_template(text) else dict.fromkeys(names)
    suspects = filter(_SECRET.search, set(_keys(found)) - _NAME_OF_A_SECRET)
    return "it may be a secret" if any(suspects) else ""


def _keys(content: Any) -> Iterator[str]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield str(key)
            yield from _keys(value)
    elif isinstance(content, list):
        for value in content:
            yield from _keys(value)
