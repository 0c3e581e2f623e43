"""``./lab logs``: shows the logs of the regions' processes."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.events.follow import LOOK_S, MOST_LINE, follow
from loosehanger.events.render import safe
from loosehanger.lab.progress import LOCAL
from loosehanger.lab.record import Lab
from loosehanger.paths import lab_home
from loosehanger.suggestions import did_you_mean


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Lists the logs, or shows the last lines of the chosen ones, and follows them if asked.

    Raises:
        WrongUseError: the platform keeps logs elsewhere, or the log does not exist.
        LabError: a log cannot be read.
    """
    if lab.platform != LOCAL:
        raise WrongUseError(
            f"on {lab.platform} the cluster keeps the logs; run kubectl -n NAMESPACE logs deployment/NAME, with a name "
            "from ./lab status"
        )
    if not options.what:
        _list(lab)
        return ExitCode.DONE
    chosen = _chosen(lab, options.what)
    width = max(map(len, chosen)) if len(chosen) > 1 else 0
    if options.follow:
        _follow(chosen, options.lines, width)
    for name, path in chosen.items():
        for line in _last(path, options.lines):
            _show(name, line, width)
    return ExitCode.DONE


def logs_of(lab: Lab, region: str) -> dict[str, Path]:
    """The log of each process of a region, by the process's name.

    Raises:
        WrongUseError: the region does not exist.
    """
    lab.region(region)
    folder = lab_home() / "regions" / region / "logs"
    return {path.stem: path for path in sorted(folder.glob("*.log"))}


def _list(lab: Lab) -> None:
    for region in lab.regions:
        for name, path in logs_of(lab, region).items():
            print(f"{region}/{name:<28} {path.stat().st_size / 1000:>9,.1f} kB")
    print("\n./lab logs REGION/NAME shows the end of one; -f follows it.")


def _chosen(lab: Lab, what: str) -> dict[str, Path]:
    region, _, name = what.partition("/")
    found = logs_of(lab, region)
    if not found:
        raise WrongUseError(f"{region} has no logs yet; ./lab logs lists all")
    if not name:
        return found
    if name not in found:
        hint = did_you_mean(name, found) or f"; its logs are: {', '.join(found)}"
        raise WrongUseError(f"{region} has no log '{name}'{hint}")
    return {name: found[name]}


def _last(path: Path, number: int) -> Iterator[str]:
    # Not follow(), which waits for the end of a line: a killed program never completes its last one.
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield from deque((line.rstrip("\n")[:MOST_LINE] for line in stream), maxlen=number)
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})") from error


def _follow(logs: Mapping[str, Path], number: int, width: int) -> None:
    """Shows the logs as they grow, until Ctrl-C."""
    streams = {name: follow(path, number, idle_s=0) for name, path in logs.items()}
    while True:
        quiet = True
        for name, stream in streams.items():
            while (line := next(stream)) is not None:
                quiet = False
                _show(name, line, width)
        if quiet:
            time.sleep(LOOK_S)  # between two looks, until Ctrl-C


def _show(name: str, line: str, width: int) -> None:
    print(f"{name:<{width}} | {safe(line)}" if width else safe(line), flush=True)
