"""The sales of each region, from the events that can be read there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from loosehanger.errors import LabError
from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.mirrors.lineage import counted
from loosehanger.lab.programs import event_prefixes
from loosehanger.lab.record import Lab
from loosehanger.proof.read.batches import Ranges, read_records, read_regions
from loosehanger.proof.report.record_times import iso
from loosehanger.proof.session import ERRORS, SparkEndedError, cause, ended, fit, is_alive
from loosehanger.proof.snapshot import freeze
from loosehanger.proof.spark_progress import reported
from loosehanger.sales import aggregates


def sum_up(
    start_spark: Callable[[int], SparkSession], lab: Lab, products: int, report: Callable[[str], None]
) -> dict[str, Any]:
    """Reads every region's events and sums them up.

    Args:
        start_spark: makes the session, given how many records will be read.
        lab: what is set up.
        products: the number of products to list, by revenue.
        report: takes a line of progress.

    Returns:
        The document that ``./lab aggregate --json`` prints; decimals as such.

    Raises:
        LabError: a region cannot be read.
    """
    clusters = {name: Cluster.of(region, PROVER) for name, region in lab.clusters.items()}
    spark: SparkSession | None = None
    try:
        ranges = {name: _event_topics(lab, name, cluster) for name, cluster in clusters.items()}
        records = sum(end - start for wanted in ranges.values() for start, end in wanted.values())
        spark = start_spark(records)
        fit(spark, records)
        with reported(spark, f"summing up {records:,} records", report):
            return _document(spark, lab, clusters, ranges, products)
    except ERRORS as error:
        if spark and not is_alive(spark):
            raise SparkEndedError(ended(error)) from error
        raise LabError(f"the events could not be read: {cause(error)}") from error
    finally:
        for cluster in clusters.values():
            cluster.close()


def _document(
    spark: SparkSession, lab: Lab, clusters: dict[str, Cluster], ranges: dict[str, Ranges], products: int
) -> dict[str, Any]:
    frames = read_regions(
        lambda region, wanted: read_records(spark, clusters[region].connection, wanted), ranges, "consumed_in"
    )
    events = aggregates.parse(reduce(DataFrame.unionByName, frames), _pattern(lab)).persist()
    summaries = {row.consumed_in: row for row in aggregates.summary(events).collect()}
    by_product = aggregates.best(aggregates.orders_by(events, "description"), products).collect()
    by_region = aggregates.best(aggregates.orders_by(events, "region"), 100).collect()
    return {
        "scenario": lab.scenario,
        "regions": {
            region: {
                **_fields(summaries.get(region)),
                "by_product": _rows(by_product, region),
                "by_region": _rows(by_region, region),
            }
            for region in lab.clusters
        },
    }


def _event_topics(lab: Lab, region: str, cluster: Cluster) -> Ranges:
    events = [topic for topic in cluster.topics() if re.match(_pattern(lab), topic)]
    return freeze(cluster, counted(lab.mirrors, region, events))


def _pattern(lab: Lab) -> str:
    return aggregates.topic_pattern(event_prefixes(lab.topology))


def _fields(row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"events": 0}
    fields = {name: value for name, value in row.asDict().items() if name != "consumed_in"}
    return fields | {name: iso(fields[name]) for name in ("first", "last")}


def _rows(rows: list[Row], region: str) -> list[dict[str, Any]]:
    here = sorted((row for row in rows if row.consumed_in == region), key=lambda row: row["rank"])
    return [{name: row[name] for name in ("name", "orders", "units", "revenue")} for row in here]
