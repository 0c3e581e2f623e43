"""Predicts what must be seen of a schedule, from the data of the catalogue.

A fault may hide another one. Where it may, either verdict is accepted; where it cannot, only one is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from loosehanger.faults.changes.links import DisturbLink
from loosehanger.faults.changes.processes import FreezeProcess
from loosehanger.faults.fault import Fault, ProofNotice
from loosehanger.lab.mirrors.mirror import Mirror
from scripts.search.effects import At, depth, is_near, reach, stops_copying

Verdict = str
PROVED, DISPROVED, INCONCLUSIVE = get_args(ProofNotice.model_fields["verdict"].annotation)
ANY = frozenset({PROVED, DISPROVED, INCONCLUSIVE})
_ENOUGH_WORDS = 3
"""How many words in a row do not occur in a tool's text by chance."""


@dataclass(frozen=True)
class Expected:
    """What must be seen of a schedule."""

    during: frozenset[Verdict]
    """The verdicts that the proof may have while all faults are there."""
    after: frozenset[Verdict]
    """The verdicts that it may have once they are healed."""
    named: tuple[tuple[str, ...], ...]
    """``status`` must name one cause of each of these, in words of the catalogue."""
    never: frozenset[str]
    """Words of faults that are not there, which ``status`` must not show."""
    places: frozenset[str]
    """The regions in which ``status`` may name a problem."""
    heals_itself: bool
    """Whether the lab becomes healthy without healing."""


def predict(faults: Sequence[At], mirrors: Sequence[Mirror], catalogue: Iterable[Fault]) -> Expected:
    """Returns what must be seen of faults that are present together.

    Args:
        faults: those that were injected.
        mirrors: all mirrors of the lab.
        catalogue: every fault.
    """
    afters = {fault.after for fault, _ in faults}
    touched = {one for at in faults for one in reach(*at, mirrors)}
    reached = [mirror for mirror in mirrors if mirror.id in touched]
    return Expected(
        during=verdicts(faults, mirrors),
        after=frozenset({DISPROVED if DISPROVED in afters else PROVED}),
        named=causes(faults, mirrors),
        never=foreign_words([fault for fault, _ in faults], catalogue),
        places=frozenset(place for mirror in reached for place in (mirror.region, mirror.source, mirror.target)),
        heals_itself=bool(faults) and all(fault.heals_itself for fault, _ in faults),
    )


def verdicts(faults: Sequence[At], mirrors: Sequence[Mirror]) -> frozenset[Verdict]:
    """Returns the verdicts that the proof may have while faults are there."""
    each = [{fault.noticed.proof.verdict} if fault.noticed.proof else ANY for fault, _ in faults]
    found: set[Verdict] = set()
    for chosen in itertools.product(*each):
        found |= _together(list(zip(faults, chosen, strict=True)), mirrors)
    return frozenset(found)


def _together(known: Sequence[tuple[At, Verdict]], mirrors: Sequence[Mirror]) -> set[Verdict]:
    wrong = [at for at, verdict in known if verdict == DISPROVED]
    open_ = [at for at, verdict in known if verdict == INCONCLUSIVE]
    if not wrong:
        return {INCONCLUSIVE if open_ else PROVED}
    # A difference is found unless another fault keeps the proof from comparing there.
    hidden = all(any(is_near(at, other, mirrors) for other in open_) for at in wrong)
    return {DISPROVED, INCONCLUSIVE} if hidden else {DISPROVED}


def causes(faults: Sequence[At], mirrors: Sequence[Mirror]) -> tuple[tuple[str, ...], ...]:
    """Returns for each fault the words of which ``status`` must show one: its own, or those of one that may hide it."""
    found = []
    for at in faults:
        notice = at[0].noticed.status
        if notice is None:
            continue
        hiding = [
            other[0].noticed.status.says
            for other in faults
            if other is not at
            and other[0].noticed.status
            and is_near(at, other, mirrors)
            and (stops_copying(other[0]) or depth(other[0]) > 0)
        ]
        found.append((notice.says, *hiding))
    return tuple(found)


def foreign_words(present: Sequence[Fault], catalogue: Iterable[Fault]) -> frozenset[str]:
    """Returns the words that accuse a fault which is not there; words that fit other causes too are left out."""
    names = {fault.name for fault in present}
    known = [fault.noticed.status.says.lower() for fault in present if fault.noticed.status]
    found = set()
    for fault in catalogue:
        notice = fault.noticed.status
        if fault.name in names or notice is None or not accuses(fault):
            continue
        words = notice.says.lower()
        if not any(words in other or other in words for other in known):
            found.add(words)
    return frozenset(found)


def accuses(fault: Fault) -> bool:
    """Whether the words by which ``status`` names a fault fit no other cause."""
    notice = fault.noticed.status
    if notice is None:
        return False
    if any(isinstance(change, DisturbLink | FreezeProcess) for change in fault.changes):
        return True
    # A missing program and a restart can have many causes.
    return depth(fault) <= 1 and len(notice.says.split()) >= _ENOUGH_WORDS


def cause_findings(expected: Expected, shown: Iterable[Mapping[str, str]], text: str) -> list[str]:
    """Returns what is wrong with the causes that ``status`` named.

    Args:
        expected: what must be seen.
        shown: the problems of every status while the faults were there: ``cause`` and ``where``.
        text: everything that these statuses showed.
    """
    seen, wrong = text.lower(), []
    for words in expected.named:
        if not any(word.lower() in seen for word in words):
            wrong.append(f"status has not named '{words[0]}'" + (f" or {list(words[1:])}" if words[1:] else ""))
    for problem in shown:
        # Only the causes are judged: a detail of a resource may quote a log.
        wrong += [
            f"status accuses what is not there: '{problem['cause']}' ({problem['where']})"
            for word in expected.never
            if word in problem["cause"].lower()
        ]
        region = problem["where"].partition(",")[0].strip()
        if expected.places and "/" not in region and " " not in region and region not in expected.places:
            wrong.append(f"status names a problem where no fault is: '{problem['cause']}' ({problem['where']})")
    return sorted(dict.fromkeys(wrong))
