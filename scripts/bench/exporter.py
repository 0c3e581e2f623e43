"""What Prometheus' Java agent costs in the nodes and the workers: seconds of a set-up, and memory.

    .lab/venv/bin/python -m scripts.bench.exporter [--rounds N]

Sets the broadcast up from nothing, without the agent and with it in turn, and looks at the memory once it stands still.
"""

from __future__ import annotations

import argparse
import statistics

from scripts.bench.common import machine, sandbox, table
from scripts.bench.lifecycle import BROADCAST, seconds, settled

VARIANTS = ("false", "true")


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="set-ups of each kind (3)")
    rounds = parser.parse_args().rounds
    took: dict[str, list[float]] = {one: [] for one in VARIANTS}
    memory: dict[str, list[float]] = {one: [] for one in VARIANTS}
    with sandbox() as kit:
        for _ in range(rounds):
            for one in VARIANTS:
                took[one].append(seconds(kit, "setup", BROADCAST, "-e", f"jmx_metrics={one}"))
                memory[one].append(settled(kit) / 2**20)
                print(f"jmx_metrics={one}: {took[one][-1]:.1f} s, {memory[one][-1]:,.0f} MiB", flush=True)
                seconds(kit, "cleanup")
    print(f"\n{BROADCAST}, {rounds} rounds; {machine()}\n")
    rows = [(one, *_spread(took[one], ".1f"), *_spread(memory[one], ",.0f")) for one in VARIANTS]
    print(table(("jmx_metrics", "set-up, s: least", "median", "most", "memory, MiB: least", "median", "most"), rows))


def _spread(values: list[float], form: str) -> tuple[str, str, str]:
    least, median, most = min(values), statistics.median(values), max(values)
    return format(least, form), format(median, form), format(most, form)


if __name__ == "__main__":
    main()
