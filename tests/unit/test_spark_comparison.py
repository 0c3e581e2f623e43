"""The comparison finds every kind of difference, alone and mixed, as a plain-Python reference does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from pipeline import comparison, records

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
    size_retained: bool = False
    expire_before: int | None = None

    @property
    def until(self) -> int:
        """The cut's end offset."""
        return len(self.source) if self.cut is None else self.cut


def compare(spark: SparkSession, worlds: Sequence[World]) -> list[tuple[set[Named], dict[str, int]]]:
    """What the transforms find in each world: the named differences, and the summary. One Spark run for all."""
    sides = {}
    for side in ("source", "target"):
        rows = [
            _row(f"t{number}", offset, record)
            for number, world in enumerate(worlds)
            for offset, record in enumerate(getattr(world, side))
            if offset >= getattr(world, f"{side}_start")
        ]
        sides[side] = spark.createDataFrame(rows, records.RECORD_SCHEMA).withColumn("source", F.lit("here"))
    sides["target"] = sides["target"].withColumn("target", F.lit("there"))
    partitions = [
        (number, world, partition)
        for number, world in enumerate(worlds)
        for partition in {record.partition for record in (*world.source, *world.target)}
    ]
    cuts = spark.createDataFrame(
        [("here", "there", f"t{number}", partition, world.until) for number, world, partition in partitions]
        + [("here", "there", f"t{number}", 99, 0) for number, _ in enumerate(worlds)],
        "source string, target string, topic string, partition int, until long",
    )
    pairs = comparison.mark_reordered(
        comparison.match_copies(
            _shaped(sides["source"], records.contents), _shaped(sides["target"], records.contents), cuts
        )
    )
    summary = {(row.topic, row.partition): row for row in comparison.summarise(pairs).collect()}
    lone = comparison.lone_pairs(pairs)
    bounds = spark.createDataFrame(
        [
            (
                *("here", "there", f"t{number}", partition, world.source_start, world.target_start),
                summary[f"t{number}", partition].first_source if (f"t{number}", partition) in summary else None,
                summary[f"t{number}", partition].first_target if (f"t{number}", partition) in summary else None,
                None if world.expire_before is None else _time(world.expire_before),
                world.size_retained,
            )
            for number, world, partition in partitions
        ],
        "source string, target string, topic string, partition int, source_start long, target_start long, "
        "first_source long, first_target long, expire_before timestamp, size_retained boolean",
    )
    identified = comparison.identify(
        lone, _shaped(sides["source"], records.identities), _shaped(sides["target"], records.identities)
    )
    named = comparison.name_expired(comparison.name_altered(identified), bounds)
    found: dict[str, set[Named]] = defaultdict(set)
    for row in named.select("topic", "kind", "partition", "source_record.offset", "target_record.offset").collect():
        found[row[0]].add((row[1], row[2], row[3], row[4]))
    for row in pairs.where("reordered").collect():
        found[row.topic].add(("reordered", row.partition, row.source_offset, row.target_offset))
    names = ("source_records", "after_cut", "source_gaps", "matched")
    sums = [
        {name: sum(row[name] for (topic, _), row in summary.items() if topic == f"t{number}") for name in names}
        for number, _ in enumerate(worlds)
    ]
    return [(found[f"t{number}"], sums[number]) for number, _ in enumerate(worlds)]


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
    for identity in (_by_sequence, _by_key):
        candidates: dict[Any, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for offset in sorted(missing):
            candidates[identity(world.source[offset])][0].append(offset)
        for offset in sorted(unexpected):
            candidates[identity(world.target[offset])][1].append(offset)
        for which, (lost, strange) in candidates.items():
            for here, there in zip(lost, strange, strict=False) if which else ():
                named.add(("altered", world.source[here].partition, here, there))
                missing.remove(here)
                unexpected.remove(there)
    named |= {("missing", world.source[offset].partition, offset, None) for offset in missing}
    named |= {("unexpected", world.target[offset].partition, None, offset) for offset in unexpected}
    return named, sum(here >= world.until for here, _ in pairs)


def _by_sequence(record: Record) -> Any:
    return record.sequence and (record.partition, record.sequence)


def _by_key(record: Record) -> Any:
    return (record.partition, record.key, record.timestamp)


def _by_content(side: Iterable[Record]) -> dict[Record, list[int]]:
    contents: dict[Record, list[int]] = defaultdict(list)
    for offset, record in enumerate(side):
        contents[record].append(offset)
    return contents


def _shaped(side: DataFrame, shape: Callable[[DataFrame], DataFrame]) -> DataFrame:
    keys = [name for name in ("source", "target") if name in side.columns]
    shaped = shape(side)
    return shaped.withColumns({name: F.lit("here" if name == "source" else "there") for name in keys})


def _row(topic: str, offset: int, record: Record) -> tuple[Any, ...]:
    return (record.key, record.value, topic, record.partition, offset, _time(record.timestamp), record.headers)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _event(seq: int, value: bytes = b"v") -> Record:
    return Record(b"k%d" % seq, value, timestamp=seq, headers=(("lh-run", b"r"), ("lh-seq", b"%d" % seq)))


EVENTS = tuple(_event(seq) for seq in range(6))
FOREIGN = Record(b"foreign")
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
        {("missing", 0, 0, None), ("unexpected", 1, None, 0)},
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
    # Nothing tells these two apart; calling it a fault is the safe side.
    "the first of two equals gone at the source": (
        World(TWINS, TWINS, source_start=2),
        {("expired", 0, None, 0), ("duplicates", 0, None, 2)},
    ),
    "everything mirrored twice, the beginning gone at the source": (
        World(EVENTS[:3], [*EVENTS[:3], *EVENTS[1:3]], source_start=1),
        {("expired", 0, None, 0), ("duplicates", 0, None, 3), ("duplicates", 0, None, 4)},
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
    "old, but lost on the way": (World(EVENTS, EVENTS[1:], expire_before=5), {("missing", 0, 0, None)}),
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, tuple[set[Named], dict[str, int]]]:
    """What the comparison finds in each case."""
    return dict(zip(CASES, compare(spark, [world for world, _ in CASES.values()]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_each_difference_is_named(found: dict[str, tuple[set[Named], dict[str, int]]], case: str) -> None:
    assert found[case][0] == CASES[case][1]


@pytest.mark.parametrize(
    "case", [case for case, (world, _) in CASES.items() if not world.source_start + world.target_start]
)
def test_the_reference_names_the_same(case: str) -> None:
    world, expected = CASES[case]
    assert reference(world)[0] == expected


def test_records_are_counted(found: dict[str, tuple[set[Named], dict[str, int]]]) -> None:
    assert found["equal"][1] == {"source_records": 6, "after_cut": 0, "source_gaps": 0, "matched": 6}
    assert found["in the cut, lost"][1] == {"source_records": 2, "after_cut": 3, "source_gaps": 0, "matched": 1}


def test_gaps_in_the_sequence_are_the_sources(found: dict[str, tuple[set[Named], dict[str, int]]]) -> None:
    assert found["gaps at the source"][1]["source_gaps"] == 3


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
    frame = records.contents(spark.createDataFrame(rows, records.RECORD_SCHEMA)).orderBy("offset")
    prints = [row.fingerprint for row in frame.collect()]
    for number, contents in enumerate(DIFFERENT_CONTENTS):
        first, second, third = prints[3 * number : 3 * number + 3]
        assert first != second, contents
        assert first == third, contents


def test_one_source_is_compared_with_each_of_its_targets(spark: SparkSession) -> None:
    frame = spark.createDataFrame([_row("t", n, event) for n, event in enumerate(EVENTS)], records.RECORD_SCHEMA)
    content = records.contents(frame).withColumn("source", F.lit("here"))
    targets = content.withColumn("target", F.lit("one")).unionByName(
        content.where("offset != 3").withColumn("target", F.lit("two"))
    )
    cuts = spark.createDataFrame(
        [("here", target, "t", 0, 6) for target in ("one", "two")],
        "source string, target string, topic string, partition int, until long",
    )
    pairs = comparison.match_copies(content, targets, cuts)
    lone = comparison.lone_pairs(pairs).collect()
    assert [(row.target, row.kind, row.source_offset) for row in lone] == [("two", "missing", 3)]
    assert Counter(row.target for row in pairs.collect()) == {"one": 6, "two": 6}


def test_examples_are_the_first_of_each_kind(spark: SparkSession) -> None:
    rows = [("s", "t", "x", 0, kind, (offset,), None) for kind in ("missing", "expired") for offset in range(9)]
    frame = spark.createDataFrame(
        rows,
        "source string, target string, topic string, partition int, kind string, "
        "source_record struct<offset: long>, target_record struct<offset: long>",
    )
    shown = comparison.examples(frame, 2).collect()
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
    timestamp=st.integers(0, 1),
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


@settings(
    # Each example is a batch: a run of Spark costs the same for one world as for a hundred.
    max_examples=2,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(batch=st.lists(worlds(), min_size=60, max_size=120))
def test_random_multisets_as_the_reference_has_them(spark: SparkSession, batch: list[World]) -> None:
    for world, (named, summary) in zip(batch, compare(spark, batch), strict=True):
        expected, after_cut = reference(world)
        assert named == expected, world
        assert summary["after_cut"] == after_cut
        assert summary["source_records"] == world.until
