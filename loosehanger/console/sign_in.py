"""Signing in: one user with a generated password, sessions in a signed cookie, and a delay for wrong passwords."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from itsdangerous import BadData, URLSafeTimedSerializer

MOST_ENDED = 10_000
MOST_CHECKED = 1000
"""Cookies whose signature was found to be right, and is not checked again."""
FREE_ATTEMPTS = 3
"""Wrong passwords a minute that are answered at once, so that a typing error costs no wait."""
LONGEST_DELAY_S = 5.0
JUDGED_A_SECOND = 20
"""Most passwords that are checked in a second, right or wrong."""
LONGEST_TURN_S = 30.0
"""The longest that a password waits to be checked: more than all connections that a console accepts take."""
MOST_DELAYED = 20
"""Most answers that are delayed at a time; each occupies a connection."""


@dataclass(frozen=True)
class Session:
    """A signed-in user's session."""

    user: str
    identity: str
    csrf_token: str
    """The token that every change must carry: another site's page cannot know it."""
    expires: float
    """Seconds since the epoch."""


class Sessions:
    """Opens, recognises and ends sessions.

    The signing key is derived from the password, so that sessions survive a restart of the console, and a new password
    ends them all.

    Ended sessions are remembered for as long as the program runs.

    Args:
        console: its name; each console on a host has its own cookie, since cookies ignore ports.
        username: who may sign in.
        password: the user's.
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
        self._checked: OrderedDict[str, Session] = OrderedDict()

    def accepts(self, username: str, password: str) -> bool:
        """Whether user and password are right, in constant time."""
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
        """The session of a cookie; None when it is missing, expired, ended or forged."""
        if not cookie:
            return None
        session = self._checked.get(cookie) or self._check(cookie)
        if session is None or session.expires <= self._clock() or session.identity in self._ended:
            return None
        return session

    def _check(self, cookie: str) -> Session | None:
        """The session of a cookie with the right signature, which may be over.

        Each open stream asks several times a second, and a signature lets other threads take the interpreter.
        """
        try:
            content = self._serializer.loads(cookie)
            identity, until = str(content["id"]), float(content["until"])
        except (BadData, KeyError, TypeError, ValueError):
            return None
        token = hmac.digest(self._key, b"csrf " + identity.encode(), "sha256").hex()
        session = self._checked[cookie] = Session(self._username.decode(), identity, token, until)
        while len(self._checked) > MOST_CHECKED:
            self._checked.popitem(last=False)
        return session

    def end(self, session: Session) -> None:
        """Ends a session, which invalidates every copy of its cookie until the program stops."""
        self._ended[session.identity] = None
        while len(self._ended) > MOST_ENDED:
            self._ended.popitem(last=False)


class Attempts:
    """Delays wrong passwords: the more of them in the last minute, the later each is answered.

    All clients count together, since the users of a machine share its address. No user can lock out another: passwords
    are checked in the order in which they arrive, and the answer to the right one is not delayed.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=100)
        self._delayed = 0
        self._next_turn = 0.0

    async def turn(self) -> bool:
        """Waits until a password may be checked; False where too many others wait already."""
        now = self._clock()
        # Turns that were not taken in the last second are kept.
        turn = max(self._next_turn, now - 1)
        if turn - now > LONGEST_TURN_S:
            return False
        self._next_turn = turn + 1 / JUDGED_A_SECOND
        await asyncio.sleep(max(turn - now, 0.0))  # its turn
        return True

    @asynccontextmanager
    async def delay(self) -> AsyncIterator[float | None]:
        """Counts a wrong password, and reserves a place among the delayed answers.

        Yields:
            The seconds by which to delay its answer; None where too many are delayed already.
        """
        seconds = self.failed()
        if seconds and self._delayed >= MOST_DELAYED:
            yield None
            return
        self._delayed += 1
        try:
            yield seconds
        finally:
            self._delayed -= 1

    def failed(self) -> float:
        """Counts a wrong password; returns the seconds by which to delay its answer."""
        now = self._clock()
        while self._failures and now - self._failures[0] >= 60:
            self._failures.popleft()
        self._failures.append(now)
        beyond = len(self._failures) - FREE_ATTEMPTS
        return 0.0 if beyond <= 0 else min(LONGEST_DELAY_S, 0.25 * 2.0 ** min(beyond, 10))
