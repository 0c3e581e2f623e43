"""What a console makes of mirrors that put a prefix before names, go both ways, or run beside their sources."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from loosehanger.console.models import Connector, Mirror, Position, Task
from loosehanger.console.settings import ConnectAccess, RegionSettings, Settings
from loosehanger.lab.mirrors.mirror import Mirror as Route

from ..consoles import NOWHERE, MadeUpMirror, MadeUpService, route, running, settings

REGIONS = ("europe", "north-america", "south-america")
BOTH_WAYS = tuple(route(f"mm2-{target}", target, source, target) for source, target in permutations(REGIONS, 2))
TO_EUROPE = tuple(route(f"mm2-{source}", source, source, "europe") for source in REGIONS[1:])


class Told(MadeUpMirror):
    """A mirror with the connectors of some routes, all of which have copied orders; or one that does not answer."""

    routes: tuple[Route, ...] = ()
    paused: tuple[str, ...] = ()
    answers = True

    @staticmethod
    def of(service: MadeUpService, region: str, name: str) -> Told:
        """The one of this name."""
        found = service.regions[region].mirrors[name]
        assert isinstance(found, Told)
        return found

    async def state(self) -> Mirror:
        """As its routes say."""
        connectors = [
            Connector(
                name=one.connector, kind="MirrorSourceConnector", worker="", source=one.source_alias,
                state="PAUSED" if one.source in self.paused else "RUNNING",
                tasks=[Task(number=0, state="RUNNING", worker="")], target=one.target_alias, reads=one.source,
                writes=one.target, topics=one.topics, policy="default", records_per_s=1, lag=2,
                positions=[Position(topic="LH.ORDERS", partition=0, offset=3)],
            )
            for one in self.routes
        ]  # fmt: skip
        return Mirror(
            region=self.region, name=self.name, answers=self.answers, connectors=connectors if self.answers else [],
            latency_ms_p50=None, latency_ms_p99=None, health="good" if self.answers else "bad", explanation="",
        )  # fmt: skip


def given(routes: tuple[Route, ...], *regions: str) -> Settings:
    """A console of these regions, which may ask the mirrors that run in them."""
    seen = tuple(
        RegionSettings(
            name,
            NOWHERE,
            tuple(
                ConnectAccess(mirror, ("https://127.0.0.1:1",))
                for mirror in {r.name for r in routes if r.region == name}
            ),
        )
        for name in regions
    )
    return settings(*regions, regions=seen, routes=routes)


def fill(service: Any, routes: tuple[Route, ...]) -> None:
    """Every region has the topics that it must have, and its mirrors report what they copy."""
    for region in service.regions.values():
        prefixed = [f"{one.source_alias}.LH.ORDERS" for one in routes if one.target == region.name]
        own = ["LH.ORDERS"] if any(one.source == region.name for one in routes) else []
        region.cluster.names = (*own, *prefixed)
        for name in region.mirrors:
            region.mirrors[name] = Told(region.name, ConnectAccess(name, ("https://127.0.0.1:1",)))
            region.mirrors[name].routes = tuple(r for r in routes if (r.region, r.name) == (region.name, name))


def test_a_topic_is_compared_with_its_copies_under_their_prefix() -> None:
    with running(given(BOTH_WAYS, *REGIONS)) as found:
        fill(found.service, BOTH_WAYS)
        browser = found.browser()
        (comparison,) = browser.get("/api/topics/europe.LH.ORDERS/comparison").json()
        assert comparison["topic"] == "LH.ORDERS"
        assert comparison["regions"] == list(REGIONS)
        assert comparison["names"] == ["LH.ORDERS", "europe.LH.ORDERS", "europe.LH.ORDERS"]
        (written,) = [row for row in comparison["rows"] if row["name"] == "copied by"]
        assert [cell["value"] for cell in written["cells"]] == ["original", "mm2-north-america", "mm2-south-america"]
        # Every region has orders of its own, and each has two copies.
        every = browser.get("/api/topics/LH.ORDERS/comparison").json()
        assert [(one["regions"][0], one["topic"]) for one in every] == [(name, "LH.ORDERS") for name in REGIONS]
        page = browser.get("/topics/LH.ORDERS").text
        assert page.count("and its copies") == len(REGIONS)


def test_all_flows_are_on_the_map_each_with_its_own_state() -> None:
    with running(given(BOTH_WAYS, *REGIONS)) as found:
        fill(found.service, BOTH_WAYS)
        Told.of(found.service, "europe", "mm2-europe").paused = ("south-america",)
        flows = found.browser().get("/api/flows").json()["flows"]
        health = {(flow["source"], flow["target"]): flow["health"] for flow in flows}
        assert health.keys() == set(permutations(REGIONS, 2))
        assert {pair for pair, state in health.items() if state != "good"} == {("south-america", "europe")}


@pytest.mark.parametrize("answers", [True, False])
def test_a_mirror_beside_its_source_writes_into_the_other_region(answers: bool) -> None:
    with running(given(TO_EUROPE, *REGIONS)) as found:
        fill(found.service, TO_EUROPE)
        for name in REGIONS[1:]:
            Told.of(found.service, name, f"mm2-{name}").answers = answers
        browser = found.browser()
        flows = browser.get("/api/flows").json()["flows"]
        assert {(flow["source"], flow["target"]) for flow in flows} == {(name, "europe") for name in REGIONS[1:]}
        topics = {
            (topic["region"], topic["name"]): topic["mirror"] for topic in browser.get("/api/topics").json()["topics"]
        }
        assert topics["europe", "northamerica.LH.ORDERS"] == "mm2-north-america"
        assert topics["north-america", "LH.ORDERS"] is None


def test_a_region_whose_mirrors_run_elsewhere_knows_who_writes_there() -> None:
    with running(given(TO_EUROPE, "europe")) as found:
        fill(found.service, TO_EUROPE)
        browser = found.browser()
        (topic,) = browser.get("/api/topics/northamerica.LH.ORDERS").json()
        assert topic["mirror"] == "mm2-north-america"
        assert "It runs in north-america" in browser.get("/mirrors").text
        assert "was produced here" not in browser.get("/").text


def test_a_change_is_offered_first_where_applications_write() -> None:
    service = MadeUpService(given(TO_EUROPE, *REGIONS))
    assert service.topics.sources("LH.ORDERS") == ["north-america", "south-america", "europe"]
    broadcast = tuple(route("mm2", name, "europe", name, "identity") for name in REGIONS[1:])
    assert MadeUpService(given(broadcast, *REGIONS)).topics.sources("LH.ORDERS")[0] == "europe"
