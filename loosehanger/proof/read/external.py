"""Two clusters of the user's own, compared as if a mirror of the lab connected them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import TopicPartition

from loosehanger.errors import UnreachableError
from loosehanger.kafka.clients import connect_consumer
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.reading import named, read_from_ends, some_of
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.record import Lab, Region
from loosehanger.proof.pace import Pace
from loosehanger.proof.read.copier import OBSERVED_S, Copier
from loosehanger.proof.read.mirrors import GROWING, UNKNOWN, MirrorProgress

EXTERNAL = "external"
"""The platform of a lab that stands for two clusters of the user's own."""
_OF_FLOW = f"{EXTERNAL}/"
_LOOK_S = 1.0
# Even a bound of 0 leaves time for one look.
_GRACE_S = 15.0
_FIRST_STEP = 1000
"""The number of offsets from a partition's end to read first."""
_REPORT_S = 5.0
_MOST_OPTIONS = 3
_LOG_APPEND_TIME = 1
"""The type of a record's timestamp that its broker has set."""


def two_clusters(
    source: Path,
    target: Path,
    topics: str,
    policy: str = "identity",
    source_alias: str = "source",
    report: Callable[[str], object] | None = None,
) -> Lab:
    """A lab of two regions, ``source`` and ``target``, and one mirror without access to Connect.

    Args:
        source: client properties of a user who may read the topics at the source.
        target: likewise at the target.
        topics: names of topics at the source: a list of regular expressions, as in MM2.
        policy: ``identity``, or ``default`` if the target's names have the source's alias as a prefix.
        source_alias: that alias.
        report: takes warnings about properties without effect.

    Raises:
        WrongUseError: a file or a setting cannot be used.
    """
    for path in (source, target):
        Connection.from_properties(path, os.environ, report)
    mirror = Mirror(
        *(EXTERNAL, source_alias, "target", "source", "target", policy, "."),
        topics=topics,
        topics_exclude="",
        connector="",
        connect={},
    )
    selected_topics(mirror, ())  # refuses what is not a list of regular expressions
    regions: dict[str, Region] = {
        name: Region(name, name, {PROVER: path}, {}, (mirror,) if name == "target" else (), variables=os.environ)
        for name, path in (("source", source), ("target", target))
    }
    return Lab(f"{source.stem} → {target.stem}", EXTERNAL, "", regions)


def flow_name(name: str) -> str:
    """Returns the name that a mirror of a configured flow has: ``external/NAME``."""
    return f"{_OF_FLOW}{name}"


def is_external(mirror: str) -> bool:
    """Whether the mirror of this name connects clusters of the user's own."""
    return mirror == EXTERNAL or mirror.startswith(_OF_FLOW)


def said(mirror: str) -> str:
    """Returns what a message calls a mirror: ``flow NAME`` where a configuration has it, else ``mirror NAME``."""
    return f"flow {mirror.removeprefix(_OF_FLOW)}" if mirror.startswith(_OF_FLOW) else f"mirror {mirror}"


def several_clusters(
    title: str, clusters: Mapping[str, Mapping[str, str]], mirrors: Collection[Mirror], variables: Mapping[str, str]
) -> Lab:
    """A lab of any clusters, with a mirror without access to Connect for each flow between them.

    Args:
        title: what the report calls it.
        clusters: client properties by the name of the cluster, with placeholders.
        mirrors: the flows: see ``flow_name``.
        variables: the variables that placeholders may name.

    Raises:
        WrongUseError: a flow's pattern is not a regular expression.
    """
    for mirror in mirrors:
        selected_topics(mirror, ())
    used = dict.fromkeys(end for mirror in mirrors for end in (mirror.source, mirror.target))
    regions = {
        name: Region(
            *(name, name, {}, {}, tuple(mirror for mirror in mirrors if mirror.target == name)),
            variables=variables,
            properties={PROVER: clusters[name]},
        )
        for name in used
    }
    return Lab(title, EXTERNAL, "", regions)


def other_name(mirror: Mirror, topic: str, there: Collection[str]) -> str:
    """Names a topic at the target that has another policy's name for the copy, and the options; empty for none.

    Args:
        mirror: the mirror with the given policy.
        topic: its name at the source.
        there: the topics at the target that are not copies of others.
    """
    configured = mirror.name != EXTERNAL
    if copies := sorted(name for name in there if name.endswith(f".{topic}")):
        if configured:
            return f"{some_of(copies)}; if that is the copy, change 'names' of {said(mirror.name)}"
        options = (f"--policy default --source-alias {copy.removesuffix(f'.{topic}')}" for copy in copies)
        return f"{some_of(copies)}; if that is the copy, give {' or '.join([*options][:_MOST_OPTIONS])}"
    if mirror.policy != "identity" and topic in there:
        if configured:
            return f"{topic}; if that is the copy, change 'names' of {said(mirror.name)}"
        return f"{topic}; if that is the copy, leave out --policy and --source-alias"
    return ""


def wait_for_arrival(
    mirror: Mirror,
    clusters: Mapping[str, Cluster],
    last_records: Mapping[TopicPartition, int],
    timeout_s: float,
    report: Callable[[str], None],
    *,
    while_moving: bool = False,
) -> MirrorProgress:
    """Waits until the last record of every source partition is at the target, or the bound has passed.

    Without Connect's interface a mirror's position is unknown. But a mirror copies a partition in order: once the last
    record has arrived, the others have arrived, or never will. Between clusters of the user's own, records that have
    not arrived by then are judged all the same, unless the copies still grow: then each partition is judged up to its
    last copy. For the lab's own mirrors the result is inconclusive.

    Args:
        mirror: the mirror.
        clusters: by region.
        last_records: the source offsets to reach.
        timeout_s: bound, in seconds.
        report: takes a line of progress.
        while_moving: whether the bound restarts whenever the copies have made progress.

    Returns:
        The offsets up to which each partition is judged as copied.

    Raises:
        UnreachableError: a cluster does not answer, or the source does not give its last records within the bound.
    """
    source, target = clusters[mirror.source], clusters[mirror.target]
    deadline = time.monotonic() + timeout_s
    with source.reaching():
        wanted = _contents(source, last_records, deadline)
    with (
        target.reaching(),
        Copier.observed(mirror, source, target, last_records, _contents) as copier,
        connect_consumer(target.connection) as consumer,
    ):
        wait = _Wait(mirror, target, last_records, wanted, copier, report)
        reached = wait.until(consumer, deadline, timeout_s if while_moving else None)
    if missing := wait.wanted:
        report(f"after {timeout_s:.0f} s the last record of {named(missing)} was not found at the target")
    if not is_external(mirror.name):
        return MirrorProgress(UNKNOWN, {place: last_records[place] for place in last_records.keys() - missing.keys()})
    # A record that later ones have passed is not in flight; nor is any, once the copies do not grow.
    late = missing if copier.still_grows else ()
    behind = {place: reached[place] for place in late if reached[place] < last_records[place]}
    return MirrorProgress(GROWING if behind else UNKNOWN, {**last_records, **behind})


@dataclass
class _Wait:
    """The wait for the last records of a source to arrive."""

    mirror: Mirror
    target: Cluster
    last_records: Mapping[TopicPartition, int]
    wanted: Mapping[TopicPartition, Any]
    """What has not arrived yet, by partition of the source."""
    copier: Copier
    report: Callable[[str], None]

    def until(self, consumer: Any, deadline: float, extension_s: float | None) -> dict[TopicPartition, int]:
        """Waits until everything has arrived or the deadline has passed; then the copies were observed for a while.

        Args:
            consumer: of the target.
            deadline: by the monotonic clock.
            extension_s: by how many seconds a copier extends the deadline that has come closer by then; None for none.

        Returns:
            The least source offset up to which each partition was copied that has not arrived.
        """
        observed, least, next_report, pace = None, 0, 0.0, Pace()
        while True:
            there = _arrived(consumer, self.target, self.mirror, self.wanted, deadline) if self.wanted else set()
            self.wanted = {place: content for place, content in self.wanted.items() if place not in there}
            now = time.monotonic()
            if not self.wanted:
                return {}
            if observed is None:
                self.copier.look()
                observed = now + OBSERVED_S
                least = _lag(self.last_records, self.copier.reached(self.wanted)) if extension_s is not None else 0
            if now >= max(deadline, observed):
                self.copier.look()
                reached = self.copier.reached(self.wanted)
                left = _lag(self.last_records, reached)
                if extension_s is None or left >= least:
                    return reached
                least, deadline = left, now + extension_s
            if now >= next_report:
                self.copier.look()
                left_s = pace.remaining(len(self.wanted))
                self.report(f"waiting: the target has not yet the last record of {len(self.wanted)} partitions{left_s}")
                next_report = now + _REPORT_S
            time.sleep(min(_LOOK_S, max(deadline, observed) - now))


def _lag(last_records: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, int]) -> int:
    return sum(last_records[place] - offset for place, offset in reached.items())


def _contents(cluster: Cluster, offsets: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, Any]:
    found: dict[TopicPartition, Any] = {}

    def take(place: TopicPartition, batch: Collection[Any]) -> None:
        found.update((place, record) for record in batch if record.offset == offsets[place])

    # Records that compaction or retention has deleted since are not waited for.
    ranges = {place: (offset, offset + 1) for place, offset in offsets.items()}
    with connect_consumer(cluster.connection) as consumer:
        unread = read_from_ends(consumer, ranges, deadline + _GRACE_S, take, lambda place, _: place in found)
    if unread:
        raise UnreachableError(_cannot_be_read(cluster, unread))
    return found


def _arrived(
    consumer: Any, target: Cluster, mirror: Mirror, wanted: Mapping[TopicPartition, Any], deadline: float
) -> set[TopicPartition]:
    """Those partitions of the source whose wanted record the target has: all are asked for with one request."""
    copies = {TopicPartition(target_topic(mirror, place.topic), place.partition): place for place in wanted}
    names = consumer.topics()
    there = {name: consumer.partitions_for_topic(name) for name in {copy.topic for copy in copies} & names}
    sources = {copy: place for copy, place in copies.items() if copy.partition in there.get(copy.topic, ())}
    times = {copy: max(0, wanted[place].timestamp) for copy, place in sources.items()}
    starts = consumer.offsets_for_times(times, _left_ms(deadline)) if times else {}
    begun = [copy for copy, start in starts.items() if start is not None]
    ends = consumer.end_offsets(begun, _left_ms(deadline)) if begun else {}
    arrived: set[TopicPartition] = set()

    def take(copy: TopicPartition, batch: Collection[Any]) -> None:
        content = wanted[sources[copy]]
        if any(_is_copy(one, content) for one in batch):
            arrived.add(sources[copy])

    # From the end, in ever larger steps: records are seldom far from where their place in time is, but timestamps need
    # not be in order, and then what is no older than the wanted one may be most of the partition.
    ranges = {copy: (starts[copy].offset, end) for copy, end in ends.items()}
    unread = read_from_ends(
        consumer, ranges, deadline + _GRACE_S, take, lambda copy, _: sources[copy] in arrived, first_step=_FIRST_STEP
    )
    # Reads that took too long are repeated, or the record has not arrived.
    if failed := {copy: reason for copy, reason in unread.items() if reason}:
        raise UnreachableError(_cannot_be_read(target, failed))
    return arrived


def _cannot_be_read(cluster: Cluster, unread: Mapping[TopicPartition, str]) -> str:
    reasons = {cluster.explained(place, reason) for place, reason in unread.items() if reason}
    which = f"{cluster.region}: the last record of {named(unread)} cannot be read"
    return f"{which}: {some_of(sorted(reasons))}" if reasons else f"{which} in time"


def _is_copy(record: Any, wanted: Any) -> bool:
    """Whether it is a copy. With LogAppendTime the time is that of its arrival, whatever it was at the source."""
    return (record.key, record.value) == (wanted.key, wanted.value) and (
        record.timestamp == wanted.timestamp or record.timestamp_type == _LOG_APPEND_TIME
    )


def _left_ms(deadline: float) -> int:
    return max(1, round((deadline + _GRACE_S - time.monotonic()) * 1000))
