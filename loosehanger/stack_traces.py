"""Summarises Java's stack traces in one line."""

from __future__ import annotations

import re

_CAUSE = "Caused by: "
_LONGEST = 400
_ENTRY = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\S+ (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_ERROR = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\S+ (WARN|ERROR|FATAL) +")

_SENDING = re.compile(r"\{id=(?P<task>\S+)\} [Ff]ailed to send record to (?:topic ')?(?P<topic>[\w.-]+)")
"""Connect's log message for a record that a source task could not send."""
_STARTED = "Source task finished initialization and start"
"""Connect's log message for a source task that begins, at first or after a failure."""


def innermost_cause(trace: str | None) -> str:
    """Returns the innermost cause of a stack trace, because the outer exceptions only name its consequences.

    Args:
        trace: a connector's or task's trace from Connect; None or empty for none.

    Returns:
        One line; empty for no trace.
    """
    lines = [line.strip() for line in (trace or "").splitlines() if line.strip()]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    return (causes[-1:] or lines[:1] or [""])[0]


def topic_of(log: str, task: str, reason: str) -> str:
    """Returns the topic of the record that a source task could not send; empty if the log does not name one.

    Args:
        log: the Log4j log of a Connect worker.
        task: the task, such as ``a->b.MirrorSourceConnector-0``.
        reason: why it failed, from ``innermost_cause``.
    """
    topic, first = "", True
    for block in _blocks(log):
        if f"{{id={task}}} {_STARTED}" in block[0]:
            first = True
            continue
        found = _SENDING.search(block[0])
        # A broker explains the error for one record, and gives the others of its batch only the same class. The first
        # record fails for a reason of its own; those after it belong to the transaction that it has ended.
        if first and found and found["task"] == task and [_class(line) for line in block[1:2]] == [_class(reason)]:
            topic, first = found["topic"], False
    return topic


def last_error(log: str) -> str:
    """Returns the last error of a log, or its last warning with a stack trace, in one line; empty for none.

    Args:
        log: lines of Log4j, including stack traces.
    """
    for block in reversed(_blocks(log)):
        found = _ERROR.match(block[0])
        if found and (found[1] != "WARN" or len(block) > 1):
            break
    else:
        return ""
    first, *trace = block
    reason = innermost_cause("\n".join(trace))
    message = " ".join(_ERROR.sub("", first).split())
    text = f"{message}: {reason}" if reason and reason not in message else message
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _class(line: str) -> str:
    """Returns the class of an exception."""
    return line.strip().partition(":")[0]


def _blocks(log: str) -> list[list[str]]:
    """Splits a log into entries, each with its further lines."""
    blocks: list[list[str]] = []
    for line in log.splitlines():
        if _ENTRY.match(line):
            blocks.append([line])
        elif blocks:
            blocks[-1].append(line)
    return blocks
