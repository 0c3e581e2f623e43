"""Measures the cost of a scrape of the control room's metrics, up to the highest rate of the lab's own producer.

    .lab/venv/bin/python -m scripts.bench.scrape [--rate N] [--seconds N]

It scrapes every 5 seconds, as the lab's profile does, with one connection, as Prometheus does. The aim is 50 ms. The
processor time is all that the console's process takes during the scrape, for other work, too.
"""

from __future__ import annotations

import argparse
import time

import psutil
import requests

from loosehanger.kafka.connection import connection_for
from loosehanger.lab.record import Region, WebConsole
from scripts.bench.common import machine, percentiles, processes, sandbox, succeed, table
from scripts.sandbox import Kit

WARM_UP_S = 30
INTERVAL_S = 5.0
AIM_MS = 50


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rate", type=int, nargs="*", default=[10, 5000], help="events a second, in turns (10 and 5,000)"
    )
    parser.add_argument("--seconds", type=int, default=60, help="seconds of each run (60)")
    options = parser.parse_args()
    rows = []
    with sandbox() as kit:
        for rate in options.rate:
            succeed(kit, "setup", "03-broadcast", "-e", f"producer_rate={rate}")
            rows.append(run(kit, rate, options.seconds))
            print(*rows[-1], flush=True)
    print(f"\n{options.seconds} s of each rate, a scrape every {INTERVAL_S:.0f} s; {machine()}; aim {AIM_MS} ms\n")
    header = ("events/s", "scrape p50, ms", "p99, ms", "processor time, ms", "series", "kB", "records/s copied")
    print(table(header, rows))


def run(kit: Kit, rate: int, seconds: int) -> tuple[str, ...]:
    """Scrapes for this many seconds; returns a row of the table."""
    region, console = room(kit)
    process = console_process(kit, console)
    browser = requests.Session()
    browser.trust_env = False
    browser.headers["Authorization"] = f"Bearer {connection_for(region, console.scraper).password}"
    taken: list[float] = []
    used: list[float] = []
    text, first, begun = "", 0.0, 0.0
    started = time.monotonic()
    while (now := time.monotonic() - started) < WARM_UP_S + seconds:
        before, clock = sum(process.cpu_times()[:2]), time.perf_counter()
        answer = browser.get(f"{console.url.rstrip('/')}/metrics", timeout=30)
        answer.raise_for_status()
        duration = time.perf_counter() - clock
        text = answer.text
        if now >= WARM_UP_S:
            begun, first = (begun, first) if taken else (time.monotonic(), copied(text))
            taken.append(duration)
            used.append(sum(process.cpu_times()[:2]) - before)
        time.sleep(max(0.0, INTERVAL_S - duration))
    per_second = (copied(text) - first) / (time.monotonic() - INTERVAL_S - begun)
    times = percentiles(taken)
    series = sum(not line.startswith("#") for line in text.splitlines())
    return (
        f"{rate:,}", f"{times[0] * 1000:.0f}", f"{times[2] * 1000:.0f}", f"{sum(used) / len(used) * 1000:.0f}",
        str(series), f"{len(text) / 1000:.0f}", f"{per_second:,.0f}",
    )  # fmt: skip


def room(kit: Kit) -> tuple[Region, WebConsole]:
    """Returns the console that serves metrics, and its region."""
    return next((region, one) for region in kit.lab.regions.values() for one in region.consoles if one.scraper)


def console_process(kit: Kit, console: WebConsole) -> psutil.Process:
    """Returns the process of a console: the one that listens on its port."""
    port = int(console.url.rstrip("/").rpartition(":")[2])
    return next(
        process
        for process in processes(kit)
        if any(one.laddr.port == port and one.status == psutil.CONN_LISTEN for one in process.net_connections("inet"))
    )


def copied(text: str) -> float:
    """Returns how many records the console has read from all copies."""
    lines = [line for line in text.splitlines() if line.startswith("loosehanger_mirror_copied_records_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


if __name__ == "__main__":
    main()
