"""Damage that reviewers made, and that the proof reported exactly: it still does, as the reference does."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from .test_spark_comparison import Found, Headers, Record, World, compare, reference

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves it to the garbage collector to close the sockets that results come through.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000
FAR_MS = 300_000_000_000_000
"""In the year 11476, which no Python date can be."""
MANY_HEADERS: Headers = tuple((f"h-{n % 100}", b"%d" % n if n % 7 else None) for n in range(300))


def events(count: int, first_ms: int = NOW_MS, apart_ms: int = 1000, partitions: int = 3) -> list[Record]:
    """Events of different keys, one after the other, over the partitions."""
    return [
        Record(b"key-%d" % n, b"value-%d" % n, n % partitions, first_ms + n * apart_ms, (("h", b"%d" % n),))
        for n in range(count)
    ]


def damaged(source: list[Record], lost: int, doubled: int, altered: int, seed: int) -> World:
    """A target that lost, doubled and altered so many records, at random."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    places = chance.sample(range(len(source)), lost + doubled + altered)
    gone, twice, changed = places[:lost], places[lost : lost + doubled], places[lost + doubled :]
    target = []
    for place, record in enumerate(source):
        if place not in gone:
            target.append(replace(record, value=b"altered") if place in changed else record)
        if place in twice:
            target.append(record)
    return World(source, target)


def one_changed(source: list[Record], **changes: object) -> World:
    """A target whose middle record is otherwise."""
    middle = len(source) // 2
    return World(source, [replace(r, **changes) if n == middle else r for n, r in enumerate(source)])  # type: ignore[arg-type]


def pair(here: Record, there: Record) -> World:
    """One record among others that are the same."""
    others = events(4)
    return World([*others, here], [*others, there])


ONE_TIME = events(300, apart_ms=0)
EMPTY = Record(b"", b"", 0, NOW_MS, (("h", b""),))
CASES: dict[str, tuple[World, dict[str, int]]] = {
    "seven lost, five doubled": (damaged(events(2000), 7, 5, 0, 1), {"missing": 7, "duplicates": 5}),
    "lost, doubled and altered over all partitions": (
        damaged(events(1500, apart_ms=250), 31, 29, 23, 2),
        {"missing": 31, "duplicates": 29, "altered": 23},
    ),
    "everything twice": (World(events(90), [r for r in events(90) for _ in range(2)]), {"duplicates": 90}),
    "everything twice at the source too": (
        World([r for r in events(90) for _ in range(2)], [r for r in events(90) for _ in range(2)]),
        {},
    ),
    "only headers": (one_changed(events(60), headers=(("h", b"other"),)), {"altered": 1}),
    "a header more": (one_changed(events(60), headers=(("h", b"30"), ("x", b""))), {"altered": 1}),
    "one time, nothing else": (World(ONE_TIME, ONE_TIME), {}),
    "one time, one lost": (World(ONE_TIME, [*ONE_TIME[:99], *ONE_TIME[100:]]), {"missing": 1}),
    "one time, doubled and altered": (damaged(ONE_TIME, 3, 4, 5, 3), {"missing": 3, "duplicates": 4, "altered": 5}),
    "key null, not empty": (
        pair(EMPTY, replace(EMPTY, key=None)),
        {"missing": 1, "unexpected": 1},
    ),
    "value null, not empty": (pair(EMPTY, replace(EMPTY, value=None)), {"altered": 1}),
    "header null, not empty": (pair(EMPTY, replace(EMPTY, headers=(("h", None),))), {"altered": 1}),
    "300 headers": (World([*events(3), Record(headers=MANY_HEADERS)], [*events(3), Record(headers=MANY_HEADERS)]), {}),
    "300 headers, one of them swapped": (
        pair(Record(headers=MANY_HEADERS), Record(headers=(*MANY_HEADERS[:-2], MANY_HEADERS[-1], MANY_HEADERS[-2]))),
        {"altered": 1},
    ),
    "of 1970": (damaged(events(60, first_ms=0, apart_ms=1), 2, 1, 1, 4), {"missing": 2, "duplicates": 1, "altered": 1}),
    "of a year from now": (
        damaged(events(60, first_ms=NOW_MS + 365 * DAY_MS), 1, 2, 1, 5),
        {"missing": 1, "duplicates": 2, "altered": 1},
    ),
    "after the year 9999": (
        damaged(events(60, first_ms=FAR_MS), 1, 1, 2, 6),
        {"missing": 1, "duplicates": 1, "altered": 2},
    ),
    # Microseconds that a producer took for milliseconds, beside true ones.
    "in another unit": (
        one_changed([*events(20), *events(21, first_ms=NOW_MS * 1000, apart_ms=1000)], value=b"altered"),
        {"altered": 1},
    ),
    "stamped by the target's broker": (
        World(events(6), [replace(r, timestamp=NOW_MS + DAY_MS) for r in events(6)]),
        {"missing": 6, "unexpected": 6},
    ),
    "in other partitions": (
        World(
            events(30), [replace(r, partition=(r.partition + 1) % 3) if n == 7 else r for n, r in enumerate(events(30))]
        ),
        {"moved": 1},
    ),
    "nothing at the target": (World(events(40), []), {"missing": 40}),
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, Found]:
    """What the comparison finds in each case."""
    return dict(zip(CASES, compare(spark, [world for world, _ in CASES.values()]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_exactly(found: dict[str, Found], case: str) -> None:
    world, expected = CASES[case]
    named, _ = found[case]
    assert Counter(kind for kind, *_ in named) == Counter(expected)
    assert named == reference(world)[0]


def test_an_example_tells_the_time_whatever_it_is(found: dict[str, Found]) -> None:
    times = {example["timestamp"][:10] for example in found["after the year 9999"][1].examples}
    assert times == {"+11476-08-"}
