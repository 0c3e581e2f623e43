"""Searches by night: random schedules of two to four faults on real labs with load, and what must be seen of each.

    .lab/venv/bin/python -m scripts.search_faults --schedules 40 [--seed N] [--out FOLDER]
    .lab/venv/bin/python -m scripts.search_faults --for 2h
    .lab/venv/bin/python -m scripts.search_faults --replay FOLDER/finding-3.json
    .lab/venv/bin/python -m scripts.search_faults --control [ORACLE ...]

The same command continues a search that was interrupted. Each schedule that finds something is made smaller with at
most ten replays, and written as ``finding-N.json``. ``--control`` damages labs without declaring it: each oracle must
find its damage. Exit codes: 0 nothing was found (with ``--control``: everything was), 1 otherwise, 2 wrong use.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from loosehanger.errors import ExitCode, LabError, WrongUseError, run_command
from loosehanger.faults.fault import Fault, read_fault
from loosehanger.faults.names import fault_names
from loosehanger.lab.scenario_index import scenario_names
from loosehanger.waiting import wait_for
from scripts.bench.common import machine, sandbox, succeed
from scripts.sandbox import Kit, copy_files, copy_kit
from scripts.search.accounts import Accountant
from scripts.search.controls import ORACLES, controls
from scripts.search.prediction import PROVED
from scripts.search.quick import QuickKit
from scripts.search.results import Results, digest
from scripts.search.running import DECIDED_S, HEALTHY_S, NO_SABOTAGE, Sabotage, ScheduleOutcome, ScheduleRun
from scripts.search.schedules import Schedule, candidates, described, make_schedule, read_schedule, scenario_of
from scripts.search.shrinking import REPLAYS, shrink

RENEW_AFTER = 20
"""How many schedules one lab may run: its topics grow, and each proof takes longer."""
_PORT_BASE = 23000
"""The ports of a kept lab begin here, apart from those of tests and benchmarks."""
_CONTROL_S = 40.0
"""Seconds that a control waits for health: a lab that is broken on purpose is not worth a longer wait."""
_HARMLESS = frozenset({"cause"})
"""Oracles whose findings leave a lab as it was, if it is proved afterwards."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


class Labs:
    """One kit's lab, set up for schedules, and kept until something damages it.

    Args:
        kit: the kit.
        rate: events a second of each producer.
    """

    def __init__(self, kit: Kit, rate: int) -> None:
        self._kit, self._rate = kit, rate
        self._scenario, self._used = "", 0
        self._accountant: Accountant | None = None
        self.catalogue = {name: read_fault(name) for name in fault_names()}

    def run(self, schedule: Schedule, sabotage: Sabotage = NO_SABOTAGE, *, control: bool = False) -> ScheduleOutcome:
        """Runs a schedule; a lab is not used again after a loss, or a finding that may have left something."""
        if schedule.scenario != self._scenario or self._used >= RENEW_AFTER:
            self.forget()
            options = ("-e", f"producer_rate={self._rate}", "-e", "producer_ledger=true")
            succeed(self._kit, "setup", schedule.scenario, *options)
            self._scenario, self._used = schedule.scenario, 0
            self._accountant = Accountant(self._kit.lab)
        self._used += 1
        healthy_s, decided_s = (_CONTROL_S, _CONTROL_S / 4) if control else (HEALTHY_S, DECIDED_S)
        run = ScheduleRun(self._kit, schedule, self.catalogue, self._accountant, sabotage, healthy_s, decided_s)
        outcome = run.run()
        if control and not sabotage.spoil:
            self._heal()
        elif self._leaves(outcome):
            self.forget()
        return outcome

    def _leaves(self, outcome: ScheduleOutcome) -> bool:
        """Whether a schedule may have left something in the lab."""
        leaves_loss = any(self.catalogue[placed.fault].after == "disproved" for placed in outcome.schedule.faults)
        unproved = bool(outcome.findings) and outcome.verdicts.get("after") != PROVED
        return leaves_loss or unproved or not outcome.oracles <= _HARMLESS

    def adopt(self) -> None:
        """Takes over the lab that an earlier search has kept, if it is healthy once its faults are healed."""
        with contextlib.suppress(LabError):
            self._scenario = self._kit.lab.scenario
        if self._scenario and self._heal():
            self._accountant = Accountant(self._kit.lab)

    def _heal(self) -> bool:
        """Heals every fault; a lab that does not become healthy is cleaned up. Returns whether the lab is kept."""
        done = self._kit.run("fault", "heal")
        try:
            wait_for(lambda: None if self._kit.run("status").returncode == 0 else "not healthy", HEALTHY_S, "the lab")
        except LabError:
            self.forget()
        else:
            if done.returncode:
                self.forget()
        return bool(self._scenario)

    def forget(self) -> None:
        """Cleans the lab up."""
        if self._scenario:
            succeed(self._kit, "cleanup")
        self._scenario = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Searches, replays a schedule, or checks the oracles.

    Raises:
        WrongUseError: the command line or a file is wrong; nothing was run.
        LabError: a lab could not be set up.
    """
    options = _parser().parse_args(arguments)
    scenarios = options.scenarios or [name for name in scenario_names() if candidates(described(name), _faults())]
    if options.list is not None:
        for number in range(options.list):
            print(_line(_made(options.seed, number, scenarios, options.block)))
        return ExitCode.DONE
    if options.replay:
        return _replay(read_schedule(options.replay), options)
    if options.control is not None:
        return _control(scenarios[0], options.control or ORACLES, options)
    return _search(options, scenarios)


@contextlib.contextmanager
def _prepared(options: argparse.Namespace) -> Iterator[Labs]:
    """Yields labs, and cleans them up whatever ends the search, or keeps them for the next search."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.FAILED))
    try:
        with _kept(options.out) if options.keep else sandbox() as kit:
            quick = QuickKit.of(kit)
            try:
                labs = Labs(quick, options.rate)
                if options.keep:
                    labs.adopt()
                yield labs
            finally:
                quick.end()
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[Kit]:
    """Yields the kit in the folder of a search, with the files of this checkout."""
    root = folder.absolute() / "kit"
    if not root.exists():
        yield copy_kit(folder.absolute(), _PORT_BASE)
        return
    copy_files(root)
    yield Kit(root, root / ".lab", _PORT_BASE)


def _search(options: argparse.Namespace, scenarios: Sequence[str]) -> int:
    if options.schedules is None and options.seconds is None:
        raise WrongUseError("the search has no end; give --schedules N, or --for 2h")
    settings = {
        "seed": options.seed, "scenarios": list(scenarios), "block": options.block, "catalogue": digest(_faults()),
    }  # fmt: skip
    results, until = Results(options.out, settings), time.monotonic() + (options.seconds or float("inf"))
    with _prepared(options) as labs:
        while time.monotonic() < until and results.next_number < (options.schedules or sys.maxsize):
            number = results.next_number
            outcome = labs.run(_made(options.seed, number, scenarios, options.block))
            print(_line(outcome.schedule), _result(outcome), flush=True)
            if outcome.findings:
                path = results.keep(f"finding-{number}", outcome.document())
                small, replays = shrink(outcome.schedule, partial(_finds_again, labs, outcome), options.replays)
                kept = {**outcome.document(), "smallest": small.model_dump(), "replays": replays}
                results.keep(f"finding-{number}", kept)
                print(f"  {path}: smallest after {replays} replays: {_line(small)}", flush=True)
            results.add(outcome.summary())
    print(summary(results, options.seed))
    return ExitCode.FAILED if any(one["findings"] for one in results.done) else ExitCode.DONE


def _finds_again(labs: Labs, before: ScheduleOutcome, schedule: Schedule) -> bool:
    """Whether an oracle that found something before finds something in this schedule, too."""
    return bool(before.oracles & labs.run(schedule).oracles)


def _replay(schedule: Schedule, options: argparse.Namespace) -> int:
    with _prepared(options) as labs:
        outcome = labs.run(schedule)
    print(_line(schedule), _result(outcome))
    for event in outcome.events:
        print(f"  {event['at']:6.1f} s  {event['command']} ({event['took']} s): {event['code']}")
    return ExitCode.FAILED if outcome.findings else ExitCode.DONE


def _control(scenario: str, oracles: Collection[str], options: argparse.Namespace) -> int:
    failed = []
    with _prepared(options) as labs:
        for control in controls(described(scenario), labs.catalogue):
            if control.oracle not in oracles:
                continue
            outcome = labs.run(control.schedule, control.sabotage, control=True)
            found = control.oracle in outcome.oracles
            failed += [] if found else [control.oracle]
            print(f"{control.oracle}: {'found' if found else 'NOT FOUND'};", _result(outcome), flush=True)
    print(f"blind: {', '.join(failed)}" if failed else f"found what was damaged: {', '.join(oracles)}")
    return ExitCode.FAILED if failed else ExitCode.DONE


def _made(seed: int, number: int, scenarios: Sequence[str], block: int) -> Schedule:
    return make_schedule(seed, number, described(scenario_of(scenarios, number, block)), _faults())


def _faults() -> list[Fault]:
    return [read_fault(name) for name in fault_names()]


def _line(schedule: Schedule) -> str:
    placed = ", ".join(f"{one.fault} at {one.region}/{one.mirror} from {one.source}" for one in schedule.faults)
    return f"{schedule.number}: {schedule.scenario}: {placed}; heal {schedule.heal}"


def _result(outcome: ScheduleOutcome) -> str:
    found = "; ".join(f"{one.oracle}: expected {one.expected}; seen {one.seen}" for one in outcome.findings)
    verdicts = ", ".join(f"{when}: {verdict}" for when, verdict in outcome.verdicts.items())
    return f"-> {found or 'as predicted'} ({verdicts}; {outcome.records:,} records; {outcome.seconds:.0f} s)"


def summary(results: Results, seed: int) -> str:
    """Returns what a search has done so far, in a few lines."""
    done = results.done
    records = sum(one["records"] for one in done)
    found = [one for one in done if one["findings"]]
    lines = [f"seed {seed}: {len(done)} schedules, {records:,} acknowledged records looked for; {machine()}"]
    lines += [f"  schedule {one['number']}, {one['scenario']}: {', '.join(one['faults'])}" for one in found]
    return "\n".join([*lines, f"{len(found)} have found something; see {results.folder}"])


def duration(text: str) -> float:
    """Reads a duration such as ``90s``, ``30m`` or ``2h``; returns seconds.

    Raises:
        ArgumentTypeError: it is not one.
    """
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text):
        return float(match[1]) * _UNITS[match[2]]
    raise argparse.ArgumentTypeError(f"'{text}' is not a duration such as 90s, 30m or 2h")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, metavar="N", help="stop once N schedules have run in all")
    parser.add_argument("--for", type=duration, dest="seconds", metavar="TIME", help="stop after a time, such as 2h")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the schedules (1)")
    parser.add_argument("--out", type=Path, default=Path("search"), help="the folder of the results (search)")
    parser.add_argument(
        "--scenarios",
        nargs="+",
        choices=scenario_names(),
        metavar="NAME",
        help="the scenarios (all that can have faults)",
    )
    parser.add_argument("--block", type=int, default=10, help="schedules in a row that share a scenario (10)")
    parser.add_argument("--rate", type=int, default=20, help="events a second of each producer (20)")
    parser.add_argument(
        "--replays", type=int, default=REPLAYS, metavar="N", help="replays for each finding, at most (10)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the lab in the folder of the results, to be used again"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run the schedule in a file again")
    parser.add_argument(
        "--control", nargs="*", choices=ORACLES, metavar="ORACLE",
        help=f"check that each oracle, or each that is named, finds undeclared damage: {', '.join(ORACLES)}",
    )  # fmt: skip
    parser.add_argument("--list", type=int, metavar="N", help="show the first schedules, and run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
