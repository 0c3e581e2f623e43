"""What the routes share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import HTTPException, Request

from loosehanger.console.channels import Channels
from loosehanger.console.history import LastHour
from loosehanger.console.jobs import Jobs
from loosehanger.console.links import LinkView
from loosehanger.console.service import Service
from loosehanger.console.settings import Settings
from loosehanger.console.sign_in import Attempts, Session, Sessions
from loosehanger.console.views import Views

MOST_NOTES = 1000
GONE_S = 0.5
"""How often to look whether a client that waits is still there."""
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
    attempts: Attempts = field(default_factory=Attempts)
    channels: Channels = field(default_factory=Channels)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the program is to end: streams, which have no end of their own, then end."""
    _notes: OrderedDict[str, tuple[str, bool]] = field(default_factory=OrderedDict)

    def note(self, session: Session, text: str, *, good: bool) -> None:
        """Keeps what came of a change, to be shown once on the session's next page."""
        self._notes[session.identity] = (text, good)
        while len(self._notes) > MOST_NOTES:
            self._notes.popitem(last=False)

    def take_note(self, session: Session) -> tuple[str, bool] | None:
        """What is to be shown; once."""
        return self._notes.pop(session.identity, None)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What comes of some work; it is cancelled when the client that asked for it has gone."""
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
    """The session of a request; the guard has let nobody through without one."""
    session: Session | None = getattr(request.state, "session", None)
    if session is None:
        raise HTTPException(401, "sign in first")
    return session
