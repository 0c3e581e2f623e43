"""The settings of MirrorMaker 2's connectors and Connect's workers.

Connect ignores an unknown setting, so a typing error would go unnoticed; the kit refuses it. The names are those of
Kafka 4.3.1's own definitions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from loosehanger import java_clients
from loosehanger.suggestions import did_you_mean, is_slip

REST_PORT = 8083
"""The port of Connect's REST interface in the name of its service, as in Strimzi."""
_BOTH_CONNECTORS = frozenset(
    """
    admin.timeout.ms
    config.action.reload
    consumer.poll.timeout.ms
    errors.log.enable
    errors.log.include.messages
    errors.retry.delay.max.ms
    errors.retry.timeout
    errors.tolerance
    forwarding.admin.class
    header.converter
    header.converter.plugin.version
    key.converter
    key.converter.plugin.version
    metric.names.formats
    metric.reporters
    offset-syncs.topic.location
    predicates
    replication.policy.class
    replication.policy.internal.topic.separator.enabled
    replication.policy.separator
    tasks.max.enforce
    topic.filter.class
    transforms
    value.converter
    value.converter.plugin.version
    """.split()
)

SOURCE_CONNECTOR = _BOTH_CONNECTORS | frozenset(
    """
    config.properties.exclude
    config.property.filter.class
    emit.offset-syncs.enabled
    exactly.once.support
    heartbeats.replication.enabled
    offset-syncs.topic.replication.factor
    offset.lag.max
    offsets.storage.topic
    refresh.topics.enabled
    refresh.topics.interval.seconds
    replication.factor
    sync.topic.acls.enabled
    sync.topic.acls.interval.seconds
    sync.topic.configs.enabled
    sync.topic.configs.interval.seconds
    topic.creation.groups
    topics
    topics.exclude
    transaction.boundary
    transaction.boundary.interval.ms
    use.defaults.from
    """.split()
)
"""The settings of MirrorSourceConnector."""

CHECKPOINT_CONNECTOR = _BOTH_CONNECTORS | frozenset(
    """
    checkpoints.topic.replication.factor
    emit.checkpoints.enabled
    emit.checkpoints.interval.seconds
    group.filter.class
    groups
    groups.exclude
    refresh.groups.enabled
    refresh.groups.interval.seconds
    sync.group.offsets.enabled
    sync.group.offsets.interval.seconds
    """.split()
)
"""The settings of MirrorCheckpointConnector."""

CONNECTOR_PREFIXES = (
    "source.consumer.",
    "source.producer.",
    "source.admin.",
    "source.cluster.",
    "target.consumer.",
    "target.producer.",
    "target.admin.",
    "target.cluster.",
    "producer.override.",
    "consumer.override.",
    "admin.override.",
    "producer.",
    "consumer.",
    "admin.",
    "topic.creation.",
    "transforms.",
    "predicates.",
    "replication.policy.",
    "header.converter.",
    "key.converter.",
    "value.converter.",
)
"""Prefixes of settings that are passed to a client or a plug-in."""

WORKER = frozenset(
    """
    access.control.allow.methods
    access.control.allow.origin
    admin.listeners
    client.dns.lookup
    client.id
    config.storage.replication.factor
    connect.protocol
    connections.max.idle.ms
    connector.client.config.override.allowlist
    connector.client.config.override.policy
    exactly.once.source.support
    header.converter
    header.converter.plugin.version
    heartbeat.interval.ms
    inter.worker.key.generation.algorithm
    inter.worker.key.size
    inter.worker.key.ttl.ms
    inter.worker.signature.algorithm
    inter.worker.verification.algorithms
    key.converter
    key.converter.plugin.version
    metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy
    metric.reporters
    metrics.num.samples
    metrics.recording.level
    metrics.sample.window.ms
    offset.flush.interval.ms
    offset.flush.timeout.ms
    offset.storage.partitions
    offset.storage.replication.factor
    plugin.discovery
    rebalance.timeout.ms
    receive.buffer.bytes
    reconnect.backoff.max.ms
    reconnect.backoff.ms
    request.timeout.ms
    response.http.headers.config
    retry.backoff.max.ms
    retry.backoff.ms
    scheduled.rebalance.max.delay.ms
    send.buffer.bytes
    session.timeout.ms
    socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms
    status.storage.partitions
    status.storage.replication.factor
    task.shutdown.graceful.timeout.ms
    topic.creation.enable
    topic.tracking.allow.reset
    topic.tracking.enable
    value.converter
    value.converter.plugin.version
    worker.sync.timeout.ms
    worker.unsync.backoff.ms
    """.split()
)
"""The settings of a distributed worker."""

WORKER_PREFIXES = (
    "producer.",
    "consumer.",
    "admin.",
    "admin.listeners.https.",
    "header.converter.",
    "key.converter.",
    "value.converter.",
)
"""Prefixes of settings that are passed to a client or a converter."""

_CLIENT = re.compile(r"(?:source\.|target\.)?(producer|consumer|admin|cluster)\.(?:override\.)?")
"""A prefix of settings that are passed to a client, or to every client of a cluster."""
_NOT_IN_THE_DEFINITIONS = ("config.providers.", "metrics.context.", "metrics.jmx.")
"""Begin settings that Kafka's clients read beside those of their definitions."""
_OWN_CLASS = (".class", ".classes", "metric.reporters", "security.providers", "partition.assignment.strategy")
"""End the settings of a client that name classes, which read settings of their own."""

SHARED_BY_CONNECTORS = {
    "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    "replication.policy.separator": ".",
    "offset-syncs.topic.location": "source",
}
"""Settings that a mirror's connectors must agree on, with their defaults."""


def check_known(
    name: str, names: frozenset[str], prefixes: tuple[str, ...], beside: Collection[str] = frozenset()
) -> None:
    """Refuses an unknown setting, also of a client: no client refuses what it does not know.

    Args:
        name: the setting.
        names: those that are known.
        prefixes: of those that are passed on.
        beside: all settings that it stands among. Where a client has a class of the user's own, such as an interceptor,
            that class may read any name, but one that is almost a name of Kafka's.

    Raises:
        ValueError: the name is not in the list, and has none of the prefixes; or the client of its prefix does not know
            the rest of it.
    """
    if name in names:
        return
    prefix = max((one for one in prefixes if name.startswith(one)), key=len, default="")
    if not prefix:
        raise ValueError(f"'{name}' is not a setting of Kafka 4.3.1{did_you_mean(name, names)}")
    if found := _CLIENT.fullmatch(prefix):
        _check_client(name, prefix, found[1], beside)


def _check_client(name: str, prefix: str, client: str, beside: Collection[str]) -> None:
    setting = name.removeprefix(prefix)
    known = java_clients.SETTINGS.get(client, java_clients.ALL)
    if setting in known or setting.startswith(_NOT_IN_THE_DEFINITIONS):
        return
    for other, settings in java_clients.SETTINGS.items():
        if setting in settings:
            raise ValueError(f"'{name}' has no effect: {setting} is a setting of Kafka's {other}, not of its {client}")
    own_class = any(_CLIENT.match(one) and one.endswith(_OWN_CLASS) for one in beside)
    if not own_class or is_slip(setting, known):
        likely = did_you_mean(name, [prefix + one for one in known])
        raise ValueError(f"'{name}' is not a setting of Kafka 4.3.1{likely}")


_BOOLEANS = frozenset(
    """
    emit.checkpoints.enabled emit.offset-syncs.enabled errors.log.enable errors.log.include.messages
    heartbeats.replication.enabled refresh.groups.enabled refresh.topics.enabled
    replication.policy.internal.topic.separator.enabled sync.group.offsets.enabled sync.topic.acls.enabled
    sync.topic.configs.enabled tasks.max.enforce topic.creation.enable topic.tracking.allow.reset topic.tracking.enable
    """.split()
)
_INTEGERS = {
    **dict.fromkeys(
        """
        admin.timeout.ms connections.max.idle.ms consumer.poll.timeout.ms emit.checkpoints.interval.seconds
        errors.retry.delay.max.ms errors.retry.timeout heartbeat.interval.ms inter.worker.key.size
        offset.flush.interval.ms offset.flush.timeout.ms offset.lag.max rebalance.timeout.ms
        refresh.groups.interval.seconds refresh.topics.interval.seconds session.timeout.ms
        sync.group.offsets.interval.seconds sync.topic.acls.interval.seconds sync.topic.configs.interval.seconds
        task.shutdown.graceful.timeout.ms worker.sync.timeout.ms worker.unsync.backoff.ms
        """.split(),
        None,
    ),
    **dict.fromkeys(
        """
        inter.worker.key.ttl.ms metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metrics.sample.window.ms
        reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
        scheduled.rebalance.max.delay.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
        transaction.boundary.interval.ms
        """.split(),
        0,
    ),
    "metrics.num.samples": 1,
    "receive.buffer.bytes": -1,
    "send.buffer.bytes": -1,
}
"""Whole numbers and their minimum; None for any."""
_COUNTS = frozenset(
    """
    checkpoints.topic.replication.factor config.storage.replication.factor offset-syncs.topic.replication.factor
    offset.storage.partitions offset.storage.replication.factor replication.factor status.storage.partitions
    status.storage.replication.factor
    """.split()
)
"""-1, which is the broker's default, or at least 1."""
_WORDS = {
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "config.action.reload": ("none", "restart"),
    "connect.protocol": ("eager", "compatible", "sessioned"),
    "errors.tolerance": ("none", "all"),
    "metrics.recording.level": ("INFO", "DEBUG"),
    "offset-syncs.topic.location": ("source", "target"),
    "use.defaults.from": ("source", "target"),
}
_WORDS_IN_ANY_CASE = {
    "exactly.once.source.support": ("disabled", "enabled", "preparing"),
    "exactly.once.support": ("required", "requested"),
    "metadata.recovery.strategy": ("rebootstrap", "none"),
    "plugin.discovery": ("only_scan", "service_load", "hybrid_warn", "hybrid_fail"),
    "transaction.boundary": ("interval", "poll", "connector"),
}
_MIRROR_CLASSES = "org.apache.kafka.connect.mirror."
_CLASSES = {
    "config.property.filter.class": (f"{_MIRROR_CLASSES}DefaultConfigPropertyFilter",),
    "forwarding.admin.class": ("org.apache.kafka.clients.admin.ForwardingAdmin",),
    "group.filter.class": (f"{_MIRROR_CLASSES}DefaultGroupFilter",),
    "replication.policy.class": (
        f"{_MIRROR_CLASSES}DefaultReplicationPolicy",
        f"{_MIRROR_CLASSES}IdentityReplicationPolicy",
    ),
    "topic.filter.class": (f"{_MIRROR_CLASSES}DefaultTopicFilter",),
}
"""Classes that Kafka includes. No other plug-in is installed."""
OVERRIDE_POLICY = "connector.client.config.override.policy"
"""Which settings of its clients a connector may override."""
_OVERRIDE_ALLOWED = "connector.client.config.override.allowlist"
_OVERRIDE_POLICIES = ("All", "None", "Principal", "Allowlist")
_OVERRIDE_CLASS = re.compile(
    rf"(?:(?:org\.apache\.kafka\.connect\.connector\.policy\.)?({'|'.join(_OVERRIDE_POLICIES)})"
    rf"ConnectorClientConfigOverridePolicy|({'|'.join(_OVERRIDE_POLICIES)}))"
)
_OF_THE_PRINCIPAL = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
_OVERRIDE = re.compile(r"(?:producer|consumer|admin)\.override\.(.+)")


def check_value(name: str, value: str) -> None:
    """Refuses a value that Kafka 4.3.1 would refuse, and a class that is not installed; accepts any unknown setting.

    Raises:
        ValueError: the value is not possible.
    """
    said = value.strip()
    if name in _BOOLEANS and said.lower() not in ("true", "false"):
        raise ValueError(f"'{value}' is not true or false")
    if name in _INTEGERS or name in _COUNTS:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", said):
            raise ValueError(f"'{value}' is not a whole number")
        least = _INTEGERS.get(name)
        if least is not None and int(said) < least:
            raise ValueError(f"'{value}' is less than {least}")
        if name in _COUNTS and int(said) < 1 and int(said) != -1:
            raise ValueError(f"'{value}' is not possible; at least 1, or -1 for the broker's default")
    if name in _WORDS and said not in _WORDS[name]:
        raise ValueError(f"'{value}' is not possible; expected {' or '.join(_WORDS[name])}")
    if name in _WORDS_IN_ANY_CASE and said.lower() not in _WORDS_IN_ANY_CASE[name]:
        raise ValueError(f"'{value}' is not possible; expected {' or '.join(_WORDS_IN_ANY_CASE[name])}")
    if name in _CLASSES and said not in _CLASSES[name]:
        raise ValueError(f"the class '{value}' is not installed; Kafka includes {' and '.join(_CLASSES[name])}")
    if name == OVERRIDE_POLICY and not _OVERRIDE_CLASS.fullmatch(said):
        raise ValueError(f"'{value}' is not a policy of Connect; expected {', '.join(_OVERRIDE_POLICIES)}")


def override_refused(name: str, worker: Mapping[str, str]) -> str | None:
    """Returns why Connect's workers refuse a connector's override of a client setting; None if they accept it.

    Args:
        name: the connector's setting.
        worker: the workers' settings.
    """
    found = _OVERRIDE.fullmatch(name)
    policy = _OVERRIDE_CLASS.fullmatch(worker.get(OVERRIDE_POLICY, "All").strip())
    if not found or not policy:
        return None
    match policy[1] or policy[2]:
        case "None":
            allowed: tuple[str, ...] = ()
        case "Principal":
            allowed = _OF_THE_PRINCIPAL
        case "Allowlist":
            allowed = tuple(part.strip() for part in worker.get(_OVERRIDE_ALLOWED, "").split(","))
        case _:
            return None
    if found[1] in allowed:
        return None
    return f"{OVERRIDE_POLICY} of spec.target.config is {policy[1] or policy[2]}"
