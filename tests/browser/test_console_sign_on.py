"""Signing in without a password, as ``./lab open`` does it, and from one console to the next, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from loosehanger.cli.open_console import ONE_TIME, browser_address
from loosehanger.files import write_file
from loosehanger.lab.record import WebConsole
from loosehanger.signing.one_time import new_token, password_key, write_page
from tests.browser.conftest import PATIENCE_MS
from tests.consoles import PASSWORD, Running, running, settings

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def lab(home: Path) -> Iterator[dict[str, Running]]:
    """A control room and a region's console of one lab."""
    room = settings("europe", "north-america", lab_home=home)
    with running(room) as control_room, running(settings("europe", lab_home=home)) as europe:
        found = {"control-room": control_room, "europe": europe}
        consoles = [{"name": name, "url": one.url} for name, one in found.items()]
        write_file(home / "access" / "europe.json", json.dumps({"consoles": consoles}))
        yield found


def opened(browser: Browser, home: Path, url: str, **context: object) -> tuple[Page, list[str], Path]:
    """A browser that has opened the page of ``./lab open``; its complaints; and the page's file."""
    address = browser_address(WebConsole("control-room", url, "operator"))
    token = new_token(password_key("control-room", PASSWORD), "control-room")
    file = write_page(home, "control-room", address + ONE_TIME, token)
    page = browser.new_context(**context).new_page()  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE_MS)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    return page, said, file


def test_a_file_signs_in_and_a_click_leads_to_the_next_console(
    lab: dict[str, Running], home: Path, browser: Browser
) -> None:
    page, said, file = opened(browser, home, lab["control-room"].url)
    port, other = (lab[name].url.rpartition(":")[2] for name in ("control-room", "europe"))
    expect(page).to_have_url(f"http://control-room.localhost:{port}/")
    expect(page.get_by_role("heading", name="Control room")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Control room")).to_be_visible()
    page.get_by_text("Consoles", exact=True).click()
    page.get_by_role("button", name="europe").click()
    expect(page).to_have_url(f"http://europe.localhost:{other}/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert said == []
    page.goto(file.as_uri())
    expect(page.get_by_role("alert")).to_contain_text("used before, or is older than 30 seconds")
    assert "token" not in page.url
    page.context.close()


def test_without_scripts_buttons_do_it(lab: dict[str, Running], home: Path, browser: Browser) -> None:
    page, _, _ = opened(browser, home, lab["control-room"].url, java_script_enabled=False)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Control room")).to_be_visible()
    page.get_by_text("Consoles", exact=True).click()
    page.get_by_role("button", name="europe").click()
    page.get_by_role("button", name="Sign in to europe").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_token_is_made_shown_once_and_revoked(
    lab: dict[str, Running], home: Path, browser: Browser, width: int
) -> None:
    page, said, _ = opened(browser, home, lab["control-room"].url, viewport={"width": width, "height": 800})
    page.get_by_role("link", name="API", exact=True).click()
    name = f"report {width}"
    page.get_by_label("Name of the script").fill(name)
    page.get_by_role("button", name="Make a token").click()
    expect(page.get_by_text(re.compile("Authorization: Bearer lh_"))).to_be_visible()
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)  # Styles may come late.
    answer = Axe().run(page)
    assert answer.response["violations"] == [], answer.generate_report()
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.get_by_text(re.compile("Authorization: Bearer lh_"))).to_have_count(0)
    page.get_by_role("button", name=f"Revoke {name}").click()
    expect(page.get_by_text(f"The token '{name}' is revoked")).to_be_visible()
    assert said == []
    page.context.close()
