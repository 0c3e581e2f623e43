"""What the console knows and can do: the API and the pages both come here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from console.cluster import Cluster, UnreachableError
from console.live import Live, Wanted
from console.mirrors import SOURCE_CONNECTOR, Action, Ends, MirrorMaker, described
from console.models import (
    Brokers,
    Cell,
    Comparison,
    Connector,
    Flow,
    Flows,
    Groups,
    Messages,
    Mirror,
    Mirrors,
    RegionState,
    Row,
    Setting,
    Topic,
    Topics,
)
from console.settings import RegionSettings, Settings
from lab.errors import LabError, WrongUseError

T = TypeVar("T")
PER_PARTITION = "partitions"


class UnknownError(LabError):
    """There is no such thing here."""


class Region:
    """One region: its cluster, its reader, its mirrors."""

    def __init__(self, settings: RegionSettings, ends: Ends) -> None:
        self.name = settings.name
        self.cluster = Cluster(settings.name, settings.connection)
        self.live = Live(settings.name, settings.connection)
        self.mirrors = {access.mirror: MirrorMaker(settings.name, access, ends) for access in settings.mirrors}

    def close(self) -> None:
        """Ends its threads."""
        self.live.close()
        self.cluster.close()
        for mirror in self.mirrors.values():
            mirror.close()


class Service:
    """The regions of a console.

    Args:
        settings: which they are.
    """

    def __init__(self, settings: Settings) -> None:
        self.regions = {region.name: Region(region, self.ends) for region in settings.regions}

    def close(self) -> None:
        """Ends everything."""
        for region in self.regions.values():
            region.close()

    def warm(self) -> None:
        """Somebody is about to look: connects."""
        for region in self.regions.values():
            region.cluster.warm()

    def tidy(self) -> None:
        """Lets go of what nobody has used for a while."""
        for region in self.regions.values():
            region.cluster.close_if_idle()

    def named(self, alias: str) -> str:
        """The region of an alias, which has the same letters: north-america, northamerica; an unknown one as it is."""
        return next((name for name in self.regions if _plain(name) == _plain(alias)), alias)

    def ends(self, alias: str) -> Mapping[tuple[str, int], int]:
        """The end offsets of a region, by its alias, while it is being read."""
        name = self.named(alias)
        return self.regions[name].live.ends() if name in self.regions else {}

    def region(self, name: str) -> Region:
        """The region of this name.

        Raises:
            UnknownError: this console has none; another's is out of its reach.
        """
        if name not in self.regions:
            raise UnknownError(f"this console has no region '{name}'; it has: {', '.join(self.regions)}")
        return self.regions[name]

    async def topics(self) -> Topics:
        """Every topic, with rates while somebody looks."""
        found, problems = await self._everywhere(self._topics_of)
        return Topics(topics=[topic for topics in found for topic in topics], problems=problems)

    async def _topics_of(self, region: Region) -> list[Topic]:
        region.live.keep_going()
        topics, mirrors = await asyncio.gather(region.cluster.topics(), self._mirrors_of(region))
        writers = self._writers(mirrors)
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
        """A topic in each region that has it, with all its settings, and what could not be read.

        Raises:
            UnknownError: no region that answers has it.
        """

        async def one(region: Region) -> Topic | None:
            topic = next((topic for topic in await self._topics_of(region) if topic.name == name), None)
            if topic is None:
                return None
            settings = await region.cluster.settings(name)
            return topic.model_copy(update={"settings": _marked(settings, topic.mirror)})

        found, problems = await self._everywhere(one)
        topics = [topic for topic in found if topic is not None]
        if not topics and not problems:
            raise UnknownError(f"there is no topic '{name}' in {', '.join(self.regions)}")
        return topics, problems

    async def compare(self, name: str) -> Comparison:
        """A topic, region by region.

        Raises:
            UnknownError: no region that answers has it.
        """
        topics, problems = await self.topic(name)
        return compare(name, list(self.regions), topics, problems)

    async def change(self, region: str, topic: str, changes: Mapping[str, str | None]) -> str:
        """Changes settings of a topic; returns what was done, in words.

        Raises:
            UnknownError: no such region here.
            WrongUseError: no such topic, or Kafka refuses.
            UnreachableError: no broker answers.
        """
        await self.region(region).cluster.change(topic, changes)
        said = ", ".join(f"{n} has its default again" if v is None else f"{n}={v}" for n, v in changes.items())
        return f"{region}: {topic}: {said}"

    async def groups(self) -> Groups:
        """Every consumer group."""
        found, problems = await self._everywhere(lambda region: region.cluster.groups())
        return Groups(groups=[group for groups in found for group in groups], problems=problems)

    async def brokers(self) -> Brokers:
        """Every node."""
        found, problems = await self._everywhere(lambda region: region.cluster.brokers())
        return Brokers(brokers=[broker for brokers in found for broker in brokers], problems=problems)

    async def mirrors(self) -> Mirrors:
        """Every mirror."""
        found = await asyncio.gather(*(self._mirrors_of(region) for region in self.regions.values()))
        mirrors = [mirror for mirrors in found for mirror in mirrors]
        return Mirrors(mirrors=mirrors, problems=[mirror.explanation for mirror in mirrors if not mirror.answers])

    async def _mirrors_of(self, region: Region) -> list[Mirror]:
        mirrors = await asyncio.gather(*(mirror.state() for mirror in region.mirrors.values()))
        if mirrors:
            region.live.keep_going()
        timed = []
        for mirror in mirrors:
            topics = [t for connector in mirror.connectors for t in _copies(region.name, mirror, connector)]
            p50, p99 = region.live.percentiles(topics) if topics else (None, None)
            timed.append(mirror.model_copy(update={"latency_ms_p50": p50, "latency_ms_p99": p99}))
        return timed

    async def act(self, region: str, mirror: str, connector: str, action: Action) -> str:
        """Pauses, resumes or restarts a connector; returns what was done, in words.

        Raises:
            UnknownError: no such region or mirror here.
            WrongUseError: no such connector.
            UnreachableError: Connect does not answer.
        """
        mirrors = self.region(region).mirrors
        if mirror not in mirrors:
            raise UnknownError(f"{region} has no mirror '{mirror}'; it has: {', '.join(mirrors) or 'none'}")
        await mirrors[mirror].act(connector, action)
        return f"{region}: {connector} was told to {action}"

    async def flows(self) -> Flows:
        """What every mirror carries, and the regions at its ends."""
        for region in self.regions.values():
            region.live.keep_going()
        found = await asyncio.gather(*(self._mirrors_of(region) for region in self.regions.values()))
        flows = []
        for region, mirrors in zip(self.regions.values(), found, strict=True):
            for mirror in mirrors:
                sources = [connector for connector in mirror.connectors if connector.kind == SOURCE_CONNECTOR]
                # A mirror that does not answer is shown as well: it is what somebody will look for.
                flows += [self._flow(region, mirror, connector) for connector in sources or (None,)]
        states, problems = await self._everywhere(self._region_state)
        return Flows(flows=flows, regions=states, problems=problems)

    def _flow(self, region: Region, mirror: Mirror, connector: Connector | None) -> Flow:
        copied = _copies(region.name, mirror, connector) if connector else []
        rates = region.live.rates(copied) if copied else None
        return Flow(
            source=self.named(connector.source) if connector else "?",
            target=region.name,
            mirror=mirror.name,
            records_per_s=rates[0] if rates else None,
            bytes_per_s=rates[1] if rates else None,
            lag=connector.lag if connector else None,
            latency_ms_p50=mirror.latency_ms_p50,
            latency_ms_p99=mirror.latency_ms_p99,
            health=mirror.health,
            explanation=mirror.explanation,
        )

    async def _region_state(self, region: Region) -> RegionState:
        rates = region.live.rates()
        try:
            topics, brokers = await asyncio.gather(region.cluster.topics(), region.cluster.brokers())
        except UnreachableError as error:
            return RegionState(
                name=region.name, health="bad", explanation=str(error), brokers=None, topics=None, partitions=None,
                records_per_s=None, bytes_per_s=None,
            )  # fmt: skip
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

    async def messages(self, wanted: Wanted, most: int) -> Messages:
        """The latest records, those that came last at the end."""
        for region in self.regions.values():
            region.live.keep_going()
        found = [one for region in self.regions.values() for one in region.live.recent(wanted, most)]
        found.sort(key=lambda one: one.at_ms)
        problems = [region.live.problem for region in self.regions.values() if region.live.problem]
        return Messages(messages=[one.message for one in found[-most:]], problems=problems)

    async def _everywhere(self, ask: Callable[[Region], Awaitable[T]]) -> tuple[list[T], list[str]]:
        """Asks all regions at once: the answers, and why others gave none."""

        async def one(region: Region) -> T | UnreachableError:
            try:
                return await ask(region)
            except UnreachableError as error:
                return error

        answers = await asyncio.gather(*(one(region) for region in self.regions.values()))
        good = [answer for answer in answers if not isinstance(answer, UnreachableError)]
        return good, [str(answer) for answer in answers if isinstance(answer, UnreachableError)]

    @staticmethod
    def _writers(mirrors: Sequence[Mirror]) -> list[tuple[str, Callable[[str], bool]]]:
        """For each mirror, whether it writes a topic here."""
        writers: list[tuple[str, Callable[[str], bool]]] = []
        for mirror in mirrors:
            for connector in mirror.connectors:
                if connector.kind == SOURCE_CONNECTOR:
                    names = set(_copies(mirror.region, mirror, connector))
                    writers.append((mirror.name, names.__contains__))
        return writers


def _copies(region: str, mirror: Mirror, connector: Connector) -> list[str]:
    """The names, in the target, of the topics that a connector has copied."""
    from pipeline.mirrors import selected_topics, target_topic

    if connector.kind != SOURCE_CONNECTOR:
        return []
    rules = described(region, mirror.name, connector)
    try:
        selected = selected_topics(rules, {position.topic for position in connector.positions})
    except WrongUseError:
        return []
    return [target_topic(rules, topic) for topic in selected]


def _marked(settings: Sequence[Setting], mirror: str | None) -> list[Setting]:
    """The settings, with those that a mirror copied marked."""
    from pipeline.configurations import EXCLUDED

    if mirror is None:
        return list(settings)
    return [
        setting.model_copy(update={"source": "mirror"})
        if setting.source == "topic" and setting.name not in EXCLUDED
        else setting
        for setting in settings
    ]


def compare(name: str, regions: Sequence[str], topics: Sequence[Topic], problems: Sequence[str]) -> Comparison:
    """Puts the same topic of several regions side by side."""
    by_region = {topic.region: topic for topic in topics}
    there = [by_region.get(region) for region in regions]
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
        rows.append(_row(setting, cells, there))
    return Comparison(topic=name, regions=list(regions), rows=rows, problems=list(problems))


def _row(name: str, cells: list[Cell], there: Sequence[Topic | None] | None) -> Row:
    values = {cell.value for cell, topic in zip(cells, there, strict=True) if topic} if there is not None else set()
    return Row(name=name, cells=cells, differs=len(values) > 1)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
