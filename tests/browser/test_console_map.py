"""The control room's map in a browser, with one flow, three, six and none, one of them about to lose records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from loosehanger.console.models import Flow, Flows, RegionState
from loosehanger.files import write_file
from loosehanger.lab.progress import Progress
from tests.browser.people import person
from tests.consoles import PASSWORD, Running, running, settings

pytestmark = pytest.mark.browser

REGIONS = ("europe", "north-america", "south-america")
PAIRS = [(source, target) for source in REGIONS for target in REGIONS if source != target]


def flows(count: int) -> Flows:
    """So many flows, of which the last may lose records soon."""
    return Flows(
        problems=[],
        regions=[
            RegionState(name=name, health="good", explanation="", brokers=1, topics=5, partitions=10,
                        records_per_s=1234.0, bytes_per_s=5e6)
            for name in REGIONS
        ],
        flows=[
            Flow(source=source, target=target, mirror="mm2", records_per_s=1234.5, bytes_per_s=5e6,
                 lag=0 if number else 12345, lag_s=None if number else 90.0, loss_in_s=None if number else 45.0,
                 endangered=not number, latency_ms_p50=12, latency_ms_p99=1234,
                 health="good" if number else "warning", explanation="" if number else "LH.ORDERS: 12,345 behind")
            for number, (source, target) in reversed(list(enumerate(PAIRS[:count])))
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Running]]:
    """Control rooms of labs with so many flows."""
    home: Path = tmp_path_factory.mktemp("home")
    write_file(home / "access" / "lab.json", Progress("08-active-active", "local", "i", stage="setup").text)
    with ExitStack() as stack:
        found = {count: stack.enter_context(running(settings(*REGIONS, lab_home=home))) for count in (0, 1, 3, 6)}
        for count, lab in found.items():

            async def reported(count: int = count) -> Flows:
                return flows(count)

            lab.service.all_flows = reported  # type: ignore[method-assign]
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390], ids=["desk", "phone"])
@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_every_flow_can_be_read(
    labs: dict[int, Running], browser: Browser, count: int, width: int, scheme: str
) -> None:
    reader = person(
        browser, labs[count].url, "operator", PASSWORD, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    reader.open("/")
    page = reader.page
    expect(page.locator(".setting")).to_have_text("Scenario 08-active-active, stage setup, on the platform local")
    expect(page.locator(".map .flow")).to_have_count(count)
    if count:
        row = page.locator("tr[data-flow]", has_text=" → ".join(PAIRS[0]))
        expect(row).to_contain_text("12,345")
        expect(row).to_contain_text("45 s")
        expect(page.locator(".map .label .warns")).to_have_text("time to loss: 45 s")
        warning = page.locator("#live .problem").first.bounding_box()
        assert warning
        assert warning["y"] + warning["height"] < 900, "the warning is not within the first screen"
        table, map_ = page.locator("#live .scroll").first.bounding_box(), page.locator("figure.map").bounding_box()
        assert table
        assert map_
        assert (table["y"] < map_["y"]) == (width < 640), "on a phone the numbers come first"
        assert page.locator(".map .flow .head").count() == count
    boxes = [label.bounding_box() for label in page.locator(".map .label rect").all() if label.is_visible()]
    assert len(boxes) == (count if width > 640 else 0)
    for one, other in combinations(filter(None, boxes), 2):
        apart = (
            one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
        )  # fmt: skip
        assert apart, "one label lies on another"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    answer = Axe().run(page)
    assert answer.response["violations"] == [], answer.generate_report()
    assert reader.said == []
    page.context.close()


def test_the_map_leads_by_keyboard_to_a_flows_mirror_and_to_a_region(
    labs: dict[int, Running], browser: Browser
) -> None:
    reader = person(browser, labs[1].url, "operator", PASSWORD, viewport={"width": 1400, "height": 900})
    reader.open("/")
    page = reader.page
    page.get_by_role("link", name="mm2, which copies from europe to north-america").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/mirrors#mirror-north_2d_america-mm2")
    expect(page.locator(":target")).to_contain_text("mm2")
    reader.open("/")
    page.locator(".map .region a", has_text="south-america").click()
    page.wait_for_url("**/charts?of=south-america")
    assert reader.said == []
    page.context.close()
