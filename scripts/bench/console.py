"""The cost of the consoles, beside that of brokers and mirrors: without viewers, and with many.

    .lab/venv/bin/python -m scripts.bench.console [--rate N] [--seconds N] [--viewers N]

ProducerPerformance writes at a steady rate. Half of the viewers follow the control room's map, half its live messages;
some read slowly on purpose. One more looks at the clock. In the last run viewers come and go all the time: what the
consoles' memory grows by then shows whether they leak.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
from dataclasses import dataclass

import psutil

from scripts.bench.common import (
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
from scripts.bench.mirroring import create
from scripts.bench.viewers import MAP, signed_in, viewers
from scripts.sandbox import Kit

SIZE = 300
TOPIC = "LH.CONSOLE"
WARM_UP_S = 15
KINDS = {
    "brokers": "kafka.Kafka",
    "mirrors": "org.apache.kafka.connect.cli.ConnectDistributed",
    "consoles": "-m loosehanger.console",
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
        runs = (("no viewers", 0, 1, False), (f"{options.viewers} viewers", options.viewers, 1, False),
                (f"{options.viewers} viewers who come and go", options.viewers, 3, True))  # fmt: skip
        for name, number, times, restless in runs:
            seconds = options.seconds * times
            costs, lag, latencies = run(kit, options.rate, seconds, number, restless=restless)
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
    kit: Kit, rate: int, seconds: int, number: int, *, restless: bool
) -> tuple[dict[str, KindCost], int, tuple[float, float, float]]:
    """Has events written and people look: each kind of process's cost, the mirrors' lag, and how often views come."""
    ending = threading.Event()
    gaps: list[float] = []
    writing = produce(kit, TOPIC, rate * (seconds + WARM_UP_S), SIZE, throughput=rate)
    person = threading.Thread(target=look, args=(kit, ending, gaps), daemon=True)
    with viewers(kit, number, restless=restless):
        ending.wait(WARM_UP_S)  # what is not measured
        if number:
            person.start()
        before = {kind: usage(kit, mark) for kind, mark in KINDS.items()}
        ending.wait(seconds)  # what is measured
        after = {kind: usage(kit, mark) for kind, mark in KINDS.items()}
        ending.set()
    finished(writing)
    clients = [admin(kit, region) for region in ("europe", *TARGETS)]
    ends = [end_offsets(client, TOPIC) for client in clients]
    for client in clients:
        client.close()
    costs = {
        kind: KindCost((after[kind][0] - before[kind][0]) / seconds, after[kind][1], after[kind][1] - before[kind][1])
        for kind in KINDS
    }
    return costs, max(0, ends[0] - min(ends[1:])), percentiles(gaps or [0.0])


def look(kit: Kit, ending: threading.Event, gaps: list[float]) -> None:
    """Measures as one more viewer how long after each other views of the map arrive."""
    browser, console = signed_in(kit, "control-room")
    last = None
    with browser.get(f"{console.url}{MAP}", stream=True, timeout=60) as answer:
        for line in answer.iter_lines(65536):
            if line == b"event: view":
                now = time.monotonic()
                gaps += [now - last] if last else []
                last = now
            if ending.is_set():
                break


def usage(kit: Kit, mark: str) -> tuple[float, float, int]:
    """Returns the seconds of processor time, megabytes and threads of the lab's processes of a kind."""
    seconds, megabytes, threads = 0.0, 0.0, 0
    for process in processes(kit):
        try:
            if re.search(rf"(^|\s){re.escape(mark)}(\s|$)", " ".join(process.cmdline())):
                times = process.cpu_times()
                seconds += times.user + times.system
                megabytes += process.memory_info().rss / 1e6
                threads += process.num_threads()
        except psutil.Error:
            continue
    return seconds, megabytes, threads


def first_page(kit: Kit, times: int = 50) -> tuple[float, float, float]:
    """Measures the seconds until the whole page has arrived, each time with a new connection."""
    taken: list[float] = []
    browser, console = signed_in(kit, "control-room")
    for _ in range(times):
        began = time.perf_counter()
        browser.get(f"{console.url}/", headers={"Connection": "close"}, timeout=30).raise_for_status()
        taken.append(time.perf_counter() - began)
    return percentiles(taken)


if __name__ == "__main__":
    main()
