"""A transport of kafka-python whose client is closed between the arrival of data and their use."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from kafka.net.transport import KafkaTCPTransport


def closed_while_it_reads() -> Any:
    """A connection that is closed, as by another thread, as soon as something was received."""

    async def wait_read(_: object) -> None: ...

    ours, theirs = socket.socketpair()
    net = SimpleNamespace(wait_read=wait_read, unregister_event=lambda *_: None, cancel=lambda _: None)
    transport = KafkaTCPTransport(net, ours)
    transport.set_protocol(SimpleNamespace(_sensors=None, connection_lost=lambda _: None))
    transport._read = True

    def receive() -> tuple[bytes, None]:
        theirs.close()
        transport.close()
        return b"an answer", None

    transport._sock_recv = receive
    return transport
