"""Serves a room over TLS, on the address that was given: the one part of the kit that listens beyond loopback."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from loosehanger.console.__main__ import listen
from loosehanger.console.server import MOST_CONNECTIONS, REQUEST_S, STOP_S, BoundedProtocol
from loosehanger.errors import WrongUseError
from loosehanger.room.collector import Collector, WithHeaders
from loosehanger.room.credentials import RoomCredentials, room_credentials
from loosehanger.room.reports import Room

PORT = 19443


class RoomServer(uvicorn.Server):
    """Uvicorn for a room: quiet and bounded.

    Args:
        credentials: the room's credentials.
        room: its learners.
    """

    def __init__(self, credentials: RoomCredentials, room: Room) -> None:
        self._collector = Collector(credentials, room)
        config = uvicorn.Config(
            WithHeaders(self._collector.app()),
            access_log=False,
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            http=BoundedProtocol,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=round(REQUEST_S),
            timeout_graceful_shutdown=STOP_S,
            ssl_certfile=credentials.certificate,
            ssl_keyfile=credentials.key,
        )
        config.load()
        assert config.ssl
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        super().__init__(config)

    def stop(self) -> None:
        """Answers the requests that wait, and stops the server."""
        self._collector.stopping.set()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Stops the server at a signal, such as Ctrl-C."""
        self.stop()


def read_address(text: str) -> tuple[str, int]:
    """Reads ``HOST`` or ``HOST:PORT``, an IPv6 address in brackets.

    Raises:
        WrongUseError: it is not one.
    """
    host, port = text, str(PORT)
    if text.endswith("]") or text.count(":") == 0:
        pass
    elif "]:" in text or text.count(":") == 1:
        host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise WrongUseError(f"--collect: '{text[:100]}' is not HOST or HOST:PORT, such as 192.168.1.5")
    return host, int(port)


def collect(home: Path, address: str, say: Callable[[str], object], *, new: bool = False) -> None:
    """Serves a room until a signal stops it.

    Args:
        home: the lab's home.
        address: ``HOST`` or ``HOST:PORT``, as the learners reach it.
        say: shows what the learners and the trainer need.
        new: makes a new join code.

    Raises:
        WrongUseError: the address cannot be used.
        LabError: the address cannot be listened on.
    """
    host, port = read_address(address)
    listener = listen(host, port, remedy="stop that program, or give another port: --collect HOST:PORT")
    credentials = room_credentials(home, host, new=new)
    shown = f"[{host}]" if ":" in host else host
    say(f"Learners type:  ./lab learn --report-to https://{shown}:{port}/{credentials.invitation.code} --name NAME")
    say(f"The room:       https://{shown}:{port}/  user room, password in {credentials.password_file}")
    say("Its certificate is self-signed, so a browser asks once. Ctrl-C stops it.")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    RoomServer(credentials, Room()).run(sockets=[listener])
