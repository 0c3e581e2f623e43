"""The server in front of a console."""

from __future__ import annotations

from types import FrameType

import uvicorn
from fastapi import FastAPI

from console.settings import Settings

MOST_CONNECTIONS = 500
STOP_S = 3


class Server(uvicorn.Server):
    """Uvicorn, as a console needs it: quiet, bounded, and able to end although streams have no end of their own."""

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
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=STOP_S,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )

    def stop(self) -> None:
        """Ends the streams, and then the server."""
        self._app.state.context.stopping.set()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """What a signal does."""
        self._app.state.context.stopping.set()
        super().handle_exit(sig, frame)
