"""A link's relay, the program itself, with real sockets: times, rates, cuts, counters, and what it holds."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from loosehanger.kafka.links import OPEN, ask, link_state, wanted_change

THERE, BACK = "west>east", "east>west"
MB = 1_000_000


class Server:
    """What the relay leads to; it does with each connection what the test says."""

    def __init__(self, handle: Callable[[socket.socket], None]) -> None:
        self._handle = handle
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._handle(connection)

    def close(self) -> None:
        """Listens no longer."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


class Link:
    """A running relay from clients in one region to a server in the other."""

    def __init__(
        self,
        folder: Path,
        target: int,
        start: dict[str, Any] | None = None,
        between: tuple[str, str] = ("west", "east"),
        files: int = 4096,
    ) -> None:
        self.folder = folder
        self.files = files
        self.port = _free_port()
        routes = [{"port": self.port, "target": target, "client": between[0], "server": between[1]}]
        file = folder / "relay.json"
        file.write_text(json.dumps({"regions": between, "routes": routes, "start": start or {}}))
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        relay = [sys.executable, "-P", "-m", "loosehanger.platforms.local.relay", "relay.json"]
        command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(self.files), *relay]
        self.process = subprocess.Popen(command, cwd=self.folder)
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                self.reported()
                return
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def reported(self) -> dict[str, Any]:
        """What it says of itself."""
        return ask(self.folder)

    def direction(self, way: str) -> dict[str, Any]:
        """What it says of one direction."""
        return next(lane for lane in self.reported()["directions"] if f"{lane['from']}>{lane['to']}" == way)

    def change(self, action: str | None = None, ways: tuple[str, ...] = (THERE, BACK), **settings: float) -> None:
        """Changes settings."""
        ask(self.folder, {"directions": ways, "action": action, "set": settings})

    def connect(self) -> socket.socket:
        """A client's connection."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def close(self) -> None:
        """Ends it as the process manager does."""
        self.process.terminate()
        assert self.process.wait(10) == 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def echo(connection: socket.socket) -> None:
    """Sends back what it gets."""
    while data := connection.recv(65536):
        connection.sendall(data)


def read_all(connection: socket.socket) -> None:
    """Takes everything."""
    while connection.recv(262144):
        pass


def received(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if the connection ends."""
    data = bytearray()
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return bytes(data)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Link]]:
    """Makes a link to a server that handles connections as the test says."""
    with contextlib.ExitStack() as stack:

        def make(handle: Callable[[socket.socket], None] = echo, **start: Any) -> Link:
            server = Server(handle)
            stack.callback(server.close)
            link = Link(tmp_path, server.port, start.get("start"))
            stack.callback(link.close)
            return link

        yield make


def is_reset(link: Link) -> None:
    """A new connection is, at once or when it is read from."""
    with pytest.raises(ConnectionResetError), link.connect() as client:
        client.recv(1)


def round_trips(client: socket.socket, number: int) -> list[float]:
    """Milliseconds of each."""
    found = []
    for _ in range(number):
        started = time.monotonic()
        client.sendall(b"x" * 100)
        assert len(received(client, 100)) == 100
        found.append((time.monotonic() - started) * 1000)
    return found


def until(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_delay_of_100_ms_each_way_makes_a_round_trip_of_200(made: Callable[..., Link]) -> None:
    link = made()
    with link.connect() as client:
        assert min(round_trips(client, 50)) < 5
        link.change(delay=0.1)
        times = round_trips(client, 15)
        # Never sooner; later only where the machine is busy with something else.
        assert min(times) >= 200
        assert statistics.quantiles(times)[0] <= 210
        link.change(ways=(THERE,), delay=0.0)
        assert 100 <= min(round_trips(client, 5)) <= 150


def test_jitter_varies_the_delay_and_never_the_order(made: Callable[..., Link]) -> None:
    link = made(start={THERE: {"delay": 0.05, "jitter": 0.03}})
    with link.connect() as client:
        times = round_trips(client, 30)
        # All thirty on one side of it: by chance once in 100,000 runs.
        assert 20 <= min(times) < 40
        assert max(times) > 60
        sent = b"".join(number.to_bytes(4, "big") for number in range(2000))
        for at in range(0, len(sent), 40):
            client.sendall(sent[at : at + 40])
            time.sleep(0.0002)
        assert received(client, len(sent)) == sent


def test_ten_connections_together_get_the_rate_and_equal_shares(made: Callable[..., Link]) -> None:
    taken: dict[int, int] = {}

    def count(connection: socket.socket) -> None:
        while data := connection.recv(262144):
            taken[connection.fileno()] = taken.get(connection.fileno(), 0) + len(data)

    link = made(count)
    link.change(rate=10 * MB)
    ending = threading.Event()

    def send(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not ending.is_set():
                client.sendall(bytes(65536))

    clients = [link.connect() for _ in range(10)]
    senders = [threading.Thread(target=send, args=(client,)) for client in clients]
    for sender in senders:
        sender.start()
    try:
        until(lambda: sum(taken.values()) > 2 * MB, "the first bytes")
        before, started = dict(taken), time.monotonic()
        until(lambda: time.monotonic() - started > 4, "four seconds")
        seconds, after = time.monotonic() - started, dict(taken)
        together = (sum(after.values()) - sum(before.values())) / seconds / MB
        # scripts.bench.links measures how near it comes: a busy machine makes it slower, and nothing faster.
        assert 5 < together < 10.5
        for number, bytes_ in after.items():
            assert (bytes_ - before.get(number, 0)) / seconds / MB == pytest.approx(together / 10, rel=0.25)
    finally:
        ending.set()
        for client in clients:
            client.shutdown(socket.SHUT_RDWR)
            client.close()
        for sender in senders:
            sender.join(10)


def test_the_bytes_counted_are_those_that_the_sockets_carried(made: Callable[..., Link]) -> None:
    link = made()
    link.change(delay=0.01, rate=50 * MB)
    total = 0
    for size in (1, 1000, 3 * MB + 7):
        with link.connect() as client:
            sender = threading.Thread(target=client.sendall, args=(bytes(size),))
            sender.start()
            assert len(received(client, size)) == size
            sender.join()
            total += size
    until(lambda: not link.reported()["connections"], "every connection's end")
    for way in (THERE, BACK):
        direction = link.direction(way)
        assert (direction["bytes"], direction["received"], direction["held"]) == (total, total, 0)
        (client_,) = direction["clients"]
        assert (client_["bytes"], client_["connections"], client_["open"]) == (total, 3, 0)


def test_clients_are_told_apart_by_the_name_that_their_environment_has(made: Callable[..., Link]) -> None:
    link = made()
    program = (
        "import socket, sys\n"
        f"client = socket.create_connection(('127.0.0.1', {link.port}))\n"
        "client.sendall(b'x' * int(sys.argv[1]))\n"
        "left = int(sys.argv[1])\n"
        "while left: left -= len(client.recv(left))\n"
        "print('done', flush=True)\n"
        "sys.stdin.read()\n"
    )
    sizes = {"prover": 1000, "KafkaMirrorMaker2/mm2": 200_000}
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(size)],
            env={"LAB_CLIENT": name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name, size in sizes.items()
    ]

    def counted() -> dict[str, int]:
        return {client["client"]: client["bytes"] for client in link.direction(THERE)["clients"]}

    for each in programs:
        assert each.stdout
        assert each.stdout.readline() == b"done\n"
    until(lambda: counted() == sizes, "both names")
    for each in programs:
        each.communicate()
    until(lambda: not link.reported()["connections"], "the end of both")
    assert counted() == sizes


def test_after_a_silence_everything_goes_on_where_it_was(made: Callable[..., Link]) -> None:
    link = made()
    with link.connect() as client:
        round_trips(client, 3)
        link.change("silent", ways=(BACK,))
        client.sendall(b"before the ")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        until(lambda: link.direction(BACK)["held"] == 11, "what the server has answered")
        link.change("silent")
        client.sendall(b"end")
        until(lambda: link.direction(THERE)["held"] == 3, "what no client gets")
        # A client that connects is accepted, and gets no answer.
        with link.connect() as other:
            other.settimeout(0.3)
            other.sendall(b"hello")
            with pytest.raises(TimeoutError):
                other.recv(1)
            client.settimeout(10)
            link.change("heal")
            assert received(client, 14) == b"before the end"
            assert received(other, 5) == b"hello"


def test_a_cut_refuses_new_connections_and_resets_the_others(made: Callable[..., Link]) -> None:
    link = made()
    with link.connect() as client:
        round_trips(client, 1)
        link.change("cut")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        link.connect()
    link.change("heal")
    with link.connect() as client:
        round_trips(client, 3)


def test_what_is_forgotten_never_arrives(made: Callable[..., Link]) -> None:
    arrived = bytearray()

    def note(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            arrived.extend(data)

    link = made(note)
    with link.connect() as client:
        client.sendall(b"first")
        until(lambda: arrived == b"first", "what was sent first")
        link.change("silent")
        client.sendall(b"second")
        until(lambda: link.direction(THERE)["held"] == 6, "what is stuck")
        link.change("forget")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    direction = link.direction(THERE)
    assert (direction["dropped"], direction["held"], direction["silent"]) == (6, 0, False)
    with link.connect() as client:
        client.sendall(b"third")
        until(lambda: arrived.endswith(b"third"), "what was sent at last")
    assert arrived == b"firstthird"


def test_memory_is_bounded_whatever_is_stuck(made: Callable[..., Link]) -> None:
    link = made(read_all)
    link.change("silent", ways=(THERE,))
    process = psutil.Process(link.process.pid)
    before = process.memory_info().rss
    clients = [link.connect() for _ in range(20)]
    try:
        for client in clients:
            client.setblocking(False)
        # As much as they take, and small pieces at last: each has its own cost.
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            for client in clients:
                with contextlib.suppress(BlockingIOError):
                    client.send(bytes(1_000_000))
        for client in clients:
            with contextlib.suppress(BlockingIOError):
                client.send(b"x")
        held = link.direction(THERE)["held"]
        assert 60 * 2**20 < held < 80 * 2**20
        assert process.memory_info().rss - before < 110 * 2**20
        # And none of it is lost.
        link.change("heal")
        until(lambda: link.direction(THERE)["held"] == 0, "the end of the jam", 20)
    finally:
        for client in clients:
            client.close()


def test_a_receiver_that_takes_nothing_does_not_stop_the_others(made: Callable[..., Link]) -> None:
    ready = threading.Event()

    def greedy(connection: socket.socket) -> None:
        if connection.recv(1) == b"s":
            ready.wait(20)
        else:
            echo(connection)

    link = made(greedy)
    stuck = [link.connect() for _ in range(3)]
    try:
        for client in stuck:
            client.sendall(b"s")
            client.setblocking(False)
        link.change(delay=0.02)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            for client in stuck:
                with contextlib.suppress(BlockingIOError):
                    client.send(bytes(1_000_000))
        with link.connect() as client:
            client.sendall(b"e")
            assert statistics.median(round_trips(client, 10)) < 60
    finally:
        ready.set()
        for client in stuck:
            client.close()


def test_the_end_of_a_connection_arrives_as_late_as_its_bytes(made: Callable[..., Link]) -> None:
    link = made(start={THERE: {"delay": 0.1}, BACK: {"delay": 0.1}})
    with link.connect() as client:
        started = time.monotonic()
        client.sendall(b"good-bye")
        client.shutdown(socket.SHUT_WR)
        assert received(client, 8) == b"good-bye"
        assert client.recv(1) == b""
        assert 0.2 <= time.monotonic() - started < 5
    until(lambda: not link.reported()["connections"], "the end")


def test_a_relay_that_was_killed_goes_on_with_its_settings(made: Callable[..., Link]) -> None:
    link = made(start={THERE: {"delay": 0.01}})
    link.change("silent", rate=5 * MB)
    link.process.kill()
    link.process.wait()
    link.start()
    for way, delay in ((THERE, 0.01), (BACK, 0)):
        direction = link.direction(way)
        assert (direction["delay"], direction["rate"], direction["silent"]) == (delay, 5 * MB, True)


def test_nobody_else_can_reach_the_control_socket(made: Callable[..., Link]) -> None:
    link = made()
    assert (link.folder / "control.sock").stat().st_mode & 0o077 == 0


def test_silent_connections_keep_no_client_away(tmp_path: Path) -> None:
    server = Server(echo)
    # Two files for each of twenty connections, and a hundred for the rest.
    link = Link(tmp_path, server.port, files=140)
    try:
        with link.connect() as speaking, contextlib.ExitStack() as silent:
            speaking.sendall(b"a")
            assert received(speaking, 1) == b"a"
            for _ in range(40):
                silent.enter_context(link.connect())
            until(lambda: 15 < link.reported()["connections"] < 25, "as many connections as there are files for")
            with link.connect() as late:
                late.sendall(b"b")
                assert received(late, 1) == b"b"
            speaking.sendall(b"c")
            assert received(speaking, 1) == b"c"
    finally:
        link.close()
        server.close()


def test_where_nobody_listens_a_client_is_told(tmp_path: Path) -> None:
    link = Link(tmp_path, _free_port())
    try:
        with pytest.raises(OSError), link.connect() as client:  # noqa: PT011 (reset at once, or soon)
            assert client.recv(1)
    finally:
        link.close()


def test_a_firewall_refuses_one_sides_connections_and_counts_them(made: Callable[..., Link]) -> None:
    link = made()
    with link.connect() as client:
        round_trips(client, 1)
        ask(link.folder, wanted_change("east", "west", {}, None, one_way=False, outbound_only=True))
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    for _ in range(2):
        is_reset(link)
    there = link.direction(THERE)
    assert (there["refuses"], there["connections"], there["turned_away"]) == (True, 1, 2)
    assert (link.direction(BACK)["refuses"], link_state(link.reported())) == (False, OPEN)

    link.change("heal", delay=0.001)
    link.process.kill()
    link.process.wait()
    link.start()
    is_reset(link)
    ask(link.folder, wanted_change("east", "west", {}, None, one_way=False, outbound_only=False))
    with link.connect() as client:
        round_trips(client, 1)


def test_a_firewall_leaves_the_other_sides_connections(made: Callable[..., Link]) -> None:
    link = made(start={BACK: {"refuses": True}})
    with link.connect() as client:
        round_trips(client, 3)
    assert (link.direction(BACK)["turned_away"], link.direction(THERE)["connections"]) == (0, 1)
