"""What a fault of the catalogue touches, which mirrors it can reach, and which faults exclude each other.

All of it follows from the changes that the fault is made of. A change that is not known here counts as one that
touches everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from loosehanger.faults.changes.certificates import ReplaceCertificate
from loosehanger.faults.changes.change import Change
from loosehanger.faults.changes.connectors import ConfigureConnector, DeleteConnector, MistypePattern, PauseConnector
from loosehanger.faults.changes.credentials import ChangePassword
from loosehanger.faults.changes.groups import CommitOffsets, JoinGroup
from loosehanger.faults.changes.links import DisturbLink, ResetConnections
from loosehanger.faults.changes.processes import ProgramChange
from loosehanger.faults.changes.rebalance import StallRebalance
from loosehanger.faults.changes.records import DeleteRecords, OutrunMirror, WriteRecords
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
from loosehanger.faults.fault import Fault
from loosehanger.lab.mirrors.mirror import Mirror

At = tuple[Fault, Mirror]
"""A fault at a mirror."""
_DENIALS = (RevokeRight, ChangePassword, ReplaceCertificate)
_OF_TOPICS = (
    AlterCopy, CommitOffsets, DeleteCopy, DeleteRecords, JoinGroup, OpenTransaction, OwnTopic, RecreateTopic,
    WriteRecords,
)  # fmt: skip


def depth(fault: Fault) -> int:
    """Returns how much a fault takes away from those that are injected later.

    0: nothing; 1: the mirror stops copying, but Connect answers; 2: a worker or a link is gone; 3: a broker is gone.
    """
    return max(_depth(fault, change) for change in fault.changes)


def _depth(fault: Fault, change: Change) -> int:
    if isinstance(change, ProgramChange):
        return 2 if change.process == "worker" else 3
    if isinstance(change, DisturbLink | ResetConnections | StallRebalance):
        return 2
    return 1 if stops_copying(fault) else 0


def stops_copying(fault: Fault) -> bool:
    """Whether a fault may stop its mirror from copying, which may hide other faults of that mirror."""
    denied = any(isinstance(change, _DENIALS) for change in fault.changes)
    return denied or bool(fault.noticed.proof and fault.noticed.proof.verdict == "inconclusive")


def reach(fault: Fault, mirror: Mirror, mirrors: Iterable[Mirror]) -> frozenset[str]:
    """Returns the ids of the mirrors that a fault at a mirror can disturb."""
    return frozenset(
        other.id
        for other in mirrors
        if other.id == mirror.id or any(_reaches(change, mirror, other) for change in fault.changes)
    )


def _reaches(change: Change, mirror: Mirror, other: Mirror) -> bool:
    same_worker = (mirror.region, mirror.name) == (other.region, other.name)
    if isinstance(change, ProgramChange):
        broker = {"source-broker": mirror.source, "target-broker": mirror.target}.get(change.process)
        return same_worker if broker is None else broker in (other.source, other.target)
    if isinstance(change, DisturbLink | ResetConnections):
        return {mirror.source, mirror.target} == {other.source, other.target}
    if isinstance(change, RevokeRight | ChangePassword) and change.end == "source":
        # Mirrors of one source may share the user there.
        return same_worker or other.source == mirror.source
    if isinstance(change, (*_DENIALS, KeepPartitions, StallRebalance)):
        # Mirrors of one worker share the user at the target.
        return same_worker
    if isinstance(change, AlterBrokers):
        return (mirror.source if change.end == "source" else mirror.target) in (other.source, other.target)
    if isinstance(change, _OF_TOPICS):
        # Every mirror of the source may copy the topic; a mirror of the target may copy the copy.
        return other.source in (mirror.source, mirror.target)
    if isinstance(change, ConfigureConnector | DeleteConnector | MistypePattern | PauseConnector | OutrunMirror):
        return False
    return not isinstance(change, DeleteInternalTopic) or same_worker


def excludes(one: At, other: At) -> bool:
    """Whether two faults exclude each other: they are the same, or change the same thing."""
    return one[0].name == other[0].name or not _subjects(*one).isdisjoint(_subjects(*other))


def is_near(one: At, other: At, mirrors: Sequence[Mirror]) -> bool:
    """Whether two faults can disturb the same mirror."""
    return not reach(*one, mirrors).isdisjoint(reach(*other, mirrors))


def _subjects(fault: Fault, mirror: Mirror) -> frozenset[tuple[object, ...]]:
    return frozenset(subject for change in fault.changes for subject in _changed(change, mirror))


def _changed(change: Change, mirror: Mirror) -> Iterator[tuple[object, ...]]:
    """Yields the things that a change acts on."""
    if isinstance(change, ConfigureConnector | DeleteConnector | PauseConnector):
        yield "connector", mirror.id, change.connector
    elif isinstance(change, MistypePattern | OutrunMirror):
        yield "connector", mirror.id, "source"
    elif isinstance(change, ProgramChange):
        region = {"source-broker": mirror.source, "target-broker": mirror.target}.get(change.process, mirror.region)
        yield "process", region, mirror.name if change.process == "worker" else "broker"
    elif isinstance(change, DisturbLink | ResetConnections):
        yield "link", frozenset({mirror.source, mirror.target})
    elif isinstance(change, StallRebalance):
        yield "process", mirror.region, mirror.name
    elif isinstance(change, (*_DENIALS, KeepPartitions)):
        yield "user", mirror.region, mirror.name
    elif isinstance(change, AlterBrokers):
        yield "brokers", mirror.source if change.end == "source" else mirror.target
    elif isinstance(change, DeleteInternalTopic):
        yield "internal", mirror.id, change.which
    elif isinstance(change, OwnTopic):
        yield "topic", change.topic
    elif not isinstance(change, _OF_TOPICS):
        yield ("unknown",)
