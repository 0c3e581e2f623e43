"""The ACLs that the manifests list, and which users of other regions may read a topic: those whose secrets are copied
there and whose ACLs allow it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from loosehanger.acls import AclRule, constant
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.topology import Topology

_READING = {"read", "all"}
_CLUSTER = "kafka-cluster"
"""Kafka's name for the resource of a cluster."""


class RemoteReader(NamedTuple):
    """A user of another region that may read a topic in the region that both belong to."""

    region: str
    """The region of the user and of the topic."""
    user: str
    rule: str
    """The topic name in the ACL, with an asterisk for a prefix."""


def readers_from(topology: Topology, region: str, topic: str) -> Iterator[RemoteReader]:
    """Yields the users of other regions whose secrets are in this region, and that may read a topic in their own.

    Args:
        topology: every region's resources.
        region: where the secrets are.
        topic: the topic's name where it is written.
    """
    copied = {(c.origin, c.name) for c in topology.secret_copies() if c.region == region and c.maker == "KafkaUser"}
    for origin, name in sorted(copied):
        for user in topology.of_kind("KafkaUser", origin):
            if user.name == name and (rule := _rule(user, topic)):
                yield RemoteReader(origin, name, rule)


def listed_rules(topology: Topology, region: str) -> set[AclRule]:
    """Returns the ACLs that the KafkaUser resources of a region list, as its cluster has them."""
    return {
        AclRule(
            f"User:{sign_ins.principal(user.name, user.content)}",
            constant(acl["resource"]["type"]),
            acl["resource"].get("name", _CLUSTER),
            acl["resource"].get("patternType") == "prefix",
            constant(operation),
            acl.get("type", "allow") == "allow",
            acl.get("host", "*"),
        )
        for user in topology.of_kind("KafkaUser", region)
        for acl in ((user.content.get("spec") or {}).get("authorization") or {}).get("acls") or ()
        for operation in acl.get("operations") or ()
    }


def _rule(user: Document, topic: str) -> str:
    authorization = user.spec.get("authorization") or {}
    for acl in authorization.get("acls") or ():
        resource = acl.get("resource") or {}
        operations = {str(operation).lower() for operation in acl.get("operations") or ()}
        if resource.get("type") != "topic" or acl.get("type", "allow") != "allow" or not operations & _READING:
            continue
        name = str(resource.get("name", ""))
        is_prefix = resource.get("patternType") == "prefix"
        if name in ("*", topic) or (is_prefix and topic.startswith(name)):
            return f"{name}*" if is_prefix else name
    return ""
