"""The ACLs that the user of a failing mirror lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from loosehanger.console.cluster import ClusterView
from loosehanger.console.mirrors import SOURCE_CONNECTOR, described
from loosehanger.console.models import Connector, Mirror
from loosehanger.errors import UnreachableError

if TYPE_CHECKING:
    from loosehanger.acls import NeededRight

SETTLED_S = 15.0
"""How long a connector may be without a task or a worker after its start."""


class Rights:
    """Checks the ACLs of the users of mirrors that do not work.

    Args:
        cluster: a region's cluster; None for a region that this console does not see.
    """

    def __init__(self, cluster: Callable[[str], ClusterView | None]) -> None:
        self._cluster = cluster
        self._idle: dict[tuple[str, str, str], float] = {}

    async def judged(self, mirror: Mirror) -> Mirror:
        """The mirror, with the rights that it lacks."""
        lacking = [line for one in mirror.connectors for line in await self._lacking_of(mirror, one)]
        if not lacking:
            return mirror
        kept = [mirror.explanation] if mirror.health == "bad" else []
        return mirror.model_copy(update={"health": "bad", "explanation": ". ".join([*lacking, *kept])})

    async def _lacking_of(self, mirror: Mirror, connector: Connector) -> list[str]:
        if connector.kind != SOURCE_CONNECTOR or not self._ill(mirror, connector):
            return []
        from loosehanger.acls import NeededRight
        from loosehanger.lab.mirrors.access import judged_topics
        from loosehanger.lab.mirrors.replication import target_topic

        rules = described(mirror.name, connector)
        topics = judged_topics(set(connector.lags), {one.topic for one in connector.positions})
        lacking = await self._lacking(
            connector.reads, connector.reads_as, [NeededRight("TOPIC", one, "READ") for one in topics]
        )
        copies = [NeededRight("TOPIC", target_topic(rules, one), "WRITE") for one in topics]
        lacking += await self._lacking(connector.writes, connector.writes_as, copies)
        return [f"{connector.name} does not work: {one}" for one in lacking]

    async def _lacking(self, region: str, user: str, needed: Sequence[NeededRight]) -> list[str]:
        from loosehanger.acls import missing
        from loosehanger.lab.mirrors.access import missing_rights

        cluster = self._cluster(region)
        if cluster is None or not user or not needed:
            return []
        try:
            found = missing_rights(region, user, missing(await cluster.rules(), user, needed))
        except UnreachableError:
            return []  # A region that does not answer is reported with its topics.
        return [found] if found else []

    def _ill(self, mirror: Mirror, connector: Connector) -> bool:
        states = {connector.state, *(task.state for task in connector.tasks)}
        if connector.stalled or "FAILED" in states:
            return True
        place = mirror.region, mirror.name, connector.name
        if "UNASSIGNED" in states or (connector.state == "RUNNING" and not connector.tasks):
            return time.monotonic() - self._idle.setdefault(place, time.monotonic()) >= SETTLED_S
        self._idle.pop(place, None)
        return False
