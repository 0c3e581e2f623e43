"""The machine's browser, for all who open pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

PATIENCE_MS = 180_000
"""Bound of every wait for a page: these tests run beside labs, and must not fail because a machine is busy."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's Chromium, without a window.

    For one module, not the whole session: Playwright's event loop runs in the thread of the tests as long as the
    browser does, and no test that brings its own loop could follow.
    """
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)} is on the PATH")
    # Chromium does not sandbox itself for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
