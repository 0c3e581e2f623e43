"""Whatever clusters hold, the consoles show as text that everybody can read; made up, for no real one holds it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.browser.people import Person, person
from tests.consoles import HOSTILE, PASSWORD, Record, Running, running, settings

pytestmark = pytest.mark.browser

VALUES = (HOSTILE.encode(), b"\xff\xfe\x00", b"x" * 200_000, json.dumps({"a": [HOSTILE] * 100}).encode())
RECORDS = tuple(Record(value=value, key=HOSTILE.encode(), headers=[(HOSTILE, value)]) for value in VALUES)
PAGES = ("/", "/topics", "/topics/LH.ORDERS", "/messages", "/mirrors", "/groups", "/brokers", "/proof", "/aggregates",
         "/scenario?exercise=2&file=mm2-na.yaml", "/nothing")  # fmt: skip


@pytest.fixture(scope="module")
def control_room() -> Iterator[Running]:
    """A control room whose mirrors have failed, for a reason that is no good to read."""
    with running(settings("europe", "north-america", "south-america")) as found:
        for region in found.service.regions.values():
            for mirror in region.mirrors.values():
                mirror.connector_state, mirror.trace = "FAILED", f"{HOSTILE}\n\tat {HOSTILE}"  # type: ignore[attr-defined]
        yield found


def feed(control_room: Running, somebody: Person) -> None:
    """Lets records arrive on the page that is open."""
    live = control_room.service.regions["europe"].live
    deadline = time.monotonic() + 20
    while not live._viewers:
        assert time.monotonic() < deadline
        somebody.page.wait_for_timeout(50)
    live.feed(*RECORDS)
    expect(somebody.page.locator("#messages tr").nth(len(RECORDS) - 1)).to_be_visible()
    for summary in somebody.page.locator("#messages summary").all():
        summary.click()


def test_hostile_content_is_shown_as_text(control_room: Running, browser: Browser) -> None:
    somebody = person(browser, control_room.url, "operator", PASSWORD)
    page = somebody.page
    dialogs: list[str] = []
    # A dialog that nobody listens for is dismissed by Playwright itself; this one would be taken down.
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in PAGES[:-1]:
        somebody.open(path)
        page.wait_for_timeout(1200)  # until its stream has come once as well
        assert "taken" not in page.title(), path
        assert page.locator("main :is(script, img, style)").count() == 0, path
    somebody.open("/mirrors")
    expect(page.locator("pre").first).to_contain_text("<script>")
    somebody.open("/messages")
    feed(control_room, somebody)
    expect(page.locator("#messages")).to_contain_text("<script>")
    assert page.locator("#messages :is(script, img)").count() == 0
    assert "taken" not in page.title()
    assert dialogs == []
    assert somebody.said == []
    page.context.close()


def test_what_is_folded_open_stays_so_when_something_comes_before_it(control_room: Running, browser: Browser) -> None:
    somebody = person(browser, control_room.url, "operator", PASSWORD)
    somebody.open("/mirrors")
    page = somebody.page
    ids = page.evaluate("[...document.querySelectorAll('#live details')].map(details => details.id)")
    assert len(set(ids)) == len(ids) >= 2
    page.locator(f"[id='{ids[0]}'] summary").click()
    opened = page.evaluate(
        """async () => {
            const { morph } = await import("/static/morph.js");
            const live = document.getElementById("live"), wanted = live.cloneNode(true);
            wanted.querySelectorAll("details").forEach((details) => (details.open = false));
            const first = wanted.querySelector("section"), more = first.cloneNode(true);
            more.id = "mirror-before";
            more.querySelectorAll("[id]").forEach((part) => (part.id = `before-${part.id}`));
            first.before(more);
            morph(live, wanted.innerHTML);
            return [...live.querySelectorAll("details[open]")].map((details) => details.id);
        }"""
    )
    assert opened == ids[:1]
    assert somebody.said == []
    page.context.close()


def test_the_map_shows_the_land_and_the_regions_on_it(control_room: Running, browser: Browser) -> None:
    somebody = person(browser, control_room.url, "operator", PASSWORD)
    somebody.open("/")
    page = somebody.page
    expect(page.locator(".map .region circle")).to_have_count(3)
    land, map_ = page.locator(".map .land").bounding_box(), page.locator(".map").bounding_box()
    assert land
    assert map_
    assert land["width"] > map_["width"] > 800
    assert somebody.said == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375], ids=["desk", "phone"])
def test_everybody_can_read_every_page(control_room: Running, browser: Browser, width: int, scheme: str) -> None:
    somebody = person(
        browser, control_room.url, "operator", PASSWORD, viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    for path in PAGES:
        somebody.open(path)
        if path == "/messages":
            feed(control_room, somebody)
        somebody.page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
        assert somebody.page.evaluate("document.documentElement.scrollWidth") <= width, path
        answer = Axe().run(somebody.page)
        assert answer.response["violations"] == [], f"{path}: {answer.generate_report()}"
    somebody.page.context.close()
