"""Starts a job with this machine's Spark: ``python -m loosehanger.proof.submit prove [options]``.

The jobs themselves are ordinary ``spark-submit`` applications; this only spares their user the Java runtime, the
connector's jars and the settings. It replaces its own process, so the job's exit code and signals are the caller's.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from loosehanger.errors import ExitCode, LabError, WrongUseError, run_command
from loosehanger.lab import job_options
from loosehanger.lab.progress import read_progress
from loosehanger.paths import ROOT, lab_home
from loosehanger.ports import LOOPBACK
from loosehanger.proof import early_java, scratch

JOBS = ROOT / "spark-jobs"
NAMES = ("prove", "aggregate", "watch", "audit", "clear")
_WATCHING = (
    # A consumer that finds no room here is made anew for each round: connection, handshake and sign-in.
    "spark.kafka.consumer.cache.capacity=1000",
    # Spark keeps a history of its jobs for a page that is off here, and a watch runs for days.
    "spark.ui.retainedJobs=10",
    "spark.ui.retainedStages=10",
    "spark.ui.retainedTasks=100",
    "spark.sql.ui.retainedExecutions=10",
    # A round is small: planning it anew after each stage, or for many partitions, costs more than it.
    "spark.sql.adaptive.enabled=false",
    "spark.sql.shuffle.partitions=1",
)
# What a job wants besides conf/; --conf beats it.
_CONF = {
    "watch": _WATCHING,
    "audit": _WATCHING,
    "clear": (
        # As for a watch: small rounds, for days.
        "spark.ui.retainedJobs=10",
        "spark.ui.retainedStages=10",
        "spark.ui.retainedTasks=100",
        "spark.sql.ui.retainedExecutions=10",
        "spark.sql.streaming.ui.enabled=false",
        "spark.sql.adaptive.enabled=false",
        "spark.sql.shuffle.partitions=1",
        "spark.sql.codegen.wholeStage=false",
        "spark.sql.codegen.factoryMode=NO_CODEGEN",
        # Past rounds are not needed.
        "spark.sql.streaming.minBatchesToRetain=10",
    ),
}
# Plans of many flows are deep, and so is what walks through them. Unused, it costs nothing.
_JAVA_OPTIONS = "-Xss64m"


def arguments() -> argparse.ArgumentParser:
    """The launcher's own part of the command line; what it does not know is the job's."""
    parser = argparse.ArgumentParser(prog="submit", add_help=False, allow_abbrev=False)
    parser.add_argument("job", choices=NAMES)
    job_options.spark(parser)
    return parser


def environment(
    home: Path, master: str, driver_memory: str, conf: list[str], work: Path | None = None
) -> dict[str, str]:
    """The environment in which a plain Python process finds Spark.

    Args:
        home: the folder with the installed parts.
        master: Spark's master.
        driver_memory: heap of the driver, in Spark's notation.
        conf: further settings, ``name=value``. No secret belongs here: the list shows in the process table.
        work: the folder to write in; None for the home.

    Raises:
        WrongUseError: a part is not installed, or a setting is malformed.
    """
    # By their own paths, for which the archive of Spark's classes was made.
    java, jars = (home / "java-spark").resolve(), sorted((home / "jars" / "spark").resolve().glob("*.jar"))
    if not (java / "bin" / "java").exists() or not jars:
        raise WrongUseError(f"{home}: Spark's Java runtime or jars are missing; run the set-up, it installs them")
    parts = SparkParts(java, jars, JOBS / "conf", java / "empty")
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    # Otherwise Spark's scripts start a Python to look for it.
    found = {"SPARK_HOME": str(Path(spark.origin).parent)}
    return environment_of(parts, master, driver_memory, conf, work or home) | found


@dataclass(frozen=True)
class SparkParts:
    """What a job is started with."""

    java: Path
    """The home of its Java runtime."""
    jars: Sequence[Path]
    """The jars of Spark's Kafka connector."""
    settings: Path
    """The folder with ``spark-defaults.conf`` and ``log4j2.properties``."""
    empty: Path
    """An empty folder, in place of the machine's own settings of Spark."""


def environment_of(
    parts: SparkParts, master: str, driver_memory: str, conf: Sequence[str], work: Path
) -> dict[str, str]:
    """As ``environment``, with parts from anywhere.

    Raises:
        WrongUseError: a setting is malformed.
    """
    java, jars = parts.java, parts.jars
    if wrong := [setting for setting in conf if "=" not in setting]:
        raise WrongUseError(f"--conf {wrong[0]}: expected NAME=VALUE")
    own = scratch.make(work)
    options = ["--master", master, "--driver-memory", driver_memory]
    options += ["--properties-file", str(parts.settings / "spark-defaults.conf")]
    if master.startswith("local"):
        # Without a secret Spark serves its blocks to every user of this machine. For a local master it creates one
        # itself, and keeps it in memory.
        options += ["--conf", "spark.authenticate=true", "--conf", f"spark.local.dir={own}"]
    for setting in conf:
        options += ["--conf", setting]
    # -UsePerfData: Java keeps counters, and the command that it was started with, in /tmp.
    java_options = f'-XX:-UsePerfData "-Djava.io.tmpdir={own}"'
    logging = f'"-Dlog4j2.configurationFile={parts.settings / "log4j2.properties"}"'
    if master.startswith("local"):
        # On this machine the jars need not be copied to executors; and nothing listens beyond it.
        options += ["--driver-class-path", ":".join(map(str, jars))]
        options += ["--conf", "spark.driver.bindAddress=127.0.0.1"]
        java_options += f" {_JAVA_OPTIONS}"
    else:
        options += ["--jars", ",".join(map(str, jars))]
    options += ["--driver-java-options", f"{java_options} {logging}"]
    logs = work / "logs"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    added = {
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"]),
        "SPARK_CONF_DIR": str(parts.empty),
        "LAB_SPARK_LOG": str(logs / "spark.log"),
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        "TMPDIR": str(own),
        scratch.VARIABLE: str(own),
    }
    if master.startswith("local"):
        added["SPARK_LOCAL_IP"] = LOOPBACK
    return os.environ | added


def _is_of_the_lab(options: Sequence[str]) -> bool:
    """Whether a proof is of a lab, which has few records: two clusters of the user's own may have any number."""
    return read_progress() is not None and not any(word.startswith("--source-config") for word in options)


def main(words: Sequence[str] | None = None) -> int:
    """Becomes the job.

    Args:
        words: the job and its options; by default those of the command line.
    """
    own, rest = arguments().parse_known_args(words)
    job = [sys.executable, str(JOBS / f"{own.job}.py"), *rest]
    if "--help" in rest or "-h" in rest:
        os.execv(job[0], job)  # noqa: S606 - help needs no Spark
    conf = [*_CONF.get(own.job, ()), *own.conf]
    try:
        given = environment(lab_home(), own.master, own.driver_memory, conf, own.work)
        if own.job == "prove" and own.master.startswith("local") and _is_of_the_lab(rest):
            given |= early_java.start(given)
        os.execve(job[0], job, given)  # noqa: S606
    except OSError as error:
        failure = LabError(f"{error.filename or job[0]}: {error.strerror}")
        if own.job == "prove":
            from loosehanger.proof.inconclusive import give_up

            raise give_up(failure, rest) from error
        raise failure from error


if __name__ == "__main__":
    # What 1 says of a proof is that something was disproved.
    sys.exit(run_command(main, failed=ExitCode.INCONCLUSIVE if sys.argv[1:2] == ["prove"] else ExitCode.FAILED))
