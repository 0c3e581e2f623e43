"""Requests that never end: each has a deadline, and those who are not signed in leave room for those who are."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from loosehanger.console import server
from tests.consoles import Running, running, settings

PARTS = (
    b"",
    b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nusername=",
)


@pytest.fixture
def console() -> Iterator[Running]:
    with running(settings("europe")) as found:
        yield found


def begin(console: Running, part: bytes) -> socket.socket:
    """A connection with a part of a request."""
    address = urlsplit(console.url)
    assert address.hostname
    assert address.port
    client = socket.create_connection((address.hostname, address.port), timeout=120)
    client.sendall(part)
    return client


def wait_for_end(client: socket.socket) -> None:
    """Reads until the connection ends, either way; fails where it does not."""
    with suppress(ConnectionError):
        while client.recv(65536):
            pass


@pytest.mark.parametrize("part", PARTS, ids=["nothing", "a head", "a body"])
def test_a_request_that_does_not_end_has_a_deadline(
    console: Running, monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    with begin(console, part) as client:
        wait_for_end(client)


def test_a_second_request_has_a_deadline_too_and_an_answer_has_none(
    console: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    browser = console.browser()
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.get_dict().items())
    head = f"GET /events/views/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n"
    with begin(console, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as client:
        assert b"200 OK" in client.recv(4096)
        client.sendall(b"GET /health HTTP/1.1\r\n")
        wait_for_end(client)
    with begin(console, head.encode()) as stream:
        assert b"200 OK" in stream.recv(4096)
        stream.settimeout(2)
        # It is open beyond the deadline, whether or not something comes.
        try:
            while True:
                assert stream.recv(65536) != b"", "the stream was ended"
        except TimeoutError:
            pass


def test_half_requests_leave_room(console: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 600)
    monkeypatch.setattr(server, "MOST_STRANGERS", 10)
    browser = console.browser()
    assert browser.get("/api/topics").status_code == 200
    half = [begin(console, PARTS[1]) for _ in range(30)]
    try:
        assert browser.get("/api/topics").status_code == 200, "who is signed in keeps the connection"
        stranger = console.browser(signed_in=False)
        assert stranger.get("/sign-in").status_code == 200
        assert stranger.sign_in().status_code == 303
        wait_for_end(half[0])  # it makes room
    finally:
        for one in half:
            one.close()
