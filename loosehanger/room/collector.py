"""The collector: it takes learners' reports, and shows the room to the trainer. Each of the two has its own secret."""

from __future__ import annotations

import asyncio
import base64
import hmac
from contextlib import suppress
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loosehanger import console
from loosehanger.console.guard import SECURITY_HEADERS
from loosehanger.console.sign_in import LONGEST_DELAY_S, Attempts
from loosehanger.errors import WrongUseError
from loosehanger.events.render import safe
from loosehanger.room.credentials import RoomCredentials
from loosehanger.room.reports import FullError, LearnerReport, Room

MOST_BODY = 64 * 1024
MARKS = {"done": "✓", "solved": "s", "begun": "…", "open": " "}
WORDS = {"done": "done", "solved": "solved for them", "begun": "begun", "open": "not begun"}
_HERE = Path(__file__).parent


class Collector:
    """The routes, and what they share.

    Args:
        credentials: the room's.
        room: its learners.
    """

    def __init__(self, credentials: RoomCredentials, room: Room) -> None:
        self._room = room
        self._secret = f"Bearer {credentials.invitation.secret.hex()}".encode()
        self._password = credentials.password.encode()
        # Counted apart, so that wrong codes do not delay the trainer.
        self._wrong_codes, self._wrong_passwords = Attempts(), Attempts()
        self.stopping = asyncio.Event()
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters["visible"] = lambda text: safe(str(text))

    def app(self) -> Starlette:
        """Returns the application."""
        return Starlette(
            routes=[
                Route("/report", self._report, methods=["POST"]),
                Route("/", self._page),
                Route("/learners", self._learners),
                Mount("/static/room", StaticFiles(directory=_HERE / "static")),
                Mount("/static", StaticFiles(directory=Path(str(console.__file__)).parent / "static")),
            ],
            exception_handlers={HTTPException: _problem},
        )

    async def _report(self, request: Request) -> Response:
        given = request.headers.get("authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._secret):
            await self._refuse(self._wrong_codes, "the join code is wrong; ask for it again")
        try:
            self._room.take(LearnerReport.model_validate_json(await _body(request)))
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "body"
            raise HTTPException(422, f"the report cannot be read: {where}") from error
        except WrongUseError as error:
            raise HTTPException(503 if isinstance(error, FullError) else 429, str(error)) from error
        return JSONResponse({"detail": "taken"})

    async def _page(self, request: Request) -> Response:
        await self._require_password(request)
        return HTMLResponse(self._templates.get_template("room.html.j2").render(learners=self._table()))

    async def _learners(self, request: Request) -> Response:
        await self._require_password(request)
        return HTMLResponse(self._table())

    def _table(self) -> str:
        seats, exercises = self._room.seats(), self._room.exercises()
        return self._templates.get_template("learners.html.j2").render(
            seats=seats, exercises=exercises, marks=MARKS, words=WORDS, stuck=sum(one[1] for one in seats)
        )

    async def _require_password(self, request: Request) -> None:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if not text:  # a browser asks for the password after this refusal
            raise HTTPException(401, "sign in as room", {"www-authenticate": 'Basic realm="room", charset="UTF-8"'})
        given = b""
        if scheme.lower() == "basic":
            with suppress(ValueError):
                given = base64.b64decode(text, validate=True).partition(b":")[2]
        if not hmac.compare_digest(given, self._password):
            await self._refuse(
                self._wrong_passwords, "the password is wrong", {"www-authenticate": 'Basic realm="room"'}
            )

    async def _refuse(self, attempts: Attempts, reason: str, headers: dict[str, str] | None = None) -> None:
        """Refuses a request, after a delay that grows with the number of wrong attempts.

        Raises:
            HTTPException: always.
        """
        async with attempts.delay() as seconds:
            if seconds is None:
                raise HTTPException(
                    429, "too many wrong attempts at once", {"retry-after": str(round(LONGEST_DELAY_S))}
                )
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), seconds)
        raise HTTPException(401, reason, headers)


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MOST_BODY:
            raise HTTPException(413, f"a report has at most {MOST_BODY} bytes")
        parts.append(chunk)
    return b"".join(parts)


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, dict(error.headers or {}))


class WithHeaders:
    """Middleware that adds the security headers to every answer.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and adds the headers to its answer."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = {**SECURITY_HEADERS, "cache-control": "no-store"}
                message["headers"] = [
                    *message["headers"], *((name.encode(), value.encode()) for name, value in more.items())
                ]  # fmt: skip
            await send(message)

        await self._app(scope, receive, answer)
