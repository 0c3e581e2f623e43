"""Rights on a cluster: those that are needed, and those that an authorizer's rules give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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


def missing(rules: Iterable[AclRule], user: str, needed: Iterable[NeededRight]) -> list[NeededRight]:
    """Those of the needed rights that a user does not have."""
    known = list(rules)

    def given(right: NeededRight) -> bool:
        about = [rule for rule in known if rule.covers(user, right)]
        return bool(about) and all(rule.allows for rule in about)

    return [right for right in needed if not given(right)]
