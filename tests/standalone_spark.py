"""A Spark cluster of one master and one worker on the loopback address, as Spark's own scripts start it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from loosehanger.paths import lab_home
from tests.lab.conftest import wait_until

_READY = {"master.Master": "I have been elected leader", "worker.Worker": "Successfully registered with master"}


def java_home() -> Path:
    """The Java runtime that the kit has for Spark."""
    return (lab_home() / "java-spark").resolve()


@contextmanager
def standalone(home: Path, folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """Starts the cluster, gives its master's address, and stops it.

    Args:
        home: an installation of Spark.
        folder: for its logs and its executors' work.
        variables: of both processes, such as ``SPARK_HOME``, without which executors do not start.
    """
    java = [str(java_home() / "bin" / "java"), "-Xmx256m", "-cp", f"{home}/jars/*"]
    port = _free_port()
    master, here = f"spark://127.0.0.1:{port}", ["--host", "127.0.0.1", "--webui-port", "0"]
    of_worker = [*here, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), master]
    with ExitStack() as started:
        for program, arguments in {"master.Master": [*here, "--port", str(port)], "worker.Worker": of_worker}.items():
            log = folder / f"{program}.log"
            process = subprocess.Popen(
                [*java, f"org.apache.spark.deploy.{program}", *arguments],
                stdout=started.enter_context(log.open("w")),
                stderr=subprocess.STDOUT,
                env={"SPARK_LOCAL_IP": "127.0.0.1", "PATH": os.environ["PATH"], **(variables or {})},
            )
            started.callback(process.wait)
            started.callback(process.kill)
            ready = _READY[program]
            wait_until(lambda log=log, ready=ready: ready in log.read_text(), 60, ready)  # type: ignore[misc]
        yield master


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
