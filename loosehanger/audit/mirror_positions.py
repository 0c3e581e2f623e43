"""The mirrors' positions, and the records that the sources may delete first. Threads of their own fetch them.

Connect may take half a second to answer, and finding the oldest record that is not copied means reading it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import TopicPartition

from loosehanger.audit.balance import AuditBalance, Judged, RegionPartition
from loosehanger.errors import LabError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.retention_risk import PartitionRisk, RetentionReader
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.flows import MirrorId
from loosehanger.proof.read.mirrors import NOT_ASKED, UNKNOWN, Connect, MirrorProgress

_SOON_S, _REST_S = 1.0, 5.0
"""Seconds between two requests, when the audit waits for the answer, and when it does not."""


class Positions:
    """The newest answer of each mirror, from Connect.

    Args:
        mirrors: the mirrors to ask.
        source_of: a mirror's source, each time with connections of its own.
        partitions_of: the source partitions that a mirror copies.
    """

    def __init__(
        self,
        mirrors: Iterable[Mirror],
        source_of: Callable[[Mirror], Cluster],
        partitions_of: Callable[[Mirror], Iterable[TopicPartition]],
    ) -> None:
        self._mirrors = list(mirrors)
        self._source_of = source_of
        self._partitions_of = partitions_of
        self._found: dict[MirrorId, MirrorProgress] = {}
        self._last: dict[MirrorId, MirrorProgress] = {}
        """The last answer of each mirror that has a position."""
        self._risks: dict[MirrorId, list[PartitionRisk]] = {}
        self._wanted, self._ended = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(mirror,), daemon=True) for mirror in self._mirrors]

    def start(self) -> None:
        """Starts a thread for each mirror."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stops the threads."""
        self._ended.set()
        self._wanted.set()

    def want(self, soon: bool) -> None:
        """Sets whether the audit waits for the next answer."""
        if soon:
            self._wanted.set()
        else:
            self._wanted.clear()

    def progress(self) -> dict[MirrorId, MirrorProgress]:
        """The last answer of each mirror."""
        return dict(self._found)

    def positions(self) -> dict[MirrorId, Mapping[TopicPartition, int]]:
        """The positions of the mirrors that answer."""
        return {key: found.positions for key, found in self._found.items() if found.state not in NOT_ASKED}

    def risks(self) -> dict[MirrorId, list[PartitionRisk]]:
        """The records of each mirror that are not copied yet, by partition."""
        return dict(self._risks)

    def learn(
        self, judged: Iterable[Judged], balance: AuditBalance, read: Mapping[RegionPartition, int], at_ms: int
    ) -> None:
        """Learns from what a round has judged and read; Connect knows without it."""

    def forget(self, region: str, topic: str) -> None:
        """Forgets the positions in a source that was recreated; Connect has reset its own."""

    def dump(self) -> list[list[Any]]:
        """What was learned, as JSON types."""
        return []

    def load(self, stored: Iterable[Any]) -> None:
        """Restores what ``dump`` returned."""

    def progress_of(self, mirror: Mirror) -> Callable[[], MirrorProgress]:
        """The function that asks a mirror for its position, in the mirror's thread."""
        return Connect(mirror).progress if mirror.connect else lambda: MirrorProgress(UNKNOWN)

    def _ask(self, mirror: Mirror) -> None:
        progress = self.progress_of(mirror)
        source, due = RetentionReader(self._source_of(mirror)), 0.0
        while not self._ended.is_set():
            looking = time.monotonic() >= due
            # Before the positions: records that are written between the two do not count as lag.
            ends = self._ends(mirror, source) if looking else None
            now = time.time()
            try:
                found = progress()
            except Exception:
                # An unforeseen answer, whatever it is: the position is unknown for now.
                found = MirrorProgress(UNKNOWN)
            self._found[mirror.id] = found
            if found.state not in NOT_ASKED:
                self._last[mirror.id] = found
            if looking:
                due = time.monotonic() + _REST_S
                # Without workers a mirror does not move: its last position is current.
                if found.state in NOT_ASKED:
                    ends, now = None, time.time()
                self._risks[mirror.id] = self._look(mirror, self._last.get(mirror.id), source, ends, now)
            self._ended.wait(_SOON_S)
            if not self._ended.is_set():
                self._wanted.wait(_REST_S - _SOON_S)
        source.close()

    def _ends(self, mirror: Mirror, source: RetentionReader) -> dict[TopicPartition, int] | None:
        try:
            return source.ends(self._partitions_of(mirror))
        except (LabError, KeyError):
            return None

    def _look(
        self,
        mirror: Mirror,
        found: MirrorProgress | None,
        source: RetentionReader,
        ends: Mapping[TopicPartition, int] | None,
        now: float,
    ) -> list[PartitionRisk]:
        if found is None:
            return []
        wanted = {place: found.positions.get(place) for place in self._partitions_of(mirror)}
        try:
            return source.look(wanted, now=now, ends=ends)
        except (LabError, KeyError):
            # The source is down, or the topic was just deleted. The rounds report both, and the last warning stays.
            return self._risks.get(mirror.id, [])
