"""The cost of a switch between clusters: lost records, and records that groups skipped or read again.

The ledgers have the acknowledged and processed records, the surviving clusters the records that are left, and the
stage's snapshots the offsets at the switch. All are ranges of sequence numbers, so the work does not grow with the
records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.headers import RUN, SEQ
from loosehanger.lab.snapshots import MirrorSnapshot, Offsets
from loosehanger.ledger import DIGITS_MOST, LedgerEntry, Numbers, normal
from loosehanger.proof.read.records import header


class Key(NamedTuple):
    """A partition of a run of a producer: sequence numbers count within it."""

    run: str
    topic: str
    partition: int


Sets = dict[Key, Numbers]
BEFORE, BETWEEN, AFTER = "before", "between", "after"
"""The place of a record at the target: before the group's offset at the fence, from there to the fence's end, or
after that."""


@dataclass(frozen=True)
class SequenceRange:
    """Records of a cluster with consecutive sequence numbers."""

    key: Key
    first: int
    last: int
    place: str = AFTER
    twice: int = 0
    """The number of further copies of these records."""


@dataclass(frozen=True)
class Retained:
    """The fate of the records that a cluster has acknowledged."""

    acknowledged: int = 0
    lost: Sets = field(default_factory=dict)
    """Records that no surviving cluster has, without those given up."""
    given_up: int = 0
    """Records that were only in a cluster that was wiped: lost in an earlier disaster."""
    lost_processed: int = 0
    """The number of lost records that a consumer had processed."""
    oldest_lost_ms: int | None = None
    """When the oldest of them was acknowledged, in milliseconds since the epoch."""
    retired: int = 0
    """Missing records that are older than the start of their partition's log: retention has deleted them."""
    sent_twice: int = 0
    """Records that are stored more than once, since the producer got no answer and sent them again."""


@dataclass(frozen=True)
class MovedGroup:
    """A group's progress at the target."""

    predicted: int
    """Records that it was predicted to read again, by the offsets at the fence."""
    again: int
    """Records that it read again, each counted as often as it was."""
    skipped: Sets
    """Records that it has processed in neither cluster."""
    passed: bool
    """Whether it has passed the records that were there at the mirror's fence."""


def kept(
    entries: Iterable[LedgerEntry],
    present: Sequence[SequenceRange],
    beginnings: Mapping[tuple[str, int], int],
    given_up: Callable[[LedgerEntry], bool] = lambda _: False,
) -> Retained:
    """Compares the acknowledged records with those that are left.

    Args:
        entries: all entries of the ledgers.
        present: the records of all surviving clusters.
        beginnings: the time of the first record that is left, in milliseconds since the epoch, of each partition whose
            log no longer has its very first record.
        given_up: whether the records of an entry were acknowledged by a cluster that was wiped.
    """
    every = list(entries)
    acked = collected(every, lambda entry: entry.kind == "acked")
    processed = collected(every, lambda entry: entry.kind == "processed")
    unanswered = collected(every, lambda entry: entry.kind == "unknown")
    there: Sets = {}
    for span in present:
        there.setdefault(span.key, []).append((span.first, span.last))
    there = {key: normal(numbers) for key, numbers in there.items()}
    lost: Sets = {}
    retired = abandoned = 0
    wiped = collected(every, lambda entry: entry.kind == "acked" and given_up(entry))
    older = collected(every, lambda entry: entry.kind == "acked" and _is_retired(entry, there, beginnings))
    for key, numbers in acked.items():
        gone = minus(numbers, there.get(key, []))
        oldest = there[key][0][0] if there.get(key) else None
        old = [(first, last) for first, last in both(gone, older.get(key, [])) if oldest is None or last < oldest]
        retired += count(old)
        gone = minus(gone, old)
        # Records that were also acknowledged elsewhere are lost there, too.
        before = both(gone, wiped.get(key, []))
        abandoned += count(before)
        gone = minus(gone, before)
        if gone:
            lost[key] = gone
    times = [
        entry.since for entry in every if entry.kind == "acked" and both(lost.get(key_of(entry), []), [_range(entry)])
    ]
    return Retained(
        acknowledged=sum(map(count, acked.values())),
        lost=lost,
        lost_processed=sum(count(both(numbers, processed.get(key, []))) for key, numbers in lost.items()),
        oldest_lost_ms=min(times, default=None),
        given_up=abandoned,
        retired=retired,
        sent_twice=sum(
            min(span.twice, count(both(unanswered.get(span.key, []), [(span.first, span.last)]))) for span in present
        ),
    )


def moved(
    entries: Iterable[LedgerEntry],
    group: str,
    cluster: str,
    held_ms: int,
    at_target: Sequence[SequenceRange],
    behind: Collection[LedgerEntry] = (),
    *,
    passed: bool,
) -> MovedGroup:
    """Compares the records that a group processed before and after a switch with those that it could read.

    Args:
        entries: all entries of the ledgers.
        group: the group.
        cluster: the id of the target's cluster.
        held_ms: time of the mirror's fence: before it, the group read the target in an earlier stay.
        at_target: the records there, each with its place.
        behind: the entries about records after the fence. If these repeat earlier records, a producer without an answer
            has sent them again: a second copy, read once.
        passed: whether the group has passed the records that were there at the mirror's fence.
    """
    own = [entry for entry in entries if entry.kind == "processed" and entry.group == group]
    later = [entry for entry in own if entry.cluster == cluster and entry.since >= held_ms]
    earlier = collected(own, lambda entry: entry.cluster != cluster or entry.since < held_ms)
    since = collected(later, lambda _: True)
    between, old = _sequence_sets(at_target, BETWEEN), _sequence_sets(at_target, BEFORE, BETWEEN)
    of_old = [entry for entry in later if entry not in behind]
    read_there = sum(count(both([_range(entry)], old.get(key_of(entry), []))) for entry in of_old)
    first_time = sum(
        count(both(minus(numbers, earlier.get(key, [])), old.get(key, [])))
        for key, numbers in collected(of_old, lambda _: True).items()
    )
    due = old if passed else _sequence_sets(at_target, BEFORE)
    skipped = {
        key: left
        for key, numbers in due.items()
        if (left := minus(minus(numbers, earlier.get(key, [])), since.get(key, [])))
    }
    return MovedGroup(
        predicted=sum(count(both(numbers, earlier.get(key, []))) for key, numbers in between.items()),
        again=read_there - first_time,
        skipped=skipped,
        passed=passed,
    )


def is_behind(entry: LedgerEntry, fence: MirrorSnapshot) -> bool:
    """Whether a consumer read all records of an entry after a fence.

    An entry that begins before the fence has no repeated records: a record that was sent again has a number that was
    used already, and the numbers of an entry only grow.

    Args:
        entry: with its topic's name at the target.
        fence: the offsets at the fence.
    """
    end = fence.ends.get(entry.topic, {}).get(entry.partition)
    return entry.cluster == fence.cluster and end is not None and entry.first_offset >= end


def sequence_ranges(
    records: DataFrame, starts: Offsets | None = None, ends: Offsets | None = None
) -> list[SequenceRange]:
    """The records with sequence numbers of the kit's producer, as ranges.

    Args:
        records: a frame of ``RECORD_SCHEMA``.
        starts: a group's offset in each partition at the fence; without one, it begins with the first record.
        ends: the end offset of each partition at the fence; None if no place is needed.
    """
    run, sequence = header(RUN), header(SEQ)
    # The same rule as ``number_of``, which the ledgers use.
    ours = (run != "") & F.is_valid_utf8(run) & sequence.rlike(rf"\A[0-9]{{1,{DIGITS_MOST}}}\z")
    numbered = records.where(ours).select(
        run.alias("run"),
        "topic",
        "partition",
        sequence.try_cast("long").alias("seq"),
        _place(starts or {}, ends).alias("place"),
    )
    # A record that is there twice has the place of its first.
    once = numbered.groupBy("run", "topic", "partition", "seq").agg(
        F.max_by("place", F.when(F.col("place") == BEFORE, 2).when(F.col("place") == BETWEEN, 1).otherwise(0)).alias(
            "place"
        ),
        (F.count("*") - 1).alias("twice"),
    )
    order = Window.partitionBy("run", "topic", "partition", "place").orderBy("seq")
    grouped = (
        once.withColumn("span", F.col("seq") - F.row_number().over(order))
        .groupBy("run", "topic", "partition", "place", "span")
        .agg(F.min("seq").alias("first"), F.max("seq").alias("last"), F.sum("twice").alias("twice"))
    )
    return [
        SequenceRange(
            Key(row["run"], row["topic"], row["partition"]), row["first"], row["last"], row["place"], row["twice"]
        )
        for row in grouped.collect()
    ]


def _place(starts: Offsets, ends: Offsets | None) -> Column:
    place = F.lit(AFTER)
    for topic, of_topic in (ends or {}).items():
        for partition, end in of_topic.items():
            start = starts.get(topic, {}).get(partition, 0)
            here = (F.col("topic") == topic) & (F.col("partition") == partition)
            inside = F.when(F.col("offset") < min(start, end), BEFORE).when(F.col("offset") < end, BETWEEN)
            place = F.when(here, inside.otherwise(AFTER)).otherwise(place)
    return place


def collected(entries: Iterable[LedgerEntry], wanted: Callable[[LedgerEntry], bool]) -> Sets:
    """The sequence numbers of these entries, each once."""
    found: dict[Key, Numbers] = {}
    for entry in entries:
        if wanted(entry):
            found.setdefault(key_of(entry), []).append(_range(entry))
    return {key: normal(numbers) for key, numbers in found.items()}


def key_of(entry: LedgerEntry) -> Key:
    """The run and partition in which an entry's sequence numbers count."""
    return Key(entry.run, entry.topic, entry.partition)


def minus(numbers: Numbers, others: Numbers) -> Numbers:
    """The numbers without the others."""
    found: Numbers = []
    for first, last in numbers:
        at = first
        for begin, end in others:
            if end < at or begin > last:
                continue
            if begin > at:
                found.append((at, begin - 1))
            at = end + 1
        if at <= last:
            found.append((at, last))
    return found


def both(numbers: Numbers, others: Numbers) -> Numbers:
    """The numbers that both have."""
    return minus(numbers, minus(numbers, others))


def count(numbers: Numbers) -> int:
    """How many numbers there are."""
    return sum(last - first + 1 for first, last in numbers)


def _is_retired(entry: LedgerEntry, there: Sets, beginnings: Mapping[tuple[str, int], int]) -> bool:
    """Whether retention may have deleted the missing records of an entry."""
    begins_ms = beginnings.get((entry.topic, entry.partition))
    if begins_ms is None:
        return False
    # An old entry may span a run's whole life; the records that are left of a run are its newest.
    return (entry.since if there.get(key_of(entry)) else entry.until) <= begins_ms


def _range(entry: LedgerEntry) -> tuple[int, int]:
    return entry.first, entry.last


def _sequence_sets(found: Sequence[SequenceRange], *places: str) -> Sets:
    sets: Sets = {}
    for span in found:
        if span.place in places:
            sets.setdefault(span.key, []).append((span.first, span.last))
    return {key: normal(numbers) for key, numbers in sets.items()}
