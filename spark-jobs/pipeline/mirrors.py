"""What a mirror copies, by MM2's own rules, and how far it has come, by Connect's REST interface."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
from kafka import TopicPartition

from lab.access import Mirror
from lab.errors import WrongUseError

DEFAULT_EXCLUDE = r"mm2.*\.internal, .*\.replica, __.*"
"""MM2 4.3.1's ``topics.exclude``, which holds where a mirror says nothing else."""
_HTTP_TIMEOUT_S = 10
_POLL_S = 0.5
_REPORT_S = 5.0
# A state that nobody leaves by waiting. FAILED is none: a restart may be under way.
_AT_REST = ("PAUSED", "STOPPED")
UNKNOWN = "UNKNOWN"
"""The state of a mirror that nobody can be asked about."""


def selected_topics(mirror: Mirror, topics: Iterable[str]) -> list[str]:
    """The topics of a source that the mirror copies.

    As MM2's DefaultTopicFilter and MirrorSourceConnector have it: a list of regular expressions of which one matches
    the whole name, none of the excluded ones does, and neither internal topics nor those that came from the target.

    Raises:
        WrongUseError: a pattern is not a regular expression.
    """
    wanted, excluded = _pattern(mirror, mirror.topics), _pattern(mirror, mirror.topics_exclude or DEFAULT_EXCLUDE)
    return sorted(
        topic
        for topic in topics
        if wanted.fullmatch(topic)
        and not excluded.fullmatch(topic)
        and not _is_internal(topic)
        and not _came_from(mirror, topic)
    )


def target_topic(mirror: Mirror, topic: str) -> str:
    """The name that the mirror's policy gives a topic at the target."""
    return topic if mirror.policy == "identity" else f"{mirror.source_alias}{mirror.separator}{topic}"


def _pattern(mirror: Mirror, patterns: str) -> re.Pattern[str]:
    try:
        return re.compile("|".join(f"(?:{pattern.strip()})" for pattern in patterns.split(",")))
    except re.error as error:
        raise WrongUseError(
            f"mirror {mirror.name}: '{patterns}' is not a list of regular expressions: {error}"
        ) from error


def _is_internal(topic: str) -> bool:
    return topic.startswith(("__", ".")) or topic.endswith(("-internal", ".internal"))


def _came_from(mirror: Mirror, topic: str) -> bool:
    return mirror.policy != "identity" and mirror.target_alias in topic.split(mirror.separator)[:-1]


@dataclass(frozen=True)
class Progress:
    """How far a mirror has come."""

    state: str
    """RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, ABSENT, UNREACHABLE or UNKNOWN."""
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offset of the last source record that was copied."""

    def behind(self, last_records: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How far the mirror is behind these offsets, for the partitions where it is."""
        lags = {part: last - self.positions.get(part, -1) for part, last in last_records.items()}
        return {part: lag for part, lag in lags.items() if lag > 0}


class Connect:
    """The REST interface of a mirror's Connect workers."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._address = f"{mirror.connect['url'].rstrip('/')}/connectors/{quote(mirror.connector, safe='')}"
        self._session = requests.Session()
        # The environment's proxies and .netrc have no business between the lab's own processes.
        self._session.trust_env = False
        # On Kubernetes it has neither: network policies guard it.
        if "ca_file" in mirror.connect:
            self._session.verify = mirror.connect["ca_file"]
            password = Path(mirror.connect["password_file"]).read_text(encoding="utf-8").strip()
            self._session.auth = (mirror.connect["username"], password)

    def progress(self) -> Progress:
        """State and positions; what goes wrong is a state as well."""
        try:
            status = self._get("status")
            if status is None:
                return Progress("ABSENT")
            offsets = self._get("offsets") or {"offsets": []}
        except (requests.RequestException, ValueError):
            return Progress("UNREACHABLE")
        return Progress(_state(status), self._positions(offsets))

    def _get(self, what: str) -> dict[str, Any] | None:
        response = self._session.get(f"{self._address}/{what}", timeout=_HTTP_TIMEOUT_S)
        if response.status_code == requests.codes.not_found:
            return None
        response.raise_for_status()
        document: dict[str, Any] = response.json()
        return document

    def _positions(self, document: dict[str, Any]) -> dict[TopicPartition, int]:
        return {
            TopicPartition(entry["partition"]["topic"], entry["partition"]["partition"]): entry["offset"]["offset"]
            for entry in document["offsets"]
            if entry["partition"].get("cluster") == self._mirror.source_alias and entry.get("offset")
        }


def _state(status: dict[str, Any]) -> str:
    state: str = status["connector"]["state"]
    tasks = [task["state"] for task in status["tasks"]]
    if state == "RUNNING" and (not tasks or "RUNNING" not in tasks):
        return tasks[0] if tasks else "UNASSIGNED"
    return "FAILED" if "FAILED" in tasks else state


def wait_for_mirror(
    mirror: Mirror, last_records: Mapping[TopicPartition, int], timeout_s: float, report: Callable[[str], None]
) -> Progress:
    """Waits until the mirror has copied everything up to these offsets, or the bound has passed, or waiting is idle.

    Args:
        mirror: which one.
        last_records: the source offsets to reach.
        timeout_s: bound, in seconds.
        report: takes a line that says what is being waited for.

    Returns:
        How far it has come.
    """
    connect = Connect(mirror)
    deadline = time.monotonic() + timeout_s
    next_report = 0.0
    at_rest = 0
    while True:
        progress = connect.progress()
        behind = progress.behind(last_records)
        at_rest = at_rest + 1 if progress.state in _AT_REST else 0
        now = time.monotonic()
        if not behind or now >= deadline or at_rest == 2:
            return progress
        if now >= next_report:
            report(f"waiting: {describe(mirror, progress, last_records)}")
            next_report = now + _REPORT_S
        time.sleep(min(_POLL_S, max(deadline - now, 0)))


def describe(mirror: Mirror, progress: Progress, last_records: Mapping[TopicPartition, int]) -> str:
    """One phrase: the state and how far behind, such as ``mirror mm2-na is STOPPED, 1,234 records behind``."""
    if progress.state == "UNREACHABLE":
        return f"mirror {mirror.name}: Connect does not answer"
    if progress.state == "ABSENT":
        return f"mirror {mirror.name}: there is no connector {mirror.connector}"
    behind = sum(progress.behind(last_records).values())
    if progress.state == UNKNOWN:
        places = f"{len(progress.behind(last_records))} of {len(last_records)} partitions"
        return f"mirror {mirror.name}: the last records of {places} did not arrive in time"
    return f"mirror {mirror.name} is {progress.state}, {behind:,} records behind"
