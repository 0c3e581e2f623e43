"""The console's data and actions, for the API and the pages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from loosehanger.console.flow_reader import FlowReader
from loosehanger.console.live import RecordFilter
from loosehanger.console.mirror_reader import MirrorReader
from loosehanger.console.models import (
    Brokers,
    Flows,
    Group,
    Groups,
    Health,
    Messages,
    Mirrors,
    RegionState,
    Search,
    Topic,
)
from loosehanger.console.region_views import RegionView, RegionViews, UnknownError
from loosehanger.console.search import SearchRequest, first_page, positions
from loosehanger.console.settings import Settings
from loosehanger.console.topic_reader import TopicReader
from loosehanger.errors import UnreachableError


class Service(RegionViews):
    """The regions of a console, and what reads their mirrors, flows and topics.

    Args:
        settings: the console's.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.mirrors = MirrorReader(self, settings.lab_home)
        self.flows = FlowReader(self, self.mirrors)
        self.topics = TopicReader(self, self.mirrors)

    async def groups(self) -> Groups:
        """Every consumer group."""
        found, problems = await self.everywhere(lambda region: region.cluster.groups())
        return Groups(groups=[group for groups in found for group in groups], problems=problems)

    async def readers(self, topics: Sequence[Topic]) -> dict[tuple[str, str], list[Group]]:
        """The groups of consumers that have committed offsets in each of these topics, by region and topic."""
        found: dict[tuple[str, str], list[Group]] = {(topic.region, topic.name): [] for topic in topics}
        for group in (await self.groups()).groups:
            for name in sorted({row.topic for row in group.partitions}):
                if (group.region, name) in found:
                    rows = [row for row in group.partitions if row.topic == name]
                    lag = sum(row.lag or 0 for row in rows)
                    found[group.region, name].append(group.model_copy(update={"partitions": rows, "lag": lag}))
        return found

    async def brokers(self) -> Brokers:
        """Every node."""
        found, problems = await self.everywhere(lambda region: region.cluster.brokers())
        return Brokers(brokers=[broker for brokers in found for broker in brokers], problems=problems)

    async def overview(self) -> tuple[Flows, Mirrors]:
        """The regions, their mirrors and flows."""
        flows, mirrors = await asyncio.gather(self.all_flows(), self.mirrors.every())
        return flows, mirrors

    async def all_flows(self) -> Flows:
        """Every mirror's flows, and the regions at their ends."""
        self.look()
        flows = [one.flow for one in await self.flows.every()]
        states = await self.region_states()
        return Flows(flows=flows, regions=states, problems=[])

    async def region_states(self) -> list[RegionState]:
        """Every region at a glance."""
        return await asyncio.gather(*map(self._region_state, self.regions.values()))

    async def _region_state(self, region: RegionView) -> RegionState:
        rates = region.live.rates()

        def away(health: Health, explanation: str) -> RegionState:
            return RegionState(
                name=region.name, health=health, explanation=explanation, brokers=None, topics=None, partitions=None,
                records_per_s=None, bytes_per_s=None,
            )  # fmt: skip

        if closed := self.closed(region.name):
            region.cluster.drop()
            return away("unknown", closed)
        try:
            topics, brokers = await asyncio.gather(region.cluster.topics(), region.cluster.brokers())
        except UnreachableError as error:
            return away("bad", str(error))
        ill = [topic for topic in topics if topic.health != "good"]
        return RegionState(
            name=region.name,
            health="warning" if ill else "good",
            explanation=f"{ill[0].name}: {ill[0].explanation}" if ill else region.live.problem,
            brokers=len(brokers),
            topics=len(topics),
            partitions=sum(len(topic.partitions) for topic in topics),
            records_per_s=rates[0] if rates else None,
            bytes_per_s=rates[1] if rates else None,
        )

    async def messages(self, wanted: RecordFilter, most: int) -> Messages:
        """The latest records, the last arrival last."""
        self.look()
        found = [one for region in self.regions.values() for one in region.live.recent(wanted, most)]
        found.sort(key=lambda one: one.at_ms)
        problems = [region.live.problem for region in self.regions.values() if region.live.problem]
        return Messages(messages=[one.message for one in found[-most:]], problems=problems)

    async def search(self, region: str, asked: SearchRequest) -> Search:
        """Searches existing records.

        Args:
            region: a region; empty for all.
            asked: the search.

        Raises:
            UnknownError: this console has no such region, or none of its regions has the topic or the partition.
        """
        chosen = [self.region(region)] if region else list(self.regions.values())
        found, problems = await self.everywhere(lambda one: one.searcher.find(asked), chosen)
        missing = [part.missing for part in found if part.missing]
        if missing and len(missing) == len(chosen):
            raise UnknownError("; ".join(missing))
        problems += [line for part in found for line in part.skipped]
        spans = {place: span for part in found for place, span in part.spans.items()}
        records, spans, next_ms = first_page(
            (one for part in found for one in part.records), spans, asked.most, newest=asked.newest
        )
        reached = [ms for ms in (*(part.reached_ms for part in found), next_ms) if ms is not None]
        older, newer = positions(spans)
        return Search(
            # Their arrival was not observed.
            messages=[one.message.model_copy(update={"latency_ms": None}) for one in records],
            read=sum(part.read for part in found),
            reached=(max if asked.newest else min)(reached, default=None),
            older=older,
            newer=newer,
            notes=missing,
            problems=problems,
        )
