"""Changes to topics and their copies: created, deleted, recreated, and set to something else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

from kafka.admin import (
    ACL,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
)

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.ends import End, end_region, end_user
from loosehanger.faults.changes.permissions import acl, granted, is_listed
from loosehanger.faults.changes.positions import await_state, forget
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.clients import connect_producer
from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.replication import checkpoints, offset_syncs, selected_topics, target_topic
from loosehanger.waiting import wait_for

TOPIC_S = 60
"""Seconds until brokers have created or deleted a topic."""
COPY_S = 120
"""Seconds until a mirror has found a new topic and copied it."""
KEY = b"fault"


class OwnTopic(Change):
    """Creates a topic for the fault alone, writes records into it, and waits until the mirror has copied them.

    Healing deletes it in every region, and makes every mirror forget its position in it.
    """

    topic: str
    partitions: int = 1
    settings: Mapping[str, str] = {}
    records: int = 100
    """How many, spread over the partitions."""
    copied: bool = True
    """Whether the mirror's pattern must match the name; if False, it must not."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the topic; refuses where it exists, or where the mirror's pattern does not treat it as expected."""
        mirror = site.mirror
        if bool(selected_topics(mirror, [self.topic])) != self.copied:
            copies = "does not copy" if self.copied else "copies"
            raise WrongUseError(f"{mirror.name} in {mirror.region} {copies} topics named {self.topic}")
        for region in site.lab.clusters:
            with cluster(site, region) as there:
                if present := its_topics(there, self.topic):
                    raise WrongUseError(f"{region} has topic {present[0]} already; heal the fault that left it")
        return {"topic": self.topic}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Creates the topic and its records, and waits for the copies."""
        topic = undo["topic"]
        with cluster(site, site.mirror.source) as source:
            create(source, topic, self.partitions, self.settings)
        write(site, site.mirror.source, topic, self.records, partitions=self.partitions)
        if self.copied:
            await_copies(site, topic, self.records)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Deletes the topic everywhere, the source first; then resets the mirrors that had a position in it."""
        topic = undo["topic"]
        order = sorted(site.lab.clusters, key=lambda region: region != site.mirror.source)
        for region in order:
            delete_topic(site, region, topic)
        for mirror in site.lab.mirrors:
            forget(site, mirror, topic)
        for region in order:  # A mirror may have recreated a copy in the meantime.
            delete_topic(site, region, topic)


class RecreateTopic(Change):
    """Deletes a topic at the source, and creates it with other records before the mirror looks for topics again."""

    topic: str
    records: int = 300

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the topic; refuses one that the mirror does not copy."""
        return copied(site, self.topic)

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Deletes and creates it, and writes the records."""
        topic = undo["topic"]
        with cluster(site, site.mirror.source) as source:
            partitions = source.topics()[topic]
            source.delete_topics([topic], TOPIC_S)
            create(source, topic, partitions, {})
        write(site, site.mirror.source, topic, self.records, what="recreated", partitions=partitions)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Makes the mirror begin the topic anew, if it still exists: all records are copied once more."""
        forget(site, site.mirror, undo["topic"])


class DeleteCopy(Change):
    """Deletes a topic at the target: the mirror creates it again, and continues where it was."""

    topic: str

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the topic; refuses one that the mirror does not copy."""
        return copied(site, self.topic)

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Deletes the copy."""
        with cluster(site, site.mirror.target) as target:
            target.delete_topics([target_topic(site.mirror, undo["topic"])], TOPIC_S)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Makes the mirror copy the topic from its beginning."""
        forget(site, site.mirror, undo["topic"])


class AlterCopy(Change):
    """Changes settings of a copy by hand."""

    topic: str
    settings: Mapping[str, str]

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the copy, and the names of the settings; refuses a topic that the mirror does not copy."""
        copied(site, self.topic)
        return {"topic": target_topic(site.mirror, self.topic), "settings": sorted(self.settings)}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Sets them."""
        with cluster(site, site.mirror.target) as target:
            target.alter(undo["topic"], self.settings)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Restores the settings' defaults, with which the mirror had created the topic."""
        with cluster(site, site.mirror.target) as target:
            if undo["topic"] in target.topics():
                target.alter(undo["topic"], dict.fromkeys(undo["settings"]))


class AlterBrokers(Change):
    """Changes settings of every broker at one end, while they run."""

    end: End = "target"
    settings: Mapping[str, str]

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the region, and the names of the settings."""
        return {"region": end_region(site, self.end), "settings": sorted(self.settings)}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Sets them."""
        _alter_brokers(site, undo["region"], self.settings)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Removes them, so that the brokers' files apply again, and restarts the mirror's failed tasks."""
        _alter_brokers(site, undo["region"], dict.fromkeys(undo["settings"]))
        site.connect().restart_failed(site.mirror.connector)


class KeepPartitions(Change):
    """Adds a partition to a topic at the source, while the mirror may not add one to the copy, and writes into both.

    A rule denies the mirror Alter on the copy, so that the copy keeps fewer partitions.
    """

    topic: str
    records: int = 100

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the rule; refuses a topic that the mirror does not copy, and a mirror without a user."""
        user = end_user(site, "target")
        return {**copied(site, self.topic), "copy": target_topic(site.mirror, self.topic), "principal": f"User:{user}"}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Creates the rule, adds the partition, and writes."""
        topic = undo["topic"]
        with cluster(site, site.mirror.target) as target:
            target.ask(lambda admin: admin.create_acls([_no_alter(undo)]))
            wait_for(lambda: None if _listed(target, undo) else "it is not listed", TOPIC_S, "the rule that denies")
        with cluster(site, site.mirror.source) as source:
            wanted = source.topics()[topic] + 1
            source.ask(lambda admin: admin.create_partitions({topic: wanted}))
            wait_for(
                lambda: None if source.topics()[topic] == wanted else "it is not there",
                TOPIC_S,
                f"partition of {topic}",
            )
        write(site, site.mirror.source, topic, self.records, what="spread", partitions=wanted)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Deletes the rule, with which the mirror adds the partition on its own."""
        with cluster(site, site.mirror.target) as target:
            target.ask(lambda admin: admin.delete_acls([_no_alter(undo)]))
            wait_for(lambda: "it is listed" if _listed(target, undo) else None, TOPIC_S, "the end of the rule")


class DeleteInternalTopic(Change):
    """Deletes a topic in which the mirror keeps its map of offsets, or its checkpoints."""

    which: Literal["offset_syncs", "checkpoints"]

    def prepare(self, site: FaultSite) -> Undo:
        """Returns where the topic is; refuses a mirror that has none."""
        mirror = site.mirror
        if self.which == "checkpoints" and not mirror.checkpoint_connector:
            raise WrongUseError(f"{mirror.name} in {mirror.region} has no checkpoint connector")
        region, topic = (mirror.target, checkpoints(mirror)) if self.which == "checkpoints" else offset_syncs(mirror)
        with cluster(site, region) as there:
            if topic not in there.topics():
                raise WrongUseError(f"{region} has no topic {topic}")
        return {"region": region, "topic": topic}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Deletes it."""
        with cluster(site, undo["region"]) as there:
            there.delete_topics([undo["topic"]], TOPIC_S)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Restarts the mirror's connectors, which create it again."""
        connect = site.connect()
        connectors = [name for name in (site.mirror.connector, site.mirror.checkpoint_connector) if name]
        for connector in connectors:
            connect.act(connector, "restart")

        def missing() -> str | None:
            with cluster(site, undo["region"]) as there:
                return None if undo["topic"] in there.topics() else "it does not exist"

        wait_for(missing, TOPIC_S, f"{undo['region']}: topic {undo['topic']}")
        for connector in connectors:
            await_state(connect, connector, "RUNNING")


def copied(site: FaultSite, topic: str) -> Undo:
    """Returns a topic as what healing needs.

    Raises:
        WrongUseError: the mirror does not copy a topic of this name.
    """
    if not selected_topics(site.mirror, [topic]):
        raise WrongUseError(f"{site.mirror.name} in {site.mirror.region} does not copy topics named {topic}")
    return {"topic": topic}


def name_at(site: FaultSite, end: End, topic: str) -> str:
    """Returns a topic's name at one end of the mirror."""
    return topic if end == "source" else target_topic(site.mirror, topic)


def cluster(site: FaultSite, region: str) -> Cluster:
    """Returns a region's cluster, as the administrator sees it; close it."""
    return Cluster.of(site.lab.region(region), ADMINISTRATOR)


def its_topics(there: Cluster, topic: str) -> list[str]:
    """Returns a cluster's topics that are this one or a copy of it, whatever mirrors have put before its name."""
    return sorted(name for name in there.topics() if name == topic or name.endswith(f".{topic}"))


def create(there: Cluster, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Creates a topic, and waits until brokers know it."""
    wanted = {topic: {"num_partitions": partitions, "replication_factor": -1, "configs": dict(settings)}}
    there.ask(lambda admin: admin.create_topics(wanted))
    wait_for(lambda: None if topic in there.topics() else "it does not exist", TOPIC_S, f"{there.region}: {topic}")


def delete_topic(site: FaultSite, region: str, topic: str) -> None:
    """Deletes a topic and the copies of it that a region has."""
    with cluster(site, region) as there:
        there.delete_topics(its_topics(there, topic), TOPIC_S)


def write(
    site: FaultSite,
    region: str,
    topic: str,
    count: int,
    *,
    what: str = "record",
    partitions: int = 1,
    age_s: float = 0,
    size: int = 0,
    compression: str | None = None,
) -> None:
    """Writes records as the administrator, and waits until they are acknowledged.

    Args:
        site: the fault's.
        region: whose cluster.
        topic: the topic's name there.
        count: how many, in turn to each partition.
        what: what each value begins with.
        partitions: how many the topic has.
        age_s: how old their timestamps are, in seconds; a negative age is in the future.
        size: how many bytes each value has at least.
        compression: the codec; None for none.

    Raises:
        LabError: a record was not acknowledged.
    """
    begins = round((time.time() - age_s) * 1000)
    options = {"compression_type": compression, "max_request_size": max(size * 2, 1 << 20)}
    with connect_producer(site.connection(region), **options) as producer:
        sent = [
            producer.send(
                topic,
                f"{what} {number}".encode().ljust(size),
                KEY,
                partition=number % partitions,
                timestamp_ms=begins + number,
            )
            for number in range(count)
        ]
        producer.flush(TOPIC_S)
        failed = [outcome.exception for outcome in sent if outcome.failed()]
    if failed:
        raise LabError(f"{region}: {topic}: {len(failed)} of {count} records were not accepted: {failed[0]}")


def await_copies(site: FaultSite, topic: str, records: int) -> None:
    """Waits until a topic's copy has at least so many offsets, from which consumers may read."""
    copy = target_topic(site.mirror, topic)
    with cluster(site, site.mirror.target) as target:

        def missing() -> str | None:
            there = sum(target.ends([copy]).values())
            return None if there >= records else f"{there:,} of {records:,} offsets"

        wait_for(missing, COPY_S, f"{site.mirror.target}: copies in {copy}")


def _no_alter(undo: Undo) -> ACL:
    return acl(undo["principal"], "TOPIC", undo["copy"], "ALTER", "DENY")


def _listed(there: Cluster, undo: Undo) -> bool:
    return there.ask(lambda admin: is_listed(admin, _no_alter(undo)))


def _alter_brokers(site: FaultSite, region: str, settings: Mapping[str, str | None]) -> None:
    wanted = {
        name: (AlterConfigOp.DELETE, None) if value is None else (AlterConfigOp.SET, value)
        for name, value in settings.items()
    }
    with granted(site, region, "CLUSTER", "kafka-cluster", "ALTER_CONFIGS"), cluster(site, region) as there:
        brokers = sorted({str(folder["broker"]) for folder in there.log_dirs()})
        resources = [ConfigResource(ConfigResourceType.BROKER, broker, wanted) for broker in brokers]
        answer = there.ask(lambda admin: admin.alter_configs(resources, raise_on_unknown=False))
    if any(result != "OK" for found in answer.values() for result in found.values()):
        raise LabError(f"{region}: Kafka refuses the change: {answer}")
