"""Level two of the proof: two multisets of records compared record by record, and the name of every difference.

Everything here is a pure function of frames. Rows are keyed by the number of their *flow*: one topic on its way through
one mirror. A record's content is (partition, key, value, timestamp, headers), as its fingerprint says.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.kafka.patches import NO_TIME
from loosehanger.proof.read.records import FLOW, FLOW_PARTITION, IDENTITY

_CONTENT = ("fingerprint", *FLOW_PARTITION)
_DIFFERENCE = (*FLOW_PARTITION, "kind", "fingerprint", "source_record", "target_record")


def match_copies(source: DataFrame, target: DataFrame, cuts: DataFrame) -> DataFrame:
    """Matches the first copy of a content at the source with its first copy at the target, second with second, …

    Args:
        source: the columns of ``FLOW_PARTITION``, fingerprint, and record (of the type ``IDENTITY``): up to an offset
            that no copy can be newer than.
        target: likewise.
        cuts: the columns of ``FLOW_PARTITION``, and ``until``: source offsets below it are judged.

    Returns:
        A row for each pair: flow, partition, fingerprint, copy (1, 2, …), source_record and target_record (one of them
        null without a partner), and in_cut (false without a source_record).
    """
    sides = source.select(*_CONTENT, "record", F.lit(True).alias("at_source")).unionByName(
        target.select(*_CONTENT, "record", F.lit(False).alias("at_source"))
    )
    by_offset = Window.partitionBy(*_CONTENT, "at_source").orderBy("record.offset")
    pairs = (
        sides.repartition(*_CONTENT)
        .withColumn("copy", F.row_number().over(by_offset))
        .groupBy(*_CONTENT, "copy")
        .agg(
            F.any_value(F.when(F.col("at_source"), F.col("record")), ignoreNulls=True).alias("source_record"),
            F.any_value(F.when(~F.col("at_source"), F.col("record")), ignoreNulls=True).alias("target_record"),
        )
    )
    in_cut = F.coalesce(F.col("source_record.offset") < F.col("until"), F.lit(False))
    return pairs.join(F.broadcast(cuts), [*FLOW_PARTITION], "left").withColumn("in_cut", in_cut).drop("until")


def pair_untimed(pairs: DataFrame) -> DataFrame:
    """Pairs records without a timestamp with their copies, which have the time at which they were copied.

    Producers before Kafka 0.10 wrote such records; no producer of today does, and so no mirror. The first record of a
    key, value and headers belongs to the first copy that is left of them in the partition, and so on.

    Args:
        pairs: as from ``match_copies``.

    Returns:
        The pairs with ``untimed``: whether the copy differs in its timestamp alone, because the source has none.
    """
    names, sides = pairs.columns, ("source_record", "target_record")
    is_untimed = F.col("source_record.timestamp") == NO_TIME
    candidate = F.coalesce((~_present("target_record") & is_untimed) | ~_present("source_record"), F.lit(False))
    payload, offset = (F.coalesce(*(f"{side}.{name}" for side in sides)) for name in ("payload", "offset"))
    content = (*FLOW_PARTITION, "payload")
    nth = F.row_number().over(Window.partitionBy(*content, _present("source_record")).orderBy(offset))
    paired = (
        pairs.where(candidate)
        .withColumn("payload", payload)
        .withColumn("nth", nth)
        .groupBy(*content, "nth")
        .agg(
            *(F.max_by(name, _present("source_record")).alias(name) for name in ("fingerprint", "copy", "in_cut")),
            *(F.any_value(name, ignoreNulls=True).alias(name) for name in sides),
        )
        .withColumn("untimed", _present("source_record") & _present("target_record"))
    )
    others = pairs.where(~candidate).withColumn("untimed", F.lit(False))
    return paired.select(*names, "untimed").unionByName(others)


def mark_reordered(pairs: DataFrame) -> DataFrame:
    """Marks the pairs whose target offset is below that of a record which comes earlier at the source.

    Args:
        pairs: as from ``pair_untimed``.

    Returns:
        The pairs with ``reordered``.
    """
    source_offset, target_offset = F.col("source_record.offset"), F.col("target_record.offset")
    earlier = (
        Window.partitionBy(*FLOW_PARTITION)
        .orderBy(source_offset.asc_nulls_first())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    furthest = F.max(F.when(source_offset.isNotNull(), target_offset)).over(earlier)
    return pairs.withColumn("reordered", F.coalesce(F.col("in_cut") & (target_offset < furthest), F.lit(False)))


def mark_untimed(pairs: DataFrame) -> DataFrame:
    """Does what ``pair_untimed`` and ``mark_reordered`` do, where older copies were left out.

    Copies of records without a timestamp can be among these. So such a record without a copy is no difference. Which of
    several equal ones a copy belongs to is not known, and so is their order.

    Args:
        pairs: as from ``match_copies``, with all records of the source that have no timestamp.

    Returns:
        As from ``mark_reordered``.
    """
    older = F.coalesce((F.col("source_record.timestamp") == NO_TIME) & ~_present("target_record"), F.lit(False))
    paired = pair_untimed(pairs).where(~older)
    timed = mark_reordered(paired.where("NOT untimed"))
    return timed.unionByName(paired.where("untimed").withColumn("reordered", F.lit(False)))


def summarise(marked: DataFrame) -> DataFrame:
    """Counts the pairs of each flow's partition.

    Args:
        marked: as from ``mark_reordered``.

    Returns:
        For each flow and partition: source_records (in the cut), matched, untimed (those of them that differ in the
        timestamp alone), reordered, source_only and target_only (pairs without a partner), after_cut (copies of records
        behind the cut), and first_source and first_target, the offsets where the matched records begin.
    """
    in_cut, both = F.col("in_cut"), _present("source_record") & _present("target_record")
    return marked.groupBy(*FLOW_PARTITION).agg(
        F.count_if(in_cut).alias("source_records"),
        F.count_if(in_cut & both).alias("matched"),
        F.count_if(in_cut & F.col("untimed")).alias("untimed"),
        F.count_if("reordered").alias("reordered"),
        F.count_if(in_cut & ~both).alias("source_only"),
        F.count_if(~_present("source_record")).alias("target_only"),
        F.count_if(both & ~in_cut).alias("after_cut"),
        F.min(F.when(both, F.col("source_record.offset"))).alias("first_source"),
        F.min(F.when(both, F.col("target_record.offset"))).alias("first_target"),
    )


def lone_offsets(pairs: DataFrame) -> DataFrame:
    """The places of the records without a partner, also of those behind the cut, for ``fingerprints.displaced``.

    Args:
        pairs: as from ``match_copies``.

    Returns:
        Flow, partition, source_offset and target_offset (one of them null).
    """
    return pairs.where("source_record IS NULL OR target_record IS NULL").select(
        *FLOW_PARTITION,
        F.col("source_record.offset").alias("source_offset"),
        F.col("target_record.offset").alias("target_offset"),
    )


def name_differences(marked: DataFrame) -> DataFrame:
    """Every difference with its kind, by the records alone; ``name_expired`` takes retention into account.

    Args:
        marked: as from ``mark_reordered``.

    Returns:
        Flow, partition, kind (a key of ``Difference``), fingerprint, source_record and target_record (null where the
        difference is that there is none). A record that moved has the partition of its source.
    """
    # A content that the source does not have lacks a partner from its first copy on.
    first_lone = F.min("copy").over(Window.partitionBy(*_CONTENT))
    kind = F.when(~_present("target_record"), "missing").when(first_lone > 1, "duplicates").otherwise("unexpected")
    lone = marked.where((F.col("in_cut") & ~_present("target_record")) | ~_present("source_record")).withColumn(
        "kind", kind
    )
    named = name_altered(name_moved(lone.select(*_DIFFERENCE)))
    reordered = marked.where("reordered").withColumn("kind", F.lit("reordered"))
    return named.unionByName(reordered.select(*_DIFFERENCE))


def name_moved(differences: DataFrame) -> DataFrame:
    """Turns a missing record and an unexpected one of the same content in another partition into one that moved.

    Args:
        differences: the columns that ``name_differences`` returns.

    Returns:
        The same columns; a record that moved has both a source_record and a target_record.
    """
    return _pair_up(differences, FLOW, ("fingerprint",), "true", "moved")


def name_altered(differences: DataFrame) -> DataFrame:
    """Turns a missing and an unexpected record that are the same one into one altered record.

    They are the same if they share flow, partition, and the producer's run and sequence number, or key and timestamp.

    Args:
        differences: the columns that ``name_differences`` returns.

    Returns:
        The same columns; an altered record has both a source_record and a target_record.
    """
    numbered = "run IS NOT NULL AND seq IS NOT NULL"
    by_sequence = _pair_up(differences, FLOW_PARTITION, ("run", "seq"), numbered, "altered")
    return _pair_up(by_sequence, FLOW_PARTITION, ("key", "timestamp"), "true", "altered")


def name_expired(differences: DataFrame, bounds: DataFrame) -> DataFrame:
    """Separates records that retention deleted on one side from records that were lost or came from elsewhere.

    Args:
        differences: the columns that ``name_differences`` returns.
        bounds: for each flow and partition: source_start (where the log begins), target_deleted (how many offsets the
            target's log has let go of), first_source and first_target (where the matched records begin, null without
            one), expire_before (in milliseconds: the timestamp below which the target's retention.ms removes, null for
            never), and size_retained (whether the target's log is long enough for its retention.bytes to have removed
            something).

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
        & (F.col("target_deleted") > 0)
        & (F.col("source_record.offset") < F.coalesce("first_source", never))
        & (F.coalesce(F.col("source_record.timestamp") < F.col("expire_before"), F.lit(False)) | F.col("size_retained"))
    )
    expired = F.coalesce(gone_at_source | gone_at_target, F.lit(False))
    kind = F.when(expired, "expired").otherwise(F.col("kind"))
    return (
        differences.join(F.broadcast(bounds), [*FLOW_PARTITION], "left").withColumn("kind", kind).select(*_DIFFERENCE)
    )


def never_mirrored(differences: DataFrame, sequences: DataFrame) -> DataFrame:
    """How many records the source deleted before a mirror had copied them.

    Only the producer's sequence numbers show it: the target has older ones than the source, and neither side has some
    of them. The mirror does not report the gap; it continues where the source's log begins.

    Args:
        differences: as from ``name_differences``.
        sequences: flow, partition, run, and first_seq: the least number of the run that the source still has.

    Returns:
        Flow, partition, and never_mirrored, where it is not 0.
    """
    seq = F.col("target_record.seq").try_cast("long")
    gone = (
        differences.where("kind = 'expired' AND target_record.run IS NOT NULL")
        .select(*FLOW_PARTITION, F.col("target_record.run").alias("run"), seq.alias("seq"))
        .join(sequences, [*FLOW_PARTITION, "run"])
        .where("seq < first_seq")
    )
    return (
        gone.groupBy(*FLOW_PARTITION, "run")
        .agg((F.max("first_seq") - F.min("seq") - F.count_distinct("seq")).alias("holes"))
        .groupBy(*FLOW_PARTITION)
        .agg(F.sum("holes").alias("never_mirrored"))
        .where("never_mirrored > 0")
    )


def compare_latest(source: DataFrame, target: DataFrame, cuts: DataFrame) -> DataFrame:
    """Compares compacted topics by the last record of each key.

    Each side compacts in its own time, so replaced records and tombstones may be missing on either side.

    Args:
        source: the columns of ``FLOW_PARTITION``, fingerprint, tombstone (whether the value is null), and record.
        target: likewise.
        cuts: the columns of ``FLOW_PARTITION``, and ``until``: source offsets below it are judged.

    Returns:
        The columns that ``name_differences`` returns, of kind missing, unexpected or altered.
    """
    keyed = (*FLOW_PARTITION, "key")
    offset = F.col("record.offset")
    sources = source.withColumn("key", F.col("record.key")).join(F.broadcast(cuts), [*FLOW_PARTITION])
    last = F.struct("fingerprint", "tombstone", "record")
    here = sources.where(offset < F.col("until")).groupBy(*keyed).agg(F.max_by(last, offset).alias("here"))
    there = target.groupBy(*keyed[:-1], F.col("record.key").alias("key")).agg(F.max_by(last, offset).alias("there"))
    # The target may have a newer record of the key than the last one before the cut.
    newer = sources.select(*keyed, F.struct("fingerprint", "record").alias("newer"), offset.alias("newer_offset"))
    # The copy of a record without a timestamp has the time at which it was copied.
    untimed = f"newer.record.timestamp = {NO_TIME} AND newer.record.payload = there.record.payload"
    is_copy = f"newer.fingerprint = there.fingerprint OR ({untimed})"
    found = there.join(newer, [*keyed]).where(is_copy).groupBy(*keyed).agg(F.max("newer_offset"))
    found = found.toDF(*keyed, "copy_of")
    gone = F.lit(None).cast(IDENTITY)
    held_here = F.col("here").isNotNull() & ~F.coalesce("here.tombstone", F.lit(False))
    held_there = F.col("there").isNotNull() & ~F.coalesce("there.tombstone", F.lit(False))
    up_to_date = F.col("copy_of") >= F.coalesce("here.record.offset", F.lit(-1))
    kind = (
        F.when(held_here & F.col("there").isNull(), "missing")
        .when(held_there & F.col("here").isNull(), "unexpected")
        .when(F.col("there").isNotNull() & (held_here | held_there), "altered")
    )
    return (
        here.join(there, [*keyed], "full")
        .join(found, [*keyed], "left")
        .where(~F.coalesce(up_to_date, F.lit(False)))
        .withColumn("kind", kind)
        .where("kind IS NOT NULL")
        .select(
            *FLOW_PARTITION,
            "kind",
            F.coalesce("here.fingerprint", "there.fingerprint").alias("fingerprint"),
            F.coalesce("here.record", gone).alias("source_record"),
            F.coalesce("there.record", gone).alias("target_record"),
        )
    )


def without_untimed(latest: DataFrame) -> DataFrame:
    """Leaves out missing records without a timestamp, whose copies may be older than those that were compared.

    Args:
        latest: as from ``compare_latest``.
    """
    return latest.where(f"NOT (kind = 'missing' AND source_record.timestamp = {NO_TIME})")


def examples(differences: DataFrame, count: int) -> DataFrame:
    """The first ``count`` differences of each flow and kind, in the order of their partitions and offsets."""
    position = F.coalesce("source_record.offset", "target_record.offset")
    order = Window.partitionBy(*FLOW, "kind").orderBy("partition", position)
    return differences.withColumn("number", F.row_number().over(order)).where(F.col("number") <= count).drop("number")


def _pair_up(differences: DataFrame, within: tuple[str, ...], by: tuple[str, ...], where: str, kind: str) -> DataFrame:
    own = [name for name in by if name in _DIFFERENCE]
    rows = differences.select(
        "*",
        *(F.coalesce(f"source_record.{name}", f"target_record.{name}").alias(name) for name in by if name not in own),
    )
    candidate = F.col("kind").isin("missing", "unexpected") & F.expr(where)
    place = [F.coalesce(f"source_record.{name}", f"target_record.{name}") for name in ("partition", "offset")]
    nth = F.row_number().over(Window.partitionBy(*within, *by, "kind").orderBy(*place))
    first = {name: F.first(name, ignorenulls=True) for name in ("source_record", "target_record")}
    paired = (
        rows.where(candidate)
        .withColumn("nth", nth)
        .groupBy(*within, *by, "nth")
        .agg(
            F.when(F.count("kind") == 2, kind).otherwise(F.max("kind")).alias("kind"),
            *(column.alias(name) for name, column in first.items()),
            *(F.any_value(name).alias(name) for name in ("fingerprint",) if name not in by),
        )
    )
    if "partition" not in within:
        paired = paired.withColumn("partition", F.coalesce("source_record.partition", "target_record.partition"))
    return paired.select(*_DIFFERENCE).unionByName(rows.where(~candidate).select(*_DIFFERENCE))


def _present(side: str) -> Column:
    return F.col(side).isNotNull()
