"""Who may read what, by the rights that manifests give: from elsewhere too, by users whose secrets are copied there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.topology import Topology

_READING = {"read", "all"}


class RemoteReader(NamedTuple):
    """A user who may read a topic of the region that it belongs to."""

    region: str
    """Whose user it is, and whose topic."""
    user: str
    rule: str
    """The name in the rule that says so, with an asterisk where it is a prefix."""


def readers_from(topology: Topology, region: str, topic: str) -> Iterator[RemoteReader]:
    """The users of other regions that a region has the secrets of, and that may read a topic at home.

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


def _rule(user: Document, topic: str) -> str:
    authorization = (user.content.get("spec") or {}).get("authorization") or {}
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
