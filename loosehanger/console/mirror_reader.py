"""The mirrors of a console's regions: their states, what they copy, and how long that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from loosehanger.console.mirrors import SOURCE_CONNECTOR, Action, MirrorMakerView, described
from loosehanger.console.models import Connector, Mirror, Mirrors
from loosehanger.console.region_views import RegionView, RegionViews, UnknownError
from loosehanger.console.rights import Rights
from loosehanger.console.stalls import Stalls
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.lab.mirrors.mirror import Mirror as Route

if TYPE_CHECKING:
    from pathlib import Path


class MirrorReader:
    """Reads the mirrors of a console's regions.

    Args:
        regions: the console's.
        home: the lab's home, on the machine of a lab.
    """

    def __init__(self, regions: RegionViews, home: Path | None) -> None:
        self._regions = regions
        self._stalls = Stalls(home, regions.stands)
        self._rights = Rights(lambda name: regions.regions[name].cluster if name in regions.regions else None)

    async def every(self) -> Mirrors:
        """Every mirror."""
        self._regions.look()
        found = await asyncio.gather(*(self.of(region) for region in self._regions.regions.values()))
        mirrors = [mirror for mirrors in found for mirror in mirrors]
        away = [mirror.explanation for mirror in mirrors if not mirror.answers and mirror.explanation]
        return Mirrors(mirrors=mirrors, problems=away)

    async def of(self, region: RegionView) -> list[Mirror]:
        """The mirrors that run in a region."""
        mirrors = await asyncio.gather(*(self._mirror(region, mirror) for mirror in region.mirrors.values()))
        timed = []
        for mirror in mirrors:
            p50, p99 = self.latency(mirror, mirror.connectors)
            timed.append(mirror.model_copy(update={"latency_ms_p50": p50, "latency_ms_p99": p99}))
        return [await self._rights.judged(await self._stalls.judged(mirror)) for mirror in timed]

    async def _mirror(self, region: RegionView, mirror: MirrorMakerView) -> Mirror:
        closed = self._regions.closed(region.name, mirror.name)
        if not closed:
            return await mirror.state()
        mirror.forget()
        return Mirror(
            region=region.name, name=mirror.name, answers=False, connectors=[], latency_ms_p50=None,
            latency_ms_p99=None, health="unknown", explanation=closed,
        )  # fmt: skip

    def latency(self, mirror: Mirror, connectors: Sequence[Connector]) -> tuple[int | None, int | None]:
        """Median and 99th percentile of these connectors' latency, where this console sees their target."""
        target = self._regions.regions.get(connectors[0].writes) if connectors else None
        topics = [topic for connector in connectors for topic in _copies(mirror, connector)]
        if target is None or not topics:
            return None, None
        return target.live.percentiles(topics)

    def writers(self, region: RegionView, mirrors: Sequence[Mirror]) -> list[tuple[str, Callable[[str], bool]]]:
        """Each mirror that writes to a region, with a predicate for the topics that it writes there."""
        found: list[tuple[str, Callable[[str], bool]]] = []
        for mirror in mirrors:
            for connector in mirror.connectors:
                if connector.kind == SOURCE_CONNECTOR and connector.writes == region.name:
                    names = set(_copies(mirror, connector))
                    found.append((mirror.name, names.__contains__))
        asked = {(mirror.region, mirror.name) for mirror in mirrors if mirror.answers}
        for route in self._regions.routes:
            # For a mirror that does not answer, its manifest decides.
            if route.target == region.name and (route.region, route.name) not in asked:
                found.append((route.name, partial(_may_write, route)))
        return found

    async def act(self, region: str, mirror: str, connector: str, action: Action) -> str:
        """Pauses, resumes or restarts a connector; returns the outcome as a sentence.

        Raises:
            UnknownError: this console has no such region or mirror.
            WrongUseError: the mirror has no such connector.
            UnreachableError: Connect does not answer.
        """
        await self._reachable(region, mirror).act(connector, action)
        return f"{region}: requested to {action} {connector}"

    async def preview(
        self, region: str, mirror: str, connector: str, action: Action
    ) -> tuple[list[tuple[str, str, str]], list[str]]:
        """Looks up what an action on a connector would change.

        Returns:
            The connector and each task with its state now and afterwards; and the effects, as sentences.

        Raises:
            UnknownError: this console has no such region or mirror.
            WrongUseError: the mirror has no such connector.
            UnreachableError: Connect does not answer.
        """
        state = await self._reachable(region, mirror).state()
        if not state.answers:
            raise UnreachableError(state.explanation or f"{region}: {mirror}: no Connect worker answers")
        found = next((one for one in state.connectors if one.name == connector), None)
        if found is None:
            names = ", ".join(one.name for one in state.connectors) or "none"
            raise WrongUseError(f"{region}: {mirror} has no connector '{connector}'; it has: {names}")
        then = {"pause": "paused", "resume": "running", "restart": "running, started again"}[action]
        rows = [("Connector", found.state.lower(), then)]
        rows += [(f"Task {task.number}", task.state.lower(), then) for task in found.tasks]
        return rows, list(_effects(found, action))

    def _reachable(self, region: str, mirror: str) -> MirrorMakerView:
        mirrors = self._regions.region(region).mirrors
        if mirror not in mirrors:
            raise UnknownError(f"{region} has no mirror '{mirror}'; it has: {', '.join(mirrors) or 'none'}")
        if closed := self._regions.closed(region, mirror):
            raise UnreachableError(closed)
        return mirrors[mirror]


def _effects(connector: Connector, action: Action) -> Iterator[str]:
    """What follows from an action on a connector."""
    copies = connector.kind == SOURCE_CONNECTOR
    if action == "restart":
        yield "Its tasks start again within seconds, and continue where they stopped"
    elif action == "pause":
        yield (
            "It copies nothing until it is resumed: its lag grows, and the source's retention may delete records first"
            if copies
            else "It does nothing until it is resumed"
        )
        if connector.wanted == "RUNNING":
            yield "Its manifest says running, so it counts as degraded until it is resumed"
    else:
        if copies:
            yield "It continues where it was paused"
        if connector.wanted in ("PAUSED", "STOPPED"):
            yield f"Its manifest says {connector.wanted.lower()}: the next set-up applies that again"


def _may_write(route: Route, topic: str) -> bool:
    from loosehanger.lab.mirrors.lineage import Place, writers

    return bool(writers([route], Place(route.target, topic)))


def _copies(mirror: Mirror, connector: Connector) -> list[str]:
    """The target names of the topics that a connector has copied."""
    return list(copied_topics(mirror, connector).values())


def copied_topics(mirror: Mirror, connector: Connector) -> dict[str, str]:
    """The topics that a connector has copied: source name to target name."""
    from loosehanger.lab.mirrors.replication import selected_topics, target_topic

    if connector.kind != SOURCE_CONNECTOR:
        return {}
    rules = described(mirror.name, connector)
    try:
        selected = selected_topics(rules, {position.topic for position in connector.positions})
    except WrongUseError:
        return {}
    return {topic: target_topic(rules, topic) for topic in selected}
