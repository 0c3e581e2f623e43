"""The regions of a console: the clients of each, which of them are reachable, and questions to all of them at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from loosehanger.console.cluster import ClusterView
from loosehanger.console.live import LINGER_S, Live
from loosehanger.console.manifests import MirrorManifests
from loosehanger.console.mirrors import MirrorMakerView, Offsets
from loosehanger.console.reach import Reach
from loosehanger.console.retention_risk import Losses
from loosehanger.console.search import Searcher
from loosehanger.console.settings import RegionSettings, Settings
from loosehanger.errors import LabError, UnreachableError

if TYPE_CHECKING:
    from loosehanger.kafka.stalled import Stands

T = TypeVar("T")


class UnknownError(LabError):
    """The requested object does not exist here."""


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
                settings.name, access, offsets, named, partial(manifests.wanted, access.mirror), home
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


class RegionViews:
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
            region.searcher.close_if_idle()

    def named(self, alias: str) -> str:
        """The region of an alias; the alias itself if no mirror of the lab uses it."""
        return self._aliases.get(alias, alias)

    def offsets(self, region: str) -> Mapping[tuple[str, int], tuple[int, int]]:
        """First and end offsets of a region while it is read; empty for a region that this console does not see."""
        return self.regions[region].live.offsets() if region in self.regions else {}

    def stands(self, region: str) -> Stands | None:
        """The positions at which a region's topics stand still; None for a region that this console does not see."""
        return self.regions[region].losses.stands if region in self.regions else None

    def region(self, name: str) -> RegionView:
        """The region of this name.

        Raises:
            UnknownError: this console has no such region.
        """
        if name not in self.regions:
            raise UnknownError(f"this console has no region '{name}'; it has: {', '.join(self.regions)}")
        return self.regions[name]

    async def everywhere(
        self, ask: Callable[[RegionView], Awaitable[T]], regions: Sequence[RegionView] | None = None
    ) -> tuple[list[T], list[str]]:
        """Calls ``ask`` for all or the given regions at once; returns the answers, and the reasons of those without."""

        async def one(region: RegionView) -> T | UnreachableError:
            if closed := self.closed(region.name):
                region.cluster.drop()
                region.searcher.drop()
                return UnreachableError(closed)
            try:
                return await ask(region)
            except UnreachableError as error:
                return error

        asked = self.regions.values() if regions is None else regions
        answers = await asyncio.gather(*map(one, asked))
        good = [answer for answer in answers if not isinstance(answer, UnreachableError)]
        return good, [str(answer) for answer in answers if isinstance(answer, UnreachableError)]
