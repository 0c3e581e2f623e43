"""Measures how fast a backlog is mirrored to both Americas at once, beside what a broker and a bare copy loop can do.

    .lab/venv/bin/python -m scripts.bench.mirroring [--records N] [--compression ROUNDS]

For each variant a topic of three partitions is filled in Europe while the mirrors are paused; then both are resumed,
and the clock runs from the first record in a target to the last one. The variants run in their order and then in the
reverse order, since brokers get faster the longer they run. With ``--compression``, only the manifests' own compression
is compared with none, in turns on one lab, with records that a codec can compress.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer
from kafka.admin import KafkaAdminClient

from loosehanger.experiments.client import value
from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.connection import connection_for
from scripts.bench.common import (
    TARGETS,
    admin,
    configure,
    end_offsets,
    finished,
    kafka_tool,
    machine,
    processes,
    produce,
    rate_in,
    sandbox,
    table,
    there_and_back,
)
from scripts.sandbox import Kit

SIZE = 300
PARTITIONS = 3
QUIET_S = 4.0
DIFFERENT = 5000
"""How many different events there are, as compressible as orders."""
COMPRESSION = "producer.override.compression.type"


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records of each run (1,000,000)")
    parser.add_argument("--compression", type=int, metavar="ROUNDS", help="compare only the mirrors' compression")
    options = parser.parse_args()
    records = options.records
    if options.compression:
        print_compressions(records, options.compression)
        return
    found: dict[str, list[float]] = {}
    with sandbox() as kit:
        for number, (name, (worker, source)) in enumerate(there_and_back()):
            configure(kit, worker, source)
            if number == 0:
                for what, rate in baselines(kit, records).items():
                    found[what] = [rate]
            for region, rate in mirrored(kit, f"LH.BENCH{number}", records).items():
                found.setdefault(f"{name}, into {region}", []).append(rate)
                print(f"{name}, into {region}: {rate:,.0f} records/s", flush=True)
        found["bare copy loop, into both at once, each"] = [copy_loop(kit, records)]
    print(f"\n{records:,} records of {SIZE} bytes, {PARTITIONS} partitions; {machine()}\n")
    rows = [(name, joined(rates), joined(rates, SIZE / 1e6)) for name, rates in found.items()]
    print(table(("What", "records/s", "MB/s"), rows))


def print_compressions(records: int, rounds: int) -> None:
    """Mirrors with the manifests' compression and without any, in turns, and prints each rate and the medians."""
    found: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    with sandbox() as kit:
        configure(kit, {}, {})
        rests = [(ConnectClient.of(mirror.connect), mirror.connector) for mirror in kit.lab.mirrors]
        given = [rest.connectors()[name]["info"]["config"] for rest, name in rests]
        codecs = [given[0][COMPRESSION], "none"]
        payloads, chance = kit.home / "payloads", random.Random(SIZE)  # noqa: S311 - no secret
        payloads.write_bytes(b"".join(value(SIZE, chance) + b"\n" for _ in range(DIFFERENT)))
        mirrored(kit, "LH.WARM", records, payloads)
        for number in range(rounds):
            for codec in codecs if number % 2 else codecs[::-1]:
                for (rest, name), settings in zip(rests, given, strict=True):
                    rest.configure(name, settings | {COMPRESSION: codec})
                before = processor(kit)
                rates = list(mirrored(kit, f"LH.BENCH-{number}-{codec}", records, payloads).values())
                found.setdefault(codec, []).extend(rates)
                spent.setdefault(codec, []).append(processor(kit) - before)
                print(f"{codec}: {joined(rates)} records/s, {spent[codec][-1]:.1f} s of processor", flush=True)
    print(f"\n{records:,} records of {SIZE} bytes, {PARTITIONS} partitions; {machine()}\n")
    rows = [
        (codec, *(f"{statistics.median(of[codec]):,.1f}" for of in (found, spent)), joined(found[codec]))
        for codec in codecs
    ]
    print(table(("Compression", "records/s, median", "processor of the lab, s, median", "records/s"), rows))


def processor(kit: Kit) -> float:
    """Returns the processor time of a lab's processes in seconds, which other work on the machine hardly changes."""
    spent = 0.0
    for process in processes(kit):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            spent += times.user + times.system
    return spent


def joined(rates: Sequence[float], factor: float = 1.0) -> str:
    """Returns the figures of one row."""
    return " and ".join(f"{rate * factor:,.{0 if factor == 1.0 else 1}f}" for rate in rates)


def baselines(kit: Kit, records: int) -> dict[str, float]:
    """Measures the records a second that one broker takes and serves, with Kafka's own tools."""
    create(kit, "LH.BASE")
    for mirror in kit.lab.mirrors:
        ConnectClient.of(mirror.connect).act(mirror.connector, "pause")
    written = rate_in(finished(produce(kit, "LH.BASE", records, SIZE)))
    servers = connection_for(kit.lab.region("europe"), "admin").bootstrap_servers
    output = finished(
        kafka_tool(
            kit, "europe", "ConsumerPerformance", "--bootstrap-server", servers[0],
            "--topic", "LH.BASE", "--num-records", str(records), "--command-config", "{config}", "--hide-header",
        )
    )  # fmt: skip
    read = float(output.strip().splitlines()[-1].split(",")[-1])
    for mirror in kit.lab.mirrors:
        ConnectClient.of(mirror.connect).act(mirror.connector, "resume")
    delete(kit, "LH.BASE")
    return {"ProducerPerformance, one broker": written, "ConsumerPerformance, one broker": read}


def mirrored(kit: Kit, topic: str, records: int, payloads: Path | None = None) -> dict[str, float]:
    """Measures the records a second into each target."""
    mirrors = kit.lab.mirrors
    for mirror in mirrors:
        ConnectClient.of(mirror.connect).act(mirror.connector, "pause")
    create(kit, topic)
    finished(produce(kit, topic, records, SIZE, payloads=payloads))
    rates: dict[str, float] = {}
    watchers = [
        threading.Thread(target=lambda r=region: rates.__setitem__(r, arrival(kit, r, topic, records)))
        for region in TARGETS
    ]
    for mirror in mirrors:
        ConnectClient.of(mirror.connect).act(mirror.connector, "resume")
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join()
    delete(kit, topic)
    return rates


def arrival(kit: Kit, region: str, topic: str, records: int) -> float:
    """Measures the records a second from the first to the last look at which a target's end offsets had grown."""
    client = admin(kit, region)
    try:
        started, seen, changed, at_start = time.monotonic(), 0, 0.0, 0
        first = None
        while True:
            now, end = time.monotonic(), end_offsets(client, topic)
            if end > seen:
                if first is None:
                    first, at_start = now, end
                seen, changed = end, now
            elif seen >= records and now - changed > QUIET_S:
                break
            if now - started > 600:
                message = f"{region}: {seen} of {records} records after 600 s"
                raise TimeoutError(message)
            time.sleep(0.1)
    finally:
        client.close()
    assert first is not None
    # Transaction markers take offsets as well, so the share of records in the offsets is the same throughout.
    return (seen - at_start) / (changed - first) * records / seen


def copy_loop(kit: Kit, records: int) -> float:
    """Measures the records a second into each of the two targets by librdkafka, without exactly-once: an ideal."""
    topic = "LH.COPY"
    for mirror in kit.lab.mirrors:
        ConnectClient.of(mirror.connect).act(mirror.connector, "pause")
    for region in ("europe", *TARGETS):
        create(kit, topic, region)
    finished(produce(kit, topic, records, SIZE))
    seconds: dict[str, float] = {}
    loops = [
        threading.Thread(target=lambda r=region: seconds.__setitem__(r, copy(kit, r, topic, records)))
        for region in TARGETS
    ]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    return records / max(seconds.values())


def copy(kit: Kit, target: str, topic: str, records: int) -> float:
    """Copies a topic from Europe to a target; returns the seconds that it took."""
    consumer = Consumer(
        librdkafka(kit, "europe")
        | {"group.id": f"bench-{target}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    producer = Producer(
        librdkafka(kit, target)
        | {"acks": "all", "linger.ms": 20, "batch.size": 327680, "queue.buffering.max.messages": 1_000_000}
    )
    consumer.subscribe([topic])
    copied, started = 0, 0.0
    while copied < records:
        for message in consumer.consume(5000, timeout=1.0):
            started = started or time.monotonic()
            while True:
                try:
                    producer.produce(
                        topic,
                        message.value(),
                        message.key(),
                        message.partition() or 0,
                        timestamp=message.timestamp()[1],
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            copied += 1
        producer.poll(0)
    producer.flush(60)
    consumer.close()
    return time.monotonic() - started


def librdkafka(kit: Kit, region: str) -> dict[str, Any]:
    """Returns librdkafka's configuration for a region's administrator."""
    connection = connection_for(kit.lab.region(region), "admin")
    return {
        "bootstrap.servers": ",".join(connection.bootstrap_servers),
        "security.protocol": connection.security_protocol,
        "sasl.mechanism": connection.sasl_mechanism,
        "sasl.username": connection.username,
        "sasl.password": connection.password,
        "ssl.ca.location": str(connection.ca_file),
    }


def create(kit: Kit, topic: str, region: str = "europe") -> None:
    """Creates a topic for a run."""
    client = admin(kit, region)
    client.create_topics({topic: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
    client.close()


def delete(kit: Kit, topic: str) -> None:
    """Deletes a topic in every region."""
    for region in ("europe", *TARGETS):
        client: KafkaAdminClient = admin(kit, region)
        if topic in client.list_topics():
            client.delete_topics([topic])
        client.close()


if __name__ == "__main__":
    main()
