"""Proves whether a link that falls silent under load leaves records missing or duplicate: many silences, a proof each.

    .lab/venv/bin/python -m scripts.bench.silences [--runs N] [--seed N] [--rate N] [--for SECONDS] [--keep FOLDER]

Each silence has a direction and a length between 20 and 90 seconds, both from the seed. Where the verdict of a proof is
not ``proved``, everything that explains it is kept: the proof's document, the workers' logs, and a dump of the log
segments of every topic at both ends, with producer ids, epochs and markers.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from loosehanger.errors import LabError
from loosehanger.paths import lab_home
from loosehanger.waiting import wait_for
from scripts.bench.common import machine, sandbox, succeed, table
from scripts.sandbox import Kit

SHORTEST_S, LONGEST_S = 20, 90
RECOVERY_S = 240
SOURCE, TARGET = "europe", "north-america"
DIRECTIONS = {
    "records": (SOURCE, TARGET, "--one-way"),
    "requests": (TARGET, SOURCE, "--one-way"),
    "both": (SOURCE, TARGET),
}


class Silence(NamedTuple):
    """One silence of the link."""

    direction: str
    seconds: float


def silences(seed: int, runs: int) -> list[Silence]:
    """Returns the silences that follow from a seed."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    return [Silence(chance.choice(sorted(DIRECTIONS)), chance.randint(SHORTEST_S, LONGEST_S)) for _ in range(runs)]


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how many silences (10)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of directions and lengths (1)")
    parser.add_argument("--rate", type=int, default=300, help="events a second (300)")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first silence to run (1)")
    parser.add_argument("--for", type=float, dest="limit_s", help="begin no silence after this many seconds")
    parser.add_argument("--keep", type=Path, default=Path("silences"), help="where to keep what explains a difference")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    begun = time.monotonic()
    with sandbox() as kit:
        succeed(kit, "setup", "03-broadcast", "-e", f"producer_rate={options.rate}")
        try:
            for number, silence in enumerate(silences(options.seed, options.runs), start=1):
                if number < options.first:
                    continue
                if options.limit_s and rows and time.monotonic() - begun > options.limit_s:
                    print(f"stopped before silence {number}; --from {number} continues")
                    break
                measured = one(kit, silence, options.keep / str(number))
                rows.append((f"{number}", silence.direction, f"{silence.seconds}", *measured))
                print(*rows[-1], flush=True)
        finally:
            head = ("Run", "Silent", "s", "healthy after, s", "Records", "Missing", "Duplicates", "Verdict")
            print(f"\nseed {options.seed}, {options.rate:,} events/s; {machine()}\n\n{table(head, rows)}")


def one(kit: Kit, silence: Silence, keep: Path) -> tuple[str, ...]:
    """Makes the link silent, heals it, and proves; returns the rest of the table's row."""
    succeed(kit, "link", *DIRECTIONS[silence.direction], "--silent")
    begun = time.monotonic()
    wait_for(
        lambda: None if time.monotonic() - begun >= silence.seconds else "the silence is not over",
        silence.seconds + 10,
        "the end of the silence",
    )
    succeed(kit, "link", SOURCE, TARGET, "--heal")
    healed = time.monotonic()

    def unhealthy() -> str | None:
        done = kit.run("status")
        return None if done.returncode == 0 else done.stdout

    wait_for(unhealthy, RECOVERY_S, "a healthy lab")
    recovered = time.monotonic() - healed
    done = kit.run("prove", "--json", "--timeout", str(RECOVERY_S), timeout=900)
    if not done.stdout:
        raise LabError(f"prove exited with {done.returncode}: {done.stderr.strip()}")
    document = json.loads(done.stdout)
    totals = document["totals"]
    if done.returncode:
        explain(kit, done.stdout, keep)
    return (
        f"{recovered:.0f}",
        *(f"{totals[name]:,}" for name in ("source_records", "missing", "duplicates")),
        document["verdict"],
    )


def explain(kit: Kit, document: str, keep: Path) -> None:
    """Keeps the proof's document, the workers' logs, and dumps of every topic's log segments at both ends."""
    keep.mkdir(parents=True, exist_ok=True)
    (keep / "proof.json").write_text(document, encoding="utf-8")
    jars = ":".join(str(jar) for jar in sorted((lab_home() / "jars" / "kafka").glob("*.jar")))
    for region in (SOURCE, TARGET):
        shutil.copytree(kit.home / "regions" / region / "logs", keep / region / "logs", dirs_exist_ok=True)
        for log in sorted((kit.home / "regions" / region / "kafka").glob("*/*/data/LH.*/*.log")):
            command = ("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", str(log))
            dumped = subprocess.run(
                [str(lab_home() / "java" / "bin" / "java"), "-cp", jars, *command],
                capture_output=True,
                text=True,
                check=False,
            )
            (keep / region / f"{log.parent.name}-{log.stem}.txt").write_text(dumped.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
