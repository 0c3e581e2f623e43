"""Connect's REST interface: who waits for a slow worker, and who does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import requests

from loosehanger.kafka.connect import ConnectClient, ConnectError, SlowError


class Session(requests.Session):
    """Answers after some failures."""

    failures: list[Exception]

    def request(self, method: str, url: str, **_: object) -> requests.Response:  # type: ignore[override]
        if self.failures:
            raise self.failures.pop()
        answer = requests.Response()
        answer.status_code, answer._content = 200, b'["' + f"{method} {url}".encode() + b'"]'
        return answer


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> ConnectClient:
    monkeypatch.setattr(requests, "Session", Session)
    return ConnectClient(("https://worker",), "operator", "secret", Path("ca.crt"))


def test_a_slow_worker_is_asked_again_by_who_is_patient(rest: ConnectClient) -> None:
    Session.failures = [requests.ReadTimeout(), requests.ConnectTimeout()]
    assert replace(rest, patient=True).call("GET", "/connectors") == ["GET https://worker/connectors"]
    Session.failures = [requests.ReadTimeout()]
    with pytest.raises(SlowError, match=r"no Connect worker answers at https://worker \(ReadTimeout\)"):
        rest.call("GET", "/connectors")


def test_a_worker_that_is_down_is_told_at_once(rest: ConnectClient) -> None:
    Session.failures = [requests.ConnectionError(), requests.ConnectionError()]
    with pytest.raises(ConnectError, match=r"no Connect worker answers at https://worker \(ConnectionError\)"):
        replace(rest, patient=True).call("GET", "/connectors")
    assert len(Session.failures) == 1


def test_another_worker_answers_for_one_that_is_down(rest: ConnectClient) -> None:
    Session.failures = [requests.ConnectionError()]
    found = replace(rest, urls=("https://down", "https://up/")).call("GET", "/connectors")
    assert found == ["GET https://up/connectors"]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [("Connector ab already exists", None), ("Cannot complete request momentarily due to rebalance", ConnectError)],
)
def test_a_connector_that_was_made_when_it_was_first_asked_for_is_made(
    said: str, outcome: type[Exception] | None, rest: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(_: Session, method: str, url: str, **options: object) -> requests.Response:
        asked.append((method, url, options["json"]))
        answer = requests.Response()
        answer.status_code, answer._content = 409, f'{{"error_code": 409, "message": "{said}"}}'.encode()
        return answer

    monkeypatch.setattr(Session, "request", refuse)
    impatient = replace(rest, rebalance_s=0)
    if outcome is None:
        impatient.make_stopped("ab", {"tasks.max": "1"})
    else:
        with pytest.raises(outcome, match="the worker group is rebalancing"):
            impatient.make_stopped("ab", {"tasks.max": "1"})
    body = {"name": "ab", "config": {"tasks.max": "1"}, "initial_state": "STOPPED"}
    assert asked == [("POST", "https://worker/connectors", body)]


@pytest.mark.parametrize("patience", [0, 5])
def test_a_worker_that_is_starting_has_not_answered(
    patience: float, rest: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its web server says of everything that it is not there, also of a connector."""
    bodies = [b"<html>\n<title>Error 404 Not Found</title>\n</html>", b'{"error_code": 404, "message": "No connector"}']

    def answer(*_: object, **__: object) -> requests.Response:
        found = requests.Response()
        found.status_code, found._content = 404, bodies.pop(0)
        return found

    monkeypatch.setattr(Session, "request", answer)
    asking = replace(rest, rebalance_s=patience)
    if patience:
        assert asking.status("ab") is None
        assert bodies == []
    else:
        with pytest.raises(ConnectError, match="the worker is starting; try again in a moment"):
            asking.status("ab")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error_code": 500, "message": "Request\\ntimed out"}', "500 Request timed out"),
        ("<html>\n<title>Error 404 Not Found</title>\n</html>", "500 Server Error"),
        ('["odd"]', '500 ["odd"]'),
        ("", "500"),
    ],
    ids=("Connect's own", "a page for browsers", "other JSON", "nothing"),
)
def test_what_connect_says_of_a_failure_is_one_line(
    body: str, said: str, rest: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> requests.Response:
        answer = requests.Response()
        answer.status_code, answer.reason, answer._content = 500, "Server Error", body.encode()
        return answer

    monkeypatch.setattr(Session, "request", fail)
    with pytest.raises(ConnectError) as error:
        rest.connectors()
    assert str(error.value).partition(": ")[2].partition(": ")[2].strip() == said
