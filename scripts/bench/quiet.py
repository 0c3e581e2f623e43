"""Looks for false alarms of ``./lab status``, ``./lab watch`` and Prometheus: what they report of a healthy lab.

    .lab/venv/bin/python -m scripts.bench.quiet [--minutes N] [--stage-minutes N] [--pause S] [SCENARIO ...]

Sets up one scenario after the other, starts a watch with canaries, and asks for the status again and again; then the
same after each stage, from each one to the first that may follow it. A Prometheus and an Alertmanager with the lab's
rules run beside it from the first set-up on: through a clean-up, a second set-up, the minutes, the stages and the last
clean-up. Prints how often it asked, how long an answer took, each problem that was reported, and each alert that fired.
Exits with 1 if anything was reported, or if the watch showed nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from loosehanger.audit.display import alarms_of
from loosehanger.cli.monitoring import scraped
from loosehanger.lab.scenario import read_scenario, scenario_names
from loosehanger.lab.scenario_index import SETUP
from scripts.alerting import Monitoring, monitoring
from scripts.bench.common import PORT_BASE, percentiles, sandbox
from scripts.sandbox import Kit

CLEANED_S = 30
"""Seconds after the last clean-up in which no alert may fire: longer than any of the lab's rules waits."""

RESUMED = "starting over:"
"""How the line of a watch begins where a stage has recreated a cluster."""

UNREMARKABLE: dict[str, list[object]] = {"notes": [], "not_judged": []}
"""What a watch reports about a stage's own work: which mirrors it changed, and what no claim covers."""


class Look(NamedTuple):
    """One answer of ``./lab status``."""

    after_s: float
    """Seconds since the set-up or the stage ended."""
    took_s: float
    reported: tuple[str, ...]
    """The problems, and the resources that are not healthy."""


def main() -> int:
    """Asks for the status, and prints what was reported; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all, if none is named")
    parser.add_argument("--minutes", type=float, default=10, help="minutes after the set-up (10)")
    parser.add_argument("--stage-minutes", type=float, default=1, help="minutes after each stage (1); 0: no stages")
    parser.add_argument("--pause", type=float, default=2, help="seconds from one answer to the next request (2)")
    parser.add_argument("--port-base", type=int, default=PORT_BASE, help="the lab's first port (%(default)s)")
    options = parser.parse_args()
    alarms = 0
    with sandbox(options.port_base) as kit:
        for scenario in options.scenarios or scenario_names():
            with contextlib.ExitStack() as stack:
                run(kit, "setup", scenario)
                watched = alerting(kit, stack)
                run(kit, "cleanup")
                for command, minutes in commands(scenario, options.minutes, options.stage_minutes):
                    run(kit, *command)
                    watched = watched or alerting(kit, stack)
                    with watching(kit) as alarms_so_far:
                        looks = list(quiet(kit, minutes * 60, options.pause))
                        reported = alarms_so_far()
                    alarms += report(scenario, command, looks, reported)
                run(kit, "cleanup")
                if watched:
                    time.sleep(CLEANED_S)  # a fixed time, since no alert may fire
                    alarms += report_alerts(scenario, watched)
    return 1 if alarms else 0


def alerting(kit: Kit, stack: contextlib.ExitStack) -> Monitoring | None:
    """Starts Prometheus and Alertmanager beside a lab; returns None where the lab has no control room yet."""
    if not scraped(kit.lab):
        return None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "monitoring"
    return stack.enter_context(monitoring(kit, folder))


def run(kit: Kit, *command: str) -> None:
    """Runs a command of the kit, which must succeed."""
    done = kit.run(*command, timeout=1800)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def commands(scenario: str, minutes: float, stage_minutes: float) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yields the commands that set a scenario up and bring it from each stage to the first that may follow it.

    With each come the minutes for which the lab is watched after it.
    """
    yield ("setup", scenario), minutes
    known, reached = read_scenario(scenario).stages, [SETUP]
    while stage_minutes:
        ready = [name for name in known if name not in reached and reached[-1] in known[name].after]
        if not ready:
            break
        reached.append(ready[0])
        yield ("stage", ready[0]), stage_minutes


@contextlib.contextmanager
def watching(kit: Kit) -> Iterator[Callable[[], list[str]]]:
    """Runs a watch; yields a function that returns the alarms that it has shown so far, each once."""
    output = kit.home / "quiet-watch.json"
    with output.open("w") as file:
        process = kit.start(file, "watch", "--json", "--canary", "30", "--every", "5")
    try:
        yield lambda: watch_alarms(output)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)


def watch_alarms(output: Path) -> list[str]:
    """Returns the alarms in a watch's output; that it has shown nothing is an alarm, too."""
    found: dict[str, None] = {}
    documents = 0
    for line in output.read_text(encoding="utf-8").split("\n")[:-1]:
        if not line.startswith("{"):
            if not line.startswith(RESUMED):
                found.setdefault(line)
            continue
        document = json.loads(line)
        documents += 1
        late = [f"{document['totals']['late']} records are late"] if document["totals"]["late"] else []
        for alarm in (*alarms_of({**document, **UNREMARKABLE}), *late):
            found.setdefault(alarm)
    return list(found) if documents else [*found, "the watch has shown nothing"]


def quiet(kit: Kit, seconds: float, pause: float) -> Iterator[Look]:
    """Asks for the status for this many seconds, with a pause after each answer."""
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
        time.sleep(pause)  # leaves a slow machine time for the lab itself


def report(scenario: str, command: tuple[str, ...], looks: list[Look], watched: list[str]) -> int:
    """Prints what was reported; returns the number of answers with a problem and of the watch's alarms together."""
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


def report_alerts(scenario: str, watched: Monitoring) -> int:
    """Prints the alerts that a scenario's Alertmanager sent; returns how many."""
    fired = [notice for notice in watched.notices if notice.firing]
    scrapes = watched.query("sum(count_over_time(up[2h]))")
    count = scrapes[0]["value"][1] if scrapes else "0"
    print(f"{scenario}: {count} scrapes, {len(fired)} alerts", flush=True)
    for notice in fired:
        print(f"  {time.ctime(time.time() - time.monotonic() + notice.at)}: {notice.alert} {notice.labels}", flush=True)
    return len(fired)


if __name__ == "__main__":
    sys.exit(main())
