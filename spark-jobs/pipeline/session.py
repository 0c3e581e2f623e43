"""The Spark session of a job, and what its errors say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

_RECORDS_A_PARTITION = 500_000
_MOST_PARTITIONS = 400
ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What a Spark action raises when records cannot be read."""


def start_session(name: str) -> SparkSession:
    """The session; everything about it is up to whoever submits the job, except that its time is UTC."""
    spark = SparkSession.builder.appName(name).getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def small_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """A frame of a few rows, made within the Java machine: ``createDataFrame`` would start Python workers for them.

    Args:
        spark: the session.
        rows: of values that JSON knows, and times.
        schema: names and types, as in ``a string, b long``.
    """
    columns = dict(column.split() for column in schema.split(", "))
    text = json.dumps([dict(zip(columns, row, strict=True)) for row in rows], default=datetime.isoformat)
    fields = ", ".join(f"{name}: {type_}" for name, type_ in columns.items())
    return spark.range(1).select(F.inline(F.from_json(F.lit(text), f"array<struct<{fields}>>")))


def fit(spark: SparkSession, records: int) -> None:
    """Fits the session to the amount of work, unless whoever submitted the job has said otherwise.

    Where there is little to do, a task for each of many empty partitions, and planning anew after each stage, would
    cost more than the work itself.
    """
    given = {name for name, _ in spark.sparkContext.getConf().getAll()}
    partitions = min(max(records // _RECORDS_A_PARTITION, 2), _MOST_PARTITIONS)
    if "spark.sql.shuffle.partitions" not in given:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    if "spark.sql.adaptive.enabled" not in given:
        spark.conf.set("spark.sql.adaptive.enabled", "false" if partitions == 2 else "true")


def cause(error: Exception) -> str:
    """The innermost reason that a Java stack trace gives, or the message's first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else lines[0]).strip()
