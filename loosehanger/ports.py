"""Ports of this machine."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def is_taken(port: int) -> bool:
    """Whether a program listens on a port of the loopback address."""
    with socket.socket() as probe:
        # Connections of an earlier lab that the kernel still remembers do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False
