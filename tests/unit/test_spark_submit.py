"""What spark-jobs/README.md says of ``spark-submit``, and what becomes of a submission that is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from loosehanger.paths import ROOT, lab_home
from tests.submission import documented
from tests.unit.test_layers import BASE, PACKAGE, USES, imported, sources

README = (ROOT / "spark-jobs" / "README.md").read_text(encoding="utf-8")
PROVE = ROOT / "spark-jobs" / "prove.py"
DISTRIBUTIONS = {
    "kafka": "kafka-python", "yaml": "pyyaml", "py4j": "pyspark", "prometheus_client": "prometheus-client",
    "fpdf": "fpdf2", "minisign": "py-minisign",
}  # fmt: skip
"""Packages of another name than their modules, or that come with another one."""


def test_the_packages_that_a_driver_needs_are_listed() -> None:
    (listed,) = re.findall(r"pip install (.*)", README)
    names = {re.split(r"[=<>\[]", word.strip("'"))[0] for word in listed.split()}
    own = [path for part in ("jobs", *USES["jobs"]) for path in sources(f"{PACKAGE}/{part}")]
    own += [ROOT / PACKAGE / f"{name}.py" for name in BASE]
    modules = {module.partition(".")[0] for path in own for module in imported(path)} - {"", PACKAGE}
    assert {DISTRIBUTIONS.get(name, name) for name in modules - sys.stdlib_module_names} == names


@pytest.mark.parametrize(("checkout", "code"), [([str(ROOT)], 0), ([], 4)])
def test_the_path_that_is_documented_is_enough_and_needed(checkout: list[str], code: int) -> None:
    """Here for a Python in which the kit itself is not installed."""
    assert 'PYTHONPATH="$PWD"' in README
    found = [*checkout, sysconfig.get_path("purelib")]
    done = subprocess.run(
        [sys.executable, "-S", str(PROVE), "--help"],
        env={"PYTHONPATH": os.pathsep.join(found), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr


@pytest.mark.spark
@pytest.mark.parametrize(
    ("right", "wrong"), [("--master 'local[*]'", "--master nonsense"), (".lab/java-spark", ".lab/java")]
)
def test_a_submission_that_is_refused_disproves_nothing(tmp_path: Path, right: str, wrong: str) -> None:
    command = documented(tmp_path)
    assert right in command
    done = subprocess.run(
        ["bash", "-euc", command.replace(right, wrong)],
        cwd=tmp_path,
        env={**os.environ, "LAB_HOME": str(lab_home())},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
