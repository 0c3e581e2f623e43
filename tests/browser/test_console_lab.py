"""A learner does exercises in the control room's page of the lab, in a real browser; the clusters are made up.

What ``./lab learn`` answers is made up where a real lab would be needed; tests/lab/test_learn.py asks real ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from loosehanger.console.learning import Learning, LearnOutcome
from loosehanger.learn.progress import Attempt, Learner
from tests.browser.people import person
from tests.consoles import PASSWORD, Running, running, settings

pytestmark = pytest.mark.browser

LAB = "03-broadcast"
DESCRIPTIONS = ("LH.ORDERS keeps its records for an hour in Europe", "Both copies have followed")


class MadeUpLab:
    """A lab whose topic a learner changes."""

    def __init__(self, home: Path) -> None:
        self.home, self.changed = home, False
        self.learner = Learner()
        self.pause = 0.0

    async def answer(self, words: tuple[str, ...], outcome: LearnOutcome) -> tuple[int, bytes]:
        """Does what ``./lab learn`` does, to a lab that is not there."""
        action, exercise = words[1:3]
        step = self.learner.steps.setdefault(exercise, Attempt())
        for line in ("Bringing the lab to where it should be", "Settings follow from the source to its copies"):
            outcome.said(line)
            await asyncio.sleep(self.pause)  # what a reader of its output sees come
        document: dict[str, object] = {"id": exercise}
        if action == "hint":
            step.hints += 1
        elif action == "solve":
            self.changed = step.solved = True
            document["did"] = [
                {"why": "Settings follow", "what": "./lab topic set europe LH.ORDERS retention.ms=3600000"}
            ]
        elif action == "check":
            step.checks += 1
            step.done = step.done or float(self.changed)
            message = "" if self.changed else "In europe, retention.ms of LH.ORDERS is unset; an hour is 3600000."
            document["holds"] = self.changed
            document["conditions"] = [
                {"description": one, "holds": self.changed, "message": message} for one in DESCRIPTIONS
            ]
        else:
            step.started = 1.0
        self.learner.write(self.home)
        return int(not self.changed), json.dumps(document).encode()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpLab:
    """It takes the place of ``./lab learn``."""
    found = MadeUpLab(tmp_path)

    async def kit(_: Learning, words: tuple[str, ...], outcome: LearnOutcome) -> tuple[int, bytes]:
        return await found.answer(words, outcome)

    monkeypatch.setattr(Learning, "_kit", kit)
    return found


@pytest.fixture
def room(lab: MadeUpLab) -> Iterator[Running]:
    """A control room that may change the lab."""
    with running(settings("europe", "north-america", "south-america", lab_home=lab.home, operator=True)) as found:
        yield found


def test_a_learner_does_an_exercise_with_the_keyboard(room: Running, lab: MadeUpLab, browser: Browser) -> None:
    reader = person(browser, room.url, "operator", PASSWORD, viewport={"width": 1300, "height": 800})
    page = reader.page
    reader.open("/scenario")
    page.get_by_role("link", name="2. Change a topic in Europe").first.click()
    expect(page.get_by_role("heading", name="Exercise 2: not begun")).to_be_visible()
    page.wait_for_load_state()  # Before the page's script runs, the same button leads to the place of the answer.
    check = page.get_by_role("button", name="Check", exact=True)
    check.focus()
    page.keyboard.press("Enter")
    result = page.locator(".outcome")
    expect(result).to_contain_text("Not yet: 0 of 2")
    expect(result).to_contain_text("retention.ms of LH.ORDERS is unset")
    assert result.get_attribute("role") == "status"
    assert page.url.endswith("?exercise=2"), "the reader stays where they are"
    expect(check).to_be_focused()
    for key in ("Tab", "Enter"):
        page.keyboard.press(key)
    expect(page.locator(".hints")).to_contain_text("there is one place to change")
    lab.pause = 1.0
    page.get_by_role("button", name="Solve").click()
    expect(page.locator(".output")).to_contain_text("Bringing the lab")
    expect(page.get_by_role("heading", name="Solution: running")).to_be_visible()
    expect(page.locator(".output")).to_contain_text("Settings follow from the source")
    expect(result).to_contain_text("Check judges it")
    lab.pause = 0.0
    check.click()
    expect(result).to_contain_text("Done: 2 of 2")
    expect(page.get_by_role("heading", name="1 of 8 exercises done")).to_be_visible()
    expect(page.get_by_role("heading", name="Exercise 2: solved for you")).to_be_visible()
    watched = page.get_by_role("link", name="the topic in all regions")
    assert watched.get_attribute("href") == "/topics/LH.ORDERS"
    assert reader.said == []
    page.context.close()


def test_a_command_is_copied_with_one_click_and_run_with_another(room: Running, browser: Browser) -> None:
    reader = person(browser, room.url, "operator", PASSWORD, permissions=["clipboard-read", "clipboard-write"])
    page = reader.page
    reader.open("/scenario?exercise=2")
    command = page.locator(".command", has_text="retention.ms=7200000")
    command.get_by_role("button", name="Copy").click()
    expect(command.get_by_role("button", name="Copied")).to_be_visible()
    expect(page.locator("#said")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "./lab topic set north-america LH.ORDERS retention.ms=7200000"
    command.get_by_role("button", name="Run").click()
    # A real command, and a real answer: the made-up lab is not set up.
    expect(page.locator(".outcome")).to_contain_text("Exit code 3")
    expect(page.locator(".output")).to_contain_text("nothing is set up")
    assert reader.said == []
    page.context.close()


def test_the_page_works_without_scripts(room: Running, browser: Browser) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(f"{room.url}/sign-in?next=/scenario%3Fexercise%3D2")
    page.get_by_label("User").fill("operator")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Check", exact=True).click()
    for _ in range(100):
        if page.locator(".outcome").get_by_text("Not yet").count():
            break
        page.reload()
    expect(page.locator(".outcome")).to_contain_text("Not yet: 0 of 2")
    assert page.get_by_role("button", name="Copy").count() == 0
    page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")], ids=["desk", "phone"])
def test_everybody_can_read_the_lab(room: Running, lab: MadeUpLab, browser: Browser, width: int, scheme: str) -> None:
    reader = person(
        browser, room.url, "operator", PASSWORD, viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    page = reader.page
    assert not lab.changed
    for path in ("/scenario", "/scenario?exercise=1", "/scenario?exercise=8", "/scenario?exercise=2",
                 "/scenario/document?path=docs/links.md"):  # fmt: skip
        reader.open(path)
        if path.endswith("2"):
            page.get_by_role("button", name="Hint").click()
            expect(page.locator(".hints")).to_be_visible()
            page.get_by_role("button", name="Check", exact=True).click()
            expect(page.locator(".outcome")).to_contain_text("Not yet")
        page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        answer = Axe().run(page)
        assert answer.response["violations"] == [], f"{path}: {answer.generate_report()}"
    assert reader.said == []
    page.context.close()
