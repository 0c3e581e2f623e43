"""Workers of a group and nodes of a cluster that restart one after the other, so that the others continue to work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from loosehanger.errors import LabError
from loosehanger.kafka.connect import ConnectClient
from loosehanger.ports import LOOPBACK
from loosehanger.waiting import wait_for

BACK_S = 150.0
"""Seconds that a restarted worker may take until it has its share of the work again, beyond its group's delay."""
DELAY = "scheduled.rebalance.max.delay.ms"
_DELAY_MS = 300_000
"""Kafka's default."""


def bound(settings: Mapping[str, Any]) -> float:
    """Returns the seconds that a restarted worker may take.

    Args:
        settings: those of its group. For the delay among them, tasks of a worker that is away may wait for it.
    """
    return BACK_S + int(settings.get(DELAY, _DELAY_MS)) / 1000


def wait_for_others(access: Mapping[str, str], ports: Sequence[int], what: str, bound_s: float, index: int) -> None:
    """Waits until the other workers of a group are back: before one of them restarts, and after the last one has.

    A worker that does not work itself has nothing to leave to the others, and is not kept waiting.

    Args:
        access: address and credentials of Connect's REST interface, as in the region's record.
        ports: the ports of the workers.
        what: the group, for the message.
        bound_s: how long to wait, in seconds.
        index: which of them restarts next, or has restarted before the last one.

    Raises:
        LabError: another worker is not back in time.
    """
    clients = {port: _client(access, port) for port in ports}
    own = clients.pop(ports[index])
    if not clients:
        return
    try:
        known = own.statuses().keys()
    except LabError:
        return

    def lacking() -> str | None:
        for port, client in clients.items():
            try:
                missing = lacks(client.statuses(), known, f"{LOOPBACK}:{port}", len(ports))
            except LabError as error:
                return str(error)
            if missing:
                return f"the worker at port {port} {missing}"
        return None

    wait_for(lacking, bound_s, f"{what}: the group's other workers, one after the other")


def lacks_replicas(brokers: Sequence[object], topics: Sequence[Mapping[str, Any]], nodes: int) -> str | None:
    """Returns what a cluster lacks before the next of its nodes may restart; None if nothing.

    Args:
        brokers: those that are registered.
        topics: every topic, as Kafka describes them.
        nodes: how many nodes the cluster has.
    """
    if len(brokers) < nodes:
        return f"{len(brokers)} of {nodes} nodes answer"
    behind = [
        f"{topic['name']}-{partition['partition_index']}"
        for topic in topics
        for partition in topic["partitions"]
        if len(partition["isr_nodes"]) < len(partition["replica_nodes"])
    ]
    return f"{len(behind)} partitions have replicas that are not in sync, {behind[0]} among them" if behind else None


def _client(access: Mapping[str, str], port: int) -> ConnectClient:
    own = {**access, "url": f"https://{LOOPBACK}:{port}", "other_urls": ""}
    return ConnectClient.of(own, timeout_s=5, rebalance_s=0)


def lacks(statuses: Mapping[str, Mapping[str, Any]], known: Collection[str], address: str, workers: int) -> str | None:
    """Returns what a worker waits for after it has joined its group; None if it has its share of the work.

    Args:
        statuses: what the worker says of each connector, with ``connector`` and ``tasks``.
        known: the connectors. A worker answers before it has read their configurations, and then has none.
        address: the worker's.
        workers: the number of workers in the group, among which Connect distributes connectors and tasks.
    """
    if set(known) - statuses.keys():
        return "has not read the connectors' configurations yet"
    connectors = [status["connector"] for status in statuses.values()]
    tasks = [task for status in statuses.values() for task in status["tasks"]]
    if waiting := [part for part in (*connectors, *tasks) if part["state"] in ("UNASSIGNED", "RESTARTING")]:
        parts = len(connectors) + len(tasks)
        return f"waits for a rebalance: {len(waiting)} of {parts} connectors and tasks lack a worker"
    if _is_left_out(connectors, address, workers) or _is_left_out(tasks, address, workers):
        return "has no share of the work yet"
    return None


def _is_left_out(parts: Sequence[Mapping[str, Any]], address: str, workers: int) -> bool:
    return len(parts) >= workers and address not in {part["worker_id"] for part in parts}
