"""The control room's links: what its map and its API show of a real relay, and the changes that people make there."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loosehanger.console.live import Live
from loosehanger.console.settings import ConnectAccess
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.retention_risk import TopicRisk
from tests.consoles import Browser, Running, running, settings

from .test_relay import Link, Server, echo, received

LINK = "/api/links/europe/north-america"
BOTH = "europe both north-america"


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
    """A user of the control room."""
    with running(settings("europe", "north-america", lab_home=tmp_path, operator=True)) as console:
        yield console.browser()


def page(browser: Browser) -> str:
    """What the map says, without its markup: it may come a moment after the page."""
    return " ".join(re.sub(r"<[^>]*>", " ", browser.view("map")).split())


def test_the_api_shows_and_changes_links(browser: Browser, link: Link) -> None:
    with link.connect() as client:
        client.sendall(bytes(1000))
        received(client, 1000)
    assert browser.change("PATCH", LINK, json={"delay": "80ms", "jitter": "5ms", "one_way": True}).status_code == 200
    answer = browser.change("PATCH", LINK, json={"rate": "20MB/s", "action": "silent"})
    assert answer.json() == {"said": "The link between europe and north-america is silent"}
    (shown,) = browser.get("/api/links").json()["links"]
    assert (shown["between"], shown["state"], shown["health"]) == (["europe", "north-america"], "silent", "warning")
    there, back = shown["directions"]
    assert (there["delay_ms"], there["jitter_ms"], there["bytes_per_s"], there["carried"]) == (80, 5, 20_000_000, 1000)
    assert (back["delay_ms"], back["bytes_per_s"], back["silent"]) == (0, 20_000_000, True)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        (LINK, {"delay": "80"}, 400, "has no unit"),
        (LINK, {"jitter": "1ms"}, 400, "more than the delay"),
        (LINK, {"action": "cut", "one_way": True}, 400, "only silent works one way"),
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
    assert "europe → north-america ✓ open unshaped 0 B" in shown
    assert "Silence … the link between europe and north-america" in shown
    for words in ({"delay": "120ms"}, {"action": "silent"}):
        answer = browser.post("/operate/link", data={"csrf": browser.token(), "ways": BOTH, **words})
        assert answer.status_code == 303
    assert "The link between europe and north-america is silent" in browser.get("/").text
    shown = page(browser)
    assert "link: silent, 120 ms" in shown
    assert "Heal … the link between europe and north-america" in shown
    link.process.terminate()
    link.process.wait()
    assert "it does not answer" in page(browser).lower().replace("the link does", "it does")
    link.start()


@pytest.fixture
def beyond(tmp_path: Path, link: Link) -> Iterator[Running]:
    """A control room that reaches North America, and the mirror there, through the link."""
    here, there = settings("europe", "north-america", lab_home=tmp_path).regions
    address = f"127.0.0.1:{link.port}"
    access = ConnectAccess("mm2", (f"https://{address}",))
    there = replace(there, connection=Connection((address,)), mirrors=(access,))
    given = settings("europe", "north-america", lab_home=tmp_path, regions=(here, there), operator=True)
    with running(given) as console:
        yield console


def change(browser: Browser, action: str) -> None:
    """Changes the link."""
    answer = browser.change("PATCH", LINK, json={"action": action})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("action", "state"), [("cut", "cut"), ("silent", "silent")])
def test_what_is_behind_a_closed_link_is_grey_and_not_asked(
    beyond: Running, monkeypatch: pytest.MonkeyPatch, action: str, state: str
) -> None:
    browser, region = beyond.browser(), beyond.service.regions["north-america"]
    waiting = TopicRisk("LH.ORDERS", 5, 90.0, None, "", None, None, endangered=False, gone=0, made_again=False)
    beyond.service.regions["europe"].losses.dangers = {"LH.ORDERS": waiting}
    mirror = region.mirrors["mm2"]
    (connector,) = asyncio.run(mirror.state()).connectors
    monkeypatch.setattr(mirror, "last", lambda: [connector])

    def health() -> tuple[set[str], set[str]]:
        reported = browser.get("/api/flows").json()
        return {flow["health"] for flow in reported["flows"]}, {one["health"] for one in reported["regions"]}

    assert health() == ({"good"}, {"good"})
    change(browser, action)

    async def asked(*_: object) -> None:
        pytest.fail("it was asked")

    with monkeypatch.context() as closed:
        for name in ("topics", "brokers", "groups", "settings", "change"):
            closed.setattr(region.cluster, name, asked)
        for name in ("state", "act"):
            closed.setattr(mirror, name, asked)
        reported = browser.get("/api/flows").json()
        (flow,) = reported["flows"]
        assert flow["health"] == "unknown"
        why = f"north-america's mirror mm2 is not reachable from here: the link is {state}"
        assert flow["explanation"] == f"{why}. Its lag is counted from its last known positions"
        assert (flow["lag"], flow["lag_s"]) == (5, 90), "what waits goes on to grow old"
        (there,) = [one for one in reported["regions"] if one["name"] == "north-america"]
        assert (there["health"], there["brokers"]) == ("unknown", None)
        assert there["explanation"] == f"north-america is not reachable from here: the link is {state}"
        (shown,) = browser.get("/api/mirrors").json()["mirrors"]
        assert (shown["health"], shown["explanation"]) == ("unknown", why)
        assert browser.get("/api/topics").json()["problems"] == [there["explanation"]]
        for path in ("/api/groups", "/api/brokers", "/api/search?topic=LH.ORDERS"):
            assert browser.get(path).json()["problems"] == [there["explanation"]], path
        answer = browser.change(
            "PATCH", "/api/regions/north-america/topics/LH.ORDERS/settings", json={"settings": {"retention.ms": "1"}}
        )
        assert (answer.status_code, answer.json()["detail"]) == (503, there["explanation"])
        answer = browser.change("POST", f"/api/regions/north-america/mirrors/mm2/connectors/{connector.name}/pause")
        assert (answer.status_code, answer.json()["detail"]) == (503, why)
        assert "down" not in page(browser)
    change(browser, "heal")
    assert health() == ({"good"}, {"good"})


def test_a_mirror_that_may_copy_on_beside_a_closed_link_has_no_lag_that_is_known(
    beyond: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, mirror = beyond.browser(), beyond.service.regions["north-america"].mirrors["mm2"]
    (connector,) = asyncio.run(mirror.state()).connectors
    monkeypatch.setattr(mirror, "last", lambda: [connector.model_copy(update={"lag": 5})])
    monkeypatch.setattr(beyond.service.reach, "between", lambda *_: "")
    change(browser, "cut")
    (flow,) = browser.get("/api/flows").json()["flows"]
    assert (flow["lag"], flow["lag_s"], flow["health"]) == (None, None, "unknown")
    assert flow["explanation"].endswith("Its lag is not known")


def test_a_source_behind_a_closed_link_keeps_what_waited(beyond: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, europe = beyond.browser(), beyond.service.regions["europe"]
    closed = "europe is not reachable from here: the link is cut"
    monkeypatch.setattr(beyond.service, "closed", lambda region, *_: closed if region == "europe" else "")
    monkeypatch.setattr(beyond.service.reach, "between", lambda *_: "cut")
    waited = TopicRisk("LH.ORDERS", 5, 90.0, None, "", None, None, endangered=False, gone=0, made_again=False)
    europe.losses._known["north-america/europe->here.MirrorSourceConnector"] = (time.monotonic() - 30, {"A": waited})
    (flow,) = browser.get("/api/flows").json()["flows"]
    assert flow["lag"] == 5
    assert flow["lag_s"] >= 120


def test_a_reader_ends_at_a_closed_link_and_begins_again_behind_it() -> None:
    closed, live = "", Live("europe", Connection(("127.0.0.1:1",)), lambda: closed)
    closed = "europe is not reachable from here: the link is cut"
    live.keep_going()
    assert (live.problem, live._thread) == (closed, None)
    closed = ""
    live.keep_going()
    thread = live._thread
    assert thread
    assert live.problem != "europe is not reachable from here: the link is cut"
    closed = "europe is not reachable from here: the link is silent"
    thread.join(60)
    assert not thread.is_alive()
    assert live.problem == closed
    live.close()


def test_without_a_lab_on_this_machine_there_are_no_links() -> None:
    with running(settings("europe", "north-america", operator=True)) as console:
        browser = console.browser()
        assert browser.get("/api/links").json() == {"links": []}
        assert browser.change("PATCH", LINK, json={"action": "cut"}).status_code == 404


@pytest.mark.usefixtures("link")
def test_a_links_form_sets_one_direction_and_a_distance(browser: Browser) -> None:
    page = browser.get("/").text
    assert "Frankfurt – Ashburn" in page
    assert "computed, not measured" in page
    form = {"ways": "europe to north-america", "jitter": "5ms", "rate": "20MB/s", "preset": "Frankfurt – Ashburn"}
    asked = browser.get("/confirm/link", params=form).text.split("/operate/link")[1]
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', asked))
    browser.post("/operate/link", data=fields)
    (link,) = browser.get("/api/links").json()["links"]
    ways = {(way["source"], way["target"]): way for way in link["directions"]}
    there, back = ways["europe", "north-america"], ways["north-america", "europe"]
    assert 40 < there["delay_ms"] < 50
    assert (there["jitter_ms"], there["bytes_per_s"]) == (5, 20e6)
    assert (back["delay_ms"], back["bytes_per_s"]) == (0, None)
    browser.post("/operate/link", data={"csrf": browser.token(), "ways": BOTH, "delay": "7ms"})
    (link,) = browser.get("/api/links").json()["links"]
    assert {way["delay_ms"] for way in link["directions"]} == {7}
