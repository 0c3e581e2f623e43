"""The charts of the last hour in a browser, for one flow, three, six and none; made up, so that it is an hour."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from loosehanger.console.history import MEASURES, POINTS, STEP_S, LastHour, Subject
from tests.browser.people import person
from tests.consoles import PASSWORD, Running, running, settings

pytestmark = pytest.mark.browser

REGIONS = ("europe", "north-america", "south-america")
PAIRS = [(source, target) for source in REGIONS for target in REGIONS if source != target]


def subjects(count: int) -> list[Subject]:
    """So many flows, each with a copy of a topic."""
    flows = [Subject(target, source=source, mirror="mm2") for source, target in PAIRS[:count]]
    return [*flows, *(Subject(flow.region, f"{flow.source}.LH.ORDERS") for flow in flows)]


def fill(kept: LastHour, count: int) -> None:
    """An hour of so many flows: waves, of which each is another."""
    began = time.time() - POINTS * STEP_S
    for step in range(POINTS):
        values = {
            subject: {measure: (place + 1) * 100 * (1.1 + math.sin(step / 20 + place)) for measure in MEASURES}
            for place, subject in enumerate(subjects(count))
        }
        kept.add(began + step * STEP_S, values)


@pytest.fixture(scope="module")
def labs() -> Iterator[dict[int, Running]]:
    """Control rooms of labs with so many flows."""
    with ExitStack() as stack:
        found = {count: stack.enter_context(running(settings(*REGIONS))) for count in (0, 1, 3, 6)}
        for count, lab in found.items():
            if count:
                fill(lab.app.state.context.last_hour, count)
        yield found


def colours(page: Page, plot: str) -> set[tuple[int, ...]]:
    """The colours of a plot, of which there is enough to be seen."""
    found = page.evaluate(
        """id => {
            const canvas = document.querySelector(`#${id} canvas`);
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const seen = {};
            for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] === 255) seen[data.slice(i, i + 3)] = (seen[data.slice(i, i + 3)] || 0) + 1;
            }
            return Object.entries(seen).filter(([, count]) => count > 100).map(([colour]) => colour);
        }""",
        plot,
    )
    return {tuple(map(int, colour.split(","))) for colour in found}


def coloured(page: Page, number: int) -> tuple[int, ...]:
    """A line's colour, as the style has it."""
    text = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--series-{number}').trim()")
    return tuple(bytes.fromhex(text.lstrip("#")))


@pytest.mark.parametrize("count", [1, 3, 6])
def test_each_flow_has_its_line_in_each_chart(labs: dict[int, Running], browser: Browser, count: int) -> None:
    reader = person(browser, labs[count].url, "operator", PASSWORD, viewport={"width": 1280, "height": 900})
    reader.open("/charts")
    page = reader.page
    expect(page.locator(".plot canvas")).to_have_count(len(MEASURES))
    for number in range(1, count + 1):
        assert coloured(page, number) in colours(page, "plot-lag"), number
    rows = page.locator("#past-lag tbody tr")
    expect(rows).to_have_count(count)
    expect(rows.first).to_contain_text("europe → north-america, mm2")
    page.locator("#plot-lag .u-over").hover()
    _, *lines = page.locator("#plot-lag .tip").inner_text().splitlines()
    assert len(lines) == count
    assert re.fullmatch(r"europe → north-america, mm2: [\d,]+ records", lines[0]), lines[0]
    page.locator("#plot-records-per-s .u-over").hover()
    assert re.search(r": [\d,.]+ records/s$", page.locator("#plot-records-per-s .tip").inner_text())
    assert reader.said == []
    page.context.close()


def with_an_outlier(lab: Running) -> None:
    """A quarter of an hour at rest, with one high value and a link that was cut."""
    kept, (flow, *_) = lab.app.state.context.last_hour, subjects(1)
    now = time.time()
    for step in range(90):
        kept.add(now - 900 + 10 * step, {flow: {"lag": 90_000.0 if step == 60 else 100.0}})
    kept.marks.observe(now - 400, {"link europe – north-america": "open"})
    kept.marks.observe(now - 300, {"link europe – north-america": "cut"})


def test_one_high_value_does_not_flatten_the_others_and_what_happened_is_marked(browser: Browser) -> None:
    with running(settings(*REGIONS)) as lab:
        with_an_outlier(lab)
        reader = person(browser, lab.url, "operator", PASSWORD, viewport={"width": 1400, "height": 900})
        reader.open("/charts?range=15m")
        page = reader.page
        expect(page.locator("#plot-lag canvas")).to_be_visible()
        expect(page.locator("#past-lag .cut")).to_contain_text("The scale ends at 150 records")
        expect(page.locator("#past-lag .cut")).to_contain_text("The highest value is 90,000 records")
        expect(page.locator(".happened li")).to_contain_text("link europe – north-america: cut")
        over = page.locator("#plot-lag .u-over")
        box = over.bounding_box()
        assert box
        # The newest sample is at the right edge, and the link was cut five minutes before it.
        over.hover(position={"x": box["width"] * (1 - 290 / 900), "y": box["height"] / 2})
        expect(page.locator("#plot-lag .tip")).to_contain_text("1. link europe – north-america: cut")
        page.get_by_role("link", name="Scale for every value").click()
        expect(page.locator("#plot-lag canvas")).to_be_visible()
        expect(page.locator(".cut")).to_have_count(0)
        expect(page.get_by_role("link", name="15 minutes")).to_have_attribute("aria-current", "true")
        assert reader.said == []
        page.context.close()


@pytest.mark.parametrize(("name", "points"), [("15m", 91), ("1h", POINTS), ("all", POINTS)])
def test_a_range_is_shown_and_its_stream_keeps_it(
    labs: dict[int, Running], browser: Browser, name: str, points: int
) -> None:
    reader = person(browser, labs[1].url, "operator", PASSWORD)
    reader.open(f"/charts?range={name}")
    page = reader.page
    plot = page.locator("#plot-lag")
    expect(plot.locator("canvas")).to_be_visible()
    with page.expect_event("console", lambda message: message.text == "came"):
        page.evaluate("document.getElementById('live').addEventListener('changed', () => console.log('came'))")
    shown = page.evaluate("JSON.parse(document.getElementById('plot-lag').dataset.points)[0].length")
    assert abs(shown - points) <= 3
    assert reader.said == []
    page.context.close()


def drag(page: Page, plot: str, begin: float, end: float) -> None:
    """Drags over a plot, from one share of its width to another."""
    over = page.locator(f"#{plot} .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=4)
    page.mouse.up()


def first_time(page: Page, plot: str) -> str:
    """The time of a plot's first point in sight, as its tip shows it."""
    page.locator(f"#{plot} .u-over").hover(position={"x": 1, "y": 20})
    return page.locator(f"#{plot} .tip").inner_text().splitlines()[0]


def test_what_is_dragged_over_is_shown_by_all_charts_and_stays_while_samples_arrive(browser: Browser) -> None:
    with running(settings(*REGIONS)) as lab:
        fill(lab.app.state.context.last_hour, 1)
        reader = person(browser, lab.url, "operator", PASSWORD, viewport={"width": 1280, "height": 900})
        reader.open("/charts?range=15m")
        page = reader.page
        expect(page.locator(".plot canvas")).to_have_count(len(MEASURES))
        whole, zoomed = first_time(page, "plot-lag-s"), page.locator("#zoomed")
        drag(page, "plot-lag", 0, 0.1)
        expect(zoomed).to_contain_text("the tables cover the whole range")
        shown = zoomed.inner_text()
        drag(page, "plot-lag", 0.25, 0.75)
        expect(zoomed).not_to_have_text(shown)
        shown = zoomed.inner_text()
        began = first_time(page, "plot-lag-s")
        assert began != whole, "a chart that was not dragged over shows the same part"
        # The range of a quarter of an hour leaves this part behind.
        lab.app.state.context.last_hour.add(time.time() + 600, {subjects(1)[0]: {"lag": 123456.0}})
        expect(page.locator("#past-lag tbody tr").first).to_contain_text("123,456")
        assert zoomed.inner_text() == shown
        assert first_time(page, "plot-lag-s") == began
        assert first_time(page, "plot-lag") == began
        page.locator("#plot-lag .u-over").dblclick()
        expect(zoomed).to_contain_text("Drag over a chart")
        assert first_time(page, "plot-lag") not in (whole, began)
        assert reader.said == []
        page.context.close()


@pytest.mark.parametrize("width", [1400, 390], ids=["desk", "phone"])
def test_the_keyboard_zooms_and_goes_back(labs: dict[int, Running], browser: Browser, width: int) -> None:
    reader = person(browser, labs[1].url, "operator", PASSWORD, viewport={"width": width, "height": 900})
    reader.open("/charts")
    page = reader.page
    zoomed, buttons = page.locator("#zoomed"), page.get_by_role("group", name="Zoom")
    seen = [zoomed.inner_text()]
    for name in ("Whole range", "Zoom in", "Zoom in", "Earlier", "Later", "Zoom out"):
        buttons.get_by_role("button", name=name).focus()
        page.keyboard.press("Enter")
        seen.append(zoomed.inner_text())
    hint, still, half, quarter, earlier, later, out = seen
    assert still == hint, "nothing is zoomed yet"
    assert len({hint, half, quarter, earlier}) == 4
    assert (later, out) == (quarter, half)
    answer = Axe().run(page)
    assert answer.response["violations"] == [], answer.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back = buttons.get_by_role("button", name="Whole range")
    back.focus()
    page.keyboard.press("Enter")
    expect(zoomed).to_have_text(hint)
    expect(back).to_be_focused()
    assert reader.said == []
    page.context.close()


def test_an_empty_lab_says_so(browser: Browser) -> None:
    # A lab of its own: a minute after its start there is a sample.
    with running(settings(*REGIONS)) as lab:
        reader = person(browser, lab.url, "operator", PASSWORD)
        reader.open("/charts")
        expect(reader.page.locator("#live")).to_contain_text("No sample was taken yet")
        assert reader.page.locator("canvas").count() == 0
        assert reader.said == []
        reader.page.context.close()


def test_the_first_page_names_all_that_it_needs(labs: dict[int, Running], browser: Browser) -> None:
    reader = person(browser, labs[1].url, "operator", PASSWORD)
    reader.open("/charts")
    expect(reader.page.locator(".plot canvas").first).to_be_visible()
    html = reader.page.request.get(reader.page.url).text()
    resources = reader.page.evaluate(
        "performance.getEntriesByType('resource').map(entry => new URL(entry.name).pathname)"
    )
    static = [path for path in resources if path.startswith("/static/")]
    assert "/static/vendor/uplot.js" in static
    assert [path for path in static if f'="{path}"' not in html] == []
    reader.page.context.close()


def test_a_new_sample_is_drawn_into_the_chart_that_is_there(labs: dict[int, Running], browser: Browser) -> None:
    reader = person(browser, labs[3].url, "operator", PASSWORD)
    reader.open("/charts")
    page = reader.page
    expect(page.locator(".plot canvas")).to_have_count(len(MEASURES))
    page.evaluate("document.querySelector('#plot-lag canvas').marked = true")
    before = page.locator("#plot-lag").get_attribute("data-points")
    flow = subjects(1)[0]
    labs[3].app.state.context.last_hour.add(time.time(), {flow: {"lag": 123456.0}})
    expect(page.locator("#past-lag tbody tr").first).to_contain_text("123,456")
    assert page.locator("#plot-lag").get_attribute("data-points") != before
    assert page.evaluate("document.querySelector('#plot-lag canvas').marked"), "the chart was made anew"
    assert reader.said == []
    page.context.close()


def test_colours_follow_the_reader_at_once(labs: dict[int, Running], browser: Browser) -> None:
    reader = person(browser, labs[1].url, "operator", PASSWORD, color_scheme="light")
    reader.open("/charts")
    page = reader.page
    expect(page.locator(".plot canvas")).to_have_count(len(MEASURES))
    light = coloured(page, 1)
    page.evaluate("document.querySelectorAll('canvas').forEach((canvas) => { canvas.className = 'light'; })")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("canvas.light")).to_have_count(0)
    dark = coloured(page, 1)
    assert dark != light
    assert dark in colours(page, "plot-lag")
    assert light not in colours(page, "plot-lag")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390], ids=["desk", "phone"])
@pytest.mark.parametrize("count", [0, 1, 6])
def test_everybody_can_read_it(labs: dict[int, Running], browser: Browser, count: int, width: int, scheme: str) -> None:
    reader = person(
        browser, labs[count].url, "operator", PASSWORD, viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    for path in ("/charts", "/charts?of=europe", "/charts?of=europe.LH.ORDERS"):
        reader.open(path)
        assert reader.page.evaluate("document.documentElement.scrollWidth") <= width, path
        answer = Axe().run(reader.page)
        assert answer.response["violations"] == [], f"{path}: {answer.generate_report()}"
    assert reader.said == []
    reader.page.context.close()
