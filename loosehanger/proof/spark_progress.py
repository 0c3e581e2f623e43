"""Spark's progress with a job, and an estimate of the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from loosehanger.proof.pace import Pace

_REPORT_S = 5.0


@contextmanager
def reported(spark: SparkSession, what: str, report: Callable[[str], None]) -> Iterator[None]:
    """Reports Spark's progress every few seconds.

    Args:
        spark: the session.
        what: what is being done.
        report: takes the line.
    """
    done = threading.Event()

    def run() -> None:
        pace, known = Pace(), 0
        while not done.wait(_REPORT_S):
            try:
                finished, tasks = _tasks(spark)
            except Exception:
                return  # Spark has ended, which is reported where its result is waited for.
            if tasks != known:
                pace, known = Pace(), tasks
            if tasks and not done.is_set():
                report(f"{what}: {finished} of {tasks} tasks of this step done{pace.remaining(tasks - finished)}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def _tasks(spark: SparkSession) -> tuple[int, int]:
    """How many tasks of the stages that run now are finished, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    return sum(stage.numCompletedTasks for stage in stages if stage), sum(stage.numTasks for stage in stages if stage)
