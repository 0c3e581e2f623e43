"""What commands of ``./lab`` print with ``--json``, for a process that needs several of their documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loosehanger.cli import diff, links, status
from loosehanger.cli.command_line import COMMANDS
from loosehanger.errors import LabError
from loosehanger.lab.record import Lab


def document_of(command: str, lab: Lab) -> dict[str, Any]:
    """Returns what ``./lab COMMAND --json`` prints, computed in this process.

    Args:
        command: one that only reads, without ``--json``, for example ``topic show LH.ORDERS``.
        lab: the lab, whose clusters can be reached from here.

    Raises:
        LabError: the command fails; the message names it.
    """
    name, *words = command.split()
    try:
        found = _DOCUMENTS[name](lab, words)
    except LabError as error:
        raise LabError(f"./lab {command}: {error}") from error
    # As another program reads it: no tuple, no enumeration, text for keys.
    document: dict[str, Any] = json.loads(json.dumps(found))
    return document


def _topics(lab: Lab, words: Sequence[str]) -> dict[str, Any]:
    from loosehanger.cli import topics  # slow to import

    return topics.document(lab, topics.parse(words).topic)


def _links(lab: Lab, words: Sequence[str]) -> dict[str, Any]:
    return links.document(lab, COMMANDS["link"].parse(words).regions)


def _faults(lab: Lab, _: Sequence[str]) -> dict[str, Any]:
    from loosehanger.cli import faults  # slow to import

    return faults.document(lab)


_DOCUMENTS: Mapping[str, Callable[[Lab, Sequence[str]], dict[str, Any]]] = {
    "status": lambda lab, _: status.document(lab),
    "diff": lambda lab, _: diff.document(lab),
    "topic": _topics,
    "link": _links,
    "fault": _faults,
}
"""By the first word of the command."""
