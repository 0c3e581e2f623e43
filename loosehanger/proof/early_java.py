"""Starts Spark's Java machine while Python still imports what the job needs: each takes seconds, and a core of its own.

The launcher of a job starts it and becomes the job, which takes it over, or ends it if it wants another one. By then
nothing is known of the records, so it is a machine for few of them.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loosehanger.proof import scratch

# Only the first of Java's two compilers: the second costs a third of such a job, and has hardly begun when it ends.
# With one compiler Java's room for code is small, and each time it fills a collection of everything is due.
# Spark's launcher gets all of it as well, has a smaller heap, and would log to standard output.
FOR_FEW_RECORDS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Xmn300m -Xlog:gc+ergo=off"
OPTIONS = "LAB_SPARK_JAVA"
"""The environment variable with the options that depend on the amount of work."""
_STARTED = "LAB_EARLY_JAVA"
_START_S = 60.0
"""Seconds until a machine that has not written its address is given up: the job then starts another one."""
_LOOK_S = 0.02


@dataclass
class EarlyJava:
    """The Java machine that the launcher has started."""

    pid: int
    pipe: int
    """Its standard input: when that ends, it ends."""
    address: Path
    """The file in which it writes its port and its secret."""

    @contextmanager
    def reached(self) -> Iterator[bool]:
        """Waits for it; within, ``launch_gateway`` takes it over. False if it has ended, or does not start."""
        until = time.monotonic() + _START_S
        while not self.address.exists():
            if self._has_ended() or time.monotonic() > until:
                yield False
                return
            time.sleep(_LOOK_S)  # PySpark waits for the same file, more slowly.
        with self.address.open("rb") as file:
            port = int.from_bytes(file.read(4), "big")
            secret = file.read(int.from_bytes(file.read(4), "big")).decode()
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        try:
            yield True
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    def end(self) -> None:
        """Ends it."""
        os.close(self.pipe)
        if not self._has_ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _has_ended(self) -> bool:
        with suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return True


def start(environment: Mapping[str, str]) -> dict[str, str]:
    """Starts it; it ends with this process, whatever program that becomes.

    Args:
        environment: the job's, with SPARK_HOME.

    Returns:
        Variables that lead the job to it.
    """
    address = Path(environment[scratch.VARIABLE]) / "gateway"
    command = [f"{environment['SPARK_HOME']}/bin/spark-submit", *shlex.split(environment["PYSPARK_SUBMIT_ARGS"])]
    own = {OPTIONS: FOR_FEW_RECORDS, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)}
    read, write = os.pipe()
    process = subprocess.Popen(
        command,
        env={**environment, **own},
        stdin=read,
        stdout=2,
        # Ctrl-C is for the job, which has the machine end.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    os.close(read)
    os.set_inheritable(write, True)
    return {_STARTED: f"{process.pid} {write} {address}"}


def take() -> EarlyJava | None:
    """The machine that was started for this job, for the first caller; None if there is none."""
    pid, _, rest = os.environ.pop(_STARTED, "").partition(" ")
    if not pid:
        return None
    pipe, _, address = rest.partition(" ")
    os.set_inheritable(int(pipe), False)
    return EarlyJava(int(pid), int(pipe), Path(address))


def end() -> None:
    """Ends the machine if no session has taken it."""
    if early := take():
        early.end()
