"""A link that delays, and that counts the requests which Kafka's clients send through it.

The kit's own relay does not look into what it carries. Here connections are not encrypted, and each request begins with
its size and the number of its kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from typing import Any

from kafka.protocol.api_key import ApiKey

_HEAD = struct.Struct(">ih")
"""The size of a request, and the number of its kind."""
_CHUNK = 2**18


class CountingLink:
    """A port of this machine that leads to another one.

    Args:
        delay_s: of each direction: half of a round trip.
    """

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._target = 0
        self._server = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._counts: Counter[int] = Counter()
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._server.getsockname()[1])

    def lead_to(self, target: int) -> None:
        """Sets the port that it leads to."""
        self._target = target

    def counts(self) -> Counter[str]:
        """Requests so far by their kind, and ``connections``."""
        return Counter({_name(kind): count for kind, count in self._counts.items()}) + Counter(
            connections=self.connections
        )

    def __enter__(self) -> CountingLink:
        self._thread.start()
        serving = asyncio.start_server(self._serve, sock=self._server, limit=_CHUNK)
        asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._server.close()

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            # A connection takes a round trip, too.
            await asyncio.sleep(2 * self._delay_s)
            server, forth = await asyncio.open_connection("127.0.0.1", self._target, limit=_CHUNK)
        except OSError:
            back.close()
            return
        await asyncio.gather(self._carry(client, forth, _Requests(self._counts)), self._carry(server, back, None))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, requests: Any) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def read() -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(_CHUNK):
                    if requests:
                        requests.take(data)
                    await waiting.put((self._loop.time() + self._delay_s, data))
            await waiting.put((self._loop.time() + self._delay_s, b""))

        reading = asyncio.ensure_future(read())
        with contextlib.suppress(OSError):
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                if not data:
                    break
                sink.write(data)
                await sink.drain()
        reading.cancel()
        sink.close()


class _Requests:
    """Counts the requests of one connection."""

    def __init__(self, counts: Counter[int]) -> None:
        self._counts = counts
        self._rest = b""
        self._skip = 0

    def take(self, data: bytes) -> None:
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        data, self._skip = self._rest + data[self._skip :], 0
        while len(data) >= _HEAD.size:
            size, kind = _HEAD.unpack_from(data)
            self._counts[kind] += 1
            if 4 + size > len(data):
                self._skip, data = 4 + size - len(data), b""
                break
            data = data[4 + size :]
        self._rest = data


def _name(kind: int) -> str:
    return str(ApiKey(kind).name) if kind in set(ApiKey) else str(kind)
