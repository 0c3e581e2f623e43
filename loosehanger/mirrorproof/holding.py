"""What clusters still hold of the records that evidence has digests of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from loosehanger.mirrorproof.evidence import ProvedPartition

ChunkDigests = Mapping[int, tuple[int, str]]
"""By the number of a chunk, how many records it has now, and their digest."""


@dataclass
class PartitionState:
    """What a cluster holds of a partition."""

    cluster: str
    topic: str
    partition: int
    records: int
    """In the evidence."""
    holds: int = 0
    """Those that are still there, unchanged."""
    no_longer_verifiable: int = 0
    """Those that can no longer be read, or that share a chunk with such."""
    why: str = ""
    """Why they cannot."""
    changed: list[str] = field(default_factory=list)
    """Where records were changed, removed or added since: a sentence each."""


@dataclass(frozen=True)
class PartitionNow:
    """A partition as it is now."""

    start: int
    """Where its log begins."""
    end: int
    """Where it ends."""
    is_compacted: bool
    chunks: ChunkDigests


def state_of(proved: ProvedPartition, size: int, now: PartitionNow | None) -> PartitionState:
    """Compares a partition with its evidence.

    Args:
        proved: the evidence.
        size: how many offsets a chunk has.
        now: what the cluster has; None if the topic or the partition does not exist any more.
    """
    state = PartitionState(proved.cluster, proved.topic, proved.partition, proved.records)
    if now is None:
        state.no_longer_verifiable, state.why = proved.records, "it does not exist any more"
        return state
    for number in sorted(proved.digests.keys() | now.chunks.keys()):
        first, last = max(number * size, proved.start), min((number + 1) * size, proved.end) - 1
        records, digest = proved.digests.get(number, (0, ""))
        there, current = now.chunks.get(number, (0, ""))
        offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
        if (records, digest) == (there, current):
            state.holds += records
        elif first < now.start:
            state.no_longer_verifiable += records
            state.why = f"its log begins at offset {now.start} now"
        elif now.is_compacted and there < records:
            state.no_longer_verifiable += records
            state.why = state.why or "compaction has removed records"
        elif last >= now.end and there < records:
            state.changed.append(f"{offsets}: {records} records proved; the log ends at offset {now.end} now")
        elif there < records:
            state.changed.append(f"{offsets}: {records} records proved, {there} are there now")
        elif there > records:
            state.changed.append(f"{offsets}: {there - records} records were added")
        else:
            state.changed.append(f"{offsets}: {'the record was' if records == 1 else 'records were'} altered")
    return state


def held_by(states: list[PartitionState]) -> dict[str, Any]:
    """What the clusters hold, as one document: ``verdict``, sums, and the partitions that do not hold everything."""
    changed = any(state.changed for state in states)
    gone = sum(state.no_longer_verifiable for state in states)
    return {
        "held": "changed" if changed else "no longer verifiable" if gone else "everything",
        "records_held": sum(state.holds for state in states),
        "records_no_longer_verifiable": gone,
        "not_held": [asdict(state) for state in states if state.changed or state.no_longer_verifiable],
    }
