"""``./lab experiment NAME``: runs an experiment on the lab, and shows its result."""

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
from loosehanger.platforms import registry
from loosehanger.proof.report.files import write

ROUNDS = 3
FOLDER = "experiments"
_WIDEST = 10_000
_SUFFIXES = ("html", "json")
_UNFINISHED = "-unfinished"
"""Suffix of the files of an experiment that was interrupted."""
_MODULES = {
    "read-where": read_location,
    "mirror-where": mirror_location,
    "write-where": write_location,
    "compress": compress,
}


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Runs the experiment that the command line names.

    Raises:
        WrongUseError: the lab or the output folder cannot be used.
        LabError: it failed.
    """
    site = choose(lab, lab_home(), registry.addresses_from, options.source, options.target)
    folder = _folder(options.output)
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    for name in (options.name, options.name + _UNFINISHED):
        for file in _files(folder, name).values():
            check_writable(file)
    measurement = _Measurement(site, options.name, rounds, quick=options.quick)
    try:
        measurement.measure()
    except (LabError, KeyboardInterrupt):
        if measurement.steps:
            files = _write(folder, options.name + _UNFINISHED, measurement.document())
            print(f"kept: {len(measurement.whole)} of {rounds} rounds, {files['json']}", file=sys.stderr)
        raise
    document = measurement.document()
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
    """Writes the results; without a complete round, there is no page."""
    files = _files(folder, name)
    write(files["json"], json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if "finding" in document:
        from loosehanger.proof.report.experiment_page import render  # Matplotlib is slow to import

        write(files["html"], render(document))
    else:
        files["html"].unlink(missing_ok=True)
    return files


class _Measurement:
    """A run of an experiment, and its results so far.

    Args:
        site: the regions and their link.
        name: the experiment's name.
        rounds: the number of repetitions.
        quick: whether to measure fewer steps.
    """

    def __init__(self, site: Site, name: str, rounds: int, *, quick: bool) -> None:
        self._site, self._name, self._quick = site, name, quick
        self._module: Any = _MODULES[name]
        self._sweep = self._module.sweep(rounds, quick=quick)
        self._progress = SweepProgress(name, len(self._sweep), self._module.STEP_S, self._module.BEFORE_S)
        self._started, self._at = time.monotonic(), datetime.now(UTC)
        self.steps: list[Any] = []

    @property
    def whole(self) -> set[int]:
        """The rounds whose steps were all measured."""
        planned, measured = Counter(step[0] for step in self._sweep), Counter(step.round for step in self.steps)
        return {number for number, steps in planned.items() if measured[number] == steps * self._module.RESULTS}

    def measure(self) -> None:
        """Measures all steps.

        Raises:
            WrongUseError: another experiment is running.
            LabError: a cluster or the link does not answer.
        """
        # Every signal must restore the link, as Ctrl-C does.
        for number in ENDING:
            signal.signal(number, _interrupt)
        with prepared(self._site), closing(self._module.run(self._site, self._sweep, self._progress)) as steps:
            for step in steps:
                self.steps.append(step)

    def document(self) -> dict[str, Any]:
        """All measurements, and the findings of the complete rounds, if there is one."""
        source, target = self._site.mirror.source, self._site.mirror.target
        rounds = self.whole
        whole = [step for step in self.steps if step.round in rounds]
        return {
            "experiment": self._name,
            "shows": EXPERIMENTS[self._name].shows,
            "scenario": self._site.lab.scenario,
            "mirror": self._site.mirror.name,
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
    """A line about this machine."""
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
            # Not a terminal: do not wrap or truncate.
            console.width = max(console.width, Console(width=_WIDEST).measure(table).maximum)
        console.print(table)
    for note in document["notes"]:
        print(note)
    print(f"\n{document['finding']}")
