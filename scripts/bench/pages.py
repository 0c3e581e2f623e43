"""Measures how long each page of the control room takes to load, with many topics and many viewers.

    .lab/venv/bin/python -m scripts.bench.pages [--topics N] [--viewers N] [--times N]

The topics are created in Europe and mirrored to both Americas. One more viewer requests every page, in turns with the
other pages, each time with a new connection: first without the other viewers, then with them.
"""

from __future__ import annotations

import argparse
import time

import requests
from kafka.admin import KafkaAdminClient

from loosehanger.waiting import wait_for
from scripts.bench.common import TARGETS, admin, machine, percentiles, sandbox, succeed, table
from scripts.bench.viewers import signed_in, viewers
from scripts.sandbox import Kit

PREFIX = "LH.PAGES."
PAGES = (
    "/",
    "/charts",
    "/topics",
    f"/topics/{PREFIX}0",
    "/messages",
    "/search",
    f"/search?topic={PREFIX}0",
    "/groups",
    "/brokers",
    "/mirrors",
    "/changes",
    "/users",
    "/proof",
    "/scenario",
    "/api/topics",
)
MIRRORED_WITHIN_S = 300


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=500, help="topics to create (500)")
    parser.add_argument("--viewers", type=int, default=50, help="viewers at the same time (50)")
    parser.add_argument("--times", type=int, default=100, help="requests of each page (100)")
    options = parser.parse_args()
    with sandbox() as kit:
        succeed(kit, "setup", "03-broadcast", "-e", "consumer_replicas=0")
        create(kit, options.topics)
        browser, console = signed_in(kit, "control-room")
        alone = ask(browser, console.url, options.times)
        with viewers(kit, options.viewers, restless=False):
            beside = ask(browser, console.url, options.times)
    rows = [
        (page, *(f"{seconds * 1000:.0f}" for taken in (alone[page], beside[page]) for seconds in percentiles(taken)))
        for page in PAGES
    ]
    print(f"\n{options.topics} mirrored topics, {options.viewers} viewers, {options.times} requests; {machine()}\n")
    header = (*("p50", "p95", "p99"), *(f"{name} with viewers" for name in ("p50", "p95", "p99")))
    print(table(("Page", *(f"{name}, ms" for name in header)), rows))


def create(kit: Kit, number: int) -> None:
    """Creates the topics, and waits until both Americas have their copies.

    Raises:
        LabError: a copy is still missing after ``MIRRORED_WITHIN_S``.
    """
    client = admin(kit, "europe")
    client.create_topics({f"{PREFIX}{index}": {"num_partitions": 1} for index in range(number)})
    client.close()
    for region in TARGETS:
        target = admin(kit, region)

        def missing(target: KafkaAdminClient = target) -> str | None:
            there = sum(PREFIX in name for name in target.list_topics())
            return None if there >= number else f"{there} of {number}"

        try:
            wait_for(missing, MIRRORED_WITHIN_S, f"copies in {region}")
        finally:
            target.close()


def ask(browser: requests.Session, url: str, times: int) -> dict[str, list[float]]:
    """Requests every page in turn; returns the seconds of every request, by page."""
    taken: dict[str, list[float]] = {page: [] for page in PAGES}
    for _ in range(times):
        for page in PAGES:
            began = time.perf_counter()
            answer = browser.get(f"{url}{page}", headers={"Connection": "close"}, timeout=60)
            taken[page].append(time.perf_counter() - began)
            answer.raise_for_status()
    return taken


if __name__ == "__main__":
    main()
