"""The objects of changes of topics, records and groups, and of what is read before one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from loosehanger.console.models import Answer, Model, SettingName, SettingValue

MOST_PARTITIONS = 100
"""Partitions of a topic that a console creates: each costs the brokers files and memory."""
MOST_MOVES = 1000
MOST_GROUP_NAME = 255
_MOST_OFFSET = 2**63 - 1
PartitionNumber = Annotated[int, Field(ge=0, lt=100_000)]
Offset = Annotated[int, Field(ge=0, le=_MOST_OFFSET)]
GroupName = Annotated[str, StringConstraints(min_length=1, max_length=MOST_GROUP_NAME)]
NewTopicName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$"), Field(description="As in LH.RETURNS")
]


class NewTopic(Model):
    """A topic to create."""

    name: NewTopicName
    partitions: Annotated[int, Field(ge=1, le=MOST_PARTITIONS)] = 3
    settings: Annotated[dict[SettingName, SettingValue], Field(max_length=30)] = Field(
        default_factory=dict, description="Its overrides"
    )


class PartitionCount(Model):
    """How many partitions a topic must have."""

    partitions: Annotated[int, Field(ge=2, le=MOST_PARTITIONS)]


class RecordDeletion(Model):
    """Records to delete."""

    before: Annotated[dict[PartitionNumber, Offset], Field(min_length=1, max_length=MOST_MOVES)] = Field(
        description="By partition, the first offset that stays"
    )


class DeletedPart(Model):
    """What a deletion of records does to a partition."""

    partition: int
    first: int
    end: int
    before: int = Field(description="The first offset that stays")
    offsets: int = Field(description="Offsets that are deleted; of records, and of markers of transactions")


class GroupMove(Model):
    """A group's offset in a partition, and the one that takes its place."""

    topic: NewTopicName
    partition: PartitionNumber
    committed: Offset | None = Field(description="As in the preview; None where it has committed none")
    to: Offset


class GroupReset(Model):
    """Offsets to commit in place of a group's own."""

    group: GroupName
    moves: Annotated[list[GroupMove], Field(min_length=1, max_length=MOST_MOVES)]


class PlannedMoveOf(GroupMove):
    """A move of a preview."""

    first: int
    end: int = Field(description="The last stable offset")
    again: int = Field(description="Offsets that the group reads again")
    skipped: int = Field(description="Offsets that it will not read")


class ResetPreview(Model):
    """What a reset of a group would do."""

    region: str
    group: str
    to: str = Field(description="As it was asked for")
    moves: list[PlannedMoveOf]
    again: int = Field(description="Offsets that the group reads again; of records, and of markers of transactions")
    skipped: int = Field(description="Offsets that it will not read")
    records_again: int | None = Field(description="The same in records; None where they are too many to count")
    records_skipped: int | None
    refused: str = Field(description="Why it cannot be reset now, such as its members; empty if it can")


class UserRight(Model):
    """A right of a user, by ACLs on one resource."""

    kind: str = Field(description="TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID …")
    name: str = Field(description="With an asterisk at its end for a prefix")
    operations: list[str]
    allows: bool


class User(Model):
    """A user of a region's cluster."""

    region: str
    name: str
    mechanisms: list[str] = Field(description="How it signs in, as in SCRAM-SHA-512; empty where that is not known")
    acls: list[UserRight]


class Users(Answer):
    """Users and their rights."""

    users: list[User]


class ConnectorSetting(Model):
    """A setting of a connector."""

    name: str
    value: str | None = Field(description="None where it is secret")
    default: str | None = Field(description="MirrorMaker 2's default; None where it has none, or does not name it")
    known: bool = Field(description="Whether the connector describes it; others are passed on to its clients")
    differs: bool = Field(description="Whether it is set, and not to its default")
    documentation: str


class ConnectorConfiguration(Model):
    """A connector's configuration."""

    region: str
    mirror: str
    connector: str
    kind: str
    settings: list[ConnectorSetting] = Field(description="Those that differ from the defaults come first")
