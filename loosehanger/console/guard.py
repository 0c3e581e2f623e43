"""Middleware that checks every request first.

It refuses foreign host names, changes from other sites and requests without a session, and adds the security headers
to every answer. A new path requires a session unless it is on the list of public paths.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loosehanger.console.neighbours import ONE_TIME
from loosehanger.console.settings import Settings
from loosehanger.console.sign_in import Session, Sessions

PUBLIC = ("/sign-in", ONE_TIME, "/health", "/metrics")
"""Paths without a session; metrics have a token of their own."""
PUBLIC_FOLDER = "/static/"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Guard:
    """ASGI middleware; leaves the session in ``scope["state"]["session"]``."""

    def __init__(self, app: ASGIApp, settings: Settings, sessions: Sessions) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions

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
                for name, value in _HEADERS.items():
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
        session = self._session(headers)
        if session is None and path not in PUBLIC and not path.startswith(PUBLIC_FOLDER):
            if path.startswith(("/api/", "/events/")) or path == "/api":
                await _refuse(answer, path, 401, "sign in first: POST user and password to /sign-in")
            else:
                query = scope["query_string"].decode("latin-1")
                wanted = quote(path + (f"?{query}" if query else ""), safe="")
                await _redirect(answer, f"/sign-in?next={wanted}" if path != "/" else "/sign-in")
            return
        scope.setdefault("state", {})["session"] = session
        await self._app(scope, receive, answer)

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


async def _refuse(send: Send, path: str, status: int, reason: str) -> None:
    json_wanted = path.startswith("/api")
    body = json.dumps({"detail": reason}) if json_wanted else f"{reason}\n"
    kind = "application/json" if json_wanted else "text/plain; charset=utf-8"
    await _send(send, status, body.encode(), [("content-type", kind)])


async def _redirect(send: Send, address: str) -> None:
    await _send(send, 303, b"", [("location", address)])


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    encoded.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
