"""``mirrorproof`` on an installation of Spark of the user's own: a standalone cluster of each version that it takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loosehanger.mirrorproof.connector import SPARKS, minor
from loosehanger.paths import ROOT
from tests.standalone_spark import java_home, standalone

from .broker import Broker
from .stranger import bare, built, environment, installed, run
from .test_mirrorproof import RECORDS, clusters

__all__ = ["clusters"]
pytestmark = [pytest.mark.lab, pytest.mark.slow]

VERSIONS = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0"}
PEX = "pex==2.105.2"
ON_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
SETTINGS = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m")


@dataclass
class OwnSpark:
    """An installation of Spark, with a cluster of it."""

    version: str
    home: Path
    master: str

    @property
    def variables(self) -> dict[str, str]:
        """What its user sets."""
        return ON_LOOPBACK | {"SPARK_HOME": str(self.home), "JAVA_HOME": str(java_home())}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, without PySpark."""
    return installed(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and all that it needs in one file, made as the page says."""
    folder = tmp_path_factory.mktemp("archive")
    wheel, pex = built(folder), environment(folder / "venv", PEX).with_name("pex")
    (command,) = re.findall(r"^uvx pex (.*)$", page(), re.MULTILINE)
    subprocess.run([pex, *command.replace("dist/*.whl", str(wheel)).split()], cwd=folder, check=True)
    return folder / "mirrorproof.pex"


@pytest.fixture(scope="module", params=SPARKS)
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnSpark]:
    """An installation of one version, and its cluster."""
    version, folder = VERSIONS[request.param], tmp_path_factory.mktemp("spark")
    environment(folder / "venv", f"pyspark=={version}")
    (home,) = folder.glob("venv/lib/python3*/site-packages/pyspark")
    # As its own scripts set them.
    variables = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "JAVA_HOME": str(java_home())}
    with standalone(home, folder, variables) as master:
        yield OwnSpark(version, home, master)


def page() -> str:
    """The page that a stranger reads."""
    return (ROOT / "docs" / "mirrorproof.md").read_text(encoding="utf-8")


def test_a_cluster_of_each_version_disproves(
    program: Path, clusters: tuple[Broker, Broker], spark: OwnSpark, tmp_path: Path
) -> None:
    source, target = (broker.properties("admin") for broker in clusters)
    arguments = ("--master", spark.master, *SETTINGS, "--timeout", "5", "--json")
    done = run(program, tmp_path, "prove", source, target, *arguments, **spark.variables)
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(done.stdout)
    flows = {flow["topic"]: (flow["source_records"], flow["missing"]) for flow in document["flows"]}
    assert (document["verdict"], flows) == ("disproved", {"torn": (RECORDS, 1), "whole": (RECORDS, 0)})


def test_the_documented_submission_of_one_archive_proves(
    archive: Path, program: Path, clusters: tuple[Broker, Broker], spark: OwnSpark, tmp_path: Path
) -> None:
    """The page's commands, with this cluster's address, its driver on the loopback address, and ``--jars``.

    Java, which ``--packages`` uses, need not know the certificate authorities of this machine.
    """
    assert run(program, tmp_path, "jars", "jars", "--spark", minor(spark.version)).returncode == 0
    jars = ",".join(map(str, sorted(tmp_path.glob("jars/*/*.jar"))))
    for name, broker in zip(("old", "new"), clusters, strict=True):
        shutil.copy(broker.properties("admin"), tmp_path / f"{name}.properties")
    (tmp_path / "spark-jobs").symlink_to(ROOT / "spark-jobs")
    (tmp_path / "mirrorproof.pex").symlink_to(archive)
    (command,) = re.findall(r"^(export PYSPARK_DRIVER_PYTHON=.*?)^```$", page(), re.DOTALL | re.MULTILINE)
    replaced = {
        "spark://spark.example.com:7077": f"{spark.master} {' '.join(SETTINGS)}",
        "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1": f"--jars {jars}",
        "--topics orders": "--topics whole --timeout 5",
    }
    for documented, here in replaced.items():
        assert documented in command
        command = command.replace(documented, here)
    path = os.pathsep.join([str(spark.home / "bin"), os.defpath])
    done = subprocess.run(
        ["bash", "-euc", command], cwd=tmp_path, env=bare(tmp_path) | spark.variables | {"PATH": path},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    document = json.loads((tmp_path / "proof.json").read_text(encoding="utf-8"))
    assert (document["verdict"], document["totals"]["source_records"]) == ("proved", RECORDS)


@pytest.mark.parametrize("spark", [SPARKS[-1]], indirect=True)
def test_a_master_that_is_not_there_leaves_the_proof_inconclusive(
    program: Path, clusters: tuple[Broker, Broker], spark: OwnSpark, tmp_path: Path
) -> None:
    source, target = (broker.properties("admin") for broker in clusters)
    arguments = ("--master", "spark://127.0.0.1:1", *SETTINGS, "--topics", "whole", "--json")
    done = run(program, tmp_path, "prove", source, target, *arguments, **spark.variables)
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"]) == (4, "inconclusive"), done.stderr
    assert "Spark did not start: " in document["reasons"][0]
