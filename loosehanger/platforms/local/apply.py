"""Applies and deletes resources, as kubectl and the operators do together."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

import yaml

from loosehanger.errors import LabError
from loosehanger.files import make_folder, remove_folder
from loosehanger.lab.manifests.loader import Manifest, in_order
from loosehanger.lab.manifests.resources import (
    ConfigMap,
    Deployment,
    Kafka,
    KafkaMirrorMaker2,
    KafkaNodePool,
    KafkaTopic,
    KafkaUser,
    Namespace,
    OfCluster,
    PersistentVolumeClaim,
    Resource,
    Secret,
)
from loosehanger.lab.manifests.sign_ins import PLAIN
from loosehanger.platforms.local import kafka_entities, processes, services
from loosehanger.platforms.local.deployment import LocalProgram
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import delete_secret, read_secret, write_secret
from loosehanger.platforms.outcome import Outcome
from loosehanger.waiting import wait_for


def apply(
    region: LocalRegion, manifests: Sequence[Manifest], *, ready_seconds: float, dry_run: bool = False
) -> Outcome:
    """Applies the manifests of one region in the order of their dependencies, and waits until they are ready.

    Only clusters are waited for before the next kind: consumers start while their mirrors do.

    Args:
        region: the region.
        manifests: its manifests.
        ready_seconds: how long each cluster, each mirror, and all programs together may take to get ready.
        dry_run: only report which manifests differ from the applied ones.

    Raises:
        LabError: a manifest cannot be applied, or a resource does not get ready.
    """
    ordered = in_order(manifests)
    outcome, began = _compare(region, ordered), time.time()
    if dry_run:
        return outcome
    outcome.changed = []
    if not region.exists() and not any(isinstance(manifest.resource, Namespace) for manifest in ordered):
        raise LabError(f"{region.name}: the region does not exist; apply its Namespace first")
    for kind in dict.fromkeys(type(manifest.resource) for manifest in ordered):
        of_kind = [manifest for manifest in ordered if type(manifest.resource) is kind]
        if kind is Kafka:
            _prepare_users(region, ordered)
        outcome.changed += _APPLY[kind](region, of_kind)
        if kind is Kafka:  # Everything after it needs it; programs and mirrors wait for each other.
            _wait_ready(region, [manifest.resource for manifest in of_kind], ready_seconds, began)
    _wait_ready(region, [m.resource for m in ordered if not isinstance(m.resource, Kafka)], ready_seconds, began)
    return outcome


def delete(region: LocalRegion, manifests: Sequence[Manifest], *, dry_run: bool = False) -> list[str]:
    """Deletes resources in reverse order of their dependencies; returns the references of those that existed.

    With ``dry_run`` it deletes nothing.
    """
    deleted = []
    for manifest in reversed(in_order(manifests)):
        resource = manifest.resource
        name = resource.metadata.name
        if isinstance(resource, Secret):
            there = (region.secrets / name).is_dir()
        else:
            there = region.resource(resource.kind, name) is not None
        if not there:
            continue
        deleted.append(resource.reference)
        if dry_run:
            continue
        match resource:
            case Deployment():
                LocalProgram(region, resource).delete()
            case KafkaMirrorMaker2():
                LocalMirrorMaker(region, resource).delete()
            case KafkaUser():
                kafka_entities.delete_user(LocalCluster.of(region, resource.cluster), resource)
            case KafkaTopic():
                kafka_entities.delete_topic(LocalCluster.of(region, resource.cluster), resource)
            case Kafka():
                LocalCluster.of(region, name).delete()
            case Secret():
                delete_secret(region, name)
            case PersistentVolumeClaim():
                remove_folder(region.volumes / name)
            case Namespace():
                delete_region(region, bound=30)
        region.forget(resource.kind, name)
    if not dry_run:
        _forget_passwords(region, manifests)
    return deleted


def _forget_passwords(region: LocalRegion, manifests: Iterable[Manifest]) -> None:
    """Restarts the nodes that still have the passwords of deleted users, and waits until they answer."""
    users = [manifest.resource for manifest in manifests if isinstance(manifest.resource, KafkaUser)]
    for name in sorted({user.cluster for user in users if user.spec.authentication is None}):
        if region.resource("Kafka", name) and (cluster := LocalCluster.of(region, name)).listener.offers(PLAIN):
            _apply_cluster(cluster)
            kafka_entities.wait_ready(cluster, kafka_entities.READY_SECONDS)


def delete_region(region: LocalRegion, bound: float) -> bool:
    """Kills every process of a region and deletes its folder; True when there was anything.

    An orderly stop has no use here, because their data is deleted too, and a Connect worker whose brokers stop first
    hangs.

    Raises:
        LabError: a process does not stop.
    """
    there = region.folder.exists()
    stopped = processes.kill_everything(region) is not None
    # The relays, which outlive a lost region.
    stopped = processes.stop_everything(region, bound) or stopped
    remove_folder(region.folder)
    access = region.home / "access"
    remove_folder(access / region.name)
    (access / f"{region.name}.json").unlink(missing_ok=True)
    return there or stopped


def erase(region: LocalRegion, bound: float) -> bool:
    """Deletes the folder of a region whose processes were killed; True when there was anything.

    The record of the region and the names of its services stay.

    Raises:
        LabError: a process does not stop.
    """
    there = region.folder.exists()
    processes.stop_everything(region, bound)
    if there:
        remove_folder(region.home / "access" / region.name)
        services.remember(region)
    remove_folder(region.folder)
    return there


def wipe(region: LocalRegion, kept: Collection[str], bound: float) -> None:
    """Stops every process of a region, and deletes everything but some secrets.

    Args:
        region: the region.
        kept: the names of the secrets that stay.
        bound: how long its processes may take to stop, in seconds; then they are killed.

    Raises:
        LabError: a process does not stop.
    """
    processes.stop_everything(region, bound)
    for path in region.folder.glob("*"):
        if path.is_dir() and path != region.secrets:
            remove_folder(path)
        elif path.is_file():
            path.unlink()
    for secret in region.secrets.glob("*"):
        if secret.name not in kept:
            remove_folder(secret)
    (region.home / "access" / f"{region.name}.json").unlink(missing_ok=True)


def _wait_ready(region: LocalRegion, resources: Sequence[Resource], bound: float, began: float) -> None:
    exits = processes.Exits(region)
    programs = [LocalProgram(region, resource) for resource in resources if isinstance(resource, Deployment)]
    for resource in resources:
        match resource:
            case Kafka():
                kafka_entities.wait_ready(LocalCluster.of(region, resource.metadata.name), bound)
            case KafkaMirrorMaker2():
                LocalMirrorMaker(region, resource).wait_ready(bound, began)

    def starting() -> str | None:
        states, refusing = processes.states(region), exits.refusing()
        return next((lacking for program in programs if (lacking := program.lacks(states, refusing))), None)

    if programs:
        wait_for(starting, bound, region.name)


def _compare(region: LocalRegion, manifests: Sequence[Manifest]) -> Outcome:
    outcome = Outcome()
    before, after = [], []
    for manifest in manifests:
        resource = manifest.resource
        if isinstance(resource, Secret):
            # A secret's values are never shown, not even as a difference.
            present = (region.secrets / resource.metadata.name).is_dir()
            if not present or read_secret(region, resource.metadata.name) != resource.values():
                outcome.changed.append(resource.reference)
            continue
        applied = region.resource(resource.kind, resource.metadata.name)
        if applied != manifest.document:
            outcome.changed.append(resource.reference)
            before += [applied] if applied else []
            after.append(manifest.document)
    outcome.before = yaml.safe_dump_all(before, sort_keys=True) if before else ""
    outcome.after = yaml.safe_dump_all(after, sort_keys=True) if after else ""
    return outcome


def _apply_namespaces(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    return [manifest.resource.reference for manifest in manifests if region.store(manifest.document)]


def _apply_secrets(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    return [
        manifest.resource.reference
        for manifest in manifests
        if isinstance(manifest.resource, Secret)
        and write_secret(region, manifest.resource.metadata.name, manifest.resource.values())
    ]


def _apply_claims(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    for manifest in manifests:
        make_folder(region.volumes / manifest.resource.metadata.name)
    return [manifest.resource.reference for manifest in manifests if region.store(manifest.document)]


def _apply_clusters(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    stored = {manifest.resource.reference for manifest in manifests if region.store(manifest.document)}
    for manifest in manifests:
        if _apply_cluster(LocalCluster.of(region, manifest.resource.metadata.name)):
            stored.add(manifest.resource.reference)
    return sorted(stored)


def _apply_cluster(cluster: LocalCluster) -> bool:
    """Starts the nodes of a cluster, or restarts them one after the other; True when that changed anything."""
    restarted = False

    def wait() -> None:
        nonlocal restarted
        restarted = True
        kafka_entities.wait_for_replicas(cluster)

    changed = cluster.apply(before_restart=wait)
    if restarted:
        # The last one as well: a cluster that lacks replicas counts as degraded.
        kafka_entities.wait_for_replicas(cluster)
    return changed


def _prepare_users(region: LocalRegion, manifests: Sequence[Manifest]) -> set[str]:
    """Makes the passwords of users with rights only, which nodes with PLAIN read at their start.

    Returns:
        The clusters of users that had none.
    """
    clusters = set()
    for manifest in manifests:
        if isinstance(manifest.resource, KafkaUser) and manifest.resource.spec.authentication is None:
            if kafka_entities.ensure_password(region, manifest.resource):
                clusters.add(manifest.resource.cluster)
            region.store(manifest.document)
    return clusters


def _apply_pools(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    changed = [manifest.resource.reference for manifest in manifests if region.store(manifest.document)]
    # Pools are applied before their Kafka, which starts the nodes; without it they change an existing cluster.
    present = {kafka["metadata"]["name"] for kafka in region.resources("Kafka")}
    for name in sorted({m.resource.cluster for m in manifests if isinstance(m.resource, OfCluster)} & present):
        if _apply_cluster(LocalCluster.of(region, name)):
            changed.append(f"Kafka/{name}")
    return changed


def _by_cluster(region: LocalRegion, manifests: Sequence[Manifest]) -> Iterable[tuple[LocalCluster, list[Manifest]]]:
    for name in sorted({m.resource.cluster for m in manifests if isinstance(m.resource, OfCluster)}):
        own = [m for m in manifests if isinstance(m.resource, OfCluster) and m.resource.cluster == name]
        yield LocalCluster.of(region, name), own


def _apply_topics(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    changed = []
    sources = {manifest.resource.reference: manifest.source for manifest in manifests}
    for cluster, own in _by_cluster(region, manifests):
        topics = [m.resource for m in own if isinstance(m.resource, KafkaTopic)]
        changed += kafka_entities.apply_topics(cluster, topics, lambda topic: sources[topic.reference])
    for manifest in manifests:
        region.store(manifest.document)
    return changed


def _apply_users(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    changed = []
    new = _prepare_users(region, manifests)
    for cluster, own in _by_cluster(region, manifests):
        if cluster.name in new and cluster.listener.offers(PLAIN):
            _apply_cluster(cluster)
            kafka_entities.wait_ready(cluster, kafka_entities.READY_SECONDS)
        users = [m.resource for m in own if isinstance(m.resource, KafkaUser)]
        changed += kafka_entities.apply_users(cluster, users)
    for manifest in manifests:
        region.store(manifest.document)
    return changed


def _apply_mirrors(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    changed = []
    for manifest in manifests:
        touched = region.store(manifest.document)
        if isinstance(manifest.resource, KafkaMirrorMaker2):
            touched |= LocalMirrorMaker(region, manifest.resource).apply()
        changed += [manifest.resource.reference] if touched else []
    return changed


def _apply_programs(region: LocalRegion, manifests: Sequence[Manifest]) -> list[str]:
    """Applies all programs at once: a switch waits for the slowest to stop, and not for one after the other."""
    programs = [LocalProgram(region, one.resource) for one in manifests if isinstance(one.resource, Deployment)]
    touched = {manifest.resource.metadata.name for manifest in manifests if region.store(manifest.document)}
    touched |= processes.run_together(region, [program.process for program in programs])
    return [program.deployment.reference for program in programs if program.name in touched]


_APPLY: dict[type, Callable[[LocalRegion, Sequence[Manifest]], list[str]]] = {
    Namespace: _apply_namespaces,
    ConfigMap: _apply_namespaces,
    Secret: _apply_secrets,
    PersistentVolumeClaim: _apply_claims,
    KafkaNodePool: _apply_pools,
    Kafka: _apply_clusters,
    KafkaTopic: _apply_topics,
    KafkaUser: _apply_users,
    KafkaMirrorMaker2: _apply_mirrors,
    Deployment: _apply_programs,
}
