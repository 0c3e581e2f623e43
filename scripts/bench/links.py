"""Measures what unshaped links cost: mirroring and its latency through them, and without them, in one run.

    .lab/venv/bin/python -m scripts.bench.links [--records N] [--rate N] [--seconds N] [--rounds N] [--only-relay]

The same mirrors read their source through their links, or at the node's own listener: only the address in their
connectors changes in between. The two take turns, and each goes first in every other round, since Java's virtual
machines get faster the longer they run, and the machine may have other work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import requests

from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.links import ask, relay_folders
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.waiting import wait_for
from scripts.bench.common import configure, machine, percentiles, processes, sandbox, table
from scripts.bench.latency import run as latencies
from scripts.bench.mirroring import mirrored
from scripts.sandbox import Kit

LOOPBACK = "127.0.0.1"
FLOOD_S = 4.0
ROUND_TRIPS = 1000
LINK, DIRECT = "through links", "direct"
ADDRESS = "source.cluster.bootstrap.servers"
THROUGH = "bench.through"
"""Where a connector's configuration keeps the address of its link."""


def main() -> None:
    """Measures, and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=500_000, help="records of each run of mirroring (500,000)")
    parser.add_argument("--rate", type=int, default=1000, help="events a second for the latency (1,000)")
    parser.add_argument("--seconds", type=int, default=30, help="seconds of each run of the latency (30)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (3)")
    parser.add_argument(
        "--only-relay", action="store_true", help="measure a relay alone, without a lab, in a few seconds"
    )
    options = parser.parse_args()
    relay_alone(options.rounds)
    if options.only_relay:
        return
    rates: dict[str, list[float]] = {LINK: [], DIRECT: []}
    medians: dict[str, list[float]] = {LINK: [], DIRECT: []}
    with sandbox() as kit:
        configure(kit, {}, {})
        for number, way in enumerate(turns(options.rounds)):
            route(kit, way)
            found = mirrored(kit, f"LH.LINKS{number}", options.records)
            rates[way].append(sum(found.values()) / len(found))
            print(f"{way}: {rates[way][-1]:,.0f} records/s into each target, load {os.getloadavg()[0]:.1f}", flush=True)
        for number, way in enumerate(turns(options.rounds)):
            route(kit, way)
            found_ms = latencies(kit, f"LH.LINKED{number}", options.rate, options.seconds)
            medians[way].append(percentiles([ms for of_target in found_ms.values() for ms in of_target])[0])
            print(f"{way}: p50 {medians[way][-1]:.1f} ms, load {os.getloadavg()[0]:.1f}", flush=True)
        memory = [f"{process.memory_full_info().uss / 2**20:.0f}" for process in relays(kit)]
        carried = sum(way["bytes"] for folder in relay_folders(kit.home).values() for way in ask(folder)["directions"])
    print(f"\n{options.records:,} records of a run; {machine()}; load {os.getloadavg()[0]:.1f}")
    print(f"relays: {', '.join(memory)} MiB of memory of their own; {carried / 1e6:,.0f} MB carried\n")
    rows = [
        (way, " ".join(f"{rate:,.0f}" for rate in rates[way]), f"{statistics.median(rates[way]):,.0f}",
         " ".join(f"{ms:.1f}" for ms in medians[way]), f"{statistics.median(medians[way]):.1f}")
        for way in rates
    ]  # fmt: skip
    print(table(("Way", "records/s, each run", "median", "p50 ms, each run", "median"), rows))


def relay_alone(rounds: int) -> None:
    """Measures a relay between a client and a server here: bytes a second, and round trips with it and without."""
    with tempfile.TemporaryDirectory() as name, socket.create_server((LOOPBACK, 0)) as server:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        folder, target = Path(name), server.getsockname()[1]
        with socket.create_server((LOOPBACK, 0)) as probe:
            port = probe.getsockname()[1]
        route = {"port": port, "target": target, "client": "here", "server": "there"}
        (folder / "relay.json").write_text(json.dumps({"regions": ["here", "there"], "routes": [route], "start": {}}))
        command = [sys.executable, "-P", "-m", "loosehanger.platforms.local.relay", "relay.json"]
        relay = subprocess.Popen(command, cwd=folder)
        try:
            wait_for(lambda: _missing(folder), 20, "the relay")
            process = psutil.Process(relay.pid)
            for _ in range(rounds):
                speed, processor = _flood(port, process)
                with_it, without = _round_trip(port), _round_trip(target)
                print(
                    f"a relay alone: {speed / 1e6:,.0f} MB/s, {processor * 1e9:.2f} s of processor for each GB, "
                    f"a round trip of {with_it:.3f} ms, {without:.3f} ms without it; load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
            print(f"its own memory: {process.memory_full_info().uss / 2**20:.0f} MiB", flush=True)
        finally:
            relay.terminate()
            relay.wait()


def _serve(server: socket.socket) -> None:
    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            echoes = connection.recv(1) == b"e"
            while data := connection.recv(2**18):
                if echoes:
                    connection.sendall(data)

    with contextlib.suppress(OSError):
        while True:
            threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()


def _missing(folder: Path) -> str | None:
    try:
        ask(folder)
    except OSError as error:
        return str(error)
    return None


def _flood(port: int, relay: psutil.Process) -> tuple[float, float]:
    """Returns the bytes a second of one connection, and the seconds of processor that the relay takes for each byte."""
    with socket.create_connection((LOOPBACK, port)) as connection:
        data, sent = bytes(2**18), 0
        before, started = sum(relay.cpu_times()[:2]), time.monotonic()
        while time.monotonic() - started < FLOOD_S:
            connection.sendall(data)
            sent += len(data)
        return sent / (time.monotonic() - started), (sum(relay.cpu_times()[:2]) - before) / sent


def _round_trip(port: int) -> float:
    """Returns the median time of a round trip of 100 bytes, in milliseconds."""
    found = []
    with socket.create_connection((LOOPBACK, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"e")
        for _ in range(ROUND_TRIPS):
            started = time.perf_counter()
            connection.sendall(bytes(100))
            left = 100
            while left:
                left -= len(connection.recv(left))
            found.append((time.perf_counter() - started) * 1000)
    return statistics.median(found)


def turns(rounds: int) -> Iterator[str]:
    """Yields link and direct, each of them first in every other round."""
    for number in range(rounds):
        yield from (LINK, DIRECT) if number % 2 == 0 else (DIRECT, LINK)


def route(kit: Kit, way: str) -> None:
    """Makes every mirror read its source through its link, or directly."""
    for mirror in kit.lab.mirrors:
        direct = ",".join(connection_for(kit.lab.region(mirror.source), "admin").bootstrap_servers)
        config = connector_config(mirror)
        through = config.setdefault(THROUGH, config[ADDRESS])
        connector_config(mirror, {**config, ADDRESS: through if way == LINK else direct})


def connector_config(mirror: Mirror, new: dict[str, str] | None = None) -> dict[str, str]:
    """Returns the configuration of a mirror's source connector; replaces it first if a new one is given."""
    access = mirror.connect
    answer = requests.request(
        "PUT" if new else "GET",
        f"{access['url']}/connectors/{quote(mirror.connector, safe='')}/config",
        json=new,
        auth=(access["username"], Path(access["password_file"]).read_text(encoding="utf-8")),
        verify=access["ca_file"],
        timeout=60,
    )
    answer.raise_for_status()
    found = answer.json()
    config: dict[str, str] = found["config"] if new else found
    return config


def relays(kit: Kit) -> Iterator[psutil.Process]:
    """Yields the processes of the lab's relays."""
    for process in processes(kit):
        with contextlib.suppress(psutil.Error):
            if "loosehanger.platforms.local.relay" in process.cmdline():
                yield process


if __name__ == "__main__":
    main()
