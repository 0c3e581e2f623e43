"""False alarms of ``./lab status`` and ``./lab watch``: what they report of a lab that nothing was done to.

    .lab/venv/bin/python -m scripts.bench.quiet [--minutes N] [--pause S] [--stages] [SCENARIO ...]

Sets up one scenario after the other, starts a watch with canaries, and asks for the status again and again; with
``--stages`` also after each stage, from each one to the first that may follow it. Prints how often it asked, how long
an answer took, and each problem that was reported. Ends with 1 if there was one, or if the watch showed nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from loosehanger.audit.display import alarms_of
from loosehanger.lab.scenario import read_scenario, scenario_names
from loosehanger.lab.scenario_index import SETUP
from scripts.bench.common import percentiles, sandbox
from scripts.sandbox import Kit


class Look(NamedTuple):
    """One answer of ``./lab status``."""

    after_s: float
    """Seconds since the set-up or the stage ended."""
    took_s: float
    reported: tuple[str, ...]
    """The problems, and the resources that are not healthy."""


def main() -> int:
    """Asks, and prints what was reported; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all, if none is named")
    parser.add_argument("--minutes", type=float, default=10, help="minutes after the set-up, and after each stage (10)")
    parser.add_argument("--pause", type=float, default=2, help="seconds from one answer to the next question (2)")
    parser.add_argument("--stages", action="store_true", help="run the scenario's stages, too")
    options = parser.parse_args()
    alarms = 0
    with sandbox() as kit:
        for scenario in options.scenarios or scenario_names():
            for command in commands(scenario, stages=options.stages):
                done = kit.run(*command, timeout=1800)
                if done.returncode:
                    sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
                with watching(kit) as alarms_so_far:
                    looks = list(quiet(kit, options.minutes * 60, options.pause))
                    watched = alarms_so_far()
                alarms += report(scenario, command, looks, watched)
            kit.run("cleanup")
    return 1 if alarms else 0


def commands(scenario: str, *, stages: bool) -> Iterator[tuple[str, ...]]:
    """The commands that set a scenario up, and then bring it from each stage to the first that may follow it."""
    yield "setup", scenario
    known, reached = read_scenario(scenario).stages, [SETUP]
    while stages and (ready := [name for name in known if name not in reached and reached[-1] in known[name].after]):
        reached.append(ready[0])
        yield "stage", ready[0]


@contextlib.contextmanager
def watching(kit: Kit) -> Iterator[Callable[[], list[str]]]:
    """A watch beside the questions; yields what gives the alarms of all that it has shown so far, each once."""
    output = kit.home / "quiet-watch.json"
    with output.open("w") as file:
        process = kit.start(file, "watch", "--json", "--canary", "30", "--every", "5")
    try:
        yield lambda: watch_alarms(output)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)


def watch_alarms(output: Path) -> list[str]:
    """Returns the alarms in a watch's output; an alarm as well if it shows nothing."""
    found: dict[str, None] = {}
    documents = 0
    for line in output.read_text(encoding="utf-8").split("\n")[:-1]:
        if not line.startswith("{"):
            found.setdefault(line)
            continue
        document = json.loads(line)
        documents += 1
        late = [f"{document['totals']['late']} records are late"] if document["totals"]["late"] else []
        for alarm in (*alarms_of(document), *late):
            found.setdefault(alarm)
    return list(found) if documents else [*found, "the watch has shown nothing"]


def quiet(kit: Kit, seconds: float, pause: float) -> Iterator[Look]:
    """Asks for the status until this time is over, with a pause after each answer."""
    began = time.monotonic()
    while (after := time.monotonic() - began) < seconds:
        done = kit.run("status", "--json")
        took = time.monotonic() - began - after
        if not done.stdout:
            yield Look(after, took, (done.stderr.strip(),))
            continue
        found = json.loads(done.stdout)
        ill = [
            f"{region}: {one['kind']}/{one['name']} is {one['state']}: {one['detail']}"
            for region, resources in found["regions"].items()
            for one in resources
            if not one["healthy"]
        ]
        yield Look(after, took, (*(f"{one['where']}: {one['cause']}" for one in found["problems"]), *ill))
        time.sleep(pause)  # so that a slow machine has time for the lab itself


def report(scenario: str, command: tuple[str, ...], looks: list[Look], watched: list[str]) -> int:
    """Prints what was reported; returns how many answers had a problem, and alarms the watch."""
    alarms = [look for look in looks if look.reported]
    p50, p95, _ = percentiles([look.took_s for look in looks])
    print(
        f"{scenario}, after {' '.join(command)}: {len(looks)} answers, {len(alarms)} with a problem; "
        f"p50 {p50:.1f} s, p95 {p95:.1f} s; {len(watched)} alarms of the watch",
        flush=True,
    )
    for look in alarms:
        print(*(f"  {look.after_s:.0f} s: {one}" for one in look.reported), sep="\n", flush=True)
    for alarm in watched:
        print(f"  watch: {alarm}", flush=True)
    return len(alarms) + len(watched)


if __name__ == "__main__":
    sys.exit(main())
