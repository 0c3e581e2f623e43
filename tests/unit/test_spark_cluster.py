"""A Spark cluster that takes the application and cannot run it: the job says why, and where to read on."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from loosehanger.paths import lab_home
from loosehanger.proof.submit import environment
from tests.lab.conftest import wait_until

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


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A cluster of one worker whose executors do not start: nobody has told it where Spark is installed."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    java = [str(lab_home() / "java-spark/bin/java"), "-Xmx256m", "-cp", f"{Path(spark.origin).parent}/jars/*"]
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as started:
        for program, arguments in (
            ("master.Master", [*here, "--port", str(port)]),
            ("worker.Worker", [*here, "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"), master]),
        ):
            log = tmp_path / f"{program}.log"
            process = subprocess.Popen(
                [*java, f"org.apache.spark.deploy.{program}", *arguments],
                stdout=started.enter_context(log.open("w")),
                stderr=subprocess.STDOUT,
                env={"SPARK_LOCAL_IP": "127.0.0.1", "PATH": os.environ["PATH"]},
            )
            started.callback(process.wait)
            started.callback(process.kill)
            ready = (
                "I have been elected leader" if program == "master.Master" else "Successfully registered with master"
            )
            wait_until(lambda log=log, ready=ready: ready in log.read_text(), 60, ready)  # type: ignore[misc]
        yield master


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
