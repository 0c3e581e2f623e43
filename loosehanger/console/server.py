"""The server in front of a console."""

from __future__ import annotations

import asyncio
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from loosehanger.console.settings import Settings

MOST_CONNECTIONS = 500
MOST_STRANGERS = 200
"""Connections of clients that are not signed in; the rest is for those that are."""
REQUEST_S = 10.0
"""How long a client may take to send a request's head and body."""
STOP_S = 3


class BoundedProtocol(H11Protocol):
    """A connection that closes when a request is not complete in time, and that makes room for others."""

    _deadline: asyncio.TimerHandle | None = None
    _began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for the first request; with too many strangers, closes the connection that has waited longest."""
        super().connection_made(transport)
        self._expect()
        strangers = [one for one in self.connections if isinstance(one, BoundedProtocol) and not one.signed_in]
        if len(strangers) > MOST_STRANGERS:
            waiting = [one for one in strangers if one.waits]
            min(waiting, key=lambda one: one._began, default=self).transport.close()

    def data_received(self, data: bytes) -> None:
        """Takes a part of a request."""
        super().data_received(data)
        if not self.waits:
            self._forget()
        elif self._deadline is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops waiting."""
        self._forget()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether a request is still incomplete."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def signed_in(self) -> bool:
        """Whether the last request had a session."""
        state: dict[str, Any] = self.cycle.scope.get("state", {}) if self.cycle is not None else {}
        return state.get("session") is not None

    def _expect(self) -> None:
        self._began = self.loop.time()
        self._deadline = self.loop.call_later(REQUEST_S, self.transport.close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server(uvicorn.Server):
    """Uvicorn for a console: quiet, bounded, and able to stop while streams are open."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                log_level="warning",
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                http=BoundedProtocol,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=STOP_S,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )

    def stop(self) -> None:
        """Closes the streams, and stops the server."""
        self._app.state.context.stopping.set()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Closes the streams before uvicorn's own handling of a signal."""
        self._app.state.context.stopping.set()
        super().handle_exit(sig, frame)
