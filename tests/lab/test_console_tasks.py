"""Five tasks of a newcomer who has a browser, starts at the control room and follows only links and labels in sight."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from playwright.sync_api import Browser, Locator, Page, expect

from loosehanger.kafka.connection import connection_for
from scripts.sandbox import Kit
from tests.browser.conftest import browser  # noqa: F401 - the machine's browser
from tests.browser.people import person

from .conftest import admin, batches, wait_until
from .test_console import signed_in
from .test_console_changes import MIRROR

# A set-up of its own, for consoles that may change groups.
pytestmark = [pytest.mark.lab, pytest.mark.browser, pytest.mark.slow]

TOPIC = "LH.ORDERS"
GROUP = "counters"
TASK_SECONDS = 120.0


@dataclass
class Newcomer:
    """A newcomer at a page: how often they clicked since a task began, and how long each task took."""

    page: Page
    clicks: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def task(self, name: str, clicks: int) -> Iterator[None]:
        """A task, which begins at the control room's first page and takes so many clicks."""
        self.page.get_by_role("link", name="Map", exact=True).click()
        expect(self.page.get_by_role("heading", name="Control room")).to_be_visible()
        self.clicks, begun = 0, time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begun, 1)
        print(f"{name}: {clicks} clicks, {self.seconds[name]} s")
        assert (name, self.clicks) == (name, clicks)

    def click(self, role: Any, name: str, within: Locator | None = None) -> None:
        """Clicks what is in sight under this name, of several the first."""
        (within or self.page).get_by_role(role, name=re.compile(f"^{re.escape(name)}")).first.click()
        self.clicks += 1

    def section(self, heading: str) -> Locator:
        """The section with this heading."""
        return self.page.locator("section", has=self.page.get_by_role("heading", name=heading))

    def row(self, table: str, *texts: str) -> Locator:
        """The row of a table that has all these texts."""
        found = self.page.get_by_role("region", name=table).get_by_role("row")
        for text in texts:
            found = found.filter(has_text=text)
        return found


def read_all(kit: Kit) -> dict[TopicPartition, int]:
    """Reads the orders in Europe as a member of the group, commits and leaves; returns the offsets committed."""
    consumer = KafkaConsumer(
        **connection_for(kit.lab.region("europe"), "admin").kafka_python(), group_id=GROUP, enable_auto_commit=False
    )
    places = [TopicPartition(TOPIC, number) for number in sorted(consumer.partitions_for_topic(TOPIC))]
    consumer.assign(places)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(places)
    for _ in batches(consumer, ends):
        pass
    consumer.commit()
    committed = {place: consumer.position(place) for place in places}
    consumer.close()
    return committed


def finds_why_a_mirror_lags(newcomer: Newcomer) -> None:
    """The control room names the mirror, the cause and the remedy; the mirror's own section has the button."""
    with newcomer.task("why a mirror lags", 3):
        page = newcomer.page
        why = page.locator(".problem", has_text="mm2-na")
        expect(why).to_contain_text("is paused, and must be running. Start it with Resume")
        expect(newcomer.row("Flows", "mm2-na")).to_contain_text("degraded")
        newcomer.click("link", "mm2-na", newcomer.row("Flows", "mm2-na"))
        mirror = newcomer.section("mm2-na in north-america")
        expect(mirror).to_be_in_viewport()
        newcomer.click("link", "Resume", mirror)
        expect(newcomer.row("Before and after", "Connector", "paused", "running")).to_be_visible()
        newcomer.click("button", "Resume")
        expect(mirror.get_by_role("heading", name="mm2-na in north-america healthy")).to_be_visible()


def finds_an_order_in_all_regions(newcomer: Newcomer, order: str) -> None:
    """A search by key goes through all topics of all regions."""
    with newcomer.task("an order in all regions", 3):
        page = newcomer.page
        newcomer.click("link", "Messages")
        newcomer.click("link", "Search existing records")
        search = page.get_by_role("search", name="Search")
        search.get_by_label("Key").fill(order)
        newcomer.click("button", "Search", search)
        rows = page.get_by_role("region", name="Messages, the newest first").locator("tbody tr")
        expect(rows).to_have_count(3)
        assert {row.locator("td").nth(1).inner_text() for row in rows.all()} == {
            "europe",
            "north-america",
            "south-america",
        }
        assert all(
            f"{TOPIC}\n" in row.inner_text().replace("\t", "\n") and order in row.inner_text() for row in rows.all()
        )


def moves_a_group_back(newcomer: Newcomer, count: int) -> None:
    """A preview counts the records that the group will read again, and the reset commits just these offsets."""
    with newcomer.task("a group moved back", 4):
        page = newcomer.page
        newcomer.click("link", "Groups")
        page.get_by_label("Filter rows").fill(GROUP)
        group = newcomer.section(f"{GROUP} europe")
        expect(page.locator("section:visible", has=page.get_by_role("heading", level=2))).to_have_count(1)
        newcomer.click("link", "Reset its offsets", group)
        expect(page.get_by_label("Time, age or offset")).to_have_value("10m")
        newcomer.click("button", "Preview")
        expect(newcomer.section("Preview")).to_contain_text(f"It reads {count:,} records again, and skips 0.")
        newcomer.click("button", "Reset the group")
        expect(page.get_by_role("status").first).to_contain_text(f"europe: {GROUP} is reset in")


def sees_what_is_configured(newcomer: Newcomer) -> None:
    """A mirror's configuration begins with what MirrorMaker 2 would not do by default."""
    with newcomer.task("what is configured", 2):
        newcomer.click("link", "Mirrors")
        newcomer.click("link", "Configuration", newcomer.section("mm2-sa in south-america"))
        found = newcomer.section("Differs from MirrorMaker 2's defaults")
        policy = found.get_by_role("row").filter(has_text="replication.policy.class")
        expect(policy).to_contain_text("org.apache.kafka.connect.mirror.IdentityReplicationPolicy")
        expect(policy).to_contain_text("org.apache.kafka.connect.mirror.DefaultReplicationPolicy")
        topics = found.get_by_role("row").filter(has=newcomer.page.get_by_text("topics", exact=True))
        expect(topics.get_by_role("cell").first).to_have_text(r"LH\..*")


def reads_the_lag_from_a_script(newcomer: Newcomer, folder: Path) -> None:
    """The page about the API gives a token, and the commands that read the lag with it."""
    with newcomer.task("the lag from a script", 3):
        page = newcomer.page
        newcomer.click("link", "API")
        page.get_by_label("Name of the script").fill("lag")
        newcomer.click("button", "Make a token")
        shown = page.get_by_role("status").filter(has_text="This line is shown once").locator("pre").inner_text()
        examples = [one.inner_text() for one in newcomer.section("Examples").locator("pre").all()]
        keep, read = examples[0].splitlines()[0], next(text for text in examples if "/api/flows" in text)

        def run(command: str, given: str = "") -> str:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                input=given,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        run(keep, f"{shown}\n")
        assert (folder / "token").stat().st_mode & 0o777 == 0o600
        lags = dict(line.split() for line in run(read).splitlines())
        assert {name: text.isdecimal() for name, text in lags.items()} == {"mm2-na": True, "mm2-sa": True}
        newcomer.click("button", "Revoke lag")
        expect(page.get_by_text("There is no token yet.")).to_be_visible()
        assert '"status":401' in run(read.split("|")[0]).replace(" ", "")


def test_a_newcomer_does_five_tasks_by_what_they_see(
    bare_kit: Kit,
    browser: Browser,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    done = bare_kit.setup("-e", "console_operator=true")
    assert done.returncode == 0, done.stdout + done.stderr
    north = signed_in(bare_kit, "north-america")
    path = MIRROR.format("north-america", "mm2-na", "northamerica", "pause")
    assert north.change("POST", path).status_code == 200
    committed = read_all(bare_kit)
    order = signed_in(bare_kit, "europe").get(f"/api/search?topic={TOPIC}&most=1").json()["messages"][0]["key"]

    entries = json.loads(bare_kit.run("status", "--credentials", "--json").stdout)
    (found,) = [entry for entry in entries if entry["console"] == "control-room"]
    seen = person(browser, found["url"], found["username"], found["password"], viewport={"width": 1400, "height": 900})
    newcomer = Newcomer(seen.page)
    finds_why_a_mirror_lags(newcomer)
    room = signed_in(bare_kit, "control-room")
    wait_until(lambda: len(room.get(f"/api/search?key={order}").json()["messages"]) == 3, 60, "the order's copies")
    finds_an_order_in_all_regions(newcomer, order)
    moves_a_group_back(newcomer, sum(committed.values()))
    sees_what_is_configured(newcomer)
    reads_the_lag_from_a_script(newcomer, tmp_path)

    client = admin(bare_kit, "europe")
    moved = client.list_group_offsets({GROUP: None})[GROUP]
    client.close()
    assert {place: one.offset for place, one in moved.items() if place.topic == TOPIC} == dict.fromkeys(committed, 0)
    assert max(newcomer.seconds.values()) < TASK_SECONDS, newcomer.seconds
    assert seen.said == []
    seen.page.context.close()
