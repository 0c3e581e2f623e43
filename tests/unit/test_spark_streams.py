"""The watch counts each event and each record once: in its minute, on its way, late or missing, after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from lab.errors import LabError
from pipeline import streams
from pipeline.continuity import Clock, Folder
from pipeline.ledger import ActivityLedger, Bounds, FlowLedger, Standing
from pipeline.records import RECORD_SCHEMA
from pipeline.streams import Flow
from pipeline.watch_display import as_line, lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

START = 1_800_000_000
"""A full minute, in epoch seconds."""
BOUNDS = Bounds(late_after_s=10, missing_after_s=60, kept_s=3600)
FLOWS = [Flow("europe", region, topic, topic) for region in ("na", "sa") for topic in ("A", "B")]
RECORDS = f"{RECORD_SCHEMA}, region string, seen timestamp"
TICKS = "value long, seen timestamp"

Record = tuple[str, str, str]
"""Region, topic, value."""


def at(second: float) -> datetime:
    """A time so many seconds after the start."""
    return datetime.fromtimestamp(START + second, UTC)


class Stream:
    """Batches as files: each file that is put there is one batch, seen when it says.

    Args:
        spark: the session.
        folder: where everything is.
        flows: what is mirrored.
    """

    def __init__(self, spark: SparkSession, folder: Path, flows: Sequence[Flow] = FLOWS) -> None:
        self.spark, self.folder, self.flows = spark, folder, flows
        self.batches = 0
        self.sources: list[str] = []
        self.state: list[int] = []

    def put(self, second: float, records: Iterable[Record], timestamp: float = 0) -> None:
        """Adds a batch of records, all of this timestamp, seen at this second after the start."""
        rows = [
            (None, value.encode(), topic, 0, n, at(timestamp), None, region, at(second))
            for n, (region, topic, value) in enumerate(records)
        ]
        self._write("records", self.spark.createDataFrame(rows, RECORDS))
        self.idle(second)

    def idle(self, second: float) -> None:
        """Adds a batch in which no region has anything new; in a run, none with records may follow."""
        self.batches += 1
        self._write("ticks", self.spark.createDataFrame([(self.batches, at(second))], TICKS))

    def run(self, take: Callable[[DataFrame, int], None]) -> None:
        """Runs the query over all batches that are new to its checkpoint, one after the other."""
        news = streams.track(self.read("records", RECORDS), self.read("ticks", TICKS), self.flows, 60)
        query = (
            news.writeStream.outputMode("append")
            .option("checkpointLocation", str(self.folder / "checkpoints" / "flows"))
            .trigger(availableNow=True)
            .foreachBatch(take)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            self.sources = [
                source["description"] for progress in query.recentProgress[-1:] for source in progress["sources"]
            ]
            self.state = [p["stateOperators"][0]["numRowsTotal"] for p in query.recentProgress if p["stateOperators"]]

    def read(self, name: str, schema: str) -> DataFrame:
        """The stream of one kind of rows, a file for each batch."""
        return (
            self.spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder / name))
            .coalesce(1)
        )

    def _write(self, name: str, frame: DataFrame) -> None:
        staging, folder = self.folder / f"{name}-staging", self.folder / name
        folder.mkdir(exist_ok=True)
        frame.coalesce(1).write.mode("overwrite").parquet(str(staging))
        (part,) = staging.glob("*.parquet")
        part.replace(folder / f"{len(list(folder.iterdir())):04}.parquet")


def ledger_of(stream: Stream, clock: Clock | None = None) -> FlowLedger:
    """The ledger beside the stream's checkpoint."""
    return FlowLedger(stream.spark, stream.folder / "flows", BOUNDS, clock or Clock())


def taking(ledger: FlowLedger) -> Callable[[DataFrame, int], None]:
    """What a query gives its batches to."""
    return lambda frame, batch: ledger.take(
        streams.tally(frame).withColumn("seen", F.unix_millis("seen")).collect(), batch
    )


def counted(ledger: FlowLedger, target: str, topic: str) -> dict[str, int]:
    """The counts of a flow from Europe that are not zero."""
    standing = ledger.standings().get(("europe", target, topic), Standing())
    return {name: count for name, count in asdict(standing).items() if count}


def copies(values: str, region: str = "na", topic: str = "A") -> list[Record]:
    """A record for each letter."""
    return [(region, topic, value) for value in values]


def test_a_record_is_in_flight_then_copied_late_overdue_or_missing(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    ledger = ledger_of(stream)

    stream.put(0, copies("abcd", "europe"))
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 4, "in_flight": 4}

    stream.put(10, copies("a"))
    stream.put(11, copies("b"))
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 4, "copied": 2, "late": 1, "overdue": 2}

    # Right at the bound is in time.
    stream.put(60, copies("c"))
    stream.put(61, [])
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 4, "copied": 3, "late": 2, "missing": 1}
    assert counted(ledger, "sa", "A") == {"records": 4, "missing": 4}

    # Too late: the record stays missing, and its copy is shown as one too many.
    stream.put(62, copies("d"))
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 4, "copied": 3, "late": 2, "missing": 1, "unmatched": 1}


def test_repeated_foreign_and_early_copies_and_equal_records_count_once(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    ledger = ledger_of(stream)
    # The copy is read a long batch before its record; one record is there twice, and so is its copy.
    stream.put(0, copies("e"))
    stream.put(30, [*copies("eaa", "europe"), *copies("aa"), *copies("x", "sa")])
    # The mirror repeats itself. In another topic the same content is another record.
    stream.put(32, [*copies("a"), *copies("a", "na", "B"), *copies("b", "europe", "B")])
    stream.put(100, [])
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 3, "copied": 3, "unmatched": 1}
    assert counted(ledger, "sa", "A") == {"records": 3, "missing": 3, "unmatched": 1}
    assert counted(ledger, "na", "B") == {"records": 1, "missing": 1, "unmatched": 1}


def test_the_targets_own_name_for_a_topic_is_found(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, [Flow("europe", "na", "A", "europe.A"), Flow("na", "europe", "A", "na.A")])
    ledger = ledger_of(stream)
    stream.put(0, [("europe", "A", "1"), ("na", "europe.A", "1"), ("na", "A", "2"), ("europe", "na.A", "3")])
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 1, "copied": 1}
    back = ledger.standings()["na", "europe", "A"]
    assert (back.records, back.copied, back.in_flight, back.unmatched) == (1, 0, 1, 1)
    # Both mirrors read both regions: were these sources of their own, their offsets would differ.
    assert len(stream.sources) == 2


def test_state_is_given_up_though_both_sides_are_idle(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    ledger = ledger_of(stream)
    stream.put(0, [*copies("abcdefgh", "europe"), *copies("abcd")])
    for second in range(20, 140, 20):
        stream.idle(second)
    stream.run(taking(ledger))
    assert max(stream.state) >= 16
    # What is left are ticks.
    assert stream.state[-1] <= 10
    assert counted(ledger, "na", "A") == {"records": 8, "copied": 4, "missing": 4}


def test_timestamps_from_another_age_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    ledger = ledger_of(stream)
    stream.put(0, copies("a", "europe"), timestamp=1e8)
    stream.put(2, [*copies("b", "europe"), *copies("b")], timestamp=-1e9)
    stream.put(4, copies("a"), timestamp=1e8)
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 2, "copied": 2}


@pytest.mark.parametrize("crash", ["before the table", "after the table"])
def test_a_restart_loses_nothing_and_counts_nothing_twice(spark: SparkSession, tmp_path: Path, crash: str) -> None:
    stream = Stream(spark, tmp_path)
    stream.put(0, copies("abc", "europe"))
    stream.put(2, [*copies("a"), *copies("d", "europe")])
    ledger = ledger_of(stream)

    def take(frame: DataFrame, batch: int) -> None:
        if batch == 1 and crash == "before the table":
            raise RuntimeError("the power is gone")
        taking(ledger)(frame, batch)
        if batch == 1:
            raise RuntimeError("the power is gone")

    with pytest.raises(PySparkException, match="the power is gone"):
        stream.run(take)

    stream.put(4, [*copies("bd"), *copies("e", "europe")])
    ledger = ledger_of(stream)
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 5, "copied": 3, "in_flight": 2}
    stream.put(100, [])
    stream.run(taking(ledger))
    # What is in memory no longer is still counted, by this run and the next.
    clock = Clock()
    clock.resume((START + 100) * 1000, (START + 5000) * 1000)
    for found in (ledger, ledger_of(stream, clock)):
        assert counted(found, "na", "A") == {"records": 5, "copied": 3, "missing": 2}
        assert found.since_ms() == START * 1000


def test_what_is_on_disk_can_be_read_by_anybody(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.put(0, [*copies("ab", "europe"), *copies("a")])
    stream.put(60, copies("c", "europe"))
    ledger = ledger_of(stream)
    stream.run(taking(ledger))
    table = spark.read.parquet(str(tmp_path / "flows")).where("target = 'na'")
    rows = table.groupBy(F.unix_seconds("minute").alias("minute")).agg(F.sum("records"), F.sum("copied")).collect()
    assert {tuple(row) for row in rows} == {(START, 2, 1), (START + 60, 1, 0)}
    assert not list((tmp_path / "flows").glob("_*"))


def test_results_are_deleted_when_their_time_is_over(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    ledger = ledger_of(stream)
    stream.put(0, copies("a", "europe"))
    stream.put(3600, copies("b", "europe"))
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A")["records"] == 2
    stream.put(3661, [])
    stream.run(taking(ledger))
    assert counted(ledger, "na", "A") == {"records": 1, "missing": 1}
    assert len(list((tmp_path / "flows").glob("*.parquet"))) == 1


def test_a_pause_makes_no_record_older(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    ledger = ledger_of(stream)
    stream.put(0, copies("ab", "europe"))
    stream.put(2, copies("c", "europe"))
    stream.run(taking(ledger))

    # Half an hour later, by the wall clock; the watch's own has stood still.
    clock = Clock()
    clock.resume((START + 2) * 1000, (START + 1800) * 1000)
    again = ledger_of(stream, clock)
    stream.put(4, copies("a"))
    stream.run(taking(again))
    assert counted(again, "na", "A") == {"records": 3, "copied": 1, "in_flight": 2}
    assert again.now_ms() == (START + 1802) * 1000
    stream.put(70, copies("c"))
    stream.run(taking(again))
    assert counted(again, "na", "A") == {"records": 3, "copied": 1, "missing": 2, "unmatched": 1}


def test_the_clock_stands_still_between_runs(spark: SparkSession) -> None:
    clock = Clock()
    clock.resume(10_000, 100_000)
    clock.resume(130_000, 200_000)
    wall = [110_000, 130_000, 201_000]
    frame = spark.createDataFrame([(ms,) for ms in wall], "ms long").withColumn("at", F.timestamp_millis("ms"))
    watch = [row[0] for row in frame.select(F.unix_millis(clock.watch_time(F.col("at")))).collect()]
    # The last batch before the pause keeps its time when it is run again.
    assert watch == [20_000, 40_000, 41_000]
    assert [clock.wall(ms) for ms in [10_000, *watch]] == [10_000, *wall]
    assert clock.started_ms() == 40_000


def identity(**changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is watched."""
    return {
        "cluster": {"europe": "1", "na": "2"},
        "topic": {"A in europe": "x"},
        "flow": {"A from europe to na": "A"},
        "option": {"--missing-after": 60},
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"topic": {"A in europe": "x", "B in europe": "y"}}, None),
        ({"topic": {"A in europe": "z"}}, "topic A in europe is another one than before"),
        ({"topic": {}}, "topic A in europe is gone"),
        ({"cluster": {"europe": "1", "na": "3"}}, "cluster na is another one than before"),
        ({"cluster": {"europe": "1", "na": "2", "sa": "3"}}, "cluster sa is new"),
        ({"option": {"--missing-after": 30}}, "option --missing-after is another one than before"),
    ],
)
def test_a_checkpoint_of_another_set_up_is_not_used(
    tmp_path: Path, changes: dict[str, dict[str, Any]], reason: str | None
) -> None:
    folder = Folder(tmp_path)
    assert folder.open(identity(), 5, 5)[2] is None
    offsets = folder.checkpoint("flows") / "offsets"
    offsets.mkdir(parents=True)
    for batch, ms in ((9, 900), (10, 1000)):
        (offsets / str(batch)).write_text(f'v1\n{{"batchTimestampMs":{ms}}}\n{{}}')
    folder.table("flows").mkdir()

    kept, clock, found = folder.open(identity(**changes), 7, 3000)
    assert found == reason
    assert kept["started_ms"] == (5 if reason is None else 7)
    assert clock.pauses == ([(3000, 2000)] if reason is None else [])
    assert folder.table("flows").exists() == offsets.exists() == (reason is None)
    # What is stored now is what holds now.
    assert json.loads((tmp_path / "identity.json").read_text())["identity"] == identity(**changes)


def test_a_checkpoint_that_got_lost_takes_its_tables_with_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.open(identity(), 5, 5)
    folder.table("flows").mkdir()
    kept, _, _ = folder.open(identity(), 7, 7)
    assert kept["started_ms"] == 7
    assert not folder.table("flows").exists()


def test_a_second_watch_is_kept_out(tmp_path: Path) -> None:
    with Folder(tmp_path).locked(), pytest.raises(LabError, match="another watch"), Folder(tmp_path).locked():
        pass
    with Folder(tmp_path).locked():
        pass


def event(region: str, topic: str, body: dict[str, Any] | None, timestamp: float) -> tuple[Any, ...]:
    """A row of events."""
    value = b"no json" if body is None else json.dumps(body).encode()
    return region, topic, at(timestamp), value, at(300)


def order(product: str, price: float, quantity: int) -> dict[str, Any]:
    """An order."""
    return {"description": product, "price": price, "quantity": quantity, "region": "EU"}


EVENTS = "region string, topic string, timestamp timestamp, value binary, seen timestamp"


def test_events_count_in_their_minute_even_late_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "events"
    batches = [
        [
            event("europe", "LH.ORDERS", order("Wide", 10.5, 2), 100),
            event("europe", "LH.ORDERS", order("Wide", 0.1, 3), 119.9),
            event("europe", "LH.ORDERS", None, 110),
            event("europe", "LH.STOCK", {"warehouse": "Antwerp", "product": "x", "quantity": 7}, 100),
            event("europe", "LH.DOORS", {"door": "A"}, 100),
            event("europe", "LH.SENSORS", {"temperature": 20, "humidity": 40}, 100),
            event("na", "europe.LH.ORDERS", order("Wide", 10.5, 2), 100),
            event("europe", "LH.OTHER", {}, 100),
        ],
        # A timestamp of next year must not make everything else late.
        [event("europe", "LH.ORDERS", order("Slim", 5, 1), 3e7), event("na", "LH.ORDERS", order("Slim", 5, 1), 130)],
        # Late, but not too late; and too late.
        [
            event("europe", "LH.ORDERS", order("Wide", 1, 1), 70),
            event("europe", "LH.SENSORS", {"temperature": 22, "humidity": 41}, 110),
            event("europe", "LH.ORDERS", order("Wide", 1, 1), -400),
        ],
    ]

    def run() -> ActivityLedger:
        ledger = ActivityLedger(spark, tmp_path / "activity", shown=5, kept_s=3600)
        frame = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).parquet(str(source))
        query = (
            streams.activity(frame, 300)
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda f, n: ledger.take(f.withColumn("minute", F.unix_millis("minute")).collect(), n))
            .start()
        )
        query.awaitTermination()
        return ledger

    for batch in batches:
        spark.createDataFrame(batch, EVENTS).coalesce(1).write.mode("append").parquet(str(source))
        ledger = run()
    regions = ledger.document(["europe", "na", "sa"], products=1)
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
    table = spark.read.parquet(str(tmp_path / "activity"))
    assert table.where("event = 'ORDERS'").agg(F.sum("revenue")).head() == (Decimal("53.30"),)


def test_a_document_is_one_line_of_json_or_a_line_for_each_region_and_pair() -> None:
    minute = dict.fromkeys(("orders", "cancellations", "stock_units", "doors", "readings", "unreadable"), 1)
    activity = {
        "minutes": [{"minute": START * 1000, "revenue": Decimal("1234.50"), "temperature": None, **minute}],
        "by_product": [],
        "by_warehouse": [],
    }
    document = {
        "scenario": "s",
        "at": START * 1000,
        "since": START * 1000,
        "regions": {"europe": activity},
        "flows": [
            {"source": "europe", "target": "na", "topic": topic, **asdict(Standing(records=1000, missing=2))}
            for topic in ("A", "B")
        ],
        "totals": asdict(Standing(records=2000, missing=4)),
    }
    found = json.loads(as_line(document))
    assert "\n" not in as_line(document)
    assert found["at"] == "2027-01-15T08:00:00.000+00:00"
    assert found["regions"]["europe"]["minutes"][0]["revenue"] == "1234.50"
    region, pair = lines(document)
    assert "08:00: 1 orders" in region
    assert "1,234.50 revenue" in region
    assert "europe → na: 2,000 records" in pair
    assert "4 missing" in pair
