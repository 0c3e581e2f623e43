"""How far mirrors are behind at one source, and what it may delete first: looked at beside what somebody waits for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from console.cluster import prepare_clients
from console.models import Position
from loosehanger.clients.connection import Connection
from loosehanger.clients.stalled import Stands
from loosehanger.errors import LabError

if TYPE_CHECKING:
    from loosehanger.clients.loss import Danger, LossWatch

FRESH_S = 5.0
IDLE_S = 60.0


class Losses:
    """Looks at one source, in a thread of its own, while somebody asks.

    Args:
        connection: the console's way into it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="losses")
        self.stands = Stands()
        self._source: LossWatch | None = None
        self._known: dict[str, dict[str, Danger]] = {}
        self._looks: dict[str, tuple[float, Future[None]]] = {}
        self._asked = 0.0

    def of(self, mirror: str, positions: Sequence[Position]) -> dict[str, Danger]:
        """How each topic of a mirror stands, as of some seconds ago; nothing before the first look.

        Args:
            mirror: tells it from the source's other mirrors.
            positions: how far it has come.
        """
        self._asked = time.monotonic()
        looked, look = self._looks.get(mirror, (0.0, None))
        if look is None or (look.done() and self._asked - looked > FRESH_S):
            self._looks[mirror] = self._asked, self._thread.submit(self._look, mirror, list(positions))
        return self._known.get(mirror, {})

    def looks(self) -> list[Future[None]]:
        """The looks that are under way."""
        return [look for _, look in self._looks.values() if not look.done()]

    def close_if_idle(self) -> None:
        """Closes the clients when nobody has asked for a while."""
        if self._source is not None and time.monotonic() - self._asked > IDLE_S:
            self._thread.submit(self._forget)

    def close(self) -> None:
        """Ends the thread and its clients."""
        self._thread.submit(self._forget)
        self._thread.shutdown(wait=False)

    def _look(self, mirror: str, positions: list[Position]) -> None:
        prepare_clients()
        from kafka import TopicPartition

        from loosehanger.clients.loss import LossWatch, by_topic

        if self._source is None:
            self._source = LossWatch(self._connection)
        # Before the first record there is no position.
        wanted = {TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in positions}
        try:
            found = self._source.look(wanted, whose=mirror)
            self.stands.read(mirror, found, time.monotonic())
            self._known[mirror] = by_topic(found)
        except (LabError, KeyError, ValueError):
            self.stands.keep(mirror, {(place.topic, place.partition): last for place, last in wanted.items()},
                             time.monotonic())  # fmt: skip
            # Whether the source answers is told where it is asked for its topics.
            self._known.pop(mirror, None)

    def _forget(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
