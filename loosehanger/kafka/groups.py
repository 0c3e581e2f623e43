"""Whether the members of a consumer group read anything: a program may run and hold no partition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loosehanger.errors import LabError
from loosehanger.kafka.clients import HURRIED
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection

SETTLED = "Stable"


@dataclass(frozen=True)
class Group:
    """A consumer group, as its coordinator describes it."""

    name: str
    pattern: str
    """A regular expression of the topics that it reads."""
    state: str
    """In Kafka's words: Stable, Empty, PreparingRebalance, …"""
    members: int
    partitions: int
    """How many its members hold together."""
    topics: int
    """How many topics match, of those that the members' user may describe."""

    def lacks(self, members: int) -> str | None:
        """Why the group does not read all its topics; None if it does.

        Args:
            members: how many there should be.
        """
        if self.members < members:
            return f"{self.members} of {members} are in group '{self.name}', which is {self.state}"
        if self.state != SETTLED:
            return f"group '{self.name}' is {self.state}"
        if self.topics and not self.partitions:
            return f"group '{self.name}' holds no partition of the {self.topics} topics that match {self.pattern}"
        return None


def look(connection: Connection, name: str, pattern: str) -> Group:
    """Describes a group, as the members' own user.

    Args:
        connection: the members' way into the cluster.
        name: the group's id.
        pattern: a regular expression of the topics that it reads.

    Raises:
        UnreachableError: the cluster does not answer, or refuses.
        LabError: the coordinator reports an error of the group.
    """
    with Cluster(",".join(connection.bootstrap_servers), connection, HURRIED) as cluster:
        found = cluster.ask(lambda admin: admin.describe_groups([name]))[name]
        topics = cluster.topics()
    if found["error"]:
        raise LabError(f"group '{name}' cannot be described: {found['error']}")
    return Group(
        name=name,
        pattern=pattern,
        state=found["group_state"],
        members=len(found["members"]),
        partitions=sum(partitions_held(member) for member in found["members"]),
        topics=sum(bool(re.match(pattern, topic)) for topic in topics),
    )


def partitions_held(member: Mapping[str, Any]) -> int:
    """How many partitions a member of a group holds, as kafka-python describes it.

    While a group is rebalancing its members have no assignments, and those of other protocols are not decoded.
    """
    assignment = member["member_assignment"]
    assigned = assignment["assigned_partitions"] if isinstance(assignment, dict) else ()
    return sum(len(topic["partitions"]) for topic in assigned if isinstance(topic, dict))
