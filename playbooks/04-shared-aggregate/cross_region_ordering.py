"""Writes one order in every region at the same moment, all with one key; shows the order in which they arrive.

Run it from the root of the kit while the scenario is set up; README.md says how.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from loosehanger.errors import ExitCode, LabError, run_command
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.patches import prepare
from loosehanger.lab.mirrors.lineage import Place, copies
from loosehanger.lab.programs import consumers
from loosehanger.lab.record import Lab, load_lab

TOPIC = "LH.ORDERS"
BOUND_S = 30.0


class Listener(threading.Thread):
    """Waits in one region for a key, in its own topic and in the copies of the others'.

    Args:
        lab: what is set up.
        region: where to listen.
        user: the user that reads.
        key: what to wait for.
    """

    def __init__(self, lab: Lab, region: str, user: str, key: bytes) -> None:
        super().__init__(name=f"listener-{region}", daemon=True)
        self.region = region
        self.heard: dict[str, float] = {}
        """When the order of each region arrived here, in seconds of the monotonic clock."""
        self.ready = threading.Event()
        self._key = key
        self._origins = {TOPIC: region}
        for other in lab.regions:
            for copy in copies(lab.mirrors, Place(other, TOPIC)):
                if copy.region == region:
                    self._origins[copy.topic] = other
        self._consumer = KafkaConsumer(
            **connection_for(lab.region(region), user).kafka_python(),
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=20,
            allow_auto_create_topics=False,
        )
        self._partitions = [
            TopicPartition(topic, number)
            for topic in self._origins
            for number in self._consumer.partitions_for_topic(topic) or ()
        ]
        self._consumer.assign(self._partitions)
        self._consumer.seek_to_end()

    def run(self) -> None:
        """Reads until all orders have arrived, or the bound has passed."""
        for partition in self._partitions:
            self._consumer.position(partition)  # Fixes the start before anything is written.
        self._consumer.poll(timeout_ms=20)
        self.ready.set()
        deadline = time.monotonic() + BOUND_S
        while len(self.heard) < len(self._origins) and time.monotonic() < deadline:
            for partition, records in self._consumer.poll(timeout_ms=20).items():
                if any(record.key == self._key for record in records):
                    self.heard.setdefault(self._origins[partition.topic], time.monotonic())
        self._consumer.close(autocommit=False)


def main() -> int:
    """Writes the orders, and shows when each arrived where.

    Returns:
        0 if all orders arrived in all regions.

    Raises:
        LabError: one is missing in a region.
    """
    prepare(lambda line: print(line, file=sys.stderr))
    lab = load_lab()
    key = str(uuid.uuid4()).encode()
    listeners = [Listener(lab, one.region, one.user, key) for one in consumers(lab.topology)]
    producers = {}
    for listener in listeners:
        settings = connection_for(lab.region(listener.region), "producer").kafka_python()
        producers[listener.region] = KafkaProducer(**settings, acks="all", allow_auto_create_topics=False)
        producers[listener.region].partitions_for(TOPIC)  # Fetches metadata, so that all are ready to send.
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.ready.wait(BOUND_S)
    written = time.monotonic()
    for region, producer in producers.items():
        order = {"id": key.decode(), "description": "M Denim Straight Jeans", "price": 29.99, "quantity": 1}
        producer.send(TOPIC, key=key, value=json.dumps({**order, "region": region}).encode())
    for producer in producers.values():
        producer.close()
    print(f"order {key.decode()}, written in {len(producers)} regions at the same moment")
    for listener in listeners:
        listener.join(BOUND_S)
        if len(listener.heard) < len(producers):
            raise LabError(
                f"{listener.region} received {len(listener.heard)} of {len(producers)} orders; see ./lab status"
            )
        heard = sorted(listener.heard.items(), key=lambda item: item[1])
        times = ", ".join(f"{region} ({(at - written) * 1000:,.0f} ms)" for region, at in heard)
        print(f"{listener.region} hears: {times}")
    orders = {tuple(sorted(listener.heard, key=listener.heard.__getitem__)) for listener in listeners}
    print(f"{len(orders)} different orders of the same events")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(run_command(main))
