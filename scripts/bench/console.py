"""What the consoles cost, beside what the brokers and mirrors cost: with nobody looking, and with many viewers.

    .lab/venv/bin/python -P -m bench.console [--rate N] [--seconds N] [--viewers N]

ProducerPerformance writes at a steady rate. Half of the viewers follow the control room's map, half its live messages;
some of those read slowly on purpose, and are to lose messages instead of making the console keep them. In the last run
viewers come and go all the time: what the consoles' memory grows by then tells whether something is left behind.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
from dataclasses import dataclass

import psutil
import requests

from bench.common import (
    TARGETS,
    admin,
    end_offsets,
    finished,
    machine,
    percentiles,
    processes,
    produce,
    sandbox,
    succeed,
    table,
)
from bench.mirroring import create
from loosehanger.model.record import WebConsole
from sandbox import Kit

SIZE = 300
TOPIC = "LH.CONSOLE"
WARM_UP_S = 15
KINDS = {
    "brokers": "kafka.Kafka",
    "mirrors": "org.apache.kafka.connect.cli.ConnectDistributed",
    "consoles": "-m console",
}


@dataclass(frozen=True)
class KindCost:
    """What a kind of process took in a run."""

    cores: float
    megabytes: float
    grown: float
    """Megabytes between its beginning and its end."""


def main() -> None:
    """Measures, and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=5000, help="events a second (5,000)")
    parser.add_argument(
        "--seconds", type=int, default=60, help="seconds of each run; the last takes three times that (60)"
    )
    parser.add_argument("--viewers", type=int, default=50, help="how many look at once (50)")
    options = parser.parse_args()
    rows = []
    with sandbox() as kit:
        succeed(kit, "setup", "03-broadcast", "-e", "consumer_replicas=0", "-e", "producer_replicas=0")
        create(kit, TOPIC)
        runs = (("nobody looks", 0, 1, False), (f"{options.viewers} viewers", options.viewers, 1, False),
                (f"{options.viewers} viewers who come and go", options.viewers, 3, True))  # fmt: skip
        for name, viewers, times, restless in runs:
            seconds = options.seconds * times
            costs, lag, latencies = run(kit, options.rate, seconds, viewers, restless=restless)
            for kind, cost in costs.items():
                hourly = cost.grown / seconds * 3600
                rows.append(
                    (name, kind, f"{cost.cores:.2f}", f"{cost.megabytes:.0f}", f"{cost.grown:+.1f}", f"{hourly:+.0f}")
                )
                print(*rows[-1], flush=True)
            print(f"{name}: mirrors {lag:,} offsets behind at the end; a view comes after p50 {latencies[0]:.2f} s, "
                  f"p99 {latencies[2]:.2f} s", flush=True)  # fmt: skip
        first = first_page(kit)
    print(f"\n{options.rate} events/s of {SIZE} bytes for {options.seconds} s; {machine()}\n")
    print(table(("Run", "Processes", "Cores", "MB", "MB grown", "MB an hour"), rows))
    print(f"\nThe control room's first page: p50 {first[0] * 1000:.0f} ms, p99 {first[2] * 1000:.0f} ms")


def run(
    kit: Kit, rate: int, seconds: int, viewers: int, *, restless: bool
) -> tuple[dict[str, KindCost], int, tuple[float, float, float]]:
    """Has events written and people look: each kind of process's cost, the mirrors' lag, and how often views come."""
    ending = threading.Event()
    gaps: list[float] = [0.0]
    writing = produce(kit, TOPIC, rate * (seconds + WARM_UP_S), SIZE, throughput=rate)
    people = [
        threading.Thread(target=look, args=(kit, number, ending, gaps, restless), daemon=True)
        for number in range(viewers)
    ]
    for person in people:
        person.start()
    ending.wait(WARM_UP_S)  # what is not measured
    before = {kind: usage(kit, mark) for kind, mark in KINDS.items()}
    ending.wait(seconds)  # what is measured
    after = {kind: usage(kit, mark) for kind, mark in KINDS.items()}
    ending.set()
    finished(writing)
    clients = [admin(kit, region) for region in ("europe", *TARGETS)]
    ends = [end_offsets(client, TOPIC) for client in clients]
    for client in clients:
        client.close()
    for person in people:
        person.join(timeout=15)
    costs = {
        kind: KindCost((after[kind][0] - before[kind][0]) / seconds, after[kind][1], after[kind][1] - before[kind][1])
        for kind in KINDS
    }
    return costs, max(0, ends[0] - min(ends[1:])), percentiles(gaps)


def look(kit: Kit, number: int, ending: threading.Event, gaps: list[float], restless: bool) -> None:
    """One viewer: of the map, or of messages, of which every fifth reads slowly."""
    browser, console = signed_in(kit, "control-room")
    path = "/events/views/map" if number % 2 else "/events/messages"
    slow = number % 10 == 0
    while not ending.is_set():
        until = time.monotonic() + (3 + number % 5 if restless else 3600)
        last = time.monotonic()
        with browser.get(f"{console.url}{path}", stream=True, timeout=15) as answer:
            for chunk in answer.iter_content(1024 if slow else 65536):
                now = time.monotonic()
                if b"event: view" in chunk and path.endswith("map"):
                    gaps.append(now - last)
                    last = now
                if ending.wait(0.5 if slow else 0) or now > until:
                    break


def signed_in(kit: Kit, name: str) -> tuple[requests.Session, WebConsole]:
    """Somebody in front of a console."""
    region, console = next(
        (region, console) for region in kit.lab.regions.values() for console in region.consoles if console.name == name
    )
    browser = requests.Session()
    browser.trust_env = False
    form = {"username": console.username, "password": region.connection(console.username).password}
    browser.post(f"{console.url}/sign-in", data=form, timeout=30, allow_redirects=False).raise_for_status()
    return browser, console


def usage(kit: Kit, mark: str) -> tuple[float, float]:
    """Seconds of processor time and megabytes of the lab's processes of a kind."""
    seconds = megabytes = 0.0
    for process in processes(kit):
        try:
            if re.search(rf"(^|\s){re.escape(mark)}(\s|$)", " ".join(process.cmdline())):
                times = process.cpu_times()
                seconds += times.user + times.system
                megabytes += process.memory_info().rss / 1e6
        except psutil.Error:
            continue
    return seconds, megabytes


def first_page(kit: Kit, times: int = 50) -> tuple[float, float, float]:
    """Seconds until the whole page is there, each time with a new connection."""
    taken: list[float] = []
    browser, console = signed_in(kit, "control-room")
    for _ in range(times):
        began = time.perf_counter()
        browser.get(f"{console.url}/", headers={"Connection": "close"}, timeout=30).raise_for_status()
        taken.append(time.perf_counter() - began)
    return percentiles(taken)


if __name__ == "__main__":
    main()
