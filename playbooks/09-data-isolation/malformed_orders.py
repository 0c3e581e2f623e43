"""Writes three malformed records into Europe's orders, and shows what of them arrives in North America.

Run it from the root of the kit while the scenario is set up; README.md says how.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from loosehanger.errors import ExitCode, LabError, run_command
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.patches import prepare
from loosehanger.lab.record import Lab, load_lab

SOURCE, TARGET = "europe", "north-america"
TOPIC, COPY = "LH.ORDERS", "europe.LH.ORDERS.CLEARED"
BOUND_S = 60.0
ORDER = {
    "id": "odd",
    "customer": "Iris Visser",
    "description": "M Denim Straight Jeans",
    "price": 29.99,
    "gift": {"from": {"customerid": "4711", "region": "EU"}, "lines": [{"customer": "Bo Visser", "text": "Hi"}]},
}
"""A customer in the usual field, and three more traces of customers."""
HEADERS = [("shop", b"Utrecht"), ("signed-in-as", b"iris@example.com")]


def main() -> int:
    """Writes the records, and shows those that arrive.

    Raises:
        LabError: the last record does not arrive.
    """
    prepare(lambda line: print(line, file=sys.stderr))
    lab = load_lab()
    key = str(uuid.uuid4()).encode()
    values = (json.dumps(ORDER).encode(), b"customer=Iris Visser", None)
    consumer, partition = _listener(lab)
    producer = KafkaProducer(**connection_for(lab.region(SOURCE), "producer").kafka_python(), acks="all")
    for value in values:
        # All in one partition: when the last one arrives, everything before it has arrived or was withheld.
        producer.send(TOPIC, key=key, value=value, partition=partition.partition, headers=list(HEADERS))
        print(f"{SOURCE}, {TOPIC}: {_shown(value, HEADERS)}")
    producer.close()
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        for record in consumer.poll(timeout_ms=200).get(partition, ()):
            if record.key != key:
                continue
            print(f"{TARGET}, {COPY}: {_shown(record.value, record.headers)}")
            if record.value is None:
                consumer.close(autocommit=False)
                return ExitCode.DONE
    raise LabError(f"the last record did not arrive within {BOUND_S:.0f} s; see ./lab status")


def _listener(lab: Lab) -> tuple[Any, TopicPartition]:
    consumer = KafkaConsumer(
        **connection_for(lab.region(TARGET), "consumer-northamerica").kafka_python(),
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        allow_auto_create_topics=False,
    )
    partition = TopicPartition(COPY, 0)
    consumer.assign([partition])
    consumer.seek_to_end()
    consumer.position(partition)  # Fixes the start before anything is written.
    return consumer, partition


def _shown(value: bytes | None, headers: Any) -> str:
    text = "a deletion" if value is None else value.decode()
    return f"{text} (headers: {', '.join(name for name, _ in headers)})"


if __name__ == "__main__":
    sys.exit(run_command(main))
