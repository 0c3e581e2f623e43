"""The rules of a cluster's authorizer."""

from __future__ import annotations

from typing import Any

from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)

from loosehanger.acls import AclRule

EVERY_RULE = ACLFilter(
    principal=None,
    host=None,
    operation=ACLOperation.ANY,
    permission_type=ACLPermissionType.ANY,
    resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)


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
            str(one.host),
        )
        for one in found
    ]
