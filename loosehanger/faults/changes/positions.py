"""A mirror's positions in a topic, which Connect keeps at the mirror's target, and the states of its connector."""

from __future__ import annotations

import json
from collections.abc import Callable

from kafka import TopicPartition

from loosehanger.errors import UnreachableError
from loosehanger.faults.changes.ends import offsets_topic
from loosehanger.faults.changes.permissions import granted
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.clients import connect_consumer, connect_producer
from loosehanger.kafka.connect import ConnectClient, parts
from loosehanger.kafka.reading import read_between
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.waiting import wait_for

CONNECTOR_S = 60
"""Seconds until a connector has the state that it was asked for."""


def forget(site: FaultSite, mirror: Mirror, topic: str) -> None:
    """Removes a mirror's positions in a topic, and starts its failed tasks again. A paused mirror stays paused.

    Where no worker of the mirror answers, the positions are removed from Connect's own topic: a worker reads it when it
    starts.

    Args:
        site: the fault's.
        mirror: the mirror.
        topic: the topic; for a mirror further down a chain, also its copy.
    """
    if not mirror.connect or not mirror.connector:
        return
    try:
        _forget(ConnectClient.of(mirror.connect), mirror, topic)
    except UnreachableError:
        _forget_at_rest(site, mirror, topic)


def _forget(connect: ConnectClient, mirror: Mirror, topic: str) -> None:
    if (status := connect.status(mirror.connector)) is None:
        return
    positions = [place for place in connect.positions(mirror.connector, mirror.source_alias) if _is_of(place[0], topic)]
    failed = any(part.state == "FAILED" for part in parts(mirror.connector, status))
    if not positions and not failed:
        return
    with_connector_stopped(
        connect,
        mirror.connector,
        lambda: connect.set_positions(mirror.connector, mirror.source_alias, dict.fromkeys(positions)),
    )


def _forget_at_rest(site: FaultSite, mirror: Mirror, topic: str) -> None:
    """Writes tombstones under the keys of the topic's positions: Connect compares keys byte by byte."""
    region, stored = mirror.target, offsets_topic(site, mirror)
    connection = site.connection(region)
    with (
        granted(site, region, "TOPIC", stored, "READ"),
        granted(site, region, "TOPIC", stored, "WRITE"),
        connect_consumer(connection, isolation_level="read_committed") as consumer,
        connect_producer(connection) as producer,
    ):
        places = [TopicPartition(stored, number) for number in consumer.partitions_for_topic(stored) or ()]
        begins = consumer.beginning_offsets(places)
        ends = {place: end for place, end in consumer.end_offsets(places).items() if end > begins[place]}
        known = {
            (record.key, record.partition): record.value for record in read_between(consumer, begins, ends, region)
        }
        sent = [
            producer.send(stored, None, key, partition=partition)
            for (key, partition), value in known.items()
            if value is not None and _is_position(key, mirror, topic)
        ]
        for outcome in sent:
            outcome.get(timeout=CONNECTOR_S)


def _is_position(key: bytes, mirror: Mirror, topic: str) -> bool:
    """Whether a key of Connect's topic is that of a mirror's position in a topic."""
    connector, place = json.loads(key)
    return (
        connector == mirror.connector
        and place.get("cluster") == mirror.source_alias
        and _is_of(str(place.get("topic", "")), topic)
    )


def _is_of(name: str, topic: str) -> bool:
    return name == topic or name.endswith(f".{topic}")


def with_connector_stopped(connect: ConnectClient, connector: str, change: Callable[[], None]) -> None:
    """Stops a connector, makes a change, and gives the connector the state that it had."""
    status = connect.status(connector)
    before = status["connector"]["state"] if status else ""
    connect.act(connector, "stop")
    await_state(connect, connector, "STOPPED")
    change()
    if before == "PAUSED":
        connect.act(connector, "pause")
    elif before != "STOPPED":
        connect.act(connector, "resume")
        await_state(connect, connector, "RUNNING")


def await_state(connect: ConnectClient, connector: str, wanted: str) -> None:
    """Waits until a connector has a state; a stopped one has no tasks, and any other one has some."""

    def missing() -> str | None:
        status = connect.status(connector)
        found = list(parts(connector, status)) if status else []
        if not found or found[0].state != wanted or (len(found) > 1) == (wanted == "STOPPED"):
            return f"it is {found[0].state.lower() if found else 'missing'} with {max(len(found) - 1, 0)} tasks"
        others = [part for part in found if part.state != wanted]
        return f"{others[0].label} is {others[0].state.lower()}" if others else None

    wait_for(missing, CONNECTOR_S, f"{connector} to be {wanted.lower()}")
