"""What the lab's clients need beside kafka-python: its complaints in readable doses, and the repair of two defects.

A client whose broker is away complains several times a second, partly with tracebacks.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from kafka.errors import Cancelled, SaslAuthenticationFailedError
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

LONGEST = 300
HANDSHAKE_S = 10.0
"""How long a broker may take for its part of a TLS handshake: Kafka's own bound for setting a connection up."""
NOT_WORTH_A_LINE = ("kafka.net.selector",)
"""The library's event loop measures itself, and calls itself blocked whenever a busy machine runs something else."""
_SPEAKER = re.compile(r"^<[^>]*>:? ")
"""The object that speaks, as Python shows it."""


def prepare(write: Callable[[str], Any]) -> ClientLog:
    """Makes kafka-python fit for a program that runs for long; comes before its first client.

    Args:
        write: takes the lines that the library's complaints become.

    Returns:
        Where the complaints arrive.
    """
    repair()
    client_log = ClientLog(write)
    logger = logging.getLogger("kafka")
    logger.handlers = [client_log]
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    return client_log


def repair() -> None:
    """Repairs kafka-python; the second time, there is nothing left to do."""
    for transport in (KafkaTCPTransport, KafkaSSLTransport):
        if not hasattr(transport._sock_recv, "repairs"):
            transport._sock_recv = _with_last_words(transport._sock_recv)
    if not hasattr(KafkaSSLTransport.handshake, "repairs"):
        KafkaSSLTransport.handshake = _with_a_bound(KafkaSSLTransport.handshake)


def _with_last_words(receive: Callable[[Any], tuple[bytes, Any]]) -> Callable[[Any], tuple[bytes, Any]]:
    """Repairs reading: kafka-python 3.0.12 throws away what arrives together with the end of the connection.

    A broker that refuses a password says so and hangs up, so the client saw the end only, took it for a broken
    connection, and tried for ever. The end is still there at the next read.
    """

    def sock_recv(self: Any) -> tuple[bytes, Any]:
        data, error = receive(self)
        return data, None if data else error

    sock_recv.repairs = receive  # type: ignore[attr-defined]
    return sock_recv


def _with_a_bound(handshake: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Repairs connecting: kafka-python 3.0.12 waits for ever for a broker that takes connections and does not answer.

    Its bounds begin after the handshake, so none of them holds: a process that hangs looks so to its clients.
    """

    async def bounded(self: Any) -> None:
        late = False

        def give_up() -> None:
            nonlocal late
            late = True
            with suppress(OSError):
                # TLS has nobody to say goodbye to; this wakes whoever waits for the socket.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

        timer = self._net.call_later(HANDSHAKE_S, give_up)
        try:
            await handshake(self)
        except OSError as error:
            raise TimeoutError(f"no answer within {HANDSHAKE_S:.0f} s") if late else error from None
        finally:
            self._net.cancel(timer)

    bounded.repairs = handshake  # type: ignore[attr-defined]
    return bounded


class ClientLog(logging.Handler):
    """Passes the library's warnings on, one line each.

    Args:
        write: takes a finished line.
        apart_s: seconds between two lines; one lost connection gives a dozen complaints.
        repeat_s: seconds until a complaint of the same kind is passed on again.
    """

    def __init__(self, write: Callable[[str], Any], apart_s: float = 10, repeat_s: float = 60) -> None:
        super().__init__(logging.WARNING)
        self.addFilter(lambda record: record.name not in NOT_WORTH_A_LINE or record.exc_info is not None)
        self._write = write
        self._apart_s = apart_s
        self._repeat_s = repeat_s
        self._written_at: dict[str, float] = {}
        self._hidden = 0
        self.first = ""
        """The first complaint since this was last emptied: of a chain of complaints, the one with the reason."""
        self.refused: Exception | None = None
        """The cluster's refusal of user and password: the client only logs it, and tries again for ever."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the complaint, unless one of its kind was written a short time ago."""
        cause = record.exc_info[1] if record.exc_info else None
        for part in (cause, *(record.args if isinstance(record.args, tuple) else ())):
            if isinstance(part, SaslAuthenticationFailedError):
                self.refused = part
            if isinstance(part, Cancelled):
                return  # What the client itself broke off, because it was closed.
        text = _SPEAKER.sub("", record.getMessage())
        if cause is not None:
            text += f": {type(cause).__name__}: {cause}"
        text = " ".join(text.split())
        text = text if len(text) <= LONGEST else text[:LONGEST] + "…"
        self.first = self.first or text
        kind, now, never = str(record.msg), time.monotonic(), float("-inf")
        latest = max(self._written_at.values(), default=never)
        if now - latest < self._apart_s or now - self._written_at.get(kind, never) < self._repeat_s:
            self._hidden += 1
            return
        self._write(f"kafka client: {text}" + (f" (and {self._hidden} more before)" if self._hidden else ""))
        self._written_at[kind] = now
        self._hidden = 0
