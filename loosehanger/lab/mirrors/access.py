"""The ACLs that a mirror's users need at its source and its target, and the message for those that they lack."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from loosehanger.acls import NeededRight
from loosehanger.lab.manifests.views import is_exactly_once
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import STATE_TOPICS, offset_syncs, target_topic

_NAMED = 3
_USER = re.compile(r"""\busername\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")

_CERTIFICATE = re.compile(r"\$\{\w+:(?:[^:}]*/)?([^/:}]+):[^:}]+\}")
"""A reference to a key of a secret."""


def user_of(config: Mapping[str, str], end: str) -> str:
    """Returns the user that a connector signs in as, as ACLs name it; empty if its configuration does not name one.

    The certificate of a user is in the secret of its name, and ACLs are for the certificate's subject.

    Args:
        config: the connector's configuration.
        end: ``source`` or ``target``.
    """
    if shown := _CERTIFICATE.fullmatch(config.get(f"{end}.cluster.ssl.keystore.certificate.chain", "")):
        return f"CN={shown[1]}"
    found = _USER.search(config.get(f"{end}.cluster.sasl.jaas.config", ""))
    return next(filter(None, found.groups()), "") if found else ""


def at_source(mirror: Mirror, topics: Iterable[str], config: Mapping[str, str]) -> list[NeededRight]:
    """Returns the rights that the mirror needs at its source.

    Args:
        mirror: the mirror.
        topics: the source's topics that it copies.
        config: its source connector's configuration.
    """
    needed = [NeededRight("TOPIC", topic, "READ") for topic in topics]
    if config.get("sync.topic.configs.enabled", "true").lower() == "true":
        needed += [NeededRight("TOPIC", topic, "DESCRIBE_CONFIGS") for topic in topics]
    return needed + _syncs(mirror, "source")


def at_target(mirror: Mirror, topics: Iterable[str], config: Mapping[str, str]) -> list[NeededRight]:
    """Returns the rights that the mirror needs at its target; the arguments are those of ``at_source``."""
    copies = [target_topic(mirror, topic) for topic in topics]
    needed = [NeededRight("TOPIC", copy, "WRITE") for copy in copies]
    if config.get("sync.topic.configs.enabled", "true").lower() == "true":
        needed += [NeededRight("TOPIC", copy, "ALTER_CONFIGS") for copy in copies]
    return needed + _syncs(mirror, "target")


def of_workers(target: Mapping[str, object], connectors: Iterable[str]) -> list[NeededRight]:
    """Returns the rights that the mirror's workers need at the target.

    Args:
        target: ``spec.target`` of its manifest.
        connectors: the names of its connectors.
    """
    group = str(target["groupId"])
    needed = [NeededRight("GROUP", group, "READ")]
    for topic in (str(target[key]) for key in STATE_TOPICS):
        needed += [NeededRight("TOPIC", topic, operation) for operation in ("READ", "WRITE")]
    if is_exactly_once(target.get("config")):
        ids = [f"connect-cluster-{group}", *(f"{group}-{connector}-0" for connector in connectors)]
        needed += [NeededRight("TRANSACTIONAL_ID", name, "WRITE") for name in ids]
    return needed


def missing_rights(region: str, user: str, lacking: Sequence[NeededRight]) -> str:
    """Returns a sentence that names the rights a user lacks; empty for none.

    Args:
        region: the region of the cluster.
        user: the user.
        lacking: the missing rights.
    """
    if not lacking:
        return ""
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return f"user {user} lacks in {region}: {', '.join(right.text for right in lacking[:_NAMED])}{more}"


def judged_topics(selected: Collection[str], copied: Collection[str]) -> list[str]:
    """Returns the topics whose rights count: those that the mirror has copied, or its whole pattern if it copied none.

    A mirror may lack a right on purpose, so that a topic stays in its region.
    """
    return sorted(set(copied) & set(selected) or set(selected))


def _syncs(mirror: Mirror, end: str) -> list[NeededRight]:
    region, topic = offset_syncs(mirror)
    return (
        [NeededRight("TOPIC", topic, "WRITE")]
        if region == (mirror.source if end == "source" else mirror.target)
        else []
    )
