"""Checks of the machine and its ports, before anything is created."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import psutil

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.loader import Manifest
from loosehanger.lab.manifests.resources import Deployment, Kafka, KafkaMirrorMaker2, KafkaNodePool, exporter_rules
from loosehanger.lab.manifests.views import listeners_of
from loosehanger.lab.plan import Plan
from loosehanger.lab.token_sign_ins import lacks_secret, users_by_token
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.processes import marked_processes
from loosehanger.platforms.local.region import FIRST_WORKER_PORT, PORTS_OF_A_REGION, LocalRegion
from loosehanger.ports import is_taken

AUDIT_MB = 620
"""The memory of the audit, where the lab has one."""


def check_machine(region: LocalRegion, *, regions: int, memory_mb: int, disk_mb: int, audits: int = 0) -> None:
    """Checks that memory and disk suffice for the regions that are not running yet.

    Args:
        region: one of them.
        regions: how many there are.
        memory_mb: the memory of one region, in MiB.
        disk_mb: the free disk space that is required, in MiB.
        audits: how many audits run in all regions.

    Raises:
        WrongUseError: they do not suffice.
    """
    if marked_processes(region):
        return
    available = psutil.virtual_memory().available // 2**20
    needed = memory_mb * regions + (AUDIT_MB * audits if memory_mb else 0)
    if available < needed:
        audit = f", and the audit takes {AUDIT_MB}" if audits else ""
        raise WrongUseError(
            f"this machine has {available} MB of memory available; {regions} regions need {needed} MB "
            f"(platform_local_memory_mb is {memory_mb} for each{audit}): end other programs, or set it lower"
        )
    existing = next(folder for folder in (region.home, *region.home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free // 2**20
    if free < disk_mb:
        raise WrongUseError(
            f"{existing} has {free} MB of disk left; the lab needs {disk_mb} MB (platform_local_disk_mb): make room"
        )


def check_users(plan: Plan) -> None:
    """Checks that the local platform can make what a region's users sign in with.

    Raises:
        WrongUseError: a user wants a certificate, and no listener asks for one: there is no authority for it then. Or
            a user of the kit gets tokens, and has no secret to show for them.
    """
    asking = {
        kafka.name
        for kafka in plan.topology.of_kind("Kafka", plan.region)
        for listener in listeners_of(kafka.content)
        if sign_ins.asks_certificate(listener)
    }
    for user in plan.topology.of_kind("KafkaUser", plan.region):
        cluster = (user.content["metadata"].get("labels") or {}).get("strimzi.io/cluster", "")
        if sign_ins.user_type(user.content) == sign_ins.TLS and cluster not in asking:
            raise WrongUseError(
                f"{user.where('spec', 'authentication', 'type')}: no listener of Kafka/{cluster} has the type tls, so "
                "the local platform has no authority for its certificate; change one of the two types"
            )
    secrets = {document.name for document in plan.topology.of_kind("Secret", plan.region)}
    if lacking := [user for user in users_by_token(plan.topology, plan.region) if user.name not in secrets]:
        raise WrongUseError("; ".join(lacks_secret(plan.topology, user) for user in lacking))


def check_clusters(region: LocalRegion, manifests: Sequence[Manifest]) -> None:
    """Checks that the clusters which exist already can become what these manifests ask for.

    Args:
        region: the region.
        manifests: the manifests of clusters and node pools.

    Raises:
        WrongUseError: a quorum would grow or shrink, or a release could not read the metadata of a newer one.
    """
    pools = [m.resource for m in manifests if isinstance(m.resource, KafkaNodePool)]
    for manifest in manifests:
        if isinstance(kafka := manifest.resource, Kafka):
            own = [pool for pool in pools if pool.cluster == kafka.metadata.name]
            if own:
                LocalCluster(region, kafka, own).check_kept()


def check_ports(region: LocalRegion, manifests: Sequence[Manifest]) -> None:
    """Checks that no other program has the ports that these manifests need.

    Args:
        region: the region.
        manifests: the manifests of clusters, mirrors and programs.

    Raises:
        WrongUseError: a port is in use; the message names it and the variable to change.
    """
    if not 1024 <= region.port_base <= 65536 - PORTS_OF_A_REGION:
        raise WrongUseError(
            f"{region.name}: platform_local_port_base: {region.port_base} is not between 1024 and 65436"
        )
    own = _listened_to(region)
    for port in _ports(region, manifests):
        if port in own or not is_taken(port):
            continue
        # A program of the lab may have started or stopped since the query.
        if port not in _listened_to(region) and is_taken(port):
            raise WrongUseError(
                f"{region.name}: port {port} is in use by another program; end it, or choose another first port "
                "for the lab: LAB_PORT_BASE=29000 (or platform_local_port_base for this region)"
            )


def _listened_to(region: LocalRegion) -> set[int]:
    """Returns the ports that programs of the lab listen on."""
    ours = {process.pid for process in marked_processes(region, *map(region.peer, region.others))}
    # All of the machine's at once: for each process, psutil would read the same table again.
    listening = [found for found in psutil.net_connections(kind="tcp") if found.status == psutil.CONN_LISTEN]
    return {found.laddr[1] for found in listening if found.pid in ours and found.laddr}


def _ports(region: LocalRegion, manifests: Sequence[Manifest]) -> list[int]:
    ports: list[int] = []
    pools = [m.resource for m in manifests if isinstance(m.resource, KafkaNodePool)]
    workers = exporters = 0
    for manifest in manifests:
        resource = manifest.resource
        if isinstance(resource, Kafka):
            own = [pool for pool in pools if pool.cluster == resource.metadata.name]
            ports += LocalCluster(region, resource, own).ports()
        elif isinstance(resource, KafkaMirrorMaker2) and resource.metadata.namespace == region.name:
            workers += max(1, resource.spec.replicas)
            if exporter_rules(resource.spec.metrics_config):
                exporters = workers
        elif isinstance(resource, Deployment) and resource.spec.replicas:
            ports += [port.container_port for port in resource.spec.template.spec.containers[0].ports]
    ports += [region.port_base + FIRST_WORKER_PORT + index for index in range(workers)]
    ports += [region.exporter_port(index) for index in range(exporters)]
    nodes = sum(pool.spec.replicas for pool in pools)
    for other in region.others:
        ports += [region.relay_port(node, other) for node in range(nodes)]
        ports += [region.worker_relay_port(index, other) for index in range(workers)]
    if len(ports) > len(set(ports)):
        raise LabError(
            f"{region.name}: the local platform has too few ports for the links of {nodes} nodes and {workers} mirror "
            f"workers with {len(region.others)} other regions"
        )
    return ports
