"""MM2's rules for the topics that a mirror copies, their names at the target, and the groups that it translates.

From Kafka 4.3.1: ``DefaultTopicFilter``, ``DefaultGroupFilter``, ``MirrorSourceConnector.shouldReplicateTopic`` and
``ReplicationPolicy``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from loosehanger.errors import WrongUseError
from loosehanger.internal_topics import CHECKPOINTS, OFFSET_SYNCS
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import MirrorMaker
from loosehanger.lab.mirrors.mirror import Mirror

IDENTITY_POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
DEFAULT_EXCLUDED = r"mm2.*\.internal, .*\.replica, __.*"
"""MM2's default of ``topics.exclude``."""
SYNCHRONISED, UNSYNCHRONISED = "sync.topic.configs.enabled", "config.properties.exclude"
ACLS_SYNCHRONISED = "sync.topic.acls.enabled"
SYNCHRONISATION = (SYNCHRONISED, UNSYNCHRONISED, ACLS_SYNCHRONISED)
"""The settings of a source connector that control what it copies of a topic beside its records."""
NOT_SYNCHRONISED = frozenset(
    {
        # MM2 4.3.1's config.properties.exclude.
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    }
)
"""MM2's default of ``config.properties.exclude``: the topic configurations that a mirror does not copy."""
DEFAULT_GROUPS_EXCLUDED = r"console-consumer-.*, connect-.*, __.*"
"""MM2's default of ``groups.exclude``."""
STATE_TOPICS = ("configStorageTopic", "offsetStorageTopic", "statusStorageTopic")
"""The fields of a mirror's target that name the topics with its workers' state."""
_NAME = re.compile(r"(?:[\w.-]|\\\.)+")


def selected_topics(mirror: Mirror, topics: Iterable[str]) -> list[str]:
    """Returns the topics of a source that the mirror copies, in alphabetical order.

    A topic is copied if one of the patterns matches its whole name and no excluded pattern does. Internal topics,
    topics that came from the target, and MM2's heartbeats are left out.

    Raises:
        WrongUseError: a pattern is not a regular expression.
    """
    wanted, excluded = _pattern(mirror, mirror.topics), _pattern(mirror, mirror.topics_exclude or DEFAULT_EXCLUDED)
    return sorted(
        topic
        for topic in topics
        if wanted.fullmatch(topic)
        and not excluded.fullmatch(topic)
        and not is_internal(topic)
        and not _came_from_target(mirror, topic)
    )


def target_topic(mirror: Mirror, topic: str) -> str:
    """Returns the name that the mirror's policy gives a topic at the target."""
    if mirror.renaming:
        return mirror.renaming.target(topic)
    return topic if mirror.policy == "identity" else f"{mirror.source_alias}{mirror.separator}{topic}"


def changes_every_name(mirror: Mirror) -> bool:
    """Whether no copy has its source's name, so that a topic is never its own copy where both are one cluster."""
    return mirror.renaming.changes_every_name if mirror.renaming else mirror.policy != "identity"


def synchronises(mirror: Mirror, setting: str) -> bool:
    """Whether a mirror copies this setting of a topic to the topic's copy."""
    if mirror.synchronisation.get(SYNCHRONISED, "true").strip().lower() == "false":
        return False
    if UNSYNCHRONISED not in mirror.synchronisation:
        return setting not in NOT_SYNCHRONISED
    return not _pattern(mirror, mirror.synchronisation[UNSYNCHRONISED]).fullmatch(setting)


def synchronises_acls(mirror: Mirror) -> bool:
    """Whether a mirror copies ACLs to the copies of their topics."""
    return mirror.synchronisation.get(ACLS_SYNCHRONISED, "true").strip().lower() == "true"


def named_topics(mirror: Mirror, found: Iterable[str] = ()) -> set[str]:
    """Returns the topics that the mirror's patterns name literally, with no regular-expression sign but the dot.

    Args:
        mirror: the mirror with the patterns.
        found: names whose pattern matches one of these topics are left out: ``a.b`` matches ``a-b`` too.
    """
    known = list(found)
    patterns = [pattern.strip() for pattern in mirror.topics.split(",")]
    return {
        pattern.replace("\\.", ".")
        for pattern in patterns
        if _NAME.fullmatch(pattern) and not any(re.fullmatch(pattern, topic) for topic in known)
    }


def idle_patterns(mirror: Mirror, topics: Iterable[str]) -> list[str]:
    """Returns the mirror's regular expressions that match none of the topics; literal names are left out."""
    known = list(topics)
    patterns = dict.fromkeys(pattern.strip() for pattern in mirror.topics.split(","))
    return [
        pattern
        for pattern in patterns
        if not _NAME.fullmatch(pattern) and not any(re.fullmatch(pattern, topic) for topic in known)
    ]


def source_topic(mirror: Mirror, topic: str) -> str | None:
    """Returns the source name of a topic at the target; None if the mirror gives no copy such a name."""
    if mirror.renaming:
        return mirror.renaming.source(topic)
    if mirror.policy == "identity":
        return topic
    prefix = f"{mirror.source_alias}{mirror.separator}"
    return topic.removeprefix(prefix) if topic.startswith(prefix) else None


def is_copy(mirror: Mirror, topic: str) -> bool:
    """Whether a topic's name at the target is that of a copy by this mirror."""
    name = source_topic(mirror, topic)
    return name is not None and bool(selected_topics(mirror, [name]))


def offset_syncs(mirror: Mirror) -> tuple[str, str]:
    """Returns the region and the name of a mirror's offset-syncs topic."""
    at_source = mirror.offset_syncs == "source"
    alias = mirror.target_alias if at_source else mirror.source_alias
    return (mirror.source if at_source else mirror.target), offset_syncs_topic(alias, mirror.separator)


def offset_syncs_topic(alias: str, separator: str) -> str:
    """Returns the name of an offset-syncs topic.

    Args:
        alias: the alias of the cluster at the other end.
        separator: the mirror's.
    """
    return separator.join((OFFSET_SYNCS, alias, "internal"))


def checkpoints(mirror: Mirror) -> str:
    """Returns the name of a mirror's checkpoints topic, which is at the target."""
    return f"{mirror.source_alias}{mirror.separator}{CHECKPOINTS}"


def internal_topics(documents: Iterable[Document], mirrors: Iterable[Mirror]) -> dict[str, tuple[str, ...]]:
    """Returns the internal topics of mirrors by region: their workers' state, offset-syncs and checkpoints.

    Args:
        documents: the mirrors' resources.
        mirrors: the mirrors of all regions.
    """
    every = list(mirrors)
    topics: dict[str, dict[str, None]] = {}
    for document in documents:
        state = [str(MirrorMaker(document.content).target[key]) for key in STATE_TOPICS]
        for mirror in every:
            if (mirror.name, mirror.region) == (document.name, document.namespace):
                place, syncs = offset_syncs(mirror)
                names = [*state, checkpoints(mirror), *([syncs] if place == mirror.target else [])]
                topics.setdefault(mirror.target, {}).update(dict.fromkeys(names))
    return {region: tuple(names) for region, names in topics.items()}


def selected_groups(mirror: Mirror, groups: Iterable[str]) -> list[str]:
    """Returns the consumer groups that the mirror translates, sorted; none without a checkpoint connector.

    Raises:
        WrongUseError: a pattern is not a regular expression.
    """
    if not mirror.groups:
        return []
    wanted = _pattern(mirror, mirror.groups)
    excluded = _pattern(mirror, mirror.groups_exclude or DEFAULT_GROUPS_EXCLUDED)
    return sorted(group for group in groups if wanted.fullmatch(group) and not excluded.fullmatch(group))


def is_internal(topic: str) -> bool:
    """Whether a topic is internal to Kafka or Connect, so that no mirror copies it."""
    return topic.startswith(("__", ".")) or topic.endswith(("-internal", ".internal"))


def _pattern(mirror: Mirror, patterns: str) -> re.Pattern[str]:
    try:
        return re.compile("|".join(f"(?:{pattern.strip()})" for pattern in patterns.split(",")))
    except re.error as error:
        raise WrongUseError(
            f"mirror {mirror.name}: '{patterns}' is not a list of regular expressions: {error}"
        ) from error


def _came_from_target(mirror: Mirror, topic: str) -> bool:
    return mirror.policy == "default" and mirror.target_alias in topic.split(mirror.separator)[:-1]
