"""Running an experiment on the lab, and showing what was found: what ``./lab experiment NAME`` does."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from loosehanger.errors import ExitCode
from loosehanger.experiments import compress, mirror_where, read_where, write_where
from loosehanger.experiments.catalogue import EXPERIMENTS
from loosehanger.experiments.ground import ENDING, Ground, choose, prepared
from loosehanger.experiments.telling import Telling
from loosehanger.files import make_folder
from loosehanger.model.record import Lab
from loosehanger.paths import caller_path, lab_home
from pipeline.files import check_writable, write

ROUNDS = 3
FOLDER = "experiments"
_WIDEST = 10_000
_SUFFIXES = ("html", "json")


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Does what the command line says.

    Raises:
        WrongUseError: the lab, or the folder for what is found, cannot be used.
        LabError: it failed.
    """
    ground = choose(lab, lab_home(), options.source, options.target)
    folder = _folder(options.output)
    files = {suffix: folder / f"{options.name}.{suffix}" for suffix in _SUFFIXES}
    for file in files.values():
        check_writable(file)
    document = _measure(ground, options.name, options.rounds or (1 if options.quick else ROUNDS), quick=options.quick)
    from pipeline.experiment_page import render  # Matplotlib takes a while to load

    write(files["json"], json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    write(files["html"], render(document))
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


def _measure(ground: Ground, name: str, rounds: int, *, quick: bool) -> dict[str, Any]:
    started, at = time.monotonic(), datetime.now(UTC)
    source, target = ground.mirror.source, ground.mirror.target
    module: Any = {
        "read-where": read_where,
        "mirror-where": mirror_where,
        "write-where": write_where,
        "compress": compress,
    }[name]
    sweep = module.sweep(rounds, quick=quick)
    telling = Telling(name, len(sweep), module.STEP_S, module.BEFORE_S)
    # Whoever ends it from outside wants the link back as much as somebody at a keyboard.
    for number in ENDING:
        signal.signal(number, _interrupt)
    with prepared(ground):
        steps = module.run(ground, sweep, telling)
    return {
        "experiment": name,
        "shows": EXPERIMENTS[name].shows,
        "scenario": ground.lab.scenario,
        "mirror": ground.mirror.name,
        "source": source,
        "target": target,
        "rounds": rounds,
        "quick": quick,
        "machine": machine(),
        "at": at.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 1),
        **module.result(steps, source, target),
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
