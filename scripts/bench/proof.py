"""Measures what a proof costs: records a second and memory, beside reading alone and a comparison in plain Python.

    .lab/venv/bin/python -m scripts.bench.proof [--millions N ...] [--size BYTES]

For each size a topic of three partitions is filled in Europe and mirrored to North America; then ``prove`` compares the
two clusters, Kafka's ConsumerPerformance reads the same topics, and for the smallest size a single process with
kafka-python counts records by their content. The other mirror is stopped meanwhile.

With ``--beside COMMAND`` another ``prove``, such as an older checkout's, compares the same clusters in turn with it.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import shlex
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence

from kafka import KafkaConsumer, TopicPartition

from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.connection import connection_for
from scripts.bench.common import (
    admin,
    configure,
    cost,
    end_offsets,
    finished,
    kafka_tool,
    machine,
    produce,
    sandbox,
    table,
)
from scripts.bench.mirroring import create, delete
from scripts.sandbox import Kit

TARGET, OTHER = "north-america", "south-america"
LOOK_S = 0.2
ARRIVAL_S = 1800
READ_S = 1800.0


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 5, 20], help="millions of records (1 5 20)")
    parser.add_argument("--size", type=int, default=300, help="bytes of a record (300)")
    parser.add_argument("--beside", metavar="COMMAND", help="another prove command, run in turn with this one")
    parser.add_argument("--rounds", type=int, default=5, help="proofs of each command with --beside (5)")
    arguments = parser.parse_args()
    sizes = sorted(int(millions * 1_000_000) for millions in arguments.millions)
    rows, costs = [], []
    with sandbox() as kit:
        configure(kit, {}, {})
        (other,) = kit.lab.region(OTHER).mirrors
        ConnectClient.of(other.connect).act(other.connector, "stop")
        for number, records in enumerate(sizes):
            topic = f"LH.PROOF{number}"
            create(kit, topic)
            finished(produce(kit, topic, records, arguments.size))
            wait_until_mirrored(kit, topic, records)
            if arguments.beside:
                compare(kit, topic, records, shlex.split(arguments.beside), arguments.rounds)
                delete(kit, topic)
                continue
            seconds, memory = prove(kit, topic)
            reading = sum(read(kit, region, topic, records) for region in ("europe", TARGET))
            python = in_python(kit, topic) if number == 0 else None
            rows.append(
                (
                    f"{records:,}",
                    f"{seconds:.1f}",
                    f"{2 * records / seconds:,.0f}",
                    f"{2 * records * arguments.size / seconds / 1e6:.1f}",
                    f"{2 * records / reading:,.0f}",
                    f"{seconds / reading:.2f}",
                    "-" if python is None else f"{2 * records / python:,.0f}",
                    f"{memory / 2**30:.2f}",
                )
            )
            costs.append((2 * records, seconds, reading))
            print(*rows[-1], flush=True)
            delete(kit, topic)
    if not rows:
        print(machine())
        return
    print(f"\nRecords of {arguments.size} bytes on either side, 3 partitions; {machine()}\n")
    header = (
        *("records on a side", "proof s", "proof records/s", "MB/s", "ConsumerPerformance records/s"),
        *("proof s / reading s", "kafka-python records/s", "peak memory GiB"),
    )
    print(table(header, rows))
    for (few, *least), (many, *most) in itertools.pairwise(costs):
        proving, reading = ((end - begin) / (many - few) for begin, end in zip(least, most, strict=True))
        print(
            f"\nFrom {few:,} to {many:,} records: prove {1 / proving:,.0f} records/s, ConsumerPerformance "
            f"{1 / reading:,.0f} records/s, {proving / reading:.2f} times its cost"
        )


def compare(kit: Kit, topic: str, records: int, other: list[str], rounds: int) -> None:
    """Prints what each of two proofs of a topic took, in turn, and the ratio of each pair; the first pair warms up."""
    pairs = [(prove(kit, topic)[0], prove(kit, topic, other)[0]) for _ in range(rounds + 1)][1:]
    ratios = [this / that for this, that in pairs]
    print(
        f"{records:,} records on a side: "
        + ", ".join(f"{this:.1f}/{that:.1f}" for this, that in pairs)
        + f" s; this/other min {min(ratios):.3f}, median {statistics.median(ratios):.3f}, max {max(ratios):.3f}",
        flush=True,
    )


PROVE = (sys.executable, "-P", "-m", "loosehanger.cli", "prove")


def wait_until_mirrored(kit: Kit, topic: str, records: int) -> None:
    """Waits until the target has as many offsets as there are records, and its end offsets no longer grow."""
    client = admin(kit, TARGET)
    deadline, seen, since = time.monotonic() + ARRIVAL_S, 0, time.monotonic()
    while seen < records or time.monotonic() - since < 5:
        end = end_offsets(client, topic)
        if end > seen:
            seen, since = end, time.monotonic()
        if time.monotonic() > deadline:
            message = f"{seen} of {records} records after {ARRIVAL_S} s"
            raise TimeoutError(message)
        time.sleep(LOOK_S)
    client.close()


def prove(kit: Kit, topic: str, command: Sequence[str] = PROVE) -> tuple[float, int]:
    """Returns the seconds of a whole proof, Spark's start included, and the peak memory of its processes in bytes."""
    clients = {region: str(kit.lab.region(region).clients["prover"]) for region in ("europe", TARGET)}
    found = cost(
        kit,
        [
            *(*command, "--json", "--topics", topic.replace(".", r"\.")),
            *("--source-config", clients["europe"], "--target-config", clients[TARGET]),
        ],
    )
    document = json.loads(found.output)
    if document["verdict"] != "proved":
        raise AssertionError(document["reasons"])
    return found.seconds, found.memory


def read(kit: Kit, region: str, topic: str, records: int) -> float:
    """Returns the seconds that ConsumerPerformance needs to read a topic."""
    servers = connection_for(kit.lab.region(region), "admin").bootstrap_servers
    output = finished(
        kafka_tool(
            kit, region, "ConsumerPerformance", "--bootstrap-server", servers[0],
            "--topic", topic, "--num-records", str(records), "--command-config", "{config}", "--hide-header",
        )
    )  # fmt: skip
    return records / float(output.strip().splitlines()[-1].split(",")[-1])


def in_python(kit: Kit, topic: str) -> float:
    """Returns the seconds that one process needs to compare both sides with kafka-python and a multiset of hashes."""
    started = time.monotonic()
    found: Counter[tuple[int, bytes]] = Counter()
    for region, sign in (("europe", 1), (TARGET, -1)):
        arguments = connection_for(kit.lab.region(region), "prover").kafka_python()
        with KafkaConsumer(**arguments, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            deadline = time.monotonic() + READ_S
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                if time.monotonic() >= deadline:
                    message = f"not read to the end within {READ_S:.0f} s"
                    raise TimeoutError(message)
                for partition, batch in consumer.poll(timeout_ms=500, max_records=5000).items():
                    for record in batch:
                        content = b"%r|%r|%d" % (record.key, record.value, record.timestamp)
                        found[partition.partition, hashlib.sha256(content).digest()] += sign
    if any(found.values()):
        message = "the sides differ"
        raise AssertionError(message)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
