"""Checks before anything is created; one list has everything that is missing."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.manifests.resources import needs_zookeeper
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.platforms.kubernetes.apply import RegionNamespace, foreign
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.event_streams import API_VERSIONS, inner_pools
from loosehanger.platforms.kubernetes.resources import CLUSTERS, STRIMZI, ManifestEntry, reference
from loosehanger.platforms.kubernetes.rights import Right, rights

OLDEST: Final = (1, 30)
"""The oldest Kubernetes version that the kit supports."""
SPARK: Final = "loosehanger.proof.submit"
"""The module in the command of a Spark job."""
_IMAGES: Final = "STRIMZI_KAFKA_IMAGES"
"""The variable of Strimzi's operator that lists an image for each release of Kafka, one a line."""
_HELM_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_UNITS: Final[Mapping[str, Decimal | int]] = {
    "": 1, "m": Decimal("0.001"), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


def check(
    region: RegionNamespace,
    manifests: Sequence[ManifestEntry],
    *,
    dialect: str,
    operator_comes: bool,
    dies: bool = False,
) -> None:
    """Checks all requirements of a region's set-up.

    Args:
        region: which.
        manifests: the manifests to apply; those of other regions are left out.
        dialect: the operator whose resources they are.
        operator_comes: whether the operator is installed after this check.
        dies: whether the region will be lost or recreated.

    Raises:
        WrongUseError: a requirement is missing; the message lists all of them.
    """
    cluster = region.cluster
    own = region.own(manifest for manifest in manifests if manifest.namespace == region.name)
    missing = [
        *_version(cluster),
        *_access(cluster, region, rights(dialect, create_namespace=region.create_namespace, dies=dies)),
        *_namespace(cluster, region),
        *(() if operator_comes else _kinds(cluster, own)),
    ]
    missing += [*_unnamed_nodes(own), *(_without_spark(own) if region.python_image else ())]
    # The next checks read resources; without that right they would only repeat the error.
    if not missing:
        missing += [*_strangers(cluster, own), *_storage(cluster, own), *_quotas(cluster, region, own)]
        missing += [*_scaled_controllers(cluster, own), *_unsupported_versions(cluster, own)]
        if not operator_comes:
            missing += _refused(cluster, region, own)
    if missing:
        raise WrongUseError(f"{region.name} on {cluster.name}: {'; '.join(missing)}")


def _version(cluster: KubernetesCluster) -> Iterator[str]:
    found = cluster.version()
    match = re.match(r"v(\d+)\.(\d+)", found)
    if match and (int(match[1]), int(match[2])) < OLDEST:
        yield f"Kubernetes is {found}; the kit needs {OLDEST[0]}.{OLDEST[1]} or newer"


def _access(cluster: KubernetesCluster, region: RegionNamespace, needed: Iterable[Right]) -> Iterator[str]:
    for right in needed:
        refused: dict[str, list[str]] = defaultdict(list)
        for attributes in right.attributes(region.name):
            if not cluster.allowed(attributes):
                refused["/".join(filter(None, (attributes["resource"], attributes.get("subresource"))))].append(
                    attributes["verb"]
                )
        for resource, verbs in refused.items():
            name = f"{resource}.{right.group}" if right.group else resource
            yield f"this account may not {', '.join(verbs)} {name}"


def _namespace(cluster: KubernetesCluster, region: RegionNamespace) -> Iterator[str]:
    if region.create_namespace:
        return
    # Without rights on namespaces, a dry run of a resource shows whether the namespace exists: reading does not.
    if cluster.allowed({"group": "", "resource": "namespaces", "verb": "get", "name": region.name}) and (
        cluster.get("v1", "Namespace", region.name) is None
    ):
        yield (
            f"the namespace '{region.name}' does not exist, and platform_kubernetes_create_namespaces is false; "
            "create it"
        )


def _kinds(cluster: KubernetesCluster, manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    unknown = dict.fromkeys(manifest.kind for manifest in manifests if not cluster.serves(*manifest.kind))
    for version in dict.fromkeys(version for version, _ in unknown):
        names = ", ".join(kind for at, kind in unknown if at == version)
        other = next((v for v in API_VERSIONS if v != version and cluster.serves(v, "EventStreams")), None)
        if version in API_VERSIONS and other:
            yield f"the cluster's Event Streams has {other} and not {version}: set event_streams_version to its version"
            continue
        yield (
            f"the cluster does not know {names} ({version}): install the operator, or set platform_operator_role to "
            "have it installed"
        )


def _unnamed_nodes(manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    """Yields listeners whose clients would refuse the certificate, because it names no node."""
    for manifest in manifests:
        kafka = manifest.document.get("spec", {})
        kafka = kafka.get("strimziOverrides", kafka).get("kafka") or {}
        for listener in kafka.get("listeners") or () if manifest.document["kind"] in CLUSTERS else ():
            names = ((listener.get("configuration") or {}).get("bootstrap") or {}).get("alternativeNames")
            if listener.get("type") == "nodeport" and listener.get("tls") and not names:
                yield (
                    f"{manifest.where}: listener '{listener.get('name')}' is reached at the nodes' addresses, and its "
                    "certificate has none of them; add them to configuration.bootstrap.alternativeNames "
                    "(kafka_cluster_external_configuration)"
                )


def _without_spark(manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    """Yields programs that a stock Python image cannot run."""
    for manifest in manifests:
        if manifest.kind == ("apps/v1", "Deployment") and manifest.document["spec"].get("replicas", 1):
            containers = manifest.document["spec"]["template"]["spec"]["containers"]
            if any(SPARK in (container.get("command") or ()) for container in containers):
                yield (
                    f"{manifest.where}: needs Spark, which the image of platform_kubernetes_python_image does not "
                    "have; unset it, and provide the kit's own image to the cluster (LAB_IMAGE)"
                )


def _strangers(cluster: KubernetesCluster, manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    for manifest in manifests:
        present = cluster.get(*manifest.kind, manifest.name, manifest.document["metadata"].get("namespace"))
        if stranger := foreign(manifest, {"kind": manifest.kind[1], **present} if present else None):
            yield stranger


def _scaled_controllers(cluster: KubernetesCluster, manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    """Yields node pools of an EventStreams whose number of controllers would change, which IBM does not support."""
    for manifest in manifests:
        if manifest.document["kind"] != "EventStreams":
            continue
        present = cluster.get(*manifest.kind, manifest.name, manifest.document["metadata"].get("namespace")) or {}
        before = {pool.get("name"): pool for pool in inner_pools(present)}
        for pool in inner_pools(manifest.document):
            was, wanted = before.get(pool["name"], pool).get("replicas"), pool.get("replicas")
            if was != wanted and "controller" in (pool.get("roles") or ()):
                yield (
                    f"{manifest.where}: node pool '{pool['name']}' cannot go from {was} to {wanted} nodes: they are "
                    f"controllers, and IBM does not support scaling those; set kafka_replicas={was}, or clean up first"
                )


def _unsupported_versions(cluster: KubernetesCluster, manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    """Yields resources that name a Kafka which Strimzi's operator has no image of, as far as its list can be read."""
    versions = operator_versions(cluster)
    for manifest in manifests:
        spec = manifest.document.get("spec") or {}
        parts = {(STRIMZI, MIRROR): ("spec", spec), (STRIMZI, "Kafka"): ("spec.kafka", spec.get("kafka") or {})}
        field, part = parts.get(manifest.kind, ("", {}))
        version = str(part.get("version", ""))
        if field == "spec.kafka" and re.match(r"\d+\.\d", version) and needs_zookeeper(version):
            yield (
                f"{manifest.where}: {field}.version: '{version}' needs ZooKeeper, which Strimzi's operator no longer "
                "runs: let the old cluster stand outside it, and set bootstrapServers of the mirror to its address"
            )
        elif versions and version and version not in versions:
            yield (
                f"{manifest.where}: {field}.version: '{version}' is not possible here; the operator supports "
                f"{', '.join(versions)}"
            )


def operator_versions(cluster: KubernetesCluster) -> list[str]:
    """Returns the releases of Kafka that the cluster's Strimzi operators have images of, in their order.

    It is empty where the account may not list the operator's Deployment, or there is none.
    """
    if not cluster.allowed({"group": "apps", "resource": "deployments", "verb": "list"}):
        return []
    found = set()
    for deployment in cluster.list("apps/v1", "Deployment", selector="app=strimzi"):
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            images = next((e.get("value") for e in container.get("env") or () if e["name"] == _IMAGES), None)
            found |= {line.partition("=")[0].strip() for line in (images or "").splitlines() if "=" in line}
    return sorted(found, key=lambda version: [int(number) for number in re.findall(r"\d+", version)])


def _refused(cluster: KubernetesCluster, region: RegionNamespace, manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    """Yields manifests that the API server refuses. For a missing namespace it tries them in an existing one."""
    there = not region.create_namespace or cluster.get("v1", "Namespace", region.name) is not None
    for manifest in manifests:
        document = manifest.document
        if document["kind"] == "Namespace":
            continue
        if not there:
            name = f"lab-{document['metadata']['name']}"
            document = {**document, "metadata": {**document["metadata"], "name": name, "namespace": "default"}}
        try:
            cluster.apply(document, dry_run=True)
        except WrongUseError as error:
            yield f"{manifest.where}: {error}"
        except LabError as error:
            if there:
                yield f"{manifest.where}: {error}"


def _storage(cluster: KubernetesCluster, manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    wanted = {
        storage.get("class"): reference(manifest.document)
        for manifest in manifests
        for storage in claims(manifest.document.get("spec"))
    }
    if not wanted:
        return
    try:
        classes = cluster.list("storage.k8s.io/v1", "StorageClass")
    except LabError:
        return  # Not every account may list them; the operator reports it later.
    names = {found["metadata"]["name"] for found in classes}
    default = any((c["metadata"].get("annotations") or {}).get(_HELM_DEFAULT) == "true" for c in classes)
    for name, where in wanted.items():
        if name and name not in names:
            yield f"{where}: no storage class '{name}'; the storage classes are: {', '.join(sorted(names)) or 'none'}"
        if not name and not default:
            known = ", ".join(sorted(names)) or "none"
            yield f"{where}: the cluster has no default storage class; name one of: {known}"


def claims(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yields every persistent volume that a part of a resource requests."""
    if isinstance(value, dict):
        if value.get("type") == "persistent-claim":
            yield value
        for item in value.values():
            yield from claims(item)
    elif isinstance(value, list):
        for item in value:
            yield from claims(item)


def _quotas(cluster: KubernetesCluster, region: RegionNamespace, manifests: Sequence[ManifestEntry]) -> Iterator[str]:
    new = [m for m in manifests if not cluster.get(*m.kind, m.name, m.document["metadata"].get("namespace"))]
    needed = _needs([manifest.document for manifest in new])
    for quota in cluster.list("v1", "ResourceQuota", region.name):
        status = quota.get("status") or {}
        for name, hard in (status.get("hard") or {}).items():
            left = quantity(hard) - quantity((status.get("used") or {}).get(name, "0"))
            if needed.get(name, 0) > left:
                yield (
                    f"ResourceQuota/{quota['metadata']['name']} leaves {left:f} {name}; the region needs at least "
                    f"{needed[name]:f}"
                )


def _needs(documents: Sequence[Mapping[str, Any]]) -> dict[str, Decimal]:
    """Returns the minimum that resources need, by quota name, without what a manifest leaves to the operator."""
    needs: dict[str, Decimal] = defaultdict(Decimal)
    for document in documents:
        spec = document.get("spec") or {}
        copies = Decimal(spec.get("replicas", 1))
        if document["kind"] in CLUSTERS:
            needs["pods"] += 1  # the entity operator
            continue
        if document["kind"] not in ("KafkaNodePool", MIRROR):
            continue
        needs["pods"] += copies
        for field in ("requests", "limits"):
            for name, value in ((spec.get("resources") or {}).get(field) or {}).items():
                needs[f"{field}.{name}"] += copies * quantity(value)
                if field == "requests":
                    needs[name] += copies * quantity(value)
    return needs


def quantity(text: str | float) -> Decimal:
    """Parses a Kubernetes quantity, such as ``500m`` or ``1Gi``.

    Raises:
        WrongUseError: the text is not a quantity.
    """
    match = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(text))
    if not match or match[2] not in _UNITS:
        raise WrongUseError(f"'{text}' is not a quantity, for example 500m or 1Gi")
    return Decimal(match[1]) * _UNITS[match[2]]
