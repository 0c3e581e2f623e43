"""Measures how long a set-up, a second one, a proof and a clean-up take, and how much memory the lab needs.

    .lab/venv/bin/python -m scripts.bench.lifecycle [--rounds N] [--scenario NAME] [--rate N]

The environment is installed already: the first run of a fresh clone has downloads to wait for.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import Sequence

import psutil
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from loosehanger.errors import LabError
from scripts.bench.common import TARGETS, cost, machine, processes, sandbox, succeed, table
from scripts.sandbox import Kit

BROADCAST = "03-broadcast"
LOOK_S = 5
STILL = 0.01
"""The share by which the memory may still differ between two looks."""
MOST_LOOKS = 24


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure (3)")
    parser.add_argument("--scenario", default=BROADCAST, help=f"the scenario ({BROADCAST})")
    parser.add_argument("--rate", type=int, help="events a second of each producer (its own default)")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    rate = [] if arguments.rate is None else ["-e", f"producer_rate={arguments.rate}"]
    figures: dict[str, list[float]] = {}
    for _ in range(rounds):
        with sandbox() as kit:
            for name, value in one_round(kit, arguments.scenario, rate).items():
                figures.setdefault(name, []).append(value)
                print(f"{name}: {value:.1f}", flush=True)
    print(f"\n{arguments.scenario}, {rounds} rounds; {machine()}\n")
    rows = [
        (name, f"{min(values):.1f}", f"{statistics.median(values):.1f}", f"{max(values):.1f}")
        for name, values in figures.items()
    ]
    print(table(("What", "least", "median", "most"), rows))


def one_round(kit: Kit, scenario: str, rate: Sequence[str]) -> dict[str, float]:
    """Sets up, with these arguments for the rate; sets up again, measures the memory, proves, cleans up."""
    started = time.monotonic()
    first: dict[str, float] = {}
    watchers = [
        threading.Thread(target=lambda r=region: first.__setitem__(r, first_event(kit, r)))
        for region in (TARGETS if scenario == BROADCAST else ())
    ]
    for watcher in watchers:
        watcher.start()
    succeed(kit, "setup", scenario, *rate)
    ready = time.monotonic() - started
    for watcher in watchers:
        watcher.join()
    mirrored = {f"set-up to the first event in {region}, s": at - started for region, at in sorted(first.items())}
    again = seconds(kit, "setup", scenario, *rate)
    memory = settled(kit)
    proved = cost(kit, (sys.executable, "-P", "-m", "loosehanger.cli", "prove", "--json"))
    proof = json.loads(proved.output)
    if proof["verdict"] != "proved":
        raise LabError(f"{scenario}: {proof['reasons']}")
    return {
        **mirrored,
        "set-up, s": ready,
        "second set-up, s": again,
        "memory of all processes (proportional set size), GiB": memory / 2**30,
        "proof, s": proved.seconds,
        "proof, s of processor": proved.processor,
        "source records of that proof": proof["totals"]["source_records"],
        "clean-up, s": seconds(kit, "cleanup"),
    }


def seconds(kit: Kit, *command: str) -> float:
    """Returns how long a command takes."""
    started = time.monotonic()
    succeed(kit, *command)
    return time.monotonic() - started


def first_event(kit: Kit, region: str) -> float:
    """Returns the moment at which a consumer in a region gets its first committed event."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        # Early in the set-up the user, the cluster or the topic does not exist yet.
        with contextlib.suppress(LabError, KafkaError, OSError, KeyError):
            secrets = kit.home / "regions" / region / "secrets"
            arguments = {
                "bootstrap_servers": [
                    f"127.0.0.1:{kit.port_base + 100 * (1 + ['europe', *TARGETS].index(region)) + 2}"
                ],
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "prover",
                "sasl_plain_password": (secrets / "prover" / "password").read_text(),
                "ssl_cafile": str(secrets / f"{region}-cluster-ca-cert" / "ca.crt"),
                "bootstrap_timeout_ms": 2000,
            }
            with KafkaConsumer(**arguments, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
                partitions = [
                    TopicPartition(topic, partition)
                    for topic in consumer.topics()
                    for partition in consumer.partitions_for_topic(topic) or ()
                ]
                if partitions:
                    consumer.assign(partitions)
                    consumer.seek_to_beginning()
                    if consumer.poll(timeout_ms=1000):
                        return time.monotonic()
        time.sleep(0.2)
    message = f"{region}: no event within 300 s"
    raise TimeoutError(message)


def settled(kit: Kit) -> int:
    """Returns the lab's memory in bytes once it no longer changes, or after two minutes."""
    before = resident(kit)
    for _ in range(MOST_LOOKS):
        time.sleep(LOOK_S)
        now = resident(kit)
        if abs(now - before) < STILL * before:
            break
        before = now
    return now


def resident(kit: Kit) -> int:
    """Returns the memory in bytes of all processes of the lab; shared pages count once."""
    total = 0
    for process in processes(kit):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


if __name__ == "__main__":
    main()
