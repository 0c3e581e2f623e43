"""Injects faults into a lab, and heals them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kafka.errors import KafkaError

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change
from loosehanger.faults.choosing import WantedSite, choose_site
from loosehanger.faults.fault import Fault, change_of, change_text
from loosehanger.faults.journal import Injection, Journal, Made, age
from loosehanger.faults.site import FaultSite
from loosehanger.lab.record import Lab
from loosehanger.platforms.operations import FaultOperations


@dataclass(frozen=True)
class Healed:
    """A fault that was healed."""

    injection: Injection
    seconds: float
    """How long healing took."""
    after: float
    """How long the fault had been there."""
    gone: bool = False
    """Whether its mirror is no longer in the lab, so that there was nothing to undo."""


def inject(
    lab: Lab, home: Path, platforms: FaultOperations, fault: Fault, wanted: WantedSite, *, surprise: bool = False
) -> Injection:
    """Injects a fault: prepares every change, writes all of it down, and makes one change after the other.

    The caller holds the journal's lock.

    Raises:
        WrongUseError: it cannot be injected; nothing was changed.
        LabError: a change failed; the journal has what healing needs.
    """
    journal = Journal(home)
    check_free(journal.read(), fault)
    if lab.unfinished:
        raise WrongUseError(f"the stage '{lab.unfinished}' was begun and not finished; run it again first")
    with _reporting(fault.name):
        site = choose_site(lab, home, platforms, fault, wanted)
        made = tuple(Made(change_text(change), dict(change.prepare(site))) for change in fault.changes_on(lab.platform))
    injection = Injection(fault.name, site.mirror.id, site.topic, time.time(), made, surprise=surprise)
    journal.write(injection)
    with _reporting(fault.name):
        for change, found in zip(fault.changes_on(lab.platform), made, strict=True):
            change.inject(site, found.undo)
    injection = replace(injection, complete=True)
    journal.write(injection)
    return injection


def check_free(injected: list[Injection], fault: Fault | None = None) -> None:
    """Checks that a fault may be injected beside others.

    Raises:
        WrongUseError: it is injected already, or a surprise was not found yet.
    """
    if any(injection.hidden for injection in injected):
        raise WrongUseError(
            "a surprise was injected and not found yet; ./lab fault guess NAME, or ./lab fault heal, before another one"
        )
    if fault and any(injection.fault == fault.name for injection in injected):
        raise WrongUseError(f"{fault.name} is injected already; ./lab fault heal {fault.name} undoes it")


def heal(lab: Lab, home: Path, platforms: FaultOperations, injection: Injection) -> Healed:
    """Undoes the changes of a fault, the last one first; those that cannot be undone stay in the journal.

    The caller holds the journal's lock.

    Raises:
        LabError: a change could not be undone.
    """
    journal, began, after = Journal(home), time.monotonic(), age(injection)
    mirror = next((mirror for mirror in lab.mirrors if mirror.id == injection.mirror), None)
    if mirror is None:
        journal.remove(injection)
        return Healed(injection, time.monotonic() - began, after, gone=True)
    site = FaultSite(lab, home, mirror, injection.topic, platforms)
    left, errors = list(injection.changes), []
    for made in reversed(injection.changes):
        try:
            with _reporting("healing"):
                _recorded(made).heal(site, made.undo)
        except LabError as error:
            errors.append(str(error))
            continue
        left.remove(made)
        journal.write(replace(injection, changes=tuple(left)))
    if errors:
        name = "the surprise" if injection.hidden else injection.fault
        reasons = "; ".join(dict.fromkeys(errors))
        raise LabError(f"{name} is not healed: {reasons}; run ./lab fault heal again, or ./lab cleanup")
    journal.remove(injection)
    return Healed(injection, time.monotonic() - began, after)


def _recorded(made: Made) -> Change:
    """Returns a change in the form of the journal.

    Raises:
        LabError: this version of the kit has no such change.
    """
    try:
        return change_of(made.change)
    except ValueError as error:
        raise LabError(f"another version of the kit made the change '{next(iter(made.change))}'") from error


@contextlib.contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Turns what clients raise into a ``LabError``."""
    try:
        yield
    except (KafkaError, OSError) as error:
        raise LabError(f"{what}: {type(error).__name__}: {error}") from error
