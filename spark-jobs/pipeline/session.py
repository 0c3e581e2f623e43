"""The Spark session of a job, and what its errors say."""

from __future__ import annotations

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What a Spark action raises when records cannot be read."""


def start_session(name: str) -> SparkSession:
    """The session; everything about it is up to whoever submits the job, except that its time is UTC."""
    spark = SparkSession.builder.appName(name).getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def cause(error: Exception) -> str:
    """The innermost reason that a Java stack trace gives, or the message's first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else lines[0]).strip()
