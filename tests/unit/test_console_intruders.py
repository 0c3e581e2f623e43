"""Every route that changes something, as the application lists them, under the requests of an intruder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from starlette.routing import Route

from loosehanger.console import guard
from loosehanger.console.app import create_app
from loosehanger.console.guard import MOST_BODY, PUBLIC, SAFE_METHODS
from loosehanger.console.neighbours import ONE_TIME
from loosehanger.console.sign_in import Session
from tests.consoles import Browser, MadeUpService, Running, running, settings
from tests.made_up_admin import MadeUpAdmin

GIVEN = settings("europe", "north-america", operator=True)
NAMES = {
    "region": "europe", "topic": "LH.ORDERS", "mirror": "mm2", "action": "pause", "one": "europe",
    "other": "north-america", "name": "proof", "identity": "a1b2", "connector": "x", "partition": "0", "offset": "1",
}  # fmt: skip


def routes() -> list[tuple[str, str]]:
    """Method and path of each route that may change something, those that open a session left out."""
    app = create_app(GIVEN, MadeUpService(GIVEN))
    found = {
        (method, route.path)
        for route in _flat(app.routes)
        for method in (route.methods or ())
        if method not in SAFE_METHODS and route.path not in (*PUBLIC, ONE_TIME)
    }
    return sorted(found)


def _flat(found: Any) -> Iterator[Route]:
    for route in found:
        if isinstance(route, Route):
            yield route
        else:
            yield from _flat(
                getattr(route, "routes", ()) or getattr(getattr(route, "original_router", None), "routes", ())
            )


ROUTES = routes()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The control room, which has every route and may change."""
    home: Path = tmp_path_factory.mktemp("home")
    with running(settings("europe", "north-america", operator=True, lab_home=home)) as found:
        for region in found.service.regions.values():
            region.cluster.admin = MadeUpAdmin({"LH.ORDERS": [(0, 9)]}, {"group": {}})
        yield found


@pytest.fixture(scope="module")
def reading_token(console: Running) -> str:
    """A script's, which only reads."""
    made: str = console.app.state.context.tokens.make("only reads", change=False)
    return made


@pytest.fixture(autouse=True)
def untouched(console: Running) -> Iterator[None]:
    """Whatever the intruder sends, nothing is changed."""
    yield
    assert [region.cluster.admin.changes for region in console.service.regions.values()] == [[], []]
    assert {region.cluster.config["retention.ms"] for region in console.service.regions.values()} == {"1000"}


def sent(browser: requests.Session, method: str, path: str, **more: Any) -> requests.Response:
    """The answer to a request with plausible fields."""
    filled = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: NAMES.get(found[1], "x"), path)
    return browser.request(method, filled, **more)


def test_there_are_routes_to_attack() -> None:
    assert len(ROUTES) > 25
    assert ("PATCH", "/api/regions/{region}/topics/{topic}/settings") in ROUTES
    assert ("POST", "/sign-out") in ROUTES


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_an_intruder_changes_nothing(console: Running, reading_token: str, method: str, path: str) -> None:
    stranger, signed_in = Browser(console.url), console.browser()
    answer = sent(stranger, method, path)
    assert answer.status_code == 401 or answer.headers["location"].startswith("/sign-in"), "without a session"
    assert sent(signed_in, method, path).status_code == 403, "without the session's token"
    token = signed_in.token()
    forged = {"X-CSRF-Token": f"{token[:-1]}{'0' if token[-1] != '0' else '1'}"}
    assert sent(signed_in, method, path, headers=forged, data={"csrf": forged["X-CSRF-Token"]}).status_code == 403
    foreign = {"X-CSRF-Token": token, "Origin": "https://evil.example"}
    assert sent(signed_in, method, path, headers=foreign, data={"csrf": token}).status_code == 403, "another site's"
    large = {"csrf": token, "value": "x" * (MOST_BODY + 1)}
    assert sent(signed_in, method, path, headers={"X-CSRF-Token": token}, data=large).status_code == 413, "too long"
    found: Session | None = console.app.state.context.sessions.read(next(iter(signed_in.cookies)).value)
    assert found is not None, "and the session is as it was"
    if path.startswith("/api/"):
        reader = Browser(console.url)
        reader.headers["Authorization"] = f"Bearer {reading_token}"
        assert sent(reader, method, path).status_code == 403, "with a token that reads"


def test_a_flood_is_refused_and_who_only_looks_is_not(console: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_CHANGES", 0)
    browser = console.browser()
    answer = browser.change("PATCH", "/api/regions/europe/topics/LH.ORDERS/settings", json={"settings": {"a": "1"}})
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/problem+json")
    assert "retry-after" in answer.headers
    assert browser.get("/api/topics").status_code == 200
    assert browser.post("/sign-out", data={"csrf": browser.token()}).status_code == 303
