"""How long a switch took, leg by leg: from the marks of its stage and the ledgers, whoever looks and whenever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loosehanger.lab.snapshots import Marks
from loosehanger.ledger import LedgerEntry


@dataclass(frozen=True)
class Leg:
    """One of the things that a switch has to get to."""

    name: str
    seconds: float | None
    """From the beginning; None where it is not reached yet."""


@dataclass(frozen=True)
class Recovery:
    """A switch and its legs."""

    begins: str
    """What the time is counted from."""
    legs: tuple[Leg, ...]

    @property
    def complete(self) -> bool:
        """Whether everything is reached."""
        return all(leg.seconds is not None for leg in self.legs)


def recovery(marks: Marks, entries: Iterable[LedgerEntry]) -> Recovery | None:
    """The legs of a switch; None where nothing was switched.

    The clock starts when the first process of a dying region was killed; in a planned switch, with the last
    acknowledgement that the producers got from the cluster that they left, or, where only consumers move, with the last
    record that they processed there. Who stays has no legs.

    Args:
        marks: what the stage has kept.
        entries: all that the ledgers have.
    """
    if not marks.fences:
        return None
    every = list(entries)
    targets = {fence.cluster for fence in marks.fences}
    acked = [entry for entry in every if entry.kind == "acked"]
    processed = [entry for entry in every if entry.kind == "processed"]
    held = [fence.held_ms for fence in marks.fences]
    # A group that got its offsets by its ledger has a mark of its own, and no mirror.
    mirrors_held = [fence.held_ms for fence in marks.fences if fence.source]
    producers_move, consumers_move = True, True
    if marks.losses:
        begins, start = f"the death of {marks.losses[0].region}", min(loss.died_ms for loss in marks.losses)
    else:
        old = [entry.until for entry in acked if entry.cluster not in targets]
        read_before = [entry.until for entry in processed if entry.cluster not in targets]
        producers_move = not any(until > max(held) for until in old)
        # Where they were at last: they may have been at the target before, and left it again.
        before = [entry for entry in processed if entry.since < min(held)]
        consumers_move = not before or max(before, key=lambda entry: entry.since).cluster not in targets
        begins, last = (
            ("the producer's last acknowledgement before it", old)
            if producers_move
            else ("the consumer's last record before it", read_before)
        )
        if not last:
            return None
        start = max(last)
    there = [entry for entry in every if entry.cluster in targets and entry.until >= start]
    new = [entry for entry in there if entry.kind == "acked"]
    read = [entry for entry in there if entry.kind == "processed"]
    moments = {
        "mirror held": mirrors_held,
        "consumer's first record": [entry.since for entry in read],
        "producer's first acknowledgement": [entry.since for entry in new],
        "consumer's first new event": list(_first_new(read, new)),
    }
    if not producers_move:
        del moments["producer's first acknowledgement"], moments["consumer's first new event"]
    if not consumers_move:
        del moments["consumer's first record"]
    if not mirrors_held:
        del moments["mirror held"]
    # A mirror is held when all of them are; the others count from their first.
    legs = [
        Leg(name, round(((max if name == "mirror held" else min)(found) - start) / 1000, 3) if found else None)
        for name, found in moments.items()
    ]
    return Recovery(begins, tuple(legs))


def _first_new(read: Sequence[LedgerEntry], new: Sequence[LedgerEntry]) -> Iterable[int]:
    """When consumers had processed what was acknowledged for the first time after the switch."""
    by_partition: dict[tuple[str, str, int], list[LedgerEntry]] = {}
    for entry in new:
        by_partition.setdefault((entry.run, entry.topic, entry.partition), []).append(entry)
    for entry in read:
        for other in by_partition.get((entry.run, entry.topic, entry.partition), ()):
            if entry.first <= other.last and other.first <= entry.last:
                yield entry.since if entry.first >= other.first else entry.until
