"""``python -m loosehanger.console``: the web console of a region, or with CONSOLE_CONTROL_ROOM=true of all."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys

from loosehanger.console.settings import Settings
from loosehanger.errors import LabError, run_command


def listen(
    address: str,
    port: int,
    remedy: str = "stop that program, or choose another port: CONSOLE_PORT, in the lab LAB_PORT_BASE=29000",
) -> socket.socket:
    """Opens the listening socket before anything slow starts, so that an early client waits instead of being refused.

    Args:
        address: where to listen.
        port: its port.
        remedy: what to do if the port cannot be bound.

    Raises:
        LabError: the port cannot be bound.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise LabError(f"the address {address} cannot be resolved ({error.strerror})") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
    except OSError as error:
        listener.close()
        reason = (
            "is in use by another program" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
        )
        raise LabError(f"port {port} on {address} {reason}; {remedy}") from error
    listener.listen(256)
    listener.set_inheritable(True)
    return listener


SWITCH_S = 0.0005
"""How long a thread keeps the interpreter while others wait for it: a tenth of Python's default.

Threads that read Kafka compute for long, and the one that answers requests waits for its turn after each system call.
"""
COLLECT_AT = (20_000, 10, 20)
"""How many objects must have been added before each generation of them is searched for cycles.

A reading of many topics makes some hundred thousand objects that have no cycles. By Python's defaults the collector
searched the whole heap every few seconds meanwhile, and each time all requests waited.
"""


def set_up_interpreter() -> None:
    """Has this process answer requests while its threads read many topics; once all modules are imported."""
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)


def main() -> int:
    """Serves until a signal stops it.

    Raises:
        LabError: a setting is invalid, or the port cannot be bound.
    """
    settings = Settings.from_environment(os.environ)
    listener = listen(settings.address, settings.port)

    from loosehanger.console.app import create_app
    from loosehanger.console.server import Server

    server = Server(create_app(settings), settings)
    scheme = "https" if settings.secure else "http"
    print(f"{settings.name}: {scheme}://{settings.address}:{settings.port}", flush=True)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    set_up_interpreter()
    server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
