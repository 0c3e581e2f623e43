"""The Spark session of a job, and the causes of its errors."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.errors import LabError
from loosehanger.proof import early_java, scratch
from loosehanger.proof.early_java import FOR_FEW_RECORDS
from loosehanger.proof.spark_log import SparkLog

_RECORDS_A_PARTITION = 500_000
_MOST_PARTITIONS = 400
_FEW_RECORDS = 50_000
_MANY_RECORDS = 2_000_000
# Half of a short run's work would be compiling code that is hardly used again: only what is really hot is worth it.
# Long-running jobs with small rounds are not slower with it.
_SOME_JAVA = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# Large inputs leave much to collect, on all cores; and what they run is worth compiling soon.
_MUCH_JAVA = "-XX:+UseParallelGC"
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Expressions are evaluated as they are, without classes made for them: the same results, begun sooner."""
SILENT_S = "spark.loosehanger.silentSeconds"
"""The session's setting for how long its Kafka consumers may wait for a broker that falls silent."""
ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What a Spark action raises when records cannot be read."""
_PATIENCE_S = 300.0
"""Seconds within which a cluster must give a job its first executor, including the pull of an image."""
_LOOK_S = 1.0
_START_ERRORS: tuple[type[Exception], ...] = (*ERRORS, OSError)


class SparkEndedError(LabError):
    """Spark did not start, or a cluster ended the application."""


_log = SparkLog(None)
_stopped_for = ""
"""The reason why this module has stopped the application."""


def start_session(
    name: str,
    patience_s: float = _PATIENCE_S,
    *,
    in_order: bool = False,
    records: int | None = None,
    silent_s: float | None = None,
) -> SparkSession:
    """The session. The submitter of the job configures it; only the time zone is always UTC.

    Args:
        name: the application's.
        patience_s: how long a job may wait without any executor before the application is ended, in seconds.
        in_order: whether the application finishes its work after a signal to its process group. Otherwise the Java
            machine receives the signal as well, and exits first.
        records: the number of records to read: with few, Java starts faster, but never becomes as fast. None if the
            number is unknown, and for a long-running job.
        silent_s: how long a consumer may wait for a broker that falls silent, in seconds. Below 20 it counts as 20, and
            above 60 as 60. None for what the consumers do by default.

    Raises:
        SparkEndedError: the Java machine does not start, or a cluster refuses or ends the application.
    """
    global _log
    _log = SparkLog.of_this_job()
    # py4j logs the traceback of a Ctrl-C, or of a lost Java machine, by the root logger, which would print it.
    logging.getLogger().addHandler(logging.NullHandler())
    os.environ[early_java.OPTIONS] = _java_options(records)
    try:
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=_gateway(in_order))
        spark = SparkSession.builder.appName(name).getOrCreate()
        scratch.delete_with(spark)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        if silent_s is not None:
            spark.conf.set(SILENT_S, str(silent_s))
    except _START_ERRORS as error:
        raise SparkEndedError(f"Spark did not start: {_log.ended() or cause(error)}; {_log.place()}") from error
    if not (spark.sparkContext.master or "").startswith("local"):
        threading.Thread(target=_end_without_executors, args=(spark, patience_s), daemon=True).start()
    return spark


def _gateway(in_order: bool) -> Any:
    """The way to a Java machine: the one that was started early, if it is fit for the job, or a new one."""
    if early := early_java.take():
        if os.environ[early_java.OPTIONS] == FOR_FEW_RECORDS:
            with early.reached() as there:
                if there:
                    return launch_gateway()  # type: ignore[no-untyped-call]
        early.end()
    # Standard output is the job's own: Java, too, reports its troubles there.
    # In a session of its own it ends with this process all the same, of which it has a pipe.
    return launch_gateway(popen_kwargs={"stdout": 2, "start_new_session": in_order})  # type: ignore[no-untyped-call]


def _java_options(records: int | None) -> str:
    if records is None:
        return _SOME_JAVA
    if is_little(records):
        return FOR_FEW_RECORDS
    return _SOME_JAVA if records < _MANY_RECORDS else _MUCH_JAVA


def session_beside(spark: SparkSession) -> SparkSession:
    """A session of the same application with settings of its own, so that threads can fit theirs to different work."""
    beside = spark.newSession()
    beside.conf.set("spark.sql.session.timeZone", "UTC")
    return beside


def _end_without_executors(spark: SparkSession, patience_s: float) -> None:
    """Ends the application when a job waits too long for a first executor: Spark itself would wait forever."""
    global _stopped_for
    context = spark.sparkContext
    since = time.monotonic()
    try:
        while not context._jsc.sc().isStopped():
            executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # The driver is one of them.
            if executors > 0 or not context.statusTracker().getActiveJobsIds():
                since = time.monotonic()
            elif time.monotonic() - since > patience_s:
                _stopped_for = f"{context.master} gave the application no executor within {patience_s:.0f} s"
                context._jsc.sc().stop()
            time.sleep(_LOOK_S)
    except ERRORS:
        return  # The Java machine is gone, and the application with it.


def is_alive(spark: SparkSession) -> bool:
    """Whether the session can still be used: a cluster may have ended the application, or its Java machine be gone."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def ended(error: Exception) -> str:
    """The message for a session that has ended.

    Args:
        error: raised by its last action.
    """
    return f"Spark ended: {_stopped_for or _log.ended() or cause(error)}; {_log.place()}"


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


def fit(spark: SparkSession, records: int, *, again: bool = False) -> None:
    """Fits the session to the amount of work, unless the submitter has configured it.

    Where there is little to do, a task for each of many empty partitions, planning anew after each stage, and compiling
    what runs once would cost more than the work itself.

    Args:
        spark: the session.
        records: how many will be read.
        again: whether the same is going to be done again and again, so that compiling it pays.
    """
    given = {name for name, _ in spark.sparkContext.getConf().getAll()}
    partitions = min(max(records // _RECORDS_A_PARTITION, 2), _MOST_PARTITIONS)
    wanted = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.adaptive.enabled": "false" if partitions == 2 else "true",
        **(INTERPRETED if is_little(records) and not again else _COMPILED),
    }
    for name in wanted.keys() - given:
        spark.conf.set(name, wanted[name])


def is_little(records: int) -> bool:
    """Whether comparing so many records is little work."""
    return records < _FEW_RECORDS


def cause(error: Exception) -> str:
    """The innermost reason that a Java stack trace gives, or the message's first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # Py4J has a line of its own before the Java exception, which says nothing.
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else lines[0]).strip()
