"""What a switch between clusters has cost: which records are lost, and what groups skipped and read again.

Ledgers say what was acknowledged and processed, the surviving clusters which records are there, and the marks of the
stage where everything was. All of them speak of ranges of sequence numbers, so nothing here grows with the records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.lab.snapshots import Fence, Offsets
from loosehanger.ledger import DIGITS_MOST, RUN, SEQ, LedgerEntry, Numbers, normal
from loosehanger.proof.read.records import header


class Key(NamedTuple):
    """A partition of a run of a producer: sequence numbers count within it."""

    run: str
    topic: str
    partition: int


Sets = dict[Key, Numbers]
BEFORE, BETWEEN, AFTER = "before", "between", "after"
"""Where a record lies at the target: before the group's offset at the fence, behind it and before the fence's end, or
behind that."""


@dataclass(frozen=True)
class Island:
    """Records of a cluster whose sequence numbers follow each other."""

    key: Key
    first: int
    last: int
    place: str = AFTER
    twice: int = 0
    """How many of them are there more than once, counted without their first."""


@dataclass(frozen=True)
class Kept:
    """What became of the records that a cluster has acknowledged."""

    acknowledged: int = 0
    lost: Sets = field(default_factory=dict)
    """Those that no surviving cluster has, without those given up."""
    given_up: int = 0
    """Those that only a cluster had that was wiped: lost in an earlier disaster."""
    lost_processed: int = 0
    """How many of them a consumer had processed."""
    oldest_lost_ms: int | None = None
    """When the oldest of them was acknowledged, in milliseconds since the epoch."""
    retired: int = 0
    """Those that are not there and older than what their partition's log begins with: retention has deleted them."""
    sent_twice: int = 0
    """Records that are there more than once, since the producer had no answer and sent them again."""


@dataclass(frozen=True)
class Moved:
    """How a group went on at the target."""

    predicted: int
    """Records that it would read again, by what was known at the fence."""
    again: int
    """Records that it did read again, each as often as it did."""
    skipped: Sets
    """Records that it has processed nowhere."""
    passed: bool
    """Whether it has passed what was there when the mirror was held."""


def kept(
    entries: Iterable[LedgerEntry],
    present: Sequence[Island],
    beginnings: Mapping[tuple[str, int], int],
    given_up: Callable[[LedgerEntry], bool] = lambda _: False,
) -> Kept:
    """Compares what was acknowledged with what is there.

    Args:
        entries: all that the ledgers have.
        present: the records of all surviving clusters.
        beginnings: of partitions whose log does not begin with its first record any more, the time of what it begins
            with, in milliseconds since the epoch.
        given_up: whether what an entry calls acknowledged was so in a cluster that was wiped.
    """
    every = list(entries)
    acked = collected(every, lambda entry: entry.kind == "acked")
    processed = collected(every, lambda entry: entry.kind == "processed")
    unanswered = collected(every, lambda entry: entry.kind == "unknown")
    there: Sets = {}
    for island in present:
        there.setdefault(island.key, []).append((island.first, island.last))
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
        # What was acknowledged elsewhere as well is lost there, too.
        before = both(gone, wiped.get(key, []))
        abandoned += count(before)
        gone = minus(gone, before)
        if gone:
            lost[key] = gone
    times = [
        entry.since for entry in every if entry.kind == "acked" and both(lost.get(key_of(entry), []), [_range(entry)])
    ]
    return Kept(
        acknowledged=sum(map(count, acked.values())),
        lost=lost,
        lost_processed=sum(count(both(numbers, processed.get(key, []))) for key, numbers in lost.items()),
        oldest_lost_ms=min(times, default=None),
        given_up=abandoned,
        retired=retired,
        sent_twice=sum(
            min(island.twice, count(both(unanswered.get(island.key, []), [(island.first, island.last)])))
            for island in present
        ),
    )


def moved(
    entries: Iterable[LedgerEntry],
    group: str,
    cluster: str,
    held_ms: int,
    at_target: Sequence[Island],
    behind: Collection[LedgerEntry] = (),
    *,
    passed: bool,
) -> Moved:
    """Compares what a group has processed before a switch and after it with what was there for it.

    Args:
        entries: all that the ledgers have.
        group: the group.
        cluster: the id of the target's cluster.
        held_ms: when the mirror was held: what the group has read in the target before, it has read in an earlier stay.
        at_target: the records there, each with its place.
        behind: the entries about what lay behind the fence. What they have of records that were there before is what a
            producer without an answer has sent again: another copy, read once.
        passed: whether the group has passed what was there when the mirror was held.
    """
    own = [entry for entry in entries if entry.kind == "processed" and entry.group == group]
    later = [entry for entry in own if entry.cluster == cluster and entry.since >= held_ms]
    earlier = collected(own, lambda entry: entry.cluster != cluster or entry.since < held_ms)
    since = collected(later, lambda _: True)
    between, old = _islands(at_target, BETWEEN), _islands(at_target, BEFORE, BETWEEN)
    of_old = [entry for entry in later if entry not in behind]
    read_there = sum(count(both([_range(entry)], old.get(key_of(entry), []))) for entry in of_old)
    first_time = sum(
        count(both(minus(numbers, earlier.get(key, [])), old.get(key, [])))
        for key, numbers in collected(of_old, lambda _: True).items()
    )
    due = old if passed else _islands(at_target, BEFORE)
    skipped = {
        key: left
        for key, numbers in due.items()
        if (left := minus(minus(numbers, earlier.get(key, [])), since.get(key, [])))
    }
    return Moved(
        predicted=sum(count(both(numbers, earlier.get(key, []))) for key, numbers in between.items()),
        again=read_there - first_time,
        skipped=skipped,
        passed=passed,
    )


def is_behind(entry: LedgerEntry, fence: Fence) -> bool:
    """Whether a consumer found everything that an entry is about behind a fence.

    An entry that begins before it has nothing twice: what a producer has sent again has the numbers of what is there,
    and those of an entry only grow.

    Args:
        entry: with its topic as it is called at the target.
        fence: how far everything was.
    """
    end = fence.ends.get(entry.topic, {}).get(entry.partition)
    return entry.cluster == fence.cluster and end is not None and entry.first_offset >= end


def islands(records: DataFrame, starts: Offsets | None = None, ends: Offsets | None = None) -> list[Island]:
    """The records that a producer of the kit has numbered, as ranges.

    Args:
        records: a frame of ``RECORD_SCHEMA``.
        starts: a group's offset in each partition at the fence; where it has none, it begins with the first record.
        ends: where each partition ended at the fence; None where no place is wanted.
    """
    run, sequence = header(RUN), header(SEQ)
    # As ``number_of`` has it, by which ledgers are kept.
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
        once.withColumn("island", F.col("seq") - F.row_number().over(order))
        .groupBy("run", "topic", "partition", "place", "island")
        .agg(F.min("seq").alias("first"), F.max("seq").alias("last"), F.sum("twice").alias("twice"))
    )
    return [
        Island(Key(row["run"], row["topic"], row["partition"]), row["first"], row["last"], row["place"], row["twice"])
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
    """The sequence numbers that entries speak of, each once."""
    found: dict[Key, Numbers] = {}
    for entry in entries:
        if wanted(entry):
            found.setdefault(key_of(entry), []).append(_range(entry))
    return {key: normal(numbers) for key, numbers in found.items()}


def key_of(entry: LedgerEntry) -> Key:
    """What an entry's sequence numbers count within."""
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
    """The numbers that are among the others, too."""
    return minus(numbers, minus(numbers, others))


def count(numbers: Numbers) -> int:
    """How many numbers there are."""
    return sum(last - first + 1 for first, last in numbers)


def _is_retired(entry: LedgerEntry, there: Sets, beginnings: Mapping[tuple[str, int], int]) -> bool:
    """Whether retention may have deleted what an entry is about and is not there."""
    begins_ms = beginnings.get((entry.topic, entry.partition))
    if begins_ms is None:
        return False
    # An old entry may be about a run's whole life; what is left of a run has come after what is gone.
    return (entry.since if there.get(key_of(entry)) else entry.until) <= begins_ms


def _range(entry: LedgerEntry) -> tuple[int, int]:
    return entry.first, entry.last


def _islands(found: Sequence[Island], *places: str) -> Sets:
    sets: Sets = {}
    for island in found:
        if island.place in places:
            sets.setdefault(island.key, []).append((island.first, island.last))
    return {key: normal(numbers) for key, numbers in sets.items()}
