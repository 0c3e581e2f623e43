"""Rights on a cluster: those that a client needs, and those that ACLs grant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_IMPLIES = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}
"""Operations that imply another one for Kafka's authorizer."""
_WITHIN = re.compile(r"(?<=[a-z])(?=[A-Z])")


def constant(word: str) -> str:
    """Returns a manifest's word as Kafka's protocol writes it: ``describeConfigs`` becomes ``DESCRIBE_CONFIGS``."""
    return _WITHIN.sub("_", word).upper()


def named_operation(operation: str) -> str:
    """Returns an operation as manifests write it: ``DESCRIBE_CONFIGS`` becomes ``DescribeConfigs``."""
    return operation.replace("_", " ").title().replace(" ", "")


class NeededRight(NamedTuple):
    """An operation on a resource."""

    kind: str
    """Kafka's resource type: TOPIC, GROUP, TRANSACTIONAL_ID."""
    name: str
    operation: str

    @property
    def text(self) -> str:
        """``Read on topic x``, for messages."""
        return f"{named_operation(self.operation)} on {self.kind.lower().replace('_', ' ')} {self.name}"


class AclRule(NamedTuple):
    """An ACL of a cluster."""

    principal: str
    kind: str
    name: str
    prefix: bool
    operation: str
    allows: bool
    host: str = "*"
    """The address that it applies to; an asterisk for all."""

    @property
    def text(self) -> str:
        """``Allow Read on topic x* for User:ann``, for messages."""
        right = NeededRight(self.kind, f"{self.name}*" if self.prefix else self.name, self.operation)
        at = "" if self.host == "*" else f" at {self.host}"
        return f"{'Allow' if self.allows else 'Deny'} {right.text} for {self.principal}{at}"

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
