"""The page in a real browser: at a desk and on a phone, by day and by night."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from loosehanger.proof.report.files import write
from loosehanger.proof.report.page import render
from tests import samples

pytestmark = pytest.mark.browser

WIDTHS = {"desk": 1280, "phone": 375}


@dataclass
class Opened:
    """A page, and what happened while it opened."""

    page: Page
    said: list[str] = field(default_factory=list)
    """Console messages and errors."""
    asked: list[str] = field(default_factory=list)
    """Whatever was asked of the network."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page for each verdict."""
    folder = tmp_path_factory.mktemp("report")
    proved = [samples.flow(target=target) for target in ("north-america", "south-america")]
    undecided = ("mirror mm2-north-america is STOPPED, 5 records behind",)
    pages = {
        "proved": render(samples.proof(*proved), samples.aggregates(), samples.signed()),
        "disproved": render(samples.broken_proof(), samples.aggregates()),
        "inconclusive": render(samples.proof(*proved, verdict="inconclusive", reasons=undecided), {}),
    }
    for name, text in pages.items():
        write(folder / f"{name}.html", text)
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture(scope="module", params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Which colours the reader prefers."""
    return str(request.param)


@pytest.fixture(scope="module", params=WIDTHS)
def width(request: pytest.FixtureRequest) -> int:
    """Of the window, in pixels."""
    return WIDTHS[request.param]


@pytest.fixture(scope="module", params=["proved", "disproved", "inconclusive"])
def opened(
    request: pytest.FixtureRequest, browser: Browser, files: dict[str, Path], scheme: Any, width: int
) -> Iterator[Opened]:
    """The page of a verdict, with everything that can be opened open."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    opened = Opened(page)
    page.on("console", lambda message: opened.said.append(message.text))
    page.on("pageerror", lambda error: opened.said.append(str(error)))
    page.on("request", lambda asked: opened.asked.append(asked.url))
    page.goto(files[request.param].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    yield opened
    context.close()


def test_it_opens_quietly_and_asks_for_nothing(opened: Opened) -> None:
    assert opened.said == []
    assert [address for address in opened.asked if not address.startswith("data:")] == [opened.page.url]
    assert opened.page.url.startswith("file:")


def test_it_fits_the_window(opened: Opened, width: int) -> None:
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    outside = opened.page.evaluate(
        """width => [...document.querySelectorAll('body *')].filter(element =>
             element.getBoundingClientRect().right > width + 0.5 && !element.closest('.scroll, .unseen, thead'))
             .map(element => element.outerHTML.slice(0, 200))""",
        width,
    )
    assert outside == []


def test_text_is_large_enough(opened: Opened) -> None:
    smallest = opened.page.evaluate(
        """() => Math.min(...[...document.querySelectorAll('body *')]
             .filter(element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
             .filter(element => !element.closest('title, desc, .unseen, thead'))
             .map(element => parseFloat(getComputedStyle(element).fontSize)
                  * (element.closest('svg') ? element.getScreenCTM().a : 1)))"""
    )
    assert smallest >= 8.5


def test_colours_follow_the_reader(opened: Opened, scheme: str) -> None:
    brightness = "element => getComputedStyle(element).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    page = sum(opened.page.eval_on_selector("body", brightness))
    assert page < 150 if scheme == "dark" else page > 600


def test_charts_have_the_pages_colours_and_font(browser: Browser, files: dict[str, Path]) -> None:
    fills = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(files["proved"].as_uri())
        found = page.eval_on_selector_all(
            ".chart svg :is(path, text)", "elements => elements.map(element => getComputedStyle(element).fill)"
        )
        fonts = page.eval_on_selector_all(
            "body, .chart text", "elements => elements.map(element => getComputedStyle(element).fontFamily)"
        )
        assert len(set(fonts)) == 1
        fills.append({fill for fill in found if fill != "none"})
        context.close()
    light, dark = fills
    assert len(light) >= 4
    assert not light & dark
    assert "rgb(0, 0, 0)" not in light | dark


def test_everybody_can_read_it(opened: Opened) -> None:
    found = Axe().run(opened.page)
    assert found.response["violations"] == [], found.generate_report()
    # Axe leaves it to us whether a sign stands out from its background; that does not matter for mere decoration.
    undecided = [node["html"] for entry in found.response["incomplete"] for node in entry["nodes"]]
    assert [html for html in undecided if 'aria-hidden="true"' not in html] == []
