"""How long a lab's commands take in this checkout and in another one, such as an older release: in turn, in one run.

    .lab/venv/bin/python -m scripts.bench.checkouts FOLDER [--rounds N] [--proofs N]

FOLDER is a clone with an installation of its own (``scripts/bootstrap.sh``). Each lab is a copy, so neither checkout's
own lab is touched. The commands run as users type them. Their processor time is theirs alone: without the brokers,
workers and programs that they start.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from loosehanger.errors import LabError
from loosehanger.paths import ROOT
from scripts.bench.common import PORT_BASE, TARGETS, machine, table
from scripts.bench.lifecycle import BROADCAST, first_event
from scripts.sandbox import Kit, copy_kit, forget_bytecode

SWITCHED, STAGES = "05-active-passive", ("failover", "rebuild", "failback")
_STATUS = 3
_WAIT_S = 600
Figure = tuple[str, float, float]
"""What was measured, its seconds, and its seconds of processor."""


class _Took(NamedTuple):
    seconds: float
    processor: float


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=2, help="labs of each scenario and checkout (2)")
    parser.add_argument("--proofs", type=int, default=5, help="proofs of each broadcast (5)")
    options = parser.parse_args()
    checkouts = {"this": ROOT, "other": options.other.resolve()}
    figures: dict[str, dict[str, list[_Took]]] = {}
    for number in range(options.rounds):
        # The other one first, then this one first: what the machine does meanwhile meets both.
        for name in sorted(checkouts, reverse=number % 2 == 1):
            for what, seconds, processor in one_round(checkouts[name], options.proofs):
                figures.setdefault(what, {}).setdefault(name, []).append(_Took(seconds, processor))
                print(f"{name}: {what}: {seconds:.1f} s, processor {processor:.1f} s; load {os.getloadavg()[0]:.1f}")
    print(f"\n{machine()}\n\n{table(('What', 'other, s', 'this, s', 'other, processor s', 'this'), rows(figures))}")


def one_round(checkout: Path, proofs: int) -> Iterator[Figure]:
    """Measures both labs of a checkout, one after the other."""
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        kit = copy_kit(Path(folder), PORT_BASE, checkout)
        try:
            yield from broadcast(kit, proofs)
            yield from switches(kit)
        finally:
            with contextlib.suppress(LabError):
                run(kit, "cleanup")
            forget_bytecode(Path(folder), kit.home)


def broadcast(kit: Kit, proofs: int) -> Iterator[Figure]:
    """Measures a broadcast from its set-up to its clean-up."""
    started, first = time.monotonic(), list[float]()
    watchers = [threading.Thread(target=lambda r=region: first.append(first_event(kit, r))) for region in TARGETS]
    for watcher in watchers:
        watcher.start()
    yield ("set-up until everything is ready", *run(kit, "setup", BROADCAST))
    for watcher in watchers:
        watcher.join()
    yield "set-up to the first mirrored event in both targets", max(first) - started, 0.0
    yield ("second set-up, nothing changed", *run(kit, "setup", BROADCAST))
    yield from (("status", *run(kit, "status")) for _ in range(_STATUS))
    yield from (("prove", *run(kit, "prove")) for _ in range(proofs))
    yield ("clean-up", *run(kit, "cleanup"))


def switches(kit: Kit) -> Iterator[Figure]:
    """Measures a disaster and the way back."""
    yield (f"set-up of {SWITCHED}", *run(kit, "setup", SWITCHED))
    yield from ((f"stage {name}", *run(kit, "stage", name)) for name in STAGES)
    yield (f"clean-up of {SWITCHED}", *run(kit, "cleanup"))


def run(kit: Kit, *words: str) -> _Took:
    """Runs a command of a kit as its user does.

    Raises:
        LabError: it fails.
    """
    inherited = {name: value for name, value in kit.variables().items() if name != "PYTHONPATH"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            [kit.root / "lab", *words], env=inherited, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        bound = threading.Timer(_WAIT_S, process.terminate)
        bound.start()
        # The kernel reports what a process and its finished children have used to its parent.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        bound.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if process.returncode:
            raise LabError(f"{kit.root}: {' '.join(words)} exited with {process.returncode}: {output.read()[-2000:]}")
    return _Took(seconds, usage.ru_utime + usage.ru_stime)


def rows(figures: dict[str, dict[str, list[_Took]]]) -> list[tuple[str, ...]]:
    """Returns a row for each figure: the median, and the least and the most in brackets."""
    return [
        (
            what,
            *(spread([one.seconds for one in found[name]]) for name in ("other", "this")),
            *(f"{statistics.median(one.processor for one in found[name]):.1f}" for name in ("other", "this")),
        )
        for what, found in figures.items()
    ]


def spread(values: list[float]) -> str:
    """Returns the median, and the least and the most in brackets."""
    return f"{statistics.median(values):.1f} ({min(values):.1f}, {max(values):.1f})"


if __name__ == "__main__":
    main()
