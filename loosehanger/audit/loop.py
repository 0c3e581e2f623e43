"""The loop of the watch: each round reads the new records of every region, and updates the balance.

A round fetches the end offsets of the targets and the sources (``balance`` explains in which order, and why), reads
the new records of every region in one pass of Spark, adds the sums to the balance and to the minutes, judges, and
stores everything in one file. That file has the watch's own offsets. So the watch knows to the record what it has
read, finds new topics and partitions at the next look, starts over with a recreated topic, and needs neither a
watermark nor a state store.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from kafka import TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession

from loosehanger.audit import canary
from loosehanger.audit.activity import Activity
from loosehanger.audit.balance import (
    EQUAL,
    KINDS,
    AuditBalance,
    Bucket,
    Judged,
    OpenBucket,
    RegionPartition,
    Tally,
    View,
    bucket_of,
    findings,
)
from loosehanger.audit.canary import Canary
from loosehanger.audit.locate_differences import RegionClusters, name_records
from loosehanger.audit.mirror_positions import Positions
from loosehanger.audit.retention import RetentionGuard
from loosehanger.audit.round_totals import tally
from loosehanger.audit.state import Folder
from loosehanger.audit.table import AuditTable
from loosehanger.audit.topic import AuditTopic
from loosehanger.audit.warming import warm_up
from loosehanger.errors import LabError, UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.kafka.retention_risk import WARN_S, by_topic
from loosehanger.lab.mirrors.lineage import counted
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.record import ADMINISTRATOR, PROVER, Lab, Region
from loosehanger.proof.compare.fingerprints import CONTENT
from loosehanger.proof.flows import Flow
from loosehanger.proof.read.batches import Ranges, read_records
from loosehanger.proof.read.fetching import RecordFetcher, frame_of, takes_files
from loosehanger.proof.read.records import BUCKET_MS
from loosehanger.proof.report.record_times import iso
from loosehanger.proof.session import ERRORS, SparkEndedError, cause, ended, fit, is_alive, session_beside
from loosehanger.sales import aggregates

Report = Callable[[str], None]
T = TypeVar("T")
_OPTIONS = {
    # A broker's restart takes seconds; a region that is down for longer is reported, not waited for.
    "kafka.request.timeout.ms": "10000",
    "kafka.default.api.timeout.ms": "20000",
    "kafkaConsumer.pollTimeoutMs": "10000",
    "fetchOffset.numRetries": "1",
}
_MOST_OFFSETS = 400_000
"""The most offsets of a region to read in one round: a backlog is read over several rounds."""
_BY_ONE_CLIENT = 8_000
"""With more records of a region in a round, Spark's authenticated consumers are faster than one client here."""
_PATIENCE_S, _FIRST_S = 15.0, 60.0
"""A region that takes longer is left out of a round. The first one has Spark's start in it, and a sign-in for each
partition."""
_LOOK_S = 5.0
"""Seconds between two looks for new topics."""
_SETTINGS_S = 30.0
"""Seconds between two looks at topics' settings."""
_DECIDING = ("cleanup.policy", "message.timestamp.type")
_EXAMPLES = 5
_SHOWN_FINDINGS = 50
_NOTES = 100


@dataclass(frozen=True)
class Options:
    """The options of the watch."""

    every_s: float
    """Seconds from one round to the next."""
    late_after_s: float
    """Seconds after which a record that is not copied counts as late."""
    lateness_s: float
    """The most seconds by which an event may be late for its minute."""
    kept_s: float
    """Seconds for which results are kept."""
    minutes: int
    """How many minutes to show."""
    products: int
    warn_s: float = WARN_S
    """Warn of records that can be lost within this many seconds."""
    topic_in: str = ""
    """The region that gets the verdicts as records of a topic; empty for none."""
    canary_s: float | None = None
    """Seconds from one canary to the next; None for none."""


@dataclass(frozen=True)
class Scope:
    """The clusters, flows and topics to watch."""

    clusters: Mapping[str, str]
    """The id of each region's cluster."""
    flows: tuple[Flow, ...]
    """The flows that can be judged."""
    excused: Mapping[str, tuple[Flow, str]]
    """By id, the flows that cannot be judged, and why."""
    topics: Mapping[str, Mapping[str, tuple[str, int]]]
    """The topics to read in each region: id and number of partitions of each."""
    events: Mapping[str, Mapping[str, str]]
    """In each region, the kind of event of each topic whose events count."""


class Reading(NamedTuple):
    """The records of one region in a round."""

    starts: Mapping[TopicPartition, int]
    until: Mapping[TopicPartition, int]
    """The offset up to which each partition has been read."""
    lost: Mapping[TopicPartition, int]
    """The number of offsets that were deleted before they could be read."""
    back: tuple[TopicPartition, ...]
    """Partitions that end before the offset up to which they have been read."""
    rows: list[Row]


@dataclass
class Note:
    """A part that is not judged, or an event to report."""

    at_ms: int
    region: str
    topic: str
    partition: int | None
    says: str
    offsets: int = 0
    """The number of offsets that are not judged."""


@dataclass
class Topic:
    """How far a topic has been read."""

    id: str
    following: dict[int, int] = field(default_factory=dict)
    """The next offset of each partition."""


class RegionReader:
    """Reads one region: with its own thread and clients, and with one set of Spark's consumers for many records.

    Args:
        spark: the session.
        region: the region.
    """

    def __init__(self, spark: SparkSession | None, region: Region) -> None:
        self.name = region.name
        self.cluster = Cluster.of(region, PROVER)
        self.guard = RetentionGuard()
        self._fetcher = RecordFetcher(self.cluster.connection)
        self._spark = session_beside(spark) if spark else None
        self._consumers = f"watch-{region.name}-{uuid4()}"
        self._is_cold = True
        self.ended = threading.Event()
        """Set once the watch is about to stop: a warm-up ends then."""
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._last: Future[Any] | None = None
        self._read: tuple[Mapping[TopicPartition, int], Reading] | None = None
        """The last reading, and the offsets from which it began."""

    @property
    def busy(self) -> bool:
        """Whether its last question is still open."""
        return self._last is not None and not self._last.done()

    def ask(self, question: Callable[..., T], *arguments: Any) -> Future[T]:
        """Runs a question in its thread."""
        self._last = self._thread.submit(question, *arguments)
        return self._last

    def close(self) -> None:
        """Closes its clients."""
        self._thread.submit(self._fetcher.close)
        self._thread.shutdown(wait=False)
        self.cluster.close()

    def unfit(self, topics: Collection[str], copies: Collection[str]) -> dict[str, str]:
        """Explains for each topic why its records cannot be judged by timestamp and content; empty where they can.

        Args:
            topics: topics that are mirrored, or copies.
            copies: the copies among them.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        configs = self.cluster.configs(topics)
        reasons = {}
        for topic in topics:
            settings = configs.get(topic)
            if settings is None:
                lacks = self.cluster.lacks("DescribeConfigs", topic)
                reasons[topic] = f"its cleanup policy is unknown: {lacks}"
                continue
            values = {name: settings[name].value or "" for name in _DECIDING if name in settings}
            reasons[topic] = ""
            if "compact" in values.get("cleanup.policy", ""):
                reasons[topic] = f"{topic} in {self.name} is compacted"
            elif topic in copies and values.get("message.timestamp.type") == "LogAppendTime":
                reasons[topic] = f"{topic} in {self.name} has the time of arrival"
        return reasons

    def read(self, wanted: Mapping[TopicPartition, int], events: Mapping[str, str]) -> Reading:
        """Reads on from these offsets; a reading that was too late for its round is reused.

        Raises:
            UnreachableError: the cluster does not answer.
            PySparkException: the records cannot be read.
        """
        # The offsets advance once a reading has been taken.
        if self._read is None or self._read[0] != wanted or self._read[1].until == wanted:
            self._read = wanted, self.read_on(wanted, events)
        return self._read[1]

    def read_on(self, wanted: Mapping[TopicPartition, int], events: Mapping[str, str]) -> Reading:
        """Reads on from these offsets, as ``read`` does."""
        assert self._spark is not None
        starts, ends = self.cluster.start_offsets(wanted), self.cluster.end_offsets(wanted)
        share = _MOST_OFFSETS // max(sum(ends[place] > offset for place, offset in wanted.items()), 1)
        back = tuple(place for place, offset in wanted.items() if ends[place] < offset)
        first = {place: max(offset, starts[place]) for place, offset in wanted.items() if place not in back}
        until = {place: max(min(ends[place], start + share), start) for place, start in first.items()}
        lost = {place: start - wanted[place] for place, start in first.items() if start > wanted[place]}
        ranges = {place: (start, until[place]) for place, start in first.items() if until[place] > start}
        if self._is_cold and takes_files(self._spark):
            warm_up(self._spark, events, self._consumers, self.ended)
        self._is_cold = False
        rows: list[Row] = []
        if ranges:
            fit(self._spark, sum(end - start for start, end in ranges.values()), again=True)
            records = self._records(self._spark, ranges)
            # A task for each of many small partitions costs more than reading them, and a single task needs no shuffle.
            rows = tally(records.coalesce(1), events).collect()
        return Reading(starts, until, lost, back, rows)

    def _records(self, spark: SparkSession, ranges: Ranges) -> DataFrame:
        few = self._fetcher.few(ranges, _BY_ONE_CLIENT) if takes_files(spark) else None
        if few is None:
            return read_records(spark, self.cluster.connection, ranges, self._consumers, **_OPTIONS)
        # The frame before has been summed up, so its file can be replaced.
        return frame_of(spark, few, self._consumers)


class Watch:
    """The running watch; a context manager.

    Args:
        spark: the session.
        lab: what is set up.
        scope: the clusters, flows and topics to watch.
        options: the options of the watch.
        folder: holds the watch's state.
        report: takes a line of progress.
    """

    def __init__(
        self, spark: SparkSession, lab: Lab, scope: Scope, options: Options, folder: Folder, report: Report
    ) -> None:
        self._spark = spark
        self._lab = lab
        self._scope = scope
        self._options = options
        self._folder = folder
        self._report = report
        self._readers = {name: RegionReader(spark, lab.region(name)) for name in scope.clusters}
        self._positions = Positions(
            [mirror for mirror in lab.mirrors if mirror.source in scope.clusters],
            lambda mirror: Cluster.of(lab.region(mirror.source), PROVER),
            self._copied_by,
        )
        self._balance = AuditBalance()
        self._activity = Activity(spark, folder.table("activity"), options.minutes, options.lateness_s, options.kept_s)
        self._audit = AuditTable(spark, folder.table("audit"), options.kept_s)
        self._published = AuditTopic(publisher(lab, options.topic_in)) if options.topic_in else None
        self._canary = None if options.canary_s is None else Canary(lab, options.canary_s)
        self._topics: dict[str, dict[str, Topic]] = {name: {} for name in scope.clusters}
        self._there: dict[str, Mapping[str, tuple[str, int]]] = {}
        """All topics of the regions that have answered, with id and number of partitions."""
        self._unfit: dict[tuple[str, str], str] = {}
        """Why topics cannot be judged; empty for those that can."""
        self._settings_due = 0.0
        self._notes: list[Note] = []
        self._problems: dict[str, str] = {}
        self._sizes: dict[str, dict[str, float]] = {}
        """Approximate bytes of a record, by region and topic."""
        self._gone: dict[str, int] = {}
        """Offsets that were deleted before a mirror had copied them, as reported so far, by flow and partition."""
        self._namer = ThreadPoolExecutor(max_workers=1)
        self._namers_spark = session_beside(spark)
        self._naming: tuple[Mapping[Bucket, OpenBucket], Future[None]] | None = None
        self._unnamed: set[tuple[str, str]] = set()
        """The topics with findings whose records are not named yet."""
        self._looked = 0.0
        self._rounds = 0
        """The number of rounds of this run."""
        self._at_ms = self._now_ms()
        self._since_ms = self._at_ms // BUCKET_MS * BUCKET_MS
        self._resume()

    def __enter__(self) -> Watch:
        if self._published:
            self._published.open()
        if self._canary:
            self._canary.open()
        self._positions.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._positions.end()
        self._namer.shutdown(wait=False, cancel_futures=True)
        if is_alive(self._spark):
            # The next watch names these records again.
            self._spark.sparkContext.cancelAllJobs()
            self._write_tables(everything=True)
        if self._published:
            self._published.close()
        if self._canary:
            self._canary.close()
        for reader in self._readers.values():
            reader.close()

    def updates(self, ended: threading.Event) -> Iterator[dict[str, Any]]:
        """The document after each round, until ``ended`` is set.

        Raises:
            SparkEndedError: Spark has ended.
        """
        for reader in self._readers.values():
            reader.ended = ended
        while not ended.is_set():
            due = time.monotonic() + self._options.every_s
            if self._canary:
                self._canary.send()
            self.round()
            yield self.document()
            self._write_tables()
            ended.wait(max(due - time.monotonic(), 0))

    def round(self) -> None:
        """Reads the new records, judges, and stores the results.

        Raises:
            SparkEndedError: Spark has ended.
        """
        self._problems = {}
        if time.monotonic() >= self._looked:
            self._look()
            self._looked = time.monotonic() + _LOOK_S
        self._balance.begin_round()
        positions = self._positions.positions()
        # In this order: no record before a target's end is newer than its source's end.
        open_places = {key.place for key, account in self._balance.accounts.items() if not account.balanced}
        target_ends = self._ends(open_places)
        source_ends = self._ends(
            RegionPartition(flow.source, flow.topic, place.partition)
            for place in open_places
            for flow in self._balance.sources(place[:2])
        )
        readings = self._everywhere(
            {
                name: (reader.read, self._following(name), self._scope.events.get(name, {}))
                for name, reader in self._readers.items()
            }
        )
        self._at_ms = self._now_ms()
        for name, reading in readings.items():
            self._take(name, reading)
        starts = {
            RegionPartition(name, place.topic, place.partition): start
            for name, reading in readings.items()
            for place, start in reading.starts.items()
        }
        read = {
            RegionPartition(name, topic, partition): offset
            for name, topics in self._topics.items()
            for topic, known in topics.items()
            for partition, offset in known.following.items()
        }
        judged = self._balance.judge(View(positions, target_ends, source_ends, starts, read))
        rows = self._audit.take([*judged, *self._name(judged)], self._balance, self._at_ms)
        if self._published:
            self._published.publish(rows)
        self._note_losses()
        self._positions.want(self._balance.waits_for_positions())
        self._store()
        self._rounds += 1

    def document(self) -> dict[str, Any]:
        """The current results."""
        positions, exposed = self._positions.positions(), self._exposed()
        open_of: dict[tuple[str, str], list[tuple[Bucket, OpenBucket]]] = {}
        for key, account in self._balance.accounts.items():
            open_of.setdefault(key[:2], []).append((key, account))
        numbers = {
            (flow.target, flow.target_topic): self._numbers((flow.target, flow.target_topic), open_of, positions)
            for flow in self._scope.flows
        }
        flows = [
            {
                "source": flow.source,
                "target": flow.target,
                "mirror": flow.mirror.name,
                "topic": flow.topic,
                "target_topic": flow.target_topic,
                "records": self._balance.records.get((flow.source, flow.topic), 0),
                "copies": self._balance.records.get((flow.target, flow.target_topic), 0),
                "older": self._balance.older.get((flow.source, flow.topic), 0),
                **numbers[flow.target, flow.target_topic],
                "loss": exposed.get(flow.id),
            }
            for flow in self._scope.flows
        ]
        totals = {name: sum(found[name] for found in numbers.values()) for name in _NUMBERS}
        return {
            "scenario": self._lab.scenario,
            "at": self._at_ms,
            "since": self._since_ms,
            "regions": self._activity.document(self._lab.clusters, self._options.products),
            "flows": flows,
            "totals": {"records": sum(flow["records"] for flow in flows), **totals},
            "findings": [self._finding(key, account) for key, account in self._shown_findings()],
            "not_judged": [
                {
                    "source": flow.source,
                    "target": flow.target,
                    "mirror": flow.mirror.name,
                    "topic": flow.topic,
                    "why": reason,
                }
                for flow, reason in self._scope.excused.values()
            ],
            "notes": [
                {
                    "at": iso(note.at_ms),
                    "region": note.region,
                    "topic": note.topic,
                    "partition": note.partition,
                    "says": note.says,
                    "offsets": note.offsets,
                }
                for note in self._notes
            ],
            "problems": sorted(self._problems.values()),
            "canaries": [
                canary.standing(
                    flow,
                    numbers[flow.target, flow.target_topic],
                    self._balance.records.get((flow.source, flow.topic), 0),
                    self._canary.arrivals.newest.get(flow.id),
                )
                for flow in self._scope.flows
                if self._canary and flow.topic == canary.TOPIC
            ],
        }

    # The steps of a round.

    def _look(self) -> None:
        """Looks for topics and partitions that are new or recreated."""
        inventories = self._everywhere({name: (reader.cluster.inventory,) for name, reader in self._readers.items()})
        self._there |= inventories
        # For a region that does not answer, the last known topics apply.
        known_topics = {name: self._there.get(name, self._scope.topics.get(name, {})) for name in self._readers}
        self._scope = scope_of(self._lab, self._scope.clusters, known_topics)
        self._look_at_settings()
        self._scope = scope_of(self._lab, self._scope.clusters, known_topics, self._unfit)
        now = bucket_of(self._now_ms())
        self._serve(now)
        fresh: dict[str, list[TopicPartition]] = {}
        for name, topics in self._scope.topics.items():
            known = self._topics[name]
            for topic, (topic_id, partitions) in topics.items():
                if topic in known and known[topic].id != topic_id:
                    self._restart_recreated(name, topic, now)
                    known[topic] = Topic(topic_id, dict.fromkeys(range(partitions), 0))
                followed = known.setdefault(topic, Topic(topic_id))
                fresh.setdefault(name, []).extend(
                    TopicPartition(topic, number) for number in range(partitions) if number not in followed.following
                )
            for topic in known.keys() - topics.keys():
                del known[topic]
        self._begin({name: places for name, places in fresh.items() if places}, now)
        self._guard()

    def _serve(self, now: int) -> None:
        """Judges the current flows; a new one only from now on, if earlier records were not counted for it."""
        followed = {(name, topic) for name, topics in self._topics.items() for topic, known in topics.items()}
        for region, topic in sorted(self._balance.serve(self._scope.flows, followed)):
            sides = [(region, topic), *((flow.source, flow.topic) for flow in self._balance.sources((region, topic)))]
            known = [self._topics[name][of_side] for name, of_side in sides if of_side in self._topics[name]]
            for number in {number for side in known for number in side.following}:
                self._balance.restart(RegionPartition(region, topic, number), now + 1)
            says = "the mirrors of this topic have changed; judged from now on"
            self._note(Note(self._now_ms(), region, topic, None, says))

    def _look_at_settings(self) -> None:
        """Finds the topics that cannot be judged."""
        topics: dict[str, set[str]] = {}
        copies: dict[str, set[str]] = {}
        for flow in self._scope.flows:
            topics.setdefault(flow.source, set()).add(flow.topic)
            for known in (topics, copies):
                known.setdefault(flow.target, set()).add(flow.target_topic)
        stale = time.monotonic() >= self._settings_due
        wanted = {
            name: sorted(topic for topic in of_region if topic in self._scope.topics.get(name, {}))
            for name, of_region in topics.items()
        }
        found = self._everywhere(
            {
                name: (self._readers[name].unfit, of_region, copies.get(name, set()))
                for name, of_region in wanted.items()
                if stale or any((name, topic) not in self._unfit for topic in of_region)
            }
        )
        for name, reasons in found.items():
            self._unfit |= {(name, topic): reason for topic, reason in reasons.items()}
        if stale:
            self._settings_due = time.monotonic() + _SETTINGS_S

    def _guard(self) -> None:
        """Notes records that were deleted at a target although its retention keeps them."""
        targets = {(flow.target, flow.target_topic) for flow in self._scope.flows}
        deleted = self._everywhere(
            {
                name: (
                    reader.guard.look,
                    reader.cluster,
                    [place for place in self._following(name) if (name, place.topic) in targets],
                    self._sizes.get(name, {}),
                )
                for name, reader in self._readers.items()
            }
        )
        for name, of_region in deleted.items():
            for place, offsets in of_region.items():
                says = "deleted at the target, although its retention keeps them"
                self._note(Note(self._now_ms(), name, place.topic, place.partition, says, offsets))

    def _copied_by(self, mirror: Mirror) -> list[TopicPartition]:
        there = self._scope.topics.get(mirror.source, {})
        flows = (*self._scope.flows, *(flow for flow, _ in self._scope.excused.values()))
        return [
            TopicPartition(flow.topic, number)
            for flow in flows
            if flow.mirror.id == mirror.id and flow.topic in there
            for number in range(there[flow.topic][1])
        ]

    def _begin(self, fresh: Mapping[str, list[TopicPartition]], now: int) -> None:
        """Decides the offset from which new partitions are read, and the bucket from which they are judged."""
        starts = self._everywhere(
            {name: (self._readers[name].cluster.start_offsets, places) for name, places in fresh.items()}
        )
        first = bucket_of(self._since_ms)
        firsts: dict[str, dict[int, list[TopicPartition]]] = {}
        for name, of_region in starts.items():
            for place, start in of_region.items():
                targets = self._balance.targets(RegionPartition(name, *place))
                for target in targets:
                    # A partition that is new since the watch began, and still complete, is judged from that time on.
                    if start == 0 or self._balance.round == 0:
                        self._balance.begin(target, first)
                    else:
                        self._balance.restart(target, now + 1)
                since = min((self._balance.since[target] for target in targets), default=first)
                firsts.setdefault(name, {}).setdefault(since, []).append(place)
        for name, by_bucket in firsts.items():
            for bucket, places in by_bucket.items():
                cluster = self._readers[name].cluster
                found = self._everywhere({name: (cluster.offsets_from, places, bucket * BUCKET_MS)})
                for place, offset in found.get(name, {}).items():
                    self._topics[name][place.topic].following[place.partition] = offset

    def _restart_recreated(self, region: str, topic: str, now: int) -> None:
        known = self._topics[region][topic]
        for number in known.following:
            for place in self._balance.targets(RegionPartition(region, topic, number)):
                self._balance.restart(place, now + 1)
        says = "the topic was deleted and recreated; judged from now on"
        self._note(Note(self._now_ms(), region, topic, None, says))

    def _following(self, region: str) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic, number): offset
            for topic, known in self._topics[region].items()
            for number, offset in known.following.items()
        }

    def _ends(self, places: Iterable[RegionPartition]) -> dict[RegionPartition, int]:
        """High watermarks; 0 for a partition that does not exist."""
        wanted = set(places)
        # A partition that was missing at the last look may exist by now, and have been copied.
        doubtful = {place.region for place in wanted if self._is_missing(place)} & self._readers.keys()
        looked = self._everywhere({name: (self._readers[name].cluster.inventory,) for name in doubtful})
        self._there |= looked
        missing = {place: 0 for place in wanted if place.region in looked and self._is_missing(place)}
        by_region: dict[str, set[TopicPartition]] = {}
        for place in wanted:
            if not self._is_missing(place):
                by_region.setdefault(place.region, set()).add(TopicPartition(place.topic, place.partition))
        found = self._everywhere(
            {
                name: (self._readers[name].cluster.written_offsets, of_region)
                for name, of_region in by_region.items()
                if name in self._readers
            }
        )
        return missing | {
            RegionPartition(name, place.topic, place.partition): end
            for name, ends in found.items()
            for place, end in ends.items()
        }

    def _is_missing(self, place: RegionPartition) -> bool:
        """Whether the partition did not exist at the last look at its region."""
        topics = self._there.get(place.region)
        return topics is not None and place.partition >= topics.get(place.topic, ("", 0))[1]

    def _take(self, region: str, reading: Reading) -> None:
        now = bucket_of(self._at_ms)
        for row in reading.rows:
            content = tuple(row[name] for name in CONTENT)
            place = RegionPartition(region, row.topic, row.partition)
            self._balance.take(place, row.bucket, Tally(row.records, content, row.first, row.last), self._at_ms)
            sizes = self._sizes.setdefault(region, {})
            sizes[row.topic] = row.bytes / row.records
        if self._canary:
            for flow in self._scope.flows:
                # A canary in a topic of several sources cannot be attributed to one of them.
                if flow.topic == canary.TOPIC and self._balance.sources((region, flow.target_topic)) == [flow]:
                    of_flow = (row for row in reading.rows if row.topic == flow.target_topic)
                    for row in sorted(of_flow, key=lambda row: int(row.bucket)):
                        self._canary.arrivals.take(flow, row.bucket, row.records, self._at_ms)
        first = bucket_of(self._since_ms)
        self._activity.take(region, (row for row in reading.rows if row.bucket >= first), self._at_ms)
        for place, offset in reading.until.items():
            self._topics[region][place.topic].following[place.partition] = offset
        for place, offsets in reading.lost.items():
            for target in self._balance.targets(RegionPartition(region, *place)):
                self._balance.restart(target, now + 1)
            says = "deleted before it could be read: not judged"
            self._note(Note(self._at_ms, region, place.topic, place.partition, says, offsets))
        for place in reading.back:
            # The next look finds a recreated topic's new id; an unclean leader election keeps the id.
            for target in self._balance.targets(RegionPartition(region, *place)):
                self._balance.restart(target, now + 1)
            self._topics[region][place.topic].following[place.partition] = reading.starts[place]
            says = "the partition ends before the offset up to which it was read: it was recreated, or has lost its end"
            self._note(Note(self._at_ms, region, place.topic, place.partition, says))

    def _name(self, judged: Iterable[Judged]) -> list[Judged]:
        """Names the records of buckets that differ, beside the rounds: reading them again takes longer than a round.

        Returns:
            The buckets whose records have been named since the last round.
        """
        self._unnamed |= {entry.key[:2] for entry in judged if entry.verdict != EQUAL}
        named: list[Judged] = []
        if self._naming and self._naming[1].done():
            found, naming = self._naming
            self._naming = None
            named = self._named(found, naming)
        if self._unnamed and not self._naming:
            # All findings of these topics: a record that is missing in one partition may have appeared in another.
            found = {
                key: deepcopy(account) for key, account in findings(self._balance.accounts) if key[:2] in self._unnamed
            }
            self._unnamed = set()
            if found:
                until = {name: self._following(name) for name in self._readers}
                self._naming = found, self._namer.submit(self._name_all, found, until)
        return named

    def _named(self, found: Mapping[Bucket, OpenBucket], naming: Future[None]) -> list[Judged]:
        try:
            naming.result()
        except UnreachableError as error:
            self._report(f"the records that differ could not be read: {error}; only their number is known")
            return []
        except ERRORS as error:
            if not is_alive(self._spark):
                raise SparkEndedError(ended(error)) from error
            self._report(f"the records that differ could not be read: {cause(error)}; only their number is known")
            return []
        named = []
        for key, copy in found.items():
            account = self._balance.accounts.get(key)
            # A bucket that has changed since is judged and named again.
            if account and account.verdict and account.touched == copy.touched:
                changed = account.kinds != copy.kinds
                account.kinds, account.examples, account.by_time = copy.kinds, copy.examples, copy.by_time
                if changed:
                    named.append(Judged(key, account.verdict, account))
        return named

    def _name_all(self, found: Mapping[Bucket, OpenBucket], until: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        with ExitStack() as stack:
            # Clients of its own: kafka-python's are for one thread each.
            clusters = {
                name: stack.enter_context(closing(Cluster.of(self._lab.region(name), PROVER))) for name in self._readers
            }
            reader = RegionClusters(self._namers_spark, clusters, until)
            name_records(self._namers_spark, reader, self._balance, found, _EXAMPLES)

    def _everywhere(self, questions: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Asks the regions in parallel; one that does not answer is noted as a problem of this round, and left out.

        Raises:
            SparkEndedError: Spark has ended.
        """
        asked = {}
        for name, (question, *arguments) in questions.items():
            if self._readers[name].busy:
                self._problems.setdefault(name, f"{name} has not answered yet")
            elif name not in self._problems:
                asked[name] = self._readers[name].ask(question, *arguments)
        wait(asked.values(), timeout=_PATIENCE_S if self._rounds else _FIRST_S)
        answers = {}
        for name, future in asked.items():
            try:
                if future.done():
                    answers[name] = future.result()
                else:
                    self._problems[name] = f"{name} has not answered yet"
            except UnreachableError as error:
                self._problems[name] = str(error)
            except ERRORS as error:
                if not is_alive(self._spark):
                    raise SparkEndedError(ended(error)) from error
                self._problems[name] = f"{name}: the records could not be read: {cause(error)}"
            except KeyError as error:
                # Kafka leaves deleted topics out; the next look finds that out.
                self._problems[name] = f"{name}: {error.args[0]} no longer exists"
        return answers

    # The state and the document.

    def _resume(self) -> None:
        stored, reason = self._folder.open(self._scope.clusters)
        if reason:
            self._report(f"starting over: {reason}; the earlier results are deleted")
        if stored is None:
            return
        self._since_ms = stored["since"]
        for name, topics in stored["topics"].items():
            self._topics[name] = {
                topic: Topic(id_, {int(number): offset for number, offset in following.items()})
                for topic, (id_, following) in topics.items()
            }
        self._balance.serve(self._scope.flows)
        self._balance.load(stored["books"])
        self._unnamed = {key[:2] for key, _ in findings(self._balance.accounts)}
        self._activity.load(stored["activity"])
        self._audit.load(stored["audit"])
        self._notes = [Note(**note) for note in stored["notes"]]
        if self._published:
            self._published.load(stored["unpublished"])

    def _store(self) -> None:
        self._folder.store(
            {
                "clusters": dict(self._scope.clusters),
                "since": self._since_ms,
                "topics": {
                    name: {topic: [known.id, known.following] for topic, known in topics.items()}
                    for name, topics in self._topics.items()
                },
                "books": self._balance.dump(),
                "activity": self._activity.dump(),
                "audit": self._audit.dump(),
                "notes": [vars(note) for note in self._notes],
                "unpublished": self._published.dump() if self._published else [],
            }
        )

    def _write_tables(self, *, everything: bool = False) -> None:
        try:
            self._activity.write(everything=everything)
            self._audit.write(self._now_ms(), everything=everything)
        except ERRORS as error:
            if not is_alive(self._spark):
                raise SparkEndedError(ended(error)) from error
            self._report(f"the tables could not be written: {cause(error)}")

    def _note(self, note: Note) -> None:
        self._notes = [*self._notes, note][-_NOTES:]

    def _numbers(
        self,
        topic: tuple[str, str],
        open_of: Mapping[tuple[str, str], list[tuple[Bucket, OpenBucket]]],
        positions: Mapping[str, Mapping[TopicPartition, int]],
    ) -> dict[str, int]:
        found = dict.fromkeys(_NUMBERS, 0)
        found["equal_buckets"] = self._balance.equal.get(topic, 0)
        for key, account in open_of.get(topic, ()):
            found["open_buckets"] += 1
            if account.verdict:
                for kind, count in account.kinds.items():
                    found[kind] += count
            elif not account.balanced:
                old = self._at_ms - account.opened_ms > self._options.late_after_s * 1000
                late = old and self._balance.behind(key, account, positions)
                found["late" if late else "in_flight"] += max(account.records - account.copies, 0)
        return found

    def _exposed(self) -> dict[str, dict[str, Any]]:
        """The risk of each flow, by its id."""
        return {
            f"{mirror}/{topic}": asdict(danger)
            for mirror, risks in self._positions.risks().items()
            for topic, danger in by_topic(risks, self._options.warn_s).items()
        }

    def _note_losses(self) -> None:
        """Notes records that sources have deleted before they were copied: a resumed mirror no longer shows them."""
        for mirror, risks in self._positions.risks().items():
            for one in risks:
                key = f"{mirror}/{one.topic}/{one.partition}"
                if one.gone > self._gone.get(key, 0):
                    says = f"deleted before {mirror} had copied them: at most this many records are lost"
                    (source,) = (known.source for known in self._lab.mirrors if known.id == mirror)
                    loss = Note(self._at_ms, source, one.topic, one.partition, says, one.gone)
                    # One line for each loss, though it may grow while nothing is copied.
                    same = (loss.region, loss.topic, loss.partition, loss.says)
                    if self._gone.get(key):
                        self._notes = [
                            note for note in self._notes if (note.region, note.topic, note.partition, note.says) != same
                        ]
                    self._note(loss)
                self._gone[key] = one.gone

    def _shown_findings(self) -> list[tuple[Bucket, OpenBucket]]:
        return list(findings(self._balance.accounts))[:_SHOWN_FINDINGS]

    def _finding(self, key: Bucket, account: OpenBucket) -> dict[str, Any]:
        return {
            "sources": sorted({flow.source for flow in self._balance.sources(key[:2])}),
            "target": key.region,
            "topic": key.topic,
            "partition": key.partition,
            "bucket": iso(key.bucket * BUCKET_MS),
            "verdict": account.verdict,
            "records": account.records,
            "copies": account.copies,
            **{kind: account.kinds.get(kind, 0) for kind in KINDS},
            "examples": account.examples,
        }

    def _now_ms(self) -> int:
        return round(time.time() * 1000)


_NUMBERS = ("in_flight", "late", *KINDS, "equal_buckets", "open_buckets")


def publisher(lab: Lab, region: str) -> Connection:
    """The connection that writes verdicts to a region's topic.

    Raises:
        WrongUseError: the region does not exist, or the kit has no user there who may write.
    """
    return connection_for(lab.region(region), ADMINISTRATOR)


def survey(lab: Lab) -> Scope:
    """Finds the clusters, flows and topics to watch.

    Raises:
        LabError: a region does not answer, or no topic can be watched.
    """
    clusters, inventories = {}, {}
    for name, region in lab.clusters.items():
        cluster = Cluster.of(region, PROVER)
        try:
            clusters[name], inventories[name] = cluster.id(), cluster.inventory()
        finally:
            cluster.close()
    scope = scope_of(lab, clusters, inventories)
    if not any(scope.topics.values()):
        raise LabError("nothing to watch: no region has a topic that is mirrored or has events")
    return scope


def scope_of(
    lab: Lab,
    clusters: Mapping[str, str],
    inventories: Mapping[str, Mapping[str, tuple[str, int]]],
    unfit: Mapping[tuple[str, str], str] | None = None,
) -> Scope:
    """The clusters, flows and topics to watch.

    Args:
        lab: what is set up.
        clusters: the id of each region's cluster.
        inventories: id and number of partitions of each region's topics.
        unfit: why topics of a region cannot be judged.
    """
    copies = {mirror for claim in lab.claims if claim.kind == "copy" for mirror in claim.mirrors}
    flows: list[Flow] = []
    excused: dict[str, tuple[Flow, str]] = {}
    for mirror in lab.mirrors:
        if not {mirror.source, mirror.target} <= inventories.keys():
            continue
        for topic in selected_topics(mirror, inventories[mirror.source]):
            flow = Flow(mirror, topic, target_topic(mirror, topic))
            ends = ((flow.source, flow.topic), (flow.target, flow.target_topic))
            reason = next((found for end in ends if (found := (unfit or {}).get(end))), "")
            if mirror.id not in copies:
                reason = "no claim says that the mirror is the only writer there"
            elif mirror.transforms:
                reason = "the mirror transforms records"
            if reason:
                excused[flow.id] = flow, reason
            else:
                flows.append(flow)
    # In a topic of several flows, a record cannot be attributed to one of them.
    mixed = {(flow.target, flow.target_topic): flow.source for flow, _ in excused.values()}
    for flow in flows:
        if other := mixed.get((flow.target, flow.target_topic)):
            excused[flow.id] = flow, f"it also has records from {other}, which cannot be judged"
    flows = [flow for flow in flows if flow.id not in excused]
    sides = {(flow.source, flow.topic) for flow in flows} | {(flow.target, flow.target_topic) for flow in flows}
    topics, events = {}, {}
    for name, inventory in inventories.items():
        kinds = {topic: match[1] for topic in inventory if (match := re.match(aggregates.TOPIC, topic))}
        events[name] = {topic: kinds[topic] for topic in counted(lab.mirrors, name, kinds)}
        topics[name] = {topic: known for topic, known in inventory.items() if (name, topic) in sides or topic in kinds}
    return Scope(clusters, tuple(flows), excused, topics, events)
