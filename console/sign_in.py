"""Signing in: one user with a generated password, sessions in a signed cookie, and a limit on guessing."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from itsdangerous import BadData, URLSafeTimedSerializer

MOST_ENDED = 10_000
MOST_CLIENTS = 1_000


@dataclass(frozen=True)
class Session:
    """Somebody who signed in."""

    user: str
    identity: str
    csrf_token: str
    """What every change has to bring along: another site's page cannot know it."""
    expires: float
    """Seconds since the epoch."""


class Sessions:
    """Opens, recognises and ends sessions.

    The signing key comes from the password, so that a console that starts again still knows its sessions, and a new
    password ends them all.

    Args:
        console: its name; each console on a host has its own cookie, for cookies know no ports.
        username: who may sign in.
        password: with what.
        seconds: how long a session lasts.
        clock: seconds since the epoch.
    """

    def __init__(
        self, console: str, username: str, password: str, seconds: int, clock: Callable[[], float] = time.time
    ) -> None:
        self.cookie = f"session-{console}"
        self.seconds = seconds
        self._clock = clock
        self._username = username.encode()
        self._password = password.encode()
        self._key = hmac.digest(self._password, b"sessions of " + console.encode(), "sha256")
        self._serializer = URLSafeTimedSerializer(
            self._key, salt="session", signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256}
        )
        self._ended: OrderedDict[str, None] = OrderedDict()

    def accepts(self, username: str, password: str) -> bool:
        """Whether user and password are right; takes equally long either way."""
        right_name = hmac.compare_digest(username.encode("utf-8", "replace"), self._username)
        right_password = hmac.compare_digest(password.encode("utf-8", "replace"), self._password)
        return right_name and right_password

    def open(self) -> str:
        """Opens a session; returns the cookie's value."""
        text: str = self._serializer.dumps(
            {"id": secrets.token_urlsafe(16), "until": int(self._clock() + self.seconds)}
        )
        return text

    def read(self, cookie: str | None) -> Session | None:
        """The session of a cookie; None when there is none, or it is expired, ended or forged."""
        if not cookie:
            return None
        try:
            content = self._serializer.loads(cookie)
            identity, until = str(content["id"]), float(content["until"])
        except (BadData, KeyError, TypeError, ValueError):
            return None
        if until <= self._clock() or identity in self._ended:
            return None
        token = hmac.digest(self._key, b"csrf " + identity.encode(), "sha256").hex()
        return Session(self._username.decode(), identity, token, until)

    def end(self, session: Session) -> None:
        """Ends a session, wherever its cookie may still be."""
        self._ended[session.identity] = None
        while len(self._ended) > MOST_ENDED:
            self._ended.popitem(last=False)


class Attempts:
    """Limits wrong passwords: so many a minute from one address, and in all.

    Memory is bounded: of very many addresses, the oldest are forgotten, and the limit for all still holds.

    Args:
        each: how many a minute from one address.
        all_: how many a minute together.
        clock: seconds that only go forward.
    """

    def __init__(self, each: int = 10, all_: int = 60, clock: Callable[[], float] = time.monotonic) -> None:
        self._each, self._all, self._clock = each, all_, clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._total: list[float] = []

    def wait_s(self, client: str) -> int:
        """How many seconds this client has to wait; 0 when it may try."""
        now = self._clock()
        own = _young(self._failures.get(client, []), now)
        self._total = _young(self._total, now)
        waits = [times[-limit] + 60 - now for times, limit in ((own, self._each), (self._total, self._all))
                 if len(times) >= limit]  # fmt: skip
        return max(1, round(max(waits))) if waits else 0

    def failed(self, client: str) -> None:
        """Counts a wrong password."""
        now = self._clock()
        self._failures[client] = [*_young(self._failures.pop(client, []), now), now][-self._each :]
        self._total = [*_young(self._total, now), now][-self._all :]
        while len(self._failures) > MOST_CLIENTS:
            self._failures.popitem(last=False)


def _young(times: list[float], now: float) -> list[float]:
    return [at for at in times if now - at < 60]
