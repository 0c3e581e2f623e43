"""``mirrorproof demo``: its own brokers and proofs, and nothing that stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from loosehanger.mirrorproof import connector
from loosehanger.paths import lab_home

from .conftest import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PROGRAM = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line"]


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``mirrorproof jars --demo`` makes it, of the lab's own jars: nothing is fetched."""
    folder = tmp_path_factory.mktemp("jars")
    for jar in (*connector.connector(connector.SPARKS[-1]), *connector.broker()):
        (folder / jar.path).parent.mkdir(exist_ok=True)
        (folder / jar.path).symlink_to((lab_home() / "jars" / jar.path).resolve())
    return folder


def environment(folder: Path, jars: Path) -> dict[str, str]:
    """A cache and temporary files of its own."""
    (folder / "tmp").mkdir(exist_ok=True)
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "tmp"), "MIRRORPROOF_JARS": str(jars)}
    return os.environ | own


def left_over(folder: Path) -> list[str]:
    """Files of the demo, and processes that were started for it."""
    found = [str(path) for path in (folder / "tmp").iterdir()]
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and process.pid != os.getpid():
            found.append(line)
    return found


@contextmanager
def kept(folder: Path, jars: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A demo that waits for Ctrl-C, and the two properties files that it shows."""
    log = folder / "log"
    with log.open("w") as output:
        demo = subprocess.Popen(
            [*PROGRAM, "demo", "--keep", *options],
            env=environment(folder, jars),
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "Ctrl-C" in log.read_text() or demo.poll() is not None, 120, "the demo")
        files = re.findall(r"mirrorproof doctor (\S+) (\S+)", log.read_text())
        assert files, log.read_text()
        yield demo, list(files[0])
    finally:
        demo.kill()
        demo.wait()


def test_it_disproves_mends_and_proves_and_leaves_nothing(tmp_path: Path, jars: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "demo"],
        env=environment(tmp_path, jars),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(disproved|proved): (.*?): (\d+ missing, \d+ duplicates, \d+ altered)", done.stdout, re.M) == [
        ("disproved", "3,500 records of 2 topics compared with target", "9 missing, 0 duplicates, 0 altered"),
        ("proved", "3,500 records of 2 topics are in target", "0 missing, 0 duplicates, 0 altered"),
    ]
    assert re.findall(r"^exit code (\d)", done.stdout, re.M) == ["0", "1", "0"]
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(("mistake", "counts"), [("changed", (0, 9, 0)), ("doubled", (0, 0, 9))])
def test_each_mistake_is_found_and_ctrl_c_leaves_nothing(
    mistake: str, counts: tuple[int, int, int], tmp_path: Path, jars: Path
) -> None:
    with kept(tmp_path, jars, "--mistake", mistake) as (demo, files):
        done = subprocess.run(
            [*PROGRAM, "prove", *files, "--timeout", "5", "--json"],
            env=environment(tmp_path, jars),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        totals = json.loads(done.stdout)["totals"]
        assert (totals["missing"], totals["altered"], totals["duplicates"]) == counts
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 130
    assert left_over(tmp_path) == []


def test_sigterm_and_kill_leave_no_broker(tmp_path: Path, jars: Path) -> None:
    with kept(tmp_path, jars) as (demo, _):
        demo.terminate()
        assert demo.wait(60) == 128 + signal.SIGTERM
        assert left_over(tmp_path) == []
    with kept(tmp_path, jars) as (demo, _):
        demo.kill()
        demo.wait(60)
        wait_until(lambda: not [line for line in left_over(tmp_path) if "java" in line], 30, "the brokers' end")
