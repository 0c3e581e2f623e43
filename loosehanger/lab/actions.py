"""The actions of a stage, of which ``plan`` makes each region's steps.

A platform runs those that concern processes and resources. Those that ask clusters can be sent to a pod as JSON,
because on Kubernetes the clusters' addresses resolve only in pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from loosehanger.lab.link_settings import OneWay
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.validation import Entry
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.programs import Consumer
from loosehanger.lab.topology import SecretCopy, Topology

# What a platform does.


@dataclass(frozen=True)
class Kill:
    """Kills all processes of a region at once."""

    deletes_data: bool
    """Whether its data, certificates and secrets are deleted as well."""


@dataclass(frozen=True)
class Wipe:
    """Deletes everything in a region, except the secrets that identify it to clients."""

    clusters: tuple[str, ...]
    """The names of its future Kafka clusters, of whose predecessors nothing may remain."""
    kept: frozenset[str]
    """The names of the secrets that stay."""
    returns: tuple[SecretCopy, ...]
    """The copies in other regions from which missing secrets are restored."""


@dataclass(frozen=True)
class Delete:
    """Deletes recorded resources."""

    documents: tuple[Document, ...]


@dataclass(frozen=True)
class CopySecrets:
    """Copies secrets from other regions."""

    copies: tuple[SecretCopy, ...]


@dataclass(frozen=True)
class DeleteCopies:
    """Deletes secrets that were copied from regions that are deleted."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Apply:
    """Applies resources, and waits until they are ready."""

    documents: tuple[Document, ...]


@dataclass(frozen=True)
class ApplyLinks:
    """Starts the region's links to others, and removes those that are no longer used, on platforms that have links."""

    topology: Topology
    """All regions as they are afterwards."""
    settings: Mapping[tuple[str, str], OneWay]
    """The settings that links start with, by source and target region."""
    starts_region: bool
    """Whether it may start the first process of a region."""
    is_needed: bool
    """Whether programs of any region will use a region that none of that region used before, or the region is new."""


@dataclass(frozen=True)
class RecordResources:
    """Records the resources that the region has after a step, and how clients reach it."""

    applied: tuple[Document, ...]
    deleted: tuple[Document, ...]
    planned: tuple[Document, ...]
    """Every resource that the region has after the stage."""
    topology: Topology
    """All regions as they are afterwards."""
    is_deleted: bool
    """Whether the region's data was deleted."""

    def documents(self, before: Iterable[Document]) -> list[Document]:
        """The resources of the region after the step, in the plan's own order: a second run records the same.

        Args:
            before: what the region had.
        """
        gone = {document.reference for document in self.deleted}
        kept = {document.reference: document for document in before if document.reference not in gone}
        kept |= {document.reference: document for document in self.applied}
        order = {document.reference: place for place, document in enumerate(self.planned)}
        # Resources that a later step deletes still exist, and come last.
        return sorted(kept.values(), key=lambda document: order.get(document.reference, len(order)))


@dataclass(frozen=True)
class Decommission:
    """Deletes a region that is no longer used."""


PlatformAction = Kill | Wipe | Delete | CopySecrets | DeleteCopies | Apply | ApplyLinks | RecordResources | Decommission
"""What a platform does in one region."""


# What asks clusters and Connect, in the same way on every platform.


class ClusterAction(Entry):
    """An action that asks clusters and Connect; it can be sent to a pod as JSON."""

    changes: ClassVar[bool] = True
    """Whether it changes the lab, so that no other one may be running."""
    kind: str
    stage: str
    """The stage whose snapshots are read and kept."""


class DrainMirrors(ClusterAction):
    """Waits until records in flight have arrived."""

    kind: Literal["drain_mirrors"] = "drain_mirrors"
    drains: tuple[str, ...]
    """The ids of the mirrors that must drain before they are held."""
    settles: tuple[str, ...]
    """The ids of those that stop translating, and whose groups' offsets must settle first."""


class SnapshotMirrors(ClusterAction):
    """Keeps a snapshot of all offsets once mirrors are held."""

    kind: Literal["snapshot_mirrors"] = "snapshot_mirrors"
    mirrors: tuple[Mirror, ...]
    stopped_before: tuple[Mirror, ...] = ()
    """Those that no longer run when the stage begins. One of them has no snapshot yet if the stage was interrupted."""


class SeedGroupOffsets(ClusterAction):
    """Sets the offsets of groups, each once in a stage: once members run, it would rewind them."""

    kind: Literal["seed_group_offsets"] = "seed_group_offsets"
    region: str
    """The region of the members and their ledgers."""
    stays: tuple[Consumer, ...]
    """Members of groups that already use the cluster, and keep their offsets."""
    starts: tuple[Consumer, ...]
    """Members of groups that move to another cluster, as they are afterwards."""
    translated: bool
    """Whether a mirror has translated the groups' offsets."""


class ResetMirrorOffsets(ClusterAction):
    """Resets the offsets of mirrors, each once in a stage: once producers write again, it would skip records."""

    kind: Literal["reset_mirror_offsets"] = "reset_mirror_offsets"
    mirrors: tuple[Mirror, ...]


class DeleteTopics(ClusterAction):
    """Deletes the internal topics of mirrors that are deleted."""

    kind: Literal["delete_topics"] = "delete_topics"
    topics: dict[str, tuple[str, ...]]
    """Their names, by region."""


class FenceWrites(ClusterAction):
    """Checks that no user may write events in a region, and keeps a snapshot of its offsets."""

    kind: Literal["fence_writes"] = "fence_writes"
    region: str


class SalvageRecords(ClusterAction):
    """Salvages the records that only the sources of mirrors have."""

    kind: Literal["salvage_records"] = "salvage_records"
    mirrors: tuple[Mirror, ...]
    write: bool = False
    """Whether they are written to the targets as well."""


@dataclass(frozen=True)
class Prove:
    """Checks the stage's claims."""


Action = PlatformAction | ClusterAction | Prove
