"""An admin client in front of a made-up cluster, with the answers of kafka-python's: tests/lab has a real one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kafka import TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
)
from kafka.errors import (
    GroupAuthorizationFailedError,
    InvalidPartitionsError,
    NoError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata, OffsetAndTimestamp


@dataclass
class MadeUpAdmin:
    """Topics, each partition with its first and its end offset, and groups."""

    topics: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    """Of groups that are not of consumers."""
    members: dict[str, int] = field(default_factory=dict)
    at_time: int = 0
    """The offset that every time means."""
    forbidden: bool = False
    """Whether Kafka refuses every change."""
    changes: list[str] = field(default_factory=list)
    """The requests that would change something, in their order."""

    def describe_topics(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """All, or some."""
        return [
            {
                "name": name, "is_internal": False,
                "error_code": 0 if name in self.topics else UnknownTopicOrPartitionError.errno,
                "partitions": [{"partition_index": number} for number in range(len(self.topics.get(name, ())))],
            }
            for name in (self.topics if names is None else names)
        ]  # fmt: skip

    def create_topics(self, wanted: Mapping[str, Any], *, raise_errors: bool) -> dict[str, Any]:
        """One."""
        assert not raise_errors
        ((name, of),) = wanted.items()
        error = self._error("create", name) or (TopicAlreadyExistsError.errno if name in self.topics else 0)
        if not error:
            self.topics[name] = [(0, 0)] * of["num_partitions"]
        return {"topics": [{"error_code": error, "error_message": f"Topic '{name}'" if error else None}]}

    def create_partitions(self, wanted: Mapping[str, int], *, raise_errors: bool) -> Any:
        """Of one topic."""
        assert not raise_errors
        ((name, count),) = wanted.items()
        unknown = 0 if name in self.topics else UnknownTopicOrPartitionError.errno
        few = 0 if count > len(self.topics.get(name, ())) else InvalidPartitionsError.errno
        error = self._error("grow", name) or unknown or few
        if not error:
            self.topics[name] += [(0, 0)] * (count - len(self.topics[name]))
        answer = {"results": [{"error_code": error, "error_message": "has so many" if error else None}]}
        return SimpleNamespace(to_dict=lambda: answer)

    def delete_topics(self, names: Iterable[str], *, raise_errors: bool) -> dict[str, Any]:
        """One."""
        assert not raise_errors
        (name,) = names
        error = self._error("delete", name) or (0 if name in self.topics else UnknownTopicOrPartitionError.errno)
        if not error:
            del self.topics[name]
        return {"topics": [{"error_code": error, "error_message": None}]}

    def delete_records(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, dict[str, int]]:
        """Before an offset of each partition."""
        found = {}
        for place, before in wanted.items():
            if self._error("empty", place.topic):
                raise TopicAuthorizationFailedError
            if place.partition >= len(self.topics.get(place.topic, ())):
                raise UnknownTopicOrPartitionError
            first, end = self.topics[place.topic][place.partition]
            if before > end:
                raise OffsetOutOfRangeError
            self.topics[place.topic][place.partition] = max(first, before), end
            found[place] = {"low_watermark": max(first, before)}
        return found

    def list_groups(self) -> list[dict[str, Any]]:
        """All."""
        return [{"group_id": name, "protocol_type": self.kinds.get(name, "consumer")} for name in self.groups]

    def describe_groups(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Some."""
        return {
            name: {
                "members": [{}] * (count := self.members.get(name, 0)),
                "group_state": "Stable" if count else "Empty",
            }
            for name in names
        }

    def list_group_offsets(self, wanted: Mapping[str, None]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Of some groups."""
        return {
            name: {place: OffsetAndMetadata(at, "", -1) for place, at in self.groups[name].items()} for name in wanted
        }

    def list_partition_offsets(self, wanted: Mapping[TopicPartition, Any], **_: object) -> dict[TopicPartition, Any]:
        """The first, the end, or that of a time."""
        found = {}
        for place, spec in wanted.items():
            if place.partition >= len(self.topics.get(place.topic, ())):
                raise UnknownTopicOrPartitionError
            first, end = self.topics[place.topic][place.partition]
            at = {-2: first, -1: end}.get(int(getattr(spec, "value", spec)), self.at_time)
            found[place] = OffsetAndTimestamp(at, 0, -1)
        return found

    def alter_group_offsets(self, group: str, kept: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[Any, Any]:
        """Commits."""
        if self._error("reset", group):
            return dict.fromkeys(kept, TopicAuthorizationFailedError)
        self.groups[group] |= {place: of.offset for place, of in kept.items()}
        return dict.fromkeys(kept, NoError)

    def delete_groups(self, names: Iterable[str]) -> dict[str, Any]:
        """Some."""
        for name in names:
            if self._error("delete group", name):
                return {name: GroupAuthorizationFailedError.__name__}
            del self.groups[name]
        return dict.fromkeys(names, "OK")

    def describe_user_scram_credentials(self) -> dict[str, Any]:
        """Two users."""
        info = {"mechanism": ScramMechanism.SCRAM_SHA_512, "iterations": 4096}
        return {name: {"error": None, "credential_infos": [info]} for name in ("console-europe", "operator")}

    def describe_acls(self, _: object) -> tuple[list[ACL], Any]:
        """Of one of them, and of one that is not there any more."""
        topic = ResourcePattern(ResourceType.TOPIC, "LH.", ACLResourcePatternType.PREFIXED)
        return [
            ACL("User:console-europe", "*", ACLOperation.READ, ACLPermissionType.ALLOW, topic),
            ACL("User:console-europe", "*", ACLOperation.DESCRIBE_CONFIGS, ACLPermissionType.ALLOW, topic),
            ACL("User:gone<b>", "*", ACLOperation.WRITE, ACLPermissionType.DENY, topic),
        ], NoError  # fmt: skip

    def _error(self, change: str, name: str) -> int:
        self.changes.append(f"{change} {name}")
        return TopicAuthorizationFailedError.errno if self.forbidden else 0
