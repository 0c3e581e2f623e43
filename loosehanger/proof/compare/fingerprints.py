"""Level one of the proof: the records of a topic's partition, summed up in a few numbers for each bucket of time.

Two sides whose fingerprints agree have the same records in the same order. Only buckets that differ must be compared
record by record. Everything here is a pure function of frames.

The numbers are sums, so they do not depend on how the records were shared among tasks:

* ``content``: sums of the halves of two 64-bit hashes of each record. Two buckets hold the same multiset of records if
  all four agree (but for a chance of about 2**-128), and another one otherwise.
* ``order``: the hashes times the record's rank in its partition, modulo a prime. Two buckets of the same content hold
  it in the same order, without anything new in between, if these agree once every rank is moved by the difference of
  the buckets' first ranks (but for a chance of about 2**-62).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.headers import RUN, SEQ
from loosehanger.proof.compare.digests import chunk_of, record_digest
from loosehanger.proof.read.records import FLOW_PARTITION, PLACE, bucket, hashes, header

BUCKET = (*FLOW_PARTITION, "bucket")
CONTENT = ("content_0", "content_1", "content_2", "content_3")
_ORDER = ("order_0", "order_1")
# The largest prime whose product with a 32-bit number fits into a signed 64-bit one.
_PRIME = 2**31 - 1
_LOW_HALF = 2**32 - 1
# The part of Spark's row number that counts within a task.
_ROW = 2**33 - 1


def tally(records: DataFrame, until: Sequence[str] = (), *, runs: bool = False, chunk: int = 0) -> DataFrame:
    """The sums of a single pass over the records: a small frame, from which the other frames are computed.

    Args:
        records: a frame of ``records.RECORD_SCHEMA``, and region, as it is read: each task has a part of one partition,
            in the order of its offsets.
        until: columns of that frame, each an offset below which records are counted.
        runs: whether to read the sequence numbers of the kit's producer.
        chunk: how many offsets a chunk of ``digests`` has; 0 without digests.

    Returns:
        Rows for ``outline`` and ``sequences``, and with a chunk for ``digests.chunk_digests``.
    """
    digest = [chunk_of(chunk).alias("chunk"), record_digest().alias("digest")] if chunk else []
    rows = records.select(
        *PLACE,
        "offset",
        *until,
        bucket().alias("bucket"),
        *(hashed.alias(f"hash_{number}") for number, hashed in enumerate(hashes())),
        F.spark_partition_id().alias("task"),
        F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW)).alias("row"),
        (header(RUN) if runs else F.lit(None).cast("string")).alias("run"),
        (header(SEQ).try_cast("long") if runs else F.lit(None).cast("long")).alias("seq"),
        *digest,
    )
    row = F.col("row") % _PRIME
    return rows.groupBy(*PLACE, "task", "bucket", "run", *(["chunk"] if chunk else [])).agg(
        F.count("offset").alias("records"),
        F.array(*(F.count_if(F.col("offset") < F.col(name)) for name in until)).cast("array<long>").alias("below"),
        *(F.sum(half).alias(name) for name, half in zip(CONTENT, halves(), strict=True)),
        *(F.sum(_low(number) * row % _PRIME).alias(name) for number, name in enumerate(_ORDER)),
        F.min("row").alias("first_row"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count("seq").alias("numbered"),
        *([F.collect_list(F.struct("offset", "digest")).alias("digests")] if chunk else []),
    )


def outline(tallied: DataFrame, counts: int = 0) -> DataFrame:
    """The fingerprints of the records.

    Args:
        tallied: as from ``tally``.
        counts: how many columns ``until`` had there.

    Returns:
        For each region, topic, partition and bucket: records; below (an array: how many lie below each of ``until``);
        content_0 to 3; order_0 and 1; first_rank (of the first record in the partition, from 0); first_offset and
        last_offset.
    """
    task = Window.partitionBy(*PLACE, "task")
    earlier_tasks = Window.partitionBy(*PLACE).orderBy("begin").rangeBetween(Window.unboundedPreceding, -1)
    base = F.coalesce(F.sum("records").over(earlier_tasks), F.lit(0)) - F.min("first_row").over(task)
    ranked = tallied.withColumn("begin", F.min("first_offset").over(task)).withColumn("base", base)
    return ranked.groupBy(*PLACE, "bucket").agg(
        F.sum("records").alias("records"),
        F.array(*(F.sum(F.col("below")[number]) for number in range(counts))).cast("array<long>").alias("below"),
        *(F.sum(name).alias(name) for name in CONTENT),
        *(
            (F.sum(_moved(name, content, F.col("base"))) % _PRIME).alias(name)
            for name, content in zip(_ORDER, CONTENT[::2], strict=True)
        ),
        F.min(F.col("base") + F.col("first_row")).alias("first_rank"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
    )


def sequences(tallied: DataFrame) -> DataFrame:
    """The sequence numbers that producers' runs left in each partition.

    Args:
        tallied: as from ``tally`` with ``runs``.

    Returns:
        For each region, topic, partition and run: first_seq, and gaps (the count of later numbers without a record).
    """
    gaps = F.max("last_seq") - F.min("first_seq") + 1 - F.sum("numbered")
    by_run = tallied.where("run IS NOT NULL AND numbered > 0").groupBy(*PLACE, "run")
    return by_run.agg(F.min("first_seq").alias("first_seq"), F.greatest(gaps, F.lit(0)).alias("gaps"))


def compare(source: DataFrame, target: DataFrame) -> DataFrame:
    """Joins the fingerprints of both sides.

    Args:
        source: fingerprints for each flow, with the columns of ``FLOW_PARTITION``.
        target: likewise.

    Returns:
        For each flow, partition and bucket: ``here`` and ``there``, the fingerprints of the source and the target
        (null where a side has no record); ``shift``, by how much the ranks at the target are higher; ``differs``.
    """
    sides = [
        side.select(*BUCKET, F.struct(*(name for name in side.columns if name not in BUCKET)).alias(name))
        for side, name in ((source, "here"), (target, "there"))
    ]
    shift = F.col("there.first_rank") - F.col("here.first_rank")
    same_content = _all(F.col(f"here.{name}") == F.col(f"there.{name}") for name in ("records", *CONTENT))
    same_order = _all(
        _moved(f"here.{name}", f"here.{content}", F.col("shift")) == F.col(f"there.{name}")
        for name, content in zip(_ORDER, CONTENT[::2], strict=True)
    )
    return (
        sides[0]
        .join(sides[1], [*BUCKET], "full")
        .withColumn("shift", shift)
        .withColumn("differs", ~F.coalesce(same_content & same_order, F.lit(False)))
    )


def displaced(compared: DataFrame, lone: DataFrame) -> DataFrame:
    """Partitions where the order of the records is not yet known to be the same on both sides.

    A bucket that agrees is in its place if its ranks have moved by just the number of records without a partner that
    lie before it, and if none lies within it. Where that holds for all buckets that agree, they leave the same places
    to the records of the others on both sides; so those must only be in the same order among themselves.

    Args:
        compared: as from ``compare``.
        lone: source_offset and target_offset of the records without a partner in the buckets that differ, one of them
            null, with the columns of ``FLOW_PARTITION``.

    Returns:
        The columns of ``FLOW_PARTITION``, a row for each such partition.
    """
    agreeing = compared.where("NOT differs")
    marks = reduce(
        DataFrame.unionByName,
        (
            agreeing.select(
                *BUCKET,
                "shift",
                F.col(f"here.{end}_offset").alias("source_offset"),
                F.col(f"there.{end}_offset").alias("target_offset"),
            )
            for end in ("first", "last")
        ),
    )
    marked = marks.unionByName(lone.select(*FLOW_PARTITION, "source_offset", "target_offset"), allowMissingColumns=True)
    counted = marked.withColumns(
        {
            "absent": _running_count(F.col("target_offset").isNull(), "source_offset"),
            "added": _running_count(F.col("source_offset").isNull(), "target_offset"),
        }
    )
    in_place = (
        (F.min("absent") == F.max("absent"))
        & (F.min("added") == F.max("added"))
        & (F.max("added") - F.max("absent") == F.max("shift"))
    )
    by_bucket = counted.where("bucket IS NOT NULL").groupBy(*BUCKET).agg(in_place.alias("in_place"))
    return by_bucket.where("NOT in_place").select(*FLOW_PARTITION).distinct()


def _running_count(condition: Column, order: str) -> Column:
    before = Window.partitionBy(*FLOW_PARTITION).orderBy(F.col(order).asc_nulls_first())
    return F.count_if(condition).over(before.rowsBetween(Window.unboundedPreceding, Window.currentRow))


def _moved(order: str, low_halves: str, ranks: Column) -> Column:
    """An order number after every rank has grown by ``ranks``."""
    return F.pmod(F.col(order) + F.pmod(ranks, F.lit(_PRIME)) * (F.col(low_halves) % _PRIME), F.lit(_PRIME))


def halves() -> list[Column]:
    """The summands of ``CONTENT``: the halves of hash_0 and hash_1, so that no sum overflows."""
    return [half for number in range(2) for half in (_low(number), F.shiftrightunsigned(f"hash_{number}", 32))]


def _low(number: int) -> Column:
    return F.col(f"hash_{number}").bitwiseAND(F.lit(_LOW_HALF))


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(Column.__and__, conditions)
