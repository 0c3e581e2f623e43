"""The settings that MirrorMaker 2's connectors and Connect's workers know.

Connect passes over a setting that it does not know, so a slip of the pen would stay unseen; here it is refused. The
names are those of Kafka 4.3.1's own definitions.
"""

from __future__ import annotations

import difflib

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
    """.split()
)
"""What MirrorSourceConnector knows."""

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
"""What MirrorCheckpointConnector knows."""

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
"""What begins like this is passed on to a client or a plug-in."""

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
"""What a distributed worker knows."""

WORKER_PREFIXES = ("producer.", "consumer.", "admin.", "header.converter.", "key.converter.", "value.converter.")
"""What begins like this is passed on to a client or a converter."""

SHARED_BY_CONNECTORS = {
    "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    "replication.policy.separator": ".",
    "offset-syncs.topic.location": "source",
}
"""Settings that a mirror's connectors must agree on, with their defaults."""


def check_known(name: str, names: frozenset[str], prefixes: tuple[str, ...]) -> None:
    """Refuses a setting that nobody would read.

    Raises:
        ValueError: it is neither among the names nor begins with one of the prefixes.
    """
    if name in names or name.startswith(prefixes):
        return
    close = difflib.get_close_matches(name, names, n=1)
    raise ValueError(f"'{name}' is not a setting of Kafka 4.3.1" + (f"; did you mean '{close[0]}'?" if close else ""))
