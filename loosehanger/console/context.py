"""The objects that all routes share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import HTTPException, Request, Response

from loosehanger.console.api_tokens import ApiTokens
from loosehanger.console.change_log import ChangeLog
from loosehanger.console.channels import Channels
from loosehanger.console.history import LastHour
from loosehanger.console.jobs import Jobs
from loosehanger.console.learning import Learning
from loosehanger.console.links import LinkView
from loosehanger.console.neighbours import Neighbours
from loosehanger.console.operations import Operations
from loosehanger.console.service import Service
from loosehanger.console.settings import OPERATOR_OFF, Settings
from loosehanger.console.sign_in import Attempts, Session, Sessions
from loosehanger.console.views import Views
from loosehanger.signing.one_time import OneTimeTokens

MOST_NOTES = 1000
GONE_S = 0.5
"""Seconds between checks whether a waiting client is still connected."""
T = TypeVar("T")


@dataclass
class Context:
    """One console."""

    settings: Settings
    sessions: Sessions
    service: Service
    jobs: Jobs
    views: Views
    links: LinkView
    last_hour: LastHour
    changes: ChangeLog
    operations: Operations
    neighbours: Neighbours
    one_time: OneTimeTokens
    tokens: ApiTokens
    learning: Learning
    attempts: Attempts = field(default_factory=Attempts)
    one_time_attempts: Attempts = field(default_factory=Attempts)
    """Wrong one-time tokens, which do not delay those who sign in with a password."""
    channels: Channels = field(default_factory=Channels)
    producing: set[object] = field(default_factory=set)
    """A mark for each record that is being written, to bound their number."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the program stops; it closes the streams, which would otherwise stay open."""
    _notes: OrderedDict[str, tuple[str, bool]] = field(default_factory=OrderedDict)

    def signed_in(self, answer: Response) -> Response:
        """Opens a session, and gives its cookie to a response."""
        answer.set_cookie(
            self.sessions.cookie,
            self.sessions.open(),
            max_age=self.sessions.seconds,
            httponly=True,
            samesite="strict",
            secure=self.settings.secure,
        )
        return answer

    def note(self, session: Session, text: str, *, good: bool) -> None:
        """Keeps the outcome of a change for the session's next page, which shows it once."""
        self._notes[session.identity] = (text, good)
        while len(self._notes) > MOST_NOTES:
            self._notes.popitem(last=False)

    def take_note(self, session: Session) -> tuple[str, bool] | None:
        """Returns the outcome to show, and forgets it."""
        return self._notes.pop(session.identity, None)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of some work, which is cancelled when the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=GONE_S))[0]:
            if await request.is_disconnected():
                raise HTTPException(499, "the client has gone")
        return task.result()
    finally:
        task.cancel()


def context_of(request: Request) -> Context:
    """The console of a request."""
    context: Context = request.app.state.context
    return context


def session_of(request: Request) -> Session:
    """The session of a request; the guard rejects requests without one."""
    session: Session | None = getattr(request.state, "session", None)
    if session is None:
        raise HTTPException(401, "sign in first")
    return session


def require_operator(request: Request) -> None:
    """Refuses a change for which the lab must have been set up with ``console_operator=true``."""
    if not context_of(request).settings.operator:
        raise HTTPException(403, OPERATOR_OFF)
