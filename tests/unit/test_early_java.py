"""The Java machine that a job's launcher starts: it is taken over, or ended, and never outlives the job."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from loosehanger.paths import ROOT, lab_home
from loosehanger.proof import early_java, submit
from loosehanger.waiting import wait_for

START = """\
import os, sys
from loosehanger.proof import early_java
given = {**os.environ, **early_java.start(os.environ)}
os.execve(sys.executable, [sys.executable, "-P", "-c", sys.argv[1]], given)
"""


def run(job: str, work: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Starts a machine, and becomes a job."""
    given = submit.environment(lab_home(), "local[1]", "512m", [], work)
    return subprocess.run(
        [sys.executable, "-P", "-c", START, textwrap.dedent(job)],
        env={**given, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(("records", "taken"), [(1, True), (1_000_000, False)])
def test_a_job_of_few_records_takes_it_over(records: int, taken: bool, tmp_path: Path) -> None:
    job = f"""
        import os
        early = os.environ["LAB_EARLY_JAVA"].split()[0]
        from loosehanger.proof.session import start_session
        spark = start_session("x", records={records})
        assert spark.range(3).count() == 3
        java = spark.sparkContext._jvm.java
        print(early, java.lang.ProcessHandle.current().pid())
    """
    done = run(job, tmp_path)
    assert done.returncode == 0, done.stderr
    early, used = done.stdout.split()
    assert (early == used) is taken
    wait_for(lambda: "runs" if psutil.pid_exists(int(early)) or psutil.pid_exists(int(used)) else None, 20, "Java")


def test_it_ends_with_a_job_that_starts_no_session(tmp_path: Path) -> None:
    job = """
        import os
        from loosehanger.proof import early_java
        print(os.environ["LAB_EARLY_JAVA"].split()[0])
        early_java.end()
    """
    done = run(job, tmp_path)
    assert done.returncode == 0, done.stderr
    assert not psutil.pid_exists(int(done.stdout))


@pytest.mark.parametrize("program", ["exit 1", "exec sleep 600"], ids=["has ended", "hangs"])
def test_one_that_does_not_start_is_replaced(program: str, tmp_path: Path) -> None:
    job = """
        from loosehanger.proof import early_java
        from loosehanger.proof.session import start_session
        early_java._START_S = 1.0
        print(start_session("x", records=1).range(3).count())
    """
    spark_submit = tmp_path / "bin/spark-submit"
    spark_submit.parent.mkdir()
    spark_submit.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    spark_submit.chmod(0o700)
    done = run(f"import os\nos.environ.pop('SPARK_HOME')\n{textwrap.dedent(job)}", tmp_path, SPARK_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_without_one_there_is_nothing_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_EARLY_JAVA", raising=False)
    assert early_java.take() is None
    early_java.end()
    assert "LAB_EARLY_JAVA" not in os.environ
