"""Rights that the administrator has only while a change is made: the kit's own users have no more than they need."""

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
from loosehanger.lab.record import ADMINISTRATOR
from loosehanger.waiting import wait_for

RULE_S = 30
"""Seconds until a broker lists a rule that was created."""


@contextlib.contextmanager
def granted(site: FaultSite, region: str, kind: str, name: str, operation: str) -> Iterator[None]:
    """Gives the administrator a right on a region's cluster, and takes it away at the end.

    Args:
        site: the fault's.
        region: whose cluster.
        kind: Kafka's resource type, such as ``TRANSACTIONAL_ID``.
        name: the resource's name.
        operation: Kafka's operation, such as ``WRITE``.
    """
    resource = ResourcePattern(ResourceType[kind], name, ACLResourcePatternType.LITERAL)
    rule = ACL(f"User:{ADMINISTRATOR}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, resource)
    with site.admin(region) as admin:
        admin.create_acls([rule])
        try:
            wait_for(lambda: None if _listed(admin, rule) else "it is not listed", RULE_S, f"{region}: a rule")
            yield
        finally:
            admin.delete_acls([rule])


def _listed(admin: KafkaAdminClient, rule: ACL) -> bool:
    return bool(admin.describe_acls(rule)[0])
