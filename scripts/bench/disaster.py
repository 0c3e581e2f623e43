"""What a disaster costs: North America dies in the active/passive scenario, again and again, while events are written.

    .lab/venv/bin/python -m scripts.bench.disaster [--rounds N] [--rate N] [--held-back RATE] [--planned]

Each round is a lab of its own. ``failover`` reports how long each leg took, and its proof which acknowledged records
are lost, how old the oldest of them was, and what the group read again. With ``--held-back`` the link that the mirror
reads through is that narrow in a second series. With ``--planned`` nothing dies, and it is its ``switchover``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from loosehanger.errors import LabError
from loosehanger.waiting import wait_for
from scripts.bench.common import admin, cost, end_offsets, machine, sandbox, succeed, table
from scripts.sandbox import Kit

SCENARIO = "05-active-passive"
SOURCE, TARGET = "north-america", "europe"
TOPIC = "LH.ORDERS"
PLANNED = "switchover"
COPIED = 2_000
"""So many orders are in Europe before North America dies."""


def main() -> None:
    """Measures, and prints a table for each series."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how often (10)")
    parser.add_argument("--rate", type=int, default=1_000, help="events a second (1000)")
    parser.add_argument("--held-back", metavar="RATE", help="of the link in a second series, as in 200kB/s")
    parser.add_argument("--planned", action="store_true", help="switch while both regions live")
    options = parser.parse_args()
    stage = PLANNED if options.planned else "failover"
    for link_rate in ("", *([options.held_back] if options.held_back else [])):
        figures: dict[str, list[float]] = defaultdict(list)
        for _ in range(options.rounds):
            with sandbox() as kit:
                for name, value in one_round(kit, stage, options.rate, link_rate):
                    figures[name].append(value)
                    print(f"{name}: {value:,.1f}", flush=True)
        held = f", mirror held back by a link of {link_rate}" if link_rate else ""
        print(f"\n{stage}, {options.rate:,} events/s, {options.rounds} rounds{held}; {machine()}\n")
        print(table(("What", "least", "median", "most"), [_row(*found) for found in figures.items()]), "\n")


def one_round(kit: Kit, stage: str, rate: int, link_rate: str) -> Iterator[tuple[str, float]]:
    """Carries the stage out; yields what that took and cost."""
    succeed(kit, "setup", SCENARIO, "-e", f"producer_rate={rate}")
    if link_rate:
        succeed(kit, "link", SOURCE, TARGET, "--rate", link_rate)
    client = admin(kit, TARGET)
    try:
        wait_for(
            lambda: None if end_offsets(client, TOPIC) > COPIED else f"fewer than {COPIED} orders in {TARGET}",
            300,
            TOPIC,
        )
    finally:
        client.close()
    prove = (sys.executable, "-P", "-m", "loosehanger.cli", "prove", "--json", "--timeout", "120")
    if stage == PLANNED:
        before = cost(kit, prove)
        if before.code:
            raise LabError(f"{SCENARIO}: the copy before the switch is not proved: {before.output}")
        yield "proof of the copy before, s", before.seconds
    succeed(kit, "stage", stage, "-e", f"producer_rate={rate}")
    proved = cost(kit, prove)
    document = json.loads(proved.output)
    # Records that died with their region are lost: that is disproved, and what this measures.
    if proved.code not in (0, 1):
        raise LabError(f"{SCENARIO}: {document['reasons']}")
    found = {finding["kind"]: finding for claim in document["claims"] for finding in claim["findings"]}
    for leg, seconds in found["recovery"]["details"]["legs"].items():
        yield f"{leg}, s", seconds
    yield "acknowledged records", found["acknowledged"]["count"]
    lost: Mapping[str, Any] = found.get("lost", {"count": 0, "details": {"rpo_seconds": 0}})
    yield "lost records", lost["count"]
    yield "the oldest of them before the death, s", lost["details"]["rpo_seconds"]
    yield "read again", found["read_again"]["count"]
    yield "read again, as predicted", found["read_again"]["details"]["predicted"]
    yield "proof, s", proved.seconds


def _row(name: str, values: list[float]) -> tuple[str, ...]:
    return name, *(f"{value:,.1f}" for value in (min(values), statistics.median(values), max(values)))


if __name__ == "__main__":
    main()
