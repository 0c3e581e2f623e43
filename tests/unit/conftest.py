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
    session = SparkSession.builder.appName("unit tests").getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _no_folder_without_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the folder of the session's Spark from tests with a made-up one, whichever ran before."""
    if "spark" not in request.fixturenames:
        monkeypatch.delenv(scratch.VARIABLE, raising=False)
