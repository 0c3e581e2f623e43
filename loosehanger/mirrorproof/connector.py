"""The jars of Spark's Kafka connector: fetched once and checked by hash, or from a folder of the user's."""

from __future__ import annotations

import argparse
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.mirrorproof.places import JARS, REPOSITORY, cache, shipped
from loosehanger.paths import caller_path

_CONNECTOR = "spark-sql-kafka-0-10_2.13"
_SET = "spark"
_REMEDY = "mirrorproof jars FOLDER makes one for Spark {version}"


def add_options(parser: Parser) -> None:
    """Adds the options of ``mirrorproof jars``."""
    parser.add_argument("folder", type=caller_path, metavar="FOLDER", help="where to put them; made if it is not there")


def run(options: argparse.Namespace) -> int:
    """Fetches the jars into a folder that can be taken to a machine without a repository."""
    found = fetch(options.folder)
    print(f"{len(found)} jars for Spark {minor(locked_version())} are in {options.folder}; {JARS} names that folder")
    return ExitCode.DONE


def minor(version: str) -> str:
    """Returns the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def locked_version() -> str:
    """Returns the version of Spark that the locked jars are for."""
    from loosehanger.mirrorproof.jars import parse_lock  # slow to import

    jars = parse_lock(shipped("jars.lock").read_text(encoding="utf-8"))
    return next(jar.version for jar in jars if jar.artifact == _CONNECTOR)


def coordinates(version: str) -> str:
    """Returns the connector's Maven coordinates for a version of Spark."""
    return f"org.apache.spark:{_CONNECTOR}:{version}"


def fetch(folder: Path, names: str = _SET) -> list[Path]:
    """Fetches a set of locked jars, each checked by its hash; those that are there and whole stay.

    Args:
        folder: the jars are in its folder of the set's name.
        names: the set.

    Raises:
        LabError: a jar cannot be fetched.
    """
    from loosehanger.mirrorproof.jars import fetch_missing, parse_lock  # slow to import

    locked = [jar for jar in parse_lock(shipped("jars.lock").read_text(encoding="utf-8")) if jar.set == names]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        return fetch_missing(locked, folder, REPOSITORY)


def jars_for(version: str, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the connector's jars for a version of Spark; none where Spark must fetch those of its own version.

    Raises:
        WrongUseError: the user's folder lacks a jar, or is for another version.
        LabError: a jar cannot be fetched.
    """
    if text := environment.get(JARS):
        return _given(caller_path(text), version)
    return fetch(cache(environment) / "jars") if minor(version) == minor(locked_version()) else []


def _given(folder: Path, version: str) -> list[Path]:
    """The jars of the user's folder; those for the locked version are checked by their hashes."""
    from loosehanger.mirrorproof.jars import is_whole, parse_lock  # slow to import

    place = folder / _SET if (folder / _SET).is_dir() else folder
    prefix = f"{_CONNECTOR}-"
    there = {path.stem.removeprefix(prefix) for path in place.glob(f"{prefix}*.jar")}
    if minor(version) not in map(minor, there):
        has = f"the connector for Spark {', '.join(sorted(there))}" if there else f"no {prefix}{version}.jar"
        made = f"; {_REMEDY.format(version=locked_version())}"
        raise WrongUseError(f"{JARS}: {folder} has {has}, and Spark is {version}{made}")
    if minor(version) != minor(locked_version()):
        return sorted(place.glob("*.jar"))
    locked = [jar for jar in parse_lock(shipped("jars.lock").read_text(encoding="utf-8")) if jar.set == _SET]
    for jar in locked:
        if not is_whole(jar, place / jar.path.name):
            made = _REMEDY.format(version=locked_version())
            raise WrongUseError(f"{JARS}: {place / jar.path.name} is missing or is another file; {made}")
    return [place / jar.path.name for jar in locked]
