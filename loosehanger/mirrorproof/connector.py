"""The jars of Spark's Kafka connector: fetched once and checked by hash, or from a folder of the user's.

Spark's own way to them, ``spark.jars.packages``, knows neither the proxies nor the certificate authorities of the
environment, fetches more than is needed, and asks for the connector of exactly its version, of which repositories may
lack parts.
"""

from __future__ import annotations

import argparse
import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.mirrorproof.places import JARS, REPOSITORY, cache, shipped
from loosehanger.paths import caller_path

if TYPE_CHECKING:
    from loosehanger.mirrorproof.jars import Jar

_CONNECTOR = "spark-sql-kafka-0-10_2.13"
_SET = "spark"
_OF_CONNECT = (
    "com.fasterxml.jackson.jakarta", "com.fasterxml.jackson.module", "com.sun.", "io.github.", "io.swagger.",
    "jakarta.", "javax.", "org.apache.kafka:connect-", "org.codehaus.", "org.eclipse.jetty", "org.glassfish.",
    "org.javassist", "org.scala-lang:scala-reflect",
)  # fmt: skip
"""What only Kafka Connect and its REST server use of Kafka's jars: 15 of 57 MB."""
_LOCKS = ("jars.lock", "connectors.lock")
_REMEDY = "mirrorproof jars FOLDER --spark {version} makes one"
SPARKS = ("4.0", "4.1", "4.2")
"""The Sparks that a proof runs on, each with the locked connector of its own minor version."""
_NEWEST = SPARKS[-1]


def add_options(parser: Parser) -> None:
    """Adds the options of ``mirrorproof jars``."""
    parser.add_argument("folder", type=caller_path, metavar="FOLDER", help="where to put them; made if it is not there")
    parser.add_argument("--demo", action="store_true", help="fetch the brokers of mirrorproof demo as well (42 MB)")
    parser.add_argument(
        "--spark", choices=SPARKS, default=_NEWEST, help=f"the Spark that the connector is for (default {_NEWEST})"
    )


def run(options: argparse.Namespace) -> int:
    """Fetches the jars into a folder that can be taken to a machine without a repository."""
    found = fetch(options.folder, connector(options.spark))
    if options.demo:
        fetch(options.folder, broker())
    print(f"{len(found)} jars for Spark {options.spark} are in {options.folder}; {JARS} names that folder")
    return ExitCode.DONE


def minor(version: str) -> str:
    """Returns the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def locked(names: str, unwanted: tuple[str, ...] = ()) -> list[Jar]:
    """Returns a set of locked jars.

    Args:
        names: the set.
        unwanted: prefixes of ``group:artifact`` that are left out.
    """
    from loosehanger.mirrorproof.jars import parse_lock  # slow to import

    listed = [jar for lock in _LOCKS for jar in parse_lock(shipped(lock).read_text(encoding="utf-8"))]
    return [jar for jar in listed if jar.set == names and not f"{jar.group}:{jar.artifact}".startswith(unwanted)]


def connector(version: str) -> list[Jar]:
    """Returns the locked jars of the connector for a Spark, of which the first two numbers of its version count."""
    return locked(_set_of(version))


def _set_of(version: str) -> str:
    return _SET if minor(version) == _NEWEST else f"{_SET}-{minor(version)}"


def broker() -> list[Jar]:
    """Returns the locked jars of a broker."""
    return locked("kafka", _OF_CONNECT)


def fetch(folder: Path, wanted: Sequence[Jar]) -> list[Path]:
    """Fetches locked jars, each checked by its hash; those that are present and intact stay.

    Args:
        folder: the jars are in its folder of their set's name.
        wanted: the jars.

    Raises:
        LabError: a jar cannot be fetched.
    """
    from loosehanger.mirrorproof.jars import fetch_missing  # slow to import

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        return fetch_missing(list(wanted), folder, REPOSITORY)


def there(place: Path, wanted: Sequence[Jar], made_by: str) -> list[Path]:
    """Returns the paths of locked jars in a folder of the user's.

    Args:
        place: the folder.
        wanted: the jars.
        made_by: what to do where one is missing, for the message.

    Raises:
        WrongUseError: a jar is missing, or is another file than the locked one.
    """
    from loosehanger.mirrorproof.jars import is_whole  # slow to import

    for jar in wanted:
        if not is_whole(jar, place / jar.path.name):
            raise WrongUseError(f"{JARS}: {place / jar.path.name} is missing or is another file; {made_by}")
    return [place / jar.path.name for jar in wanted]


def jars_for(version: str, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the connector's jars for a version of Spark.

    Raises:
        WrongUseError: the user's folder lacks a jar, or is for another version.
        LabError: a jar cannot be fetched.
    """
    if text := environment.get(JARS):
        return _given(caller_path(text), version)
    return fetch(cache(environment) / "jars", connector(version))


def _given(folder: Path, version: str) -> list[Path]:
    """The jars of the user's folder, checked by their hashes."""
    remedy = _REMEDY.format(version=minor(version))
    place = next((place for name in (_set_of(version), _SET) if (place := folder / name).is_dir()), folder)
    prefix = f"{_CONNECTOR}-"
    versions = {path.stem.removeprefix(prefix) for path in place.glob(f"{prefix}*.jar")}
    if minor(version) not in map(minor, versions):
        has = f"the connector for Spark {', '.join(sorted(versions))}" if versions else f"no {prefix}*.jar"
        raise WrongUseError(f"{JARS}: {folder} has {has}, and Spark is {version}; {remedy}")
    return there(place, connector(version), remedy)
