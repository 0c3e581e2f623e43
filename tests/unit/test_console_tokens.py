"""Tokens for scripts: what they may do, where they are kept, and what an intruder gets; and the API's own page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.console import sign_in
from loosehanger.console.api_tokens import MOST_NAME, MOST_TOKENS, SAVE_S, ApiTokens
from loosehanger.console.description import openapi_document, operations
from loosehanger.console.problems import MEDIA_TYPE
from loosehanger.errors import LabError, WrongUseError
from tests.consoles import PASSWORD, Browser, Clock, Running, running, settings

RIGHT = "right"
CHANGE = "/api/regions/europe/topics/LH.ORDERS/settings"
SETTINGS = {"settings": {"retention.ms": "5000"}}


@pytest.fixture
def clock() -> Clock:
    return Clock()


def kept(path: Path | None, clock: Clock, secret: str = RIGHT) -> ApiTokens:
    """The tokens of a console that has just started."""
    return ApiTokens(path, "europe", secret, clock)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Europe's console, which may change things."""
    given = replace(settings("europe"), operator=True, lab_home=tmp_path_factory.mktemp("home"))
    with running(given) as found:
        yield found


def made(browser: Browser, name: str, rights: str = "read") -> str:
    """A token, from the page that shows it."""
    answer = browser.post("/scripts/tokens", data={"csrf": browser.token(), "name": name, "rights": rights})
    assert answer.status_code == 200, answer.text
    found = re.search(r"Authorization: Bearer (lh_[\w-]{43})<", answer.text)
    assert found
    return found[1]


def script(console: Running, token: str) -> Browser:
    """A script: no cookies, a token."""
    found = console.browser(signed_in=False)
    found.headers["Authorization"] = f"Bearer {token}"
    return found


def test_a_token_is_kept_as_a_hash_that_only_the_owner_can_read(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "artifacts" / "tokens.json"
    text = kept(path, clock).make("nightly  report ", change=False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert text not in path.read_text()
    assert text.removeprefix("lh_") not in path.read_text()
    again = kept(path, clock)
    found = again.find(text)
    assert found
    assert (found.name, found.change) == ("nightly report", False)


@pytest.mark.parametrize("text", ["", "lh_", "x", "lh_" + "a" * 43, "a" * 10_000, "\ud800", "lh_…"])
def test_what_is_no_token_is_not_found(clock: Clock, text: str) -> None:
    tokens = kept(None, clock)
    right = tokens.make("a", change=False)
    assert tokens.find(text) is None
    assert tokens.find(right[:-1]) is None
    assert tokens.find(right + "a") is None
    assert tokens.find(right)


def test_a_revoked_token_stays_revoked(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "tokens.json"
    tokens = kept(path, clock)
    one, other = tokens.make("one", change=False), tokens.make("other", change=True)
    tokens.revoke(tokens.all()[0].id)
    for found in (tokens, kept(path, clock)):
        assert found.find(one) is None
        assert found.find(other)
    with pytest.raises(WrongUseError, match="no such token"):
        tokens.revoke("0" * 16)


def test_another_password_or_console_ends_every_token(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "tokens.json"
    text = kept(path, clock).make("a", change=False)
    assert kept(path, clock, "new").all() == []
    assert ApiTokens(path, "asia", "right", clock).find(text) is None
    assert kept(path, clock).find(text)


@pytest.mark.parametrize("name", ["", "  ", "a" * (MOST_NAME + 1), "a\x1b[31m", "a\u202eb", "a\0"])
def test_a_name_must_be_one_to_show(clock: Clock, name: str) -> None:
    with pytest.raises(WrongUseError, match="needs a name"):
        kept(None, clock).make(name, change=False)


def test_names_are_unique_and_tokens_bounded(clock: Clock) -> None:
    tokens = kept(None, clock)
    for number in range(MOST_TOKENS):
        tokens.make(f"{number}", change=False)
    with pytest.raises(WrongUseError, match="a token '7' already"):
        tokens.make("7", change=False)
    with pytest.raises(WrongUseError, match=f"{MOST_TOKENS} tokens already"):
        tokens.make("more", change=False)


def test_the_last_use_is_saved_at_times(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "tokens.json"
    tokens = kept(path, clock)
    text = tokens.make("a", change=False)
    assert tokens.all()[0].last_used is None
    clock.now += SAVE_S - 1
    tokens.find(text)
    tokens.tidy()
    assert kept(path, clock).all()[0].last_used is None, "not yet"
    clock.now += 1
    tokens.tidy()
    assert kept(path, clock).all()[0].last_used == clock.now - 1
    tokens.find(text)
    tokens.close()
    assert kept(path, clock).all()[0].last_used == clock.now


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": 1, "tokens": 2}', "\xff"])
def test_a_file_that_cannot_be_read_makes_no_token_valid(
    tmp_path: Path, clock: Clock, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content, encoding="latin-1")
    assert kept(path, clock).all() == []
    assert "key" in content or "cannot be read" in capsys.readouterr().err


def test_a_token_that_cannot_be_saved_is_not_made(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").touch()
    tokens = kept(tmp_path / "file" / "tokens.json", clock)
    with pytest.raises((LabError, OSError)):
        tokens.make("a", change=False)
    assert tokens.all() == []


def test_a_token_reads_without_a_cookie(console: Running) -> None:
    browser = console.browser()
    reader = script(console, made(browser, "reader"))
    for path in ("/api/topics", "/api/groups", "/api/mirrors", "/api/openapi.json"):
        assert reader.get(path).status_code == 200, path
    page = browser.get("/scripts").text
    assert "reader" in page
    assert "lh_" not in page, "it is shown once"


def test_a_token_that_reads_changes_nothing(console: Running) -> None:
    browser = console.browser()
    reader = script(console, made(browser, "changes nothing"))
    answer = reader.patch(CHANGE, json=SETTINGS)
    assert (answer.status_code, answer.json()["detail"]) == (403, "the token 'changes nothing' only reads")
    answer = reader.patch(CHANGE, headers={"X-CSRF-Token": browser.token()}, json=SETTINGS)
    assert answer.status_code == 403, "another session's token makes no difference"
    reader.cookies.update(browser.cookies)
    assert reader.patch(CHANGE, headers={"X-CSRF-Token": browser.token()}, json=SETTINGS).status_code == 403


def test_a_token_that_may_change_needs_no_other(console: Running) -> None:
    writer = script(console, made(console.browser(), "writer", "change"))
    assert writer.patch(CHANGE, json=SETTINGS).status_code == 200
    (change,) = [one for one in writer.get("/api/changes").json()["changes"] if one["action"] == "change settings"]
    assert change["user"] == "token writer"
    answer = writer.patch(CHANGE, headers={"Origin": "https://evil.example"}, json=SETTINGS)
    assert answer.status_code == 403, "no page of another site"


def test_a_token_opens_no_page_and_makes_no_token(console: Running) -> None:
    writer = script(console, made(console.browser(), "no page", "change"))
    for path in ("/", "/topics", "/scripts"):
        assert writer.get(path).headers["location"].startswith("/sign-in"), path
    for path in ("/events/views/topics", "/api"):
        assert writer.get(path).status_code == 401, path
    assert writer.get("/api/session").status_code == 403
    assert writer.post("/scripts/tokens", data={"name": "more"}).status_code == 303
    assert writer.post("/sign-out").status_code == 303


def test_a_revoked_token_is_refused_at_once(console: Running) -> None:
    browser = console.browser()
    reader = script(console, made(browser, "revoked"))
    assert reader.get("/api/topics").status_code == 200
    (identity,) = [token.id for token in console.app.state.context.tokens.all() if token.name == "revoked"]
    path = f"/scripts/tokens/{identity}/revoke"
    assert browser.post(path).status_code == 403, "without the page's token"
    assert browser.post(path, data={"csrf": browser.token()}).headers["location"] == "/scripts"
    assert "&#39;revoked&#39; is revoked" in browser.get("/scripts").text
    answer = reader.get("/api/topics")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    browser.post(path, data={"csrf": browser.token()})
    assert "there is no such token" in browser.get("/scripts").text


def test_a_console_that_changes_nothing_makes_no_token_that_does(tmp_path: Path) -> None:
    given = replace(settings("europe"), lab_home=tmp_path)
    with running(replace(given, operator=True)) as found:
        writer = made(found.browser(), "writer", "change")
    with running(given) as found:
        browser = found.browser()
        page = browser.get("/scripts").text
        assert '<option value="change">' not in page
        form = {"csrf": browser.token(), "name": "w", "rights": "change"}
        answer = browser.post("/scripts/tokens", data=form)
        assert answer.status_code == 403
        assert "console_operator=true" in answer.text
        assert "Bearer lh_" not in answer.text
        of_before = script(found, writer)
        assert of_before.get("/api/topics").status_code == 200
        answer = of_before.patch(CHANGE, json=SETTINGS)
        assert answer.status_code == 403
        assert "console_operator=true" in answer.json()["detail"]


@pytest.mark.parametrize("form", [{"name": ""}, {"name": "a" * 61}, {"name": "a\u202eb"}, {"name": "a" * 10_000},
                                  {"name": "x", "rights": "all"}])  # fmt: skip
def test_a_wrong_form_makes_no_token(console: Running, form: dict[str, str]) -> None:
    browser = console.browser()
    before = len(console.app.state.context.tokens.all())
    answer = browser.post("/scripts/tokens", data={"csrf": browser.token(), **form})
    assert answer.status_code in (400, 422)
    assert len(console.app.state.context.tokens.all()) == before
    assert browser.post("/scripts/tokens", data={"name": "forged"}).status_code == 403


def test_guessed_tokens_are_slowed_down_and_delay_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "LONGEST_DELAY_S", 0.01)
    monkeypatch.setattr(sign_in, "MOST_DELAYED", 0)
    with running(settings("europe")) as console:
        right = script(console, made(console.browser(), "right"))
        guesser = script(console, "lh_guess")
        statuses = [guesser.get("/api/topics").status_code for _ in range(6)]
        assert statuses == [401] * 3 + [429] * 3
        assert right.get("/api/topics").status_code == 200
        assert console.browser().get("/api/topics").status_code == 200


@pytest.mark.parametrize(
    "value", ["Bearer", "Bearer ", "bearer x", "Bearer " + "x" * 9000, "Bearer a b", "Bearer \xff"]
)
def test_a_strange_header_is_no_token_even_beside_a_session(
    console: Running, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "LONGEST_DELAY_S", 0.01)
    answer = console.browser().get("/api/topics", headers={"Authorization": value.encode("latin-1")})
    assert answer.status_code == 401
    basic = console.browser(signed_in=False).get("/api/topics", headers={"Authorization": "Basic eDp5"})
    assert basic.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "title"),
    [
        ("GET", "/api/nothing", {}, 404, "Not Found"),
        ("GET", "/api/topics/LH.NONE", {}, 404, "Not Found"),
        ("GET", "/api/messages?limit=0", {}, 422, "Unprocessable"),
        ("PUT", "/api/topics", {}, 405, "Method Not Allowed"),
        ("PATCH", CHANGE, {"json": SETTINGS}, 403, "Forbidden"),
        ("GET", "/api/search?since=never", {}, 400, "Bad Request"),
        ("GET", "/api/topics", {"headers": {"Host": "evil.example"}}, 421, "Misdirected Request"),
    ],
)
def test_an_error_is_a_problem_document(
    console: Running, method: str, path: str, more: dict[str, Any], status: int, title: str
) -> None:
    answer = console.browser().request(method, path, **more)
    assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA_TYPE)
    found = answer.json()
    assert (found["type"], found["status"]) == ("about:blank", status)
    assert found["title"].startswith(title)
    assert isinstance(found["detail"], str)
    assert ("errors" in found) == (status == 422)


def test_an_error_says_what_is_wrong_with_which_parameter(console: Running) -> None:
    found = console.browser().get("/api/messages?limit=0").json()
    assert found["detail"].startswith("Invalid request: limit: ")
    assert [(one["type"], one["loc"]) for one in found["errors"]] == [("greater_than_equal", ["query", "limit"])]


def test_the_page_has_every_operation_and_needs_no_other_host(console: Running) -> None:
    page = console.browser().get("/scripts").text
    document = openapi_document(console.app)
    found = operations(document)
    assert len(found) > 10
    for one in found:
        assert f"<code>{one.method} {one.path}</code>" in page
        assert one.answers, one.path
    for name in document["components"]["schemas"]:
        assert f"<code>{name}</code>" in page
    assert f"curl -H @token {console.url}/api/topics" in page
    assert "https://" not in page
    assert json.dumps(document)
    errors = document["paths"]["/api/topics"]["get"]["responses"]["401"]["content"]
    assert list(errors) == [MEDIA_TYPE]
    assert PASSWORD not in page
