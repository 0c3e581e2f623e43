"""Mirrors that run and deliver nothing, by the readings of their sources."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path

from loosehanger.console.mirrors import explain, judged
from loosehanger.console.models import Connector, Mirror
from loosehanger.kafka.stalled import Stands, bound_s, cause, cut_off

NOTICED_S = 5.0
"""Seconds without progress after which a mirror is examined; while it is paused or cut off, they count from zero."""


class Stalls:
    """Judges the mirrors of a console.

    Args:
        home: the lab's home, with links and logs; None where it is on another machine.
        stands: the readings of a region; None for a region that this console does not see.
    """

    def __init__(self, home: Path | None, stands: Callable[[str], Stands | None]) -> None:
        self._home = home
        self._stands = stands
        self._cut: dict[tuple[str, str, str], tuple[float, bool]] = {}

    async def judged(self, mirror: Mirror) -> Mirror:
        """The mirror, with the cause where it runs and delivers nothing."""
        causes = {one.name: await self._cause(mirror, one) for one in mirror.connectors}
        if not any(causes.values()):
            return mirror
        connectors = [one.model_copy(update={"stalled": causes[one.name]}) for one in mirror.connectors]
        health, explanation = explain(mirror.region, mirror.name, connectors)
        return mirror.model_copy(
            update={
                "connectors": connectors,
                "health": health,
                "explanation": explanation,
                "state": judged(connectors).state,
            }
        )

    async def _cause(self, mirror: Mirror, connector: Connector) -> str:
        stands, key = self._stands(connector.reads), key_of(mirror, connector)
        if stands is None or stands.stalled(key, NOTICED_S) is None:
            return ""
        states = {connector.state, *(task.state for task in connector.tasks)}
        if connector.drops or states != {"RUNNING"} or await self._cut_off(mirror, connector):
            stands.forget(key)
            return ""
        stall = stands.stalled(
            key,
            bound_s(self._home, mirror.region, mirror.name),
            math.inf if connector.found_s is None else connector.found_s,
        )
        return stall.describe(await asyncio.to_thread(cause, self._home, mirror.region, mirror.name)) if stall else ""

    async def _cut_off(self, mirror: Mirror, connector: Connector) -> bool:
        place = mirror.region, connector.reads, connector.writes
        asked, cut = self._cut.get(place, (float("-inf"), False))
        if time.monotonic() - asked > NOTICED_S:
            cut = await asyncio.to_thread(cut_off, self._home, *place)
            self._cut[place] = time.monotonic(), cut
        return cut


def key_of(mirror: Mirror, connector: Connector) -> str:
    """The key of a connector among the readings of its source."""
    return f"{mirror.region}/{connector.name}"
