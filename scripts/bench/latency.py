"""Time from production in Europe to visibility in a target, for a consumer that reads what is committed.

    .lab/venv/bin/python -m scripts.bench.latency [--rate N] [--seconds N]

Kafka's ProducerPerformance writes at a steady rate; a consumer in each target takes the time of arrival less the
record's own timestamp. All clocks are the same one. The first seconds do not count. The variants run in their order and
then the other way round, since brokers get quicker the longer they run.
"""

from __future__ import annotations

import argparse
import threading
import time

from kafka import KafkaConsumer, TopicPartition

from loosehanger.kafka.connection import connection_for
from scripts.bench.common import (
    TARGETS,
    configure,
    finished,
    machine,
    percentiles,
    produce,
    sandbox,
    table,
    there_and_back,
)
from scripts.bench.mirroring import create, delete
from scripts.sandbox import Kit

SIZE = 300
WARM_UP_S = 10
ARRIVAL_S = 30


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="events a second (1,000)")
    parser.add_argument("--seconds", type=int, default=40, help="seconds of each run (40)")
    options = parser.parse_args()
    rows = []
    with sandbox() as kit:
        for number, (name, (worker, source)) in enumerate(there_and_back()):
            configure(kit, worker, source)
            for region, latencies in run(kit, f"LH.LATENCY{number}", options.rate, options.seconds).items():
                p50, p95, p99 = percentiles(latencies)
                rows.append((name, region, f"{p50:.0f}", f"{p95:.0f}", f"{p99:.0f}", len(latencies)))
                print(*rows[-1], flush=True)
    print(f"\n{options.rate} events/s of {SIZE} bytes for {options.seconds} s; {machine()}\n")
    print(table(("Settings", "Target", "p50 ms", "p95 ms", "p99 ms", "Events"), rows))


def run(kit: Kit, topic: str, rate: int, seconds: int) -> dict[str, list[float]]:
    """Measures the milliseconds of every event, by target."""
    create(kit, topic)
    latencies: dict[str, list[float]] = {region: [] for region in TARGETS}
    ending = threading.Event()
    watchers = [
        threading.Thread(target=watch, args=(kit, region, topic, latencies[region], ending)) for region in TARGETS
    ]
    for watcher in watchers:
        watcher.start()
    finished(produce(kit, topic, rate * seconds, SIZE, throughput=rate))
    # What is still on its way counts, too.
    deadline = time.monotonic() + ARRIVAL_S
    while time.monotonic() < deadline and min(map(len, latencies.values())) < rate * seconds:
        ending.wait(0.1)
    ending.set()
    for watcher in watchers:
        watcher.join()
    delete(kit, topic)
    return {region: found[rate * WARM_UP_S :] for region, found in latencies.items()}


def watch(kit: Kit, region: str, topic: str, latencies: list[float], ending: threading.Event) -> None:
    """Reads a topic from its appearance on, and notes how old each record is."""
    # Unlike the prover's, the administrator's way into a region does not lead through a link.
    arguments = connection_for(kit.lab.region(region), "admin").kafka_python()
    with KafkaConsumer(
        **arguments, isolation_level="read_committed", auto_offset_reset="earliest", metadata_max_age_ms=1000
    ) as consumer:
        while not ending.is_set() and topic not in consumer.topics():
            ending.wait(0.5)
        consumer.assign([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()])
        consumer.seek_to_beginning()
        while not ending.is_set():
            batches = consumer.poll(timeout_ms=100)
            now = time.time() * 1000
            latencies.extend(now - record.timestamp for batch in batches.values() for record in batch)


if __name__ == "__main__":
    main()
