"""The conditions that must hold before a stage begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from kafka import TopicPartition

from loosehanger.errors import WrongUseError
from loosehanger.kafka.offsets import connector_states
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.programs import consumers
from loosehanger.lab.record import Lab
from loosehanger.lab.snapshots import (
    FenceSnapshot,
)
from loosehanger.stages import live_mirror
from loosehanger.stages.live_mirror import Condition, LiveMirror


def conditions(lab: Lab, mirrors: Sequence[Mirror], *, begun: bool = False) -> list[Condition]:
    """The conditions for a planned switch away from the sources of these mirrors.

    Args:
        lab: what is set up.
        mirrors: which.
        begun: whether the switch was begun and interrupted.

    Raises:
        LabError: a cluster or Connect does not answer.
    """
    return [
        condition
        for mirror in mirrors
        for condition in live_mirror.with_flow(lab, mirror, lambda flow: list(flow.conditions(begun=begun)))
    ]


def standstill(lab: Lab, mirrors: Iterable[Mirror]) -> list[Condition]:
    """The conditions that mirrors are stopped: those that are reset, or whose source is wiped.

    Raises:
        LabError: Connect does not answer.
    """
    found = []
    for mirror in mirrors:
        rest = live_mirror.connect_of(lab, mirror)
        names = filter(None, (mirror.connector, mirror.checkpoint_connector))
        states = {state for name in names for state in connector_states(rest, name)}
        shown = ", ".join(sorted(states))
        found.append(Condition(f"{mirror.name}: connectors", shown, "STOPPED, each of them", states == {"STOPPED"}))
    return found


def archive_conditions(lab: Lab, mirrors: Iterable[Mirror], leaving: Collection[str]) -> list[Condition]:
    """The conditions that groups which leave a target have read the records that only the target has.

    They find these records in no other cluster. Where topics keep their names, producers at the target write to the
    copies, and the drain waits for the groups; otherwise no producer writes to a copy while the mirror is stopped.

    Args:
        lab: what is set up.
        mirrors: those whose offsets will be reset.
        leaving: the consumers that move to another cluster, by the names of their Deployments.

    Raises:
        LabError: a cluster or Connect does not answer.
    """
    found = []
    for mirror in mirrors:
        for consumer in consumers(lab.topology):
            if consumer.name in leaving and consumer.cluster_region == mirror.target:
                unread = partial(LiveMirror.unread_archive, group=consumer.group, pattern=consumer.pattern)
                number = live_mirror.with_flow(lab, mirror, unread)
                what = f"{consumer.group}: records that only {mirror.target} has, and that it has not read"
                found.append(Condition(what, f"{number:,}", "0", not number))
    return found


def fence_conditions(lab: Lab, region: str, since: FenceSnapshot | None) -> list[Condition]:
    """The conditions that no user may write events in a region, and that no event was written since the fence.

    Args:
        lab: what is set up.
        region: the fenced region.
        since: the snapshot of the fence; None if none was kept.

    Raises:
        LabError: the cluster does not answer.
    """
    with live_mirror.open_cluster(lab, region) as reader:
        topics = live_mirror.topics_of_events(lab, region, reader)
        may = [user for user in reader.writers(topics) if user != ADMINISTRATOR]
        found = [Condition(f"{region}: users that may write events", ", ".join(may) or "none", "none", not may)]
        if since is None:
            return [*found, Condition(f"{region}: fence", "none was kept", "kept", False)]
        starts = {TopicPartition(topic, part): end for topic, of in since.ends.items() for part, end in of.items()}
        written = reader.written({**dict.fromkeys(reader.ends(topics), 0), **starts})
        shown = "; ".join(f"{number:,} in {topic}" for topic, number in written.items())
        return [*found, Condition(f"{region}: records written since the fence", shown or "none", "none", not written)]


def use_condition(lab: Lab, region: str) -> Condition:
    """The condition that no group has members in a region that will be deleted.

    Raises:
        LabError: the cluster does not answer.
    """
    with live_mirror.open_cluster(lab, region) as reader:
        used = {group: members for group in reader.groups() if (members := reader.members(group))}
    shown = ", ".join(f"{group} ({members})" for group, members in used.items())
    return Condition(f"{region}: groups with members", shown or "none", "none", not used)


def check(found: Iterable[Condition]) -> None:
    """Checks that a stage may begin.

    Raises:
        WrongUseError: a condition does not hold; the message has its numbers.
    """
    if wrong := [str(condition) for condition in found if not condition.holds]:
        raise WrongUseError(f"{'; '.join(wrong)}; nothing was changed")
