"""What Java's stack traces say, in one line."""

from __future__ import annotations

import re

_CAUSE = "Caused by: "
_LONGEST = 400
_ENTRY = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\S+ (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_ERROR = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\S+ (WARN|ERROR|FATAL) +")

_SENDING = re.compile(r"\{id=(?P<task>\S+)\} [Ff]ailed to send record to (?:topic ')?(?P<topic>[\w.-]+)")
"""What Connect logs of a record that a source task could not send."""


def innermost_cause(trace: str | None) -> str:
    """The reason at the bottom of a stack trace: what is above it only tells what became impossible through it.

    Args:
        trace: as Connect has it of a connector or task; None or empty for none.

    Returns:
        One line; empty for no trace.
    """
    lines = [line.strip() for line in (trace or "").splitlines() if line.strip()]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    return (causes[-1:] or lines[:1] or [""])[0]


def topic_of(log: str, task: str, reason: str) -> str:
    """The topic of the record that a source task could not send; empty where the log does not name one.

    Args:
        log: of a Connect worker, as Log4j writes it.
        task: the task, such as ``a->b.MirrorSourceConnector-0``.
        reason: why it failed, as ``innermost_cause`` has it of the task.
    """
    for block in reversed(_blocks(log)):
        found = _SENDING.search(block[0])
        # A broker says of one record what is wrong with it, and of its batch only that: the class is what they share.
        # Records that fail because another one has failed before have another class.
        if found and found["task"] == task and [_class(line) for line in block[1:2]] == [_class(reason)]:
            return found["topic"]
    return ""


def last_error(log: str) -> str:
    """The last error of a program's log, or its last warning with a stack trace, in one line; empty for none.

    Args:
        log: lines as Log4j writes them, stack traces among them.
    """
    for block in reversed(_blocks(log)):
        found = _ERROR.match(block[0])
        if found and (found[1] != "WARN" or len(block) > 1):
            break
    else:
        return ""
    first, *trace = block
    reason = innermost_cause("\n".join(trace))
    said = " ".join(_ERROR.sub("", first).split())
    text = f"{said}: {reason}" if reason and reason not in said else said
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _class(line: str) -> str:
    """The class of an exception."""
    return line.strip().partition(":")[0]


def _blocks(log: str) -> list[list[str]]:
    """The entries of a log, each with the lines that belong to it."""
    blocks: list[list[str]] = []
    for line in log.splitlines():
        if _ENTRY.match(line):
            blocks.append([line])
        elif blocks:
            blocks[-1].append(line)
    return blocks
