"""The flows between the regions of a console: their rates, lag, latency and risk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loosehanger.console.mirror_reader import MirrorReader, copied_topics
from loosehanger.console.mirrors import SOURCE_CONNECTOR, explain, judged
from loosehanger.console.models import Connector, Flow, Mirror, Topic
from loosehanger.console.region_views import RegionViews
from loosehanger.console.stalls import key_of
from loosehanger.lab.mirrors.mirror import Mirror as Route

if TYPE_CHECKING:
    from loosehanger.kafka.retention_risk import TopicRisk


@dataclass(frozen=True)
class FlowNow:
    """A flow, and the readings that it is computed from."""

    flow: Flow
    connector: Connector | None
    """None for a mirror that does not answer."""
    copies: Mapping[str, str]
    """The topics that it copies: the source's name, and the target's."""
    dangers: Mapping[str, TopicRisk]
    """The risk from the source's retention, by source topic."""
    at: float
    """When its positions were read, on the monotonic clock."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Offsets that were seen to be deleted before they were copied, by source topic, since the console started."""


@dataclass(frozen=True)
class Now:
    """The readings of a moment."""

    flows: Sequence[FlowNow]
    topics: Sequence[Topic]
    read_at: Mapping[str, float]
    """When each region's topics were read, on the monotonic clock."""
    latencies: Mapping[tuple[str, str], tuple[int | None, int | None]]
    """Median and 99th percentile, in ms, by region and topic."""


class FlowReader:
    """Reads the flows of a console's mirrors.

    Args:
        regions: the console's.
        mirrors: reads its mirrors.
    """

    def __init__(self, regions: RegionViews, mirrors: MirrorReader) -> None:
        self._regions = regions
        self._mirrors = mirrors

    async def now(self) -> Now:
        """The readings for the history; does not count as use of the console."""
        flows = await self._looked_at(await self.every())
        found, _ = await self._regions.everywhere(lambda region: region.cluster.topics())
        topics = [topic for topics in found for topic in topics]
        latencies = {
            (topic.region, topic.name): self._regions.regions[topic.region].live.percentiles([topic.name])
            for topic in topics
        }
        read_at = {name: region.cluster.answered_at("topics") for name, region in self._regions.regions.items()}
        return Now(flows, topics, read_at, latencies)

    async def measured(self) -> list[FlowNow]:
        """The flows by the latest readings of their sources; waits only where there is none yet.

        Each call has the sources read again in the background, so readings are as old as the call before.
        """
        flows = await self.every()
        unread = any(one.connector is not None and not one.dangers for one in flows)
        return await self._looked_at(flows) if unread else flows

    async def _looked_at(self, flows: list[FlowNow]) -> list[FlowNow]:
        """The flows after the readings of their sources that are under way."""
        open_ = [region for region in self._regions.regions.values() if not self._regions.closed(region.name)]
        looks = [look for region in open_ for look in region.losses.looks()]
        if not looks:
            return flows
        # They find the age of the oldest waiting record in the background.
        await asyncio.gather(*map(asyncio.wrap_future, looks), return_exceptions=True)
        return await self.every()

    async def every(self) -> list[FlowNow]:
        """Every mirror's flows."""
        found = await asyncio.gather(*(self._mirrors.of(region) for region in self._regions.regions.values()))
        flows = []
        for mirrors in found:
            for mirror in mirrors:
                known = mirror.connectors or self._regions.regions[mirror.region].mirrors[mirror.name].last()
                sources = [connector for connector in known if connector.kind == SOURCE_CONNECTOR]
                flows += [self._flow(mirror, connector) for connector in sources]
                if not sources:
                    # A mirror that does not answer must be shown as well.
                    lost = [_lost(mirror, route) for route in self._regions.routes if _is_of(route, mirror)]
                    flows += [FlowNow(flow, None, {}, {}, time.monotonic()) for flow in lost]
        return flows

    def _flow(self, mirror: Mirror, connector: Connector) -> FlowNow:
        copies, target = copied_topics(mirror, connector), self._regions.regions.get(connector.writes)
        copied = list(copies.values())
        rates = target.live.rates(copied) if target and copied else None
        p50, p99 = self._mirrors.latency(mirror, [connector])
        # Of this flow only: another source of the same mirror may have its own problem.
        threats, lag = self._standing(mirror, connector)
        counted = "counted from its last known positions" if lag is not None else "not known"
        health, explanation = (
            explain(mirror.region, mirror.name, [connector])
            if mirror.answers
            else (mirror.health, f"{mirror.explanation}. Its lag is {counted}" if mirror.explanation else "")
        )
        dangers = threats.values()
        warnings = [line for danger in dangers for line in danger.warnings()]
        if warnings:
            health = "bad" if any(danger.gone or danger.made_again for danger in dangers) else "warning"
            explanation = ". ".join(filter(None, [explanation, *warnings]))
        flow = Flow(
            source=connector.reads,
            target=connector.writes,
            mirror=mirror.name,
            records_per_s=rates[0] if rates else None,
            bytes_per_s=rates[1] if rates else None,
            lag=lag,
            lag_s=max((danger.age_s for danger in dangers if danger.age_s is not None), default=None if lag else lag),
            loss_in_s=min((danger.loss_in_s for danger in dangers if danger.loss_in_s is not None), default=None),
            endangered=any(danger.endangered for danger in dangers),
            gone=sum(danger.gone for danger in dangers),
            latency_ms_p50=p50,
            latency_ms_p99=p99,
            state=judged([connector]).state if mirror.answers else mirror.state,
            health=health,
            explanation=explanation,
        )
        at = self._regions.regions[mirror.region].mirrors[mirror.name].read_at
        source = self._regions.regions.get(connector.reads)
        lost = source.losses.lost.of(key_of(mirror, connector)) if source else {}
        return FlowNow(flow, connector, copies, dict(threats), at, lost)

    def _standing(self, mirror: Mirror, connector: Connector) -> tuple[dict[str, TopicRisk], int | None]:
        """A flow's risk by topic, and its lag in records: both from the same reading where possible."""
        source, key = self._regions.regions.get(connector.reads), key_of(mirror, connector)
        if source is None:
            return {}, None
        hidden = bool(self._regions.closed(source.name))
        if hidden or self._regions.closed(mirror.region, mirror.name):
            source.losses.stands.forget(key)
            # Behind a closed link it may still copy, over another one that is open.
            ends = [(mirror.region, connector.reads), (mirror.region, connector.writes)]
            if not any(self._regions.reach.between(*pair) for pair in ends):
                return {}, None
        if hidden:
            found = source.losses.aged(key)
            return found, sum(danger.behind for danger in found.values()) or None
        reading = self._regions.regions[mirror.region].mirrors[mirror.name].reading(connector, answers=mirror.answers)
        found = source.losses.of(key, reading) if reading else {}
        return found, sum(danger.behind for danger in found.values()) if found else connector.lag


def _is_of(route: Route, mirror: Mirror) -> bool:
    return (route.region, route.name) == (mirror.region, mirror.name)


def _lost(mirror: Mirror, route: Route) -> Flow:
    """The flow of a mirror of which only the route is known."""
    return Flow(
        source=route.source, target=route.target, mirror=mirror.name, records_per_s=None, bytes_per_s=None, lag=None,
        latency_ms_p50=None, latency_ms_p99=None, state=mirror.state, health=mirror.health,
        explanation=mirror.explanation,
    )  # fmt: skip
