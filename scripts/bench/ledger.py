"""Measures what a ledger costs a producer and a consumer: processor time with one and without, in turns.

.lab/venv/bin/python -m scripts.bench.ledger [--events N] [--rate N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.bench.common import configure, machine, sandbox


def cpu_seconds(*command: str) -> float:
    """Returns the processor time of a program, its start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-P", "-m", *command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Sets up a lab, and measures."""
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--events", type=int, default=40_000)
    command.add_argument("--rate", default="5000")
    command.add_argument("--rounds", type=int, default=3)
    options = command.parse_args()
    with sandbox() as kit:
        configure(kit, {}, {})
        measure(str(kit.lab.region("europe").clients["admin"]), options)
    print(machine())


def measure(config: str, options: argparse.Namespace) -> None:
    """Measures with a user who may do everything, and prints a line for each program."""
    producer = ("producer", "--config", config, "--rate", options.rate, "--events", str(options.events), "--seed", "1")
    consumer = ("consumers", "--config", config, "--max", str(options.events), "--group")
    with tempfile.TemporaryDirectory() as folder:
        for name, program in (("producer", producer), ("consumer", consumer)):
            plain, kept = [], []
            for round_ in range(options.rounds):
                # Every consumer has a group of its own, so that each reads from the beginning.
                group = f"bench-{os.getpid()}-{round_}" if name == "consumer" else ""
                plain.append(cpu_seconds(*program, *([f"{group}-plain"] if group else [])))
                kept.append(cpu_seconds(*program, *([f"{group}-kept"] if group else []), "--ledger", folder))
            without, with_ = statistics.median(plain), statistics.median(kept)
            print(f"{name}: {without:.2f} s without, {with_:.2f} s with a ledger: {100 * (with_ / without - 1):+.1f} %")
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        print(f"ledgers: {size / 1e6:.2f} MB for {2 * options.rounds * options.events:,} records")


if __name__ == "__main__":
    main()
