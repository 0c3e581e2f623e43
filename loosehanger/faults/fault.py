"""A fault of the catalogue: what it is in the field, how it is made here, and what must notice it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.certificates import ReplaceCertificate
from loosehanger.faults.changes.change import Change
from loosehanger.faults.changes.connectors import (
    ConfigureConnector,
    DeleteConnector,
    MistypePattern,
    PauseConnector,
)
from loosehanger.faults.changes.credentials import ChangePassword
from loosehanger.faults.changes.disks import FillDisk
from loosehanger.faults.changes.groups import CommitOffsets, JoinGroup
from loosehanger.faults.changes.links import DisturbLink, ResetConnections
from loosehanger.faults.changes.processes import FreezeProcess, KillProcess, StopProcess
from loosehanger.faults.changes.quotas import ThrottleOffsets
from loosehanger.faults.changes.rebalance import StallRebalance
from loosehanger.faults.changes.records import DeleteRecords, OutrunMirror, WriteRecords
from loosehanger.faults.changes.resources import DeletePod, DenyUser, EditMirror, MistypeDeclaredPattern
from loosehanger.faults.changes.rights import RevokeRight
from loosehanger.faults.changes.topics import (
    AlterBrokers,
    AlterCopy,
    DeleteCopy,
    DeleteInternalTopic,
    KeepPartitions,
    OwnTopic,
    RecreateTopic,
)
from loosehanger.faults.changes.transactions import OpenTransaction
from loosehanger.faults.names import CATALOGUE, fault_names
from loosehanger.lab.manifests.documents import read_documents, read_file
from loosehanger.lab.manifests.validation import Entry, validated
from loosehanger.lab.progress import LOCAL
from loosehanger.suggestions import did_you_mean

CHANGES: Mapping[str, type[Change]] = {
    "alter_brokers": AlterBrokers,
    "alter_copy": AlterCopy,
    "change_password": ChangePassword,
    "commit_offsets": CommitOffsets,
    "configure_connector": ConfigureConnector,
    "delete_connector": DeleteConnector,
    "delete_copy": DeleteCopy,
    "delete_internal_topic": DeleteInternalTopic,
    "delete_pod": DeletePod,
    "delete_records": DeleteRecords,
    "deny_user": DenyUser,
    "disturb_link": DisturbLink,
    "edit_mirror": EditMirror,
    "fill_disk": FillDisk,
    "freeze_process": FreezeProcess,
    "join_group": JoinGroup,
    "keep_partitions": KeepPartitions,
    "kill_process": KillProcess,
    "mistype_declared_pattern": MistypeDeclaredPattern,
    "mistype_pattern": MistypePattern,
    "open_transaction": OpenTransaction,
    "outrun_mirror": OutrunMirror,
    "own_topic": OwnTopic,
    "pause_connector": PauseConnector,
    "recreate_topic": RecreateTopic,
    "replace_certificate": ReplaceCertificate,
    "reset_connections": ResetConnections,
    "revoke_right": RevokeRight,
    "stall_rebalance": StallRebalance,
    "stop_process": StopProcess,
    "throttle_offsets": ThrottleOffsets,
    "write_records": WriteRecords,
}
"""The changes that a fault may name."""


def change_of(value: object) -> Change:
    """Reads a change from a catalogue's file: a mapping of its name to its settings.

    Raises:
        ValueError: there is no such change, or its settings are wrong.
    """
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError("expected one change with its settings, as in 'pause_connector: {}'")
    [(name, settings)] = value.items()
    if name not in CHANGES:
        hint = did_you_mean(str(name), CHANGES) or f"; there are: {', '.join(CHANGES)}"
        raise ValueError(f"there is no change '{name}'{hint}")
    return CHANGES[name].model_validate(settings or {})


def change_text(change: Change) -> dict[str, Any]:
    """Returns a change in the form of a catalogue's file."""
    name = next(name for name, kind in CHANGES.items() if type(change) is kind)
    return {name: change.model_dump(mode="json")}


class Report(Entry):
    """A public report of the fault."""

    about: str
    url: str


class Notice(Entry):
    """What a tool must say of the fault, and how soon."""

    says: str
    """A part of its text, in upper or lower case."""
    within: int
    """Seconds after the injection."""


class ProofNotice(Entry):
    """What the proof must say of the fault."""

    verdict: Literal["proved", "disproved", "inconclusive"]
    says: str = ""
    """A part of its text."""


class Noticed(Entry):
    """What notices the fault; what is left out does not."""

    status: Notice | None = None
    watch: Notice | None = None
    alert: Notice | None = None
    """``says`` is the alert's name."""
    proof: ProofNotice | None = None
    nothing: str = ""
    """Why nothing can notice it."""


class Plain(Entry):
    """What the tools of Kafka and Strimzi show of it, as observed here or documented."""

    resource: str
    """The conditions of the KafkaMirrorMaker2."""
    connect: str
    """Connect's REST interface."""
    metrics: str
    """The JMX metrics of MirrorMaker 2 and Connect."""


class Needs(Entry):
    """What a lab must have for it."""

    mirrors: int = 1
    """At least so many mirrors."""
    sources: int = 1
    """The mirror's resource must copy from at least so many sources."""
    exactly_once: bool | None = None
    """Whether the mirror must be, or must not be, set up with exactly-once delivery; None for either."""
    checkpoints: bool = False
    """Whether the mirror must translate consumer groups."""


_Change = Annotated[InstanceOf[Change], BeforeValidator(change_of)]


class Fault(Entry):
    """One fault."""

    name: str
    """Its file's name without ``.yaml``."""
    title: str
    """One line, for the list."""
    level: Annotated[int, Field(ge=1, le=3)]
    """How hard it is to find: 1, a tool names it; 2, one must compare; 3, nothing plain shows it."""
    field: str
    """What happens in the field."""
    reports: tuple[Report, ...] = ()
    needs: Needs = Needs()
    changes: tuple[_Change, ...]
    """How it is made on one machine; healed in reverse order."""
    on_kubernetes: tuple[_Change, ...] = ()
    """How an account of the namespaces makes it on Kubernetes; none where it cannot."""
    noticed: Noticed
    plain: Plain
    mirror_does: str
    """What MirrorMaker 2 does."""
    remedy: str
    """What an operator does."""
    after: Literal["proved", "disproved"] = "proved"
    """What the proof says once it is healed."""
    heals_itself: bool = False
    """Whether the lab recovers without healing."""

    def changes_on(self, platform: str) -> tuple[Change, ...]:
        """Returns how it is made on a platform; empty where it cannot be."""
        return self.changes if platform == LOCAL else self.on_kubernetes


def read_fault(name: str, catalogue: Path = CATALOGUE) -> Fault:
    """Reads a fault.

    Raises:
        WrongUseError: there is no such fault, or its file has a mistake.
    """
    names = fault_names(catalogue)
    if name not in names:
        raise WrongUseError(f"there is no fault '{name}'{did_you_mean(name, names) or '; ./lab fault list shows them'}")
    path = catalogue / f"{name}.yaml"
    document, *further = read_documents(str(path), read_file(path))
    if further:
        raise WrongUseError(f"{further[0].where()}: one fault in each file")
    fault = validated(Fault, document)
    if fault.name != name:
        raise WrongUseError(f"{path}: name: '{fault.name}' must be '{name}', as the file")
    return fault
