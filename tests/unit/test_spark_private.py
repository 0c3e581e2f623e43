"""What a job has belongs to its user: no other gets blocks of its driver, and what it writes is private and deleted."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from loosehanger.paths import lab_home
from loosehanger.proof import scratch

pytestmark = pytest.mark.spark

# The launcher in small, and a job that reports about itself and runs until it is asked to end.
LAUNCHER = """\
import os, sys
from pathlib import Path
from loosehanger.proof.submit import environment
os.execve(sys.executable, sys.argv[2:], environment(Path(sys.argv[1]), "local[2]", "512m", []))
"""
JOB = """\
import json, os, sys, tempfile
from loosehanger.proof.session import start_session
spark = start_session("private")
context = spark.sparkContext
kept = context.broadcast("a customer's order")
java = context._jvm
env = java.org.apache.spark.SparkEnv.get()
print(json.dumps({
    "port": env.blockManager().blockManagerId().port(),
    "java": java.java.lang.ProcessHandle.current().pid(),
    "secret": env.securityManager().getSecretKey(),
    "folders": [java.java.lang.System.getProperty("java.io.tmpdir"), context.getConf().get("spark.local.dir"),
                tempfile.gettempdir()],
}), flush=True)
sys.stdin.read()
"""


@dataclass
class Job:
    """A job that runs."""

    process: subprocess.Popen[str]
    port: int
    java: psutil.Process
    secret: str
    folders: list[str]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A lab's home in a folder that everybody can look into."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("jars", "java-spark"):
        (home / name).symlink_to(lab_home() / name)
    for folder in (home, *list(tmp_path.parents)[:2], tmp_path):
        folder.chmod(0o755)
    return home


@pytest.fixture
def start(home: Path, tmp_path: Path) -> Iterator[Callable[[], Job]]:
    """Starts a job; whatever still runs at the end is ended."""
    started: list[Job] = []
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")

    def run() -> Job:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(home), sys.executable, str(tmp_path / "job.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            umask=0o022,
        )
        assert process.stdout is not None
        reported = json.loads(process.stdout.readline())
        started.append(
            Job(process, reported["port"], psutil.Process(reported["java"]), reported["secret"], reported["folders"])
        )
        return started[-1]

    yield run
    for job in started:
        with job.process:
            job.process.kill()


def test_what_a_job_has_is_its_users_alone_and_nothing_is_left(home: Path, start: Callable[[], Job]) -> None:
    killed, lasting = start(), start()
    folders = home / scratch.FOLDER

    for job in (killed, lasting):
        assert block_without_secret(job.port) is None
        (own,) = set(job.folders)
        assert Path(own).parent == folders
        assert Path(own).stat().st_mode & 0o077 == 0
        assert not list(Path("/tmp").glob(f"hsperfdata_*/{job.java.pid}"))  # noqa: S108
        assert len(job.secret) >= 32
        processes = (psutil.Process(job.process.pid), job.java)
        reported = [*(word for p in processes for word in (*p.cmdline(), *p.environ().values()))]
        reported += [path.read_text(errors="replace") for path in (home / "logs").iterdir()]
        assert not any(job.secret in text for text in reported)
    assert killed.secret != lasting.secret

    killed.java.kill()
    killed.process.kill()
    killed.process.wait(timeout=10)
    assert Path(killed.folders[0]).exists()
    # The next start deletes what the dead one left, and nothing else.
    make = "import pathlib, sys; from loosehanger.proof import scratch; print(scratch.make(pathlib.Path(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", make, home], capture_output=True, text=True, check=True)
    assert {path for path in folders.iterdir() if path.is_dir()} == {
        Path(lasting.folders[0]),
        Path(done.stdout.strip()),
    }

    assert lasting.process.stdin is not None
    lasting.process.stdin.close()
    assert lasting.process.wait(timeout=30) == 0
    deadline = time.monotonic() + 120
    while Path(lasting.folders[0]).exists():
        assert time.monotonic() < deadline, "a job that ends by itself leaves nothing"
        time.sleep(0.1)


def block_without_secret(port: int) -> bytes | None:
    """What a client of Spark's own protocol that has no secret gets of the first broadcast; None for nothing.

    The messages are those of Spark's ``network-common`` and ``network-shuffle``: a frame's length, a letter for its
    kind, and the fields.
    """

    def text(value: str) -> bytes:
        return struct.pack(">i", len(value)) + value.encode()

    def ask(kind: int, fields: bytes, body: bytes = b"") -> tuple[int, bytes]:
        connection.sendall(struct.pack(">qb", 9 + len(fields) + len(body), kind) + fields + body)
        header = answers.read(9)
        if len(header) < 9:
            return -1, b""
        length, answered = struct.unpack(">qb", header)
        return answered, answers.read(length - 9)

    open_blocks = b"\x00" + text("app") + text("client") + struct.pack(">i", 1) + text("broadcast_0_piece0")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection, connection.makefile("rb") as answers:
        kind, answer = ask(3, struct.pack(">qi", 1, len(open_blocks)), open_blocks)
        if kind != 4:
            return None
        kind, answer = ask(0, answer[-12:-4] + struct.pack(">i", 0))
        return answer if kind == 1 else None
