"""People in front of consoles."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.sync_api import Browser, Page, expect

from .conftest import PATIENCE_MS


@dataclass
class Person:
    """A user of a console, and what the browser complained about."""

    page: Page
    url: str
    said: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Opens a page, and waits until its data is there."""
        self.page.goto(self.url + path)
        expect(self.page.locator("main")).not_to_contain_text("Asking ")


def person(browser: Browser, url: str, username: str, password: str, **context: object) -> Person:
    """Signs in, as a person does."""
    page = browser.new_context(**context).new_page()  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE_MS)
    found = Person(page, url)
    page.on("console", lambda message: found.said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.goto(f"{url}/topics")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("User").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    return found
