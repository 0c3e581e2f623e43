"""The page of a room of learners, over TLS in a real browser."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from loosehanger.console.__main__ import listen
from loosehanger.learn.progress import Attempt, Learner
from loosehanger.learn.reporting import join
from loosehanger.room.credentials import room_credentials
from loosehanger.room.reports import Room
from loosehanger.room.server import RoomServer

pytestmark = pytest.mark.browser


def test_the_person_in_front_sees_who_is_stuck_as_it_happens(browser: Browser, tmp_path: Path) -> None:
    credentials = room_credentials(tmp_path / "front", "127.0.0.1")
    listener = listen("127.0.0.1", 0)
    server = RoomServer(credentials, Room())
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    address = f"https://127.0.0.1:{listener.getsockname()[1]}"
    said: list[str] = []
    try:
        schemes: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (375, "dark"))
        for width, scheme in schemes:
            page = browser.new_context(
                ignore_https_errors=True, viewport={"width": width, "height": 800}, color_scheme=scheme,
                http_credentials={"username": "room", "password": credentials.password},
            ).new_page()  # fmt: skip
            page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
            page.goto(address)
            learner = Learner("03-broadcast/3", {"03-broadcast/2": Attempt(started=1.0, done=61.0, checks=1)})
            learner.steps["03-broadcast/3"] = Attempt(started=time.time(), checks=4, said="mm2-sa has the 30 seconds")
            join(tmp_path / scheme, f"{address}/{credentials.invitation.code}", f"Kim {scheme}", learner)
            row = page.locator("tbody tr", has_text=f"Kim {scheme}").first
            expect(row).to_contain_text("seems stuck")
            expect(row).to_contain_text("mm2-sa has the 30 seconds")
            expect(page.get_by_role("region", name="Exercises")).to_contain_text("03-broadcast/2")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            answer = Axe().run(page)
            assert answer.response["violations"] == [], answer.generate_report()
            page.context.close()
    finally:
        server.stop()
        thread.join(timeout=15)
        listener.close()
    assert said == []
