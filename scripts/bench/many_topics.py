"""Measures how long each page of a control room takes to load, with 500 topics and 50 viewers.

    .lab/venv/bin/python -m scripts.bench.many_topics [--topics N] [--viewers N] [--times N]

Two plain brokers and one Connect worker with MirrorMaker 2, which copies every topic under its own name, while records
go into ten of them. The control room is a process of its own, and shows both regions. ``scripts.bench.pages`` does the
same in a whole lab. Every page is requested with a new connection, in turns with the others, so that the same page is
seldom requested twice in a row. A request ends with the last byte of its answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import requests
from confluent_kafka import Producer

from loosehanger.files import write_file
from loosehanger.kafka.properties import format_properties, read_properties
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.paths import ROOT
from loosehanger.ports import LOOPBACK, free_ports
from loosehanger.waiting import wait_for
from scripts.bench.common import machine, percentiles, table
from scripts.bench.pages import PAGES, PREFIX, ask
from scripts.bench.viewers import sign_in, viewers_of
from tests.lab.broker import Broker, java, running
from tests.lab.test_fetching import librdkafka

REGIONS = ("here", "there")
CLUSTERS = ("TWFueVRvcGljc1NvdXJjZQ", "TWFueVRvcGljc1RhcmdldA")
MIRROR = "mm2"
CONNECTOR = "here->there.MirrorSourceConnector"
USER, PASSWORD = "viewer", "of-the-benchmark"
STARTS_S, MIRRORED_S = 60, 240
TOKEN = "of-the-benchmarks-prometheus"  # noqa: S105 - of a console on the loopback address, for minutes
BUSY, PER_SECOND = 10, 50
"""How many topics get records, and in how many batches a second."""
SCRAPES, SCRAPE_S = 8, 5.0
"""How often the metrics are scraped, and how long after each other."""


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=500, help="topics in each region (500)")
    parser.add_argument("--viewers", type=int, default=50, help="viewers at the same time (50)")
    parser.add_argument("--times", type=int, default=30, help="requests of each page (30)")
    parser.add_argument("--rate", type=int, default=20, help="records of 300 bytes a second (20)")
    parser.add_argument("--scrapes", action="store_true", help="scrape the metrics, and request no page")
    parser.add_argument("--console", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.console:
        serve(json.loads(options.console.read_text(encoding="utf-8")))
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-bench-")))
        source, target = (stack.enter_context(_broker(folder, name)) for name in CLUSTERS)
        create(source, options.topics)
        stack.enter_context(_records(source, options.rate, min(BUSY, options.topics)))
        connect = stack.enter_context(mirror(folder, source, target))
        wait_for(lambda: _missing(target, options.topics), MIRRORED_S, "the copies")
        process, url = stack.enter_context(console(folder, source, target, connect))
        if options.scrapes:
            print(f"\n{options.topics} topics, {options.rate} records/s; {machine()}; load {os.getloadavg()[0]:.0f}")
            print(scraped(url, process))
            return
        browser = sign_in(url, USER, PASSWORD)
        ask(browser, url, 1)  # so that templates and modules are loaded
        rows = [measure(browser, url, process, options.times)]
        with viewers_of(browser, url, folder, options.viewers, restless=False):
            rows.append(measure(browser, url, process, options.times))
    (alone, cores), (beside, busy) = rows
    print(f"\n{options.topics} mirrored topics, {options.viewers} viewers, {options.times} requests; {machine()}")
    print(f"the console took {cores:.2f} of a core, and {busy:.2f} with the viewers\n")
    shown = [
        (page, *(f"{seconds * 1000:.0f}" for taken in (alone[page], beside[page]) for seconds in percentiles(taken)))
        for page in PAGES
    ]
    header = (*("p50", "p95", "p99"), *(f"{name} with viewers" for name in ("p50", "p95", "p99")))
    print(table(("Page", *(f"{name}, ms" for name in header)), shown))


def scraped(url: str, process: psutil.Process) -> str:
    """Scrapes the metrics as Prometheus does; returns a line with what that took."""
    browser = requests.Session()
    browser.trust_env = False
    browser.headers["Authorization"] = f"Bearer {TOKEN}"
    taken = []
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    for number in range(SCRAPES + 1):
        clock = time.perf_counter()
        browser.get(f"{url}/metrics", timeout=60).raise_for_status()
        if number:  # the first one waits until the console has read everything
            taken.append(time.perf_counter() - clock)
        time.sleep(SCRAPE_S)  # as Prometheus does
    cores = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
    shown = ", ".join(f"{seconds * 1000:.0f}" for seconds in sorted(taken))
    return f"scrapes, ms: {shown}; the console took {cores:.2f} of a core"


def measure(
    browser: requests.Session, url: str, process: psutil.Process, times: int
) -> tuple[dict[str, list[float]], float]:
    """Returns the seconds of every request by page, and the cores that the console took meanwhile."""
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    taken = ask(browser, url, times)
    return taken, (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)


@contextlib.contextmanager
def _broker(folder: Path, cluster: str) -> Iterator[Broker]:
    own = folder / cluster
    own.mkdir()
    with running(own, cluster=cluster) as found:
        yield found


def create(source: Broker, number: int) -> None:
    """Creates the topics, each with an override, as most topics have."""
    client = source.admin()
    client.create_topics(
        {
            f"{PREFIX}{index}": {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "3600000"}}
            for index in range(number)
        }
    )
    client.wait_for_topics([f"{PREFIX}{index}" for index in range(number)])
    client.close()


def _missing(target: Broker, number: int) -> str | None:
    client = target.admin()
    there = sum(name.startswith(PREFIX) for name in client.list_topics())
    client.close()
    return None if there >= number else f"{there} of {number}"


@contextlib.contextmanager
def _records(source: Broker, rate: int, topics: int) -> Iterator[None]:
    """Writes ``rate`` records a second to the first ``topics`` topics."""
    ended = threading.Event()

    def write() -> None:
        producer = Producer(librdkafka(source) | {"linger.ms": 5})
        began, written = time.monotonic(), 0
        while not ended.wait(1 / PER_SECOND):
            due = int((time.monotonic() - began) * rate)
            for number in range(written, due):
                producer.produce(f"{PREFIX}{number % topics}", b"%0300d" % number, b"%d" % number)
            written = due
            producer.poll(0)
        producer.flush(5)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def mirror(folder: Path, source: Broker, target: Broker) -> Iterator[str]:
    """Starts a worker with the mirror from one broker to the other; yields its address."""
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    clients = [read_properties(one.properties("admin")) for one in (source, target)]
    own = {name: value for name, value in clients[1].items() if name != "bootstrap.servers"}
    worker = {
        **clients[1],
        **{f"{role}.{name}": value for role in ("producer", "consumer", "admin") for name, value in own.items()},
        "group.id": MIRROR,
        "listeners": url,
        **{f"{kind}.storage.topic": f"__mm2_{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.partitions": "1" for kind in ("offset", "status")},
        "offset.flush.interval.ms": "5000",
        **{f"{part}.converter": "org.apache.kafka.connect.converters.ByteArrayConverter" for part in ("key", "value")},
    }
    properties, log = folder / "worker.properties", folder / "worker.log"
    write_file(properties, format_properties(worker))
    process = java("org.apache.kafka.connect.cli.ConnectDistributed", str(properties), log=log)
    try:
        wait_for(lambda: _refused(url), STARTS_S, f"the worker, see {log}")
        ends = {
            f"{role}.cluster.{name}": value
            for role, client in zip(("source", "target"), clients, strict=True)
            for name, value in client.items()
        }
        config = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "tasks.max": "1",
            "source.cluster.alias": REGIONS[0],
            "target.cluster.alias": REGIONS[1],
            **ends,
            "topics": rf"{PREFIX}.*".replace(".", r"\.", 2),
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "refresh.topics.interval.seconds": "10",
        }
        requests.put(f"{url}/connectors/{CONNECTOR}/config", json=config, timeout=30).raise_for_status()
        yield url
    finally:
        process.kill()
        process.wait()


def _refused(url: str) -> str | None:
    try:
        return None if requests.get(f"{url}/connectors", timeout=5).ok else "not ready"
    except requests.RequestException as error:
        return type(error).__name__


@contextlib.contextmanager
def console(folder: Path, source: Broker, target: Broker, connect: str) -> Iterator[tuple[psutil.Process, str]]:
    """Starts the control room; yields its process and its address."""
    (port,) = free_ports(1)
    clients = [str(one.properties("admin")) for one in (source, target)]
    file = folder / "console.json"
    write_file(file, json.dumps({"clients": clients, "connect": connect, "port": port}))
    log = folder / "console.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "scripts.bench.many_topics", "--console", str(file)],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    url = f"http://{LOOPBACK}:{port}"
    try:
        wait_for(lambda: _unhealthy(url), STARTS_S, f"the control room, see {log}")
        yield psutil.Process(process.pid), url
    finally:
        process.terminate()
        process.wait(30)


def _unhealthy(url: str) -> str | None:
    try:
        return None if requests.get(f"{url}/health", timeout=5).ok else "not healthy"
    except requests.RequestException as error:
        return type(error).__name__


def serve(given: dict[str, Any]) -> None:
    """Runs the kit's own control room in this process, with brokers that have no TLS."""
    from loosehanger.console.__main__ import listen, set_up_interpreter
    from loosehanger.console.app import create_app
    from loosehanger.console.server import Server
    from loosehanger.console.settings import ConnectAccess, RegionSettings, Settings
    from loosehanger.kafka.connection import Connection

    routes = Mirror(MIRROR, *REGIONS, *REGIONS, "identity", ".", rf"{PREFIX}.*", "", CONNECTOR, region=REGIONS[1])
    settings = Settings(
        "control-room",
        USER,
        PASSWORD,
        tuple(
            RegionSettings(
                name, Connection.from_properties(Path(file)), (ConnectAccess(MIRROR, (given["connect"],)),) * place
            )
            for place, (name, file) in enumerate(zip(REGIONS, given["clients"], strict=True))
        ),
        (routes,),
        control_room=True,
        port=given["port"],
        scenario="03-broadcast",
        metrics_token=TOKEN,
    )
    server = Server(create_app(settings), settings)
    set_up_interpreter()
    server.run(sockets=[listen(LOOPBACK, settings.port)])


if __name__ == "__main__":
    main()
