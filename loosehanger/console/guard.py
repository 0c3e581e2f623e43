"""Middleware that checks every request first.

It refuses foreign host names, changes from other sites and requests without a session, and adds the security headers
to every answer. A new path requires a session unless it is on the list of public paths.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loosehanger.console.api_tokens import ApiTokens
from loosehanger.console.neighbours import ONE_TIME
from loosehanger.console.problems import MEDIA_TYPE, problem_document
from loosehanger.console.settings import OPERATOR_OFF, Settings
from loosehanger.console.sign_in import LONGEST_DELAY_S, Attempts, Session, Sessions

PUBLIC = ("/sign-in", ONE_TIME, "/health")
PUBLIC_FOLDER = "/static/"
API, SESSION = "/api/", "/api/session"
METRICS = "/metrics"
"""The path that only the scraper's token opens, which opens nothing else."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MOST_BODY = 64 * 1024
UNCOUNTED = (*PUBLIC, "/sign-out")
MOST_CHANGES, MINUTE_S = 240, 60.0
"""Requests that change something in a minute, refused ones too, of all who are signed in together."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_HOW = "send a token of the page /scripts as Authorization: Bearer, or POST user and password to /sign-in"
_CHALLENGE = (("www-authenticate", "Bearer"),)


class Guard:
    """ASGI middleware; leaves the session in ``scope["state"]["session"]``.

    A script's token takes the place of a session, for the API alone. It is then in ``scope["state"]["api_token"]``.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, sessions: Sessions, tokens: ApiTokens, stopping: asyncio.Event
    ) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions
        self._tokens = tokens
        self._stopping = stopping
        self._attempts = Attempts()
        self._changes: deque[float] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers, path = Headers(scope=scope), scope["path"]
        closing = self._closing(path)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    found.setdefault(name, value)
                found.setdefault("cache-control", closing)
            await send(message)

        if not self._knows(headers.get("host", "")):
            await _refuse(
                answer,
                path,
                421,
                "this console is not known by that name; use the address in ./lab status --credentials",
            )
            return
        # A one-time token comes from a file, or from another console's page, whose Origin browsers send as null. It
        # opens a new session and reads no cookie, so another site's page gains nothing by posting there: it would need
        # a token, which follows from a key that only the lab's user can read.
        foreign = scope["method"] not in SAFE_METHODS and not _is_own(headers, self._settings.secure)
        if foreign and (scope["method"], path) != ("POST", ONE_TIME):
            await _refuse(answer, path, 403, "this change comes from another site's page")
            return
        if path == METRICS:
            await self._with_scraper_token(_bearer(headers) or "", scope, receive, answer)
            return
        if path.startswith(API) and (bearer := _bearer(headers)) is not None:
            await self._with_token(bearer, scope, receive, answer)
            return
        session = self._session(headers)
        if session is None and path not in PUBLIC and not path.startswith(PUBLIC_FOLDER):
            if path.startswith((API, "/events/")) or path == "/api":
                await _refuse(answer, path, 401, f"sign in first: {_HOW}", _CHALLENGE)
            else:
                query = scope["query_string"].decode("latin-1")
                wanted = quote(path + (f"?{query}" if query else ""), safe="")
                await _redirect(answer, f"/sign-in?next={wanted}" if path != "/" else "/sign-in")
            return
        scope.setdefault("state", {})["session"] = session
        await self._counted(scope, receive, answer)

    async def _counted(self, scope: Scope, receive: Receive, answer: Send) -> None:
        """Passes a request on, unless it is one of too many that change something."""
        path, now = scope["path"], time.monotonic()
        if scope["method"] not in SAFE_METHODS and path not in UNCOUNTED:
            while self._changes and now - self._changes[0] >= MINUTE_S:
                self._changes.popleft()
            if len(self._changes) >= MOST_CHANGES:
                reason = f"more than {MOST_CHANGES} requests for a change in a minute; wait a moment, and try again"
                await _refuse(answer, path, 429, reason, [("retry-after", str(round(MINUTE_S)))])
                return
            self._changes.append(now)
            # Of a body that no route reads, too.
            if _length(Headers(scope=scope)) > MOST_BODY:
                await _refuse(answer, path, 413, f"a request has at most {MOST_BODY:,} bytes")
                return
        await self._app(scope, receive, answer)

    async def _with_token(self, text: str, scope: Scope, receive: Receive, answer: Send) -> None:
        """Passes a script's request on, if its token is known and has the right for it."""
        path, token = scope["path"], self._tokens.find(text)
        if token is None:
            await self._refuse_token(answer, path, "this token is not known here; the page /scripts lists them")
            return
        if path == SESSION:
            await _refuse(answer, path, 403, "a token has no session; this path is for browsers")
            return
        if scope["method"] not in SAFE_METHODS and not (token.change and self._settings.operator):
            reason = f"the token '{token.name}' only reads"
            if token.change:
                reason = OPERATOR_OFF
            await _refuse(answer, path, 403, reason)
            return
        scope.setdefault("state", {}).update(session=token.session, api_token=token)
        await self._counted(scope, receive, answer)

    async def _with_scraper_token(self, text: str, scope: Scope, receive: Receive, answer: Send) -> None:
        """Passes a scraper's request on, if its token is right."""
        path, token = scope["path"], self._settings.metrics_token
        if not token:
            await _refuse(answer, path, 404, "this console has no metrics: set CONSOLE_METRICS_TOKEN_FILE")
        elif not hmac.compare_digest(text.encode("utf-8", "replace"), token.encode()):
            await self._refuse_token(answer, path, "the scraper's token is missing or wrong; run ./lab monitoring")
        else:
            await self._app(scope, receive, answer)

    async def _refuse_token(self, answer: Send, path: str, reason: str) -> None:
        """Refuses a wrong token, the later the more of them there were."""
        async with self._attempts.delay() as seconds:
            if seconds is None:
                later = [("retry-after", str(round(LONGEST_DELAY_S)))]
                await _refuse(answer, path, 429, "too many unknown tokens at once; try again in a moment", later)
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)
        await _refuse(answer, path, 401, reason, _CHALLENGE)

    def _session(self, headers: Headers) -> Session | None:
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self._sessions.cookie:
                return self._sessions.read(value)
        return None

    def _knows(self, host: str) -> bool:
        # http://[::1]:8080 has its colons in brackets.
        match = re.fullmatch(r"\[([0-9a-fA-F:.]+)\](?::\d+)?|([^:\[\]]+)(?::\d+)?", host)
        return bool(match) and (match[1] or match[2]).lower() in self._settings.host_names  # type: ignore[index]

    @staticmethod
    def _closing(path: str) -> str:
        # Browsers revalidate scripts and styles each time, and their ETag usually saves the transfer.
        return "no-cache" if path.startswith(PUBLIC_FOLDER) else "no-store"


def _is_own(headers: Headers, secure: bool) -> bool:
    """Whether a change comes from this console's own pages, or from a client without pages, such as curl."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False  # Not an address, such as http://[
        return (parts.scheme, parts.netloc) == ("https" if secure else "http", headers.get("host"))
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _length(headers: Headers) -> int:
    """How long a request's body says it is; 0 for one that does not say, which is counted while it is read."""
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def _bearer(headers: Headers) -> str | None:
    """The token of a request; None for a request that does not use one."""
    scheme, _, text = headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


async def _refuse(send: Send, path: str, status: int, reason: str, more: Sequence[tuple[str, str]] = ()) -> None:
    if path.startswith("/api"):
        body, kind = json.dumps(problem_document(status, reason)), MEDIA_TYPE
    else:
        body, kind = f"{reason}\n", "text/plain; charset=utf-8"
    await _send(send, status, body.encode(), [("content-type", kind), *more])


async def _redirect(send: Send, address: str) -> None:
    await _send(send, 303, b"", [("location", address)])


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    encoded.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
