"""The consoles of a real lab in a real browser: at a desk and on a phone, by day and by night, by keyboard."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from scripts.sandbox import Kit
from tests.browser.people import Person, person
from tests.lab.test_resilience import kill

pytestmark = [pytest.mark.browser, pytest.mark.lab]

PAGES = (
    "/", "/charts", "/topics", "/topics/LH.ORDERS", "/messages", "/search?topic=LH.SENSORS&since=1m", "/mirrors",
    "/groups", "/brokers",
)  # fmt: skip
CONTROL_ROOM_PAGES = (*PAGES, "/proof", "/aggregates", "/scenario?exercise=2&file=mm2-na.yaml")
CONNECTOR = "europe-%3Enorthamerica.MirrorSourceConnector"
OPERATORS_PAGES = (
    "/users", "/changes", "/scripts", "/produce", "/search?topic=LH.ORDERS&partition=0&offset=0",
    "/confirm/settings?region=europe&topic=LH.ORDERS&name=retention.ms&value=3600000",
    f"/confirm/connector?region=north-america&mirror=mm2-na&connector={CONNECTOR}&action=restart",
    "/confirm/link?ways=europe both north-america&delay=80ms&rate=20MB/s",
    "/confirm/create-topic?region=europe&name=LH.RETURNS&partitions=3",
    "/confirm/add-partitions?region=europe&topic=LH.ORDERS&partitions=9",
    "/confirm/delete-topic?region=europe&topic=LH.ORDERS",
    "/confirm/delete-records?region=europe&topic=LH.ORDERS&before=1",
    "/groups/reset?region=north-america&group=consumer-northamerica&to=10m",
    "/confirm/delete-group?region=north-america&group=consumer-northamerica",
    f"/regions/north-america/mirrors/mm2-na/configuration?connector={CONNECTOR}",
    "/scenario/document?path=docs/glossary.md",
)  # fmt: skip
PICTURES = os.environ.get("CONSOLE_PICTURES")
"""A folder, such as docs: the pictures of pages that are in it are taken anew."""


def credentials(kit: Kit) -> dict[str, dict[str, str]]:
    """What ``./lab status --credentials`` shows."""
    return {entry["console"]: entry for entry in json.loads(kit.run("status", "--credentials", "--json").stdout)}


def viewer(kit: Kit, browser: Browser, name: str, **context: object) -> Person:
    """A user of one of the lab's consoles."""
    found = credentials(kit)[name]
    return person(browser, found["url"], found["username"], found["password"], **context)


@pytest.fixture(scope="module")
def control_room(operator_kit: Kit, browser: Browser) -> Iterator[Person]:
    found = viewer(operator_kit, browser, "control-room", viewport={"width": 1280, "height": 900})
    yield found
    assert found.said == []
    found.page.context.close()


@pytest.fixture(scope="module")
def america(operator_kit: Kit, browser: Browser) -> Iterator[Person]:
    found = viewer(operator_kit, browser, "north-america", viewport={"width": 1280, "height": 900})
    yield found
    assert found.said == []
    found.page.context.close()


def picture(person: Person, name: str) -> None:
    """Takes a picture anew, if one of that name is in the folder: an empty file asks for a new one."""
    path = Path(PICTURES or "") / f"console-{name}.png"
    if PICTURES and path.exists():
        person.page.screenshot(path=path)


def test_the_first_page_names_all_that_it_needs(america: Person) -> None:
    # How long it takes, scripts.bench.console measures.
    america.open("/")
    html = america.page.request.get(america.page.url).text()
    assert 'data-view="overview"' in html
    resources = america.page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    found = [path for path in (urlsplit(address).path for address in resources) if path.startswith("/static/")]
    assert found
    late = [path for path in found if f'="{path}"' not in html]
    assert late == [], "what only a script names comes later"


def test_live_messages_appear_as_they_arrive(america: Person) -> None:
    america.open("/messages?topic=LH.SENSORS")
    rows = america.page.locator("#messages tr")
    expect(rows.first).to_be_visible()
    newest = rows.first.locator("time").get_attribute("datetime")
    america.page.wait_for_function("newest => document.querySelector('#messages time').dateTime !== newest", arg=newest)
    expect(rows.first).to_contain_text("LH.SENSORS")
    picture(america, "messages")


def test_the_last_hour_is_drawn_while_it_passes(control_room: Person) -> None:
    control_room.open("/charts")
    page = control_room.page
    row = page.locator("#past-records-per-s tbody tr", has_text="mm2-na")
    # Two samples make a rate, and there is one every ten seconds while a page is open.
    expect(row).to_be_visible()
    expect(row.locator("td").first).not_to_have_text("–")
    expect(page.locator("#past-lag tbody tr", has_text="mm2-na")).to_be_visible()
    expect(page.locator("#past-latency-ms-p99 canvas")).to_be_visible()
    picture(control_room, "charts")


def test_a_record_is_found_where_it_is(control_room: Person) -> None:
    control_room.open("/search?region=north-america&topic=LH.SENSORS&since=1m&header=lh-origin: europe")
    page = control_room.page
    row = page.locator(".messages tbody tr").first
    expect(row).to_be_visible()
    partition, offset = row.locator("td.number").inner_text().split("/")
    control_room.open(f"/search?region=north-america&topic=LH.SENSORS&partition={partition}&offset={offset}")
    expect(page.locator("#counts")).to_contain_text("1 found among 1 records")
    expect(page.locator("#record")).to_contain_text("lh-origin")
    expect(page.locator("#record .tree").first).to_be_visible()
    page.get_by_role("link", name="Older records").click()
    expect(page.locator(".messages tbody tr").first.locator("td.number")).to_contain_text(f"{partition}/")
    control_room.open("/search?topic=LH.SENSOR")
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'LH.SENSORS'?")


def test_messages_can_be_filtered_paused_and_shared(america: Person) -> None:
    america.open("/messages")
    page = america.page
    page.locator("input[name=topic]").fill("LH.DOORS")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#messages tr").first).to_contain_text("LH.DOORS")
    assert page.url.endswith("/messages?topic=LH.DOORS")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#counts")).to_contain_text("Paused")
    before = page.locator("#messages tr").count()
    expect(page.locator("#counts")).not_to_contain_text(" 0 waiting")
    assert page.locator("#messages tr").count() == before
    with page.expect_response("**/events/messages*"):
        page.evaluate("dispatchEvent(new Event('pagehide')); dispatchEvent(new Event('pageshow'))")
    expect(page.locator("#counts")).not_to_contain_text(" 0 waiting")
    assert page.locator("#messages tr").count() == before, "a stream that begins anew takes away what the user reads"
    page.get_by_role("button", name="Pause").click()
    page.locator("#messages a").first.click()
    expect(page.locator("#record")).to_contain_text("lh-origin")
    page.goto(page.url)
    assert page.locator("input[name=topic]").input_value() == "LH.DOORS"


def test_a_configuration_changed_in_europe_is_seen_in_both_americas(control_room: Person) -> None:
    control_room.open("/topics/LH.ORDERS")
    page = control_room.page
    form = page.get_by_role("region", name="Change its configuration")
    form.locator("select[name=region]").select_option("europe")
    form.locator("input[name=name]").fill("retention.ms")
    form.locator("input[name=value]").fill("3600000")
    form.get_by_role("button", name="Change").click()
    asked = page.get_by_role("row", name=re.compile("retention.ms .* 3600000 \\(override\\)"))
    expect(asked).to_be_visible()
    picture(control_room, "change")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_text("europe: LH.ORDERS: retention.ms=3600000")).to_be_visible()
    for region in ("north-america", "south-america"):
        cell = page.locator(f'td[data-row="retention.ms"][data-region="{region}"]')
        expect(cell).to_contain_text("3600000")
    expect(page.locator("tr.differs", has_text="retention.ms")).to_have_count(0)
    picture(control_room, "topic")
    form.locator("select[name=region]").select_option("europe")
    form.locator("input[name=name]").fill("retention.ms")
    form.get_by_role("button", name="Back to default").click()
    expect(page.get_by_role("row", name=re.compile("3600000 \\(override\\) its default"))).to_be_visible()
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_text("retention.ms has its default again")).to_be_visible()


def test_the_map_is_alive(control_room: Person) -> None:
    control_room.open("/")
    for mirror in ("mm2-na", "mm2-sa"):
        row = control_room.page.locator(f'tr[data-flow="{mirror}"]')
        expect(row).to_have_attribute("data-health", "good")
        expect(row).not_to_contain_text("…")
    before = control_room.page.locator("figure.map").inner_text()
    # The rounded numbers of a steady lab may stay the same for ten seconds and more.
    control_room.page.wait_for_function(
        "before => document.querySelector('figure.map').innerText !== before", arg=before
    )
    picture(control_room, "map")


def test_a_killed_mirror_worker_turns_red_and_green_again(kit: Kit, control_room: Person) -> None:
    control_room.open("/")
    page = control_room.page
    row = page.locator('tr[data-flow="mm2-na"]')
    expect(row).to_have_attribute("data-health", "good")
    # The worker is started again at once, and a look from here may come too late for what was shown.
    page.evaluate("""() => {
        window.shown = [];
        const live = document.querySelector('#live');
        const keep = () => {
            const health = live.querySelector('tr[data-flow="mm2-na"]').dataset.health;
            shown.push(`${health}: ${live.textContent}`);
        };
        const all = {attributes: true, characterData: true, childList: true, subtree: true};
        new MutationObserver(keep).observe(live, all);
    }""")
    kill(kit, "north-america", "ConnectDistributed")
    page.wait_for_function(
        "() => shown.some(text => text.startsWith('bad') && text.includes('no Connect worker answers'))"
    )
    expect(row).to_have_attribute("data-health", "good")


def test_a_mirror_is_paused_and_resumed_by_keyboard(america: Person) -> None:
    america.open("/mirrors")
    page = america.page
    card = page.locator('section[data-mirror="mm2-na"]')
    expect(card).to_have_attribute("data-health", "good")
    picture(america, "mirrors")
    page.get_by_role("link", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("row", name="Connector running paused")).to_be_visible()
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("requested to pause")).to_be_visible()
    expect(card).to_have_attribute("data-health", "warning")
    expect(card).to_contain_text("Start it with Resume")
    page.get_by_role("link", name="Resume").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Resume").focus()
    page.keyboard.press("Enter")
    expect(card).to_have_attribute("data-health", "good")


def test_a_proof_and_the_aggregates_are_run_from_the_page(control_room: Person) -> None:
    control_room.open("/proof")
    page = control_room.page
    page.get_by_role("button", name="Run the proof").click()
    expect(page.get_by_text("It is running")).to_be_visible()
    expect(page.locator('[data-verdict="proved"]')).to_be_visible(timeout=240_000)
    picture(control_room, "proof")
    page.get_by_role("link", name="the full report").click()
    expect(page.get_by_text("Everything was mirrored")).to_be_visible()
    # The report's own page is sandboxed and has no script, and says nothing.
    control_room.open("/aggregates")
    page.get_by_role("button", name="Add up again").click()
    expect(page.get_by_role("heading", name="Revenue by product")).to_be_visible(timeout=240_000)
    picture(control_room, "aggregates")


def read_pages(found: Person, paths: tuple[str, ...], width: int) -> None:
    """Opens pages with all that they fold, and judges each: its width, what axe finds, what the browser says."""
    for path in paths:
        found.open(path)
        found.page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width, path
        answer = Axe().run(found.page)
        assert answer.response["violations"] == [], f"{path}: {answer.generate_report()}"
    assert found.said == []
    found.page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390], ids=["desk", "phone"])
@pytest.mark.parametrize("name", ["control-room", "north-america"])
def test_everybody_can_read_every_page(kit: Kit, browser: Browser, name: str, width: int, scheme: str) -> None:
    found = viewer(kit, browser, name, viewport={"width": width, "height": 900}, color_scheme=scheme)
    read_pages(found, CONTROL_ROOM_PAGES if name == "control-room" else PAGES, width)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390], ids=["desk", "phone"])
def test_everybody_can_read_what_operators_see(operator_kit: Kit, browser: Browser, width: int, scheme: str) -> None:
    found = viewer(operator_kit, browser, "control-room", viewport={"width": width, "height": 900}, color_scheme=scheme)
    read_pages(found, OPERATORS_PAGES, width)


def test_the_keyboard_reaches_the_content_first(america: Person) -> None:
    america.open("/topics")
    america.page.keyboard.press("Tab")
    assert america.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    america.page.keyboard.press("Enter")
    assert america.page.evaluate("document.activeElement.id") == "main"


def test_times_are_in_the_viewers_zone(kit: Kit, browser: Browser) -> None:
    shown = []
    for zone in ("Pacific/Auckland", "America/Lima"):
        found = viewer(kit, browser, "control-room", timezone_id=zone, locale="en-GB")
        found.open("/proof")
        time_ = found.page.locator("time").first
        shown.append((time_.get_attribute("datetime"), time_.inner_text()))
        found.page.context.close()
    assert shown[0][0] == shown[1][0]
    assert shown[0][1] != shown[1][1]


@pytest.mark.slow
def test_open_signs_in_and_leads_to_the_other_consoles(kit: Kit, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    done = kit.run("open", "--print")
    assert done.returncode == 0, done.stderr
    file = Path(done.stdout.strip())
    page.goto(file.as_uri())
    expect(page.get_by_role("heading", name="Control room")).to_be_visible()
    again = context.new_page()
    again.goto(file.as_uri())
    expect(again.get_by_role("alert")).to_contain_text("Run ./lab open again, or sign in here")
    for name in ("europe", "south-america"):
        page.get_by_text("Consoles", exact=True).click()
        with page.expect_event("framenavigated"):
            page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator(".brand")).to_have_text(name)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    context.close()


def test_signing_out_ends_what_is_open(kit: Kit, browser: Browser) -> None:
    found = viewer(kit, browser, "europe")
    other = found.page.context.new_page()
    other.goto(f"{found.url}/messages")
    found.page.get_by_role("button", name="Sign out").click()
    expect(found.page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(other.get_by_text("You were signed out")).to_be_visible()
    found.page.context.close()
