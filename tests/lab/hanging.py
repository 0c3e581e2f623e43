"""Producers that die in the middle of a transaction, and what they leave."""

from __future__ import annotations

import time

from confluent_kafka import Producer
from kafka import KafkaProducer

from loosehanger.kafka.connection import Connection

from .broker import Broker

OPEN, BEHIND = 5, 1000
NOW_MS = int(time.time() * 1000)


def abandon(connection: Connection, topic: str, name: str) -> Producer:
    """Begins a transaction and writes five records in it, and nothing more: as a producer that has died."""
    settings: dict[str, str | int | None] = {
        "bootstrap.servers": ",".join(connection.bootstrap_servers),
        "security.protocol": connection.security_protocol,
        "sasl.mechanism": connection.sasl_mechanism,
        "sasl.username": connection.username,
        "sasl.password": connection.password,
        "transactional.id": name,
        "transaction.timeout.ms": 900_000,
        "log_level": 0,
    }
    if connection.ca_file:
        settings["ssl.ca.location"] = str(connection.ca_file)
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(OPEN):
        producer.produce(topic, f"open-{number}", key="open", partition=0)
    assert producer.flush(60) == 0
    return producer


def write(connection: Connection, topic: str, *numbers: int) -> None:
    """Writes ordinary records."""
    with KafkaProducer(**connection.kafka_python()) as producer:
        for number in numbers:
            producer.send(topic, b"v%d" % number, key=b"k", partition=0, timestamp_ms=NOW_MS + number)
        producer.flush()


def held(broker: Broker, topic: str) -> Producer:
    """A topic with one record that can be read, five of an abandoned transaction, and 1,000 ordinary ones."""
    client = broker.admin()
    names = [topic, f"old.{topic}"]
    client.create_topics({name: {"num_partitions": 1, "replication_factor": 1} for name in names})
    client.wait_for_topics(names)
    client.close()
    write(broker.connection(), topic, 0)
    write(broker.connection(), f"old.{topic}", 0)
    producer = abandon(broker.connection(), topic, f"till-{topic}")
    write(broker.connection(), topic, *range(1, BEHIND + 1))
    return producer
