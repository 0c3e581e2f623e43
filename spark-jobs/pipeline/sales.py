"""What was sold, region by region, from the events that can be read there."""

from __future__ import annotations

import re
from datetime import UTC
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from lab.access import Lab
from lab.errors import LabError
from pipeline import aggregates
from pipeline.clusters import Cluster, UnreachableError
from pipeline.comparing import freeze
from pipeline.reading import Ranges, read_records
from pipeline.session import ERRORS, cause, fit


def sum_up(spark: SparkSession, lab: Lab, products: int) -> dict[str, Any]:
    """Reads every region's events and sums them up.

    Args:
        spark: the session.
        lab: what is set up.
        products: how many products to list, by revenue.

    Returns:
        The document that ``aggregate.sh --json`` prints; times and decimals as such.

    Raises:
        LabError: a region cannot be read.
    """
    clusters = {name: Cluster.of(region) for name, region in lab.regions.items()}
    try:
        ranges = {name: _event_topics(cluster) for name, cluster in clusters.items()}
        fit(spark, sum(end - start for wanted in ranges.values() for start, end in wanted.values()))
        return _document(spark, lab, clusters, ranges, products)
    except UnreachableError as error:
        raise LabError(str(error)) from error
    except ERRORS as error:
        raise LabError(f"the events could not be read: {cause(error)}") from error
    finally:
        for cluster in clusters.values():
            cluster.close()


def _document(
    spark: SparkSession, lab: Lab, clusters: dict[str, Cluster], ranges: dict[str, Ranges], products: int
) -> dict[str, Any]:
    frames = [
        read_records(spark, clusters[region].connection, wanted).withColumn("consumed_in", F.lit(region))
        for region, wanted in ranges.items()
    ]
    events = aggregates.parse(reduce(DataFrame.unionByName, frames)).persist()
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
            for region in lab.regions
        },
    }


def _event_topics(cluster: Cluster) -> Ranges:
    return freeze(cluster, [topic for topic in cluster.topics() if re.match(aggregates.TOPIC, topic)])


def _fields(row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"events": 0}
    fields = {name: value for name, value in row.asDict().items() if name != "consumed_in"}
    # Spark hands timestamps over in this machine's time zone, without saying so.
    return fields | {name: fields[name].astimezone(UTC) for name in ("first", "last")}


def _rows(rows: list[Row], region: str) -> list[dict[str, Any]]:
    here = sorted((row for row in rows if row.consumed_in == region), key=lambda row: row["rank"])
    return [{name: row[name] for name in ("name", "orders", "units", "revenue")} for row in here]
