"""What was sold, region by region, from the events that can be read there: an ordinary Spark application."""

from __future__ import annotations

import argparse
import json
import re
import sys
from datetime import UTC
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from lab.access import Lab, load_lab
from lab.errors import LabError, run_command
from pipeline import aggregates
from pipeline.clusters import Cluster, UnreachableError
from pipeline.comparing import freeze
from pipeline.reading import Ranges, read_records
from pipeline.session import ERRORS, cause, start_session
from pipeline.tables import console, show_aggregates


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="aggregate",
        description="Orders, units and revenue by product and by region, as each region's consumers see them.",
        epilog="exit codes: 0 done, 1 failed, 2 wrong use, 3 nothing is set up",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument("--products", type=int, default=10, metavar="N", help="how many products to list (default 10)")
    return parser


def main() -> int:
    """Aggregates what is there now.

    Returns:
        The exit code.

    Raises:
        LabError: a region cannot be read.
    """
    options = arguments().parse_args()
    lab = load_lab()
    clusters = {name: Cluster.of(region) for name, region in lab.regions.items()}
    try:
        ranges = {name: _event_topics(cluster) for name, cluster in clusters.items()}
        document = aggregate(start_session("aggregate"), lab, clusters, ranges, options.products)
    except UnreachableError as error:
        raise LabError(str(error)) from error
    except ERRORS as error:
        raise LabError(f"the events could not be read: {cause(error)}") from error
    if options.json:
        print(json.dumps(document, indent=2, ensure_ascii=False, default=_plain))
    else:
        show_aggregates(document, console())
    return 0


def aggregate(
    spark: SparkSession, lab: Lab, clusters: dict[str, Cluster], ranges: dict[str, Ranges], products: int
) -> dict[str, Any]:
    """Reads every region's events and sums them up.

    Returns:
        The document that ``--json`` prints.
    """
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


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else value.isoformat(timespec="milliseconds")


if __name__ == "__main__":
    sys.exit(run_command(main))
