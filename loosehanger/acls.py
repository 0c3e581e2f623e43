"""Rights on a cluster: those that a client needs, and those that ACLs grant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_IMPLIES = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}
"""Operations that imply another one for Kafka's authorizer."""


class NeededRight(NamedTuple):
    """An operation on a resource."""

    kind: str
    """Kafka's resource type: TOPIC, GROUP, TRANSACTIONAL_ID."""
    name: str
    operation: str

    @property
    def text(self) -> str:
        """``Read on topic x``, for messages."""
        operation = self.operation.replace("_", " ").title().replace(" ", "")
        return f"{operation} on {self.kind.lower().replace('_', ' ')} {self.name}"


class AclRule(NamedTuple):
    """An ACL of a cluster."""

    principal: str
    kind: str
    name: str
    prefix: bool
    operation: str
    allows: bool

    def covers(self, user: str, right: NeededRight) -> bool:
        """Whether it applies to this user and this right."""
        if self.principal not in (f"User:{user}", "User:*") or self.kind != right.kind:
            return False
        if not (right.name.startswith(self.name) if self.prefix else self.name in ("*", right.name)):
            return False
        implied = _IMPLIES.get(right.operation, set()) if self.allows else set()
        return self.operation in {"ALL", right.operation, *implied}


def missing(rules: Iterable[AclRule], user: str, needed: Iterable[NeededRight]) -> list[NeededRight]:
    """Returns the needed rights that a user does not have."""
    known = list(rules)

    def given(right: NeededRight) -> bool:
        about = [rule for rule in known if rule.covers(user, right)]
        return bool(about) and all(rule.allows for rule in about)

    return [right for right in needed if not given(right)]
