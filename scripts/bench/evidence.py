"""What a record of a large proof costs, with evidence and without it, beside reading alone.

    .lab/venv/bin/python -m scripts.bench.evidence [--millions N ...] [--size BYTES] [--rounds N] [--try OPTIONS ...]

Two plain brokers of this machine hold the same topics of three partitions, one for each size: the second one begins
with a copy of the first one's files. ``mirrorproof prove`` compares them, in turn without and with ``--evidence``, and
ConsumerPerformance reads both sides. With ``--try`` the proof runs with further options as well, each for itself.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kafka.admin import NewTopic

from loosehanger.errors import LabError
from loosehanger.paths import ROOT, lab_home
from scripts.bench.common import Cost, finished, machine, measured, started, table, tool
from tests.lab.broker import Broker, running

CLUSTERS = ("RXZpZGVuY2VPZlJlY29yZA", "RXZpZGVuY2VPZkNvcGllcw")
PARTITIONS = 3
WAIT_MS = 60_000
_RUN = "import sys; from loosehanger.mirrorproof.command_line import run; sys.exit(run())"
_FURTHER = {"log.flush.scheduler.interval.ms": "2000", "log.flush.interval.ms": "2000"}
"""Little is left to recover when the first broker is killed."""


def main() -> None:
    """Measures, and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[4, 20], help="millions of records (4 20)")
    parser.add_argument("--size", type=int, default=130, help="bytes of a record (130)")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each proof (1)")
    parser.add_argument("--no-evidence", action="store_true", help="leave the proofs with evidence out")
    parser.add_argument("--try", action="append", default=[], dest="tries", metavar="OPTIONS", help="of the proof")
    options = parser.parse_args()
    sizes = sorted(int(millions * 1_000_000) for millions in options.millions)
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as name, both(Path(name), sizes, options.size) as brokers:
        print(f"{options.size} bytes, {PARTITIONS} partitions; {machine()}", flush=True)
        bench = EvidenceBench(Path(name), brokers)
        kinds = {"proof": (), **({} if options.no_evidence else {"with evidence": bench.evidence()})}
        kinds |= {text: tuple(shlex.split(text)) for text in options.tries}
        costs: dict[str, list[Cost]] = {}
        for records, _ in itertools.product(sizes, range(options.rounds)):
            for kind, arguments in kinds.items():
                costs.setdefault(kind, []).append(bench.prove(records, kind, arguments))
            costs.setdefault("ConsumerPerformance", []).append(bench.read(records))
    show(costs, [records for records in sizes for _ in range(options.rounds)])


@contextlib.contextmanager
def both(folder: Path, sizes: Sequence[int], size: int) -> Iterator[tuple[Broker, Broker]]:
    """Runs two brokers that have the same records."""
    homes = [folder / "source", folder / "target"]
    for home in homes:
        home.mkdir()
    with running(homes[0], cluster=CLUSTERS[0], further=_FURTHER) as broker:
        fill(broker, sizes, size)
    shutil.copytree(homes[0] / "data", homes[1] / "data")
    identity = homes[1] / "data" / "meta.properties"
    identity.write_text(identity.read_text(encoding="utf-8").replace(*CLUSTERS), encoding="utf-8")
    with (
        running(homes[0], cluster=CLUSTERS[0], further=_FURTHER) as source,
        running(homes[1], cluster=CLUSTERS[1], further=_FURTHER) as target,
    ):
        yield source, target


def fill(broker: Broker, sizes: Sequence[int], size: int) -> None:
    """Creates a topic for each size, and writes its records."""
    client = broker.admin()
    names = [topic_of(records) for records in sizes]
    client.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
    client.wait_for_topics(names, timeout_ms=WAIT_MS)
    client.close()
    for records in sizes:
        writer = tool(
            broker.properties("admin"), "ProducerPerformance", "--topic", topic_of(records),
            "--num-records", str(records), "--record-size", str(size), "--throughput", "-1",
            "--command-config", "{config}", "--command-property", "acks=1", "batch.size=65536", "linger.ms=5",
        )  # fmt: skip
        finished(started(writer))


def topic_of(records: int) -> str:
    """Returns the name of the topic with this many records."""
    return f"records.{records}"


class EvidenceBench:
    """Runs the commands, and prints what each cost.

    Args:
        folder: to write in.
        brokers: source and target.
    """

    def __init__(self, folder: Path, brokers: tuple[Broker, Broker]) -> None:
        self._folder, self._brokers = folder, brokers
        own = {"MIRRORPROOF_JARS": str(lab_home() / "jars"), "XDG_CACHE_HOME": str(folder), "PYTHONPATH": str(ROOT)}
        self._environment: Mapping[str, str] = {**os.environ, **own}

    def evidence(self) -> tuple[str, ...]:
        """Makes a key, and returns the options of a proof with evidence."""
        key = self._folder / "key"
        self._command("key", str(key))
        return ("--evidence", str(self._folder / "evidence.json"), "--sign", str(key))

    def prove(self, records: int, kind: str, arguments: Sequence[str]) -> Cost:
        """Proves a topic."""
        ends = [str(broker.properties("admin")) for broker in self._brokers]
        found = self._command("prove", *ends, "--topics", topic_of(records), "--timeout", "5", "--json", *arguments)
        if not found.output or json.loads(found.output)["verdict"] != "proved":
            raise LabError(f"{kind}: {found.output}{(self._folder / 'errors').read_text(encoding='utf-8')[-2000:]}")
        print(f"{records:,} {kind}: {said(found)}; load {os.getloadavg()[0]:.1f}", flush=True)
        return found

    def read(self, records: int) -> Cost:
        """Reads both sides, one after the other."""
        found = [self._read(broker, records) for broker in self._brokers]
        cost = Cost(sum(one.seconds for one in found), sum(one.processor for one in found), 0, 0, "")
        print(f"{records:,} ConsumerPerformance: {said(cost)}; load {os.getloadavg()[0]:.1f}", flush=True)
        return cost

    def _read(self, broker: Broker, records: int) -> Cost:
        reader = tool(
            broker.properties("admin"), "ConsumerPerformance", "--bootstrap-server", f"127.0.0.1:{broker.port}",
            "--topic", topic_of(records), "--num-records", str(records), "--command-config", "{config}",
            "--hide-header",
        )  # fmt: skip
        found = measured(reader.command, self._folder, reader.environment, self._folder / "errors")
        seconds = records / float(found.output.strip().splitlines()[-1].split(",")[-1])
        return found._replace(seconds=seconds)

    def _command(self, *arguments: str) -> Cost:
        command = [sys.executable, "-P", "-c", _RUN, *arguments]
        return measured(command, self._folder, self._environment, self._folder / "errors")


def said(found: Cost) -> str:
    """Formats what a command cost."""
    return f"{found.seconds:.1f} s, {found.processor:.1f} s of processor, {found.memory / 2**30:.2f} GiB"


def show(costs: Mapping[str, Sequence[Cost]], sizes: Sequence[int]) -> None:
    """Prints what each kind cost, and what a record more costs beside reading it."""
    rows = [
        (kind, f"{records:,}", f"{cost.seconds:.1f}", f"{cost.processor:.1f}", f"{cost.memory / 2**30:.2f}")
        for kind, found in costs.items()
        for records, cost in zip(sizes, found, strict=True)
    ]
    print(table(("what", "records on a side", "s", "processor s", "peak memory GiB"), rows))
    few, many = min(sizes), max(sizes)
    if few == many:
        return
    reading = slope(costs["ConsumerPerformance"], sizes)
    for kind, found in costs.items():
        wall, processor = slope(found, sizes)
        print(
            f"{kind}, from {few:,} to {many:,}: {wall:.2f} µs a record, {wall / reading[0]:.2f} times "
            f"ConsumerPerformance's; processor {processor:.2f} µs, {processor / reading[1]:.2f} times"
        )


def slope(found: Sequence[Cost], sizes: Sequence[int]) -> tuple[float, float]:
    """Microseconds of wall and processor time for each record more, from the smallest size to the largest."""
    ends = [
        [cost for cost, records in zip(found, sizes, strict=True) if records == size]
        for size in (min(sizes), max(sizes))
    ]
    records = 2 * (max(sizes) - min(sizes))
    least, most = (
        (sum(one.seconds for one in end) / len(end), sum(one.processor for one in end) / len(end)) for end in ends
    )
    return (most[0] - least[0]) * 1e6 / records, (most[1] - least[1]) * 1e6 / records


if __name__ == "__main__":
    main()
