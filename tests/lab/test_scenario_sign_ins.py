"""Regions that differ in how clients sign in: mirrors, programs, consoles, tools and the proof follow the manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from scripts.sandbox import Kit, copy_kit
from tests.sign_in_scenario import LISTENERS, NAME, alias, write_scenario

from .conftest import assert_settled, set_up, wait_until
from .test_console import signed_in

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A copy of the kit in which the scenario is set up."""
    found = copy_kit(tmp_path_factory.mktemp("sign-ins"), port_base=30000)
    write_scenario(found.root)
    with set_up(found, NAME):
        yield found


def test_every_region_is_healthy_and_a_second_setup_changes_nothing(kit: Kit) -> None:
    assert_settled(kit, NAME)


def test_the_mirrors_between_them_are_proved(kit: Kit) -> None:
    def is_proved() -> bool:
        document = json.loads(kit.run("prove", "--json").stdout)
        topics = {(flow["target"], flow["target_topic"]) for flow in document["flows"]}
        expected = {("north-america", "europe.LH.ORDERS"), ("south-america", "northamerica.LH.ORDERS")}
        return document["verdict"] == "proved" and expected | {("europe", "southamerica.LH.ORDERS")} <= topics

    wait_until(is_proved, 200, "a proof of three mirrors")


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("europe", ("SASL_SSL", "SCRAM-SHA-256", "")),
        ("north-america", ("SASL_SSL", "PLAIN", "")),
        ("south-america", ("SSL", "", "PEM")),
    ],
)
def test_clients_and_tools_sign_in_as_the_region_asks(kit: Kit, region: str, expected: tuple[str, str, str]) -> None:
    shown = dict(line.partition("=")[::2] for line in kit.run("client", region, "--show").stdout.splitlines())
    names = ("security.protocol", "sasl.mechanism", "ssl.keystore.type")
    assert tuple(shown.get(name, "") for name in names) == expected
    topics = kit.run("kafka", region, "topics", "--list")
    assert topics.returncode == 0, topics.stdout + topics.stderr
    assert "LH.ORDERS" in topics.stdout.split()
    read = kit.run("consume", region, "--max", "3")
    assert read.returncode == 0, read.stdout + read.stderr


def test_the_control_room_shows_every_region(kit: Kit) -> None:
    room = signed_in(kit, "control-room")
    shown = room.get("/api/flows").json()["flows"]
    assert {(flow["source"], flow["target"]) for flow in shown} >= {("europe", "north-america")}
    for region in LISTENERS:
        console = signed_in(kit, region)
        topics = {topic["name"] for topic in console.get("/api/topics").json()["topics"]}
        assert "LH.ORDERS" in topics, (region, alias(region), topics)
