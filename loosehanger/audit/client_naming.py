"""Compares the records of buckets one by one, without Spark: names those that differ, as the proof does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kafka import TopicPartition

from loosehanger.audit.balance import AuditBalance, Bucket, OpenBucket, RegionPartition
from loosehanger.audit.client_records import ReadRecord, read_bucket
from loosehanger.audit.explanation import RereadRecords, explanation
from loosehanger.audit.naming import EXAMPLES, Until
from loosehanger.audit.observed_positions import Fronts
from loosehanger.errors import UnreachableError
from loosehanger.kafka.cluster import Cluster
from loosehanger.proof.difference import Difference, readable_key
from loosehanger.proof.report.record_times import iso

_MOST_OFFSETS = 200_000
"""The most offsets to read for the buckets of one time; of the other buckets only counts are reported."""
_MISSING, _UNEXPECTED = Difference.MISSING.value, Difference.UNEXPECTED.value
_DUPLICATES, _ALTERED, _MOVED = Difference.DUPLICATES.value, Difference.ALTERED.value, Difference.MOVED.value
OpenCluster = Callable[[str], Cluster]
"""Opens a cluster by its name, with connections of its own."""


@dataclass(frozen=True)
class NamedDifference:
    """A record that differs."""

    key: Bucket
    kind: str
    source: ReadRecord | None
    target: ReadRecord | None

    def example(self) -> dict[str, Any]:
        """The record as in the documents of the proof and the watch."""
        record = self.source or self.target
        assert record is not None
        moved = {"target_partition": self.target.partition} if self.kind == _MOVED and self.target else {}
        return {
            "kind": self.kind,
            "partition": record.partition,
            "source_offset": self.source.offset if self.source else None,
            "target_offset": self.target.offset if self.target else None,
            **moved,
            "key": readable_key(record.key),
            "timestamp": iso(record.timestamp),
        }


@dataclass
class BucketSide:
    """One side of a bucket.

    Attributes:
        counted: the records that its account counts.
        older: those that came before it was opened: they were the same on both sides.
    """

    counted: list[ReadRecord] = field(default_factory=list)
    older: list[ReadRecord] = field(default_factory=list)

    def add(self, records: Iterable[ReadRecord], known: Sequence[int]) -> None:
        """Adds records.

        Args:
            records: of one partition.
            known: the first and the last offset that the account counts; empty for none.
        """
        for record in records:
            is_counted = bool(known) and known[0] <= record.offset <= known[1]
            (self.counted if is_counted else self.older).append(record)


class BucketReader:
    """Reads buckets again, with clients of its own.

    Args:
        clusters: of each region.
        consumers: of each region, to read from it.
        until: the offset up to which each partition is in the balance.
    """

    def __init__(self, clusters: Mapping[str, Cluster], consumers: Mapping[str, Any], until: Until) -> None:
        self._clusters = clusters
        self._consumers = consumers
        self._until = until

    @classmethod
    @contextmanager
    def opened(cls, names: Iterable[str], open_cluster: OpenCluster, until: Until) -> Iterator[BucketReader]:
        """Opens the clients, and closes them."""
        with ExitStack() as stack:
            clusters = {name: stack.enter_context(closing(open_cluster(name))) for name in sorted(set(names))}
            consumers = {}
            for name, cluster in clusters.items():
                with cluster.reaching():
                    consumers[name] = stack.enter_context(closing(cluster.consumer()))
            yield cls(clusters, consumers, until)

    def read(self, region: str, topic: str, key: Bucket, known: Sequence[int]) -> list[ReadRecord]:
        """Reads one side of a bucket.

        Args:
            region: which has the topic.
            topic: the topic there.
            key: the bucket.
            known: the first and the last offset that the audit has read of it; empty for none.

        Raises:
            UnreachableError: the cluster does not answer, or a record cannot be read.
        """
        until = self._until.get(region, {}).get(TopicPartition(topic, key.partition))
        if until is None:
            return []
        span = (known[0], known[1]) if known else None
        try:
            return read_bucket(self._clusters[region], self._consumers[region], topic, key, span, until)
        except KeyError as error:
            raise UnreachableError(f"{region}: {error.args[0]} no longer exists") from error

    def sides(self, balance: AuditBalance, key: Bucket, account: OpenBucket) -> tuple[BucketSide, BucketSide]:
        """Reads both sides of a bucket: those of all its sources, and that of the target.

        Raises:
            UnreachableError: a cluster does not answer, or a record cannot be read.
        """
        here, there = BucketSide(), BucketSide()
        for flow in balance.sources(key[:2]):
            known = account.sources.get(f"{flow.source} {flow.topic}", [])
            here.add(self.read(flow.source, flow.topic, key, known), known)
        there.add(self.read(key.region, key.topic, key, account.target), account.target)
        return here, there


def name_records(
    open_cluster: OpenCluster, balance: AuditBalance, found: Mapping[Bucket, OpenBucket], until: Until
) -> None:
    """Finds the records that make the difference, and notes their kinds and examples in the accounts.

    Args:
        open_cluster: opens a cluster.
        balance: whose accounts they are.
        found: the buckets that were judged and are not even.
        until: the offset up to which each partition is in the balance.

    Raises:
        UnreachableError: a cluster does not answer.
    """
    chosen = _within_bounds(found)
    names = {key.region for key in chosen} | {flow.source for key in chosen for flow in balance.sources(key[:2])}
    differences: list[NamedDifference] = []
    left: dict[Bucket, tuple[int, int]] = {}
    with BucketReader.opened(names, open_cluster, until) as reader:
        for key, account in chosen.items():
            here, there = reader.sides(balance, key, account)
            left[key] = len(here.counted), len(there.counted)
            differences += compare(key, here.counted, there.counted, [*here.older, *there.older])
    by_key: dict[Bucket, list[NamedDifference]] = defaultdict(list)
    arrived: dict[Bucket, int] = defaultdict(int)
    for one in name_altered(name_moved(differences)):
        by_key[one.key].append(one)
        if one.kind == _MOVED and one.target:
            arrived[one.key._replace(partition=one.target.partition)] += 1
    for key, account in chosen.items():
        _note(account, by_key[key], *left[key], arrived[key])


def find_reached(open_cluster: OpenCluster, fronts: Fronts, read: Mapping[RegionPartition, int]) -> dict[Bucket, int]:
    """Finds the last source record of each bucket of which a copy is there, as ``FindReached`` says."""
    until: dict[str, dict[TopicPartition, int]] = {}
    for place, offset in read.items():
        until.setdefault(place.region, {})[TopicPartition(place.topic, place.partition)] = offset
    chosen = _within_bounds({key: account for key, (_, account) in fronts.items()})
    reached = {}
    with BucketReader.opened(
        [name for key in chosen for name in (fronts[key][0].source, key.region)], open_cluster, until
    ) as reader:
        for key, account in chosen.items():
            flow = fronts[key][0]
            known = account.sources.get(f"{flow.source} {flow.topic}", ())
            here = reader.read(flow.source, flow.topic, key, known)
            there = reader.read(key.region, key.topic, key, account.target)
            if pairs := [source.offset for source, target in _matched(here, there) if source and target]:
                reached[key] = max(pairs)
    return reached


def compare(
    key: Bucket, here: Iterable[ReadRecord], there: Iterable[ReadRecord], older: Iterable[ReadRecord] = ()
) -> list[NamedDifference]:
    """Compares the records of a bucket as multisets of (key, value, timestamp, headers).

    Args:
        key: the bucket.
        here: its records at the source.
        there: those at the target.
        older: records of the bucket that were the same on both sides when it was closed before.

    Returns:
        The records without a partner: missing, duplicates or unexpected.
    """
    sources = list(here)
    known = {record.fingerprint for record in (*sources, *older)}
    differences = []
    for source, target in _matched(sources, there):
        if target is None:
            differences.append(NamedDifference(key, _MISSING, source, None))
        elif source is None:
            kind = _DUPLICATES if target.fingerprint in known else _UNEXPECTED
            differences.append(NamedDifference(key, kind, None, target))
    return differences


def name_moved(differences: Iterable[NamedDifference]) -> list[NamedDifference]:
    """Turns a missing record and an unexpected one of the same content in another partition into one that moved."""
    return _pair_up(differences, lambda one, record: (one.key.region, one.key.topic, record.fingerprint), _MOVED)


def name_altered(differences: Iterable[NamedDifference]) -> list[NamedDifference]:
    """Turns a missing and an unexpected record of the same key and timestamp in one bucket into one altered record."""
    return _pair_up(differences, lambda one, record: (one.key, record.key, record.timestamp), _ALTERED)


def _pair_up(
    differences: Iterable[NamedDifference], by: Callable[[NamedDifference, ReadRecord], object], kind: str
) -> list[NamedDifference]:
    left: list[NamedDifference] = []
    sides: dict[object, tuple[list[NamedDifference], list[NamedDifference]]] = defaultdict(lambda: ([], []))
    for one in differences:
        record = one.source or one.target
        if record is not None and one.kind in (_MISSING, _UNEXPECTED):
            sides[by(one, record)][one.kind == _UNEXPECTED].append(one)
        else:
            left.append(one)
    for missing, unexpected in sides.values():
        pairs = min(len(missing), len(unexpected))
        left += [
            replace(here, kind=kind, target=there.target)
            for here, there in zip(missing[:pairs], unexpected[:pairs], strict=True)
        ]
        left += [*missing[pairs:], *unexpected[pairs:]]
    return left


def _matched(
    here: Iterable[ReadRecord], there: Iterable[ReadRecord]
) -> Iterator[tuple[ReadRecord | None, ReadRecord | None]]:
    """Matches the first copy of a content at the source with its first copy at the target, second with second, …"""
    sides: dict[bytes, tuple[list[ReadRecord], list[ReadRecord]]] = defaultdict(lambda: ([], []))
    for side, records in enumerate((here, there)):
        for record in records:
            sides[record.fingerprint][side].append(record)
    for sources, targets in sides.values():
        for number in range(max(len(sources), len(targets))):
            yield (
                sources[number] if number < len(sources) else None,
                targets[number] if number < len(targets) else None,
            )


def _note(
    account: OpenBucket, differences: Sequence[NamedDifference], sources: int, copies: int, arrived: int = 0
) -> None:
    """Notes the kinds and examples in the account, if they explain the counted difference."""
    kinds = Counter(one.kind for one in differences)
    found = explanation(account, RereadRecords(kinds, sources, copies, arrived))
    if found is None:
        return
    account.kinds, account.verdict, account.examples = found.kinds, found.verdict, []
    shown: Counter[str] = Counter()
    for one in sorted(differences, key=lambda one: (one.source or one.target).offset):  # type: ignore[union-attr]
        shown[one.kind] += 1
        if one.kind in found.known and shown[one.kind] <= EXAMPLES:
            account.examples.append(one.example())


def _within_bounds(found: Mapping[Bucket, OpenBucket]) -> dict[Bucket, OpenBucket]:
    """The buckets that are read, up to the most offsets of one time."""
    chosen, offsets = {}, 0
    for key, account in found.items():
        size = sum(span[1] - span[0] + 1 for span in (*account.sources.values(), account.target) if span)
        if offsets + size <= _MOST_OFFSETS:
            chosen[key] = account
            offsets += size
    return chosen
