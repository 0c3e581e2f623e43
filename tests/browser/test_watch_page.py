"""The status page of ``mirrorproof watch`` in a real browser: at a desk and on a phone, by day and by night."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from loosehanger.audit.metrics import AuditMetrics, MetricsServer
from loosehanger.audit.status_page import StatusPage
from tests.unit.test_audit_metrics import TOKEN, flow
from tests.unit.test_flow_watch import RISK, watched

pytestmark = pytest.mark.browser

WIDTHS = {"desk": 1280, "phone": 375}


def disproved() -> dict[str, Any]:
    found = watched(problems=["new: the cluster does not answer"], findings=[])
    others = [flow(topic=f"a-topic-of-a-long-name.{number}", loss=RISK, altered=2) for number in range(20)]
    return {**found, "flows": [*found["flows"], *others]}


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest) -> int:
    return WIDTHS[request.param]


@pytest.fixture
def served(browser: Browser, width: int, scheme: Any) -> Iterator[tuple[Page, AuditMetrics, list[str]]]:
    """The page before its first round, its metrics, and what the browser said and asked for."""
    metrics = AuditMetrics(5)
    with MetricsServer(metrics, ("127.0.0.1", 0), TOKEN, {"/": StatusPage(metrics).answer}) as server:
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            http_credentials={"username": "any", "password": TOKEN},
        )
        page, said = context.new_page(), list[str]()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        address = f"http://127.0.0.1:{server.port}/"
        page.on("request", lambda asked: said.append(asked.url) if asked.url != address else None)
        page.goto(address)
        yield page, metrics, said
        context.close()


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_follows_the_rounds_and_everybody_can_read_it(
    served: tuple[Page, AuditMetrics, list[str]], width: int
) -> None:
    page, metrics, said = served
    assert page.get_by_role("heading", level=1).inner_text().endswith("Starting")
    assert Axe().run(page).response["violations"] == []
    list(metrics.following([disproved()]))
    # Without a click: the page asks for the next round by itself.
    expect(page.get_by_role("rowheader", name="a-topic-of-a-long-name.19")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    found = Axe().run(page)
    assert found.response["violations"] == [], found.generate_report()
    assert [one for one in said if not one.startswith("data:")] == []
