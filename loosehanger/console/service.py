"""The console's data and actions, for the API and the pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from loosehanger.console.cluster import ClusterView
from loosehanger.console.live import LINGER_S, Live, RecordFilter
from loosehanger.console.manifests import MirrorManifests
from loosehanger.console.mirrors import SOURCE_CONNECTOR, Action, MirrorMakerView, Offsets, described, explain, judged
from loosehanger.console.models import (
    Brokers,
    Cell,
    Comparison,
    Connector,
    Flow,
    Flows,
    Group,
    Groups,
    Health,
    Messages,
    Mirror,
    Mirrors,
    RegionState,
    Row,
    Search,
    Setting,
    Topic,
    Topics,
)
from loosehanger.console.reach import Reach
from loosehanger.console.retention_risk import Losses
from loosehanger.console.rights import Rights
from loosehanger.console.search import Searcher, SearchRequest, first_page, positions
from loosehanger.console.settings import RegionSettings, Settings
from loosehanger.console.stalls import Stalls, key_of
from loosehanger.errors import LabError, UnreachableError, WrongUseError
from loosehanger.lab.mirrors.mirror import Mirror as Route
from loosehanger.lab.mirrors.replication import NOT_SYNCHRONISED, synchronises

if TYPE_CHECKING:
    from loosehanger.kafka.retention_risk import TopicRisk
    from loosehanger.kafka.stalled import Stands
    from loosehanger.lab.mirrors.lineage import Place

T = TypeVar("T")
PER_PARTITION = "partitions"


class UnknownError(LabError):
    """The requested object does not exist here."""


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


class RegionView:
    """One region: its cluster, its reader, its mirrors."""

    def __init__(
        self,
        settings: RegionSettings,
        offsets: Offsets,
        named: Callable[[str], str],
        closed: Callable[[], str],
        home: Path | None,
        mirrors_folder: Path | None,
    ) -> None:
        manifests = MirrorManifests(home, settings.name, mirrors_folder)
        self.name = settings.name
        self.cluster = ClusterView(settings.name, settings.connection)
        self.live = Live(settings.name, settings.connection, closed)
        self.losses = Losses(settings.connection)
        self.searcher = Searcher(settings.name, settings.connection)
        self.mirrors = {
            access.mirror: MirrorMakerView(
                settings.name, access, offsets, named, partial(manifests.life, access.mirror), home
            )
            for access in settings.mirrors
        }

    def close(self) -> None:
        """Stops its threads."""
        self.live.close()
        self.losses.close()
        self.searcher.close()
        self.cluster.close()
        for mirror in self.mirrors.values():
            mirror.close()


class Service:
    """The regions of a console.

    Args:
        settings: the console's.
    """

    def __init__(self, settings: Settings) -> None:
        self.routes = settings.routes
        self._aliases = {mirror.source_alias: mirror.source for mirror in self.routes}
        self._aliases |= {mirror.target_alias: mirror.target for mirror in self.routes}
        self._home = settings.lab_home
        self._mirrors_folder = settings.mirrors_folder
        self.reach = Reach(self._home)
        self._settings = {region.name: region for region in settings.regions}
        self.regions = {region.name: self.region_of(region) for region in settings.regions}
        self._looked = -LINGER_S
        self._stalls = Stalls(settings.lab_home, self._stands)
        self._rights = Rights(lambda name: self.regions[name].cluster if name in self.regions else None)

    def region_of(self, settings: RegionSettings) -> RegionView:
        """Creates the view of a region."""
        closed = partial(self.closed, settings.name)
        return RegionView(settings, self.offsets, self.named, closed, self._home, self._mirrors_folder)

    def closed(self, region: str, mirror: str = "") -> str:
        """The closed link that makes a region, or a mirror's workers there, unreachable; empty where it is reachable.

        Args:
            region: a region of this console.
            mirror: a mirror that runs there; empty for the region's cluster.
        """
        given = self._settings[region]
        urls = [url for access in given.mirrors if access.mirror == mirror for url in access.urls]
        state = self.reach.closed(urls if mirror else given.connection.bootstrap_servers)
        named = f"{region}'s mirror {mirror}" if mirror else region
        return f"{named} is not reachable from here: the link is {state}" if state else ""

    def close(self) -> None:
        """Closes all regions."""
        for region in self.regions.values():
            region.close()

    def warm(self) -> None:
        """Connects to the regions, ahead of the first page."""
        for region in self.regions.values():
            if not self.closed(region.name):
                region.cluster.warm()

    def look(self) -> None:
        """Starts the regions' readers for a viewer, and keeps them running for a while."""
        self._looked = time.monotonic()
        self.glance(LINGER_S)

    def glance(self, seconds: float) -> None:
        """Keeps the regions' readers running for at least so many seconds."""
        for region in self.regions.values():
            region.live.keep_going(seconds)

    @property
    def looked_at(self) -> bool:
        """Whether the console is in use, or was a moment ago."""
        recently = time.monotonic() - self._looked < LINGER_S
        return recently or any(region.live.watched for region in self.regions.values())

    def tidy(self) -> None:
        """Closes clients that were not used for a while."""
        for region in self.regions.values():
            region.cluster.close_if_idle()
            region.losses.close_if_idle()

    def named(self, alias: str) -> str:
        """The region of an alias; the alias itself if no mirror of the lab has it."""
        return self._aliases.get(alias, alias)

    def offsets(self, region: str) -> Mapping[tuple[str, int], tuple[int, int]]:
        """First and end offsets of a region while it is read; empty for a region that this console does not see."""
        return self.regions[region].live.offsets() if region in self.regions else {}

    def _stands(self, region: str) -> Stands | None:
        return self.regions[region].losses.stands if region in self.regions else None

    def region(self, name: str) -> RegionView:
        """The region of this name.

        Raises:
            UnknownError: this console has no such region.
        """
        if name not in self.regions:
            raise UnknownError(f"this console has no region '{name}'; it has: {', '.join(self.regions)}")
        return self.regions[name]

    async def topics(self) -> Topics:
        """Every topic, with rates while the console is in use."""
        self.look()
        found, problems = await self.everywhere(self._topics_of)
        return Topics(topics=[topic for topics in found for topic in topics], problems=problems)

    async def _topics_of(self, region: RegionView) -> list[Topic]:
        mirrors = asyncio.gather(*(self._mirrors_of(other) for other in self._beside(region)))
        topics, found = await asyncio.gather(region.cluster.topics(), mirrors)
        writers = self._writers(region, [mirror for of_region in found for mirror in of_region])
        result = []
        for topic in topics:
            rates = region.live.rates([topic.name])
            mirror = next((name for name, writes in writers if writes(topic.name)), None)
            result.append(
                topic.model_copy(
                    update={
                        "records_per_s": rates[0] if rates else None,
                        "bytes_per_s": rates[1] if rates else None,
                        "mirror": mirror,
                        "settings": _marked(topic.settings, mirror),
                    }
                )
            )
        return result

    async def topic(self, name: str) -> tuple[list[Topic], list[str]]:
        """The topics of this name with their originals and copies.

        Returns:
            Topics with all their settings; and the regions that could not be read.

        Raises:
            UnknownError: no region that answers has a topic of this name.
        """
        self.look()
        wanted = {place for family in self.families(name) for place in family}

        async def one(region: RegionView) -> list[Topic]:
            topics = [topic for topic in await self._topics_of(region) if (region.name, topic.name) in wanted]
            settings = [await region.cluster.settings(topic.name) for topic in topics]
            return [
                topic.model_copy(update={"settings": _marked(own, topic.mirror)})
                for topic, own in zip(topics, settings, strict=True)
            ]

        found, problems = await self.everywhere(one)
        topics = [topic for topics in found for topic in topics]
        if not problems and not any(topic.name == name for topic in topics):
            raise UnknownError(f"there is no topic '{name}' in {', '.join(self.regions)}")
        return topics, problems

    async def compare(self, name: str) -> list[Comparison]:
        """The topics of this name, each beside its copies.

        Raises:
            UnknownError: no region that answers has this topic.
        """
        return self.comparisons(name, *await self.topic(name))

    def comparisons(self, name: str, topics: Sequence[Topic], problems: Sequence[str]) -> list[Comparison]:
        """The topics of a name, each beside its copies, from the result of ``topic``."""
        by_place = {(topic.region, topic.name): topic for topic in topics}
        return [
            compare(family, [by_place.get(place) for place in family], problems, self.copying(*family[0]))
            for family in self.families(name)
            if any(place in by_place for place in family)
        ]

    def families(self, name: str) -> list[list[Place]]:
        """Each topic that the name may mean, as its original and its copies."""
        from loosehanger.lab.mirrors.lineage import Place, copies, origin

        families: dict[Place, list[Place]] = {}
        for region in self.regions:
            first = origin(self.routes, Place(region, name))
            family = families.setdefault(first, [first, *copies(self.routes, first)])
            if Place(region, name) not in family:
                family.append(Place(region, name))
        return [[place for place in family if place.region in self.regions] for family in families.values()]

    def sources(self, name: str) -> list[str]:
        """The regions of this console; those where applications write a topic of this name come first."""
        from loosehanger.lab.mirrors.replication import selected_topics

        written = {mirror.source for mirror in self.routes if selected_topics(mirror, [name])}
        written -= {mirror.target for mirror in self.routes if mirror.policy == "identity"}
        return sorted(self.regions, key=lambda region: region not in written)

    async def change(self, region: str, topic: str, changes: Mapping[str, str | None]) -> str:
        """Changes settings of a topic; returns the outcome as a sentence.

        Raises:
            UnknownError: this console has no such region.
            WrongUseError: the topic does not exist, or Kafka refuses.
            UnreachableError: no broker answers.
        """
        chosen = self.region(region)
        if closed := self.closed(region):
            raise UnreachableError(closed)
        await chosen.cluster.change(topic, changes)
        outcome = ", ".join(f"{n} has its default again" if v is None else f"{n}={v}" for n, v in changes.items())
        return ". ".join([f"{region}: {topic}: {outcome}", *self._followed(region, topic, list(changes))])

    def _followed(self, region: str, topic: str, names: Sequence[str]) -> Iterator[str]:
        """The effect of a change on the copies of a topic."""
        mirrors = self.copying(region, topic)
        kept = {mirror.name: [name for name in names if not synchronises(mirror, name)] for mirror in mirrors}
        if any(len(left) < len(names) for left in kept.values()):
            yield "Mirrors of this topic follow within seconds"
        if kept and all(left == list(names) for left in kept.values()):
            yield f"No mirror copies {', '.join(names)}: set it in each region that must have it"
        else:
            yield from (f"{mirror} does not copy {', '.join(left)}" for mirror, left in kept.items() if left)

    def copying(self, region: str, topic: str) -> list[Route]:
        """The mirrors that copy a topic from a region, with the settings that they synchronise where that is known."""
        from loosehanger.lab.mirrors.replication import selected_topics

        found = []
        for route in self.routes:
            if route.source == region and selected_topics(route, [topic]):
                views = self.regions[route.region].mirrors if route.region in self.regions else {}
                known = views[route.name].last() if route.name in views else []
                own = [one for one in known if one.name == route.connector]
                found.append(replace(route, synchronisation=own[0].synchronisation) if own else route)
        return found

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

    async def mirrors(self) -> Mirrors:
        """Every mirror."""
        self.look()
        found = await asyncio.gather(*(self._mirrors_of(region) for region in self.regions.values()))
        mirrors = [mirror for mirrors in found for mirror in mirrors]
        away = [mirror.explanation for mirror in mirrors if not mirror.answers and mirror.explanation]
        return Mirrors(mirrors=mirrors, problems=away)

    async def _mirrors_of(self, region: RegionView) -> list[Mirror]:
        mirrors = await asyncio.gather(*(self._mirror(region, mirror) for mirror in region.mirrors.values()))
        timed = []
        for mirror in mirrors:
            p50, p99 = self._latency(mirror, mirror.connectors)
            timed.append(mirror.model_copy(update={"latency_ms_p50": p50, "latency_ms_p99": p99}))
        return [await self._rights.judged(await self._stalls.judged(mirror)) for mirror in timed]

    async def _mirror(self, region: RegionView, mirror: MirrorMakerView) -> Mirror:
        closed = self.closed(region.name, mirror.name)
        if not closed:
            return await mirror.state()
        mirror.forget()
        return Mirror(
            region=region.name, name=mirror.name, answers=False, connectors=[], latency_ms_p50=None,
            latency_ms_p99=None, health="unknown", explanation=closed,
        )  # fmt: skip

    def _latency(self, mirror: Mirror, connectors: Sequence[Connector]) -> tuple[int | None, int | None]:
        """Median and 99th percentile of these connectors' latency, where this console sees their target."""
        target = self.regions.get(connectors[0].writes) if connectors else None
        topics = [topic for connector in connectors for topic in _copies(mirror, connector)]
        if target is None or not topics:
            return None, None
        return target.live.percentiles(topics)

    def _beside(self, region: RegionView) -> list[RegionView]:
        """The regions of this console whose mirrors write to a region, which need not be the region itself."""
        runs = {mirror.region for mirror in self.routes if mirror.target == region.name} | {region.name}
        return [other for other in self.regions.values() if other.name in runs]

    async def act(self, region: str, mirror: str, connector: str, action: Action) -> str:
        """Pauses, resumes or restarts a connector; returns the outcome as a sentence.

        Raises:
            UnknownError: this console has no such region or mirror.
            WrongUseError: the mirror has no such connector.
            UnreachableError: Connect does not answer.
        """
        mirrors = self.region(region).mirrors
        if mirror not in mirrors:
            raise UnknownError(f"{region} has no mirror '{mirror}'; it has: {', '.join(mirrors) or 'none'}")
        if closed := self.closed(region, mirror):
            raise UnreachableError(closed)
        await mirrors[mirror].act(connector, action)
        return f"{region}: requested to {action} {connector}"

    async def flows(self) -> Flows:
        """Every mirror's flows, and the regions at their ends."""
        self.look()
        flows = [one.flow for one in await self._flows()]
        states = await self.region_states()
        return Flows(flows=flows, regions=states, problems=[])

    async def now(self) -> Now:
        """The readings for the history; does not count as use of the console."""
        flows = await self._looked_at(await self._flows())
        found, _ = await self.everywhere(lambda region: region.cluster.topics())
        topics = [topic for topics in found for topic in topics]
        latencies = {
            (topic.region, topic.name): self.regions[topic.region].live.percentiles([topic.name]) for topic in topics
        }
        read_at = {name: region.cluster.answered_at("topics") for name, region in self.regions.items()}
        return Now(flows, topics, read_at, latencies)

    async def measured_flows(self) -> list[FlowNow]:
        """The flows by the latest readings of their sources; waits only where there is none yet.

        Each call has the sources read again in the background, so readings are as old as the call before.
        """
        flows = await self._flows()
        unread = any(one.connector is not None and not one.dangers for one in flows)
        return await self._looked_at(flows) if unread else flows

    async def _looked_at(self, flows: list[FlowNow]) -> list[FlowNow]:
        """The flows after the readings of their sources that are under way."""
        open_ = [region for region in self.regions.values() if not self.closed(region.name)]
        looks = [look for region in open_ for look in region.losses.looks()]
        if not looks:
            return flows
        # They find the age of the oldest waiting record in the background.
        await asyncio.gather(*map(asyncio.wrap_future, looks), return_exceptions=True)
        return await self._flows()

    async def _flows(self) -> list[FlowNow]:
        found = await asyncio.gather(*(self._mirrors_of(region) for region in self.regions.values()))
        flows = []
        for mirrors in found:
            for mirror in mirrors:
                known = mirror.connectors or self.regions[mirror.region].mirrors[mirror.name].last()
                sources = [connector for connector in known if connector.kind == SOURCE_CONNECTOR]
                flows += [self._flow(mirror, connector) for connector in sources]
                if not sources:
                    # A mirror that does not answer must be shown as well.
                    lost = [_lost(mirror, route) for route in self.routes if _is_of(route, mirror)]
                    flows += [FlowNow(flow, None, {}, {}, time.monotonic()) for flow in lost]
        return flows

    def _flow(self, mirror: Mirror, connector: Connector) -> FlowNow:
        copies, target = _copied(mirror, connector), self.regions.get(connector.writes)
        copied = list(copies.values())
        rates = target.live.rates(copied) if target and copied else None
        p50, p99 = self._latency(mirror, [connector])
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
        at = self.regions[mirror.region].mirrors[mirror.name].read_at
        source = self.regions.get(connector.reads)
        lost = source.losses.lost.of(key_of(mirror, connector)) if source else {}
        return FlowNow(flow, connector, copies, dict(threats), at, lost)

    def _standing(self, mirror: Mirror, connector: Connector) -> tuple[dict[str, TopicRisk], int | None]:
        """A flow's risk by topic, and its lag in records: both from the same reading where possible."""
        source, key = self.regions.get(connector.reads), key_of(mirror, connector)
        if source is None:
            return {}, None
        hidden = bool(self.closed(source.name))
        if hidden or self.closed(mirror.region, mirror.name):
            source.losses.stands.forget(key)
            # Behind a closed link it may still copy, over another one that is open.
            ends = [(mirror.region, connector.reads), (mirror.region, connector.writes)]
            if not any(self.reach.between(*pair) for pair in ends):
                return {}, None
        if hidden:
            found = source.losses.aged(key)
            return found, sum(danger.behind for danger in found.values()) or None
        reading = self.regions[mirror.region].mirrors[mirror.name].reading(connector, answers=mirror.answers)
        found = source.losses.of(key, reading) if reading else {}
        return found, sum(danger.behind for danger in found.values()) if found else connector.lag

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

    async def overview(self) -> tuple[Flows, Mirrors]:
        """The regions, their mirrors and flows."""
        flows, mirrors = await asyncio.gather(self.flows(), self.mirrors())
        return flows, mirrors

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

    async def everywhere(
        self, ask: Callable[[RegionView], Awaitable[T]], regions: Sequence[RegionView] | None = None
    ) -> tuple[list[T], list[str]]:
        """Calls ``ask`` for all or the given regions at once; returns the answers, and the reasons of those without."""

        async def one(region: RegionView) -> T | UnreachableError:
            if closed := self.closed(region.name):
                region.cluster.drop()
                return UnreachableError(closed)
            try:
                return await ask(region)
            except UnreachableError as error:
                return error

        asked = self.regions.values() if regions is None else regions
        answers = await asyncio.gather(*map(one, asked))
        good = [answer for answer in answers if not isinstance(answer, UnreachableError)]
        return good, [str(answer) for answer in answers if isinstance(answer, UnreachableError)]

    def _writers(self, region: RegionView, mirrors: Sequence[Mirror]) -> list[tuple[str, Callable[[str], bool]]]:
        """Each mirror that writes to a region, with a predicate for the topics that it writes there."""
        found: list[tuple[str, Callable[[str], bool]]] = []
        for mirror in mirrors:
            for connector in mirror.connectors:
                if connector.kind == SOURCE_CONNECTOR and connector.writes == region.name:
                    names = set(_copies(mirror, connector))
                    found.append((mirror.name, names.__contains__))
        asked = {(mirror.region, mirror.name) for mirror in mirrors if mirror.answers}
        for route in self.routes:
            # For a mirror that does not answer, its manifest decides.
            if route.target == region.name and (route.region, route.name) not in asked:
                found.append((route.name, partial(_may_write, route)))
        return found


def _may_write(route: Route, topic: str) -> bool:
    from loosehanger.lab.mirrors.lineage import Place, writers

    return bool(writers([route], Place(route.target, topic)))


def _is_of(route: Route, mirror: Mirror) -> bool:
    return (route.region, route.name) == (mirror.region, mirror.name)


def _lost(mirror: Mirror, route: Route) -> Flow:
    """The flow of a mirror of which only the route is known."""
    return Flow(
        source=route.source, target=route.target, mirror=mirror.name, records_per_s=None, bytes_per_s=None, lag=None,
        latency_ms_p50=None, latency_ms_p99=None, state=mirror.state, health=mirror.health,
        explanation=mirror.explanation,
    )  # fmt: skip


def _copies(mirror: Mirror, connector: Connector) -> list[str]:
    """The target names of the topics that a connector has copied."""
    return list(_copied(mirror, connector).values())


def _copied(mirror: Mirror, connector: Connector) -> dict[str, str]:
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


def _marked(settings: Sequence[Setting], mirror: str | None) -> list[Setting]:
    """Marks the settings that a mirror copied."""
    if mirror is None:
        return list(settings)
    return [
        setting.model_copy(update={"source": "mirror"})
        if setting.source == "topic" and setting.name not in NOT_SYNCHRONISED
        else setting
        for setting in settings
    ]


def compare(
    places: Sequence[Place],
    there: Sequence[Topic | None],
    problems: Sequence[str],
    mirrors: Sequence[Route] = (),
) -> Comparison:
    """Puts a topic and its copies side by side.

    Args:
        places: region and name of each, the original first.
        there: each topic; None where it is missing.
        problems: the regions that could not be read.
        mirrors: the mirrors that copy the original.
    """
    rows = [
        _row(PER_PARTITION, [Cell(value=str(len(topic.partitions)) if topic else None) for topic in there], there),
        _row("copied by", [Cell(value=(topic.mirror or "original") if topic else None) for topic in there], None),
    ]
    settings = [{setting.name: setting for setting in topic.settings} if topic else {} for topic in there]
    for setting in sorted({key for found in settings for key in found}):
        cells = [
            Cell(value=found[setting].value, source=found[setting].source) if setting in found else Cell(value=None)
            for found in settings
        ]
        copied = not mirrors or any(synchronises(mirror, setting) for mirror in mirrors)
        rows.append(_row(setting, cells, there).model_copy(update={"copied": copied}))
    return Comparison(
        topic=places[0].topic,
        regions=[place.region for place in places],
        names=[place.topic for place in places],
        rows=rows,
        problems=list(problems),
    )


def _row(name: str, cells: list[Cell], there: Sequence[Topic | None] | None) -> Row:
    values = {cell.value for cell, topic in zip(cells, there, strict=True) if topic} if there is not None else set()
    return Row(name=name, cells=cells, differs=len(values) > 1)
