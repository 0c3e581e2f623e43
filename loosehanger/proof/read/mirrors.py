"""The position of a mirror, by Connect's REST interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition

from loosehanger.kafka.connect import ConnectClient, ConnectError, parts
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.pace import Pace

_HTTP_TIMEOUT_S = 10
_POLL_S = 0.5
_REPORT_S = 5.0
# States that do not end by waiting. FAILED may: a restart may be in progress.
AT_REST = ("PAUSED", "STOPPED")
UNKNOWN = "UNKNOWN"
"""The state of a mirror without access to Connect."""
GROWING = "GROWING"
"""The state of such a mirror whose copies are not complete and still grow."""
NOT_ASKED = (UNKNOWN, GROWING, "ABSENT", "REFUSED", "UNREACHABLE")
"""States in which no position is known, though there may be one."""


@dataclass(frozen=True)
class MirrorProgress:
    """A mirror's state and positions."""

    state: str
    """RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, ABSENT, REFUSED, UNREACHABLE, UNKNOWN or GROWING."""
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offset of the last source record that was copied."""

    def behind(self, last_records: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The mirror's lag to these offsets, for the partitions with any."""
        lags = {part: last - self.positions.get(part, -1) for part, last in last_records.items()}
        return {part: lag for part, lag in lags.items() if lag > 0}


class Connect:
    """A client of the Connect workers of a mirror's source connector."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._rest = ConnectClient.of(mirror.connect, timeout_s=_HTTP_TIMEOUT_S, rebalance_s=0)

    def progress(self) -> MirrorProgress:
        """State and positions; failures are states as well."""
        name = self._mirror.connector
        try:
            status = self._rest.status(name)
            if status is None:
                return MirrorProgress("ABSENT")
            positions = self._rest.positions(name, self._mirror.source_alias)
        except ConnectError as error:
            return MirrorProgress("REFUSED" if error.refused else "UNREACHABLE")
        return MirrorProgress(_state(status), {TopicPartition(*place): offset for place, offset in positions.items()})


def _state(status: dict[str, Any]) -> str:
    connector, *tasks = (part.state for part in parts("", status))
    if connector == "RUNNING" and "RUNNING" not in tasks:
        return tasks[0] if tasks else "UNASSIGNED"
    return "FAILED" if "FAILED" in tasks else connector


def wait_for_mirror(
    mirror: Mirror,
    last_records: Mapping[TopicPartition, int],
    timeout_s: float,
    report: Callable[[str], None],
    *,
    while_moving: bool = False,
) -> MirrorProgress:
    """Waits until the mirror has reached these offsets, the bound has passed, or the mirror is at rest.

    Args:
        mirror: the mirror.
        last_records: the source offsets to reach.
        timeout_s: bound, in seconds.
        report: takes a line of progress.
        while_moving: whether the bound restarts whenever the mirror has made progress.

    Returns:
        Its last known progress.
    """
    connect = Connect(mirror)
    deadline = time.monotonic() + timeout_s
    next_report, pace = 0.0, Pace()
    at_rest, least = 0, sum(last_records.values())
    while True:
        progress = connect.progress()
        behind = progress.behind(last_records)
        at_rest = at_rest + 1 if progress.state in AT_REST else 0
        now = time.monotonic()
        if while_moving and (left := sum(behind.values())) < least:
            least, deadline = left, now + timeout_s
        if not behind or now >= deadline or at_rest == 2:
            return progress
        if now >= next_report:
            left_s = pace.remaining(sum(behind.values()))
            report(f"waiting: {describe(standing(mirror, progress, last_records))}{left_s}")
            next_report = now + _REPORT_S
        time.sleep(min(_POLL_S, max(deadline - now, 0)))


def standing(mirror: Mirror, progress: MirrorProgress, last_records: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """State and lag, as data for ``describe``."""
    behind = progress.behind(last_records)
    return {
        "mirror": mirror.name,
        "connector": mirror.connector,
        "user": mirror.connect.get("username", "anonymous"),
        "state": progress.state,
        "records": sum(behind.values()),
        "partitions": len(behind),
        "of": len(last_records),
    }


def describe(standing: Mapping[str, Any]) -> str:
    """State and lag in one phrase, for example ``mirror mm2 is STOPPED, 1,234 records behind``."""
    name = f"mirror {standing['mirror']}"
    match standing["state"]:
        case "UNREACHABLE":
            return f"{name}: Connect does not answer"
        case "REFUSED":
            return f"{name}: Connect refuses user '{standing['user']}'"
        case "ABSENT":
            return f"{name}: there is no connector {standing['connector']}"
        case state if state == GROWING:
            return (
                f"the copies are behind and still grow: {standing['records']:,} source offsets at most, in "
                f"{standing['partitions']} of {standing['of']} partitions; wait longer with --timeout or --while-moving"
            )
        case state if state == UNKNOWN:
            places = f"{standing['partitions']} of {standing['of']} partitions"
            return f"{name}: the last records of {places} did not arrive in time"
        case state:
            return f"{name} is {state}, {standing['records']:,} records behind"
