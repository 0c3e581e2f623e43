"""Changes to consumer groups that keep a mirror from translating their offsets."""

from __future__ import annotations

from kafka import TopicPartition
from kafka.admin import MemberToRemove

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.topics import COPY_S, cluster
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.clients import connect_consumer
from loosehanger.lab.mirrors.replication import selected_groups, target_topic
from loosehanger.waiting import wait_for

SESSION_S = 1800
"""How long a broker waits for a member that sends nothing; the brokers' own limit."""
JOIN_S = 60


class CommitOffsets(Change):
    """Makes a group commit an offset of a topic at the source, as if it had read up to there."""

    group: str
    topic: str
    offset: int
    translated: bool = True
    """Whether to wait until the group has an offset at the target."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the group; refuses a mirror that does not translate it, and a group that exists."""
        return new_group(site, self.group)

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Commits, and waits for the translation where one is expected."""
        place, copy = TopicPartition(self.topic, 0), target_topic(site.mirror, self.topic)
        with cluster(site, site.mirror.source) as source:
            source.set_committed(undo["group"], {place: self.offset})
        if not self.translated:
            return
        with cluster(site, site.mirror.target) as target:

            def missing() -> str | None:
                return None if target.committed(undo["group"], [copy]) else "it has no offset"

            wait_for(missing, COPY_S, f"{site.mirror.target}: {self.group}")

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Deletes the group at both ends."""
        delete_group(site, undo["group"])


class JoinGroup(Change):
    """Makes a consumer join a group at the target, and fall silent: the group counts as active for half an hour.

    It joins as a static member, which does not leave its group when it closes.
    """

    group: str
    topic: str
    offset: int = 100
    """What the group commits at the source meanwhile."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the group, and the member's name; refuses as ``CommitOffsets`` does."""
        return {**new_group(site, self.group), "member": f"{self.group}-static"}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Joins it, closes the consumer, and commits at the source."""
        consumer = connect_consumer(
            site.connection(site.mirror.target),
            group_id=undo["group"],
            group_instance_id=undo["member"],
            session_timeout_ms=SESSION_S * 1000,
            max_poll_interval_ms=SESSION_S * 1000,
        )
        try:
            consumer.subscribe([target_topic(site.mirror, self.topic)])

            def missing() -> str | None:
                consumer.poll(timeout_ms=500, max_records=1)
                return None if consumer.assignment() else "it has no partition"

            wait_for(missing, JOIN_S, f"{site.mirror.target}: a member of {self.group}")
        finally:
            consumer.close()
        with cluster(site, site.mirror.source) as source:
            source.set_committed(undo["group"], {TopicPartition(self.topic, 0): self.offset})

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Removes the member, and deletes the group at both ends."""
        with cluster(site, site.mirror.target) as target:
            if target.members(undo["group"]):
                member = MemberToRemove(group_instance_id=undo["member"])
                target.ask(lambda admin: admin.remove_group_members(undo["group"], [member]))
        delete_group(site, undo["group"])


def new_group(site: FaultSite, group: str) -> Undo:
    """Returns a group as what healing needs.

    Raises:
        WrongUseError: the mirror does not translate its offsets, or it exists.
    """
    mirror = site.mirror
    if not mirror.translates or not selected_groups(mirror, [group]):
        raise WrongUseError(f"{mirror.name} in {mirror.region} does not translate the offsets of {group}")
    for region in (mirror.source, mirror.target):
        with cluster(site, region) as there:
            if group in there.groups():
                raise WrongUseError(f"{region} has a group {group} already; heal the fault that left it")
    return {"group": group}


def delete_group(site: FaultSite, group: str) -> None:
    """Deletes a group at both ends of the mirror, the source first, or the mirror would translate it again."""
    for region in (site.mirror.source, site.mirror.target):
        with cluster(site, region) as there:
            if group in there.groups():
                there.ask(lambda admin: admin.delete_groups([group]))
