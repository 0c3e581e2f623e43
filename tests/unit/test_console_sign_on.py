"""One-time sign-in to real consoles: from a file, and from one console of a lab to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from loosehanger.console import sign_in
from loosehanger.console.guard import POLICY
from loosehanger.files import write_file
from loosehanger.signing.one_time import VALID_S, lab_key, new_token, password_key
from tests.consoles import PASSWORD, Running, running, settings

ONCE = "/sign-in/once"
FROM_A_FILE = {"Origin": "null", "Sec-Fetch-Site": "cross-site"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@contextmanager
def a_lab(home: Path) -> Iterator[tuple[Running, Running]]:
    """Two consoles of one lab, which its record names."""
    room = settings("europe", "north-america", lab_home=home)
    with running(room) as control_room, running(settings("europe", lab_home=home)) as europe:
        consoles = [{"name": "europe", "url": europe.url}, {"name": "control-room", "url": control_room.url}]
        write_file(home / "access" / "europe.json", json.dumps({"consoles": consoles}))
        yield control_room, europe


@pytest.fixture(scope="module")
def lab(home: Path) -> Iterator[tuple[Running, Running]]:
    with a_lab(home) as found:
        yield found


@pytest.fixture(scope="module")
def alone() -> Iterator[Running]:
    """A console without a lab's home, as in a pod."""
    with running(settings("europe")) as found:
        yield found


def own(console: str = "europe") -> str:
    """A token as ``./lab open`` makes it."""
    return new_token(password_key(console, PASSWORD), console)


def test_a_file_signs_in_once_with_a_token(alone: Running) -> None:
    browser = alone.browser(signed_in=False)
    token = own()
    answer = browser.post(ONCE, data={"token": token}, headers=FROM_A_FILE)
    assert answer.status_code == 200, "browsers would follow a redirect without the new cookie"
    assert 'http-equiv="refresh" content="0; url=/"' in answer.text
    assert token not in answer.text
    assert {"httponly", "samesite=strict", "path=/"} <= {
        part.strip().lower() for part in answer.headers["set-cookie"].split(";")
    }
    assert browser.get("/api/topics").status_code == 200
    again = alone.browser(signed_in=False)
    answer = again.post(ONCE, data={"token": token}, headers=FROM_A_FILE)
    assert answer.status_code == 403
    assert "used before, or is older than 30 seconds" in answer.text
    assert "set-cookie" not in answer.headers
    assert again.get("/api/topics").status_code == 401


@pytest.mark.parametrize(
    "token",
    [
        "", "x", "a.b.c", "\0", "ä" * 300,
        new_token(password_key("europe", "another password"), "europe"),
        new_token(password_key("europe", PASSWORD), "control-room"),
        new_token(password_key("control-room", PASSWORD), "control-room"),
        new_token(password_key("europe", PASSWORD), "europe", lambda: 1.7e9),
        new_token(password_key("europe", PASSWORD), "europe", lambda: 9e9),
    ],
    ids=["none", "short", "dots", "null", "long", "password", "console", "other", "expired", "future"],
)  # fmt: skip
def test_no_other_token_signs_in(alone: Running, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "LONGEST_DELAY_S", 0.01)
    browser = alone.browser(signed_in=False)
    answer = browser.post(ONCE, data={"token": token}, headers=FROM_A_FILE)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_token_is_taken_from_a_form_alone(alone: Running) -> None:
    browser = alone.browser(signed_in=False)
    token = own()
    assert browser.post(f"{ONCE}?token={token}").status_code == 403
    assert browser.post(ONCE, json={"token": token}).status_code in (403, 422)
    assert browser.get(ONCE, params={"token": token}).status_code == 405
    assert browser.post(ONCE, data={"token": token * 1000}).status_code in (403, 413)
    assert browser.post(ONCE, data={"token": token}).status_code == 200, "and was not used by any of these"


def test_several_tokens_in_one_request_are_not_tried(alone: Running) -> None:
    tokens = [own(), "x"]
    assert alone.browser(signed_in=False).post(ONCE, data={"token": tokens}).status_code == 403
    assert alone.browser(signed_in=False).post(ONCE, data={"token": tokens[0]}).status_code == 200


def test_a_token_signs_in_nowhere_else(alone: Running) -> None:
    browser = alone.browser(signed_in=False)
    for path in ("/sign-in", f"{ONCE}/", "/sign-in/once/x", "/sign-in//once", "/sign-in/ONCE"):
        answer = browser.post(path, data={"token": own()}, headers=FROM_A_FILE)
        assert answer.status_code == 403, path
        assert "another site" in answer.text
    assert browser.put(ONCE, data={"token": own()}, headers=FROM_A_FILE).status_code == 403
    assert browser.post(ONCE, data={"token": own()}, headers={"Host": "evil.example"}).status_code == 421


def test_wrong_tokens_are_slowed_down_and_delay_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "LONGEST_DELAY_S", 0.01)
    monkeypatch.setattr(sign_in, "MOST_DELAYED", 0)
    with running(settings("europe")) as found:
        browser = found.browser(signed_in=False)
        statuses = [browser.post(ONCE, data={"token": "x"}).status_code for _ in range(6)]
        assert statuses == [403] * 3 + [429] * 3
        assert int(browser.post(ONCE, data={"token": "x"}).headers["retry-after"]) > 0
        assert browser.sign_in(password="wrong").status_code == 403
        assert browser.post(ONCE, data={"token": own()}).status_code == 200, "the right one is not delayed"


def test_signed_in_at_one_console_is_signed_in_at_the_next(lab: tuple[Running, Running]) -> None:
    control_room, europe = lab
    browser = control_room.browser()
    page = browser.get("/topics").text
    assert 'formaction="/consoles/europe"' in page
    assert 'formaction="/consoles/control-room"' not in page, "this one"
    answer = browser.post("/consoles/europe", data={"csrf": browser.token()})
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == POLICY.replace(
        "form-action 'self'", f"form-action {europe.url}"
    )
    assert "location" not in answer.headers
    action, token = _form(answer.text)
    assert action == europe.url + ONCE
    visitor = europe.browser(signed_in=False)
    assert visitor.post(ONCE, data={"token": token}, headers=FROM_A_FILE).status_code == 200
    assert visitor.get("/api/session").json()["console"] == "europe"
    assert visitor.post(ONCE, data={"token": token}).status_code == 403, "once"
    assert control_room.browser(signed_in=False).post(ONCE, data={"token": token}).status_code == 403, "and there only"


def test_the_host_name_stays_of_its_kind(lab: tuple[Running, Running]) -> None:
    control_room, europe = lab
    port, other = (found.url.rpartition(":")[2] for found in (control_room, europe))
    browser = control_room.browser()
    data, cookies = {"csrf": browser.token()}, browser.cookies.get_dict()
    kept = "; ".join(f"{name}={value}" for name, value in cookies.items())
    for host, expected in (
        ("localhost", "localhost"),
        ("control-room.localhost", "europe.localhost"),
        ("[::1]", "[::1]"),
    ):
        answer = browser.post("/consoles/europe", data=data, headers={"Host": f"{host}:{port}", "Cookie": kept})
        assert _form(answer.text)[0] == f"http://{expected}:{other}{ONCE}"
        assert f"form-action http://{expected}:{other};" in answer.headers["content-security-policy"]


def test_going_on_needs_a_session_and_the_pages_token(lab: tuple[Running, Running]) -> None:
    control_room, _ = lab
    stranger, browser = control_room.browser(signed_in=False), control_room.browser()
    assert stranger.post("/consoles/europe").headers["location"].startswith("/sign-in")
    assert browser.post("/consoles/europe").status_code == 403
    assert browser.post("/consoles/europe", data={"csrf": "wrong"}).status_code == 403
    right = {"csrf": browser.token()}
    assert browser.post("/consoles/europe", data=right, headers={"Origin": "https://evil.example"}).status_code == 403
    for name in ("asia", "control-room"):
        answer = browser.post(f"/consoles/{name}", data=right)
        assert answer.status_code == 404
        assert f"no other console &#39;{name}&#39;" in answer.text
    assert browser.post("/consoles/evil.example%2F", data=right).status_code in (404, 422)


def test_a_console_alone_offers_no_other(alone: Running) -> None:
    browser = alone.browser()
    assert "/consoles/" not in browser.get("/topics").text
    assert browser.post("/consoles/control-room", data={"csrf": browser.token()}).status_code == 404


def test_a_key_that_others_can_read_signs_nobody_in(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with a_lab(home) as (control_room, europe):
        browser = control_room.browser()
        token = new_token(lab_key(home), "europe")
        path = home / "access" / "sign-in.key"
        path.chmod(0o644)
        try:
            assert europe.browser(signed_in=False).post(ONCE, data={"token": token}).status_code == 403
            assert "/consoles/" not in browser.get("/topics").text
            answer = europe.browser(signed_in=False).post(ONCE, data={"token": own()})
            assert answer.status_code == 200, "its own key is not concerned"
        finally:
            path.chmod(0o600)
    assert "one-time sign-in between consoles is off" in capfd.readouterr().err


def test_consoles_appear_and_go_with_the_record(tmp_path: Path) -> None:
    with a_lab(tmp_path) as (control_room, _):
        browser = control_room.browser()
        assert "/consoles/europe" in browser.get("/topics").text
        (tmp_path / "access" / "europe.json").write_text("not JSON")
        assert "/consoles/" not in browser.get("/topics").text
        more = {"consoles": [{"name": "asia", "url": "http://127.0.0.1:1"}]}
        write_file(tmp_path / "access" / "asia.json", json.dumps(more))
        assert "/consoles/asia" in browser.get("/topics").text
    assert VALID_S == 30, "as the pages say"


def _form(page: str) -> tuple[str, str]:
    """Where the page posts to, and its token."""
    action, token = re.search(r'action="(http[^"]+)"', page), re.search(r'name="token" value="([^"]+)"', page)
    assert action
    assert token
    return action[1], token[1]


def test_in_pods_consoles_with_one_password_sign_in_to_each_other() -> None:
    room = settings("europe", "north-america", shared_password=True)
    with running(settings("europe", shared_password=True)) as europe:
        neighbours = {"europe": europe.url, "asia": europe.url}
        with running(replace(room, neighbours=neighbours)) as control_room:
            browser = control_room.browser()
            assert ">europe</button>" in browser.get("/topics").text
            answer = browser.post("/consoles/europe", data={"csrf": browser.token()})
            assert answer.status_code == 200
            found = re.search(r'action="([^"]+)"[^>]*>.*?name="token" value="([^"]+)"', answer.text, re.DOTALL)
            assert found
            assert found[1] == europe.url + ONCE
            there = europe.browser(signed_in=False)
            assert there.post(ONCE, data={"token": found[2]}, headers=FROM_A_FILE).status_code == 200
            assert there.get("/api/topics").status_code == 200
            assert there.post(ONCE, data={"token": found[2]}, headers=FROM_A_FILE).status_code == 403, "once"


def test_in_pods_consoles_with_passwords_of_their_own_do_not_lead_to_each_other() -> None:
    alone = replace(settings("europe"), neighbours={"control-room": "http://127.0.0.1:8081"})
    with running(alone) as europe:
        browser = europe.browser()
        assert "Consoles" not in browser.get("/topics").text
        assert browser.post("/consoles/control-room", data={"csrf": browser.token()}).status_code == 404
