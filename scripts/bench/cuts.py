"""What a silent ocean leaves behind, in every scenario that mirrors: every link that a mirror crosses falls silent.

    .lab/venv/bin/python -m scripts.bench.cuts [--scenarios NAME ...] [--rate N]

First what mirrors read does not come for 60 seconds, then nothing that they ask for goes out for 90, while events are
written. Then everything is healed, and proved: nothing missing, nothing doubled.
"""

from __future__ import annotations

import argparse
import json
import time

from loosehanger.errors import LabError
from loosehanger.lab.scenario import read_scenario
from loosehanger.lab.scenario_index import scenario_names
from loosehanger.waiting import wait_for
from scripts.bench.common import machine, sandbox, succeed, table
from scripts.sandbox import Kit

RECORDS_S, REQUESTS_S = 60, 90
RECOVERY_S = 240


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = scenario_names()
    parser.add_argument("--scenarios", nargs="+", choices=every, default=every, metavar="NAME", help="which (all)")
    parser.add_argument("--rate", type=int, default=200, help="events a second of each producer (200)")
    options = parser.parse_args()
    rows = []
    for scenario in options.scenarios:
        with sandbox() as kit:
            rows.append(one(kit, scenario, options.rate))
            print(*rows[-1], flush=True)
    head = ("Scenario", f"well after {RECORDS_S} s, s", f"well after {REQUESTS_S} s, s", "Records", "Verdict")
    print(f"\n{options.rate:,} events/s of each producer; {machine()}\n\n{table(head, rows)}")


def one(kit: Kit, scenario: str, rate: int) -> tuple[str, ...]:
    """Cuts a scenario's links; returns the row of the table."""
    succeed(kit, "setup", scenario, "-e", f"producer_rate={rate}")
    if not kit.lab.mirrors:
        stages = read_scenario(scenario).stages
        succeed(kit, "stage", next(name for name in stages if stages[name].after), "-e", f"producer_rate={rate}")
    # The mirrors that run beside their sources write across the ocean: their records go out, and answers come.
    ways = {(m.source, m.target) for m in kit.lab.mirrors if m.source != m.target}
    if not ways:
        raise LabError(f"{scenario} mirrors nothing")
    well = [silence(kit, ways, RECORDS_S), silence(kit, {(b, a) for a, b in ways}, REQUESTS_S)]
    done = kit.run("prove", "--json", "--timeout", str(RECOVERY_S), timeout=900)
    document = json.loads(done.stdout)
    verdict = document["verdict"] if done.returncode == 0 else f"{document['verdict']}: {document['reasons']}"
    return scenario, *(f"{seconds:.0f}" for seconds in well), f"{document['totals']['source_records']:,}", verdict


def silence(kit: Kit, ways: set[tuple[str, str]], seconds: float) -> float:
    """Has links silent in one direction; returns the seconds from their healing until all is well."""
    for way in ways:
        succeed(kit, "link", *way, "--one-way", "--silent")
    cut = time.monotonic()
    wait_for(
        lambda: None if time.monotonic() - cut >= seconds else "it is not over", seconds + 10, "the end of the silence"
    )
    for way in ways:
        succeed(kit, "link", *way, "--heal")
    healed = time.monotonic()

    def unwell() -> str | None:
        done = kit.run("status")
        return None if done.returncode == 0 else done.stdout

    wait_for(unwell, RECOVERY_S, "a healthy lab")
    return time.monotonic() - healed


if __name__ == "__main__":
    main()
