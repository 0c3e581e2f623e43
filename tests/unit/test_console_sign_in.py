"""Who is let in, for how long, and how often one may guess."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest

from loosehanger.console.cluster import ClusterView
from loosehanger.console.sign_in import (
    FREE_ATTEMPTS,
    JUDGED_A_SECOND,
    LONGEST_DELAY_S,
    LONGEST_TURN_S,
    MOST_DELAYED,
    MOST_ENDED,
    Attempts,
    Sessions,
)
from loosehanger.errors import UnreachableError
from loosehanger.kafka.connection import Connection
from tests.consoles import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions("europe", "operator", "right", 60, clock)


def test_so_many_passwords_are_judged_a_second_and_no_more(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(round(seconds, 3))

    monkeypatch.setattr("loosehanger.console.sign_in.asyncio.sleep", sleep)
    attempts = Attempts(clock)

    async def run() -> list[bool]:
        return [await attempts.turn() for _ in range(1000)]

    judged = asyncio.run(run())
    assert waited[: JUDGED_A_SECOND + 1] == [0.0] * (JUDGED_A_SECOND + 1)
    assert waited[JUDGED_A_SECOND + 20] == 1.0, "as many as come in a second, from then on"
    assert max(waited) <= LONGEST_TURN_S
    assert len(waited) == sum(judged) < 1000, "the others are not judged at all"
    waited.clear()
    clock.now += 2 * LONGEST_TURN_S
    assert asyncio.run(attempts.turn())
    assert waited == [0.0]


@pytest.mark.parametrize(
    ("user", "password", "right"),
    [
        ("operator", "right", True),
        ("operator", "wrong", False),
        ("operator", "", False),
        ("stranger", "right", False),
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


def test_wrong_passwords_wait_the_longer_the_more_there_were_in_a_minute(clock: Clock) -> None:
    attempts = Attempts(clock)
    delays = [attempts.failed() for _ in range(1000)]
    assert delays[:FREE_ATTEMPTS] == [0] * FREE_ATTEMPTS
    assert delays[FREE_ATTEMPTS : FREE_ATTEMPTS + 4] == [0.5, 1, 2, 4]
    assert set(delays[FREE_ATTEMPTS + 4 :]) == {LONGEST_DELAY_S}
    assert len(attempts._failures) <= 100, "memory is bounded"
    clock.now += 61
    assert attempts.failed() == 0


def test_so_many_answers_wait_at_a_time_and_no_more(clock: Clock) -> None:
    async def run() -> tuple[list[float | None], list[float | None]]:
        attempts = Attempts(clock)
        for _ in range(50):
            attempts.failed()
        async with AsyncExitStack() as stack:
            at_once = [await stack.enter_async_context(attempts.delay()) for _ in range(MOST_DELAYED + 2)]
        async with attempts.delay() as later:
            return at_once, [later]

    at_once, later = asyncio.run(run())
    assert at_once == [LONGEST_DELAY_S] * MOST_DELAYED + [None, None]
    assert later == [LONGEST_DELAY_S]


def test_a_cluster_is_connected_to_ahead_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterView("europe", Connection(("127.0.0.1:1",)))
    asked, answer = threading.Semaphore(0), threading.Semaphore(0)
    tries = 0

    def refuse() -> None:
        nonlocal tries
        tries += 1
        asked.release()
        answer.acquire()
        raise UnreachableError("down")

    monkeypatch.setattr(cluster, "_connect", refuse)
    try:
        for _ in range(12):
            cluster.warm()
        assert asked.acquire(timeout=5)
        answer.release(12)
        assert cluster._warming
        cluster._warming.result(timeout=5)
        assert tries == 1
        cluster.warm()
        assert asked.acquire(timeout=5)
    finally:
        answer.release(12)
        cluster.close()
    assert tries == 2
