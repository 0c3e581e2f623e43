"""Opens kafka-python's clients: the one place that decides how long a cluster may take, and what a reader reads."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from loosehanger.kafka.connection import Connection


class Bounds(NamedTuple):
    """How long a client waits for a cluster, in seconds."""

    connect_s: float
    """Until a first broker answers."""
    answer_s: float
    """For the answer to each request."""


USUAL = Bounds(connect_s=10, answer_s=15)
PATIENT = Bounds(connect_s=10, answer_s=30)
"""For changes, which brokers may take long to make, and for programs that read for hours."""
STARTING = Bounds(connect_s=2, answer_s=15)
"""For a node that may still be starting, and is asked again and again until it answers."""
HURRIED = Bounds(connect_s=5, answer_s=5)
"""For a look that is repeated, or that a user waits for."""
PAGE = Bounds(connect_s=3, answer_s=8)
"""For a console's page: a cluster that is down must show soon, and a large one needs time to answer."""


def connect_admin(connection: Connection, bounds: Bounds = USUAL, **options: Any) -> KafkaAdminClient:
    """Opens an admin client; close it.

    Args:
        connection: the user's way into the cluster.
        bounds: how long to wait.
        options: further settings of kafka-python's.

    Raises:
        KafkaError: the cluster does not answer, or refuses the user.
    """
    return KafkaAdminClient(**connection.kafka_python(), **_timeouts(bounds), **options)


def connect_consumer(connection: Connection, bounds: Bounds = USUAL, **options: Any) -> KafkaConsumer:
    """Opens a consumer of committed records, from the beginning, of no group, which commits nothing; close it.

    Mirrors write in transactions, so aborted records must not be read.

    Args:
        connection: the user's way into the cluster.
        bounds: how long to wait.
        options: further settings of kafka-python's, or others in place of these.

    Raises:
        KafkaError: the cluster does not answer, or refuses the user.
    """
    settings: dict[str, Any] = {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "allow_auto_create_topics": False,
    }
    return KafkaConsumer(**connection.kafka_python(), **_timeouts(bounds), **(settings | options))


def connect_producer(connection: Connection, **options: Any) -> KafkaProducer:
    """Opens a producer whose records all in-sync replicas must have; close it.

    Args:
        connection: the user's way into the cluster.
        options: further settings of kafka-python's.

    Raises:
        KafkaError: the cluster does not answer, or refuses the user.
    """
    return KafkaProducer(**connection.kafka_python(), acks="all", **options)


def _timeouts(bounds: Bounds) -> dict[str, int]:
    return {
        "bootstrap_timeout_ms": round(bounds.connect_s * 1000),
        "request_timeout_ms": round(bounds.answer_s * 1000),
    }
