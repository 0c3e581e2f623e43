"""The loop of the watch: each round reads the new records of every region, and updates the balance.

A round fetches the end offsets of the targets and the sources (``balance`` explains in which order, and why), reads
the new records of every region, adds the sums to the balance, judges, and stores everything in one file. That file has
the watch's own offsets. So the watch knows to the record what it has read, finds new topics and partitions at the next
look, starts over with a recreated topic, and needs neither a watermark nor a state store.

Who reads, who knows the mirrors' positions and what else is kept are parts that a watch is given: the lab's read with
Spark and ask Connect (``lab_watch``); those for any other clusters read with a client in this process, and learn the
positions from the copies (``mirrorproof.watch``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kafka import TopicPartition

from loosehanger.audit.balance import AuditBalance, RegionPartition, Tally, View
from loosehanger.audit.canary import Canary
from loosehanger.audit.document import numbers_of, results
from loosehanger.audit.followed_topics import FollowedTopics
from loosehanger.audit.mirror_positions import Positions
from loosehanger.audit.naming import NameRecords, Naming
from loosehanger.audit.notes import Note, Notes
from loosehanger.audit.region_reader import Reading, RegionReader
from loosehanger.audit.regions import Regions
from loosehanger.audit.scope import Inventory, Scope, Unfit
from loosehanger.audit.state import Folder
from loosehanger.audit.topic import AuditTopic
from loosehanger.audit.untimed import UntimedRecords
from loosehanger.audit.verdicts import VerdictRow, verdict_row
from loosehanger.kafka.retention_risk import WARN_S
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.read.buckets import BUCKET_MS

Report = Callable[[str], None]
_LOOK_S = 5.0
"""Seconds between two looks for new topics."""
_SETTINGS_S = 30.0
"""Seconds between two looks at topics' settings."""


@dataclass(frozen=True)
class Options:
    """The options of a watch."""

    every_s: float
    """Seconds from one round to the next."""
    late_after_s: float
    """Seconds after which a record that is not copied counts as late."""
    settle_s: float | None = None
    """Seconds without a change before a bucket that differs is judged; None for none."""
    warn_s: float = WARN_S
    """Warn of records that can be lost within this many seconds."""
    most_open: int | None = None
    """The most buckets that are open at once: with more, only copies are read; None for any number."""


class KeptResults(Protocol):
    """What else a watch keeps of its rounds."""

    def take(self, region: str, reading: Reading, since_ms: int, now_ms: int) -> None:
        """Adds what was read of a region."""

    def add(self, rows: Iterable[VerdictRow]) -> None:
        """Adds the verdicts of a round."""

    def write(self) -> None:
        """Writes what is due, between two rounds."""

    def close(self) -> None:
        """Writes everything."""

    def document(self) -> dict[str, Any]:
        """What is shown of each region."""

    def dump(self) -> dict[str, Any]:
        """What is not written yet, as JSON types."""

    def load(self, stored: Mapping[str, Any]) -> None:
        """Restores what ``dump`` returned."""


@dataclass(frozen=True)
class Parts:
    """What a watch works with."""

    title: str
    """The name of what is watched."""
    mirrors: tuple[Mirror, ...]
    scope: Callable[[Mapping[str, Inventory], Unfit], Scope]
    """Finds the flows by the topics of each region, and by what cannot be judged."""
    readers: Mapping[str, RegionReader]
    positions: Callable[[Callable[[Mirror], list[TopicPartition]]], Positions]
    """Opens the positions of the mirrors; takes the function that names the source partitions of one."""
    name_records: NameRecords
    results: KeptResults | None = None
    published: AuditTopic | None = None
    canary: Canary | None = None


class Watch:
    """The running watch; a context manager.

    Args:
        parts: what it works with.
        scope: the clusters, flows and topics to watch at first.
        options: the options of the watch.
        folder: holds the watch's state.
        report: takes a line of progress.
    """

    def __init__(self, parts: Parts, scope: Scope, options: Options, folder: Folder, report: Report) -> None:
        self._parts = parts
        self._scope = scope
        self._options = options
        self._folder = folder
        self._report = report
        self._regions = Regions(parts.readers)
        self._positions = parts.positions(self._copied_by)
        self._balance = AuditBalance()
        self._notes = Notes()
        self._unfit: dict[tuple[str, str], str] = {}
        """Why topics cannot be judged; empty for those that can."""
        self._settings_due = 0.0
        self._sizes: dict[str, dict[str, float]] = {}
        """Approximate bytes of a record, by region and topic."""
        self._gone: dict[str, int] = {}
        """Offsets that were deleted before a mirror had copied them, as reported so far, by flow and partition."""
        self._unread: dict[str, int] = {}
        """Offsets of each region that the last reading has left for later."""
        self._looked = 0.0
        self._at_ms = _now_ms()
        self._read_ms: int | None = None
        """When the records of a region were last read, in epoch milliseconds."""
        self._topics = FollowedTopics(self._regions, self._balance, self._notes, self._at_ms // BUCKET_MS * BUCKET_MS)
        self._untimed = UntimedRecords(self._regions, self._balance)
        self._resume()
        self._naming = Naming(self._balance, parts.name_records, report)

    def __enter__(self) -> Watch:
        if self._parts.published:
            self._parts.published.open()
        if self._parts.canary:
            self._parts.canary.open()
        self._positions.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._positions.end()
        self._naming.close()
        for part in (self._parts.results, self._parts.published, self._parts.canary, *self._regions.readers.values()):
            if part:
                part.close()

    def updates(self, ended: threading.Event) -> Iterator[dict[str, Any]]:
        """The document after each round, until ``ended`` is set.

        Raises:
            LabError: the reader has ended for good, as Spark may.
        """
        for reader in self._regions.readers.values():
            reader.ended = ended
        while not ended.is_set():
            due = time.monotonic() + self._options.every_s
            if self._parts.canary:
                self._parts.canary.send()
            self.round()
            yield self.document()
            if self._parts.results:
                self._parts.results.write()
            ended.wait(max(due - time.monotonic(), 0))

    def round(self) -> None:
        """Reads the new records, judges, and stores the results.

        Raises:
            LabError: the reader has ended for good, as Spark may.
        """
        self._regions.begin_round()
        if time.monotonic() >= self._looked:
            self._look()
            self._looked = time.monotonic() + _LOOK_S
        self._balance.begin_round()
        positions = self._positions.positions()
        # In this order: no record before a target's end is newer than its source's end.
        open_places = {key.place for key, account in self._balance.accounts.items() if not account.balanced}
        target_ends = self._regions.ends(open_places)
        sources = {
            RegionPartition(flow.source, flow.topic, place.partition)
            for place in open_places
            for flow in self._balance.sources(place[:2])
        }
        source_ends, source_starts = self._regions.ends(sources), self._regions.starts(sources)
        readings = self._regions.ask(
            {
                name: (reader.read, self._to_read(name), self._scope.events.get(name, {}))
                for name, reader in self._regions.readers.items()
            }
        )
        self._at_ms = _now_ms()
        if readings:
            self._read_ms = self._at_ms
        flows = self._scope.flows
        for name, reading in readings.items():
            self._take(name, reading)
        untimed = [self._untimed.take(name, reading, flows) for name, reading in readings.items()]
        if any(untimed):
            self._rescope()
        read = self._topics.read()
        settle_s = self._options.settle_s
        settled_ms = None if settle_s is None else self._at_ms - round(settle_s * 1000)
        judged = self._balance.judge(View(positions, target_ends, source_ends, source_starts, read, settled_ms))
        self._positions.learn(judged, self._balance, read, self._at_ms)
        until = lambda: {name: self._topics.following(name) for name in self._regions.readers}  # noqa: E731
        found = [*judged, *self._naming.name(judged, until)]
        if self._untimed.look():
            self._rescope()
        # Without the topics that are not judged any more.
        found = [entry for entry in found if self._balance.sources(entry.key[:2])]
        rows = [verdict_row(entry, self._balance, self._at_ms) for entry in found]
        if self._parts.results:
            self._parts.results.add(rows)
        if self._parts.published:
            self._parts.published.publish(rows)
        self._note_losses()
        self._positions.want(self._balance.waits_for_positions())
        self._store()
        self._regions.end_round()

    def document(self) -> dict[str, Any]:
        """The current results."""
        topics = {(flow.target, flow.target_topic) for flow in self._scope.flows}
        numbers = numbers_of(
            self._balance, topics, self._positions.positions(), self._at_ms, self._options.late_after_s
        )
        found = results(
            self._scope, self._balance, numbers, self._positions.risks(), self._options.warn_s, self._parts.canary
        )
        return {
            "scenario": self._parts.title,
            "at": self._at_ms,
            "read_at": self._read_ms,
            "since": self._topics.since_ms,
            "regions": self._parts.results.document() if self._parts.results else {},
            **found,
            "notes": self._notes.document(),
            "problems": sorted(self._regions.problems.values()),
            "unread": sum(self._unread.values()),
        }

    # The steps of a round.

    def _look(self) -> None:
        """Looks for topics and partitions that are new or recreated."""
        self._regions.look(self._regions.readers)
        self._scope = self._parts.scope(self._there(), {})
        self._look_at_settings()
        self._rescope()
        for region, topic in self._topics.follow(self._scope.topics, _now_ms()):
            self._positions.forget(region, topic)
        self._guard()

    def _rescope(self) -> None:
        """Judges the flows of the topics that can be judged, and no others."""
        self._scope = self._parts.scope(self._there(), self._untimed.reasons(self._unfit))
        self._topics.serve(self._scope, _now_ms())

    def _there(self) -> dict[str, Inventory]:
        """The topics of each region; for one that does not answer, the last known ones."""
        return {
            name: self._regions.inventories.get(name, self._scope.topics.get(name, {}))
            for name in self._regions.readers
        }

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
        found = self._regions.ask(
            {
                name: (self._regions.readers[name].unfit, of_region, copies.get(name, set()))
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
        deleted = self._regions.ask(
            {
                name: (
                    reader.guard.look,
                    reader.cluster,
                    [place for place in self._topics.following(name) if (name, place.topic) in targets],
                    self._sizes.get(name, {}),
                )
                for name, reader in self._regions.readers.items()
            }
        )
        for name, of_region in deleted.items():
            for place, offsets in of_region.items():
                says = "deleted at the target, although its retention keeps them"
                self._notes.add(Note(_now_ms(), name, place.topic, place.partition, says, offsets))

    def _copied_by(self, mirror: Mirror) -> list[TopicPartition]:
        there = self._scope.topics.get(mirror.source, {})
        flows = (*self._scope.flows, *(flow for flow, _ in self._scope.excused.values()))
        return [
            TopicPartition(flow.topic, number)
            for flow in flows
            if flow.mirror.id == mirror.id and flow.topic in there
            for number in range(there[flow.topic][1])
        ]

    def _to_read(self, region: str) -> dict[TopicPartition, int]:
        """The partitions that a round reads on: while too many buckets are open, only those of copies."""
        following, most = self._topics.following(region), self._options.most_open
        if most is None or len(self._balance.accounts) < most:
            return following
        self._regions.problems["open buckets"] = (
            f"{len(self._balance.accounts):,} buckets wait for copies: the sources are read on once copies have arrived"
        )
        copies = {flow.target_topic for flow in self._scope.flows if flow.target == region}
        return {place: offset for place, offset in following.items() if place.topic in copies}

    def _take(self, region: str, reading: Reading) -> None:
        self._unread[region] = reading.unread
        for found in reading.totals:
            place = RegionPartition(region, found.topic, found.partition)
            tally = Tally(found.records, found.content, found.first, found.last)
            self._balance.take(place, found.bucket, tally, self._at_ms)
            self._sizes.setdefault(region, {})[found.topic] = found.bytes / found.records
        if self._parts.canary:
            self._take_canaries(self._parts.canary, region, reading)
        if self._parts.results:
            self._parts.results.take(region, reading, self._topics.since_ms, self._at_ms)
        for place in reading.back:
            self._positions.forget(region, place.topic)
        self._regions.problems |= {problem: problem for problem in reading.problems}
        self._topics.advance(region, reading, self._at_ms)

    def _take_canaries(self, canary: Canary, region: str, reading: Reading) -> None:
        for flow in self._scope.flows:
            # A canary in a topic of several sources cannot be attributed to one of them.
            if flow.topic == canary.topic and self._balance.sources((region, flow.target_topic)) == [flow]:
                of_flow = (found for found in reading.totals if found.topic == flow.target_topic)
                for found in sorted(of_flow, key=lambda found: found.bucket):
                    canary.arrivals.take(flow, found.bucket, found.records, self._at_ms)

    def _note_losses(self) -> None:
        """Notes records that sources have deleted before they were copied: a resumed mirror no longer shows them."""
        for mirror, risks in self._positions.risks().items():
            for one in risks:
                key = f"{mirror}/{one.topic}/{one.partition}"
                if one.gone > self._gone.get(key, 0):
                    says = f"deleted before {mirror} had copied them: at most this many records are lost"
                    (source,) = (known.source for known in self._parts.mirrors if known.id == mirror)
                    loss = Note(self._at_ms, source, one.topic, one.partition, says, one.gone)
                    # One line for each loss, though it may grow while nothing is copied.
                    if self._gone.get(key):
                        self._notes.replace(loss)
                    else:
                        self._notes.add(loss)
                self._gone[key] = one.gone

    def _resume(self) -> None:
        stored, reason = self._folder.open(self._scope.clusters)
        if reason:
            self._report(f"starting over: {reason}; the earlier results are deleted")
        if stored is None:
            return
        self._topics.since_ms = stored["since"]
        self._topics.load(stored["topics"])
        self._balance.serve(self._scope.flows)
        self._balance.load(stored["books"])
        self._notes.load(stored["notes"])
        self._positions.load(stored.get("positions", ()))
        self._untimed.load(stored.get("untimed", ()))
        if self._parts.results:
            self._parts.results.load(stored)
        if self._parts.published:
            self._parts.published.load(stored["unpublished"])

    def _store(self) -> None:
        parts = self._parts
        self._folder.store(
            {
                "clusters": dict(self._scope.clusters),
                "since": self._topics.since_ms,
                "topics": self._topics.dump(),
                "books": self._balance.dump(),
                "notes": self._notes.dump(),
                "positions": self._positions.dump(),
                "untimed": self._untimed.dump(),
                "unpublished": parts.published.dump() if parts.published else [],
                **(parts.results.dump() if parts.results else {}),
            }
        )


def _now_ms() -> int:
    return round(time.time() * 1000)
