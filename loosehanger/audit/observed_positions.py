"""The progress of a copier without an interface, learned from the copies that the audit has read.

A copier copies each partition in order. So once a copy has arrived of a source record, all records before it were
copied, or never will be. Two things show that a copy has arrived, and neither can be feigned by another writer or by
records that are equal: a bucket that is the same on both sides, and the records of a bucket that were read again and
matched one by one. A position is a lower bound: where nothing has arrived since, a record counts as late, not missing.

A copier that commits its offsets to a consumer group at the source, once its copies are acknowledged, states itself how
far it has come. Only that settles the last record of a partition, after which nothing is copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from typing import Any

from kafka import TopicPartition

from loosehanger.audit.balance import EQUAL, AuditBalance, Bucket, Judged, OpenBucket, RegionPartition
from loosehanger.audit.mirror_positions import Positions
from loosehanger.errors import LabError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.retention_risk import RetentionReader
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.flows import Flow, MirrorId
from loosehanger.proof.read.mirrors import UNKNOWN, MirrorProgress

_OBSERVED = "OBSERVED"
"""The state of a copier whose position is known by its copies alone."""
_MOST_LOOKS = 100
"""The most buckets to read again in one look."""
Fronts = Mapping[Bucket, tuple[Flow, OpenBucket]]
"""Buckets of which some records have arrived, each with its flow."""
FindReached = Callable[[Fronts, Mapping[RegionPartition, int]], Mapping[Bucket, int]]
"""Reads buckets again, up to the offsets that are in the balance; returns the last source offset of which a copy is
there, for each bucket with one. It raises UnreachableError where a cluster does not answer."""


class ObservedPositions(Positions):
    """The positions of copiers, by their copies.

    Args:
        mirrors: the copiers.
        source_of: a copier's source, each time with connections of its own.
        partitions_of: the source partitions that a copier copies.
        find_reached: reads buckets again; it runs in a thread of its own.
        settle_s: seconds without a change after which a bucket is read again.
        groups: the consumer group of each copier that has one.
    """

    def __init__(
        self,
        mirrors: Iterable[Mirror],
        source_of: Callable[[Mirror], Cluster],
        partitions_of: Callable[[Mirror], Iterable[TopicPartition]],
        find_reached: FindReached,
        settle_s: float,
        groups: Mapping[MirrorId, str] | None = None,
    ) -> None:
        super().__init__(mirrors, source_of, partitions_of)
        self._find_reached = find_reached
        self._settle_s = settle_s
        self._groups = groups or {}
        self._committed: dict[MirrorId, dict[TopicPartition, int]] = {}
        """The last offset before that which each copier has committed."""
        self._passed: dict[MirrorId, dict[TopicPartition, int]] = {}
        self._estimates: dict[MirrorId, dict[TopicPartition, int]] = {}
        """Where each copier probably is: for its lag, never for a verdict."""
        self._read_of: dict[MirrorId, dict[TopicPartition, int]] = {}
        """The offset up to which the audit had read each source, when that was estimated."""
        self._looked_at: dict[Bucket, int] = {}
        """The buckets that were read again, and the round that had changed them last."""
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._looking: tuple[Fronts, Future[Mapping[Bucket, int]]] | None = None

    def end(self) -> None:
        """Stops the threads."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        super().end()

    def positions(self) -> dict[MirrorId, Mapping[TopicPartition, int]]:
        """The source offsets that each copier has passed for certain."""
        found: dict[MirrorId, Mapping[TopicPartition, int]] = {}
        for mirror in self._passed.keys() | self._committed.keys():
            passed, committed = self._passed.get(mirror, {}), self._committed.get(mirror, {})
            places = passed.keys() | committed.keys()
            found[mirror] = {place: max(passed.get(place, -1), committed.get(place, -1)) for place in places}
        return found

    def learn(
        self, judged: Iterable[Judged], balance: AuditBalance, read: Mapping[RegionPartition, int], at_ms: int
    ) -> None:
        """Learns from buckets that were equal, and reads again those that have not changed for a while."""
        for entry in judged:
            if entry.verdict == EQUAL:
                for flow in balance.sources(entry.key[:2]):
                    if offsets := entry.account.sources.get(f"{flow.source} {flow.topic}"):
                        self._pass(flow, entry.key.partition, offsets[1])
        self._look_again(balance, read, at_ms)
        self._estimate(balance, read)

    def forget(self, region: str, topic: str) -> None:
        """Forgets the positions in a source that was recreated, or has lost its end."""
        for mirror in self._mirrors:
            if mirror.source == region and mirror.id in self._passed:
                known = self._passed[mirror.id]
                self._passed[mirror.id] = {place: last for place, last in known.items() if place.topic != topic}
            if mirror.source == region and mirror.id in self._committed:
                found = self._committed[mirror.id]
                self._committed[mirror.id] = {place: last for place, last in found.items() if place.topic != topic}
        self._looking = None

    def dump(self) -> list[list[Any]]:
        """The positions, as JSON types."""
        return [[mirror, *place, last] for mirror, passed in self._passed.items() for place, last in passed.items()]

    def load(self, stored: Iterable[Any]) -> None:
        """Restores what ``dump`` returned."""
        for mirror, topic, partition, last in stored:
            self._passed.setdefault(mirror, {})[TopicPartition(topic, partition)] = last

    def progress_of(self, mirror: Mirror) -> Callable[[], MirrorProgress]:
        """The function that returns where a copier probably is, and asks for what it has committed."""
        group = self._groups.get(mirror.id)
        source = self._source_of(mirror) if group else None

        def progress() -> MirrorProgress:
            if group and source:
                # What it had committed before still holds where the cluster, which the rounds report, does not answer.
                with contextlib.suppress(LabError):
                    self._committed[mirror.id] = self._ask_group(mirror, group, source)
            found = self._estimates.get(mirror.id)
            return MirrorProgress(UNKNOWN) if found is None else MirrorProgress(_OBSERVED, found)

        return progress

    def _ends(
        self,
        mirror: Mirror,
        source: RetentionReader,  # noqa: ARG002 (the base asks it)
    ) -> dict[TopicPartition, int] | None:
        # What the audit had read at the time of its estimate: both are then of one moment.
        return dict(self._read_of.get(mirror.id, {}))

    def _ask_group(self, mirror: Mirror, group: str, source: Cluster) -> dict[TopicPartition, int]:
        wanted = set(self._partitions_of(mirror))
        found = source.committed(group, {place.topic for place in wanted})
        ends = source.written_offsets(wanted & found.keys())
        # An offset beyond the end is of a topic that was recreated.
        return {place: found[place] - 1 for place, end in ends.items() if found[place] <= end}

    def _pass(self, flow: Flow, partition: int, offset: int) -> None:
        passed = self._passed.setdefault(flow.mirror.id, {})
        place = TopicPartition(flow.topic, partition)
        passed[place] = max(offset, passed.get(place, -1))

    def _look_again(self, balance: AuditBalance, read: Mapping[RegionPartition, int], at_ms: int) -> None:
        if self._looking and self._looking[1].done():
            fronts, looking = self._looking
            self._looking = None
            try:
                for key, offset in looking.result().items():
                    self._pass(fronts[key][0], key.partition, offset)
            except LabError:
                # The rounds report the cluster; the same buckets are tried again.
                self._looked_at = {key: touched for key, touched in self._looked_at.items() if key not in fronts}
        if self._looking:
            return
        settled_ms = at_ms - round(self._settle_s * 1000)
        positions = self.positions()
        found: dict[Bucket, tuple[Flow, OpenBucket]] = {}
        for key, account in balance.accounts.items():
            flows = balance.sources(key[:2])
            waits = account.copies and not account.verdict and account.touched_ms <= settled_ms
            # Records of several sources cannot be attributed to one of them.
            if waits and len(flows) == 1 and self._looked_at.get(key) != account.touched:
                if balance.behind(key, account, positions):
                    found[key] = flows[0], deepcopy(account)
                if len(found) == _MOST_LOOKS:
                    break
        self._looked_at = {key: seen for key, seen in self._looked_at.items() if key in balance.accounts}
        if found:
            self._looked_at |= {key: account.touched for key, (_, account) in found.items()}
            self._looking = found, self._thread.submit(self._find_reached, found, dict(read))

    def _estimate(self, balance: AuditBalance, read: Mapping[RegionPartition, int]) -> None:
        ends: dict[MirrorId, dict[TopicPartition, int]] = {}
        for mirror in self._mirrors:
            places = ((place, RegionPartition(mirror.source, *place)) for place in self._partitions_of(mirror))
            ends[mirror.id] = {place: read[where] for place, where in places if where in read}
        estimates = {mirror: {place: end - 1 for place, end in of_mirror.items()} for mirror, of_mirror in ends.items()}
        for key, account in balance.accounts.items():
            if account.verdict or account.records <= account.copies:
                continue
            for flow in balance.sources(key[:2]):
                known = estimates.get(flow.mirror.id, {})
                offsets = account.sources.get(f"{flow.source} {flow.topic}")
                place = TopicPartition(flow.topic, key.partition)
                if offsets and place in known:
                    known[place] = min(known[place], offsets[0] + account.copies - 1)
        self._read_of, self._estimates = ends, estimates
