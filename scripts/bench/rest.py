"""Measures the CPU use of an idle lab without viewers, by kind of process.

    .lab/venv/bin/python -m scripts.bench.rest [--scenario NAME] [--after SECONDS] [--seconds SECONDS] [--rate N]

Java compiles what it runs in the minutes after the set-up, so the measurement begins some minutes later.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import defaultdict

import psutil

from scripts.bench.common import machine, processes, sandbox, succeed, table
from scripts.sandbox import Kit

KINDS = {
    "kafka.Kafka": "nodes",
    "ConnectDistributed": "workers",
    "-m consumers": "consumers",
    "-m producer": "producers",
    "-m loosehanger.console": "consoles",
    "local.relay": "relays",
    "supervisord": "process managers",
    "auto_restart": "process managers",
}
"""The kinds of processes, by words in their command lines."""
OTHERS = "others"


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="03-broadcast", help="the scenario (03-broadcast)")
    parser.add_argument("--after", type=float, default=240, help="seconds from the set-up to the measurement (240)")
    parser.add_argument("--seconds", type=float, default=60, help="seconds of the measurement (60)")
    parser.add_argument("--rate", help="events a second of each producer (its own default)")
    options = parser.parse_args()
    with sandbox() as kit:
        succeed(kit, "setup", options.scenario, *(["-e", f"producer_rate={options.rate}"] if options.rate else []))
        time.sleep(options.after)
        before = used(kit)
        time.sleep(options.seconds)
        after = used(kit)
    cores: dict[str, list[float]] = defaultdict(list)
    for key, seconds in after.items():
        cores[key[1]].append((seconds - before.get(key, seconds)) / options.seconds)
    rows = [(kind, len(found), f"{sum(found):.3f}") for kind, found in sorted(cores.items(), key=lambda x: -sum(x[1]))]
    total = sum(sum(found) for found in cores.values())
    rows.append(("all", sum(map(len, cores.values())), f"{total:.3f}"))
    print(f"{options.scenario}, {options.after:.0f} s after the set-up, for {options.seconds:.0f} s; {machine()}\n")
    print(table(("Processes", "how many", "cores"), rows))


def used(kit: Kit) -> dict[tuple[int, str], float]:
    """Returns the seconds of processor time that each process of the lab has taken, by its id and kind."""
    found = {}
    for process in processes(kit):
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            kind = next((kind for words, kind in KINDS.items() if words in command), OTHERS)
            times = process.cpu_times()
            found[process.pid, kind] = times.user + times.system
    return found


if __name__ == "__main__":
    main()
