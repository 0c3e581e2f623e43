"""How far the mirrors have come, and what the sources may delete first: asked beside the reading, since it takes time.

An answer of Connect takes half a second at times; and the oldest record that is not copied has to be read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from kafka import TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.retention_risk import Exposure, LossWatch
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.flows import MirrorId
from loosehanger.proof.read.mirrors import NOT_ASKED, UNKNOWN, Connect, MirrorProgress

_SOON_S, _REST_S = 1.0, 5.0
"""How long to wait between two answers, when somebody waits for them, and when nobody does."""


class Positions:
    """The newest answer of each mirror.

    Args:
        mirrors: whom to ask.
        source_of: the way into a mirror's source.
        partitions_of: what a mirror copies, of its source.
    """

    def __init__(
        self,
        mirrors: Iterable[Mirror],
        source_of: Callable[[Mirror], Connection],
        partitions_of: Callable[[Mirror], Iterable[TopicPartition]],
    ) -> None:
        self._mirrors = list(mirrors)
        self._source_of = source_of
        self._partitions_of = partitions_of
        self._found: dict[MirrorId, MirrorProgress] = {}
        self._last: dict[MirrorId, MirrorProgress] = {}
        """What each said when it could be asked last."""
        self._exposures: dict[MirrorId, list[Exposure]] = {}
        self._wanted, self._ended = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(mirror,), daemon=True) for mirror in self._mirrors]

    def start(self) -> None:
        """Begins to ask."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ends it."""
        self._ended.set()
        self._wanted.set()

    def want(self, soon: bool) -> None:
        """Says whether somebody waits for the next answer."""
        if soon:
            self._wanted.set()
        else:
            self._wanted.clear()

    def progress(self) -> dict[MirrorId, MirrorProgress]:
        """What each has answered last."""
        return dict(self._found)

    def positions(self) -> dict[MirrorId, Mapping[TopicPartition, int]]:
        """The positions of those that can be asked."""
        return {key: found.positions for key, found in self._found.items() if found.state not in NOT_ASKED}

    def exposures(self) -> dict[MirrorId, list[Exposure]]:
        """How far each is behind, by partition."""
        return dict(self._exposures)

    def _ask(self, mirror: Mirror) -> None:
        connect = Connect(mirror) if mirror.connect else None
        source, due = LossWatch(self._source_of(mirror)), 0.0
        while not self._ended.is_set():
            looking = time.monotonic() >= due
            # Before the positions: what is written between the two is not behind.
            ends = self._ends(mirror, source) if looking else None
            now = time.time()
            try:
                found = connect.progress() if connect else MirrorProgress(UNKNOWN)
            except Exception:
                # Whatever an answer looks like that nobody has thought of: the mirror cannot be asked now.
                found = MirrorProgress(UNKNOWN)
            self._found[mirror.id] = found
            if found.state not in NOT_ASKED:
                self._last[mirror.id] = found
            if looking:
                due = time.monotonic() + _REST_S
                # One whose workers are away stands still: where it was last is where it is.
                if found.state in NOT_ASKED:
                    ends, now = None, time.time()
                self._exposures[mirror.id] = self._look(mirror, self._last.get(mirror.id), source, ends, now)
            self._ended.wait(_SOON_S)
            if not self._ended.is_set():
                self._wanted.wait(_REST_S - _SOON_S)
        source.close()

    def _ends(self, mirror: Mirror, source: LossWatch) -> dict[TopicPartition, int] | None:
        try:
            return source.ends(self._partitions_of(mirror))
        except (LabError, KeyError):
            return None

    def _look(
        self,
        mirror: Mirror,
        found: MirrorProgress | None,
        source: LossWatch,
        ends: Mapping[TopicPartition, int] | None,
        now: float,
    ) -> list[Exposure]:
        if found is None:
            return []
        wanted = {place: found.positions.get(place) for place in self._partitions_of(mirror)}
        try:
            return source.look(wanted, now=now, ends=ends)
        except (LabError, KeyError):
            # A source that is away, or a topic that has just gone: the rounds tell of both, and a warning stands.
            return self._exposures.get(mirror.id, [])
