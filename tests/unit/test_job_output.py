"""What a job leaves on standard output with ``--json``: one document, however it ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loosehanger.paths import ROOT, lab_home
from loosehanger.proof import inconclusive, scratch
from loosehanger.proof.submit import environment
from tests import samples

PROVE = ROOT / "spark-jobs" / "prove.py"
FULL = """\
import json, os, resource, sys
from loosehanger.proof.report import output
document = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sys.exit(0 if getattr(output, sys.argv[1])(document) else 4)
"""
"""As on a full disk: no file may grow beyond 4 KiB."""

JOB = """\
import sys
from loosehanger.errors import InconclusiveError, run_command
from loosehanger.proof.report import output
def main():
    print("progress of the job", file=sys.stderr, flush=True)
    output.print_document({"verdict": "inconclusive"})
    raise InconclusiveError("what went wrong")
output.separate_streams(sys.argv)
sys.exit(run_command(main))
"""


def start_without(found: tuple[str, ...], *options: str) -> subprocess.CompletedProcess[str]:
    """Starts the proof with a Python that has nothing installed but what is in these folders."""
    return subprocess.run(
        [sys.executable, "-S", str(PROVE), *options],
        env={"PYTHONPATH": os.pathsep.join(found), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("found", "missing"), [((), "loosehanger"), ((str(ROOT),), "pyspark")])
def test_a_missing_package_does_not_disprove(found: tuple[str, ...], missing: str) -> None:
    done = start_without(found, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 4
    assert f"No module named '{missing}'" in document["reasons"][0]
    assert document == inconclusive.document(document["reasons"][0])

    done = start_without(found)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: the proof cannot start with ")
    assert f"No module named '{missing}'; spark-jobs/README.md lists" in done.stderr


def write_where_little_fits(file: Path, mode: str, function: str, document: dict[str, Any]) -> int:
    """Has a document written into a file that may have no more than 4 KiB; returns the exit code."""
    with file.open(mode) as output:
        done = subprocess.run(
            [sys.executable, "-c", FULL, function],
            input=json.dumps(document),
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "error: standard output: cannot be written: File too large\n"
    return done.returncode


@pytest.mark.parametrize(("verdict", "left"), [("disproved", "disproved"), ("proved", "inconclusive")])
def test_a_document_that_does_not_fit_leaves_a_short_one(verdict: str, left: str, tmp_path: Path) -> None:
    flows = [samples.flow(f"LH.{number}") for number in range(100)]
    document = samples.proof(*flows, verdict=verdict, reasons=("3 missing",) * 1000)
    file = tmp_path / "proof.json"
    assert write_where_little_fits(file, "w", "print_proof", document) == 4
    found = json.loads(file.read_text())
    assert found["verdict"] == left
    assert found["reasons"][-1] == "the whole document could not be written to standard output: File too large"
    assert found["totals"] == document["totals"]
    # What was in the file before stays.
    file.write_text("{}\n")
    assert write_where_little_fits(file, "a", "print_proof", document) == 4
    before, _, after = file.read_text().partition("\n")
    assert (before, json.loads(after)) == ("{}", found)


def test_other_documents_are_whole_or_not_there(tmp_path: Path) -> None:
    file = tmp_path / "sales.json"
    assert write_where_little_fits(file, "w", "print_document", {"regions": ["x"] * 5000}) == 4
    assert file.read_text() == ""


@pytest.mark.spark
def test_spark_submit_leaves_standard_output_to_the_document(tmp_path: Path) -> None:
    """It gives Python one pipe for both streams."""
    job = tmp_path / "job.py"
    job.write_text(JOB, encoding="utf-8")
    done = subprocess.run(
        ["spark-submit", "--master", "local[1]", str(job), "--json"],
        env={**os.environ, "JAVA_HOME": str(lab_home() / "java-spark")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, json.loads(done.stdout)) == (4, {"verdict": "inconclusive"}), done.stderr
    assert "progress of the job" in done.stderr
    assert "error: what went wrong" in done.stderr


@pytest.mark.spark
def test_a_log_on_a_full_disk_is_not_reported_beside_the_document(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from loosehanger.proof.session import start_session; start_session('job')"],
        env=environment(lab_home(), "local[1]", "512m", [], tmp_path) | {"LAB_SPARK_LOG": "/dev/full"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "No space left on device" in done.stderr


INTERRUPTED = """\
import os, signal, threading
from loosehanger.proof.session import start_session
spark = start_session("job", in_order=True)
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    spark.range(10**15).count()
except KeyboardInterrupt:
    raise SystemExit(130)
"""


@pytest.mark.spark
def test_an_interrupted_job_shows_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=environment(lab_home(), "local[1]", "512m", [], tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_proof_ends_at_its_limit_whatever_keeps_it(tmp_path: Path) -> None:
    """Here a cluster that accepts connections and is silent, for which its clients wait longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = tmp_path / "client.properties"
        config.write_text(f"bootstrap.servers=127.0.0.1:{silent.getsockname()[1]}", encoding="utf-8")
        ends = [f"--{end}-config={config}" for end in ("source", "target")]
        done = subprocess.run(
            [sys.executable, "-P", str(PROVE), *ends, "--topics=.*", "--json", "--limit=0.5"],
            env={"PATH": os.environ["PATH"], scratch.VARIABLE: str(tmp_path / "scratch")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert document["reasons"] == ["not finished within 0.5 s; raise --limit, or compare fewer topics at a time"]
    assert document["seconds"] < 5
