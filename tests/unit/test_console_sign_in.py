"""Who is let in, for how long, and how often one may guess."""

from __future__ import annotations

import pytest

from console.sign_in import MOST_CLIENTS, MOST_ENDED, Attempts, Sessions


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions("europe", "operator", "right", 60, clock)


@pytest.mark.parametrize(
    ("user", "password", "right"),
    [
        ("operator", "right", True),
        ("operator", "wrong", False),
        ("operator", "", False),
        ("somebody", "right", False),
        ("", "", False),
        ("operator", "right\0", False),
        ("operator", "\ud800", False),
    ],
)
def test_only_the_right_user_with_the_right_password_is_accepted(
    sessions: Sessions, user: str, password: str, right: bool
) -> None:
    assert sessions.accepts(user, password) is right


def test_a_session_is_known_until_it_expires(sessions: Sessions, clock: Clock) -> None:
    cookie = sessions.open()
    session = sessions.read(cookie)
    assert session
    assert (session.user, session.expires) == ("operator", clock.now + 60)
    clock.now += 59
    assert sessions.read(cookie)
    clock.now += 1
    assert sessions.read(cookie) is None


def test_every_session_has_a_token_of_its_own(sessions: Sessions) -> None:
    tokens = {session.csrf_token for _ in range(3) if (session := sessions.read(sessions.open()))}
    assert len(tokens) == 3


def test_an_ended_session_stays_ended(sessions: Sessions) -> None:
    cookie, other = sessions.open(), sessions.open()
    session = sessions.read(cookie)
    assert session
    sessions.end(session)
    assert sessions.read(cookie) is None
    assert sessions.read(other)


@pytest.mark.parametrize("forged", ["", "x", "e30.x.y", "…", "a" * 10_000])
def test_what_is_not_its_own_cookie_is_nobody(sessions: Sessions, forged: str) -> None:
    assert sessions.read(forged) is None


def test_a_changed_cookie_is_nobody(sessions: Sessions) -> None:
    cookie = sessions.open()
    assert sessions.read(cookie[:-2] + ("AA" if cookie[-2:] != "AA" else "BB")) is None


def test_neither_another_consoles_nor_another_passwords_sessions_are_known(sessions: Sessions, clock: Clock) -> None:
    cookie = sessions.open()
    assert Sessions("europe", "operator", "right", 60, clock).read(cookie)
    assert Sessions("control-room", "operator", "right", 60, clock).read(cookie) is None
    assert Sessions("europe", "operator", "new", 60, clock).read(cookie) is None


def test_ended_sessions_take_bounded_memory(sessions: Sessions) -> None:
    for _ in range(MOST_ENDED + 10):
        session = sessions.read(sessions.open())
        assert session
        sessions.end(session)
    assert len(sessions._ended) == MOST_ENDED


def test_guessing_is_slowed_down_for_one_address_only(clock: Clock) -> None:
    attempts = Attempts(each=3, all_=100, clock=clock)
    for _ in range(3):
        assert attempts.wait_s("a") == 0
        attempts.failed("a")
    assert attempts.wait_s("a") == 60
    assert attempts.wait_s("b") == 0
    clock.now += 59.5
    assert attempts.wait_s("a") == 1
    clock.now += 1
    assert attempts.wait_s("a") == 0


def test_guessing_from_many_addresses_is_slowed_down_as_well_and_takes_bounded_memory(clock: Clock) -> None:
    attempts = Attempts(each=3, all_=50, clock=clock)
    for number in range(MOST_CLIENTS * 2):
        attempts.failed(f"address {number}")
    assert attempts.wait_s("a new one") > 0
    assert len(attempts._failures) == MOST_CLIENTS
    assert len(attempts._total) == 50
