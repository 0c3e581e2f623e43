"""The comparison of two multisets of records, and the name of every difference.

Everything here is a pure function of frames. Rows are keyed by *flow*: source region, target region and the topic's
name at the source. A record's content is (partition, key, value, timestamp, headers), as its fingerprint says.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

FLOW = ("source", "target", "topic")
FLOW_PARTITION = (*FLOW, "partition")
# The fingerprint first: sorting compares the first bytes of the first column, and those decide almost always.
_CONTENT = ("fingerprint", "partition", "topic", "source")
_PAIR = (*FLOW_PARTITION, "fingerprint", "copy", "source_offset", "target_offset")
_DIFFERENCE = (*FLOW_PARTITION, "kind", "source_record", "target_record")
KINDS = ("missing", "duplicates", "unexpected", "altered", "reordered", "expired")
_NO_RECORD = "CAST(NULL AS struct<offset: bigint, key: binary, timestamp: timestamp, run: string, seq: string>)"


def match_copies(source: DataFrame, target: DataFrame, cuts: DataFrame) -> DataFrame:
    """Matches the first copy of a content at the source with its first copy at the target, second with second, …

    One shuffle. A source region's records are shuffled once, however many targets they have.

    Args:
        source: source, topic, partition, offset, fingerprint, run, seq: up to an offset that no copy can be newer than.
        target: source, target, topic (the source's name), partition, offset, fingerprint.
        cuts: source, target, topic, partition, ``until``: source offsets below it are judged. Every flow has a row.

    Returns:
        A row for each pair: flow, partition, fingerprint, copy (1, 2, …), source_offset and target_offset (one of them
        null without a partner), ``in_cut``, run, seq. Source records behind the cut that have no partner are left out.
    """
    sources = source.select(*_CONTENT, "offset", "run", "seq", F.lit(None).cast("string").alias("to"))
    targets = target.select(
        *_CONTENT,
        "offset",
        F.lit(None).cast("long").alias("run"),
        F.lit(None).cast("long").alias("seq"),
        F.col("target").alias("to"),
    )
    by_offset = Window.partitionBy(*_CONTENT, "to").orderBy("offset")
    copies = sources.unionByName(targets).repartition(*_CONTENT).withColumn("copy", F.row_number().over(by_offset))
    flows = F.broadcast(cuts.select(*FLOW).distinct())
    at_source = F.col("to").isNull()
    return (
        copies.join(flows, ["source", "topic"])
        .where(at_source | (F.col("to") == F.col("target")))
        .groupBy(*_CONTENT, "target", "copy")
        .agg(
            F.max(F.when(at_source, F.col("offset"))).alias("source_offset"),
            F.max(F.when(~at_source, F.col("offset"))).alias("target_offset"),
            F.max("run").alias("run"),
            F.max("seq").alias("seq"),
        )
        .join(F.broadcast(cuts), [*FLOW_PARTITION], "left")
        .withColumn("in_cut", F.coalesce(F.col("source_offset") < F.col("until"), F.lit(False)))
        .where("in_cut OR target_offset IS NOT NULL")
        .select(*_PAIR, "in_cut", "run", "seq")
    )


def mark_reordered(pairs: DataFrame) -> DataFrame:
    """Marks the pairs whose target offset is below that of a record which comes earlier at the source.

    Args:
        pairs: as from ``match_copies``.

    Returns:
        The pairs with ``reordered``.
    """
    earlier = (
        Window.partitionBy(*FLOW_PARTITION)
        .orderBy(F.col("source_offset").asc_nulls_first())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    furthest = F.max(F.when(F.col("source_offset").isNotNull(), F.col("target_offset"))).over(earlier)
    return pairs.withColumn(
        "reordered", F.coalesce(F.col("in_cut") & (F.col("target_offset") < furthest), F.lit(False))
    )


def summarise(marked: DataFrame) -> DataFrame:
    """Counts the pairs of each flow's partition.

    Args:
        marked: as from ``mark_reordered``.

    Returns:
        For each flow and partition: source_records (in the cut), matched, reordered, source_only and target_only
        (pairs without a partner), after_cut (copies of records behind the cut), source_gaps (sequence numbers that no
        source record has; a producer's run counts from its first record that is there), and first_source and
        first_target, the offsets where the matched records begin.
    """
    in_cut, both = F.col("in_cut"), F.col("source_offset").isNotNull() & F.col("target_offset").isNotNull()
    in_run = in_cut & F.col("run").isNotNull()
    seq = F.when(in_run, F.col("seq"))
    gaps = F.greatest(F.max(seq) - F.min(seq) + 1 - F.count(seq), F.lit(0))
    by_run = marked.groupBy(*FLOW_PARTITION, F.when(in_run, F.col("run")).alias("run")).agg(
        F.count_if(in_cut).alias("source_records"),
        F.count_if(in_cut & both).alias("matched"),
        F.count_if("reordered").alias("reordered"),
        F.count_if(F.col("target_offset").isNull()).alias("source_only"),
        F.count_if(F.col("source_offset").isNull()).alias("target_only"),
        F.count_if(both & ~in_cut).alias("after_cut"),
        F.coalesce(gaps, F.lit(0)).alias("source_gaps"),
        F.min(F.when(both, F.col("source_offset"))).alias("first_source"),
        F.min(F.when(both, F.col("target_offset"))).alias("first_target"),
    )
    sums = ("source_records", "matched", "reordered", "source_only", "target_only", "after_cut", "source_gaps")
    return by_run.groupBy(*FLOW_PARTITION).agg(
        *(F.sum(name).alias(name) for name in sums),
        F.min("first_source").alias("first_source"),
        F.min("first_target").alias("first_target"),
    )


def lone_pairs(pairs: DataFrame) -> DataFrame:
    """The pairs without a partner, each with the kind it has at first sight.

    A copy at the target without a partner is a duplicate if its content exists at the source, else unexpected.

    Args:
        pairs: as from ``match_copies``.

    Returns:
        The pairs' columns, and kind (missing, duplicates, unexpected).
    """
    # A content that the source has not begins to be without a partner at its first copy.
    first_lone = F.min("copy").over(Window.partitionBy(*_CONTENT, "target"))
    lone = pairs.where("source_offset IS NULL OR target_offset IS NULL").withColumn(
        "kind",
        F.when(F.col("target_offset").isNull(), "missing").when(first_lone > 1, "duplicates").otherwise("unexpected"),
    )
    return lone.select(*_PAIR, "kind")


def identify(lone: DataFrame, source: DataFrame, target: DataFrame) -> DataFrame:
    """Adds what is known of the records of pairs without a partner.

    Args:
        lone: as from ``lone_pairs``.
        source: source, topic, partition, offset, record (``records.identities``).
        target: source, target, topic, partition, offset, record.

    Returns:
        Flow, partition, kind, source_record and target_record (one of them null).
    """
    at_source = source.withColumnsRenamed({"offset": "source_offset", "record": "source_record"})
    at_target = target.withColumnsRenamed({"offset": "target_offset", "record": "target_record"})
    missing = lone.where("target_offset IS NULL").join(at_source, ["source", "topic", "partition", "source_offset"])
    surplus = lone.where("source_offset IS NULL").join(at_target, [*FLOW_PARTITION, "target_offset"])
    nothing = F.expr(_NO_RECORD)
    return (
        missing.withColumn("target_record", nothing)
        .select(*_DIFFERENCE)
        .unionByName(surplus.withColumn("source_record", nothing).select(*_DIFFERENCE))
    )


def name_altered(lone: DataFrame) -> DataFrame:
    """Turns a missing and an unexpected record that are the same one into one altered record.

    They are the same if they share flow, partition, and the producer's run and sequence number, or key and timestamp.

    Args:
        lone: as from ``identify``.

    Returns:
        The same columns; an altered record has both a source_record and a target_record.
    """
    by_sequence = _pair_up(lone, ("run", "seq"), "run IS NOT NULL AND seq IS NOT NULL")
    return _pair_up(by_sequence, ("key", "timestamp"), "true")


def name_expired(differences: DataFrame, bounds: DataFrame) -> DataFrame:
    """Tells records that retention took away on one side from those that went lost or came from elsewhere.

    Args:
        differences: as from ``name_altered``.
        bounds: for each flow and partition: source_start and target_start (where the logs begin), first_source and
            first_target (where the matched records begin, null without one), expire_before (timestamp below which the
            target's retention.ms removes, null for never), and size_retained (whether the target's log is long enough
            for its retention.bytes to have removed something).

    Returns:
        The same with kind ``expired`` where retention explains the difference: records of the target that lie before
        the first matched one while the source's log has lost its beginning; records of the source that lie before the
        first matched one while the target's log has lost its beginning, and are old enough or the log long enough.
    """
    never = F.lit(2**63 - 1)
    gone_at_source = (
        (F.col("kind") == "unexpected")
        & (F.col("source_start") > 0)
        & (F.col("target_record.offset") < F.coalesce("first_target", never))
    )
    gone_at_target = (
        (F.col("kind") == "missing")
        & (F.col("target_start") > 0)
        & (F.col("source_record.offset") < F.coalesce("first_source", never))
        & (F.coalesce(F.col("source_record.timestamp") < F.col("expire_before"), F.lit(False)) | F.col("size_retained"))
    )
    expired = F.coalesce(gone_at_source | gone_at_target, F.lit(False))
    return differences.join(F.broadcast(bounds), [*FLOW_PARTITION], "left").select(
        *FLOW_PARTITION,
        F.when(expired, "expired").otherwise(F.col("kind")).alias("kind"),
        "source_record",
        "target_record",
    )


def examples(differences: DataFrame, count: int) -> DataFrame:
    """The first ``count`` differences of each flow and kind, in the order of their partitions and offsets."""
    position = F.coalesce("source_record.offset", "target_record.offset")
    order = Window.partitionBy(*FLOW, "kind").orderBy("partition", position)
    return differences.withColumn("number", F.row_number().over(order)).where(F.col("number") <= count).drop("number")


def _pair_up(lone: DataFrame, by: tuple[str, ...], where: str) -> DataFrame:
    rows = lone.select("*", *(F.coalesce(f"source_record.{name}", f"target_record.{name}").alias(name) for name in by))
    candidate = F.col("kind").isin("missing", "unexpected") & F.expr(where)
    side = Window.partitionBy(*FLOW_PARTITION, *by, "kind")
    nth = F.row_number().over(side.orderBy(F.coalesce("source_record.offset", "target_record.offset")))
    paired = (
        rows.where(candidate)
        .withColumn("nth", nth)
        .groupBy(*FLOW_PARTITION, *by, "nth")
        .agg(
            F.when(F.count("kind") == 2, "altered").otherwise(F.max("kind")).alias("kind"),
            F.max("source_record").alias("source_record"),
            F.max("target_record").alias("target_record"),
        )
    )
    return paired.select(*_DIFFERENCE).unionByName(rows.where(~candidate).select(*_DIFFERENCE))
