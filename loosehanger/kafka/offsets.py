"""Offsets, and the positions of mirrors."""

from __future__ import annotations

from kafka import TopicPartition

from loosehanger.errors import LabError
from loosehanger.kafka.connect import ConnectClient, parts

Positions = dict[TopicPartition, int]


def connector_states(rest: ConnectClient, connector: str) -> list[str]:
    """The states of a connector and of its tasks.

    Raises:
        LabError: there is no such connector, or Connect does not answer.
    """
    status = rest.status(connector)
    if status is None:
        raise LabError(f"there is no connector {connector}")
    return [part.state for part in parts(connector, status)]


def mirror_positions(rest: ConnectClient, connector: str, alias: str) -> Positions:
    """The offset of the last record that a mirror has copied, for each partition of the source of this alias."""
    found = rest.positions(connector, alias)
    return {TopicPartition(*place): offset for place, offset in found.items()}
