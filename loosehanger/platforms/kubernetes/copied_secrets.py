"""Secrets that are copied from one region to another, possibly on another cluster and under another name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from loosehanger.errors import LabError, WrongUseError
from loosehanger.lab.topology import SecretCopy
from loosehanger.platforms.kubernetes.apply import RegionNamespace, foreign
from loosehanger.platforms.kubernetes.cluster import KubernetesCluster
from loosehanger.platforms.kubernetes.event_streams import LABELS, STRIMZI_LABELS
from loosehanger.platforms.kubernetes.resources import ManifestEntry, labelled
from loosehanger.platforms.secret_copies import not_a_copy

COPIED_FROM: Final = "loosehanger-lab/copied-from"
"""The annotation of a copy: the region and the name of its origin."""
_GENERATIONS: Final = ("ca-cert-generation", "ca-key-generation")
"""An operator's annotations of a certificate authority's secrets, with the generation of its certificates."""
_LABELS: Final = ("cluster", "kind", "component-type", "name")
"""The labels by which the operator finds these secrets."""


def copy_secrets(region: RegionNamespace, copies: Iterable[SecretCopy], *, dry_run: bool = False) -> list[str]:
    """Copies secrets from the namespaces of other regions.

    Returns:
        The names of the copies that were missing or outdated.

    Raises:
        WrongUseError: another secret has the name of a copy; no secret is copied.
        LabError: the secret does not exist in its own region.
    """
    cluster = region.cluster
    wanted = []
    for copy in copies:
        secret = region.places[copy.origin].cluster().get("v1", "Secret", copy.name, copy.origin)
        present = cluster.get("v1", "Secret", copy.as_name, region.name)
        if secret is None and not dry_run:
            raise LabError(
                f"{copy.origin}: the secret '{copy.name}' does not exist; check that its KafkaUser or Kafka is ready"
            )
        # In check mode the region of origin may not exist yet.
        document = copied(copy, secret, region.name) if secret is not None else None
        if document is not None and (refusal := _refusal(region, copy, document, present)):
            raise WrongUseError(refusal)
        wanted.append((copy.as_name, document, present))
    changed = []
    for name, document, present in wanted:
        if document is None or present is None or not _is_same(present, document):
            changed.append(name)
        if document is not None and not dry_run:
            _apply(cluster, document, present)
    return changed


def delete_copies(region: RegionNamespace, names: Iterable[str], *, dry_run: bool = False) -> list[str]:
    """Deletes the copies among these secrets; returns their names. With ``dry_run`` it deletes nothing."""
    cluster = region.cluster
    present = [secret for name in names if (secret := cluster.get("v1", "Secret", name, region.name))]
    found = [secret for secret in present if COPIED_FROM in (secret["metadata"].get("annotations") or {})]
    for secret in () if dry_run else found:
        cluster.delete({"apiVersion": "v1", "kind": "Secret", **secret})
    return [secret["metadata"]["name"] for secret in found]


def copied(copy: SecretCopy, secret: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Returns the copy: type and data, and the operator's labels and annotations of a certificate authority.

    Owner references are left out, because the owners are elsewhere and Kubernetes would delete the copy.
    """
    labels, annotations = _of_an_authority(secret["metadata"], copy)
    return labelled(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": copy.as_name,
                "namespace": namespace,
                "labels": labels,
                "annotations": {**annotations, COPIED_FROM: copy.source},
            },
            "type": secret.get("type", "Opaque"),
            "data": secret.get("data") or {},
        }
    )


def _of_an_authority(metadata: Mapping[str, Any], copy: SecretCopy) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the labels and annotations of a certificate authority's secret; none for any other secret.

    ``west-cluster-ca-cert`` belongs to the cluster ``west``, which a label names too: copied as
    ``backup-cluster-ca-cert`` it belongs to ``backup``.
    """
    for prefix in (STRIMZI_LABELS, LABELS):
        annotations = _named(metadata.get("annotations"), prefix, _GENERATIONS)
        if annotations:
            labels = _named(metadata.get("labels"), prefix, _LABELS)
            cluster = labels.get(f"{prefix}cluster", "")
            role = copy.name.removeprefix(cluster)
            if cluster and role != copy.name and copy.as_name.endswith(role):
                labels[f"{prefix}cluster"] = copy.as_name.removesuffix(role)
            return labels, annotations
    return {}, {}


def _named(present: Mapping[str, str] | None, prefix: str, names: Iterable[str]) -> dict[str, str]:
    return {key: value for name in names if (value := (present or {}).get(key := f"{prefix}{name}")) is not None}


def _refusal(
    region: RegionNamespace, copy: SecretCopy, document: Mapping[str, Any], present: Mapping[str, Any] | None
) -> str | None:
    """Returns the message for a secret that has the copy's name and is not this copy; None for this copy."""
    if present is None:
        return None
    if stranger := foreign(ManifestEntry(f"secret copied from {copy.origin}", dict(document)), present):
        return stranger
    known_as = (present["metadata"].get("annotations") or {}).get(COPIED_FROM)
    if known_as == copy.source:
        return None
    # After a switch the same secret may come from another region.
    if present.get("data") == document["data"]:
        return None
    # Copies of older versions, without the annotation, have the name of their origin.
    if known_as is None and copy.as_name == copy.name:
        return None
    return not_a_copy(region.name, copy.as_name, known_as, copy)


def _is_same(present: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    if (present.get("type"), present.get("data") or {}) != (document["type"], document["data"]):
        return False
    return all(
        document["metadata"][part].items() <= (present["metadata"].get(part) or {}).items()
        for part in ("labels", "annotations")
    )


def _apply(cluster: KubernetesCluster, document: Mapping[str, Any], present: Mapping[str, Any] | None) -> None:
    if present is not None and present.get("type") != document["type"]:
        # The type of a secret cannot be changed.
        cluster.delete({"apiVersion": "v1", "kind": "Secret", **present})
    cluster.apply(document)
