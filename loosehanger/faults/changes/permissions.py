"""Rules of a cluster's authorizer, and rights that the administrator has only while a change is made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from loosehanger.faults.site import FaultSite
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.waiting import wait_for

RULE_S = 30
"""Seconds until a broker lists a rule that was created, or no longer lists one that was deleted."""


def acl(principal: str, kind: str, name: str, operation: str, permission: str, pattern: str = "LITERAL") -> ACL:
    """Returns a rule, by Kafka's names.

    Args:
        principal: such as ``User:admin``.
        kind: the resource type, such as ``TRANSACTIONAL_ID``.
        name: the resource's name.
        operation: such as ``WRITE``.
        permission: ``ALLOW`` or ``DENY``.
        pattern: ``LITERAL``, or ``PREFIXED`` for every name with this prefix.
    """
    resource = ResourcePattern(ResourceType[kind], name, ACLResourcePatternType[pattern])
    return ACL(principal, "*", ACLOperation[operation], ACLPermissionType[permission], resource)


def is_listed(admin: KafkaAdminClient, rule: ACL) -> bool:
    """Whether a cluster has a rule."""
    return bool(admin.describe_acls(rule)[0])


@contextlib.contextmanager
def granted(site: FaultSite, region: str, kind: str, name: str, operation: str) -> Iterator[None]:
    """Gives the administrator a right on a region's cluster, and takes it away at the end.

    The kit's own users have no more than they need.

    Args:
        site: the fault's.
        region: whose cluster.
        kind: Kafka's resource type, such as ``TRANSACTIONAL_ID``.
        name: the resource's name.
        operation: Kafka's operation, such as ``WRITE``.
    """
    rule = acl(f"User:{ADMINISTRATOR}", kind, name, operation, "ALLOW")
    with site.admin(region) as admin:
        admin.create_acls([rule])
        try:
            wait_for(lambda: None if is_listed(admin, rule) else "it is not listed", RULE_S, f"{region}: a rule")
            yield
        finally:
            admin.delete_acls([rule])
