"""The rights that a cluster gives, as its authorizer has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)

EVERY_RULE = ACLFilter(
    principal=None,
    host=None,
    operation=ACLOperation.ANY,
    permission_type=ACLPermissionType.ANY,
    resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)
_IMPLIES = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}
"""What Kafka's authorizer takes for a right that is not given itself."""


class NeededRight(NamedTuple):
    """An operation on a resource."""

    kind: str
    """As Kafka names it: TOPIC, GROUP, TRANSACTIONAL_ID."""
    name: str
    operation: str

    @property
    def text(self) -> str:
        """For people: ``Read on topic x``."""
        operation = self.operation.replace("_", " ").title().replace(" ", "")
        return f"{operation} on {self.kind.lower().replace('_', ' ')} {self.name}"


class AclRule(NamedTuple):
    """A rule of a cluster's authorizer."""

    principal: str
    kind: str
    name: str
    prefix: bool
    operation: str
    allows: bool

    def covers(self, user: str, right: NeededRight) -> bool:
        """Whether it is about this user and this right."""
        if self.principal not in (f"User:{user}", "User:*") or self.kind != right.kind:
            return False
        if not (right.name.startswith(self.name) if self.prefix else self.name in ("*", right.name)):
            return False
        implied = _IMPLIES.get(right.operation, set()) if self.allows else set()
        return self.operation in {"ALL", right.operation, *implied}


def read_rules(admin: Any) -> list[AclRule]:
    """Every rule of a cluster.

    Args:
        admin: a ``KafkaAdminClient`` of a user with Describe on the cluster.

    Raises:
        KafkaError: the cluster has no authorizer, does not answer, or refuses.
    """
    found, _ = admin.describe_acls(EVERY_RULE)
    return [
        AclRule(
            str(one.principal),
            one.resource_pattern.resource_type.name,
            one.resource_pattern.resource_name,
            one.resource_pattern.pattern_type is ACLResourcePatternType.PREFIXED,
            one.operation.name,
            one.permission_type is ACLPermissionType.ALLOW,
        )
        for one in found
    ]


def missing(rules: Iterable[AclRule], user: str, needed: Iterable[NeededRight]) -> list[NeededRight]:
    """Those of the needed rights that a user does not have."""
    known = list(rules)

    def given(right: NeededRight) -> bool:
        about = [rule for rule in known if rule.covers(user, right)]
        return bool(about) and all(rule.allows for rule in about)

    return [right for right in needed if not given(right)]
