"""Checks before anything is made: the machine, the ports, and how the mirrors fit together."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
from collections.abc import Iterable, Sequence
from typing import Any

import psutil

from .errors import ManifestError
from .kafka_cluster import Cluster
from .manifests import Manifest
from .mirror_maker import connectors_of
from .mirror_record import IDENTITY_POLICY
from .models import Kafka, KafkaMirrorMaker2, KafkaNodePool
from .processes import marked_processes
from .region import FIRST_WORKER_PORT, LOOPBACK, PORTS_OF_A_REGION, Region


def check_machine(region: Region, *, regions: int, memory_mb: int, disk_mb: int) -> None:
    """Checks that memory and disk suffice for regions that are not running yet.

    Args:
        region: one of them.
        regions: how many there are.
        memory_mb: what one region takes, in MiB.
        disk_mb: what must be free on the disk, in MiB.

    Raises:
        ManifestError: they do not.
    """
    if marked_processes(region):
        return
    available = psutil.virtual_memory().available // 2**20
    if available < memory_mb * regions:
        raise ManifestError(
            f"this machine has {available} MB of memory available; {regions} regions need {memory_mb * regions} MB "
            f"(platform_local_memory_mb is {memory_mb} for each): end other programs, or set it lower"
        )
    existing = next(folder for folder in (region.home, *region.home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free // 2**20
    if free < disk_mb:
        raise ManifestError(
            f"{existing} has {free} MB of disk left; the lab needs {disk_mb} MB (platform_local_disk_mb): make room"
        )


def check_ports(region: Region, manifests: Sequence[Manifest], further: Iterable[int] = ()) -> None:
    """Checks that no other program has the ports that these manifests need.

    Args:
        region: whose ports.
        manifests: of clusters and mirrors.
        further: ports that other programs of the region are going to listen on.

    Raises:
        ManifestError: one has; the message names the port and the variable to change.
    """
    if not 1024 <= region.port_base <= 65536 - PORTS_OF_A_REGION:
        raise ManifestError(
            f"{region.name}: platform_local_port_base: {region.port_base} is not between 1024 and 65436"
        )
    own = {
        connection.laddr.port
        for process in marked_processes(region)
        for connection in _connections(process)
        if connection.status == psutil.CONN_LISTEN
    }
    for port in (*_ports(region, manifests), *further):
        if port in own:
            continue
        with socket.socket() as probe:
            # Connections of an earlier lab that are still being forgotten do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise ManifestError(
                    f"{region.name}: port {port} is in use by another program; end it, or choose another first port "
                    "for the lab: LAB_PORT_BASE=29000 (or platform_local_port_base for this region)"
                ) from error


def check_mirrors(manifests: Iterable[Manifest]) -> None:
    """Checks mirrors against each other.

    Raises:
        ManifestError: mirrors that keep topic names form a loop, in which records would go round for ever; or two share
            a group or a topic for their state on one target, and would overwrite each other's.
    """
    mirrors = [(m, m.resource) for m in manifests if isinstance(m.resource, KafkaMirrorMaker2)]
    _check_state(mirrors)
    _check_loops(mirrors)


def _check_state(mirrors: Sequence[tuple[Manifest, KafkaMirrorMaker2]]) -> None:
    taken: dict[tuple[str, str, str], str] = {}
    for manifest, resource in mirrors:
        target = resource.spec.target
        for field, value in {
            "groupId": target.group_id,
            "configStorageTopic": target.config_storage_topic,
            "offsetStorageTopic": target.offset_storage_topic,
            "statusStorageTopic": target.status_storage_topic,
        }.items():
            use = (target.bootstrap_servers, "group" if field == "groupId" else "topic", value)
            if other := taken.get(use):
                raise ManifestError(
                    f"{manifest.source}: {resource.reference}: spec.target.{field}: '{value}' is also {other} on the "
                    "same target cluster; they would overwrite each other's state: give each its own"
                )
            taken[use] = f"{field} of {resource.reference} ({manifest.source})"


def _check_loops(mirrors: Sequence[tuple[Manifest, KafkaMirrorMaker2]]) -> None:
    flows: dict[str, dict[str, str]] = {}
    for manifest, resource in mirrors:
        for mirror in resource.spec.mirrors:
            source = connectors_of(mirror).get("MirrorSourceConnector")
            if source and source.config.get("replication.policy.class") == IDENTITY_POLICY:
                ends = flows.setdefault(mirror.source.bootstrap_servers, {})
                ends[resource.spec.target.bootstrap_servers] = f"{manifest.source}: {resource.reference}"
    for start in flows:
        if loop := _loop(flows, start, [start]):
            names = [flows[a][b] for a, b in itertools.pairwise(loop)]
            raise ManifestError(
                f"{'; '.join(names)}: with IdentityReplicationPolicy these mirrors form a loop "
                f"({' -> '.join(loop)}), in which records go round for ever; "
                "take one out, or use DefaultReplicationPolicy"
            )


def _loop(flows: dict[str, dict[str, str]], start: str, path: list[str]) -> list[str] | None:
    for end in flows.get(path[-1], {}):
        if end == start:
            return [*path, end]
        if end not in path and (loop := _loop(flows, start, [*path, end])):
            return loop
    return None


def _ports(region: Region, manifests: Sequence[Manifest]) -> list[int]:
    ports: list[int] = []
    pools = [m.resource for m in manifests if isinstance(m.resource, KafkaNodePool)]
    workers = 0
    for manifest in manifests:
        resource = manifest.resource
        if isinstance(resource, Kafka):
            own = [pool for pool in pools if pool.cluster == resource.metadata.name]
            ports += Cluster(region, resource, own).ports()
        elif isinstance(resource, KafkaMirrorMaker2) and resource.metadata.namespace == region.name:
            workers += max(1, resource.spec.replicas)
    return ports + [region.port_base + FIRST_WORKER_PORT + index for index in range(workers)]


def _connections(process: psutil.Process) -> list[Any]:
    with contextlib.suppress(psutil.Error):
        return list(process.net_connections(kind="tcp"))
    return []
