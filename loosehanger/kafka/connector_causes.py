"""Why a mirror's connectors differ from its manifest, and since when, by its workers' logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from loosehanger.kafka.connect import ConnectorPart
from loosehanger.kafka.connector_states import ConnectorStates, judge
from loosehanger.kafka.failure_causes import explain
from loosehanger.kafka.refused_topics import RefusedTopic, refused_topic_causes, refused_topics
from loosehanger.problems import Problem, Rank

_TIME = re.compile(r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)[.,](\d{3})")
_SECRET = re.compile(r"\b(sasl|ssl|security)\.|password|secret")
_NAMED = 3
"""Most settings that a message names."""
_POLL = "Failure during poll"
_SCHEDULED = re.compile(
    rf"^\[?\d{{4}}-[^\n]*(?:caught exception in scheduled task: (?P<work>[\w ]+)|{_POLL})[^\n]*\n"
    r"(?P<trace>(?:[^\[\d\n][^\n]*\n)*)",
    re.MULTILINE,
)
_REFUSED = re.compile(
    r"^(?:Caused by: )?(\S*(?:Authorization|Authentication|CertificateExpired|Signature|SunCertPathBuilder"
    r"|UnsupportedSaslMechanism)Exception.*|\S*SSLHandshakeException: .*alert: \S*certificate.*"
    r"|\S*CertificateException: No .*)$",
    re.MULTILINE,
)
"""A cluster refuses what a mirror asks, or one does not accept who the other is. The innermost is the cause."""
_FLUSH = re.compile(
    r"Timed out (?:while )?waiting (?:to flush offsets|for previous offset flush)|(?:Failed to flush|Failed to commit) "
    r"offsets|Flush of offsets threw"
)
"""A source task without exactly-once delivery could not write its positions."""
_JOINS, _JOINED = "(Re-)joining group", "Successfully joined group with generation"
REFUSED_S = 30
"""Seconds for which a refusal in a worker's log counts."""
REBALANCE_S = 10
"""Seconds after which a rebalance counts as one that does not end."""
_HELD = {"PAUSED": "paused", "STOPPED": "stopped"}
RESTARTS = 2
"""Restarts from which a connector fails again and again."""
SETTLED_SECONDS = 30
"""Seconds that such a connector must have been running to count as healthy."""


class WorkerLogs:
    """The ends of the logs of a mirror's workers, read when they are first needed.

    Args:
        read: reads them, the one written last first.
    """

    def __init__(self, read: Callable[[], Iterable[str]]) -> None:
        self._read = read

    @cached_property
    def _logs(self) -> list[str]:
        return list(self._read())

    def held_at(self, connector: str, state: str) -> float | None:
        """Returns when a connector was last set to a state, in seconds since the epoch; None if no log shows it."""
        return self._last(f"Setting connector {connector} state to {state}")

    def failed_at(self, task: str) -> float | None:
        """Returns when a task such as ``a->b.MirrorSourceConnector-0`` last failed; None if no log shows it."""
        return self._last(f"{{id={task}}} Task threw an uncaught")

    def rebalances_since(self) -> float | None:
        """Returns when the rebalance began that a worker waits in; None if no log has such a one."""
        return min(filter(None, map(_joining_since, self._logs)), default=None)

    def flush_failed_at(self) -> float | None:
        """Returns when a task last could not write its positions; None if no log shows it."""
        found = (_time_of(log, entry.start()) for log in self._logs for entry in _FLUSH.finditer(log))
        return max(filter(None, found), default=None)

    def refused_work(self, after: float) -> dict[str, str]:
        """Returns the work of connectors that a missing right, a password or a certificate has kept from being done.

        Args:
            after: in seconds since the epoch; what was logged before it does not count.

        Returns:
            By work, such as ``syncing topic configs``, the exception.
        """
        found = {}
        for log in self._logs:
            for entry in _SCHEDULED.finditer(log):
                at, refused = _time_of(log, entry.start()), _REFUSED.findall(entry["trace"])
                if at is not None and at >= after and refused:
                    found[(entry["work"] or "reading its source").strip()] = refused[-1]
        return found

    def refused_topics(self, after: float) -> list[RefusedTopic]:
        """Returns the topics that the target refuses to create or to change; ``after`` is as for ``refused_work``."""
        return refused_topics(self._logs, _time_of, after)

    def unanswered_at(self) -> float | None:
        """Returns when a worker last went without an answer to its heartbeats; None if no log shows it."""
        return self._last("session timed out without receiving a heartbeat response")

    def _last(self, text: str) -> float | None:
        return max(filter(None, (_last_time(log, text) for log in self._logs)), default=None)


def changed_settings(
    wanted: Mapping[str, Mapping[str, str]], present: Mapping[str, Mapping[str, str]], where: str
) -> Iterator[Problem]:
    """The connectors that have other settings than their manifest, such as a pattern that was changed by hand.

    Args:
        wanted: the configuration of each connector by its manifest.
        present: the one that it has; settings of signing in and of TLS are not compared.
        where: the region and the mirror, for the user.
    """
    for connector, settings in wanted.items():
        if (there := present.get(connector)) is None:
            continue
        differing = [
            f"{name} is {there.get(name, 'not set')} in place of {settings.get(name, 'not set')}"
            for name in sorted({*settings, *there})
            if settings.get(name) != there.get(name) and not _SECRET.search(name)
        ]
        if differing:
            shown = ", ".join(differing[:_NAMED]) + (", …" if len(differing) > _NAMED else "")
            yield Problem(Rank.CONNECTOR, f"connector {connector} was changed by hand: {shown}", where)


def silent_causes(
    logs: WorkerLogs, *, where: str, target: str, now: float, exactly_once: bool = False, looks_s: float = 0.0
) -> Iterator[Problem]:
    """The problems of a mirror whose connectors and tasks are running, by its workers' logs.

    Args:
        logs: the logs of its workers.
        where: the region and the mirror, for the user.
        target: the region that it writes to.
        now: in seconds since the epoch.
        exactly_once: whether positions are part of the copies' transactions.
        looks_s: seconds from one look for topics and settings to the next: a refusal counts until then.
    """
    yield from rebalance_causes(logs, where=where, now=now)
    failed = None if exactly_once else logs.flush_failed_at()
    if failed is not None and now - failed < REFUSED_S:
        cause = (
            "a flush of offsets times out or fails, so the mirror's positions are not written: a worker that restarts "
            "copies the records since the last flush a second time"
        )
        yield Problem(Rank.CONNECTOR, cause, where, next=_logs_of(where))
    for work, exception in logs.refused_work(now - REFUSED_S).items():
        found = explain(exception, target)
        rank = Rank.RIGHTS if "AuthorizationException" in exception else Rank.CONNECTOR
        remedy = found.remedy if found else ""
        yield Problem(rank, f"{found.cause if found else exception}; it fails while {work}", where, next=remedy)
    yield from refused_topic_causes(logs.refused_topics(now - REFUSED_S - looks_s), where=where, target=target)
    unanswered = logs.unanswered_at()
    if unanswered is not None and now - unanswered < REFUSED_S:
        # A refused heartbeat counts as one without an answer: the worker copies on until it must join again.
        cause = "the mirror's workers get no answer to the heartbeats of their group"
        yield Problem(Rank.RIGHTS, cause, where, next=_logs_of(where))


def rebalance_causes(logs: WorkerLogs, *, where: str, now: float) -> Iterator[Problem]:
    """The rebalance of a mirror's workers that does not end; the arguments are as those of ``silent_causes``."""
    since = logs.rebalances_since()
    if since is not None and now - since >= REBALANCE_S:
        yield Problem(
            Rank.CONNECTOR,
            "a rebalance of the mirror's workers does not end: the group waits for a member that does not answer",
            where,
            since,
            _logs_of(where),
        )


def connector_causes(
    wanted: ConnectorStates,
    present: Mapping[str, Mapping[str, Any]],
    failures: Mapping[str, Mapping[str, Any]],
    logs: WorkerLogs,
    *,
    where: str,
    target: str,
) -> Iterator[Problem]:
    """The problems of a mirror whose workers answer.

    Args:
        wanted: the state of each connector in its manifest.
        present: Connect's status of each, with the topics of failed tasks (see ``failed_topics``).
        failures: by connector the ``restarts``, the ``reason`` of the last, and the ``running_seconds`` since.
        logs: the logs of its workers.
        where: the region and the mirror, for the user.
        target: the region that it writes to.
    """
    judged = judge(wanted, present)
    of_connector = {part.name for part, _ in judged.wrong if part.task is None}
    failed: dict[str, list[ConnectorPart]] = {}
    for part, want in judged.wrong:
        if part.state == "FAILED":
            failed.setdefault(part.cause, []).append(part)
        elif part.task is None or part.name not in of_connector:
            yield _other_state(part, want, failures.get(part.name, {}), logs, where=where, target=target)
    for cause, parts in failed.items():
        yield _failed(cause, parts, failures, logs, where=where, target=target)
    for name in judged.absent:
        yield Problem(Rank.CONNECTOR, f"connector {name} does not exist", where)
    for name in judged.idle:
        yield Problem(
            Rank.CONNECTOR,
            f"connector {name} has no task: no topic matches its pattern, or it may not see them at its source",
            where,
            next="./lab topic show",
        )
    # What has no task, or has been running since, is no longer failing.
    past = {part.name for part, _ in judged.wrong} | {*judged.idle}
    for name, failure in failures.items():
        again = failure["restarts"] >= RESTARTS and failure["running_seconds"] < SETTLED_SECONDS
        if again and name in present and name not in past:
            yield _repeated(name, failure, logs, where=where, target=target, runs=True)


def _other_state(
    part: ConnectorPart, want: str, failure: Mapping[str, Any], logs: WorkerLogs, *, where: str, target: str
) -> Problem:
    what = part.label if part.task is not None else f"connector {part.name}"
    if part.state in _HELD:
        done = f"{what} was {_HELD[part.state]} by hand" + (f" and should be {want}" if want != "RUNNING" else "")
        return Problem(Rank.CONNECTOR, done, where, logs.held_at(part.name, part.state))
    if part.state == "RUNNING":
        return Problem(Rank.CONNECTOR, f"{what} runs, and its manifest wants it {_HELD[want]}", where)
    if failure.get("restarts"):
        return _repeated(part.name, failure, logs, where=where, target=target)
    return Problem(Rank.CONNECTOR, f"{what} is {part.state}", where, next=_logs_of(where))


def _failed(
    reason: str,
    parts: list[ConnectorPart],
    failures: Mapping[str, Mapping[str, Any]],
    logs: WorkerLogs,
    *,
    where: str,
    target: str,
) -> Problem:
    found = explain(reason, target)
    times = [logs.failed_at(f"{part.name}-{part.task}") for part in parts if part.task is not None]
    begun = min(filter(None, times), default=None)
    restarts = max((failures.get(part.name, {}).get("restarts", 0) for part in parts), default=0)
    again = f" and restarted {restarts} times" if restarts >= RESTARTS else ""
    labels = ", ".join(part.label for part in parts)
    cause = found.cause if found else reason or "it left no trace"
    rank = Rank.RIGHTS if found and found.rights else Rank.CONNECTOR
    return Problem(rank, f"{cause}; {labels} failed{again}", where, begun, found.remedy if found else _logs_of(where))


def _repeated(
    name: str, failure: Mapping[str, Any], logs: WorkerLogs, *, where: str, target: str, runs: bool = False
) -> Problem:
    """The problem of a connector with a part that was restarted; a running part may have recovered."""
    reason = str(failure["reason"])
    part, _, exception = reason.partition(" failed: ")
    found = explain(exception, target) if exception else None
    cause, label = found.cause if found else exception or reason, f"{part or 'a part'} of {name}"
    text = f"{cause}; {label} fails again and again: restarted {failure['restarts']} times"
    if runs:
        # The cause may be gone: a right that was given back.
        text = (
            f"{label} was restarted {failure['restarts']} times and has run for {failure['running_seconds']:.0f} s; "
            f"before that it failed: {cause}"
        )
    return Problem(
        Rank.RIGHTS if found and found.rights else Rank.CONNECTOR,
        text,
        where,
        logs.failed_at(f"{name}-{part.removeprefix('task ')}") if part.startswith("task ") else None,
        found.remedy if found else _logs_of(where),
    )


def _logs_of(where: str) -> str:
    """The command that shows the log of what stands in ``REGION, KIND/NAME``."""
    region, _, resource = where.partition(", ")
    return f"./lab logs {region}/{resource.rpartition('/')[2]}" if resource else f"./lab logs {region}"


def _last_time(log: str, text: str) -> float | None:
    """The time of the last line of a log that has a text; Log4j writes local time."""
    end = log.rfind(text)
    if end < 0:
        return None
    return _time_of(log, end)


def _joining_since(log: str) -> float | None:
    """When a worker began to join its group, if it has not joined since."""
    joined = log.rfind(_JOINED)
    begun = log.find(_JOINS, max(joined, 0))
    if begun < 0:
        return None
    return _time_of(log, begun)


def _time_of(log: str, place: int) -> float | None:
    """The time of the line at a place of a log."""
    found = _TIME.match(log, log.rfind("\n", 0, place) + 1)
    return datetime.fromisoformat(f"{found[1]}.{found[2]}").astimezone().timestamp() if found else None
