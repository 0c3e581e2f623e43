"""What several unit tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from loosehanger.paths import lab_home
from loosehanger.proof import scratch
from loosehanger.proof.submit import environment


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small Spark in this process: as the jobs are started, with two threads and few partitions."""
    settings = ["spark.sql.shuffle.partitions=2", "spark.sql.adaptive.enabled=false", "spark.default.parallelism=2"]
    before = dict(os.environ)
    os.environ.update(environment(lab_home(), "local[2]", "1g", settings))
    # A job hands records over as files of its folder. Here a test does so only where it names a folder itself: a test
    # that runs after this fixture must not depend on it.
    del os.environ[scratch.VARIABLE]
    session = SparkSession.builder.appName("unit tests").getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)
