"""The topics of a console's regions: each beside its original and its copies, and changes of their settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from loosehanger.console.mirror_reader import MirrorReader
from loosehanger.console.models import Cell, Comparison, Row, Setting, Topic, Topics
from loosehanger.console.region_views import RegionView, RegionViews, UnknownError
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.lab.mirrors.mirror import Mirror as Route
from loosehanger.lab.mirrors.replication import NOT_SYNCHRONISED, synchronises

if TYPE_CHECKING:
    from loosehanger.lab.mirrors.lineage import Place

PER_PARTITION = "partitions"


class TopicReader:
    """Reads and changes the topics of a console's regions.

    Args:
        regions: the console's.
        mirrors: reads its mirrors.
    """

    def __init__(self, regions: RegionViews, mirrors: MirrorReader) -> None:
        self._regions = regions
        self._mirrors = mirrors

    async def every(self) -> Topics:
        """Every topic, with rates while the console is in use."""
        self._regions.look()
        found, problems = await self._regions.everywhere(self._topics_of)
        return Topics(topics=[topic for topics in found for topic in topics], problems=problems)

    async def names(self) -> list[str]:
        """The names of all topics, in order."""
        found, _ = await self._regions.everywhere(lambda region: region.cluster.topics())
        return sorted({topic.name for topics in found for topic in topics})

    async def _topics_of(self, region: RegionView) -> list[Topic]:
        mirrors = asyncio.gather(*(self._mirrors.of(other) for other in self._beside(region)))
        topics, found = await asyncio.gather(region.cluster.topics(), mirrors)
        writers = self._mirrors.writers(region, [mirror for of_region in found for mirror in of_region])
        result, every_rate = [], region.live.rates_by_topic()
        for topic in topics:
            rates = every_rate.get(topic.name, (0.0, 0.0)) if every_rate is not None else None
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

    async def named(self, name: str) -> tuple[list[Topic], list[str]]:
        """The topics of this name with their originals and copies.

        Returns:
            Topics with all their settings; and the regions that could not be read.

        Raises:
            UnknownError: no region that answers has a topic of this name.
        """
        self._regions.look()
        wanted = {place for family in self.families(name) for place in family}

        async def one(region: RegionView) -> list[Topic]:
            topics = [topic for topic in await self._topics_of(region) if (region.name, topic.name) in wanted]
            settings = [await region.cluster.settings(topic.name) for topic in topics]
            return [
                topic.model_copy(update={"settings": _marked(own, topic.mirror)})
                for topic, own in zip(topics, settings, strict=True)
            ]

        found, problems = await self._regions.everywhere(one)
        topics = [topic for topics in found for topic in topics]
        if not problems and not any(topic.name == name for topic in topics):
            raise UnknownError(f"there is no topic '{name}' in {', '.join(self._regions.regions)}")
        return topics, problems

    async def compare(self, name: str) -> list[Comparison]:
        """The topics of this name, each beside its copies.

        Raises:
            UnknownError: no region that answers has this topic.
        """
        return self.comparisons(name, *await self.named(name))

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
        for region in self._regions.regions:
            first = origin(self._regions.routes, Place(region, name))
            family = families.setdefault(first, [first, *copies(self._regions.routes, first)])
            if Place(region, name) not in family:
                family.append(Place(region, name))
        return [[place for place in family if place.region in self._regions.regions] for family in families.values()]

    def sources(self, name: str) -> list[str]:
        """The regions of this console; those where applications write a topic of this name come first."""
        from loosehanger.lab.mirrors.replication import selected_topics

        written = {mirror.source for mirror in self._regions.routes if selected_topics(mirror, [name])}
        written -= {mirror.target for mirror in self._regions.routes if mirror.policy == "identity"}
        return sorted(self._regions.regions, key=lambda region: region not in written)

    async def preview(
        self, region: str, topic: str, changes: Mapping[str, str | None]
    ) -> tuple[list[tuple[str, str, str]], list[str]]:
        """Looks up what a change of settings would replace.

        Args:
            region: a region of this console.
            topic: its name.
            changes: the new value of each setting; None for its default.

        Returns:
            Each setting with its value now and afterwards; and the effects on copies of the topic, as sentences.

        Raises:
            UnknownError: this console has no such region.
            WrongUseError: the topic does not exist.
            UnreachableError: no broker answers.
        """
        there = self._reachable(region)
        topics = await self._topics_of(there)
        found = next((one for one in topics if one.name == topic), None)
        if found is None:
            names = ", ".join(one.name for one in topics) or "none"
            raise WrongUseError(f"{region} has no topic '{topic}'; it has: {names}")
        known = {one.name: one for one in await there.cluster.settings(topic)}
        rows = [
            (name, _value(known.get(name)), "its default" if value is None else f"{value} (override)")
            for name, value in changes.items()
        ]
        effects = list(self._followed(region, topic, list(changes)))
        if found.mirror:
            effects.append(f"The mirror {found.mirror} writes this copy, and restores its source's values in it")
        return rows, effects

    def _reachable(self, region: str) -> RegionView:
        chosen = self._regions.region(region)
        if closed := self._regions.closed(region):
            raise UnreachableError(closed)
        return chosen

    async def change(self, region: str, topic: str, changes: Mapping[str, str | None]) -> str:
        """Changes settings of a topic; returns the outcome as a sentence.

        Raises:
            UnknownError: this console has no such region.
            WrongUseError: the topic does not exist, or Kafka refuses.
            UnreachableError: no broker answers.
        """
        await self._reachable(region).cluster.change(topic, changes)
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
        for route in self._regions.routes:
            if route.source == region and selected_topics(route, [topic]):
                views = self._regions.regions[route.region].mirrors if route.region in self._regions.regions else {}
                known = views[route.name].last() if route.name in views else []
                own = [one for one in known if one.name == route.connector]
                found.append(replace(route, synchronisation=own[0].synchronisation) if own else route)
        return found

    def _beside(self, region: RegionView) -> list[RegionView]:
        """The regions of this console whose mirrors write to a region, which need not be the region itself."""
        runs = {mirror.region for mirror in self._regions.routes if mirror.target == region.name} | {region.name}
        return [other for other in self._regions.regions.values() if other.name in runs]


def _value(setting: Setting | None) -> str:
    """A setting's value and where it comes from, for the page that asks before a change."""
    if setting is None:
        return "not known"
    value = "(kept secret)" if setting.value is None else setting.value or "empty"
    return f"{value} ({'override' if setting.source == 'topic' else 'default'})"


def _marked(settings: Sequence[Setting], mirror: str | None) -> list[Setting]:
    """Marks the settings that a mirror copied."""
    if mirror is None:
        return list(settings)
    return [
        _copied(setting.name, setting.value, setting.read_only, setting.documentation)
        if setting.source == "topic" and setting.name not in NOT_SYNCHRONISED
        else setting
        for setting in settings
    ]


@lru_cache(maxsize=4096)
def _copied(name: str, value: str | None, read_only: bool, documentation: str) -> Setting:
    """A setting that a mirror copied: the same for all copies, of which a region may have hundreds."""
    return Setting(name=name, value=value, source="mirror", read_only=read_only, documentation=documentation)


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
