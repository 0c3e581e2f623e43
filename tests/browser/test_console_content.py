"""Whatever clusters hold, the consoles show as text that everybody can read; made up, for no real one holds it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.routing import iter_route_contexts
from kafka import TopicPartition
from playwright.sync_api import Browser, Page, expect

from loosehanger.console.jobs import PAST
from loosehanger.files import write_file
from loosehanger.kafka import group_changes
from loosehanger.kafka.changes import Counted
from tests import samples
from tests.browser.people import Person, person
from tests.consoles import HOSTILE, PASSWORD, Record, Running, running, settings
from tests.unit.test_relay import Link

pytestmark = pytest.mark.browser

VALUES = (HOSTILE.encode(), b"\xff\xfe\x00", b"x" * 200_000, json.dumps({"a": [HOSTILE] * 100}).encode())
RECORDS = tuple(
    Record(value=value, key=HOSTILE.encode(), headers=[(HOSTILE, value)], offset=offset)
    for offset, value in enumerate(VALUES)
)
PAGES = ("/", "/charts", "/topics", "/topics/LH.ORDERS", "/messages", "/search?topic=LH.ORDERS",
         "/record?region=europe&topic=LH.ORDERS&partition=0&offset=3", "/produce", "/mirrors", "/groups",
         "/users", "/changes", "/brokers", "/scripts", "/proof", "/aggregates",
         "/confirm/settings?region=europe&topic=LH.ORDERS&name=segment.bytes&value=1000",
         "/confirm/connector?region=north-america&mirror=mm2&connector=europe-%3Ehere.MirrorSourceConnector"
         "&action=restart", "/confirm/link?ways=europe both north-america&delay=80ms&jitter=5ms",
         "/scenario?exercise=2&file=mm2-na.yaml", "/nothing")  # fmt: skip
STILL_PAGES = (
    "/confirm/create-topic?region=europe&name=LH.NEW&settings=retention.ms%3D1000",
    "/confirm/add-partitions?region=europe&topic=LH.ORDERS&partitions=6",
    "/confirm/delete-topic?region=europe&topic=LH.ORDERS",
    "/confirm/delete-records?region=europe&topic=LH.ORDERS&before=5",
    f"/confirm/delete-group?region=europe&group={quote(HOSTILE)}",
    f"/groups/reset?region=europe&group={quote(HOSTILE)}&to=earliest",
    "/regions/north-america/mirrors/mm2/configuration?connector=europe-%3Ehere.MirrorSourceConnector",
    "/scenario/document?path=docs/glossary.md",
)
"""Pages of the same templates as others, or of text alone, which no stream updates."""
FROM_A_FORM = "/confirm/produce"
NO_PAGES = ("/health", "/metrics", "/record/download", "/proof/report", "/scenario/picture", "/scenario/elsewhere",
            "/sign-in")  # fmt: skip
"""Paths that answer with a file, or with a page that is like one of the others, or has a test of its own."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a lab whose proofs found some of everything."""
    folder = tmp_path_factory.mktemp("home") / "artifacts" / "console"
    state = {"name": "proof", "state": "done", "explanation": "", "started": 1.7e9, "seconds": 12.3, "exit_code": 1,
             "progress": [HOSTILE], "steps": [{"said": HOSTILE, "begun": 0, "seconds": 1.5}],
             "result": samples.broken_proof(), "report": True, "report_id": "1"}  # fmt: skip
    claims = [{"id": "c", "says": HOSTILE, "verdict": verdict} for verdict in ("proved", "disproved", "inconclusive")]
    past = [{"id": str(number), "started": 1.7e9, "seconds": 12.3, "verdict": verdict, "explanation": HOSTILE,
             "claims": claims if number else [], "report": False}
            for number, verdict in enumerate(("failed", "proved", "disproved", "inconclusive"))]  # fmt: skip
    write_file(folder / "proof.json", json.dumps(state))
    write_file(folder / "proof-1.html", "<!DOCTYPE html><title>Report</title><p>the first report</p>")
    write_file(folder / PAST, "".join(f"{json.dumps(one)}\n" for one in past))
    return folder.parents[1]


@pytest.fixture(scope="module")
def link(home: Path) -> Iterator[None]:
    """The relay between two of its regions."""
    folder = home / "regions" / "europe" / "links" / "north-america"
    folder.mkdir(parents=True)
    relay = Link(folder, 1, between=("europe", "north-america"))
    yield
    relay.close()


@pytest.fixture(scope="module")
def control_room(home: Path, link: None) -> Iterator[Running]:  # noqa: ARG001 - the link that it sees
    """A control room whose mirrors have failed, for a reason that is no good to read."""
    given = settings("europe", "north-america", "south-america", lab_home=home, operator=True)
    with pytest.MonkeyPatch.context() as patch, running(given) as found:
        patch.setattr(group_changes, "count", lambda _, moves: Counted(len(moves), 0))  # There is nothing to read.
        europe = found.service.regions["europe"]
        europe.searcher.records = RECORDS
        europe.cluster.admin.groups[HOSTILE] = {TopicPartition("LH.ORDERS", 0): 4}
        for region in found.service.regions.values():
            for mirror in region.mirrors.values():
                mirror.connector_state, mirror.trace = "FAILED", f"{HOSTILE}\n\tat {HOSTILE}"  # type: ignore[attr-defined]
        yield found


def opened(reader: Person, paths: Iterable[str]) -> Iterator[str]:
    """Opens one page after the other, and at last that which only a form leads to."""
    for path in paths:
        reader.open(path)
        yield path
    reader.open("/produce")
    form = reader.page.get_by_role("form", name="Record")
    for name in ("Topic", "Key", "Value"):
        form.get_by_label(name, exact=name == "Topic").first.fill("LH.ORDERS" if name == "Topic" else HOSTILE)
    form.get_by_role("button").click()
    expect(reader.page.get_by_role("heading", name="Write a record to LH.ORDERS")).to_be_visible()
    yield FROM_A_FORM


def check(reader: Person, path: str, width: int) -> None:
    """Judges the page that is open, with all that it folds: its width, and what axe finds."""
    reader.page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width, path
    answer = Axe().run(reader.page)
    assert answer.response["violations"] == [], f"{path}: {answer.generate_report()}"


def feed(control_room: Running, reader: Person) -> None:
    """Lets records arrive on the page that is open."""
    live = control_room.service.regions["europe"].live
    deadline = time.monotonic() + 180
    while not live._viewers:
        assert time.monotonic() < deadline
        reader.page.wait_for_timeout(50)
    live.feed(*RECORDS)
    expect(reader.page.locator("#messages tr").nth(len(RECORDS) - 1)).to_be_visible()


def look_at(reader: Person, offset: int) -> None:
    """Opens a record of the list, beside it or over it."""
    row = reader.page.locator(".messages tbody tr", has=reader.page.get_by_text(f"0/{offset}", exact=True)).first
    row.locator("a[data-record]").click()
    expect(reader.page.locator("#record h2")).to_contain_text(f"0/{offset}")


def test_each_page_is_among_those_that_are_looked_at(control_room: Running) -> None:
    looked_at = [path.partition("?")[0] for path in (*PAGES, *STILL_PAGES, FROM_A_FORM)]
    pages = {
        str(context.path)
        for context in iter_route_contexts(control_room.app.routes)
        if "GET" in (getattr(context, "methods", None) or ()) or context.path == FROM_A_FORM
    }
    left_out = [
        path
        for path in sorted(pages - set(NO_PAGES))
        if not path.startswith(("/api/", "/events/"))
        and not any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), one) for one in looked_at)
    ]
    assert left_out == []


def test_hostile_content_is_shown_as_text(control_room: Running, browser: Browser) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD)
    page = reader.page
    dialogs: list[str] = []
    # A dialog without a listener is dismissed by Playwright itself; this one would be recorded.
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in opened(reader, (*PAGES[:-1], *STILL_PAGES)):
        if path in PAGES and not path.startswith("/confirm/"):
            page.wait_for_timeout(1200)  # until its stream has come once as well
        assert page.title() != "taken", path
        assert page.locator("main :is(script, img, style)").count() == 0, path
    reader.open("/mirrors")
    expect(page.locator("pre").first).to_contain_text("<script>")
    reader.open("/messages")
    feed(control_room, reader)
    expect(page.locator("#messages")).to_contain_text("<script>")
    for offset in range(len(RECORDS)):
        look_at(reader, offset)
        expect(page.locator("#record")).to_contain_text("<script>")
    assert page.locator(":is(#messages, #record) :is(script, img)").count() == 0
    assert "taken" not in page.title()
    assert dialogs == []
    assert reader.said == []
    page.context.close()


def test_what_is_folded_open_stays_so_when_something_comes_before_it(control_room: Running, browser: Browser) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD)
    reader.open("/mirrors")
    page = reader.page
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
    assert reader.said == []
    page.context.close()


def test_live_messages_hold_still_while_one_is_open(control_room: Running, browser: Browser) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD)
    page = reader.page
    reader.open("/messages")
    live = control_room.service.regions["europe"].live
    page.wait_for_function("document.getElementById('counts').textContent !== ''")
    live.feed(Record(value=b"the one that is read", offset=1))
    expect(page.locator("#messages")).to_contain_text("the one that is read")
    chosen = page.locator("#messages a", has_text="the one that is read")
    chosen.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#record h2")).to_be_focused()
    live.feed(Record(value=b"the one that comes", offset=2))
    expect(page.locator("#counts")).to_contain_text("Still while a message is open, 1 waiting")
    assert page.locator("#messages").get_by_text("the one that comes").count() == 0
    beside, list_ = page.locator("#record").bounding_box(), page.locator("#messages").bounding_box()
    assert beside
    assert list_
    assert beside["x"] > list_["x"] + list_["width"], "the record is beside the list"
    page.keyboard.press("Escape")
    expect(chosen).to_be_focused()
    expect(page.locator("#messages")).to_contain_text("the one that comes")
    assert reader.said == []
    page.context.close()


def test_a_proofs_past_and_its_examples_lead_on(control_room: Running, browser: Browser) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD)
    page = reader.page
    reader.open("/proof")
    expect(page.locator("[id='proof-2']")).to_contain_text("1 of 3 proved")
    page.get_by_role("link", name="Report of this proof").click()
    expect(page.get_by_text("the first report")).to_be_visible()
    reader.open("/proof")
    page.get_by_role("link", name="europe 1/1234").first.click()
    expect(page.get_by_role("heading", name="Search messages")).to_be_visible()
    expect(page.locator("input[name=offset]")).to_have_value("1234")
    page.context.close()


def test_the_map_shows_the_land_and_the_regions_on_it(control_room: Running, browser: Browser) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD)
    reader.open("/")
    page = reader.page
    expect(page.locator(".map .region circle")).to_have_count(3)
    land, map_ = page.locator(".map .land").bounding_box(), page.locator(".map").bounding_box()
    assert land
    assert map_
    assert land["width"] > map_["width"] > 800
    assert reader.said == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375], ids=["desk", "phone"])
def test_everybody_can_read_every_page(control_room: Running, browser: Browser, width: int, scheme: str) -> None:
    reader = person(
        browser, control_room.url, "operator", PASSWORD, viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    for path in opened(reader, PAGES):
        if path == "/messages":
            feed(control_room, reader)
        if path.startswith(("/messages", "/search?")):
            look_at(reader, len(RECORDS) - 1)
        check(reader, path, width)
    reader.page.context.close()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")], ids=["desk", "phone"])
def test_everybody_can_read_the_pages_that_stand_still(
    control_room: Running, browser: Browser, width: int, scheme: Any
) -> None:
    reader = person(
        browser, control_room.url, "operator", PASSWORD, viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    for path in opened(reader, STILL_PAGES):
        check(reader, path, width)
    assert reader.said == []
    reader.page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")], ids=["desk", "phone"])
def test_everybody_can_sign_in(control_room: Running, browser: Browser, width: int, scheme: Any) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{control_room.url}/charts?range=all")
    for _ in range(3):
        page.keyboard.press("Tab")  # past the links to the content and to the first page
    for text in ("operator", "wrong"):
        page.keyboard.type(text)
        page.keyboard.press("Tab" if text == "operator" else "Enter")
    expect(page.get_by_role("alert")).to_contain_text("./lab status --credentials shows both")
    answer = Axe().run(page)
    assert answer.response["violations"] == [], answer.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_label("Password").focus()
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{control_room.url}/charts?range=all")
    context.close()


REACHED = """() => {
    const here = document.activeElement, place = here.getBoundingClientRect();
    if (here === document.body || here === document.documentElement) return false;
    const drawn = here.matches("svg a") ? here.querySelector(".line, circle") : null;
    const marked = drawn ? parseFloat(getComputedStyle(drawn).strokeWidth) >= 6
                         : getComputedStyle(here).outlineStyle !== "none";
    const seen = place.bottom > 0 && place.top < innerHeight && place.right > 0 && place.left < innerWidth;
    (window.reached ??= new Map()).set(here, marked && seen);
    return true;
}"""
"""Notes of the element with the focus whether it shows so, and is in sight; false when the focus is nowhere."""
LEFT = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled && one.type !== "hidden")
    .filter((one) => !window.reached.get(one))
    .map((one) => `${window.reached.has(one) ? "not seen" : "not reached"}: ${one.outerHTML.slice(0, 200)}`)"""
"""What a user with a keyboard cannot reach, or does not see when they are there."""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 390], ids=["desk", "phone"])
def test_the_keyboard_reaches_all_that_can_be_used(control_room: Running, browser: Browser, width: int) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD, viewport={"width": width, "height": 900})
    page = reader.page
    for path in opened(reader, (*PAGES, *STILL_PAGES)):
        page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
        page.evaluate("document.activeElement.blur()")
        for _ in range(1000):
            page.keyboard.press("Tab")
            if not page.evaluate(REACHED):
                break
        assert page.evaluate(LEFT) == [], path
    page.context.close()


def come_again(page: Page, path: str) -> None:
    """Puts a page's view in place of what is shown, as its stream does."""
    page.evaluate(
        """async (path) => {
            const { arrange } = await import("/static/tables.js");
            const { morph } = await import("/static/morph.js");
            const wanted = document.createElement("template"), live = document.getElementById("live");
            wanted.innerHTML = await (await fetch(path)).text();
            wanted.innerHTML = wanted.content.getElementById("live").innerHTML;
            arrange(wanted.content);
            morph(live, wanted.innerHTML);
        }""",
        path,
    )


@pytest.mark.parametrize("width", [1400, 390], ids=["desk", "phone"])
def test_a_table_is_sorted_filtered_and_narrowed_and_stays_so(
    control_room: Running, browser: Browser, width: int
) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD, viewport={"width": width, "height": 900})
    reader.open("/topics")
    page = reader.page
    regions = page.locator("#table-topics tbody td:nth-child(2)")
    header = page.locator("#table-topics thead th", has_text="Region")
    button = header.get_by_role("button")
    button.focus()
    for order in ("ascending", "descending"):
        page.keyboard.press("Enter")
        expect(header).to_have_attribute("aria-sort", order)
    assert regions.all_inner_texts() == ["south-america", "north-america", "europe"]
    expect(button).to_be_focused()
    page.get_by_label("Filter rows").fill("NORTH")
    expect(page.locator("#table-topics tbody tr:visible")).to_have_count(1)
    expect(page.get_by_text("1 of 3 rows")).to_be_visible()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Overrides").uncheck()
    expect(page.locator("#table-topics th", has_text="Overrides")).to_be_hidden()
    come_again(page, "/topics")
    assert regions.all_inner_texts()[0] in ("", "south-america"), "what the stream brings is in the reader's order"
    expect(page.locator("#table-topics tbody tr:visible")).to_have_count(1)
    answer = Axe().run(page)
    assert answer.response["violations"] == [], answer.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.reload()
    expect(page.locator("#table-topics th", has_text="Overrides")).to_be_hidden()
    bar = page.locator(".bar").bounding_box()
    assert bar
    assert bar["height"] < 120, "the pages take one row"
    assert reader.said == []
    page.context.close()


@pytest.mark.parametrize(
    ("path", "table", "column", "hides"),
    [("/groups", "groups", "Region", "Kind"), ("/mirrors", "mirrors", "Runs in", "Tasks")],
)
def test_a_list_sorts_filters_and_hides_what_belongs_to_its_rows(
    control_room: Running, browser: Browser, path: str, table: str, column: str, hides: str
) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD)
    reader.open(path)
    page = reader.page
    rows, sections = page.locator(f"#table-{table} tbody tr"), page.locator("#live > section")
    assert rows.count() == sections.count() >= 2
    header = page.locator(f"#table-{table} thead th", has_text=column)
    header.get_by_role("button").click()
    header.get_by_role("button").click()
    regions = rows.locator("td:nth-child(2)").all_inner_texts()
    assert regions == sorted(regions, reverse=True)
    page.get_by_label("Filter rows").fill("north-america")
    expect(rows.locator("visible=true")).to_have_count(1)
    expect(sections.locator("visible=true")).to_have_count(1)
    expect(sections.locator("visible=true")).to_contain_text("north-america")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label(hides).uncheck()
    expect(page.locator(f"#table-{table} th", has_text=hides)).to_be_hidden()
    come_again(page, path)
    assert sections.locator("visible=true").count() == 1, "what the stream brings is filtered"
    page.get_by_label("Filter rows").fill("")
    expect(sections.locator("visible=true")).to_have_count(sections.count())
    assert reader.said == []
    page.context.close()


def test_live_messages_and_flows_are_sorted(control_room: Running, browser: Browser) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD)
    page = reader.page
    reader.open("/messages")
    live = control_room.service.regions["europe"].live
    page.wait_for_function("document.getElementById('counts').textContent !== ''")
    live.feed(*(Record(value=b"{}", key=key, offset=offset) for offset, key in enumerate((b"b", b"c", b"a"), 901)))
    expect(page.locator("#messages")).to_contain_text("0/903")
    page.locator("#table-messages thead").get_by_role("button", name="Key").click()
    live.feed(Record(value=b"{}", key=b"bb", offset=904))
    expect(page.locator("#messages")).to_contain_text("0/904")
    keys = [key for key in page.locator("#messages td.key").all_inner_texts() if key in ("a", "b", "bb", "c")]
    assert keys == ["a", "b", "bb", "c"], "a message that arrives takes its place"
    reader.open("/")
    header = page.locator("#table-flows thead th", has_text="Flow")
    flows = page.locator("#table-flows tbody th")
    before = flows.all_inner_texts()
    header.get_by_role("button").click()
    header.get_by_role("button").click()
    assert flows.all_inner_texts() == sorted(before, reverse=True) != sorted(before)
    assert reader.said == []
    page.context.close()


def test_rows_that_share_a_cell_stay_together(control_room: Running, browser: Browser) -> None:
    reader = person(browser, control_room.url, "operator", PASSWORD)
    reader.open("/")
    sorted_rows = reader.page.evaluate(
        """async () => {
            const { arrange } = await import("/static/tables.js");
            const live = document.getElementById("live");
            live.innerHTML = `<table id="table-pairs" data-sort><thead><tr><th>Way<th data-sort="none">Both</tr></thead>
                <tbody><tr><th>a to b<td rowspan="2">ab</tr><tr><th>b to a</tr>
                <tr><th>c to d<td rowspan="2">cd</tr><tr><th>d to c</tr></tbody></table>`;
            arrange(document);
            const heads = [...live.querySelectorAll("thead th")];
            heads[0].querySelector("button").click();
            heads[0].querySelector("button").click();
            return [heads[1].querySelector("button") === null,
                    ...[...live.querySelectorAll("tbody th")].map((cell) => cell.textContent)];
        }"""
    )
    assert sorted_rows == [True, "c to d", "d to c", "a to b", "b to a"]
    reader.page.context.close()
