"""A Spark cluster that takes the application and cannot run it: the job says why, and where to read on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from loosehanger.paths import lab_home
from loosehanger.proof.submit import environment
from tests.standalone_spark import standalone

pytestmark = pytest.mark.spark

PROGRAM = """\
from loosehanger.errors import run_command
from loosehanger.proof.session import start_session
run_command(lambda: start_session("prove") and 0)
"""

WAITING = """\
from loosehanger.proof.session import ERRORS, ended, is_alive, start_session
spark = start_session("prove", patience_s=3)
try:
    spark.range(10).count()
except ERRORS as error:
    print(is_alive(spark), ended(error))
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A cluster of one worker whose executors do not start: it is not given the folder that Spark is in."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    with standalone(Path(spark.origin).parent, tmp_path) as address:
        yield address


def submit(program: str, master: str, folder: Path, executor_memory: str) -> subprocess.CompletedProcess[str]:
    """Runs a driver program on that cluster."""
    conf = ["spark.driver.host=127.0.0.1", f"spark.executor.memory={executor_memory}"]
    found = environment(lab_home(), master, "1g", conf) | {"LAB_SPARK_LOG": str(folder / "spark.log")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=found | {"PYTHONPATH": os.pathsep.join(sys.path), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_executors_that_cannot_start(master: str, tmp_path: Path) -> None:
    done = submit(PROGRAM, master, tmp_path, "512m")
    assert re.search(
        r"^error: Spark did not start: Master removed our application: FAILED \(.*Error running executor: .+\); "
        rf"see {re.escape(str(tmp_path))}/spark.log; ",
        done.stderr,
        re.MULTILINE,
    ), done.stderr


def test_a_cluster_that_never_gives_an_executor(master: str, tmp_path: Path) -> None:
    done = submit(WAITING, master, tmp_path, "2g")
    assert f"False Spark ended: {master} gave the application no executor within 3 s; " in done.stdout, done.stderr
