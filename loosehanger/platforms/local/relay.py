"""The relay of a link: ``python -P -m loosehanger.platforms.local.relay FILE``, run in a folder private to its owner.

It forwards bytes between two regions without decrypting them: TLS stays end to end. Each direction is one lane for all
connections, with a delay, a rate, a limit on buffered bytes, and counters. The file maps ports to their destinations.
``control.sock`` in the working folder answers queries and takes changes, one line of JSON each. ``settings.json`` has
the changes, so that a relay that was killed resumes with them.

Bandwidth is a clock and not a counter: every read moves forward the time at which the lane is free again, and no
connection reads while that is further ahead than ``BACKLOG``. A chunk's wait is known when it is read: it is due when
the lane has carried it and the delay has passed, and is forwarded after the earlier chunks of its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.files import write_file
from loosehanger.kafka.links import CLIENT, CONTROL, SETTINGS
from loosehanger.lab.link_settings import OneWay
from loosehanger.ports import LOOPBACK

OTHERS = "others"
"""The name of clients without that environment variable."""
BACKLOG = 0.02
"""Seconds of work that a lane with a rate accepts in advance, which covers late timers."""
READ = 2**18
"""Most bytes of one read."""
LEAST_READ = 1460
READ_SECONDS = 0.01
"""Seconds for which one read may occupy a lane with a rate."""
HELD_WITHOUT_RATE = 2**26
HELD_BESIDE_RATE = 2**22
WINDOW = 2**18
"""Bytes a connection may buffer that its receiver does not accept."""
QUANTUM = 2**16
"""Bytes each connection may buffer in a full lane, so that one stalled connection does not block the others."""
COST = 200
"""Memory overhead of a chunk, in bytes."""
MAX_CONNECTIONS = 1000
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that closes a connection with a reset."""
NAMING_SECONDS = 0.25
_buffer = memoryview(bytearray(READ))


@dataclass
class Count:
    """Counters of one client, or of all, in one direction."""

    bytes: int = 0
    connections: int = 0
    """Connections opened so far."""
    open: int = 0


class Lane:
    """One direction of the link, for all connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.settings = OneWay()
        self.plain = True
        self.held = 0
        self.limit = HELD_WITHOUT_RATE
        self.chunk = READ
        self.received = 0
        """Bytes accepted from senders, and forwarded to receivers."""
        self.delivered = 0
        self.dropped = 0
        """Bytes whose connection closed before they were forwarded."""
        self.turned_away = 0
        """Connections in this direction that the firewall refused."""
        self.flows: set[Direction] = set()
        self._free = 0.0
        self._waiting: deque[Direction] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, settings: OneWay) -> None:
        """Applies new settings."""
        self.settings = settings
        self.plain = settings.is_plain
        self._free = 0.0
        self.chunk = max(LEAST_READ, min(READ, int(settings.rate * READ_SECONDS))) if settings.rate else READ
        self.limit = int(settings.in_flight * 1.25) + HELD_BESIDE_RATE if settings.rate else HELD_WITHOUT_RATE
        for flow in tuple(self.flows):
            flow.flush()
        self.go_on()

    def due(self, size: int, now: float) -> float:
        """Returns when bytes read now may be forwarded."""
        settings = self.settings
        if settings.rate:
            now = self._free = max(now, self._free) + size / settings.rate
        delay = settings.delay
        return now + (random.uniform(delay - settings.jitter, delay + settings.jitter) if settings.jitter else delay)  # noqa: S311 (no secret)

    def busy(self, flow: Direction) -> bool:
        """Whether a connection must wait before it reads."""
        if self.settings.rate and self._free - self.loop.time() > BACKLOG:
            return True
        return self.held >= self.limit and flow.held >= QUANTUM

    @property
    def contended(self) -> bool:
        """Whether other connections are waiting."""
        return bool(self._waiting)

    def wait(self, flow: Direction) -> None:
        """Queues a connection for its turn to read."""
        self._waiting.append(flow)
        flow.waiting = True
        if self.settings.rate:
            self._alarm()
        elif self.held < self.limit:
            self.loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """Lets the waiting connections read, each once and in order, while there is room."""
        for _ in range(len(self._waiting)):
            if self.settings.rate and self._free - self.loop.time() > BACKLOG:
                break
            flow = self._waiting.popleft()
            if self.busy(flow) and not flow.ended:
                self._waiting.append(flow)
                continue
            flow.waiting = False
            if not flow.ended:
                flow.read()
        self._alarm()

    def _alarm(self) -> None:
        if self._timer is None and self._waiting and self.settings.rate:
            self._timer = self.loop.call_at(max(self._free - BACKLOG / 2, self.loop.time() + 0.001), self._rung)

    def _rung(self) -> None:
        self._timer = None
        self.go_on()


class Direction:
    """One direction of a connection."""

    def __init__(self, connection: RelayedConnection, source: socket.socket, target: socket.socket, lane: Lane) -> None:
        self.connection = connection
        self.source, self.target, self.lane = source, target, lane
        self.loop = lane.loop
        self.held = 0
        self.bytes = 0
        self.ended = False
        """Whether the sender or the connection has closed."""
        self.finished = False
        """Whether the receiver has been notified, or has closed."""
        self.waiting = False
        """Whether the lane decides when it reads next."""
        self._queue: deque[tuple[float, memoryview]] = deque()
        self._reading = self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        lane.flows.add(self)
        self._arm()

    def _arm(self) -> None:
        if not self._reading and not self.ended:
            self._reading = True
            self.loop.add_reader(self.source, self._readable)

    def _disarm(self) -> None:
        if self._reading:
            self._reading = False
            self.loop.remove_reader(self.source)

    def _readable(self) -> None:
        lane = self.lane
        if lane.plain and not self._queue:
            self.read()
        elif lane.contended or lane.busy(self):
            self._disarm()
            lane.wait(self)
        else:
            self.read()

    def read(self) -> None:
        """Reads once, forwards what is due, and arranges the next read."""
        lane = self.lane
        try:
            size = self.source.recv_into(_buffer, lane.chunk)
        except (BlockingIOError, InterruptedError):
            self._arm()
            return
        except OSError:
            # The other side sees a reset, like a close, after the delay of the link.
            size = 0
        if not size:
            self.ended = True
            self._disarm()
            self._hold(memoryview(b""))
            return
        lane.received += size
        sent = 0
        if lane.plain and not self._queue:
            sent = self._send(_buffer[:size])
            if sent == size:
                self._arm()
                return
        if self.finished:
            # The receiver has closed, and the other direction is about to notice.
            lane.dropped += size - sent
            self.ended = True
            self._disarm()
            return
        self._hold(memoryview(bytes(_buffer[sent:size])))
        self._read_again()

    def _hold(self, data: memoryview) -> None:
        self._queue.append((self.lane.due(len(data), self.loop.time()), data))
        self._account(len(data) + COST)
        if self._timer is None and not self._writing:
            self.flush()

    def _account(self, size: int) -> None:
        self.held += size
        self.lane.held += size

    def _read_again(self) -> None:
        if self.ended:
            return
        if self._writing and self.held > WINDOW:
            self._disarm()
        elif self.lane.contended or self.lane.busy(self):
            self._disarm()
            self.lane.wait(self)
        else:
            self._arm()

    def flush(self) -> None:
        """Forwards what is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lane, was_full = self.lane, self.lane.held >= self.lane.limit
        had = self.held
        while self._queue and not lane.settings.silent and not self.finished:
            due, data = self._queue[0]
            if due > self.loop.time():
                self._timer = self.loop.call_at(due, self.flush)
                break
            if not len(data):
                self._queue.popleft()
                self._account(-COST)
                self._finish()
                break
            sent = self._send(data)
            if sent < len(data):
                if not self.finished:
                    self._queue[0] = (due, data[sent:])
                    self._account(-sent)
                break
            self._queue.popleft()
            self._account(-sent - COST)
        blocked = bool(self._queue) and self._timer is None and not lane.settings.silent and not self.finished
        if blocked != self._writing:
            self._writing = blocked
            if blocked:
                self.loop.add_writer(self.target, self.flush)
            else:
                self.loop.remove_writer(self.target)
        if had > self.held:
            if not self._reading and not self.waiting:
                self._read_again()
            if was_full:
                lane.go_on()

    def _send(self, data: memoryview) -> int:
        try:
            sent = self.target.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._drop()
            self._finish()
            return 0
        self.bytes += sent
        self.lane.delivered += sent
        return sent

    def _drop(self) -> None:
        self.lane.dropped += sum(len(data) for _, data in self._queue)
        self._queue.clear()
        self._account(-self.held)

    def _finish(self) -> None:
        if not self.finished:
            self.finished = True
            with contextlib.suppress(OSError):
                self.target.shutdown(socket.SHUT_WR)
            self.connection.part_finished()

    def end(self) -> None:
        """Discards all buffered data; the caller closes the sockets."""
        self.ended = self.finished = True
        self._disarm()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing:
            self._writing = False
            self.loop.remove_writer(self.target)
        self._drop()
        self.lane.flows.discard(self)
        self.loop.call_soon(self.lane.go_on)


class RelayedConnection:
    """A client's connection, and the relay's connection to the server."""

    def __init__(self, relay: Relay, route: Route, client: socket.socket, server: socket.socket) -> None:
        self.relay, self.route = relay, route
        self.sockets = client, server
        self.ends = client.getpeername()[1], route.port
        self.name = ""
        """The name of its client; empty until it is known."""
        self.began = relay.loop.time()
        there, back = (route.client, route.server), (route.server, route.client)
        self.flows = {
            there: Direction(self, client, server, relay.lanes[there]),
            back: Direction(self, server, client, relay.lanes[back]),
        }

    @property
    def is_silent(self) -> bool:
        """Whether its client has sent no data yet."""
        flow = self.flows[self.route.client, self.route.server]
        return not (flow.bytes or flow.held or flow.waiting)

    def part_finished(self) -> None:
        """Closes the connection when both directions are finished."""
        if all(flow.finished for flow in self.flows.values()):
            self.relay.loop.call_soon(self.close)

    def close(self, *, reset: bool = False) -> None:
        """Closes the connection at once."""
        if self not in self.relay.connections:
            return
        self.relay.connections.discard(self)
        self.relay.keep_count(self)
        for flow in self.flows.values():
            flow.end()
        for end in self.sockets:
            _close(end, reset=reset)


@dataclass(frozen=True)
class Route:
    """A port of the relay and its destination."""

    port: int
    target: int
    client: str
    """The region whose clients connect to it."""
    server: str
    """The region of the destination."""


@dataclass
class Past:
    """Counters of a client's closed connections."""

    connections: int = 0
    bytes: dict[tuple[str, str], int] = field(default_factory=dict)


class Relay:
    """The relay of a link between two regions."""

    def __init__(self, regions: tuple[str, str], routes: list[Route], start: Mapping[str, Any], folder: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self.regions, self.routes, self.folder = regions, routes, folder
        self.lanes = {pair: Lane(self.loop) for pair in (regions, regions[::-1])}
        self.connections: set[RelayedConnection] = set()
        self.since = time.time()
        self.refused = False
        self._start = dict(start)
        self._listening: list[socket.socket] = []
        self._past: dict[tuple[str, str], Past] = {}
        self._unnamed = threading.Event()
        self._connecting: set[asyncio.Task[None]] = set()
        self._most = _most_connections()

    def open(self) -> None:
        """Opens its ports, with the stored settings if they derive from the same initial settings."""
        kept: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads((self.folder / SETTINGS).read_text(encoding="utf-8"))
        if kept.get("start") != self._start:
            kept = {"directions": self._start, "refused": False}
        for (one, other), lane in self.lanes.items():
            lane.set(OneWay(**kept["directions"].get(f"{one}>{other}", {})))
        self.refused = kept["refused"]
        if not self.refused:
            self._listen()
        threading.Thread(target=self._name_connections, daemon=True).start()

    def close(self) -> None:
        """Closes every connection and all ports."""
        for listening in self._listening:
            self.loop.remove_reader(listening)
            listening.close()
        self._listening = []
        for connection in tuple(self.connections):
            connection.close(reset=True)

    def change(self, wanted: Mapping[str, Any]) -> None:
        """Applies new settings.

        Args:
            wanted: ``directions``, by ``from>to``, whose ``set`` values change; an ``action`` for the whole link:
                cut, silent, heal, forget, or none; and ``refuses``, whether to refuse connections, by ``from>to``.

        Raises:
            WrongUseError: the values contradict each other; nothing was changed.
        """
        ways = [(one, other) for one, other in self.lanes if f"{one}>{other}" in wanted["directions"]]
        action = wanted.get("action")
        changed = {way: self.lanes[way].settings.changed(wanted["set"], action) for way in ways}
        for text, refuses in wanted.get("refuses", {}).items():
            one, _, other = text.partition(">")
            way = one, other
            changed[way] = changed.get(way, self.lanes[way].settings).with_(refuses=refuses)
        if action in ("cut", "forget"):
            self.close()
        for way, settings in changed.items():
            if settings != self.lanes[way].settings:
                self.lanes[way].set(settings)
                if settings.refuses:
                    self._reset_connections(way)
        if action == "cut":
            self.refused = True
        elif action in ("heal", "forget"):
            self.refused = False
        if not self.refused and not self._listening:
            self._listen()
        kept = {
            "start": self._start,
            "refused": self.refused,
            "directions": {f"{one}>{other}": lane.settings.as_json() for (one, other), lane in self.lanes.items()},
        }
        write_file(self.folder / SETTINGS, json.dumps(kept, indent=1))

    def _reset_connections(self, way: tuple[str, str]) -> None:
        for connection in tuple(self.connections):
            if (connection.route.client, connection.route.server) == way:
                connection.close(reset=True)

    def report(self) -> dict[str, Any]:
        """Returns settings and counters."""
        directions = []
        for (one, other), lane in self.lanes.items():
            clients = self._clients((one, other))
            directions.append(
                {
                    "from": one,
                    "to": other,
                    **lane.settings.as_json(),
                    "bytes": lane.delivered,
                    "received": lane.received,
                    "dropped": lane.dropped,
                    "held": lane.received - lane.delivered - lane.dropped,
                    "connections": sum(client["connections"] for client in clients if client["region"] == one),
                    "turned_away": lane.turned_away,
                    "clients": clients,
                }
            )
        return {
            "between": list(self.regions),
            "refused": self.refused,
            "since": self.since,
            "connections": len(self.connections),
            "directions": directions,
        }

    def keep_count(self, connection: RelayedConnection) -> None:
        """Adds the counters of a closed connection."""
        past = self._past.setdefault((connection.route.client, connection.name or OTHERS), Past())
        past.connections += 1
        for way, flow in connection.flows.items():
            past.bytes[way] = past.bytes.get(way, 0) + flow.bytes

    def _clients(self, way: tuple[str, str]) -> list[dict[str, Any]]:
        counts: dict[tuple[str, str], Count] = {}
        for key, past in self._past.items():
            counts[key] = Count(past.bytes.get(way, 0), past.connections)
        for connection in self.connections:
            count = counts.setdefault((connection.route.client, connection.name or OTHERS), Count())
            count.bytes += connection.flows[way].bytes
            count.connections += 1
            count.open += 1
        return [{"region": region, "client": name, **asdict(count)} for (region, name), count in sorted(counts.items())]

    def _listen(self) -> None:
        for route in self.routes:
            listening = socket.create_server((LOOPBACK, route.port), backlog=256)
            listening.setblocking(False)
            self._listening.append(listening)
            self.loop.add_reader(listening, self._accept, listening, route)

    def _accept(self, listening: socket.socket, route: Route) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError, ConnectionError):
            client, _ = listening.accept()
            lane = self.lanes[route.client, route.server]
            if lane.settings.refuses:
                # The port stays open, so that attempts are counted.
                lane.turned_away += 1
                _close(client, reset=True)
                return
            client.setblocking(False)
            task = self.loop.create_task(self._connect(client, route))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, client: socket.socket, route: Route) -> None:
        server = socket.socket()
        server.setblocking(False)
        try:
            if len(self.connections) >= self._most and not self._make_room():
                raise ConnectionRefusedError
            await self.loop.sock_connect(server, (LOOPBACK, route.target))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.refused or self.lanes[route.client, route.server].settings.refuses:
                raise ConnectionRefusedError
            self.connections.add(RelayedConnection(self, route, client, server))
            self._unnamed.set()
        except OSError:
            _close(client, reset=True)
            _close(server, reset=True)

    def _make_room(self) -> bool:
        """Closes the oldest connection whose client has sent no data; False if there is none.

        A Kafka client sends its first request at once. Idle connections of other programs must not keep it out.
        """
        silent = [connection for connection in self.connections if connection.is_silent]
        if not silent:
            return False
        min(silent, key=lambda connection: connection.began).close(reset=True)
        return True

    def _name_connections(self) -> None:
        """Finds the clients of new connections; in a thread, because it inspects every program of the lab."""
        while True:
            self._unnamed.wait()
            self._unnamed.clear()
            new = [connection for connection in tuple(self.connections) if not connection.name]
            names = _owners({connection.ends for connection in new})
            for connection in new:
                connection.name = names.get(connection.ends, OTHERS)
            # Connections arrive in bursts.
            time.sleep(NAMING_SECONDS)


def _owners(ends: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Returns the names of the clients of connections, given by the client's port and the relay's."""
    import psutil  # only this thread needs it

    found: dict[tuple[int, int], str] = {}
    for process in psutil.process_iter():
        if len(found) == len(ends):
            break
        with contextlib.suppress(psutil.Error, OSError):
            name = process.environ().get(CLIENT)
            if name and process.pid != os.getpid():
                for connection in process.net_connections(kind="tcp"):
                    if connection.raddr and (end := (connection.laddr.port, connection.raddr.port)) in ends:
                        found[end] = name
    return found


def _close(end: socket.socket, *, reset: bool) -> None:
    with contextlib.suppress(OSError):
        if reset:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.close()


def _most_connections() -> int:
    """Returns the connections that the limit of open files allows; each needs two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MAX_CONNECTIONS + 100
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return min(MAX_CONNECTIONS, (soft - 100) // 2)
    return MAX_CONNECTIONS


async def serve(relay: Relay) -> None:
    """Answers at the control socket until the process receives a signal to stop."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            wanted = json.loads(await reader.readline())
            reply: dict[str, Any]
            try:
                if wanted:
                    relay.change(wanted)
                reply = relay.report()
            except WrongUseError as error:
                reply = {"wrong_use": str(error)}
            except OSError as error:
                reply = {"failed": str(error)}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        relay.loop.add_signal_handler(number, ending.set)
    relay.open()
    (relay.folder / CONTROL).unlink(missing_ok=True)
    server = await asyncio.start_unix_server(answer, CONTROL)
    await ending.wait()
    server.close()
    relay.close()


async def _main(file: str) -> None:
    os.umask(0o077)
    # The threads that look up names must not delay the event loop.
    sys.setswitchinterval(0.0005)
    wanted = json.loads(Path(file).read_text(encoding="utf-8"))
    one, other = wanted["regions"]
    await serve(Relay((one, other), [Route(**route) for route in wanted["routes"]], wanted["start"], Path.cwd()))


if __name__ == "__main__":
    try:
        asyncio.run(_main(sys.argv[1]))
    except OSError as failure:
        sys.exit(f"error: {failure}")
