"""How long a failover or switch took, step by step: computed from the stage's snapshots and the ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loosehanger.lab.snapshots import Snapshots
from loosehanger.ledger import LedgerEntry


@dataclass(frozen=True)
class Leg:
    """One milestone of a switch."""

    name: str
    seconds: float | None
    """Seconds from the beginning; None before it is reached."""


@dataclass(frozen=True)
class Recovery:
    """A switch and its milestones."""

    begins: str
    """The event that the times count from."""
    legs: tuple[Leg, ...]

    @property
    def complete(self) -> bool:
        """Whether every milestone is reached."""
        return all(leg.seconds is not None for leg in self.legs)


def recovery(snapshots: Snapshots, entries: Iterable[LedgerEntry]) -> Recovery | None:
    """Returns the milestones of a switch; None where nothing was switched.

    The clock starts when the first process of a lost region is killed. In a planned switch it starts with the last
    acknowledgement from the cluster that the producers leave, or, where only consumers move, with the last record that
    they processed there. Programs that stay are not counted.

    Args:
        snapshots: the stage's snapshots.
        entries: every entry of the ledgers.
    """
    if not snapshots.fences:
        return None
    every = list(entries)
    targets = {fence.cluster for fence in snapshots.fences}
    acked = [entry for entry in every if entry.kind == "acked"]
    processed = [entry for entry in every if entry.kind == "processed"]
    held = [fence.held_ms for fence in snapshots.fences]
    # A group whose offsets came from its ledger has a snapshot of its own, and no mirror.
    mirrors_held = [fence.held_ms for fence in snapshots.fences if fence.source]
    producers_move, consumers_move = True, True
    if snapshots.losses:
        begins, start = f"the death of {snapshots.losses[0].region}", min(loss.died_ms for loss in snapshots.losses)
    else:
        old = [entry.until for entry in acked if entry.cluster not in targets]
        read_before = [entry.until for entry in processed if entry.cluster not in targets]
        producers_move = not any(until > max(held) for until in old)
        # Only their last stay counts: they may have used the target before and left it again.
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
    # The mirrors are stopped when the last one is; every other milestone counts from its first record.
    legs = [
        Leg(name, round(((max if name == "mirror held" else min)(found) - start) / 1000, 3) if found else None)
        for name, found in moments.items()
    ]
    return Recovery(begins, tuple(legs))


def _first_new(read: Sequence[LedgerEntry], new: Sequence[LedgerEntry]) -> Iterable[int]:
    """Yields when consumers had processed the first events that were acknowledged after the switch."""
    by_partition: dict[tuple[str, str, int], list[LedgerEntry]] = {}
    for entry in new:
        by_partition.setdefault((entry.run, entry.topic, entry.partition), []).append(entry)
    for entry in read:
        for other in by_partition.get((entry.run, entry.topic, entry.partition), ()):
            if entry.first <= other.last and other.first <= entry.last:
                yield entry.since if entry.first >= other.first else entry.until
