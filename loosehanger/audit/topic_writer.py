"""A topic that the watch creates and writes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, TopicAlreadyExistsError

from loosehanger.errors import LabError
from loosehanger.kafka.clients import PATIENT, connect_admin, connect_producer
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import explain

BLOCK_MS = 2000
"""Milliseconds that a record waits for a cluster that does not answer."""


def open_topic(connection: Connection, topic: str, settings: Mapping[str, str] | None) -> KafkaProducer:
    """Opens a topic, and creates it with one partition if it does not exist.

    Args:
        connection: of a user who may write to the topic, and create it with ``settings``.
        topic: its name.
        settings: its configuration; None for a topic that exists.

    Returns:
        A producer for it.

    Raises:
        LabError: the cluster does not answer, or refuses.
    """
    try:
        client = connect_admin(connection, PATIENT)
        try:
            if settings is None:
                _check_exists(client, topic)
            else:
                wanted = {"num_partitions": 1, "replication_factor": -1, "configs": dict(settings)}
                client.create_topics({topic: wanted})
        except TopicAlreadyExistsError:
            pass
        finally:
            client.close()
        return connect_producer(connection, max_block_ms=BLOCK_MS)
    except (KafkaError, OSError) as error:
        raise LabError(f"{topic}: the cluster {explain(error, connection.username)}") from error


def _check_exists(client: Any, topic: str) -> None:
    if topic not in client.list_topics():
        raise LabError(f"there is no topic {topic}; create it first")
