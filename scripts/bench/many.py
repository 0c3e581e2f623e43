"""Measures what a proof of many topics and partitions costs: wall and processor time, its steps, and round trips.

    .lab/venv/bin/python -m scripts.bench.many [--topics 300] [--partitions 2100] [--link-ms 500] [--beside FOLDER]

Two plain brokers of this machine have the same topics. One topic in ten has many records, the others have few in half
of their partitions. ``mirrorproof doctor``, ``plan`` and ``prove --config`` run as commands of their own.

With ``--link-ms`` everything that reads the target goes through a link with that round trip. With ``--beside FOLDER``
the same commands of another checkout, which must be installed, run in turn with these.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka.admin import NewTopic

from loosehanger.paths import ROOT, lab_home
from scripts.bench.common import Cost, machine, measured, table
from scripts.bench.counting_link import CountingLink
from tests.lab.broker import Broker, running
from tests.lab.test_fetching import librdkafka

CLUSTERS = ("TWFueVBhcnRpdGlvbnMwMQ", "TWFueVBhcnRpdGlvbnMwMg")
WAIT_S = 300
HEAP = ("-Xmx1g",)
"""The heap of each broker: enough for 10,000 partitions."""
AT_ONCE = 200
"""How many topics one request creates."""
_LAST_LINES = 30
_LIMITED = "limited proof"
_LINKED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:{broker},LINK://127.0.0.1:{second},CONTROLLER://127.0.0.1:{controller}",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,LINK:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
}


def main() -> None:
    """Measures, and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=300, help="topics on each side (300)")
    parser.add_argument("--partitions", type=int, default=2100, help="partitions of all topics together (2,100)")
    parser.add_argument(
        "--records", type=int, default=1000, help="records in each partition of every tenth topic (1,000)"
    )
    parser.add_argument("--link-ms", type=float, default=0, help="round trip to the target, in milliseconds (0)")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout, in turn with this one")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each proof (1)")
    parser.add_argument("--timeout", type=int, default=60, help="the proof's --timeout, in seconds (60)")
    parser.add_argument("--limit", type=int, metavar="SECONDS", help="run one more proof, with this --limit")
    parser.add_argument(
        "--only", choices=("doctor", "plan", "prove"), action="append", default=[], help="run this command alone (all)"
    )
    options = parser.parse_args()
    checkouts = [ROOT, *([options.beside.absolute()] if options.beside else [])]
    with brokers(options.link_ms) as (source, target, link), tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        with ThreadPoolExecutor(2) as threads:
            filling = [
                threads.submit(fill, broker, options.topics, options.partitions, options.records)
                for broker in (source, target)
            ]
        records = sum(filled.result() for filled in filling)
        print(
            f"{options.topics} topics, {options.partitions} partitions and {records // 2:,} records on each side, "
            f"written in {time.monotonic() - began:.0f} s; {machine()}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        file = configuration(Path(name), source, target, link)
        bench = Bench(Path(name), file, link, options.timeout, options.limit)
        commands = list(options.only or ("doctor", "plan", "prove"))
        for command in [*commands, *([_LIMITED] if options.limit else [])]:
            for _ in range(options.rounds if command == "prove" else 1):
                for checkout in checkouts:
                    bench.run(command, checkout)


@contextlib.contextmanager
def brokers(link_ms: float) -> Iterator[tuple[Broker, Broker, CountingLink | None]]:
    """Starts two brokers, and a link to the second one if it has a delay."""
    # With many partitions, an index of the usual size takes too much memory: it is mapped in its full size.
    further = {"log.index.size.max.bytes": "65536", "log.cleaner.enable": "false"}
    with contextlib.ExitStack() as open_now:
        folders = [Path(open_now.enter_context(tempfile.TemporaryDirectory(prefix="lab-bench-"))) for _ in CLUSTERS]
        link = open_now.enter_context(CountingLink(link_ms / 2000)) if link_ms else None
        linked = {}
        if link:
            way = f"SASL_PLAINTEXT://127.0.0.1:{{broker}},LINK://127.0.0.1:{link.port}"
            linked = _LINKED | {"advertised.listeners": way}
            linked |= {"listener.name.link.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram."
                       "ScramLoginModule required;"}  # fmt: skip
        source = open_now.enter_context(running(folders[0], cluster=CLUSTERS[0], further=further, jvm=HEAP))
        target = open_now.enter_context(running(folders[1], cluster=CLUSTERS[1], further=further | linked, jvm=HEAP))
        if link:
            link.lead_to(target.second)
        yield source, target, link


def fill(broker: Broker, topics: int, partitions: int, records: int) -> int:
    """Creates the topics and writes their records, the same on each side; returns how many."""
    counts = {f"many.{number}": partitions // topics + (number < partitions % topics) for number in range(topics)}
    client, names = broker.admin(), list(counts)
    for first in range(0, topics, AT_ONCE):
        chunk = names[first : first + AT_ONCE]
        client.create_topics([NewTopic(name, counts[name], 1) for name in chunk], timeout_ms=WAIT_S * 1000)
        client.wait_for_topics(chunk, timeout_ms=WAIT_S * 1000)
    client.close()
    writer = Producer(librdkafka(broker) | {"queue.buffering.max.messages": 1_000_000, "linger.ms": 200})
    begin, written = int(time.time() * 1000) // 3_600_000 * 3_600_000 - 7_200_000, 0
    for number, (name, count) in enumerate(counts.items()):
        for partition in range(count):
            few = partition % 2 * (1 + partition % 3)
            for record in range(records if number % 10 == 0 else few):
                key, value = b"%d" % record, b"%d of %d" % (record, partition)
                while True:
                    try:
                        writer.produce(name, value, key, partition, timestamp=begin + record * 20)
                        break
                    except BufferError:
                        writer.poll(0.1)
                written += 1
        writer.poll(0)
    if writer.flush(WAIT_S):
        message = "not all records were acknowledged"
        raise TimeoutError(message)
    return written


def configuration(folder: Path, source: Broker, target: Broker, link: CountingLink | None) -> Path:
    """Writes the file that names both clusters and the flow, and ``old.properties`` and ``new.properties``."""
    for name, broker, port in (("old", source, 0), ("new", target, link.port if link else 0)):
        text = broker.properties("admin").read_text(encoding="utf-8")
        text = text.replace(f"127.0.0.1:{broker.port}", f"127.0.0.1:{port}") if port else text
        (folder / f"{name}.properties").write_text(text, encoding="utf-8")
    path = folder / "flows.yaml"
    path.write_text(
        f"clusters:\n  old: {{file: {folder / 'old.properties'}}}\n  new: {{file: {folder / 'new.properties'}}}\n"
        "flows:\n  - {name: many, source: old, target: new, patterns: ['many\\..*']}\n",
        encoding="utf-8",
    )
    return path


class Bench:
    """Runs the commands, and prints what each cost.

    Args:
        folder: where it writes its files.
        file: the configuration file.
        link: the link to the target.
        timeout_s: the proof's ``--timeout``.
        limit_s: its ``--limit``, for the command ``limited proof``.
    """

    def __init__(
        self, folder: Path, file: Path, link: CountingLink | None, timeout_s: int, limit_s: int | None = None
    ) -> None:
        self._folder, self._file, self._link = folder, file, link
        self._prove = ["prove", "--config", str(file), "--json", f"--timeout={timeout_s}"]
        self._limit_s = limit_s

    def run(self, command: str, checkout: Path) -> None:
        """Runs a command of a checkout."""
        python = str((checkout / ".lab" / "venv" if checkout != ROOT else lab_home() / "venv") / "bin" / "python")
        home = checkout / ".lab" if checkout != ROOT else lab_home()
        steps = self._folder / "steps.json"
        steps.unlink(missing_ok=True)
        arguments = {
            "doctor": ["doctor", str(self._folder / "old.properties"), str(self._folder / "new.properties"), "--json"],
            "plan": ["plan", str(self._file), "--json"],
            "prove": self._prove,
            _LIMITED: [*self._prove, f"--limit={self._limit_s}"],
        }[command]
        own = [python, "-P", "-c", "import sys; from loosehanger.mirrorproof.command_line import run; sys.exit(run())"]
        if "prove" in arguments:
            own = [python, "-P", str(ROOT / "scripts" / "bench" / "phases.py"), str(steps)]
        environment = {**os.environ, "MIRRORPROOF_JARS": str(home / "jars"), "XDG_CACHE_HOME": str(self._folder)}
        before = self._link.counts() if self._link else Counter[str]()
        errors = self._folder / "errors"
        found = measured([*own, *arguments], self._folder, environment, errors)
        print(f"\n{command} of {checkout}: {said(command, found)}", flush=True)
        if self._link:
            requests = self._link.counts() - before
            print(f"requests through the link: {sum(requests.values())}, {dict(requests.most_common())}", flush=True)
        if not found.output.strip():
            print("\n".join(errors.read_text(encoding="utf-8").splitlines()[-_LAST_LINES:]), flush=True)
        if steps.exists():
            show(json.loads(steps.read_text(encoding="utf-8")))


def said(command: str, found: Cost) -> str:
    """Returns what a command cost, and what it found."""
    try:
        document: Mapping[str, Any] = json.loads(found.output)
    except ValueError:
        document = {}
    answer = {
        "doctor": f"ok {document.get('ok')}",
        "plan": f"{document.get('totals')}, estimate {document.get('estimate_s')} s",
    }.get(command, f"{document.get('verdict')} {str(document.get('reasons'))[:300]}")
    return (
        f"{found.seconds:.1f} s, {found.processor:.1f} s of processor, {found.memory / 2**30:.2f} GiB, "
        f"exit code {found.code}; {answer}; load {os.getloadavg()[0]:.1f}"
    )


def show(found: Mapping[str, Any]) -> None:
    """Prints the steps of a proof, which overlap where several threads run them."""
    rows: Sequence[tuple[str, ...]] = [
        (name, str(step["at"]), f"{step['s']:.1f}", f"{step['cpu_s']:.1f}", str(step["n"]))
        for name, step in sorted(found["steps"].items(), key=lambda item: float(item[1]["at"]))
    ]
    print(table(("step", "begins at s", "s", "processor s of all threads", "times"), rows))
    print(f"Python's own processor time {found['python_cpu_s']:.1f} s; requests {found['requests']}", flush=True)


if __name__ == "__main__":
    main()
