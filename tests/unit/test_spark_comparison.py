"""The comparison finds every kind of difference, alone and mixed, as a plain-Python reference does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.cluster import Config
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.compare import differences
from loosehanger.proof.compare.comparison import Comparison, Counts
from loosehanger.proof.flows import Flow
from loosehanger.proof.read import records
from loosehanger.proof.read.batches import Ranges
from loosehanger.proof.read.fetching import Fetched
from loosehanger.proof.read.mirrors import MirrorProgress
from loosehanger.proof.read.records import BUCKET_MS
from loosehanger.proof.session import INTERPRETED
from loosehanger.proof.snapshot import Cut, OffsetSnapshot

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves it to the garbage collector to close the sockets that results come through.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Headers = tuple[tuple[str, bytes | None], ...]
Named = tuple[str, int, int | None, int | None]
"""Kind, partition, source offset, target offset."""


@dataclass(frozen=True)
class Record:
    """What a record consists of, apart from its offset."""

    key: bytes | None = b"k"
    value: bytes | None = b"v"
    partition: int = 0
    timestamp: int = 0
    headers: Headers | None = None

    @property
    def sequence(self) -> tuple[bytes, bytes] | None:
        """Run and sequence number."""
        headers = dict(reversed(self.headers or ()))
        run, seq = headers.get("lh-run"), headers.get("lh-seq")
        return None if run is None or seq is None else (run, seq)


@dataclass(frozen=True)
class World:
    """Both sides of one topic; a record's offset is its place in the list."""

    source: Sequence[Record]
    target: Sequence[Record]
    cut: int | None = None
    """How many source records are judged; all if None."""
    source_start: int = 0
    """Source records before it are gone."""
    target_start: int = 0
    archive: int = 0
    """Target records before it are of an earlier source."""
    size_retained: bool = False
    expire_before: int | None = None
    compacted: bool = False

    @property
    def until(self) -> int:
        """The cut's end offset."""
        return len(self.source) if self.cut is None else self.cut

    @property
    def target_configs(self) -> dict[str, Config]:
        """What the target's retention is."""
        at_ms = int(FROZEN_AT.timestamp() * 1000)
        found = {"retention.ms": -1 if self.expire_before is None else at_ms - self.expire_before}
        found["retention.bytes"] = 0 if self.size_retained else -1
        return {name: Config(str(value), override=True, mirrored=True) for name, value in found.items()}


MIRROR = Mirror("mm2", "here", "there", "here", "there", "identity", ".", ".*", "", "c", {})
CUT_AT = datetime(1980, 1, 1, tzinfo=UTC)
FROZEN_AT = CUT_AT + timedelta(minutes=10)
"""Targets are read once the mirrors have passed the cut."""
Found = tuple[set[Named], Counts]


def compare(
    spark: SparkSession, worlds: Sequence[World], *, at_hand: bool = False, since: int | None = None
) -> list[Found]:
    """What the comparison finds in each world: the named differences, and the counts. One Spark run for all.

    Args:
        spark: the session.
        worlds: of them, each is a topic.
        at_hand: whether the records have been read already, as few are.
        since: older records are left out; None for none.
    """
    flows: list[Flow] = []
    configs: dict[str, dict[str, Config]] = {}
    ranges: dict[str, dict[TopicPartition, tuple[int, int]]] = {"here": {}, "there": {}}
    cut: dict[TopicPartition, tuple[int, int]] = {}
    rows: dict[str, list[tuple[Any, ...]]] = {"here": [], "there": []}
    for number, world in enumerate(worlds):
        topic = f"t{number}"
        flows.append(Flow(MIRROR, topic, topic))
        configs[topic] = world.target_configs
        for region, side, start in (
            ("here", world.source, world.source_start),
            ("there", world.target, max(world.target_start, world.archive)),
        ):
            for partition in range(3):
                ranges[region][TopicPartition(topic, partition)] = (start, max(start, len(side)))
            kept = [(record.partition, offset, record) for offset, record in enumerate(side) if offset >= start]
            # As Kafka is read: one partition after the other, in the order of its offsets.
            rows[region] += [_row(topic, offset, record) for _, offset, record in sorted(kept, key=itemgetter(0, 1))]
        cut |= {TopicPartition(topic, partition): (0, world.until) for partition in range(3)}
    compacted = {
        f"t{number}": {"cleanup.policy": Config("compact", override=True, mirrored=True)}
        for number, world in enumerate(worlds)
        if world.compacted
    }
    frames = {region: frame_of(spark, found) for region, found in rows.items()}

    def whole(region: str, wanted: Ranges) -> DataFrame:
        bounds = spark.createDataFrame(
            [(*partition, *offsets) for partition, offsets in wanted.items()],
            "topic string, partition int, from long, to long",
        )
        known = frames[region].join(F.broadcast(bounds), ["topic", "partition"])
        return known.where("offset >= from AND offset < to").drop("from", "to")

    def read(region: str, wanted: Ranges) -> DataFrame:
        return whole(region, wanted).where("true" if since is None else f"unix_millis(timestamp) >= {since}")

    def untimed(region: str, wanted: Ranges) -> DataFrame:
        return whole(region, wanted).where("unix_millis(timestamp) = -1")

    found = Comparison(
        spark,
        flows,
        {"here": Cut(CUT_AT, cut, {}, compacted)},
        {MIRROR.id: MirrorProgress("RUNNING")},
        OffsetSnapshot(
            {},
            {"there": ranges["there"]},
            {"here": ranges["here"]},
            {"there": configs},
            FROZEN_AT,
            archives={
                "there": {
                    TopicPartition(f"t{number}", partition): world.archive
                    for number, world in enumerate(worlds)
                    for partition in range(3)
                }
            },
            fetched={region: _fetched(ranges[region], found) for region, found in rows.items()} if at_hand else {},
        ),
        read,
        read_untimed=None if since is None else untimed,
    ).run(1000)
    return [
        (
            {(e["kind"], e["partition"], e["source_offset"], e["target_offset"]) for e in found[flow.id].examples},
            found[flow.id],
        )
        for flow in flows
    ]


def reference(world: World) -> tuple[set[Named], int]:
    """The same by definition, without retention: the named differences, and how many copies are behind the cut."""
    at_source, at_target = _by_content(world.source), _by_content(world.target)
    pairs: list[tuple[int, int]] = []
    named: set[Named] = set()
    missing: list[int] = []
    unexpected: list[int] = []
    for content in at_source.keys() | at_target.keys():
        copies, mirrored = at_source[content], at_target[content]
        pairs += zip(copies, mirrored, strict=False)
        missing += [offset for offset in copies[len(mirrored) :] if offset < world.until]
        surplus = mirrored[len(copies) :]
        if copies:
            named |= {("duplicates", content.partition, None, offset) for offset in surplus}
        else:
            unexpected += surplus
    furthest: dict[int, int] = {}
    for here, there in sorted(pairs):
        partition = world.source[here].partition
        if here < world.until and there < furthest.get(partition, -1):
            named.add(("reordered", partition, here, there))
        furthest[partition] = max(there, furthest.get(partition, -1))
    for identity, kind in ((_by_whatever_partition, "moved"), (_by_sequence, "altered"), (_by_key, "altered")):
        candidates: dict[Any, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for offset in sorted(missing, key=lambda offset: (world.source[offset].partition, offset)):
            candidates[identity(world.source[offset])][0].append(offset)
        for offset in sorted(unexpected, key=lambda offset: (world.target[offset].partition, offset)):
            candidates[identity(world.target[offset])][1].append(offset)
        for which, (lost, strange) in candidates.items():
            for here, there in zip(lost, strange, strict=False) if which else ():
                named.add((kind, world.source[here].partition, here, there))
                missing.remove(here)
                unexpected.remove(there)
    named |= {("missing", world.source[offset].partition, offset, None) for offset in missing}
    named |= {("unexpected", world.target[offset].partition, None, offset) for offset in unexpected}
    return named, sum(here >= world.until for here, _ in pairs)


def _by_whatever_partition(record: Record) -> Any:
    return replace(record, partition=0)


def _by_sequence(record: Record) -> Any:
    return record.sequence and (record.partition, record.sequence)


def _by_key(record: Record) -> Any:
    return (record.partition, record.key, record.timestamp)


def _by_content(side: Iterable[Record]) -> dict[Record, list[int]]:
    contents: dict[Record, list[int]] = defaultdict(list)
    for offset, record in enumerate(side):
        contents[record].append(offset)
    return contents


def _row(topic: str, offset: int, record: Record) -> tuple[Any, ...]:
    return (record.key, record.value, topic, record.partition, offset, record.timestamp, record.headers)


def _fetched(ranges: Ranges, rows: Iterable[tuple[Any, ...]]) -> dict[TopicPartition, list[Fetched]]:
    found: dict[TopicPartition, list[Fetched]] = {place: [] for place in ranges}
    for key, value, topic, partition, offset, timestamp, headers in rows:
        record = Fetched(partition, offset, timestamp, key, value, headers or ())
        found[TopicPartition(topic, partition)].append(record)
    return found


def frame_of(spark: SparkSession, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    """A frame of ``RECORD_SCHEMA``; the rows' times are in milliseconds, which need not fit into a Python date."""
    schema = records.RECORD_SCHEMA.replace("timestamp timestamp", "timestamp long")
    frame = spark.createDataFrame(list(rows), schema)
    return frame.withColumn("timestamp", F.timestamp_millis("timestamp"))


def _event(seq: int, value: bytes = b"v", at: int | None = None) -> Record:
    return Record(
        b"k%d" % seq, value, timestamp=seq if at is None else at, headers=(("lh-run", b"r"), ("lh-seq", b"%d" % seq))
    )


EVENTS = tuple(_event(seq) for seq in range(6))
FOREIGN = Record(b"foreign")
# The last values: a has 2, b has 1, c was deleted.
VERSIONS = (
    Record(b"c", b"1", timestamp=0),
    Record(b"a", b"1", timestamp=1),
    Record(b"b", b"1", timestamp=2),
    Record(b"a", b"2", timestamp=3),
    Record(b"c", None, timestamp=4),
)
FAR_APART = (Record(b"a", b"1", timestamp=0), Record(b"a", b"2", timestamp=60_000))
UNTIMED = (
    *(replace(event, timestamp=-1) for event in EVENTS[:3]),
    EVENTS[3],
    Record(b"old", timestamp=-1),
)
COPIED = tuple(
    replace(record, timestamp=500_000 + place) if record.timestamp < 0 else record
    for place, record in enumerate(UNTIMED)
)
TWINS = (EVENTS[0], Record(), Record(), EVENTS[1])
CASES: dict[str, tuple[World, set[Named]]] = {
    "equal": (World(EVENTS, EVENTS), set()),
    "missing": (World(EVENTS, [*EVENTS[:2], *EVENTS[3:]]), {("missing", 0, 2, None)}),
    "mirrored twice": (World(EVENTS, [*EVENTS, EVENTS[1]]), {("duplicates", 0, None, 6)}),
    "mirrored three times": (
        World(EVENTS, [*EVENTS, EVENTS[1], EVENTS[1]]),
        {("duplicates", 0, None, 6), ("duplicates", 0, None, 7)},
    ),
    "written by hand": (World(EVENTS, [*EVENTS, FOREIGN]), {("unexpected", 0, None, 6)}),
    "written by hand twice": (
        World(EVENTS, [*EVENTS, FOREIGN, FOREIGN]),
        {("unexpected", 0, None, 6), ("unexpected", 0, None, 7)},
    ),
    "another value": (World(EVENTS, [_event(0, b"w"), *EVENTS[1:]]), {("altered", 0, 0, 0)}),
    "headers lost": (World(EVENTS, [replace(EVENTS[0], headers=None), *EVENTS[1:]]), {("altered", 0, 0, 0)}),
    "another key and time, same sequence": (
        World(EVENTS, [replace(EVENTS[0], key=None, timestamp=9), *EVENTS[1:]]),
        {("altered", 0, 0, 0)},
    ),
    "another value, no key": (World([Record(None)], [Record(None, b"w")]), {("altered", 0, 0, 0)}),
    "another order": (World(EVENTS, [EVENTS[1], EVENTS[0], *EVENTS[2:]]), {("reordered", 0, 1, 0)}),
    "another partition": (
        World(EVENTS, [replace(EVENTS[0], partition=1), *EVENTS[1:]]),
        {("moved", 0, 0, 0)},
    ),
    "mixed": (
        World(EVENTS, [_event(0, b"w"), EVENTS[1], EVENTS[1], FOREIGN, EVENTS[4], EVENTS[3]]),
        {
            ("altered", 0, 0, 0),
            ("duplicates", 0, None, 2),
            ("unexpected", 0, None, 3),
            ("missing", 0, 2, None),
            ("missing", 0, 5, None),
            ("reordered", 0, 4, 4),
        },
    ),
    "gaps at the source": (World([*EVENTS[:2], EVENTS[5]], [*EVENTS[:2], EVENTS[5]]), set()),
    "everything lost": (World(EVENTS[:2], []), {("missing", 0, 0, None), ("missing", 0, 1, None)}),
    "nothing at the source": (World([], [FOREIGN]), {("unexpected", 0, None, 0)}),
    "duplicates of the producer": (World([Record()] * 3, [Record()] * 3), set()),
    "one more than the producer's": (World([Record()] * 2, [Record()] * 3), {("duplicates", 0, None, 2)}),
    "one less than the producer's": (World([Record()] * 2, [Record()]), {("missing", 0, 1, None)}),
    "behind the cut, not there yet": (World(EVENTS, EVENTS[:2], cut=2), set()),
    "behind the cut, lost": (World(EVENTS, [*EVENTS[:2], EVENTS[4]], cut=2), set()),
    "behind the cut, foreign": (World(EVENTS, [*EVENTS[:4], FOREIGN], cut=2), {("unexpected", 0, None, 4)}),
    "in the cut, lost": (World(EVENTS, [EVENTS[0], *EVENTS[2:5]], cut=2), {("missing", 0, 1, None)}),
    "gone at the source": (
        World(EVENTS, EVENTS, source_start=2),
        {("expired", 0, None, 0), ("expired", 0, None, 1)},
    ),
    "gone at the source, foreign later": (
        World(EVENTS, [*EVENTS, FOREIGN], source_start=1),
        {("expired", 0, None, 0), ("unexpected", 0, None, 6)},
    ),
    # Nothing distinguishes these two; calling it a fault is the safe side.
    "the first of two equals gone at the source": (
        World(TWINS, TWINS, source_start=2),
        {("expired", 0, None, 0), ("duplicates", 0, None, 2)},
    ),
    "everything mirrored twice, the beginning gone at the source": (
        World(EVENTS[:3], [*EVENTS[:3], *EVENTS[1:3]], source_start=1),
        {("expired", 0, None, 0), ("duplicates", 0, None, 3), ("duplicates", 0, None, 4)},
    ),
    "deleted before it was mirrored": (
        World(EVENTS, [*EVENTS[:2], *EVENTS[4:]], source_start=4),
        {("expired", 0, None, 0), ("expired", 0, None, 1)},
    ),
    "compacted on one side": (World(VERSIONS, VERSIONS[2:], compacted=True), set()),
    "compacted, a key lost": (World(VERSIONS, VERSIONS[3:], compacted=True), {("missing", 0, 2, None)}),
    "compacted, an old value": (
        World(VERSIONS, VERSIONS[:3], compacted=True),
        {("altered", 0, 3, 1), ("altered", 0, 4, 0)},
    ),
    "compacted, a foreign key": (World(VERSIONS, [*VERSIONS, FOREIGN], compacted=True), {("unexpected", 0, None, 5)}),
    "compacted, newer than the cut": (World(VERSIONS, VERSIONS, cut=3, compacted=True), set()),
    "compacted, tombstone gone": (World(VERSIONS, VERSIONS[2:4], compacted=True), set()),
    "compacted, another order, each in a bucket of its own": (
        World(FAR_APART, FAR_APART[::-1], compacted=True),
        {("altered", 0, 1, 1)},
    ),
    "without a timestamp": (World(UNTIMED, COPIED), set()),
    "without a timestamp, newer than the cut": (World(UNTIMED, COPIED, cut=2), set()),
    "without a timestamp, one lost": (World(UNTIMED, COPIED[:4]), {("missing", 0, 4, None)}),
    "without a timestamp, one twice": (World(UNTIMED, [*COPIED, COPIED[4]]), {("duplicates", 0, None, 5)}),
    "without a timestamp, one twice at different times": (
        World(UNTIMED, [*COPIED, replace(COPIED[4], timestamp=600_000)]),
        {("unexpected", 0, None, 5)},
    ),
    "without a timestamp, another value": (
        World(UNTIMED, [*COPIED[:4], replace(COPIED[4], value=b"w")]),
        {("missing", 0, 4, None), ("unexpected", 0, None, 4)},
    ),
    "without a timestamp, another partition": (
        World(UNTIMED, [*COPIED[:4], replace(COPIED[4], partition=1)]),
        {("missing", 0, 4, None), ("unexpected", 1, None, 4)},
    ),
    "without a timestamp, another order": (
        World(UNTIMED, [COPIED[1], COPIED[0], *COPIED[2:]]),
        {("reordered", 0, 1, 0)},
    ),
    # That is a time, and the copy must have it.
    "before 1970": (
        World([Record(timestamp=-2)], [Record(timestamp=500_000)]),
        {("missing", 0, 0, None), ("unexpected", 0, None, 0)},
    ),
    "the copy without one": (
        World(COPIED, UNTIMED),
        {
            ("altered", 0, 0, 0),
            ("altered", 0, 1, 1),
            ("altered", 0, 2, 2),
            ("missing", 0, 4, None),
            ("unexpected", 0, None, 4),
        },
    ),
    "compacted, without a timestamp": (World(UNTIMED, COPIED, compacted=True), set()),
    "compacted, without a timestamp, another value": (
        World(UNTIMED, [*COPIED[:4], replace(COPIED[4], value=b"w")], compacted=True),
        {("altered", 0, 4, 4)},
    ),
    "deleted at the target": (
        World(EVENTS, EVENTS, target_start=2),
        {("missing", 0, 0, None), ("missing", 0, 1, None)},
    ),
    "too old for the target": (
        World(EVENTS, EVENTS, target_start=2, expire_before=1),
        {("expired", 0, 0, None), ("missing", 0, 1, None)},
    ),
    "too many for the target": (
        World(EVENTS, [*EVENTS[:4], EVENTS[5]], target_start=2, size_retained=True),
        {("expired", 0, 0, None), ("expired", 0, 1, None), ("missing", 0, 4, None)},
    ),
    "after an archive": (World(EVENTS[3:], EVENTS, archive=3), set()),
    "after an archive, one lost and one foreign": (
        World(EVENTS[3:], [*EVENTS[:3], *EVENTS[4:], FOREIGN], archive=3),
        {("missing", 0, 0, None), ("unexpected", 0, None, 5)},
    ),
    # Retention has deleted the archive and nothing else: what is missing went lost.
    "after an archive that is gone, too old if it had been there": (
        World(EVENTS[3:], [*EVENTS[:3], *EVENTS[4:]], archive=3, target_start=3, expire_before=5, size_retained=True),
        {("missing", 0, 0, None)},
    ),
    "after an archive, too old for the target": (
        World(EVENTS[3:], EVENTS, archive=3, target_start=4, expire_before=5),
        {("expired", 0, 0, None)},
    ),
    "old, but lost on the way": (World(EVENTS, EVENTS[1:], expire_before=5), {("missing", 0, 0, None)}),
}


@pytest.fixture(scope="module", params=[False, True], ids=["read by Spark", "at hand"])
def at_hand(request: pytest.FixtureRequest) -> bool:
    """Both ways in which records come."""
    return bool(request.param)


@pytest.fixture(scope="module")
def found(spark: SparkSession, at_hand: bool) -> dict[str, Found]:
    """What the comparison finds in each case."""
    return dict(zip(CASES, compare(spark, [world for world, _ in CASES.values()], at_hand=at_hand), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_each_difference_is_named(found: dict[str, Found], case: str) -> None:
    assert found[case][0] == CASES[case][1]


@pytest.mark.parametrize(
    "case",
    [
        case
        for case, (world, _) in CASES.items()
        if not (world.source_start or world.target_start or world.archive or world.compacted)
        and all(record.timestamp >= 0 for record in world.source)
    ],
)
def test_the_reference_names_the_same(case: str) -> None:
    world, expected = CASES[case]
    assert reference(world)[0] == expected


def test_records_are_counted(found: dict[str, Found]) -> None:
    def counts(case: str) -> tuple[int, ...]:
        count = found[case][1]
        return count.source_records, count.target_records, count.after_cut

    assert counts("equal") == (6, 6, 0)
    assert counts("in the cut, lost") == (2, 1, 3)
    assert counts("mirrored twice") == (6, 7, 0)
    assert counts("without a timestamp") == (5, 5, 0)
    assert counts("without a timestamp, newer than the cut") == (2, 2, 3)
    untimed = [found[case][1].untimed for case in CASES if case.startswith("without a timestamp")]
    assert untimed == [4, 2, 3, 4, 4, 3, 3, 4]
    assert not found["the copy without one"][1].untimed


SINCE = 400_000
LATE = Record(b"late", timestamp=SINCE + 1)
OLD = Record(b"old", timestamp=-1)


def _copy(at: int, record: Record = OLD) -> Record:
    return replace(record, timestamp=at)


SINCE_CASES: dict[str, tuple[World, set[Named], int]] = {
    # The number is that of the records without a timestamp that have a newer copy.
    "all copies newer": (World([*UNTIMED, LATE], [*COPIED, LATE]), set(), 4),
    "all copies older": (World([*UNTIMED, LATE], [*(_copy(9, one) for one in UNTIMED), LATE]), set(), 0),
    "some copies older": (
        World([*UNTIMED, LATE], [*(_copy(9, one) for one in COPIED[:2]), *COPIED[2:], LATE]),
        set(),
        2,
    ),
    "not copied yet": (World([*UNTIMED, LATE, OLD], [*COPIED, LATE], cut=6), set(), 4),
    "equal ones, the first copied before": (World([OLD, LATE, OLD], [_copy(9), LATE, _copy(SINCE + 2)]), set(), 1),
    "equal ones, the last not copied yet": (
        World([OLD, _copy(SINCE), OLD, LATE, OLD], [_copy(9), _copy(SINCE), _copy(SINCE + 2), LATE]),
        set(),
        1,
    ),
    "copied twice": (World([OLD, LATE], [_copy(SINCE), LATE, _copy(SINCE + 2)]), {("unexpected", 0, None, 2)}, 1),
    "another value": (
        World([OLD, LATE], [_copy(SINCE, replace(OLD, value=b"w")), LATE]),
        {("unexpected", 0, None, 0)},
        0,
    ),
    "another one lost": (World([OLD, LATE, *EVENTS], [_copy(SINCE)]), {("missing", 0, 1, None)}, 1),
    "compacted, newer": (World([OLD, LATE], [_copy(SINCE), LATE], compacted=True), set(), 0),
    "compacted, older": (World([OLD, LATE, LATE], [_copy(9), LATE], compacted=True), set(), 0),
    "compacted, another value": (
        World([OLD, LATE], [_copy(SINCE, replace(OLD, value=b"w")), LATE], compacted=True),
        {("altered", 0, 0, 0)},
        0,
    ),
}


def test_where_older_records_are_left_out_those_without_a_timestamp_belong_to_newer_copies(spark: SparkSession) -> None:
    found = compare(spark, [world for world, _, _ in SINCE_CASES.values()], since=SINCE)
    named = {case: (one[0], one[1].untimed) for case, one in zip(SINCE_CASES, found, strict=True)}
    assert named == {case: (expected, untimed) for case, (_, expected, untimed) in SINCE_CASES.items()}
    assert [(one[1].source_records, one[1].target_records) for one in found[:3]] == [(5, 5), (1, 1), (3, 3)]


def test_gaps_in_the_sequence_are_the_sources(found: dict[str, Found]) -> None:
    assert found["gaps at the source"][1].source_gaps == 3


def test_records_that_the_source_deleted_before_they_were_mirrored_are_counted(found: dict[str, Found]) -> None:
    assert found["deleted before it was mirrored"][1].never_mirrored == 2
    assert found["gone at the source"][1].never_mirrored == 0


DIFFERENT_CONTENTS = (
    (Record(key=None), Record(key=b"")),
    (Record(value=None), Record(value=b"")),
    (Record(key=b"ab", value=b"c"), Record(key=b"a", value=b"bc")),
    (Record(key=None, value=b"x"), Record(key=b"x", value=None)),
    (Record(key=b"-", value=b"x"), Record(key=None, value=b"x")),
    (Record(value=b"\xff\xfe"), Record(value=b"\xff\xfd")),
    (Record(timestamp=1), Record(timestamp=2)),
    (Record(headers=(("h", None),)), Record(headers=(("h", b""),))),
    (Record(headers=(("h", None), ("i", b"x"))), Record(headers=(("h", b"i"), ("x", None)))),
    (Record(headers=(("h", b"1"), ("h", b"2"))), Record(headers=(("h", b"2"), ("h", b"1")))),
    (Record(headers=(("h", b"1"),)), Record(headers=(("h", b"1"), ("h", b"1")))),
    (Record(headers=None), Record(headers=(("h", None),))),
)


def test_contents_that_differ_are_told_apart(spark: SparkSession) -> None:
    rows = [
        _row("t", 3 * number + copy, record)
        for number, (one, other) in enumerate(DIFFERENT_CONTENTS)
        for copy, record in enumerate((one, other, one))
    ]
    frame = frame_of(spark, rows).withColumn("region", F.lit("here"))
    hashes = [tuple(row) for row in frame.orderBy("offset").select(*records.hashes()).collect()]
    prints: list[Any] = [
        (row.fingerprint, hashed)
        for row, hashed in zip(records.contents(frame).orderBy("record.offset").collect(), hashes, strict=True)
    ]
    for number, contents in enumerate(DIFFERENT_CONTENTS):
        first, second, third = prints[3 * number : 3 * number + 3]
        assert first[0] != second[0], contents
        assert all(one != other for one, other in zip(first[1], second[1], strict=True)), contents
        assert first == third, contents


def _minutes(*numbers: int) -> list[Record]:
    return [_event(number, at=number * 60_000) for number in numbers]


BUCKETS: dict[str, tuple[World, set[Named], int]] = {
    "equal": (World(_minutes(*range(9)), _minutes(*range(9))), set(), 0),
    "one lost": (World(_minutes(*range(9)), _minutes(*(0, 1, 2), *range(4, 9))), {("missing", 0, 3, None)}, 1),
    "one twice": (World(_minutes(*range(9)), _minutes(*range(9), 4)), {("duplicates", 0, None, 9)}, 1),
    "the newest not there yet": (World(_minutes(*range(9)), _minutes(*range(7)), cut=5), set(), 2),
    # Every bucket holds what it must; only their places differ. Then all of the partition is looked at.
    "two swapped": (World(_minutes(*range(9)), _minutes(0, 2, 1, *range(3, 9))), {("reordered", 0, 2, 1)}, 9),
    "one lost, two swapped": (
        World(_minutes(*range(9)), _minutes(0, 2, 1, *range(4, 9))),
        {("missing", 0, 3, None), ("reordered", 0, 2, 1)},
        9,
    ),
    # The missing and the added record weigh each other up, and the ranks of all others stay as they were.
    "one lost, one moved in its place": (
        World(_minutes(0, 1, 2, 3, 4), [*_minutes(0), FOREIGN, *_minutes(2, 3, 4)]),
        {("missing", 0, 1, None), ("unexpected", 0, None, 1)},
        2,
    ),
    # A late record lies between those of another bucket.
    "late": (World(_minutes(0, 5, 1, 6), _minutes(0, 5, 1, 6)), set(), 0),
    "one lost within another bucket's span": (
        World([*_minutes(0, 5), _event(9, at=1), *_minutes(6)], [*_minutes(0, 5, 6)]),
        {("missing", 0, 2, None)},
        1,
    ),
}


@pytest.fixture(scope="module")
def found_in_buckets(spark: SparkSession, at_hand: bool) -> dict[str, Found]:
    """What the comparison finds where records lie in many buckets."""
    return dict(zip(BUCKETS, compare(spark, [case[0] for case in BUCKETS.values()], at_hand=at_hand), strict=True))


@pytest.mark.parametrize("case", BUCKETS)
def test_only_what_differs_is_compared_record_by_record(
    found_in_buckets: dict[str, Found], case: str, at_hand: bool
) -> None:
    named, counts = found_in_buckets[case]
    assert named == BUCKETS[case][1]
    # What is only on its way is opened for nothing where that cannot be seen before.
    assert counts.opened == (0 if at_hand and not named else BUCKETS[case][2])
    assert counts.source_records == BUCKETS[case][0].until


def test_one_source_is_compared_with_each_of_its_targets(spark: SparkSession) -> None:
    frame = frame_of(spark, [_row("t", n, event) for n, event in enumerate(EVENTS)])
    frames = {"here": frame, "one": frame, "two": frame.where("offset != 3")}
    mirrors = [replace(MIRROR, name=name, target=name) for name in ("one", "two")]
    place = TopicPartition("t", 0)
    ranges = {place: (0, 6)}
    found = Comparison(
        spark,
        [Flow(mirror, "t", "t") for mirror in mirrors],
        {"here": Cut(CUT_AT, ranges, {place: 5}, {})},
        {
            mirrors[0].id: MirrorProgress("RUNNING", {place: 5}),
            # This one is behind: only what it has copied is judged.
            mirrors[1].id: MirrorProgress("STOPPED", {place: 4}),
        },
        OffsetSnapshot({}, dict.fromkeys(("one", "two"), ranges), {"here": ranges}, {"one": {}, "two": {}}, FROZEN_AT),
        lambda region, _: frames[region],
    ).run(5)
    assert [(count.missing, count.source_records) for count in found.values()] == [(0, 6), (1, 5)]


def test_examples_are_the_first_of_each_kind(spark: SparkSession) -> None:
    rows = [(0, 0, kind, (offset,), None) for kind in ("missing", "expired") for offset in range(9)]
    frame = spark.createDataFrame(
        rows,
        "flow int, partition int, kind string, source_record struct<offset: long>, target_record struct<offset: long>",
    )
    shown = differences.examples(frame, 2).collect()
    assert sorted((row.kind, row.source_record.offset) for row in shown) == [
        ("expired", 0),
        ("expired", 1),
        ("missing", 0),
        ("missing", 1),
    ]


HEADERS: tuple[Headers | None, ...] = (
    None,
    (("h", None),),
    (("lh-run", b"r"), ("lh-seq", b"1")),
    (("lh-run", b"r"), ("lh-seq", b"2")),
)
RECORD = st.builds(
    Record,
    key=st.sampled_from([None, b"", b"a"]),
    value=st.sampled_from([None, b"", b"x"]),
    partition=st.integers(0, 1),
    # Of three buckets, in any order.
    timestamp=st.sampled_from([0, 1, BUCKET_MS - 1, BUCKET_MS, 3 * BUCKET_MS]),
    headers=st.sampled_from(HEADERS),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A source, and a target that a bad mirror made of it."""
    source = draw(st.lists(RECORD, max_size=7))
    target: list[Record] = []
    for record in source:
        match draw(st.sampled_from(["copy", "copy", "copy", "drop", "twice", "alter", "foreign", "swap"])):
            case "copy":
                target.append(record)
            case "twice":
                target += [record, record]
            case "alter":
                target.append(replace(record, value=b"altered"))
            case "foreign":
                target += [record, draw(RECORD)]
            case "swap":
                target.insert(max(len(target) - 1, 0), record)
    return World(source, target, cut=draw(st.integers(0, len(source))))


@pytest.fixture(params=["compiled", "interpreted"])
def few(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Both ways in which Spark evaluates: many records, and few, which are at hand as well."""
    before = {name: str(spark.conf.get(name)) for name in INTERPRETED}
    if request.param == "interpreted":
        for name, value in INTERPRETED.items():
            spark.conf.set(name, value)
    yield request.param == "interpreted"
    for name, value in before.items():
        spark.conf.set(name, value)


@settings(
    # Each example is a batch: a run of Spark costs the same for one world as for a hundred.
    max_examples=2,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(batch=st.lists(worlds(), min_size=60, max_size=120))
def test_random_multisets_as_the_reference_has_them(spark: SparkSession, few: bool, batch: list[World]) -> None:
    for world, (named, counts) in zip(batch, compare(spark, batch, at_hand=few), strict=True):
        expected, after_cut = reference(world)
        assert named == expected, world
        assert counts.after_cut == after_cut
        assert counts.source_records == world.until
