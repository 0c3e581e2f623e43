"""Marks on the charts' time axis: what happened to mirrors, links and stages while samples were taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from loosehanger.console.links import shaping
from loosehanger.console.models import Change, Flow, Link, PastProof
from loosehanger.errors import LabError
from loosehanger.lab.progress import progress_time, read_progress

MOST_MARKS = 200
MOST_SHOWN = 20
"""Marks of a chart, the latest ones."""
OBSERVED = ("change link", "pause connector", "resume connector")
"""Actions of the change log whose effects are observed, from any cause."""


class Mark(NamedTuple):
    """An event, and when it happened or was first seen."""

    at: float
    """Seconds since the epoch."""
    text: str


class Marks:
    """The latest changes of observed states, bounded in number. Not thread-safe."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._kept: deque[Mark] = deque(maxlen=MOST_MARKS)

    def observe(self, at: float, states: Mapping[str, str]) -> None:
        """Compares states with those seen before, and keeps a mark for each that differs.

        Args:
            at: when, in seconds since the epoch.
            states: the state of each subject; a subject that is seen for the first time gives no mark.
        """
        for subject, state in states.items():
            if self._states.get(subject, state) != state:
                self._kept.append(Mark(at, f"{subject}: {state}"))
        self._states |= states

    def add(self, mark: Mark | None) -> None:
        """Keeps a mark, once."""
        if mark is not None and mark not in self._kept:
            self._kept.append(mark)

    def latest(self, since: float, changes: Iterable[Change], proofs: Iterable[PastProof]) -> list[Mark]:
        """The marks since a moment, the oldest first, with the changes and proofs that this console made.

        Args:
            since: in seconds since the epoch.
            changes: of the change log.
            proofs: the proofs that were run from here.
        """
        found = list(self._kept)
        found += [
            Mark(one.at, f"{one.action} {one.subject}" + (f" in {one.region}" if one.region else ""))
            for one in changes
            if one.done and one.action not in OBSERVED
        ]
        found += [Mark(one.started + one.seconds, f"proof: {one.verdict}") for one in proofs]
        return sorted(one for one in found if one.at >= since)[-MOST_SHOWN:]


def states_of(flows: Iterable[Flow], links: Iterable[Link]) -> dict[str, str]:
    """The states of which a change is worth a mark: of each mirror and each link."""
    mirrors = {f"{one.mirror}, {one.source} → {one.target}": one.state.lower() for one in flows if one.state}
    return mirrors | {
        f"link {' – '.join(one.between)}": ", ".join(
            [one.state, *(f"to {way.target} {said}" for way in one.directions if (said := shaping(way)))]
        )
        for one in links
    }


def stage_mark(home: Path | None) -> Mark | None:
    """The stage that the lab has reached or begun last, and when; None where that is not known."""
    if home is None:
        return None
    with suppress(LabError, OSError):  # A record of another version of the kit is reported by ./lab.
        progress = read_progress(home)
        if progress is not None:
            stage, event = (progress.unfinished, "begun") if progress.unfinished else (progress.stage, "reached")
            name = f"set-up of {progress.scenario}" if stage in ("", "setup") else f"stage {stage}"
            return Mark(progress_time(home), f"{name} {event}")
    return None
