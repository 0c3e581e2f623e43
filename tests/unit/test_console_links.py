"""The control room's links: what its map and its API show of a real relay, and the changes that people make there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.consoles import Browser, running, settings

from .test_relay import Link, Server, echo, received

LINK = "/api/links/europe/north-america"


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Link]:
    """The relay of a lab, where the control room looks for it."""
    folder = tmp_path / "regions" / "europe" / "links" / "north-america"
    folder.mkdir(parents=True)
    server = Server(echo)
    link = Link(folder, server.port, between=("europe", "north-america"))
    try:
        yield link
    finally:
        link.close()
        server.close()


@pytest.fixture
def browser(tmp_path: Path, link: Link) -> Iterator[Browser]:  # noqa: ARG001 - the link that it sees
    """Somebody in front of the control room."""
    with running(settings("europe", "north-america", lab_home=tmp_path)) as console:
        yield console.browser()


def page(browser: Browser) -> str:
    """What the map says, without its markup: it may come a moment after the page."""
    html = browser.get("/events/views/map", stream=True)
    lines = []
    for line in html.iter_lines(decode_unicode=True):
        lines.append(line)
        if not line and any(previous.startswith("data:") for previous in lines):
            break
    html.close()
    data = "".join(json.loads(line[5:]) for line in lines if line.startswith("data:"))
    return " ".join(re.sub(r"<[^>]*>", " ", data).split())


def test_the_api_shows_and_changes_links(browser: Browser, link: Link) -> None:
    with link.connect() as client:
        client.sendall(bytes(1000))
        received(client, 1000)
    assert browser.change("PATCH", LINK, json={"delay": "80ms", "jitter": "5ms", "one_way": True}).status_code == 200
    answer = browser.change("PATCH", LINK, json={"rate": "20MB/s", "action": "silent"})
    assert answer.json() == {"said": "The link between europe and north-america is silent"}
    (told,) = browser.get("/api/links").json()["links"]
    assert (told["between"], told["state"], told["health"]) == (["europe", "north-america"], "silent", "warning")
    there, back = told["directions"]
    assert (there["delay_ms"], there["jitter_ms"], there["bytes_per_s"], there["carried"]) == (80, 5, 20_000_000, 1000)
    assert (back["delay_ms"], back["bytes_per_s"], back["silent"]) == (0, 20_000_000, True)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        (LINK, {"delay": "80"}, 400, "has no unit"),
        (LINK, {"jitter": "1ms"}, 400, "more than the delay"),
        (LINK, {"action": "cut", "one_way": True}, 400, "one alone can be silent"),
        (LINK, {"action": "break"}, 422, ""),
        ("/api/links/europe/south-america", {"action": "cut"}, 404, "no link between europe and south-america"),
    ],
)
def test_what_cannot_be_changed_is_refused(
    browser: Browser, path: str, body: dict[str, object], status: int, reason: str
) -> None:
    answer = browser.change("PATCH", path, json=body)
    assert answer.status_code == status
    assert reason in str(answer.json()["detail"])


def test_the_map_has_links_with_what_they_do_and_buttons(browser: Browser, link: Link) -> None:
    shown = page(browser)
    assert "europe → north-america ✓ open nothing 0 B" in shown
    assert "Silence the link between europe and north-america" in shown
    for words in ("delay=120ms", "action=silent"):
        answer = browser.post(f"/links/europe/north-america?{words}", data={"csrf": browser.token()})
        assert answer.status_code == 303
    assert "The link between europe and north-america is silent" in browser.get("/").text
    shown = page(browser)
    assert "link: silent, 120 ms" in shown
    assert "Heal the link between europe and north-america" in shown
    browser.post("/links/europe/north-america?action=explode", data={"csrf": browser.token()})
    assert "nothing that a link can do" in browser.get("/").text
    link.process.terminate()
    link.process.wait()
    assert "it does not answer" in page(browser).lower().replace("the link does", "it does")
    link.start()


def test_without_a_lab_on_this_machine_there_are_no_links() -> None:
    with running(settings("europe", "north-america")) as console:
        browser = console.browser()
        assert browser.get("/api/links").json() == {"links": []}
        assert browser.change("PATCH", LINK, json={"action": "cut"}).status_code == 404
