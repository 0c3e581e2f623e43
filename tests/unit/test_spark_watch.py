"""The watch counts each event once, in its minute, names the records that differ, and leaves tables for anybody."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from rich.console import Console

from loosehanger.audit import warming
from loosehanger.audit.activity import Activity
from loosehanger.audit.balance import (
    DIFFERENT,
    KINDS,
    MISSING,
    NEVER_MIRRORED,
    AuditBalance,
    Bucket,
    Judged,
    OpenBucket,
)
from loosehanger.audit.display import as_line, lines, screen
from loosehanger.audit.round_totals import tally
from loosehanger.audit.spark_naming import RegionClusters, name_records
from loosehanger.audit.state import Folder
from loosehanger.audit.table import AuditTable
from loosehanger.audit.verdicts import VerdictRow, verdict_row
from loosehanger.audit.warming import warm_up
from loosehanger.errors import LabError
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof import scratch
from loosehanger.proof.compare.fingerprints import CONTENT
from loosehanger.proof.flows import Flow
from loosehanger.proof.read.batches import Ranges
from loosehanger.proof.read.records import RECORD_SCHEMA
from loosehanger.proof.session import INTERPRETED, fit, session_beside
from loosehanger.sales import aggregates
from tests.odd_records import ODD_VALUES

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

START = 1_800_000_000
"""A full minute, in epoch seconds."""
EVENT_TOPICS = {f"LH.{name}": name for name in aggregates.EVENTS}


def at(second: float) -> datetime:
    """A time so many seconds after the start."""
    return datetime.fromtimestamp(START + second, UTC)


def record(topic: str, value: bytes, second: float, offset: int = 0, key: bytes | None = None) -> tuple[Any, ...]:
    """A row of records, of partition 0."""
    return key, value, topic, 0, offset, at(second), None


def event(topic: str, body: dict[str, Any] | None, second: float) -> tuple[Any, ...]:
    """A row of records: an event."""
    return record(topic, b"no json" if body is None else json.dumps(body).encode(), second)


def order(product: str, price: float, quantity: int) -> dict[str, Any]:
    """An order."""
    return {"description": product, "price": price, "quantity": quantity, "region": "EU"}


def tallied(
    spark: SparkSession, rows: Iterable[tuple[Any, ...]], events: Mapping[str, str] = EVENT_TOPICS
) -> list[Row]:
    """What a round makes of these records."""
    return tally(spark.createDataFrame(list(rows), RECORD_SCHEMA).coalesce(1), events).collect()


def activity_in(spark: SparkSession, folder: Path) -> Activity:
    """The minutes, of which the newest five count."""
    return Activity(spark, folder / "activity", shown=5, lateness_s=300, kept_s=3600)


def test_events_count_in_their_minute_even_late_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[dict[str, list[tuple[Any, ...]]]] = [
        {
            "europe": [
                event("LH.ORDERS", order("Wide", 10.5, 2), 100),
                event("LH.ORDERS", order("Wide", 0.1, 3), 119.9),
                event("LH.ORDERS", None, 110),
                event("LH.STOCK", {"warehouse": "Antwerp", "product": "x", "quantity": 7}, 100),
                event("LH.DOORS", {"door": "A"}, 100),
                event("LH.SENSORS", {"temperature": 20, "humidity": 40}, 100),
                event("LH.OTHER", {}, 100),
            ],
            "na": [event("europe.LH.ORDERS", order("Wide", 10.5, 2), 100)],
        },
        # A timestamp of next year must not make everything else late.
        {
            "europe": [event("LH.ORDERS", order("Slim", 5, 1), 3e7)],
            "na": [event("LH.ORDERS", order("Slim", 5, 1), 130)],
        },
        # Late, but not too late; and too late.
        {
            "europe": [
                event("LH.ORDERS", order("Wide", 1, 1), 70),
                event("LH.SENSORS", {"temperature": 22, "humidity": 41}, 110),
                event("LH.ORDERS", order("Wide", 1, 1), -400),
            ]
        },
    ]
    kept: dict[str, Any] | None = None
    for batch in batches:
        activity = activity_in(spark, tmp_path)
        if kept:
            activity.load(kept)
        for region, rows in batch.items():
            found = tallied(spark, rows, EVENT_TOPICS | {"europe.LH.ORDERS": "ORDERS"})
            activity.take(region, found, (START + 300) * 1000)
        activity.write()
        kept = json.loads(json.dumps(activity.dump()))
    regions = activity.document(["europe", "na", "sa"], products=1)
    minutes = {(row["minute"] // 1000 - START) // 60: row for row in regions["europe"]["minutes"]}
    assert sorted(minutes) == [1, 5]
    assert minutes[1] == {
        "minute": (START + 60) * 1000,
        "orders": 4,
        "cancellations": 0,
        "customers": 0,
        "doors": 1,
        "units": 6,
        "revenue": Decimal("22.30"),
        "movements": 1,
        "stock_units": 7,
        "readings": 2,
        "temperature": 21.0,
        "humidity": 40.5,
        "unreadable": 1,
    }
    assert minutes[5]["orders"] == 1
    assert regions["europe"]["by_product"] == [
        {"name": "Wide", "events": 3, "units": 6, "revenue": Decimal("22.30")},
    ]
    assert regions["europe"]["by_warehouse"] == [{"name": "Antwerp", "events": 1, "units": 7}]
    assert [row["orders"] for row in regions["na"]["minutes"]] == [1, 1]
    assert regions["sa"]["minutes"] == []
    activity.write(everything=True)
    table = spark.read.parquet(str(tmp_path / "activity"))
    assert table.where("event = 'ORDERS'").agg(F.sum("revenue")).head() == (Decimal("53.30"),)
    assert table.where("event = 'SENSORS'").select("temperature").head() == (21.0,)
    assert not list((tmp_path / "activity").glob("_*"))


def test_minutes_that_no_event_can_reach_are_let_go_and_deleted_when_their_time_is_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    activity = activity_in(spark, tmp_path)
    for second in (0, 600, 3661):
        rows = tallied(spark, [event("LH.DOORS", {"door": "A"}, second)])
        activity.take("europe", rows, (START + second) * 1000)
        activity.write()
    assert [row[0] for row in activity.dump()["minutes"]] == [(START + 3660) * 1000]
    assert len(list((tmp_path / "activity").glob("*.parquet"))) == 1


def test_odd_events_are_counted_as_unreadable_and_end_no_watch(spark: SparkSession, tmp_path: Path) -> None:
    extreme = [
        json.dumps({"warehouse": "w", "product": "p", **order("x", 1, quantity)}).encode()
        for quantity in (2**63 - 1, -(2**63), *[9 * 10**17] * 12)
    ]
    good = json.dumps(order("\x1b[2J[bold]" + "x" * 5000, 1.5, 2)).encode()
    values = [*ODD_VALUES, *extreme, good]
    activity = activity_in(spark, tmp_path)
    activity.take(
        "na", tallied(spark, [record(topic, value, 100) for topic in EVENT_TOPICS for value in values]), START * 2000
    )
    regions = activity.document(["na"], products=3)
    (minute,) = regions["na"]["minutes"]
    assert (minute["orders"], minute["units"], minute["revenue"]) == (len(values), 2, Decimal("3.00"))
    assert minute["unreadable"] > len(aggregates.EVENTS) * len(extreme)
    document = document_of(regions)
    json.loads(as_line(document), parse_constant=pytest.fail)
    output = Console(file=io.StringIO(), width=100)
    output.print(screen(document))
    assert "\x1b" not in output.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold]x" in output.file.getvalue()  # type: ignore[attr-defined]


def test_both_sides_of_a_copy_give_the_same_sums_and_anything_else_gives_others(spark: SparkSession) -> None:
    def sums(*rows: tuple[Any, ...]) -> list[int]:
        found = tallied(spark, rows)
        return [sum(row[name] for row in found) for name in ("records", *CONTENT)]

    here = [record("A", value, 3, offset, b"k") for offset, value in enumerate((b"1", b"2", b"2"))]
    there = [record("europe.A", value, 3, offset + 9, b"k") for offset, value in enumerate((b"2", b"1", b"2"))]
    assert sums(*here) == sums(*there)
    assert sums(*here) != sums(*here[:2], record("A", b"3", 3, 2, b"k"))
    assert sums(*here) != sums(*here[:2], record("A", b"2", 3.001, 2, b"k"))
    assert sums(*here) != sums(*here[:2], record("A", b"2", 3, 2))
    (row,) = tallied(spark, here)
    assert (row.bucket, row.first, row.last, row.records, row.untimed) == (START // 10, 0, 2, 3, 0)
    untimed = [record("A", b"1", -START - 0.001, offset) for offset in range(2)]
    assert sum(row.untimed for row in tallied(spark, [*here, *untimed])) == 2


MIRROR = Mirror("m", "europe", "na", "europe", "na", "default", ".", ".*", "", "c")


class Logs:
    """The records of regions, each in one partition."""

    def __init__(self, spark: SparkSession, **records: list[tuple[Any, ...]]) -> None:
        self._spark = spark
        self._records = records
        self.looks = 0

    def read(self, region: str, ranges: Ranges) -> DataFrame:
        """The records of these offsets."""
        frame = self._spark.createDataFrame(self._records[region], RECORD_SCHEMA)
        wanted = [
            (F.col("partition") == place.partition) & (F.col("offset") >= first) & (F.col("offset") < end)
            for place, (first, end) in ranges.items()
        ]
        return frame.where(reduce(or_, wanted))

    def within(self, region: str, places: Collection[TopicPartition], bucket: int) -> Ranges:
        """The offsets of the bucket's records, whatever lies between them included."""
        self.looks += 1
        (place,) = places
        offsets = [found[4] for found in self._records[region] if found[5].timestamp() // 10 == bucket]
        return {place: (min(offsets), max(offsets) + 1)} if offsets else {}


BUCKET = Bucket("na", "europe.A", 0, START // 10)


def named(spark: SparkSession, here: list[tuple[Any, ...]], there: list[tuple[Any, ...]], verdict: str) -> OpenBucket:
    """The account of a bucket with these records, after they were named."""
    account = OpenBucket(0, len(here), len(there), verdict=verdict)
    account.sources = {"europe A": [here[0][4], here[-1][4]]} if here else {}
    account.target = [there[0][4], there[-1][4]] if there else []
    name_records(
        spark, Logs(spark, europe=here, na=there), AuditBalance([Flow(MIRROR, "A", "europe.A")]), {BUCKET: account}, 5
    )
    return account


def test_the_records_of_a_bucket_that_does_not_balance_are_named(spark: SparkSession) -> None:
    here = [record("A", value.encode(), 1, offset, value.encode()) for offset, value in enumerate("abcde")]
    there = [
        record("europe.A", value.encode(), 1, offset, key.encode())
        for offset, (key, value) in enumerate(zip("aabcdx", "aabCdx", strict=True))
    ]
    account = named(spark, here, there, DIFFERENT)
    assert account.kinds == {"missing": 1, "duplicates": 1, "altered": 1, "unexpected": 1}
    examples = {example["kind"]: example for example in account.examples}
    assert examples["missing"]["source_offset"] == 4
    assert examples["missing"]["key"] == "e"
    assert examples["duplicates"]["target_offset"] == 1
    assert (examples["altered"]["source_offset"], examples["altered"]["target_offset"]) == (2, 3)


def test_a_record_that_moved_is_named_although_its_copy_was_called_unexpected_before(spark: SparkSession) -> None:
    here = record("A", b"g", 1, 6)
    copy = record("europe.A", b"g", 1, 0)
    logs = Logs(spark, europe=[here], na=[(*copy[:3], 1, *copy[4:])])
    balance, elsewhere = AuditBalance([Flow(MIRROR, "A", "europe.A")]), BUCKET._replace(partition=1)
    found = {elsewhere: OpenBucket(0, 0, 1, verdict=DIFFERENT, target=[0, 0])}
    name_records(spark, logs, balance, found, 5)
    assert found[elsewhere].kinds == {"unexpected": 1}
    found[BUCKET] = OpenBucket(0, 1, 0, verdict=MISSING, sources={"europe A": [6, 6]})
    name_records(spark, logs, balance, found, 5)
    assert (found[BUCKET].kinds, found[elsewhere].kinds) == ({"moved": 1}, {})
    assert [example["target_partition"] for example in found[BUCKET].examples] == [1]


def test_records_of_other_buckets_between_them_are_no_difference(spark: SparkSession) -> None:
    logs = Logs(
        spark,
        europe=[record("A", b"1", 1, 0), record("A", b"other", 11, 1), record("A", b"2", 1, 2)],
        na=[record("europe.A", b"1", 1, 0)],
    )
    account = OpenBucket(0, 2, 1, verdict=MISSING, sources={"europe A": [0, 2]}, target=[0, 0])
    name_records(spark, logs, AuditBalance([Flow(MIRROR, "A", "europe.A")]), {BUCKET: account}, 5)
    assert account.kinds == {"missing": 1}


def test_what_came_before_a_bucket_was_opened_again_tells_what_came_then(spark: SparkSession) -> None:
    here = [record("A", value.encode(), 1, offset) for offset, value in enumerate("ab")]
    there = [record("europe.A", value.encode(), 1, offset) for offset, value in enumerate("abbx")]
    # Two of each were found equal, and dropped.
    account = OpenBucket(0, 0, 2, verdict=DIFFERENT, kinds={"unexpected": 2}, target=[2, 3])
    balance = AuditBalance([Flow(MIRROR, "A", "europe.A")])
    logs = Logs(spark, europe=here, na=there)
    for _ in range(2):
        name_records(spark, logs, balance, {BUCKET: account}, 5)
        assert account.kinds == {"duplicates": 1, "unexpected": 1}
        examples = {example["kind"]: example["target_offset"] for example in account.examples}
        assert examples == {"duplicates": 2, "unexpected": 3}
        assert logs.looks == 2, "where they lie is asked once"


def test_a_bucket_that_lies_between_the_records_of_another_keeps_its_own_difference(spark: SparkSession) -> None:
    balance = AuditBalance([Flow(MIRROR, "A", "europe.A")])
    twice, other = record("A", b"e", 1, 1), BUCKET._replace(bucket=BUCKET.bucket + 1)
    logs = Logs(
        spark,
        europe=[record("A", b"d", 11, 0), twice, record("A", b"f", 11, 2)],
        na=[record("europe.A", b"e", 1, offset) for offset in range(2)],
    )
    # The first of the two was found equal, and dropped.
    found = {
        BUCKET: OpenBucket(0, 0, 1, verdict=DIFFERENT, kinds={"unexpected": 1}, target=[1, 1]),
        other: OpenBucket(0, 2, 0, verdict=MISSING, kinds={"missing": 2}, sources={"europe A": [0, 2]}),
    }
    for _ in range(2):
        name_records(spark, logs, balance, found, 5)
        assert [account.kinds for account in found.values()] == [{"duplicates": 1}, {"missing": 2}]
    # By then the target has deleted both.
    gone = Logs(spark, europe=[record("A", b"f", 11, 2)], na=[record("europe.A", b"later", 21, 2)])
    name_records(spark, gone, balance, found, 5)
    assert [account.kinds for account in found.values()] == [{"duplicates": 1}, {"missing": 2}]


def test_where_a_bucket_lies_is_told_only_of_what_the_books_have(spark: SparkSession) -> None:
    read, new, unknown = (TopicPartition("A", number) for number in range(3))
    asked = {START * 1000: 5, (START + 20) * 1000: 50}

    class Europe:
        """A cluster whose partitions all have the same offsets at the same times."""

        def offsets_from(self, partitions: Iterable[TopicPartition], since_ms: int) -> dict[TopicPartition, int]:
            """Where the first record of that time is."""
            return dict.fromkeys(partitions, asked[since_ms])

    clusters = RegionClusters(spark, {"europe": Europe()}, {"europe": {read: 40, new: 5}})  # type: ignore[dict-item]
    assert clusters.within("europe", [read, new, unknown], START // 10) == {read: (5, 40)}


def test_what_one_side_has_deleted_since_makes_no_difference(spark: SparkSession) -> None:
    there = [record("europe.A", value.encode(), 1, offset) for offset, value in enumerate("abb")]
    account = OpenBucket(0, 0, 1, verdict=DIFFERENT, kinds={"unexpected": 1}, target=[2, 2])
    logs = Logs(spark, europe=[record("A", b"later", 11, 2)], na=there)
    name_records(spark, logs, AuditBalance([Flow(MIRROR, "A", "europe.A")]), {BUCKET: account}, 5)
    assert account.kinds == {"unexpected": 1}


def test_what_the_source_does_not_have_any_more_is_counted(spark: SparkSession) -> None:
    here = [record("A", b"3", 1, 2), record("A", b"4", 1, 3)]
    account = OpenBucket(0, 4, 0, verdict=NEVER_MIRRORED, sources={"europe A": [0, 3]})
    name_records(spark, Logs(spark, europe=here), AuditBalance([Flow(MIRROR, "A", "europe.A")]), {BUCKET: account}, 5)
    assert account.kinds == {"missing": 2, "never_mirrored": 2}


def test_copies_of_records_that_the_source_has_deleted_are_not_unexpected(spark: SparkSession) -> None:
    """A mirror was held behind 20 of 40 records and copied one more; the source has deleted all but the last four."""
    source, target = "A", "europe.A"
    values = [f"{number}".encode() for number in range(40)]
    here = [record(source, value, 1, offset, value) for offset, value in enumerate(values)]
    there = [record(target, value, 1, offset, value) for offset, value in enumerate([*values[:21], *values[36:]])]
    # First all in one account, then only what came after 20 records were found equal, and dropped.
    for since in (0, 20):
        account = OpenBucket(0, 40 - since, 25 - since, verdict=NEVER_MIRRORED, kinds={"never_mirrored": 15})
        account.sources, account.target = {"europe A": [since, 39]}, [since, 24]
        logs = Logs(spark, europe=here[36:], na=there)
        for _ in range(2):
            name_records(spark, logs, AuditBalance([Flow(MIRROR, "A", "europe.A")]), {BUCKET: account}, 5)
            assert (account.kinds, account.verdict, account.examples) == ({"never_mirrored": 15}, NEVER_MIRRORED, [])
        assert logs.looks == 0


def test_a_record_that_is_there_and_was_not_copied_is_missing_whatever_was_deleted_since(spark: SparkSession) -> None:
    here = [record("A", b"%d" % number, 1, number) for number in range(10)]
    there = [record("europe.A", b"%d" % number, 1, offset) for offset, number in enumerate([*range(7), 8, 9])]
    account = OpenBucket(0, 10, 9, verdict=NEVER_MIRRORED, sources={"europe A": [0, 9]}, target=[0, 8])
    logs = Logs(spark, europe=here[5:], na=there)
    name_records(spark, logs, AuditBalance([Flow(MIRROR, "A", "europe.A")]), {BUCKET: account}, 5)
    assert (account.kinds, account.verdict) == ({"missing": 1}, MISSING)
    # The target deletes copies of records that the source still has: the result from before stays.
    logs = Logs(spark, europe=here[5:], na=there[6:])
    name_records(spark, logs, AuditBalance([Flow(MIRROR, "A", "europe.A")]), {BUCKET: account}, 5)
    assert account.kinds == {"missing": 1}


def test_what_is_done_once_with_few_records_is_not_compiled_for_it(spark: SparkSession) -> None:
    beside = session_beside(spark)
    for again in (True, False, True):
        fit(beside, 10, again=again)
        is_compiled = {name: beside.conf.get(name) != value for name, value in INTERPRETED.items()}
        assert is_compiled == dict.fromkeys(INTERPRETED, again)


def test_verdicts_are_a_table_that_anybody_can_read(spark: SparkSession, tmp_path: Path) -> None:
    table = AuditTable(spark, tmp_path / "audit", kept_s=3600)
    balance = AuditBalance([Flow(MIRROR, "A", "europe.A")])
    account = OpenBucket(0, 5, 3, verdict=MISSING, kinds={"missing": 2})
    judged = Judged(Bucket("na", "europe.A", 0, START // 10), MISSING, account)

    def rows_at(now_ms: int) -> list[VerdictRow]:
        return [verdict_row(judged, balance, now_ms)]

    now = (START + 30) * 1000
    table.take(rows_at(now))
    again = AuditTable(spark, tmp_path / "audit", kept_s=3600)
    again.load(json.loads(json.dumps(table.dump())))
    again.take(rows_at(now + 1000))
    again.write(now + 60_000)
    assert again.dump() == []
    rows = spark.read.parquet(str(tmp_path / "audit")).collect()
    assert len(rows) == 2
    assert rows[0].bucket.timestamp() == START
    assert (rows[0].sources, rows[0].target, rows[0].verdict, rows[0].missing) == ("europe", "na", MISSING, 2)
    again.take(rows_at(now + 7_200_000))
    again.write(now + 7_300_000)
    assert len(list((tmp_path / "audit").glob("*.parquet"))) == 1, "what is older than it must be kept is deleted"


def test_what_was_kept_holds_for_the_same_clusters_only(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.open({"europe": "1"}) == (None, "")
    folder.store({"clusters": {"europe": "1"}, "books": [1]})
    folder.table("audit").mkdir()
    kept, reason = folder.open({"europe": "1"})
    assert (kept or {})["books"] == [1]
    assert not reason
    kept, reason = folder.open({"europe": "2"})
    assert kept is None
    assert "the cluster of europe has changed or is missing" in reason
    assert not folder.table("audit").exists()
    (tmp_path / "state.json").write_text("{")
    assert "cannot be read" in folder.open({"europe": "1"})[1]


def test_a_second_watch_is_kept_out(tmp_path: Path) -> None:
    with Folder(tmp_path).locked(), pytest.raises(LabError, match="another watch"), Folder(tmp_path).locked():
        pass
    with Folder(tmp_path).locked():
        pass


def document_of(regions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A document of the watch."""
    numbers = dict.fromkeys(("copies", "in_flight", "late", *KINDS), 0)
    flow = {"source": "europe", "target": "na", "topic": "A", "records": 1000, "loss": None, **numbers, **changes}
    return {
        "scenario": "s",
        "at": START * 1000,
        "read_at": None,
        "since": START * 1000,
        "regions": regions,
        "flows": [flow, flow | {"topic": "B"}],
        **{name: [] for name in ("canaries", "findings", "not_judged", "notes", "problems")},
    }


def test_a_document_is_one_line_of_json_or_a_line_for_each_region_and_pair() -> None:
    minute = dict.fromkeys(("orders", "cancellations", "stock_units", "doors", "readings", "unreadable"), 1)
    activity = {
        "minutes": [{"minute": START * 1000, "revenue": Decimal("1234.50"), "temperature": None, **minute}],
        "by_product": [],
        "by_warehouse": [],
    }
    document = document_of({"europe": activity}, missing=2)
    document["findings"] = [
        {
            "target": "na",
            "topic": "A",
            "partition": 3,
            "bucket": "2027-01-15T08:00:00.000+00:00",
            "verdict": MISSING,
            **dict.fromkeys(KINDS, 0),
            "missing": 2,
            "examples": [{"kind": "missing", "source_offset": 7, "target_offset": None}],
        }
    ]
    document["problems"] = ["na: the cluster does not answer"]
    found = json.loads(as_line(document))
    assert "\n" not in as_line(document)
    assert found["at"] == "2027-01-15T08:00:00.000+00:00"
    assert found["regions"]["europe"]["minutes"][0]["revenue"] == "1234.50"
    region, pair, problem, finding = lines(document)
    assert "08:00: 1 orders" in region
    assert "1,234.50 revenue" in region
    assert "europe → na: 2,000 records" in pair
    assert "4 missing" in pair
    assert "altered" not in pair
    assert problem.endswith("na: the cluster does not answer")
    assert finding.endswith("na: A-3, 2027-01-15 08:00:00: missing: 2 missing (missing source offset 7)")


def test_java_is_warmed_up_with_records_that_count_nowhere(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    passes: list[DataFrame] = []

    def summed_up(records: DataFrame, events: Mapping[str, str]) -> DataFrame:
        passes.append(records)
        return tally(records, events)

    monkeypatch.setattr(warming, "tally", summed_up)
    beside = session_beside(spark)
    ended = threading.Event()
    warm_up(beside, EVENT_TOPICS, "made-up", ended)
    rows = tally(passes[-1], EVENT_TOPICS).collect()
    # Each kind of event is read, so that everything is compiled that real ones need.
    assert {row.event for row in rows if not row.unreadable} == set(aggregates.EVENTS)
    assert len(passes) > 1
    assert beside.conf.get("spark.sql.codegen.wholeStage") == "true"
    passes.clear()
    ended.set()
    warm_up(beside, {}, "made-up", ended)
    assert not passes, "a caller waits for the end"
