"""Running an experiment on the lab, and showing what was found: what ``./lab experiment NAME`` does."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from loosehanger.errors import ExitCode, LabError
from loosehanger.experiments import compress, mirror_location, read_location, write_location
from loosehanger.experiments.catalogue import EXPERIMENTS
from loosehanger.experiments.progress import SweepProgress
from loosehanger.experiments.site import ENDING, Site, choose, prepared
from loosehanger.files import make_folder
from loosehanger.lab.job_options import check_writable
from loosehanger.lab.record import Lab
from loosehanger.paths import caller_path, lab_home
from loosehanger.proof.report.files import write

ROUNDS = 3
FOLDER = "experiments"
_WIDEST = 10_000
_SUFFIXES = ("html", "json")
_UNFINISHED = "-unfinished"
"""Follows the name of what is kept of an experiment that did not come to its end."""
_MODULES = {
    "read-where": read_location,
    "mirror-where": mirror_location,
    "write-where": write_location,
    "compress": compress,
}


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Does what the command line says.

    Raises:
        WrongUseError: the lab, or the folder for what is found, cannot be used.
        LabError: it failed.
    """
    site = choose(lab, lab_home(), options.source, options.target)
    folder = _folder(options.output)
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    for name in (options.name, options.name + _UNFINISHED):
        for file in _files(folder, name).values():
            check_writable(file)
    found = _Found(site, options.name, rounds, quick=options.quick)
    try:
        found.measure()
    except (LabError, KeyboardInterrupt):
        if found.steps:
            files = _write(folder, options.name + _UNFINISHED, found.document())
            print(f"kept: {len(found.whole)} of {rounds} rounds, {files['json']}", file=sys.stderr)
        raise
    document = found.document()
    files = _write(folder, options.name, document)
    if options.json:
        print(json.dumps(document, indent=1, ensure_ascii=False))
        return ExitCode.DONE
    _show(document)
    print(f"\n{files['html']}\n{files['json']}")
    return ExitCode.DONE


def _folder(wanted: str | None) -> Path:
    if wanted is not None:
        return caller_path(wanted)
    folder = lab_home() / FOLDER
    make_folder(folder)
    return folder


def _files(folder: Path, name: str) -> dict[str, Path]:
    return {suffix: folder / f"{name}.{suffix}" for suffix in _SUFFIXES}


def _write(folder: Path, name: str, document: Mapping[str, Any]) -> dict[str, Path]:
    """Writes what was found; where no round is whole, there is nothing to make a page of."""
    files = _files(folder, name)
    write(files["json"], json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if "finding" in document:
        from loosehanger.proof.report.experiment_page import render  # Matplotlib takes a while to load

        write(files["html"], render(document))
    else:
        files["html"].unlink(missing_ok=True)
    return files


class _Found:
    """What an experiment has found so far.

    Args:
        ground: where it happens.
        name: the experiment's.
        rounds: how often it does everything.
        quick: fewer steps.
    """

    def __init__(self, site: Site, name: str, rounds: int, *, quick: bool) -> None:
        self._ground, self._name, self._quick = site, name, quick
        self._module: Any = _MODULES[name]
        self._sweep = self._module.sweep(rounds, quick=quick)
        self._telling = SweepProgress(name, len(self._sweep), self._module.STEP_S, self._module.BEFORE_S)
        self._started, self._at = time.monotonic(), datetime.now(UTC)
        self.steps: list[Any] = []

    @property
    def whole(self) -> set[int]:
        """The rounds of which everything was measured."""
        planned, measured = Counter(step[0] for step in self._sweep), Counter(step.round for step in self.steps)
        return {number for number, steps in planned.items() if measured[number] == steps * self._module.RESULTS}

    def measure(self) -> None:
        """Measures.

        Raises:
            WrongUseError: another experiment is running.
            LabError: something does not answer.
        """
        # Whoever ends it from outside wants the link back as much as somebody at a keyboard.
        for number in ENDING:
            signal.signal(number, _interrupt)
        with prepared(self._ground), closing(self._module.run(self._ground, self._sweep, self._telling)) as coming:
            for step in coming:
                self.steps.append(step)

    def document(self) -> dict[str, Any]:
        """All that was measured, and what is found in the rounds that are whole, if any is."""
        source, target = self._ground.mirror.source, self._ground.mirror.target
        rounds = self.whole
        whole = [step for step in self.steps if step.round in rounds]
        return {
            "experiment": self._name,
            "shows": EXPERIMENTS[self._name].shows,
            "scenario": self._ground.lab.scenario,
            "mirror": self._ground.mirror.name,
            "source": source,
            "target": target,
            "rounds": len(rounds),
            "quick": self._quick,
            "machine": machine(),
            "at": self._at.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._started, 1),
            **(self._module.result(whole, source, target) if whole else {}),
            "steps": [asdict(step) for step in self.steps],
        }


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def machine() -> str:
    """This machine in a line."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()} {platform.machine()}"


def _show(document: Mapping[str, Any]) -> None:
    console = Console(highlight=False)
    for found in document["tables"]:
        table = Table(title=found["title"], title_justify="left", title_style="bold")
        for number, heading in enumerate(found["head"]):
            table.add_column(heading, justify="left" if number == 0 else "right", overflow="fold")
        for row in found["rows"]:
            table.add_row(*row)
        if not console.is_terminal:
            # Nobody's window is to be kept to, and whoever reads it wants the whole of every value.
            console.width = max(console.width, Console(width=_WIDEST).measure(table).maximum)
        console.print(table)
    for note in document["notes"]:
        print(note)
    print(f"\n{document['finding']}")
